package wish

import "dreamcore"

// chinese gives parts by the verb before a thing; 的 ends what the verb
// governs, and the thing after it is what the sentence is about.
func (p *parser) chinese(s string, atoms []atom) {
	var part, before Part
	here := false
	atoms = p.unknownRuns(s, atoms, dreamcore.Chinese)
	for i, a := range atoms {
		switch {
		case a.thing != nil && (a.activity == "" || part != "" || here):
			as := part
			placed := here || i+1 < len(atoms) && atoms[i+1].class == "placeEnd" && atoms[i+1].start == a.end
			switch {
			case placed && a.place != "":
				p.place(a.place)
				as = ""
			case placed:
				p.cast(Scenery, *a.thing)
				as = Scenery
			case as != "":
				p.cast(as, *a.thing)
			case len(p.wish.Heroes) == 0 && a.place == "":
				p.cast(Hero, *a.thing)
				as = Hero
			case a.place != "":
				p.place(a.place)
			default:
				p.cast("", *a.thing)
			}
			before, part, here = as, "", false
		case a.activity != "":
			part, here = Part(p.lex.Activities[a.activity].Role), false
		case a.place != "":
			p.place(a.place)
			part, here = "", false
		case p.note(a):
		case a.class == "join":
			part = before
		case a.class == "of":
			// 的 after a colour keeps what the verb before governs; a verb without an
			// object does not reach over it.
			if before != "" {
				part = ""
			}
		case a.class == "place":
			part, here = "", true
		case a.class == "hero", a.class == "foe", a.class == "prize":
			part = Part(a.class)
		}
	}
}

// opens reports whether a noun may follow the atoms so far, in Chinese.
func (p *parser) opens(atoms []atom) bool {
	if len(atoms) == 0 {
		return false
	}
	switch a := atoms[len(atoms)-1]; {
	case a.class == "measure", a.class == "hero", a.class == "foe", a.class == "prize":
		return true
	case a.activity != "" && a.thing == nil:
		return p.lex.Activities[a.activity].Role != ""
	}
	return false
}
