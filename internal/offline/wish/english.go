package wish

import "strings"

// english gives parts by what stands before a thing: a verb that collects or
// avoids, a preposition of place, a marker of the hero; else the first thing is
// the hero.
func (p *parser) english(atoms []atom) {
	var (
		part, before Part // the part of the next thing, and of the last
		here         bool // the next thing is where it happens
		article      bool // an article came just before
		nounEnd      = -1
	)
	reset := func() { part, before, here = "", "", false }
	for i := 0; i < len(atoms); i++ {
		a := atoms[i]
		asNoun := a.thing != nil && a.class == "" && (a.activity == "" || article || part != "" || here)
		switch {
		case a.class != "" && !asNoun && a.activity == "":
			switch a.class {
			case "article":
				article = true
				continue
			case "join":
				part = before
			case "noise":
				continue
			case "place":
				reset()
				here = true
			case "with":
				reset()
				if len(p.wish.Heroes) > 0 {
					part = Scenery
				}
			case "break":
				reset()
			default:
				reset()
				part = Part(a.class)
			}
		case p.note(a):
			continue
		case a.activity != "" && !asNoun:
			reset()
			part = Part(p.lex.Activities[a.activity].Role)
		case asNoun:
			p.englishThing(a, &part, &before, here)
			here, nounEnd = false, a.end
		case a.place != "":
			p.place(a.place)
			here = false
		case a.unknown() && (article || part != "" || here) && nounEnd < 0 || a.unknown() && article:
			phrase, n := p.unknownPhrase(atoms[i:])
			i += n - 1
			if phrase != "" {
				t := p.thing(phrase)
				p.englishThing(atom{thing: &t}, &part, &before, here)
				here = false
			}
		}
		article = false
		if !asNoun {
			nounEnd = -1
		}
	}
}

func (p *parser) englishThing(a atom, part, before *Part, here bool) {
	as := *part
	switch {
	case here && a.place != "":
		p.place(a.place)
		as = ""
	case here:
		p.cast(Scenery, *a.thing)
		as = Scenery
	case as != "":
		p.cast(as, *a.thing)
	case len(p.wish.Heroes) == 0 && a.place == "":
		p.cast(Hero, *a.thing)
		as = Hero
	default:
		p.cast("", *a.thing)
	}
	*before, *part = as, ""
}

// unknownPhrase takes the unknown words at the front; they are a thing unless a
// known one follows, which they then only describe. It returns how many atoms
// it used.
func (p *parser) unknownPhrase(atoms []atom) (string, int) {
	n := 0
	var words []string
	for n < len(atoms) && n < 3 && atoms[n].unknown() {
		if !strings.HasSuffix(atoms[n].word, "ly") {
			words = append(words, atoms[n].word)
		}
		n++
	}
	if n < len(atoms) && atoms[n].thing != nil {
		return "", n
	}
	return strings.Join(words, " "), n
}
