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
	costume string       // concept of the person that an animal is dressed up as
	tint    string       // "#rrggbb", "rainbow" or ""
	effects []string     // in the order of the prompt, without repeats
	facing  string       // "", left, right, up
	place   string
	scene   bool // a background is asked for, not a thing
	portrait,
	body, top bool
	style string
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
	second bool // it belongs to another thing: "with a hat", "on the moon"
	late   bool // after the first comma: usually style
}

// Words that put the thing after them second, and those that put the thing
// before them second (Japanese and Chinese grammar marks them behind).
var (
	leading  = []string{"with", "with a", "with an", "with the", "wearing", "wearing a", "holding", "holding a", "on", "on a", "on the", "in", "in a", "in the", "under", "under the", "over", "over the", "through", "through the", "at", "at the", "near", "near a", "behind", "from", "across", "across the", "beside", "and", "of", "against", "riding", "riding a", "for", "into", "戴", "戴着", "穿", "穿着", "拿着", "拿", "骑", "骑着", "在", "带着", "坐着", "带"}
	trailing = []string{"をかぶった", "を持った", "をもった", "に乗った", "に乗る", "を着た", "の上", "の中", "で", "に", "を", "里", "上", "里的", "上的", "中的", "下的"}
)


// understand reads a prompt in any of the three languages.
func understand(prompt string) reading {
	if len(prompt) > maxPromptBytes {
		prompt = strings.ToValidUTF8(prompt[:maxPromptBytes], "")
	}
	lex := openLexicon()
	lower := strings.ToLower(prompt)
	if len(lower) != len(prompt) {
		prompt = lower // rare letters change their length; offsets must agree
	}
	mods := lex.modifiersIn(lower)
	comma := strings.IndexAny(lower, ",;.\n")
	if i := strings.IndexAny(lower, "、。，；"); i >= 0 && (comma < 0 || i < comma) {
		comma = i
	}
	var roles []role
	for _, m := range words.Scan(prompt) {
		if covered(m, mods) {
			continue
		}
		roles = append(roles, role{
			match: m, place: lex.places[m.Entry.Concept],
			second: follows(lower[:m.Start], leading) || precedes(lower[m.End:], trailing),
			late:   comma >= 0 && m.Start > comma,
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
	} else if r.main != nil {
		r.scene = false
	}
	return r
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
		// Of words that stand together the last is the head: "ninja cat", 忍者ネコ.
		if i > 0 && adjacent(roles[i-1].match, o.match) {
			score -= 5
		}
		if score < bestScore {
			best, bestScore = i, score
		}
	}
	return best
}

func adjacent(a, b words.Match) bool { return b.Start-a.End >= 0 && b.Start-a.End <= 4 }

// costume returns the person next to an animal: "pirate cat", "the cat king".
func costume(roles []role, head int) string {
	k := roles[head].match.Entry.Kind
	if k != words.Animal && k != words.Creature && k != words.Face {
		return ""
	}
	for _, i := range []int{head - 1, head + 1} {
		if i < 0 || i >= len(roles) || roles[i].match.Entry.Kind != words.Person {
			continue
		}
		a, b := roles[min(i, head)].match, roles[max(i, head)].match
		if adjacent(a, b) {
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
