package level

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"dreamcore"
	"dreamcore/internal/text"
)

func (j *judge) text(key string, args ...string) string {
	return text.T(j.opt.Lang, "level."+key, args...)
}

// maze judges a level seen from above: the goal and every prize can be walked
// to, with keys picked up before their doors.
func (j *judge) maze(name string, g *grid) {
	if len(g.goals) == 0 && len(g.prizes) == 0 {
		j.find("no_goal", dreamcore.Fail, name)
		return
	}
	reached := j.flood(g)
	missing := func(cells []cell, code string, severity dreamcore.Severity) {
		for _, c := range cells {
			if !reached[c] {
				j.find(code, severity, name, "place", c.String(), "spawn", g.spawn.String(), "door", g.firstDoor(reached))
			}
		}
	}
	if len(g.keys) == 0 && len(g.doors) > 0 {
		j.find("door_without_key", dreamcore.Fail, name, "place", g.doors[0].String())
		return
	}
	missing(g.goals, "goal_walled", dreamcore.Fail)
	missing(g.keys, "key_walled", dreamcore.Fail)
	missing(g.prizes, "prize_walled", dreamcore.Fail)
}

// flood returns every cell that can be walked to. A door opens for a key; each
// key opens one door unless physics.keysStay says that keys are kept. Doors are
// tried in every order, up to twelve of them.
func (j *judge) flood(g *grid) map[cell]bool {
	doors := map[cell]int{}
	for i, d := range g.doors {
		doors[d] = i
	}
	keysStay := g.physics["keysStay"] > 0 || len(g.doors) > 12 || len(g.keys) >= len(g.doors)
	all := map[cell]bool{}
	tried := map[uint64]bool{}
	var try func(opened uint64)
	try = func(opened uint64) {
		if tried[opened] || j.ctx.Err() != nil {
			return
		}
		tried[opened] = true
		reached, front := g.spread(opened, doors)
		for c := range reached {
			all[c] = true
		}
		keys := 0
		for _, k := range g.keys {
			if reached[k] {
				keys++
			}
		}
		if keysStay && keys > 0 {
			next := opened
			for _, d := range front {
				next |= 1 << uint(d%64)
			}
			if next != opened {
				try(next)
			}
			return
		}
		if keys <= bits.OnesCount64(opened) {
			return
		}
		for _, d := range front {
			try(opened | 1<<uint(d%64))
		}
	}
	try(0)
	return all
}

// spread floods from the spawn through opened doors; front are closed doors
// that it stood before.
func (g *grid) spread(opened uint64, doors map[cell]int) (map[cell]bool, []int) {
	reached := map[cell]bool{g.spawn: true}
	stack := []cell{g.spawn}
	var front []int
	for len(stack) > 0 {
		c := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, d := range []cell{{1, 0}, {-1, 0}, {0, 1}, {0, -1}} {
			n := cell{c.col + d.col, c.row + d.row}
			if n.row < 0 || n.row >= g.rows || g.at(n.col, n.row) == solid || reached[n] {
				continue
			}
			if i, ok := doors[n]; ok && opened&(1<<uint(i%64)) == 0 {
				front = append(front, i)
				continue
			}
			reached[n] = true
			stack = append(stack, n)
		}
	}
	return reached, front
}

func (g *grid) firstDoor(reached map[cell]bool) string {
	for _, d := range g.doors {
		if !reached[d] {
			return d.String()
		}
	}
	return "-"
}

// lanes judges a runner of lanes: each string is one lane, "#" an obstacle, and
// at every column the figure may stay or change to a lane beside it.
func (j *judge) lanes(name string, l *level) {
	length := 0
	for _, lane := range l.Lanes {
		length = max(length, len(lane)) // obstacles are ASCII, so bytes count
	}
	if length == 0 {
		j.find("empty", dreamcore.Fail, name)
		return
	}
	blocked := func(lane, col int) bool {
		return col < len(l.Lanes[lane]) && l.Lanes[lane][col] == '#'
	}
	open := make([]bool, len(l.Lanes))
	for i := range open {
		open[i] = !blocked(i, 0)
	}
	for col := 1; col < length; col++ {
		next := make([]bool, len(open))
		passable := false
		for i := range open {
			if blocked(i, col) {
				continue
			}
			for k := i - 1; k <= i+1; k++ {
				// To change lanes, the cell beside must be free at both moments.
				if k >= 0 && k < len(open) && open[k] && (k == i || !blocked(k, col)) {
					next[i] = true
					passable = true
				}
			}
		}
		if !passable {
			j.find("lanes_closed", dreamcore.Fail, name, "column", strconv.Itoa(col))
			return
		}
		open = next
	}
}

// walk judges a 3D level on its grid of heights: cells that cannot be stood on
// are null; one walks up at most stepHeight, down any depth, and jumps over at
// most jumpLength cells.
func (j *judge) walk(name string, l *level) {
	rows := len(l.Heights)
	if rows == 0 {
		j.find("empty", dreamcore.Fail, name)
		return
	}
	total := 0
	for _, r := range l.Heights {
		total += len(r)
	}
	if total > maxTiles {
		j.find("too_big", dreamcore.Fail, name, "tiles", strconv.Itoa(total), "limit", strconv.Itoa(maxTiles))
		return
	}
	height := func(c cell) (float64, bool) {
		if c.row < 0 || c.row >= rows || c.col < 0 || c.col >= len(l.Heights[c.row]) || l.Heights[c.row][c.col] == nil {
			return 0, false
		}
		v := *l.Heights[c.row][c.col]
		return v, !math.IsNaN(v) && v > -1000
	}
	place := func(p []int, what string) (cell, bool) {
		if len(p) != 2 {
			j.find("place_missing", dreamcore.Fail, name, "what", what)
			return cell{}, false
		}
		c := cell{p[0], p[1]}
		if _, ok := height(c); !ok {
			j.find("place_outside", dreamcore.Fail, name, "what", what, "place", c.String())
			return c, false
		}
		return c, true
	}
	from, ok := place(l.Spawn, "spawn")
	if !ok {
		return
	}
	step, ok := j.number(name, l.Physics, "stepHeight")
	if !ok {
		return
	}
	jump := int(min(max(l.Physics["jumpLength"], 1), 100))
	reached := map[cell]bool{from: true}
	open := []cell{from}
	for len(open) > 0 {
		c := open[len(open)-1]
		open = open[:len(open)-1]
		h, _ := height(c)
		for _, d := range []cell{{1, 0}, {-1, 0}, {0, 1}, {0, -1}} {
			for n := 1; n <= jump; n++ {
				to := cell{c.col + n*d.col, c.row + n*d.row}
				if up, ok := height(to); ok {
					if !reached[to] && up-h <= step+1e-9 {
						reached[to] = true
						open = append(open, to)
					}
					if up-h > step+1e-9 {
						break // a wall stops a jump too
					}
				}
			}
		}
	}
	if to, ok := place(l.Goal, "goal"); ok && !reached[to] {
		h, _ := height(to)
		j.find("walk_unreachable", dreamcore.Fail, name, "what", "goal", "place", to.String(), "height", oneDecimal(h), "step", oneDecimal(step))
	}
	for i, p := range l.Pickups {
		what := fmt.Sprintf("pickups[%d]", i)
		if to, ok := place(p, what); ok && !reached[to] {
			h, _ := height(to)
			j.find("walk_unreachable", dreamcore.Fail, name, "what", what, "place", to.String(), "height", oneDecimal(h), "step", oneDecimal(step))
		}
	}
}
