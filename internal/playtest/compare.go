package playtest

import (
	"math"
	"sort"
	"strings"

	"dreamcore"
)

const (
	leastPixels  = 3.0 // less than this is trembling, not moving
	leastSamples = 2   // in which it must have moved
)

// shift is how far an entity stands from where the idle run left it.
type shift struct {
	sample int
	by     []float64
}

func (s shift) length() float64 {
	sum := 0.0
	for _, v := range s.by {
		sum += v * v
	}
	return math.Sqrt(sum)
}

// difference is what one arm changed against idle.
type difference struct {
	arm      string
	first    int // first sample that differs; -1: none
	moved    map[string][]shift
	scrolled bool
	words    bool // some text differs
	picture  bool // pixels differ
	layout   bool // elements, classes or colours differ
	answers  int  // clicked elements that changed themselves
	steps    int  // samples at which the layout changed though idle's did not
}

// differ compares an arm with idle. Entities whose number differs cannot be
// told apart and do not count; noise holds those that move by themselves.
func differ(idle, r run, noise map[string]bool) difference {
	d := difference{arm: r.arm, first: -1, moved: map[string][]shift{}}
	n := min(len(idle.samples), len(r.samples))
	for i := 1; i < n; i++ {
		a, b := idle.samples[i], r.samples[i]
		scrolled := a.Scroll != b.Scroll
		d.scrolled = d.scrolled || scrolled
		d.words = d.words || a.Texts != b.Texts
		d.picture = d.picture || a.Picture != b.Picture
		d.layout = d.layout || a.Layout != b.Layout
		if b.Answered {
			d.answers++
		}
		if b.Layout != r.samples[i-1].Layout && a.Layout == idle.samples[i-1].Layout {
			d.steps++
		}
		if d.first < 0 && (a.Picture != b.Picture || a.Layout != b.Layout || a.Texts != b.Texts || !sameEntities(a.Entities, b.Entities)) {
			d.first = i
		}
		countA, countB := countNames(a.Entities), countNames(b.Entities)
		for name, was := range a.Entities {
			base := baseName(name)
			is, ok := b.Entities[name]
			if !ok || strings.HasPrefix(name, "T:") || noise[base] || countA[base] != countB[base] || len(is) != len(was) {
				continue
			}
			if scrolled && (name[0] == 'D' || name[0] == 'C' || name[0] == 'G') {
				continue
			}
			s := shift{sample: i, by: make([]float64, len(is))}
			for k := range is {
				s.by[k] = is[k] - was[k]
			}
			if s.length() >= leastPixels {
				d.moved[name] = append(d.moved[name], s)
			}
		}
	}
	for name, shifts := range d.moved {
		if len(shifts) < leastSamples {
			delete(d.moved, name)
		}
	}
	return d
}

// responds reports whether the arm changed anything that can be seen.
func (d difference) responds() bool { return d.first >= 0 }

func baseName(name string) string { return name[:strings.LastIndexByte(name, '#')] }

func countNames(entities map[string][]float64) map[string]int {
	n := map[string]int{}
	for name := range entities {
		n[baseName(name)]++
	}
	return n
}

func sameEntities(a, b map[string][]float64) bool {
	if len(a) != len(b) {
		return false
	}
	for name, p := range a {
		q, ok := b[name]
		if !ok || len(p) != len(q) {
			return false
		}
		for i := range p {
			if math.Abs(p[i]-q[i]) > 1e-6 {
				return false
			}
		}
	}
	return true
}

// noisy returns the names of what differs between two idle runs.
func noisy(a, b run) map[string]bool {
	noise := map[string]bool{}
	for i := range min(len(a.samples), len(b.samples)) {
		for name, p := range a.samples[i].Entities {
			q, ok := b.samples[i].Entities[name]
			if !ok || len(p) != len(q) {
				noise[baseName(name)] = true
				continue
			}
			for k := range p {
				if math.Abs(p[k]-q[k]) > 0.5 {
					noise[baseName(name)] = true
				}
			}
		}
	}
	return noise
}

// pair is an entity that two opposite inputs move in opposite directions.
type pair struct {
	entity string
	pixels float64
}

// oppose looks for the entity that a and b move most clearly apart.
func oppose(a, b difference) *pair {
	var best *pair
	for name, sa := range a.moved {
		sb, ok := b.moved[name]
		if !ok {
			continue
		}
		la, lb, opposite := 0.0, 0.0, 0
		for _, va := range sa {
			for _, vb := range sb {
				if va.sample != vb.sample || len(va.by) != len(vb.by) {
					continue
				}
				dot := 0.0
				for i := range va.by {
					dot += va.by[i] * vb.by[i]
				}
				if dot/(va.length()*vb.length()) < -0.5 {
					opposite++
					la, lb = max(la, va.length()), max(lb, vb.length())
				}
			}
		}
		if opposite < leastSamples {
			continue
		}
		p := &pair{entity: name, pixels: min(la, lb)}
		if best == nil || p.pixels > best.pixels || (p.pixels == best.pixels && p.entity < best.entity) {
			best = p
		}
	}
	return best
}

// evidence gathers what all arms showed.
type evidence struct {
	arms  map[string]difference
	noise map[string]bool // names of what moves by itself
	alive bool            // the idle game changes by itself
}

func (e evidence) moves(names ...string) bool {
	for _, n := range names {
		if len(e.arms[n].moved) > 0 {
			return true
		}
	}
	return false
}

func (e evidence) oppose(pairs ...[2]string) *pair {
	for _, p := range pairs {
		a, okA := e.arms[p[0]]
		b, okB := e.arms[p[1]]
		if !okA || !okB {
			continue
		}
		if found := oppose(a, b); found != nil {
			return found
		}
	}
	return nil
}

// The pairs of opposite inputs, by axis.
var (
	sideways = [][2]string{{"right", "left"}, {"d", "a"}, {"up-right", "up-left"}}
	upright  = [][2]string{{"up", "down"}, {"w", "s"}}
	pointed  = [][2]string{{"point-right", "point-left"}}
)

// boardAnswers reports whether clicks change the board itself: clicked elements
// that change, or the layout at more than one click. One overlay that goes away,
// or a number that counts, is not that.
func (e evidence) boardAnswers() bool {
	for _, n := range []string{"click", "drag", "touch"} {
		if d := e.arms[n]; d.answers >= 2 || (d.layout && d.steps >= 2) {
			return true
		}
	}
	return false
}

// motion sums the evidence up in one word.
func (e evidence) motion() dreamcore.Motion {
	answered, moved, layout, words := false, false, false, false
	for _, d := range e.arms {
		answered = answered || d.responds()
		moved = moved || len(d.moved) > 0
		layout = layout || d.layout
		words = words || d.words
	}
	switch {
	case !answered && e.alive:
		return dreamcore.NoResponse
	case !answered:
		return dreamcore.Frozen
	case e.oppose(sideways...) != nil || e.oppose(upright...) != nil || e.oppose(pointed...) != nil:
		return dreamcore.ControlsOK
	case moved:
		return dreamcore.Moves
	case layout || e.boardAnswers():
		return dreamcore.DOMResponds
	case words:
		return dreamcore.HUDOnly
	default:
		return dreamcore.PixelOnly
	}
}

// gate reports whether the evidence satisfies the control scheme, and if not,
// the catalogue key of what is missing.
func (e evidence) gate(controls string) (string, bool) {
	switch controls {
	case "move-2d":
		across := e.oppose(sideways...) != nil
		along := e.oppose(upright...) != nil
		if across && (along || e.moves("up", "down", "w", "s")) || along && e.moves("right", "left", "d", "a") {
			return "", true
		}
		if !across && !along {
			return "playtest.need_opposite", false
		}
		return "playtest.need_other_axis", false
	case "move-x", "steer-3d":
		if e.oppose(sideways...) != nil || e.oppose(pointed...) != nil {
			return "", true
		}
		return "playtest.need_sideways", false
	case "jump-x":
		if e.oppose(sideways...) == nil {
			return "playtest.need_sideways", false
		}
		if !e.moves("space", "up", "w", "click", "touch") {
			return "playtest.need_jump", false
		}
		return "", true
	case "tap":
		if e.moves("space", "click", "touch", "up") {
			return "", true
		}
		return "playtest.need_tap", false
	case "pointer":
		if e.moves("click", "drag", "point-right", "point-left", "touch", "swipe") {
			return "", true
		}
		return "playtest.need_pointer", false
	case "board":
		if e.moves("click", "drag", "touch", "right", "left", "up", "down") || e.boardAnswers() {
			return "", true
		}
		return "playtest.need_board", false
	default:
		switch e.motion() {
		case dreamcore.ControlsOK, dreamcore.Moves:
			return "", true
		case dreamcore.DOMResponds:
			if e.boardAnswers() {
				return "", true
			}
		}
		return "playtest.need_any", false
	}
}

// moved lists, for each arm, the entity that it moved most, furthest first.
func (e evidence) moved() []dreamcore.Moved {
	list := []dreamcore.Moved{}
	for _, d := range e.arms {
		best := dreamcore.Moved{Arm: d.arm}
		for name, shifts := range d.moved {
			far := 0.0
			for _, s := range shifts {
				far = max(far, s.length())
			}
			if far > best.Pixels || (far == best.Pixels && name < best.Entity) {
				best.Entity, best.Pixels = name, math.Round(far*10)/10
				best.FirstFrm = shifts[0].sample * framesApart
			}
		}
		if best.Entity != "" {
			list = append(list, best)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Arm < list[j].Arm })
	return list
}
