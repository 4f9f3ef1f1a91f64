package recipe

import (
	"bytes"
	"slices"

	"dreamcore/internal/offline/wish"
)

// harmless ranks rules by how surely a game stays playable and in keeping when
// one is switched by chance; those not listed come after, and "fall" never is.
var harmless = []string{"wrap", "grow", "bounce", "timed", "slippery", "chase", "night", "lives", "shoot"}

// rules sets the game's rules by what the wish means, and switches one by
// chance where that changes none. It returns what changed.
func rules(m Manifest, w wish.Wish, docs map[string]*document) []string {
	var changed []string
	for _, r := range m.Change.Rules {
		if want, said := w.Rules[r.Means]; said && setRule(r, docs, func(v []byte) bool { return string(v) == boolean(want) }) {
			changed = append(changed, r.Means)
		}
	}
	if len(changed) > 0 {
		return changed
	}
	// What the wish said is switched against it only as the very last resort.
	for _, contrary := range []bool{false, true} {
		for _, r := range candidates(m.Change.Rules, w, contrary) {
			if setRule(r, docs, func([]byte) bool { return true }) {
				return []string{r.Means}
			}
		}
	}
	return nil
}

// candidates lists the rules to switch by chance, the first two in an order
// that follows from the wish.
func candidates(all []Rule, w wish.Wish, contrary bool) []Rule {
	var list []Rule
	for _, r := range all {
		if _, said := w.Rules[r.Means]; said == contrary && (r.Means != "fall" || contrary) {
			list = append(list, r)
		}
	}
	rank := func(r Rule) int {
		if i := slices.Index(harmless, r.Means); i >= 0 {
			return i
		}
		return len(harmless)
	}
	slices.SortStableFunc(list, func(a, b Rule) int { return rank(a) - rank(b) })
	if len(list) > 1 && w.Pick("rule", 2) == 1 {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

// setRule gives a rule another of its values, one that fits.
func setRule(r Rule, docs map[string]*document, fits func([]byte) bool) bool {
	file, pointer := split(r.Path)
	doc := docs[file]
	if doc == nil || doc.covered(pointer) {
		return false
	}
	span, ok := doc.values[pointer]
	if !ok {
		return false
	}
	now := doc.text[span.start:span.end]
	for _, v := range r.Values {
		if !bytes.Equal(bytes.TrimSpace(v), now) && fits(bytes.TrimSpace(v)) {
			doc.set(pointer, v)
			return true
		}
	}
	return false
}

func boolean(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
