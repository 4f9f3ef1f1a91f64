// Package recipe turns a wish into the changes that make a template another
// game. It knows no template and no noun: a manifest says what may be changed
// and within which bounds, the wish and the lexicon say into what.
package recipe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
	"dreamcore/internal/offline/wish"
)

// Plan is everything that a wish changes in a game.
type Plan struct {
	Title   dreamcore.Localized
	Hero    wish.Cast
	Foes    []wish.Cast // one for each of the manifest's slots
	Prizes  []wish.Cast
	Scenery []wish.Cast
	Place   string            // id; the place named or chosen
	Files   map[string][]byte // JSON files with their new text, only those that change
	Calm    map[string][]byte // the same with the template's numbers and rules
	Orders  []Order
	Renames []Rename
	Changed []string // what of numbers and rules changed, by meaning
	Refused []string // what an edit asked for and the game has no room for, by meaning
}

// Order is one picture to make.
type Order struct {
	File  string // relative to the game's folder
	Words string
	Size  int // pixels, square
}

// Rename is a text of the template that must not be left over.
type Rename struct {
	Old, New string
	Whole    bool // only where it is the whole of a text
}

// Cook works plans out. It is safe for concurrent use.
type Cook struct {
	Lexicon *lexicon.Lexicon
	Index   wish.Index
}

// Make plans the transformation of a game for w. files holds the text of each
// of the manifest's Files; game.json must be among them and be JSON, a level
// file that is neither is left alone.
func (c *Cook) Make(m Manifest, files map[string][]byte, w wish.Wish) (*Plan, error) {
	docs := map[string]*document{}
	for _, name := range m.Files() {
		doc, err := newDocument(files[name])
		if err != nil {
			if name == GameFile {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		docs[name] = doc
	}
	p := &Plan{}
	c.fill(p, m, w, c.present(m, docs[GameFile]))
	p.Title = c.title(p, w, c.deeds(m))
	c.names(p, m, docs[GameFile])
	c.palette(p, m, w, docs[GameFile])
	c.pictures(p, m, w)
	p.rename(docs[GameFile])
	var err error
	if p.Calm, err = written(docs); err != nil {
		return nil, err
	}
	p.Changed = append(numbers(m, w, docs), rules(m, w, docs)...)
	if p.Files, err = written(docs); err != nil {
		return nil, err
	}
	return p, nil
}

// written is the text of the files that have changes.
func written(docs map[string]*document) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, doc := range docs {
		if len(doc.changes) == 0 {
			continue
		}
		text, err := doc.bytes()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = text
	}
	return files, nil
}

// fill gives every slot of the manifest a thing: those of the wish first, then
// those that go with what one does and where. What the template has already
// stays where the wish names it or where it belongs to what one does.
func (c *Cook) fill(p *Plan, m Manifest, w wish.Wish, now map[string]wish.Thing) {
	var heroes, foes, prizes []string
	if len(w.Places) > 0 {
		heroes = c.Lexicon.Places[w.Places[0]].Hero
	}
	for _, id := range w.Activities {
		heroes = append(slices.Clone(heroes), c.Lexicon.Activities[id].Hero...)
	}
	d := c.Lexicon.Defaults
	f := &filler{Cook: c, now: now, used: map[string]bool{}}
	for _, named := range [][]wish.Cast{w.Heroes, w.Foes, w.Prizes, w.Scenery} {
		for _, n := range named {
			f.used[n.Key()] = true // nothing of the wish is also a filler
		}
	}
	for _, t := range now {
		f.used[t.Key()] = true
	}
	p.Hero = f.hero(w.Heroes, append(slices.Clone(heroes), w.Turned("hero", d.Heroes)...))
	p.Place = c.placeOf(w, p.Hero)
	place := c.Lexicon.Places[p.Place]
	for _, id := range w.Activities {
		a := c.Lexicon.Activities[id]
		if a.Place == p.Place {
			foes = append(foes, a.Foes...) // these belong to the place too
		}
		prizes = append(prizes, a.Prizes...)
	}
	foes, prizes = append(foes, place.Foes...), append(prizes, place.Prizes...)
	for _, id := range w.Activities {
		foes = append(foes, c.Lexicon.Activities[id].Foes...)
	}
	if p.Hero.Colour == "" && sameThing(p.Hero.Thing, now[m.Change.Hero.Name]) {
		// The template's own hero was asked for: it comes in another colour.
		p.Hero.Colour = w.Turned("hero colour", keysOf(c.Lexicon.Colours))[0]
	}
	p.Foes = f.slots(m.Change.Foes, w.Foes, foes, w.Turned("foe", d.Foes))
	p.Prizes = f.slots(m.Change.Prizes, w.Prizes, prizes, w.Turned("prize", d.Prizes))
	friends := w.Scenery
	if len(w.Heroes) > 1 {
		friends = append(slices.Clone(w.Heroes[1:]), friends...)
	}
	p.Scenery = f.slots(m.Change.Scenery, friends, place.Scenery, w.Turned("scenery", d.Scenery))
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// filler fills slots and uses nothing twice.
type filler struct {
	*Cook
	now  map[string]wish.Thing // what the template has, by the slot's name pointer
	used map[string]bool       // by key
}

// next takes the first thing of a list that is not used yet.
func (f *filler) next(list []string) (wish.Cast, bool) {
	for _, name := range list {
		if t, ok := f.Index.Lookup(name); ok && !f.used[t.Key()] {
			f.used[t.Key()] = true
			return wish.Cast{Thing: t}, true
		}
	}
	return wish.Cast{}, false
}

func (f *filler) hero(named []wish.Cast, list []string) wish.Cast {
	if len(named) > 0 {
		return named[0]
	}
	c, _ := f.next(list)
	return c
}

// slots fills slots with what is named, then from the fitting list; common
// things are for the first slot alone, since something must change there.
func (f *filler) slots(slots []Slot, named []wish.Cast, fitting, common []string) []wish.Cast {
	all := make([]wish.Cast, len(slots))
	named = slices.Clone(named)
	for i, s := range slots {
		at := slices.IndexFunc(named, func(c wish.Cast) bool { return c.Colour == "" && c.Look == "" && sameThing(c.Thing, f.now[s.Name]) })
		if at >= 0 {
			all[i] = kept(f.now[s.Name])
			named = slices.Delete(named, at, at+1)
		}
	}
	for i, s := range slots {
		if all[i].Names != nil {
			continue
		}
		if len(named) > 0 {
			all[i], named = named[0], named[1:]
			continue
		}
		now, has := f.now[s.Name]
		if has && slices.ContainsFunc(fitting, func(name string) bool { return f.names(name, now) }) && i > 0 {
			all[i] = kept(now)
			continue
		}
		c, ok := f.next(fitting)
		if !ok && (i == 0 || !has) {
			c, ok = f.next(common)
		}
		if !ok {
			c = kept(now)
		}
		all[i] = c
	}
	return all
}

// kept marks a thing that stays: neither its name nor its picture changes.
func kept(t wish.Thing) wish.Cast { return wish.Cast{Thing: t, Kept: true} }

// names reports whether a word of the lexicon means a thing of the template.
func (f *filler) names(word string, t wish.Thing) bool {
	found, ok := f.Index.Lookup(word)
	return ok && sameThing(found, t)
}

// sameThing compares by what things are called in any language.
func sameThing(a, b wish.Thing) bool {
	for _, lang := range dreamcore.Langs {
		if a.Names[lang] != "" && strings.EqualFold(a.Names[lang], b.Names[lang]) {
			return true
		}
	}
	return false
}

// present is what the template has, by the slot's name pointer.
func (c *Cook) present(m Manifest, doc *document) map[string]wish.Thing {
	all := map[string]wish.Thing{}
	for _, s := range m.slots() {
		t := wish.Thing{}
		if doc.get(s.Name, &t.Names) {
			all[s.Name] = t
		}
	}
	return all
}

// placeOf is the place of the wish, or where its hero is at home, or what else
// it names; else one that suits what one does.
func (c *Cook) placeOf(w wish.Wish, hero wish.Cast) string {
	if len(w.Places) > 0 {
		return w.Places[0]
	}
	for _, list := range [][]wish.Cast{w.Heroes, w.Foes, w.Prizes, {hero}} {
		for _, t := range list {
			if id := c.homeOf(t.Thing); id != "" {
				return id
			}
		}
	}
	var fit []string
	for _, id := range c.Lexicon.Defaults.Places {
		for _, a := range w.Activities {
			if slices.Contains(c.Lexicon.Places[id].Near, a) {
				fit = append(fit, id)
				break
			}
		}
	}
	if len(fit) == 0 {
		fit = c.Lexicon.Defaults.Places
	}
	return fit[w.Pick("place", len(fit))]
}

// homeOf is the place where a thing is at home, or "".
func (c *Cook) homeOf(t wish.Thing) string {
	for _, id := range keysOf(c.Lexicon.Places) {
		for _, name := range c.Lexicon.Places[id].Home {
			if name == t.Key() {
				return id
			}
			if found, ok := c.Index.Lookup(name); ok && found.Key() == t.Key() {
				return id
			}
		}
	}
	return ""
}

// deeds are the activities that a title of this game may speak of.
type deeds map[string]bool

// deeds are what the game is about by its title and summary, and what its words
// speak of besides, but for what would promise a game of another kind. Two
// languages must say so, where there are as many: one alone may use a verb for
// something else ("before it gets away").
func (c *Cook) deeds(m Manifest) deeds {
	votes, languages := map[string]int{}, 0
	for _, lang := range dreamcore.Langs {
		if m.Summary[lang] != "" {
			languages++
		}
		said := deeds{}
		for _, h := range c.Lexicon.FindActivities(m.Title[lang] + ". " + m.Summary[lang]) {
			said[h.ID] = true
		}
		for _, h := range c.Lexicon.FindActivities(strings.Join(m.Words[lang], ", ")) {
			said[h.ID] = said[h.ID] || !c.Lexicon.Activities[h.ID].Promise
		}
		for id, yes := range said {
			if yes {
				votes[id]++
			}
		}
	}
	d := deeds{}
	for id, n := range votes {
		d[id] = n >= min(2, languages)
	}
	return d
}

// title makes a title in each language from the hero, what one does in this
// game, and where. What the wish asks for and the game is not is left out.
func (c *Cook) title(p *Plan, w wish.Wish, does deeds) dreamcore.Localized {
	if w.Title != "" {
		return dreamcore.Localized{dreamcore.English: w.Title, dreamcore.Japanese: w.Title, dreamcore.Chinese: w.Title}
	}
	pattern, deed := c.Lexicon.Defaults.Title, ""
	if len(w.Prizes) > 0 && len(p.Prizes) > 0 {
		pattern = c.Lexicon.Defaults.Prize
	}
	for _, id := range w.Activities {
		if a := c.Lexicon.Activities[id]; does[id] && a.Title.In(dreamcore.English) != "" && p.names(a) {
			pattern, deed = a.Title, id
			break
		}
	}
	title := dreamcore.Localized{}
	for _, lang := range dreamcore.Langs {
		text := pattern.In(lang)
		if len(w.Places) > 0 {
			if place := c.Lexicon.Places[w.Places[0]]; !slices.Contains(place.Implied, deed) {
				text = strings.ReplaceAll(place.Title.In(lang), "{title}", text)
			}
		}
		title[lang] = strings.NewReplacer(
			"{hero}", c.headline(p.Hero, lang, false),
			"{foe}", c.headline(first(p.Foes, p.Hero), lang, true),
			"{prize}", c.headline(first(p.Prizes, p.Hero), lang, true),
		).Replace(text)
	}
	return title
}

// names reports whether the game has what an activity's title speaks of.
func (p *Plan) names(a *lexicon.Activity) bool {
	pattern := a.Title.In(dreamcore.English)
	return !(strings.Contains(pattern, "{foe}") && len(p.Foes) == 0 ||
		strings.Contains(pattern, "{prize}") && len(p.Prizes) == 0)
}

func first(list []wish.Cast, other wish.Cast) wish.Cast {
	if len(list) > 0 {
		return list[0]
	}
	return other
}

// headline is a name as it stands in a title.
func (c *Cook) headline(cast wish.Cast, lang dreamcore.Lang, many bool) string {
	name := cast.Names.In(lang)
	if lang != dreamcore.English {
		return name
	}
	if many {
		name = c.plural(name)
	}
	return capital(name)
}

// Design is the plan for a game of which only the line of the catalogue is
// known: one foe, one prize, one thing to see.
func (c *Cook) Design(w wish.Wish, e Entry) *Plan {
	m := Manifest{
		Title:   dreamcore.Localized{dreamcore.English: e.Title},
		Summary: dreamcore.Localized{dreamcore.English: e.Summary},
		Words:   lexicon.Words{dreamcore.English: e.Words},
	}
	one := []Slot{{}}
	m.Change.Foes, m.Change.Prizes, m.Change.Scenery = one, one, one
	p := &Plan{}
	c.fill(p, m, w, nil)
	p.Title = c.title(p, w, c.deeds(m))
	return p
}
