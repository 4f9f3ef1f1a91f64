package wish

import (
	"strings"
	"unicode"

	"dreamcore"
)

// somewhere is the part of a thing that is where the game happens.
const somewhere Part = "place"

// japanese gives parts by the particle after a thing and the verb further on.
func (p *parser) japanese(s string, atoms []atom) {
	var joined []Thing // things tied by "and" to the next one
	atoms = p.unknownRuns(s, atoms, dreamcore.Japanese)
	for i, a := range atoms {
		if a.thing == nil {
			p.note(a)
			continue
		}
		if a.activity != "" && p.after(s, a.end) == "" {
			continue // a verb that is also the name of a thing
		}
		class := p.after(s, a.end)
		if class == "join" && p.nextIsThing(atoms, i) {
			joined = append(joined, *a.thing)
			continue
		}
		part := p.japanesePart(class, a, atoms[i+1:])
		for _, t := range append(joined, *a.thing) {
			if part == somewhere {
				p.place(a.place)
				continue
			}
			p.cast(part, t)
		}
		joined = nil
	}
}

func (p *parser) japanesePart(class string, a atom, rest []atom) Part {
	verb := ""
	for _, r := range rest {
		if r.activity != "" {
			verb = p.lex.Activities[r.activity].Role
			break
		}
	}
	first := len(p.wish.Heroes) == 0
	switch class {
	case "hero", "subject":
		if first {
			return Hero
		}
		return Scenery
	case "object", "from", "join":
		if verb != "" {
			return Part(verb)
		}
		if a.place != "" {
			return somewhere
		}
		return Scenery
	case "place":
		if a.place != "" {
			return somewhere
		}
		return Scenery
	}
	if a.place != "" {
		return somewhere
	}
	if first && a.thing.Animate() {
		return Hero
	}
	return ""
}

// after tells the class of the particle at offset at; longer particles first.
func (p *parser) after(s string, at int) string {
	best, class := 0, ""
	for _, c := range []string{"hero", "subject", "object", "from", "place", "join", "of"} {
		for _, w := range p.lex.Grammar[dreamcore.Japanese][c] {
			if len(w) > best && strings.HasPrefix(s[at:], w) {
				best, class = len(w), c
			}
		}
	}
	return class
}

func (p *parser) nextIsThing(atoms []atom, i int) bool {
	for _, a := range atoms[i+1:] {
		if a.class == "" {
			return a.thing != nil
		}
	}
	return false
}

// unknownRuns makes things of stretches that nobody knows and that stand where
// a noun stands: before a particle in Japanese, after a measure word or a verb
// in Chinese.
func (p *parser) unknownRuns(s string, atoms []atom, lang dreamcore.Lang) []atom {
	var all []atom
	at := 0
	fill := func(end int) {
		for at < end {
			run := nounRun(s[at:end], lang)
			if run == "" {
				_, size := firstRune(s[at:end])
				at += size
				continue
			}
			stop := at + len(run)
			ok := lang == dreamcore.Chinese && p.opens(all) && len([]rune(run)) <= 5
			if lang == dreamcore.Japanese {
				class := p.after(s, stop)
				ok = class != "" && class != "of" && (len([]rune(run)) > 1)
			}
			if ok {
				t := p.thing(run)
				all = append(all, atom{start: at, end: stop, thing: &t})
			}
			at = stop
		}
	}
	for _, a := range atoms {
		fill(a.start)
		all = append(all, a)
		at = a.end
	}
	fill(len(s))
	return all
}

// nounRun is the stretch of one noun-like script at the front of s.
func nounRun(s string, lang dreamcore.Lang) string {
	first, _ := firstRune(s)
	in := func(r rune) bool { return unicode.Is(unicode.Han, r) }
	switch {
	case in(first):
	case lang == dreamcore.Japanese && katakana(first):
		in = katakana
	default:
		return ""
	}
	end := strings.IndexFunc(s, func(r rune) bool { return !in(r) })
	if end < 0 {
		end = len(s)
	}
	return s[:end]
}

func katakana(r rune) bool { return unicode.Is(unicode.Katakana, r) || r == 'ー' }

func firstRune(s string) (rune, int) {
	for _, r := range s {
		return r, len(string(r))
	}
	return 0, 1
}
