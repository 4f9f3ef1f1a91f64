package wish

import "dreamcore/internal/offline/words"

// Words is the Index of everything that the picture maker has a picture of.
type Words struct{}

// Scan implements Index.
func (Words) Scan(text string) []Mention {
	var all []Mention
	for _, m := range words.Scan(text) {
		all = append(all, Mention{thingOf(m.Entry), m.Start, m.End, m.Rank <= words.Name})
	}
	return all
}

// Lookup implements Index. A thing that is merely part of the phrase does not
// count: the rest of the phrase would be lost.
func (Words) Lookup(phrase string) (Thing, bool) {
	found := words.Lookup(phrase)
	if len(found) == 0 || found[0].Rank == words.Partial {
		return Thing{}, false
	}
	return thingOf(found[0].Entry), true
}

func thingOf(e *words.Entry) Thing {
	return Thing{Concept: e.Concept, Names: e.Names, Kind: e.Kind, Known: true}
}
