package recipe

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"dreamcore/internal/offline/wish"
)

// Every game that is made differs from its template in at least this many
// numbers, whatever the wish says.
const leastNumbers = 2

// numbers sets the game's numbers by what the wish means, and moves some of the
// others a little, so that no two wishes play alike. It returns what changed.
func numbers(m Manifest, w wish.Wish, docs map[string]*document) []string {
	var changed []string
	done := 0
	note := func(n Number) {
		done++
		if !slices.Contains(changed, n.Means) {
			changed = append(changed, n.Means)
		}
	}
	for i, n := range m.Change.Numbers {
		factor, said := w.Numbers[n.Means]
		file, _ := split(n.Path)
		if file != GameFile {
			// Levels are built for their physics: only what surely keeps them
			// passable is changed, and nothing by chance.
			if !said {
				continue
			}
			factor = passable(n.Means, factor)
		} else if !said {
			if w.Pick("number"+strconv.Itoa(i), 3) == 0 {
				continue
			}
			factor = chance(w, n)
		} else {
			factor *= 1 + (w.Share("shade"+n.Means)-0.5)*0.1
		}
		if scaleNumber(n, docs, factor) {
			note(n)
		}
	}
	for _, n := range m.Change.Numbers {
		if done >= leastNumbers {
			break
		}
		if f, _ := split(n.Path); f == GameFile && nudge(n, docs, w) {
			note(n)
		}
	}
	return changed
}

// chance is a factor near 1, but never so near that nobody would notice. The
// same meaning gets the same one, so that things that belong together stay so.
func chance(w wish.Wish, n Number) float64 {
	d := 0.07 + 0.13*w.Share("by"+n.Means)
	if w.Pick("way"+n.Means, 2) == 0 {
		return 1 - d
	}
	return 1 + d
}

// passable narrows a factor for physics that levels depend on.
func passable(means string, factor float64) float64 {
	switch means {
	case "gravity":
		return min(max(factor, 0.6), 1)
	case "jump":
		return min(max(factor, 1), 1.15)
	case "speed":
		return min(max(factor, 0.95), 1.2)
	}
	return 1
}

// scaleNumber multiplies a number within its bounds and reports a change.
func scaleNumber(n Number, docs map[string]*document, factor float64) bool {
	base, step, ok := current(n, docs)
	if !ok {
		return false
	}
	value := base * factor
	if base == 0 {
		value = n.Min + (n.Max-n.Min)*min(max(factor-0.5, 0), 1)
	}
	return put(n, docs, base, step, value)
}

// nudge moves a number to where it has more room.
func nudge(n Number, docs map[string]*document, w wish.Wish) bool {
	base, step, ok := current(n, docs)
	if !ok {
		return false
	}
	by := max((n.Max-n.Min)*(0.1+0.1*w.Share("nudge"+n.Means)), step)
	if n.Max-base < base-n.Min {
		by = -by
	}
	return put(n, docs, base, step, base+by)
}

// put writes a value, rounded to the number's step and kept in its bounds.
func put(n Number, docs map[string]*document, base, step, value float64) bool {
	rounded := math.Round(value/step) * step
	if rounded == base && math.Abs(value-base) > base*0.01 {
		rounded = base + math.Copysign(step, value-base) // a small whole number
	}
	rounded = min(max(rounded, n.Min), n.Max)
	if rounded == base {
		return false
	}
	file, pointer := split(n.Path)
	doc := docs[file]
	if doc.covered(pointer) {
		return false
	}
	doc.set(pointer, json.RawMessage(strconv.FormatFloat(math.Round(rounded*100)/100, 'f', -1, 64)))
	return true
}

// current reads a number and its step: 1 for a whole number, else a hundredth.
func current(n Number, docs map[string]*document) (base, step float64, ok bool) {
	file, pointer := split(n.Path)
	doc := docs[file]
	if doc == nil || n.Max <= n.Min {
		return 0, 0, false
	}
	span, found := doc.values[pointer]
	literal, isNumber := span.value.(json.Number)
	if !found || !isNumber {
		return 0, 0, false
	}
	base, err := literal.Float64()
	if err != nil {
		return 0, 0, false
	}
	step = 1
	if strings.ContainsAny(literal.String(), ".eE") || n.Max-n.Min < 4 && n.Min != math.Trunc(n.Min) || n.Max-n.Min <= 1 {
		step = 0.01
	}
	return base, step, true
}
