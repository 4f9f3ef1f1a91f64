// Package lexicon is the stand-in model's knowledge of words that are not names
// of things: what one does in a game, places and their colours, colours, amounts,
// and the small grammar that tells a hero from a foe. Names of things come from
// the Unicode index beside it.
//
// All of it is data in *.json, in English, Japanese and Chinese; the code holds
// no word of any wish.
package lexicon

import (
	"embed"
	"encoding/json"
	"fmt"

	"dreamcore"
)

//go:embed *.json
var files embed.FS

// Words lists the forms of a word in each language. English verbs and nouns
// stand in their base form; regular endings are derived.
type Words map[dreamcore.Lang][]string

// Activity is something that one does in a game.
type Activity struct {
	ID    string `json:"id"`
	Words Words  `json:"words"`
	// Near says how well a game of another activity would do instead, 0 to 1.
	Near map[string]float64 `json:"near"`
	// Role is what its object is in the game: "foe", "prize" or "".
	Role string `json:"role"`
	// Common marks what is done in games of every kind, and so tells little.
	Common bool `json:"common"`
	// Promise marks what only a game that is about it may have in its title.
	Promise bool `json:"promise"`
	// Look is how a hero that does it is pictured, in English: "flying".
	Look    string              `json:"look"`
	Title   dreamcore.Localized `json:"title"`
	Place   string              `json:"place"` // where it happens when the wish names no place
	Hero    []string            `json:"hero"`
	Foes    []string            `json:"foes"`
	Prizes  []string            `json:"prizes"`
	Meaning                     // what it does to a game's numbers and rules
}

// Meaning is what a word does to a game. Numbers are factors by what a number
// means ("speed": 1.3); Rules are values by what a rule means ("night": true).
type Meaning struct {
	Numbers map[string]float64 `json:"numbers"`
	Rules   map[string]bool    `json:"rules"`
}

// Place is where a game happens.
type Place struct {
	ID      string              `json:"id"`
	Words   Words               `json:"words"`
	Palette map[string]string   `json:"palette"` // role to "#rrggbb"
	Look    map[string]bool     `json:"look"`    // what the kit's backdrop shows there: sun, clouds, bubbles
	Near    []string            `json:"near"`    // places and activities that go with it
	Implied []string            `json:"implied"` // activities whose title says the place already
	Mood    bool                `json:"mood"`    // rather a time or a weather than a place
	Hero    []string            `json:"hero"`    // who lives there
	Home    []string            `json:"home"`    // whose game happens there when a wish names no place
	Foes    []string            `json:"foes"`
	Prizes  []string            `json:"prizes"`
	Scenery []string            `json:"scenery"`
	Title   dreamcore.Localized `json:"title"`
	Meaning
}

// Colour is a colour with its names.
type Colour struct {
	ID    string `json:"id"` // also its English name
	Words Words  `json:"words"`
	Hex   string `json:"hex"`
}

// Amount is a word of degree: fast, many, tiny, hard.
type Amount struct {
	ID     string  `json:"id"`
	Words  Words   `json:"words"`
	Count  bool    `json:"count"`  // it counts the things beside it
	Factor float64 `json:"factor"` // for Count: by how much
	Look   string  `json:"look"`
	Meaning
}

// Defaults fill what a wish leaves open.
type Defaults struct {
	Heroes     []string         `json:"heroes"`
	Foes       []string         `json:"foes"`
	Prizes     []string         `json:"prizes"`
	Scenery    []string         `json:"scenery"`
	Places     []string         `json:"places"`
	Dimensions map[string]Words `json:"dimensions"`
	// Title is the title of a game of which one does not know what one does.
	Title dreamcore.Localized `json:"title"`
	// Prize is the same where the wish names what to get.
	Prize dreamcore.Localized `json:"prize"`
	// Targets are words for the parts of a game: "hero", "foes", "prizes", "scenery".
	Targets map[string]Words `json:"targets"`
	// Change holds the verbs of a change: "replace", "instead", "add", "remove", "call".
	Change map[string]Words `json:"change"`
}

// Lexicon is all of it, ready to search.
type Lexicon struct {
	Activities map[string]*Activity
	Places     map[string]*Place
	Colours    map[string]*Colour
	Amounts    map[string]*Amount
	Defaults   Defaults
	Grammar    map[dreamcore.Lang]map[string][]string

	activity, place, colour, amount, dimension, target, change Finder
	grammar                                                    map[dreamcore.Lang]Finder
}

// Load reads the embedded data. It fails only when the data itself is wrong,
// which the package's tests keep from happening.
func Load() (*Lexicon, error) {
	var (
		l          Lexicon
		activities []*Activity
		places     []*Place
		colours    []*Colour
		amounts    []*Amount
	)
	for name, into := range map[string]any{
		"activities.json": &activities, "places.json": &places, "colours.json": &colours,
		"amounts.json": &amounts, "defaults.json": &l.Defaults, "grammar.json": &l.Grammar,
	} {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("lexicon: %w", err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			return nil, fmt.Errorf("lexicon: %s: %w", name, err)
		}
	}
	l.Activities = table(activities, func(a *Activity) string { return a.ID })
	l.Places = table(places, func(p *Place) string { return p.ID })
	l.Colours = table(colours, func(c *Colour) string { return c.ID })
	l.Amounts = table(amounts, func(a *Amount) string { return a.ID })
	for _, a := range activities {
		l.activity.add(a.ID, a.Words, true)
	}
	for _, p := range places {
		l.place.add(p.ID, p.Words, true)
	}
	for _, c := range colours {
		l.colour.add(c.ID, c.Words, false)
	}
	for _, a := range amounts {
		l.amount.add(a.ID, a.Words, false)
	}
	for id, w := range l.Defaults.Dimensions {
		l.dimension.add(id, w, false)
	}
	for id, w := range l.Defaults.Targets {
		l.target.add(id, w, false)
	}
	for id, w := range l.Defaults.Change {
		l.change.add(id, w, true)
	}
	l.grammar = map[dreamcore.Lang]Finder{}
	for lang, classes := range l.Grammar {
		var f Finder
		for class, words := range classes {
			if class == "irregular" || class == "unchanging" || class == "short" || class == "foreign" {
				continue // no class of words, but plurals of any, or lists for the reader
			}
			f.add(class, Words{lang: words}, false)
		}
		l.grammar[lang] = f
	}
	return &l, nil
}

func table[T any](all []T, id func(T) string) map[string]T {
	m := make(map[string]T, len(all))
	for _, x := range all {
		m[id(x)] = x
	}
	return m
}

// FindActivities returns the activities that text names, in order.
func (l *Lexicon) FindActivities(text string) []Hit { return l.activity.Find(text) }

// FindPlaces returns the places that text names, in order.
func (l *Lexicon) FindPlaces(text string) []Hit { return l.place.Find(text) }

// FindColours returns the colours that text names, in order.
func (l *Lexicon) FindColours(text string) []Hit { return l.colour.Find(text) }

// FindAmounts returns the words of degree in text, in order.
func (l *Lexicon) FindAmounts(text string) []Hit { return l.amount.Find(text) }

// FindDimensions returns "2d" and "3d" where text says so.
func (l *Lexicon) FindDimensions(text string) []Hit { return l.dimension.Find(text) }

// FindTargets returns the parts of a game that text names.
func (l *Lexicon) FindTargets(text string) []Hit { return l.target.Find(text) }

// FindChanges returns the verbs of change in text.
func (l *Lexicon) FindChanges(text string) []Hit { return l.change.Find(text) }

// FindGrammar returns the small words of lang in text; a Hit's ID is its class.
func (l *Lexicon) FindGrammar(lang dreamcore.Lang, text string) []Hit {
	f := l.grammar[lang]
	return f.Find(text)
}
