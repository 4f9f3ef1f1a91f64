package picture

import (
	"strings"

	"dreamcore/internal/offline/words"
)

// maxPromptBytes is how much of a prompt is read; the rest is style talk.
const maxPromptBytes = 2000

// reading is what a prompt was understood to ask for.
type reading struct {
	main    *words.Entry // nil when no thing was named
	picture string       // of main
	costume string       // concept that dresses the main thing up: the pirate of a pirate cat
	tint    string       // "#rrggbb", "rainbow" or ""
	effects []string     // in the order of the prompt, without repeats
	facing  string       // "", left, right, up
	place   string
	scene   bool // a background is asked for, not a thing
	portrait,
	body, top bool
	style    string
	tile     bool         // a piece of ground is asked for
	material string       // of the tile
	with     *words.Entry // what the main thing holds
	ride     *words.Entry // what it rides on
	beside   *words.Entry // what stands beside it
}

func (r *reading) has(effect string) bool {
	for _, e := range r.effects {
		if e == effect {
			return true
		}
	}
	return false
}

// role is how a thing stands in the prompt.
type role struct {
	match  words.Match
	place  string
	second bool   // it belongs to another thing: "with a hat", "on the moon"
	link   string // how: with, ride, beside, or ""
	late   bool   // after the first comma: usually style
}

// linkWords are what joins a second thing to the first. In English and Chinese
// they stand before it, in Japanese and for some Chinese places behind.
type linkWords struct {
	link          string
	before, after []string
}

var links = []linkWords{
	{"with", []string{"with", "holding", "carrying", "has", "拿着", "拿", "带着", "带"}, []string{"を持った", "をもった", "を持つ", "を持っている"}},
	{"ride", []string{"riding", "riding on", "driving", "standing on", "sitting on", "rides", "骑", "骑着", "坐着", "开着", "站在"}, []string{"に乗った", "に乗る", "に乗っている", "にのった"}},
	{"beside", []string{"and", "和", "与"}, nil},
	{"", []string{"wearing", "on", "in", "under", "over", "through", "at", "near", "behind", "from", "across", "beside", "of", "against", "for", "into", "戴", "戴着", "穿", "穿着", "在"},
		[]string{"をかぶった", "を着た", "の上", "の中", "で", "に", "を", "里", "上", "里的", "上的", "中的", "下的"}},
}

// linkOf returns how the thing between before and after is joined.
func linkOf(before, after string) (link string, second bool) {
	before = strings.TrimRight(before, " ")
	for _, article := range []string{"a", "an", "the", "its", "his", "her", "some"} {
		if rest, ok := strings.CutSuffix(before, " "+article); ok {
			before = rest
			break
		}
	}
	for _, l := range links {
		if follows(before, l.before) || precedes(after, l.after) {
			return l.link, true
		}
	}
	// ネコと犬: the first is joined to what comes.
	return "", false
}

// understand reads a prompt in any of the three languages.
func understand(prompt string) reading {
	if len(prompt) > maxPromptBytes {
		prompt = strings.ToValidUTF8(prompt[:maxPromptBytes], "")
	}
	lex := openLexicon()
	lower := words.Fold(prompt) // of the same length: offsets hold in both
	mods := find(lex.modifiers, lower)
	comma := strings.IndexAny(lower, ",;.\n")
	if i := strings.IndexAny(lower, "、。，；"); i >= 0 && (comma < 0 || i < comma) {
		comma = i
	}
	var roles []role
	for _, m := range words.Scan(prompt) {
		if covered(m, mods) {
			continue
		}
		link, second := linkOf(lower[:m.Start], lower[m.End:])
		roles = append(roles, role{
			match: m, place: lex.places[m.Entry.Concept], second: second, link: link,
			late: comma >= 0 && m.Start > comma,
		})
	}
	r := reading{}
	for _, f := range mods {
		if inName(f, roles) {
			continue
		}
		kind, arg, _ := strings.Cut(f.effect, ":")
		switch kind {
		case "mirror":
			r.facing = arg
		case "style":
			r.style = arg
		case "scene":
			r.scene = true
		case "face":
			r.portrait = true
		case "body":
			r.body = true
		case "top":
			r.top = true
		case "tile":
			r.tile = true
		case "tint":
		default:
			if !r.has(f.effect) {
				r.effects = append(r.effects, f.effect)
			}
		}
	}
	head := choose(roles)
	if head >= 0 {
		m := roles[head].match
		r.main, r.picture = m.Entry, m.Entry.Picture
		r.costume = costume(roles, head)
		r.tint = tintOf(mods, roles, head)
		r.join(roles, head)
	}
	if head < 0 && !r.tile && !r.scene {
		r.main, r.picture = wholePhrase(lower, comma)
	}
	if r.tile {
		r.material = materialOf(lower)
		r.tile = head < 0 || r.material != "" && isStuff(r.main.Kind)
	}
	for i, o := range roles {
		if o.place != "" && i != head && (r.place == "" || o.match.Entry.Kind == words.Place) {
			r.place = o.place
		}
	}
	if r.place == "" && head >= 0 {
		r.place = roles[head].place
	}
	// A background of a place shows the place itself: nothing stands in front.
	if r.scene && (head < 0 || roles[head].place != "") {
		r.main, r.picture = nil, ""
	} else if r.main != nil || r.tile {
		r.scene = false
	}
	return r
}

// wholePhrase looks up a prompt that is nothing but one word which in a sentence
// would be a colour or a verb: an orange, a fly.
func wholePhrase(lower string, comma int) (*words.Entry, string) {
	if comma >= 0 {
		lower = lower[:comma]
	}
	m := words.Lookup(lower)
	if len(m) == 0 || m[0].Rank == words.Partial || !Has(m[0].Entry.Picture) {
		return nil, ""
	}
	return m[0].Entry, m[0].Entry.Picture
}

// materialOf returns what a tile is made of: the material that is named first.
func materialOf(lower string) string {
	material, at := "", len(lower)
	for _, f := range find(openLexicon().materials, lower) {
		if f.start < at {
			material, at = f.effect, f.start
		}
	}
	return material
}

// isStuff reports whether a thing can be what a tile is made of.
func isStuff(k words.Kind) bool {
	return k == words.Object || k == words.Place || k == words.Sky || k == words.Plant || k == words.Symbol
}

// join notes the first thing of each kind that is joined to the main one.
func (r *reading) join(roles []role, head int) {
	for i, o := range roles {
		e := o.match.Entry
		if i == head || o.late || e.Kind == words.Place || e.Picture == r.picture {
			continue
		}
		switch {
		case o.link == "with" && r.with == nil:
			r.with = e
		case o.link == "ride" && r.ride == nil:
			r.ride = e
		case o.link == "beside" && r.beside == nil && i > head:
			r.beside = e
		}
	}
}

// inName reports whether a modifier is a part of a thing's name: the racing of a
// racing car.
func inName(f found, roles []role) bool {
	for _, o := range roles {
		if o.match.Start <= f.start && f.end <= o.match.End {
			return true
		}
	}
	return false
}

// covered reports whether a modifier says more than the thing itself: the hat
// of "with a top hat".
func covered(m words.Match, mods []found) bool {
	for _, f := range mods {
		if f.start <= m.Start && m.End <= f.end {
			return true
		}
	}
	return false
}

// choose picks the thing that the picture is of, -1 for none.
func choose(roles []role) int {
	best, bestScore := -1, 1<<30
	for i, o := range roles {
		if o.second && o.late {
			continue // "stands on the hills" tells where, not what
		}
		score := int(o.match.Rank) * 10
		switch o.match.Entry.Kind {
		case words.Place:
			score += 60
		case words.Symbol, words.Body, words.Face:
			score += 15
		}
		if o.second {
			score += 40
		}
		if o.late {
			score += 50
		}
		// Of words that stand together the last is the head ("ninja cat", 忍者ネコ),
		// but a person next to an animal is what the animal plays (the cat king).
		if i > 0 && adjacent(roles[i-1].match, o.match) {
			score -= 5
		}
		if o.match.Entry.Kind == words.Person && besideAnimal(roles, i) {
			score += 20
		}
		if score < bestScore {
			best, bestScore = i, score
		}
	}
	return best
}

func besideAnimal(roles []role, i int) bool {
	animal := func(j int) bool { return roles[j].match.Entry.Kind == words.Animal }
	return i > 0 && animal(i-1) && adjacent(roles[i-1].match, roles[i].match) ||
		i+1 < len(roles) && animal(i+1) && adjacent(roles[i].match, roles[i+1].match)
}

func adjacent(a, b words.Match) bool { return b.Start-a.End >= 0 && b.Start-a.End <= 4 }

// costume returns the concept next to a thing that dresses it up: "pirate cat",
// "the cat king", "ghost ship".
func costume(roles []role, head int) string {
	costumes := openLexicon().costumes
	for _, i := range []int{head - 1, head + 1} {
		if i < 0 || i >= len(roles) || costumes[roles[i].match.Entry.Concept] == nil {
			continue
		}
		if adjacent(roles[min(i, head)].match, roles[max(i, head)].match) {
			return roles[i].match.Entry.Concept
		}
	}
	return ""
}

// tintOf returns the colour that is said of the thing: one whose next thing it is.
func tintOf(mods []found, roles []role, head int) string {
	tint := ""
	for _, f := range mods {
		colour, ok := strings.CutPrefix(f.effect, "tint:")
		if !ok || inName(f, roles) {
			continue
		}
		next := -1
		for i, o := range roles {
			if o.match.Start >= f.end {
				next = i
				break
			}
		}
		if next == head || next < 0 || adjacentRun(roles, next, head) {
			tint = colour
		}
	}
	return tint
}

// adjacentRun reports whether the things from a to b stand together.
func adjacentRun(roles []role, a, b int) bool {
	if a > b {
		return false
	}
	for i := a; i < b; i++ {
		if !adjacent(roles[i].match, roles[i+1].match) {
			return false
		}
	}
	return true
}

// follows reports whether s ends with one of the words.
func follows(s string, list []string) bool {
	s = strings.TrimRight(s, " ")
	for _, w := range list {
		if !strings.HasSuffix(s, w) {
			continue
		}
		if w[0] >= 0x80 || apart(s, len(s)-len(w), len(s)) {
			return true
		}
	}
	return false
}

func precedes(s string, list []string) bool {
	for _, w := range list {
		if strings.HasPrefix(s, w) {
			return true
		}
	}
	return false
}
