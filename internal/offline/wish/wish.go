// Package wish reads what a person asks for, in English, Japanese or Chinese:
// who is the hero, what to collect, what to avoid, where it happens, what one
// does, and how fast, many, big or blue. It works by rules over a lexicon and an
// index of names of things; it is no language model, and what it does not
// understand it leaves open for the recipe to fill.
package wish

import (
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
	"dreamcore/internal/offline/words"
)

// Thing is something that can be pictured.
type Thing struct {
	Concept string              // what tells it from others; "" when unknown
	Names   dreamcore.Localized // in the words of the wish where it has some; the English one asks for the picture
	Kind    words.Kind          // "" when unknown
	Known   bool                // the index has it
}

// Key tells things apart, whatever the wish calls them.
func (t Thing) Key() string {
	if t.Concept != "" {
		return t.Concept
	}
	return t.Names.In(dreamcore.English)
}

// Called returns the thing under the name that a text gives it in lang: who
// asks for the young of an animal gets it by that name.
func (t Thing) Called(text string, lang dreamcore.Lang, irregular []string) Thing {
	if strings.IndexFunc(text, unicode.IsLetter) != 0 {
		return t // an emoji
	}
	if lang == dreamcore.English {
		name := t.Names[lang]
		text = strings.ToLower(text)
		if slices.Contains(irregular, text) || strings.HasPrefix(text, name[:min(3, len(name))]) {
			return t // the same word, perhaps in the plural
		}
		text = lexicon.Singular(text)
	}
	t.Names = maps.Clone(t.Names)
	t.Names[lang] = text
	return t
}

// Animate reports whether the thing may be somebody.
func (t Thing) Animate() bool {
	return t.Kind == words.Animal || t.Kind == words.Creature || t.Kind == words.Person || t.Kind == words.Vehicle
}

// Mention is a thing at a place in a text; offsets are in bytes.
type Mention struct {
	Thing
	Start, End int
	Exact      bool // the text gives a name of the thing, not merely a word about it
}

// Index knows the names of things.
type Index interface {
	// Scan returns the things that a text names, in order and without overlap.
	Scan(text string) []Mention
	// Lookup returns the thing that fits a phrase best.
	Lookup(phrase string) (Thing, bool)
}

// Part is what a thing does in a game.
type Part string

// The parts of a game.
const (
	Hero    Part = "hero"
	Foe     Part = "foe"
	Prize   Part = "prize"
	Scenery Part = "scenery"
)

// Cast is a thing in a part, as the wish describes it.
type Cast struct {
	Thing
	Colour string // id of a colour, "" when not said
	Look   string // in English: "big"
	Kept   bool   // it is in the game already and stays as it is
}

// Wish is what was understood.
type Wish struct {
	Text       string
	Lang       dreamcore.Lang
	Activities []string // ids, most telling first
	Places     []string // ids
	Title      string   // a title that was asked for, word for word
	Dimension  string   // "2d", "3d" or "" when not said
	Heroes     []Cast   // the first is the hero, others are friends
	Foes       []Cast
	Prizes     []Cast
	Scenery    []Cast
	Colours    []string // said of nothing in particular
	Said       []string // ids of the words of degree
	// Numbers and Rules are what all words together mean for a game.
	Numbers map[string]float64
	Rules   map[string]bool
	// Seed decides what the words leave open.
	Seed uint64

	counts map[string]float64 // factors of "many" and "few", by what is counted
}

// Reader reads wishes. It is safe for concurrent use.
type Reader struct {
	Lexicon *lexicon.Lexicon
	Index   Index
}

// MaxBytes is how much of a wish is read; the rest of a longer one cannot add
// anything that a game of this size could show.
const MaxBytes = 4000

// Read understands text; lang is the language of the game, and the text itself
// may be in another.
func (r *Reader) Read(text string, lang dreamcore.Lang) Wish {
	text = clip(strings.ToValidUTF8(text, " "))
	seed := hash(text)
	text = plain(text)
	w := Wish{Text: text, Lang: lang, Seed: seed}
	p := &parser{lex: r.Lexicon, index: r.Index, wish: &w}
	for _, s := range sentences(text) {
		p.read(s)
	}
	p.settle()
	w.mean(r.Lexicon)
	return w
}

// mean sums up what the words mean. Later ones win: a place, then what one does
// there (who flies does not fall, on the moon either), then what was said of it.
func (w *Wish) mean(l *lexicon.Lexicon) {
	w.Numbers, w.Rules = map[string]float64{}, map[string]bool{}
	add := func(m lexicon.Meaning) {
		for k, f := range m.Numbers {
			if old, ok := w.Numbers[k]; ok {
				f = min(max(f*old, 0.3), 2.5)
			}
			w.Numbers[k] = f
		}
		for k, v := range m.Rules {
			w.Rules[k] = v
		}
	}
	for _, id := range w.Places {
		add(l.Places[id].Meaning)
	}
	for _, id := range slices.Backward(w.Activities) {
		add(l.Activities[id].Meaning)
	}
	for _, id := range w.Said {
		add(l.Amounts[id].Meaning)
	}
	add(lexicon.Meaning{Numbers: w.counts})
}

// Pick is a number below n that follows from the wish and a purpose.
func (w Wish) Pick(purpose string, n int) int {
	if n <= 0 {
		return 0
	}
	h := fnv.New64a()
	// Writing to a hash never fails.
	h.Write([]byte(purpose))
	return int(mix(w.Seed^h.Sum64()) % uint64(n))
}

// Share is a number in [0, 1) that follows from the wish and a purpose.
func (w Wish) Share(purpose string) float64 { return float64(w.Pick(purpose, 1<<20)) / (1 << 20) }

// Turned returns list beginning at a place that follows from the wish.
func (w Wish) Turned(purpose string, list []string) []string {
	if len(list) == 0 {
		return nil
	}
	n := w.Pick(purpose, len(list))
	return append(slices.Clone(list[n:]), list[:n]...)
}

func hash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(strings.TrimSpace(text)))
	return h.Sum64()
}

// mix spreads the bits of x (the finaliser of splitmix64): the low bits of FNV
// alone hardly differ for texts that are alike.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

func clip(s string) string {
	if len(s) <= MaxBytes {
		return s
	}
	return strings.ToValidUTF8(s[:MaxBytes], "")
}

func sentences(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(".;!?\n。；！？", r) })
}
