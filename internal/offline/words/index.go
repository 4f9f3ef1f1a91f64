// Package words knows the nouns: which thing a word in English, Japanese or
// Chinese names, and which emoji pictures it. It is built from Unicode CLDR's
// annotations of emoji (words.tsv.gz, made by gen) and from a hand-written list
// of common words that CLDR lacks (common.tsv). No noun of a wish stands in the
// code of the stand-in model or of the picture maker: they ask here.
//
// The index is read once, on the first question, and then safe for use by
// several goroutines.
package words

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	_ "embed" // the data files
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"dreamcore"
)

// Kind says what sort of thing a word names.
type Kind string

// The kinds of thing.
const (
	Animal   Kind = "animal"
	Creature Kind = "creature" // ghosts, robots, fairies
	Person   Kind = "person"
	Vehicle  Kind = "vehicle"
	Food     Kind = "food"
	Plant    Kind = "plant"
	Object   Kind = "object"
	Sky      Kind = "sky" // stars, weather, fire, water
	Place    Kind = "place"
	Body     Kind = "body" // hands and other parts
	Face     Kind = "face"
	Symbol   Kind = "symbol"
)

// kindOrder is which thing is meant when a mere keyword fits several.
var kindOrder = []Kind{Animal, Creature, Vehicle, Food, Plant, Object, Sky, Person, Place, Body, Face, Symbol}

// Entry is one thing.
type Entry struct {
	// Concept is the English name in lower case: "cat". It is not unique: CLDR
	// and the hand-written list may both have an entry for a thing.
	Concept string
	// Emoji pictures the thing; "" when Picture is one of our own drawings.
	Emoji string
	// Picture names the picture in the pack of the picture maker: "1f408".
	Picture string
	Kind    Kind
	// Names is what to call the thing in each language.
	Names dreamcore.Localized
	// Keywords are other words for it or about it.
	Keywords map[dreamcore.Lang][]string
}

// Rank says how well a word fits; less is better.
type Rank int

// The ranks.
const (
	Exact   Rank = iota // a common name of the thing: "cat", 子猫
	Name                // its CLDR name: "snow-capped mountain"
	Head                // the last part of its name: "mountain"
	Keyword             // a keyword: "snow"
	Partial             // found inside the phrase, or by a verb's stem
)

// Match is a thing that was found in a text.
type Match struct {
	Entry *Entry
	Rank  Rank
	// Text is what stood there, from byte Start to before byte End.
	Text       string
	Start, End int
}

//go:embed words.tsv.gz
var annotations []byte

//go:embed common.tsv
var common string

//go:embed stop.txt
var stop string

//go:embed clumsy.txt
var clumsy string

type posting struct {
	entry *Entry
	rank  Rank
	order int
}

type index struct {
	entries  []*Entry
	terms    map[string][]posting
	emoji    map[string]posting
	stop     map[string]bool
	clumsy   []string // what marks a name that nobody calls a thing by, between spaces
	maxRunes int      // of a term without spaces
	maxWords int      // of a term with spaces
}

var load = sync.OnceValue(func() *index {
	ix, err := read()
	if err != nil {
		// The files are part of the binary: this is a fault of the build, and the tests see it.
		panic(fmt.Sprintf("words: %v", err))
	}
	return ix
})

// Entries returns all things. The caller must not change them.
func Entries() []*Entry { return load().entries }

func read() (*index, error) {
	ix := &index{terms: map[string][]posting{}, emoji: map[string]posting{}, stop: map[string]bool{}}
	for line := range strings.Lines(stop) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		for _, w := range strings.Fields(line) {
			ix.stop[key(w)] = true
			ix.measure(key(w))
		}
	}
	for line := range strings.Lines(clumsy) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			ix.clumsy = append(ix.clumsy, " "+line+" ")
		}
	}
	for number, line := range strings.Split(common, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := ix.readCommon(line); err != nil {
			return nil, fmt.Errorf("common.tsv:%d: %w", number+1, err)
		}
	}
	r, err := gzip.NewReader(bytes.NewReader(annotations))
	if err != nil {
		return nil, fmt.Errorf("words.tsv.gz: %w", err)
	}
	text, err := io.ReadAll(bufio.NewReader(r))
	if err != nil {
		return nil, fmt.Errorf("words.tsv.gz: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if err := ix.readAnnotation(strings.TrimSuffix(line, "\n")); err != nil {
			return nil, err
		}
	}
	for term, list := range ix.terms {
		slices.SortStableFunc(list, func(a, b posting) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank),
				cmp.Compare(slices.Index(kindOrder, a.entry.Kind), slices.Index(kindOrder, b.entry.Kind)),
				cmp.Compare(a.order, b.order))
		})
		ix.terms[term] = slices.CompactFunc(list, func(a, b posting) bool { return a.entry == b.entry })
	}
	return ix, nil
}

func (ix *index) readCommon(line string) error {
	f := strings.Split(line, "|")
	if len(f) != 5 {
		return fmt.Errorf("%d columns, not 5", len(f))
	}
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	if !slices.Contains(kindOrder, Kind(f[1])) {
		return fmt.Errorf("unknown kind %q", f[1])
	}
	picture, shared := strings.CutPrefix(f[0], "~")
	langs := []dreamcore.Lang{dreamcore.English, dreamcore.Japanese, dreamcore.Chinese}
	if !shared {
		return ix.addCommon(picture, Kind(f[1]), [][]string{list(f[2], ","), list(f[3], ","), list(f[4], ",")}, langs)
	}
	var things [3][]string
	for i := range things {
		things[i] = list(f[2+i], ",")
		if len(things[i]) != len(things[0]) {
			return fmt.Errorf("%d things in %s, %d in %s", len(things[i]), langs[i], len(things[0]), langs[0])
		}
	}
	for n := range things[0] {
		names := [][]string{list(things[0][n], "/"), list(things[1][n], "/"), list(things[2][n], "/")}
		if err := ix.addCommon(picture, Kind(f[1]), names, langs); err != nil {
			return err
		}
	}
	return nil
}

// list splits a cell.
func list(cell, by string) []string {
	out := strings.Split(cell, by)
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

// addCommon adds one thing with its names in each language.
func (ix *index) addCommon(picture string, kind Kind, names [][]string, langs []dreamcore.Lang) error {
	e := &Entry{Kind: kind, Names: dreamcore.Localized{}, Keywords: map[dreamcore.Lang][]string{}}
	if own, ok := strings.CutPrefix(picture, "="); ok {
		e.Picture = own
	} else {
		e.Emoji, e.Picture = picture, pictureOf(picture)
	}
	for i, lang := range langs {
		for _, name := range names[i] {
			if name == "" {
				return fmt.Errorf("an empty name in %s", lang)
			}
			ix.add(name, e, Exact)
		}
		e.Names[lang], e.Keywords[lang] = names[i][0], names[i][1:]
	}
	e.Concept = strings.ToLower(e.Names[dreamcore.English])
	if _, ok := ix.emoji[e.Emoji]; !ok && e.Emoji != "" {
		ix.emoji[e.Emoji] = posting{e, Exact, 0}
	}
	ix.entries = append(ix.entries, e)
	return nil
}

func (ix *index) readAnnotation(line string) error {
	f := strings.Split(line, "\t")
	if len(f) != 8 {
		return fmt.Errorf("words.tsv.gz: %d columns, not 8", len(f))
	}
	e := &Entry{
		Concept: strings.ToLower(f[2]), Emoji: f[0], Picture: pictureOf(f[0]), Kind: Kind(f[1]),
		Names: dreamcore.Localized{}, Keywords: map[dreamcore.Lang][]string{},
	}
	padded := " " + strings.NewReplacer(":", " ", "(", " ", ")", " ").Replace(e.Concept) + " "
	unnamed := slices.ContainsFunc(ix.clumsy, func(c string) bool { return strings.Contains(padded, c) })
	for i, lang := range []dreamcore.Lang{dreamcore.English, dreamcore.Japanese, dreamcore.Chinese} {
		name := f[2+2*i]
		e.Names[lang] = name
		if unnamed {
			continue
		}
		ix.add(name, e, Name)
		for _, k := range strings.Split(f[3+2*i], "|") {
			if k == "" || k == name {
				continue
			}
			e.Keywords[lang] = append(e.Keywords[lang], k)
			rank := Keyword
			if rest, ok := strings.CutSuffix(key(name), key(k)); ok && (lang != dreamcore.English || strings.HasSuffix(rest, " ")) {
				rank = Head
			}
			ix.add(k, e, rank)
		}
	}
	if _, ok := ix.emoji[e.Emoji]; !ok {
		ix.emoji[e.Emoji] = posting{e, Exact, 0}
	}
	ix.entries = append(ix.entries, e)
	return nil
}

func (ix *index) add(term string, e *Entry, rank Rank) {
	k := key(term)
	if k == "" {
		return
	}
	ix.terms[k] = append(ix.terms[k], posting{e, rank, len(ix.entries)})
	ix.measure(k)
}

func (ix *index) measure(k string) {
	ix.maxRunes = max(ix.maxRunes, len([]rune(k)))
	ix.maxWords = max(ix.maxWords, strings.Count(k, " ")+1)
}

// pictureOf is how the picture maker's pack names the picture of an emoji.
func pictureOf(emoji string) string {
	var parts []string
	for _, r := range emoji {
		if r != '\ufe0f' {
			parts = append(parts, fmt.Sprintf("%04x", r))
		}
	}
	return strings.Join(parts, "-")
}
