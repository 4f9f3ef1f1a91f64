package wish

import (
	"slices"
	"strings"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
)

// parser fills a wish, sentence by sentence.
type parser struct {
	lex   *lexicon.Lexicon
	index Index
	wish  *Wish

	loose []Cast // things without a part, for want of a better hero
	size  string // the last word of size, until a thing takes it
	tint  string // the last colour, until a thing takes it
	count string // the last "many" or "few", until a thing takes it
}

// atom is a stretch of a sentence and all that it may be.
type atom struct {
	start, end int
	thing      *Thing
	activity   string
	place      string
	colour     string
	amount     string
	class      string // of the grammar
	word       string // an English word that nobody knows
}

// read takes in one sentence.
func (p *parser) read(sentence string) {
	lang := dreamcore.DetectLang(sentence)
	if lang != dreamcore.English && p.wish.Lang != dreamcore.English {
		lang = p.wish.Lang // Japanese written without kana looks Chinese
	}
	if lang == dreamcore.English && p.foreign(sentence) {
		p.exact(sentence)
		return
	}
	atoms := p.atoms(sentence, lang)
	for _, a := range atoms {
		if a.activity != "" && !slices.Contains(p.wish.Activities, a.activity) {
			p.wish.Activities = append(p.wish.Activities, a.activity)
		}
		if a.amount != "" && !p.lex.Amounts[a.amount].Count {
			p.wish.Said = append(p.wish.Said, a.amount)
		}
	}
	for _, d := range p.lex.FindDimensions(sentence) {
		p.wish.Dimension = d.ID
	}
	switch lang {
	case dreamcore.Japanese:
		p.japanese(sentence, atoms)
	case dreamcore.Chinese:
		p.chinese(sentence, atoms)
	default:
		p.english(atoms)
	}
	for _, h := range p.lex.FindPlaces(sentence) {
		// A place within a verb counts (who flies through the sky), one within
		// the name of a thing does not.
		if !slices.ContainsFunc(atoms, func(a atom) bool {
			return a.thing != nil && a.start <= h.Start && h.End <= a.end && a.end-a.start > h.End-h.Start
		}) {
			p.place(h.ID)
		}
	}
	if p.tint != "" {
		// Said of nothing that follows: of what came last, else of the whole.
		if c := p.last(); c != nil && c.Colour == "" {
			c.Colour = p.tint
		} else {
			p.wish.Colours = append(p.wish.Colours, p.tint)
		}
		p.tint = ""
	}
	p.size, p.count = "", ""
}

// exact takes the things alone out of a sentence whose language is none of ours.
func (p *parser) exact(sentence string) {
	for _, m := range p.index.Scan(sentence) {
		if !p.meant(m, sentence[m.Start:m.End], true) {
			continue
		}
		if places := p.lex.FindPlaces(sentence[m.Start:m.End]); len(places) > 0 {
			p.place(places[0].ID)
			continue
		}
		part := Hero
		if len(p.wish.Heroes) > 0 {
			part = ""
		}
		p.cast(part, m.Thing)
	}
}

// atoms lays all that is known over the sentence; where stretches overlap, the
// longest stands, and equals are one atom that may be any of them.
func (p *parser) atoms(sentence string, lang dreamcore.Lang) []atom {
	var all []atom
	irregular := p.lex.Grammar[dreamcore.English]["irregular"]
	for _, m := range p.index.Scan(sentence) {
		if !p.meant(m, sentence[m.Start:m.End], false) {
			continue
		}
		t := m.Thing.Called(sentence[m.Start:m.End], lang, irregular)
		all = append(all, atom{start: m.Start, end: m.End, thing: &t})
	}
	add := func(hits []lexicon.Hit, set func(*atom, string)) {
		for _, h := range hits {
			a := atom{start: h.Start, end: h.End}
			set(&a, h.ID)
			all = append(all, a)
		}
	}
	add(p.lex.FindActivities(sentence), func(a *atom, id string) { a.activity = id })
	add(p.lex.FindPlaces(sentence), func(a *atom, id string) { a.place = id })
	add(p.lex.FindColours(sentence), func(a *atom, id string) { a.colour = id })
	add(p.lex.FindAmounts(sentence), func(a *atom, id string) { a.amount = id })
	add(p.lex.FindDimensions(sentence), func(a *atom, _ string) { a.class = "noise" })
	add(p.lex.FindGrammar(lang, sentence), func(a *atom, class string) { a.class = class })
	if lang == dreamcore.English {
		for _, t := range lexicon.Tokens(sentence) {
			all = append(all, atom{start: t.Start, end: t.End, word: lexicon.Fold(t.Text)})
		}
	}
	return overlay(all)
}

func overlay(all []atom) []atom {
	slices.SortStableFunc(all, func(a, b atom) int {
		if d := (b.end - b.start) - (a.end - a.start); d != 0 {
			return d
		}
		return a.start - b.start
	})
	var kept []atom
next:
	for _, a := range all {
		for i := range kept {
			k := &kept[i]
			if a.start == k.start && a.end == k.end {
				k.merge(a)
				continue next
			}
			if a.start < k.end && k.start < a.end {
				continue next
			}
		}
		kept = append(kept, a)
	}
	slices.SortFunc(kept, func(a, b atom) int { return a.start - b.start })
	return kept
}

func (a *atom) merge(b atom) {
	if a.thing == nil {
		a.thing = b.thing
	}
	for _, f := range []struct{ to, from *string }{
		{&a.activity, &b.activity},
		{&a.place, &b.place},
		{&a.colour, &b.colour},
		{&a.amount, &b.amount},
		{&a.class, &b.class},
		{&a.word, &b.word},
	} {
		if *f.to == "" {
			*f.to = *f.from
		}
	}
}

// unknown reports whether the atom is a word that only its place in the
// sentence can explain.
func (a atom) unknown() bool {
	return a.word != "" && a.thing == nil && a.activity == "" && a.place == "" && a.colour == "" && a.amount == "" && a.class == ""
}

// note keeps words that describe the thing after them.
func (p *parser) note(a atom) bool {
	switch {
	case a.colour != "" && a.thing == nil:
		p.tint = a.colour
	case a.amount != "" && p.lex.Amounts[a.amount].Count:
		p.count = a.amount
	case a.amount != "":
		p.size = p.lex.Amounts[a.amount].Look
	default:
		return false
	}
	return true
}

// cast gives a thing its part, with what was said of it just before.
func (p *parser) cast(part Part, t Thing) {
	c := Cast{Thing: t, Colour: p.tint, Look: p.size}
	if p.count != "" {
		p.wish.scale(part, p.lex.Amounts[p.count].Factor)
	}
	p.tint, p.size, p.count = "", "", ""
	w := p.wish
	for _, others := range [][]Cast{w.Heroes, w.Foes, w.Prizes, w.Scenery, p.loose} {
		for i, o := range others {
			if o.Key() == t.Key() {
				if o.Colour == "" {
					others[i].Colour = c.Colour
				}
				return
			}
		}
	}
	switch part {
	case Hero:
		w.Heroes = append(w.Heroes, c)
	case Foe:
		w.Foes = append(w.Foes, c)
	case Prize:
		w.Prizes = append(w.Prizes, c)
	case Scenery:
		w.Scenery = append(w.Scenery, c)
	default:
		p.loose = append(p.loose, c)
	}
}

// scale remembers how many of a part were asked for, as a meaning of its number.
func (w *Wish) scale(part Part, factor float64) {
	if id := map[Part]string{Foe: "foes", Prize: "prizes"}[part]; id != "" {
		if w.counts == nil {
			w.counts = map[string]float64{}
		}
		w.counts[id] = factor
	}
}

func (p *parser) place(id string) {
	if id != "" && !slices.Contains(p.wish.Places, id) {
		p.wish.Places = append(p.wish.Places, id)
	}
}

// last is the thing that was named last in any part.
func (p *parser) last() *Cast {
	w := p.wish
	for _, l := range []*[]Cast{&w.Prizes, &w.Foes, &w.Heroes, &w.Scenery, &p.loose} {
		if n := len(*l); n > 0 {
			return &(*l)[n-1]
		}
	}
	return nil
}

// settle finds a hero among what is left, if there is none yet.
func (p *parser) settle() {
	w := p.wish
	if len(w.Activities) > 0 {
		if id := p.lex.Activities[w.Activities[0]].Place; id != "" && len(w.Places) == 0 {
			p.place(id)
		}
	}
	if len(w.Heroes) == 0 {
		pool := append(slices.Clone(p.loose), w.Scenery...)
		i := slices.IndexFunc(pool, func(c Cast) bool { return c.Animate() })
		if i < 0 && len(p.loose) > 0 {
			i = 0
		}
		if i >= 0 {
			hero := pool[i]
			w.Heroes = []Cast{hero}
			same := func(c Cast) bool { return c.Key() == hero.Key() }
			w.Scenery = slices.DeleteFunc(w.Scenery, same)
			p.loose = slices.DeleteFunc(p.loose, same)
		}
	}
	for _, c := range p.loose {
		// What is only named is there to be found, unless it is somebody.
		if c.Animate() || len(w.Prizes) > 1 {
			w.Scenery = append(w.Scenery, c)
		} else {
			w.Prizes = append(w.Prizes, c)
		}
	}
}

func unknownThing(name string) Thing {
	name = strings.TrimSpace(name)
	return Thing{Names: dreamcore.Localized{dreamcore.English: name, dreamcore.Japanese: name, dreamcore.Chinese: name}}
}

// thing looks a phrase up, and keeps the phrase itself where the index has none.
func (p *parser) thing(phrase string) Thing {
	if t, ok := p.index.Lookup(phrase); ok {
		return t
	}
	return unknownThing(phrase)
}
