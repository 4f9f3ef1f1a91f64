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

// Edit plans a change of a game that is there already: only what the wish says
// is touched. A plan without Files and Orders means that nothing was
// understood.
func (c *Cook) Edit(m Manifest, files map[string][]byte, w wish.Wish) (*Plan, error) {
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
	e := &editor{Cook: c, m: m, w: w, docs: docs, game: docs[GameFile], plan: &Plan{}}
	e.slots()
	e.point()
	e.counts()
	e.things()
	e.colours()
	e.places()
	e.titles()
	e.plan.rename(e.game)
	e.retitle()
	e.plan.Title = titleOf(e.game, e.m, e.plan.Title)
	var err error
	if e.plan.Calm, err = written(docs); err != nil {
		return nil, err
	}
	e.meanings()
	if e.plan.Files, err = written(docs); err != nil {
		return nil, err
	}
	return e.plan, nil
}

// editor works one change out.
type editor struct {
	*Cook
	m    Manifest
	w    wish.Wish
	docs map[string]*document
	game *document
	plan *Plan

	parts    []*slot
	mentions []mention
	fresh    []wish.Mention       // things that are not in the game yet, or merely stand about
	counted  map[string]wish.Part // of these, those of which there shall be more or fewer, by key
	factors  map[string]float64   // for the numbers, by meaning
	byTitle  map[dreamcore.Lang]*Plan
}

// slot is a slot of the manifest with what is in it.
type slot struct {
	Slot
	part wish.Part
	was  wish.Thing // before the change
	now  wish.Cast
	new  bool // it gets another thing or another look
}

// mention is a place in the text that speaks of a part of the game.
type mention struct {
	start, end int
	part       wish.Part
	slot       *slot // when it names what is in one
}

func (e *editor) slots() {
	add := func(part wish.Part, list ...Slot) {
		for _, s := range list {
			t := wish.Thing{}
			if e.game.get(s.Name, &t.Names) {
				if known, ok := e.Index.Lookup(t.Key()); ok {
					t.Kind = known.Kind
				}
				e.parts = append(e.parts, &slot{Slot: s, part: part, was: t, now: wish.Cast{Thing: t}})
			}
		}
	}
	add(wish.Hero, e.m.Change.Hero)
	add(wish.Foe, e.m.Change.Foes...)
	add(wish.Prize, e.m.Change.Prizes...)
	add(wish.Scenery, e.m.Change.Scenery...)
	if len(e.parts) > 0 {
		e.plan.Hero = e.parts[0].now
	}
	e.game.get(parentOf(e.m.Change.Titles), &e.plan.Title)
}

// parentOf is the pointer to the object that holds the titles.
func parentOf(titles []string) string {
	if len(titles) > 0 {
		if i := strings.LastIndexByte(titles[0], '/'); i > 0 {
			return titles[0][:i]
		}
	}
	return "/title"
}

// point finds what the text speaks of.
func (e *editor) point() {
	parts := map[string]wish.Part{"hero": wish.Hero, "foes": wish.Foe, "prizes": wish.Prize, "scenery": wish.Scenery}
	for _, h := range e.Lexicon.FindTargets(e.w.Text) {
		e.mentions = append(e.mentions, mention{h.Start, h.End, parts[h.ID], nil})
	}
	for _, m := range e.Index.Scan(e.w.Text) {
		s := e.holding(m.Thing)
		if s != nil {
			e.mentions = append(e.mentions, mention{m.Start, m.End, s.part, s})
		}
		named := slices.ContainsFunc(e.mentions, func(x mention) bool { return x.slot == nil && x.start == m.Start })
		if !named && (s == nil || s.part == wish.Scenery) {
			e.fresh = append(e.fresh, m)
		}
	}
}

// holding returns the slot that has this thing in it before the change, if any.
func (e *editor) holding(t wish.Thing) *slot {
	for _, s := range e.parts {
		if sameThing(s.was, t) {
			return s
		}
	}
	return nil
}

// nearest is the mention closest to a place in the text.
func (e *editor) nearest(h lexicon.Hit) (mention, bool) {
	best, distance := mention{}, 1<<30
	for _, m := range e.mentions {
		if d := apart(h, m.start, m.end); d < distance {
			best, distance = m, d
		}
	}
	return best, distance < 1<<30
}

// nearestFresh is the closest thing that has no part in the game yet.
func (e *editor) nearestFresh(h lexicon.Hit) (wish.Mention, bool) {
	best, distance := wish.Mention{}, 1<<30
	for _, m := range e.fresh {
		if d := apart(h, m.Start, m.End); d < distance {
			best, distance = m, d
		}
	}
	return best, distance < 1<<30
}

// apart is how many bytes stand between two places in the text.
func apart(h lexicon.Hit, start, end int) int { return max(start-h.End, h.Start-end, 0) }

// counts reads "more stars", "fewer enemies", "no enemies".
func (e *editor) counts() {
	e.factors = map[string]float64{}
	e.counted = map[string]wish.Part{}
	numberOf := map[wish.Part]string{wish.Foe: "foes", wish.Prize: "prizes"}
	for _, h := range e.Lexicon.FindAmounts(e.w.Text) {
		a := e.Lexicon.Amounts[h.ID]
		if !a.Count {
			continue
		}
		m, ok := e.nearest(h)
		if t, near := e.nearestFresh(h); near && (!ok || numberOf[m.part] == "" || apart(h, t.Start, t.End) < apart(h, m.start, m.end)) {
			// More of what is not to be had yet: it becomes what there is more of.
			part := wish.Prize
			if t.Animate() {
				part = wish.Foe
			}
			e.counted[t.Key()] = part
			e.factors[numberOf[part]] = a.Factor
			continue
		}
		if ok && numberOf[m.part] != "" {
			e.factors[numberOf[m.part]] = a.Factor
		}
	}
	for _, h := range e.Lexicon.FindChanges(e.w.Text) {
		m, ok := e.nearest(h)
		if !ok || numberOf[m.part] == "" {
			continue
		}
		if _, said := e.factors[numberOf[m.part]]; said {
			continue
		}
		switch {
		case h.ID == "remove":
			e.factors[numberOf[m.part]] = 0
		case h.ID == "add" && m.slot != nil:
			e.factors[numberOf[m.part]] = 1.4
		}
	}
}

// things puts new things into slots: into the one that the text names beside a
// verb of replacing, else into one of the part that it speaks of.
func (e *editor) things() {
	said := func(id string) bool {
		return slices.ContainsFunc(e.Lexicon.FindChanges(e.w.Text), func(h lexicon.Hit) bool { return h.ID == id })
	}
	replacing := said("replace") || said("instead")
	e.another(replacing, said("instead"))
	for _, group := range []struct {
		part wish.Part
		cast []wish.Cast
	}{{wish.Hero, e.w.Heroes}, {wish.Foe, e.w.Foes}, {wish.Prize, e.w.Prizes}, {wish.Scenery, e.w.Scenery}} {
		for _, c := range group.cast {
			if part, ok := e.counted[c.Key()]; ok {
				if i := slices.IndexFunc(e.parts, func(s *slot) bool { return s.part == part && !s.new }); i >= 0 {
					e.put(e.parts[i], c)
				}
				continue
			}
			if held := e.holding(c.Thing); held != nil {
				if (c.Colour != "" || c.Look != "") && sameThing(held.now.Thing, held.was) {
					held.now.Colour, held.now.Look, held.new = c.Colour, c.Look, true
				}
				continue
			}
			if s := e.room(group.part, c, replacing); s != nil {
				e.put(s, c)
			}
		}
	}
	for _, s := range e.parts {
		if s.new {
			e.plan.order(s.Slot, s.now, "")
		}
	}
}

// another replaces the hero when the text replaces one thing by another and
// the game has neither: whoever speaks of a cat that the game calls otherwise
// means the one that is played.
func (e *editor) another(replacing, instead bool) {
	if !replacing || len(e.mentions) > 0 || len(e.fresh) < 2 || len(e.parts) == 0 || e.parts[0].part != wish.Hero {
		return
	}
	by := e.fresh[len(e.fresh)-1]
	if instead {
		by = e.fresh[0]
	}
	w := &e.w
	for _, list := range [][]wish.Cast{w.Heroes, w.Foes, w.Prizes, w.Scenery} {
		for _, c := range list {
			if c.Key() == by.Key() {
				e.put(e.parts[0], c)
				w.Heroes, w.Foes, w.Prizes, w.Scenery = nil, nil, nil, nil
				return
			}
		}
	}
}

// room is the slot for a new thing.
func (e *editor) room(part wish.Part, c wish.Cast, replacing bool) *slot {
	for _, m := range e.mentions {
		if m.slot != nil && replacing && !m.slot.new {
			return m.slot
		}
	}
	for _, m := range e.mentions {
		if m.slot == nil {
			part = m.part
			break
		}
	}
	if part == wish.Hero && !replacing && len(e.mentions) == 0 {
		// "add a ...": somebody new is a danger, something new is a prize.
		part = wish.Prize
		if c.Animate() {
			part = wish.Foe
		}
	}
	for _, s := range slices.Backward(e.parts) {
		if s.part == part && !s.new {
			return s
		}
	}
	return nil
}

func (e *editor) put(s *slot, c wish.Cast) {
	for _, lang := range dreamcore.Langs {
		now := c.Names.In(lang)
		if lang == dreamcore.English {
			now = like(s.now.Names[lang], now)
		}
		if s.part == wish.Hero {
			e.replaceHero(e.plan, lang, s.now.Names[lang], now)
		} else {
			e.replaceHero(e.titled(lang), lang, s.now.Names[lang], now)
		}
		e.game.set(s.Name+"/"+string(lang), now)
	}
	s.now, s.new = c, true
	if s.part == wish.Hero {
		e.plan.Hero = c
	}
}

// colours colours the part that the text speaks of, or accents.
func (e *editor) colours() {
	for _, h := range e.Lexicon.FindColours(e.w.Text) {
		m, ok := e.nearest(h)
		switch {
		case ok && m.part == wish.Scenery && m.slot == nil:
			e.tint(h.ID, "sky", "sky2", "ground", "ground2", "path", "wall")
		case ok && m.slot != nil:
			if m.slot.now.Colour == "" || !m.slot.new {
				m.slot.now.Colour, m.slot.new = h.ID, true
				e.plan.order(m.slot.Slot, m.slot.now, "")
			}
		case ok:
			for _, s := range e.parts {
				if s.part == m.part && !s.new {
					s.now.Colour, s.new = h.ID, true
					e.plan.order(s.Slot, s.now, "")
				}
			}
		case !slices.ContainsFunc(e.parts, func(s *slot) bool { return s.now.Colour == h.ID }):
			e.tint(h.ID, "accent", "sky", "sky2")
		}
	}
}

// tint gives the colours of some roles the hue of a named one and keeps their
// lightness apart.
func (e *editor) tint(id string, roles ...string) {
	named, ok := parseColour(e.Lexicon.Colours[id].Hex)
	if !ok {
		return
	}
	h, s, l := named.hsl()
	set := map[string]colour{}
	for role, pointer := range e.m.Change.Palette {
		var old string
		if e.game.get(pointer, &old) {
			if was, ok := parseColour(old); ok {
				set[role] = was
			}
		}
	}
	for _, role := range roles {
		if was, ok := set[role]; ok {
			_, _, light := was.hsl()
			set[role] = fromHSL(h, s, min(max((l+light)/2, 0.06), 0.94))
		}
	}
	legible(set)
	e.paint(set)
}

func (e *editor) paint(set map[string]colour) {
	for role, c := range set {
		pointer := e.m.Change.Palette[role]
		var old string
		if e.game.get(pointer, &old) && !strings.EqualFold(old, c.String()) {
			e.game.set(pointer, c.String())
		}
	}
}

// places moves the game to a place that the text names.
func (e *editor) places() {
	if len(e.w.Places) == 0 || len(e.Lexicon.FindPlaces(e.w.Text)) == 0 {
		return
	}
	e.plan.Place = e.w.Places[0]
	if onlyTarget(e) {
		return
	}
	place := e.Lexicon.Places[e.plan.Place]
	set := map[string]colour{}
	for role := range e.m.Change.Palette {
		if c, ok := parseColour(place.Palette[role]); ok {
			set[role] = c
		}
	}
	legible(set)
	e.paint(set)
	if place.Mood {
		return
	}
	shown := map[string]bool{"sun": true, "clouds": true, "bubbles": false}
	maps.Copy(shown, place.Look)
	look(shown, e.game)
	f := &filler{Cook: e.Cook, used: map[string]bool{}}
	for _, s := range e.parts {
		f.used[s.now.Key()] = true
	}
	for _, s := range e.parts {
		if s.part != wish.Scenery || s.new {
			continue
		}
		if next, ok := f.next(place.Scenery); ok {
			e.put(s, next)
			e.plan.order(s.Slot, next, "")
		}
	}
}

// onlyTarget reports whether the place is merely the word for a part of the
// game: "make the sky pink".
func onlyTarget(e *editor) bool {
	for _, p := range e.Lexicon.FindPlaces(e.w.Text) {
		if !slices.ContainsFunc(e.mentions, func(m mention) bool { return m.slot == nil && m.start <= p.Start && p.End <= m.end }) {
			return false
		}
	}
	return len(e.Lexicon.FindColours(e.w.Text)) > 0
}

// meanings changes numbers and rules by what was said of them.
func (e *editor) meanings() {
	for means, f := range e.w.Numbers {
		if _, counted := e.factors[means]; !counted && (means != "foes" && means != "prizes" || len(e.w.Said) > 0) {
			e.factors[means] = f
		}
	}
	note := func(means string) {
		if !slices.Contains(e.plan.Changed, means) {
			e.plan.Changed = append(e.plan.Changed, means)
		}
	}
	for _, n := range e.m.Change.Numbers {
		factor, said := e.factors[n.Means]
		if !said {
			continue
		}
		if file, _ := split(n.Path); file != GameFile {
			factor = passable(n.Means, factor)
		}
		if scaleNumber(n, e.docs, factor) {
			note(n.Means)
		}
	}
	for _, r := range e.m.Change.Rules {
		want, said := e.w.Rules[r.Means]
		if said && setRule(r, e.docs, func(v []byte) bool { return string(v) == boolean(want) }) {
			note(r.Means)
		}
	}
	e.refuse()
}

// refuse remembers what was asked and understood, but cannot be done: the game
// has no such number or rule, or it is at its limit.
func (e *editor) refuse() {
	deny := func(means ...string) {
		if len(means) == 0 || slices.ContainsFunc(means, func(m string) bool { return slices.Contains(e.plan.Changed, m) }) {
			return
		}
		if !slices.Contains(e.plan.Refused, means[0]) {
			e.plan.Refused = append(e.plan.Refused, means[0])
		}
	}
	for _, means := range []string{"foes", "prizes"} {
		if _, asked := e.factors[means]; asked && len(e.w.Said) == 0 {
			deny(means)
		}
	}
	for _, id := range e.w.Said {
		a := e.Lexicon.Amounts[id]
		if a.Look != "" && len(e.plan.Orders) > 0 {
			continue // it was said of a picture
		}
		deny(append(keysOf(a.Numbers), keysOf(a.Rules)...)...)
	}
}
