package level

import (
	"container/heap"
	"math"
	"strconv"

	"dreamcore"
)

// body is the figure: its middle and its speed, in pixels and pixels a second.
type body struct {
	x, y, vx, vy float64
	ground       bool
}

// physics is what the game simulates with, 60 steps a second.
type physics struct {
	gravity, speed, jump, maxFall float64
	w, h                          float64 // the figure's box
	run                           bool    // it runs to the right by itself
}

const (
	dt     = 1.0 / 60
	repeat = 4 // frames that one choice lasts
)

// step moves b for one frame as the kit does; dead when it touches a spike or
// falls out of the level.
func (g *grid) step(b *body, p *physics, direction float64, jump bool) (dead bool) {
	b.vx = direction * p.speed
	if jump && b.ground {
		b.vy = -p.jump
	}
	b.vy = min(b.vy+p.gravity*dt, p.maxFall)
	parts := max(1, int(math.Ceil(max(math.Abs(b.vx), math.Abs(b.vy))*dt/(g.size*0.4))))
	b.ground = false
	for range parts {
		b.x += b.vx * dt / float64(parts)
		if g.hits(b, p) {
			if b.vx > 0 {
				b.x = math.Floor((b.x+p.w/2)/g.size)*g.size - p.w/2
			} else {
				b.x = (math.Floor((b.x-p.w/2)/g.size)+1)*g.size + p.w/2
			}
			b.vx = 0
		}
		b.y += b.vy * dt / float64(parts)
		if g.hits(b, p) {
			if b.vy > 0 {
				b.y = math.Floor((b.y+p.h/2)/g.size)*g.size - p.h/2
				b.ground = true
			} else {
				b.y = (math.Floor((b.y-p.h/2)/g.size)+1)*g.size + p.h/2
			}
			b.vy = 0
		}
	}
	if b.y-p.h/2 > float64(g.rows)*g.size {
		return true
	}
	return g.at(int(math.Floor(b.x/g.size)), int(math.Floor((b.y+p.h/4)/g.size))) == spike
}

func (g *grid) hits(b *body, p *physics) bool {
	left, right := int(math.Floor((b.x-p.w/2)/g.size)), int(math.Floor((b.x+p.w/2-0.001)/g.size))
	top, bottom := int(math.Floor((b.y-p.h/2)/g.size)), int(math.Floor((b.y+p.h/2-0.001)/g.size))
	for r := top; r <= bottom; r++ {
		for c := left; c <= right; c++ {
			if k := g.at(c, r); k == solid || k == locked {
				return true
			}
		}
	}
	return false
}

// touched calls visit with each cell that the box meets.
func (g *grid) touched(b *body, p *physics, visit func(cell)) {
	left, right := int(math.Floor((b.x-p.w/2)/g.size)), int(math.Floor((b.x+p.w/2-0.001)/g.size))
	top, bottom := int(math.Floor((b.y-p.h/2)/g.size)), int(math.Floor((b.y+p.h/2-0.001)/g.size))
	for r := max(top, 0); r <= min(bottom, g.rows-1); r++ {
		for c := max(left, 0); c <= min(right, g.cols-1); c++ {
			visit(cell{c, r})
		}
	}
}

// state is a body on a grid fine enough to tell ways apart.
type state struct {
	x, y, vy int32
	ground   bool
}

func (g *grid) quantise(b *body, p *physics) state {
	fine := g.size / 4
	return state{int32(math.Floor(b.x / fine)), int32(math.Floor(b.y / fine)), int32(math.Floor(b.vy / (p.jump / 6))), b.ground}
}

// node waits in the queue of the search.
type node struct {
	b    body
	far  float64
	turn int
}

type queue []node

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, k int) bool {
	return q[i].far < q[k].far || (q[i].far == q[k].far && q[i].turn < q[k].turn)
}
func (q queue) Swap(i, k int) { q[i], q[k] = q[k], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(node)) }
func (q *queue) Pop() any {
	old := *q
	n := old[len(old)-1]
	*q = old[:len(old)-1]
	return n
}

// reach is what a search found.
type reach struct {
	goal     bool
	complete bool          // everything that can be reached was looked at
	stood    map[cell]bool // cells in which the figure stood
	touched  map[cell]bool
	states   int
}

// search plays from the spawn, best first, until the goal is reached and every
// prize was touched, nothing is left, or the budget is used up.
func (j *judge) search(g *grid, p *physics, budget int, prizes bool) reach {
	r := reach{stood: map[cell]bool{}, touched: map[cell]bool{}}
	start := body{x: (float64(g.spawn.col) + 0.5) * g.size, y: float64(g.spawn.row+1)*g.size - p.h/2}
	left := len(g.prizes)
	wanted := map[cell]bool{}
	for _, c := range g.goals {
		wanted[c] = true
	}
	for _, c := range g.prizes {
		wanted[c] = false
	}
	see := func(b *body) {
		g.touched(b, p, func(c cell) {
			isGoal, ok := wanted[c]
			if !ok || r.touched[c] {
				return
			}
			r.touched[c] = true
			if isGoal {
				r.goal = true
			} else {
				left--
			}
		})
	}
	distance := func(b *body) float64 {
		best := math.Inf(1)
		for _, c := range g.goals {
			best = min(best, math.Hypot((float64(c.col)+0.5)*g.size-b.x, (float64(c.row)+0.5)*g.size-b.y))
		}
		return best
	}
	seen := map[state]bool{}
	var open queue
	push := func(b body) {
		s := g.quantise(&b, p)
		if seen[s] {
			return
		}
		seen[s] = true
		heap.Push(&open, node{b: b, far: distance(&b), turn: len(seen)})
	}
	see(&start)
	push(start)
	directions := []float64{0, 1, -1}
	if p.run {
		directions = []float64{1}
	}
	for open.Len() > 0 {
		if r.goal && (!prizes || left == 0) {
			r.states = len(seen)
			return r
		}
		if len(seen) > budget || (len(seen)%4096 == 0 && j.ctx.Err() != nil) {
			r.states = len(seen)
			return r
		}
		n := heap.Pop(&open).(node)
		if n.b.ground {
			r.stood[cell{int(math.Floor(n.b.x / g.size)), int(math.Floor(n.b.y / g.size))}] = true
		}
		for _, d := range directions {
			for _, jump := range []bool{false, true} {
				if jump && !n.b.ground {
					continue
				}
				b, dead := n.b, false
				for range repeat {
					if dead = g.step(&b, p, d, jump); dead {
						break
					}
					see(&b)
					jump = false
				}
				if !dead {
					push(b)
				}
			}
		}
	}
	r.complete = true
	r.states = len(seen)
	return r
}

// platform judges a level with gravity: spawn, goal, prizes.
func (j *judge) platform(name string, g *grid, run bool) {
	p := &physics{run: run}
	var ok [3]bool
	p.gravity, ok[0] = j.number(name, g.physics, "gravity")
	p.speed, ok[1] = j.number(name, g.physics, "speed")
	p.jump, ok[2] = j.number(name, g.physics, "jumpSpeed")
	if !ok[0] || !ok[1] || !ok[2] {
		return
	}
	if p.maxFall = g.physics["maxFall"]; !(p.maxFall > 0 && p.maxFall < 100_000) {
		p.maxFall = 2 * p.jump
	}
	// The figure's box; a game may say another one beside its other numbers.
	if p.w = g.physics["width"]; !(p.w >= 1 && p.w < 20*g.size) {
		p.w = 0.7 * g.size
	}
	if p.h = g.physics["height"]; !(p.h >= 1 && p.h < 20*g.size) {
		p.h = 0.9 * g.size
	}
	if len(g.goals) == 0 {
		j.find("no_goal", dreamcore.Fail, name)
		return
	}
	b := body{x: (float64(g.spawn.col) + 0.5) * g.size, y: float64(g.spawn.row+1)*g.size - p.h/2}
	if g.hits(&b, p) {
		j.find("spawn_blocked", dreamcore.Fail, name, "place", g.spawn.String())
		return
	}
	landed := false
	for range 240 {
		if g.step(&b, p, 0, false) {
			break
		}
		if b.ground {
			landed = true
			break
		}
	}
	if !landed {
		j.find("spawn_falls", dreamcore.Fail, name, "place", g.spawn.String())
		return
	}
	found := j.search(g, p, j.opt.States, true)
	if !found.goal && !found.complete {
		j.find("not_proven", dreamcore.Warn, name, "states", strconv.Itoa(found.states))
		return
	}
	if !found.goal {
		j.explain(name, g, p, found)
		return
	}
	if found.complete {
		for _, c := range g.prizes {
			if !found.touched[c] {
				j.find("prize_unreachable", dreamcore.Warn, name, "place", c.String())
			}
		}
	}
}

// explain says where the way ends, how wide or high the obstacle is, and what
// would help; a jump speed is only named when a search has proved it.
func (j *judge) explain(name string, g *grid, p *physics, found reach) {
	carry := math.Floor(2 * p.jump / p.gravity * p.speed / g.size)
	height := math.Floor(p.jump * p.jump / (2 * p.gravity) / g.size)
	from, to, ok := g.nearestGap(found)
	better := ""
	for _, factor := range []float64{1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2} {
		q := *p
		q.jump = math.Ceil(p.jump*factor/10) * 10
		q.maxFall = max(p.maxFall, q.jump)
		if j.search(g, &q, j.opt.States/4, false).goal {
			better = whole(q.jump)
			break
		}
	}
	if !ok {
		j.find("goal_unreachable", dreamcore.Fail, name, "goal", g.goals[0].String(), "spawn", g.spawn.String())
		return
	}
	args := []string{
		"from", from.String(), "to", to.String(), "goal", g.goals[0].String(),
		"carry", whole(carry), "height", whole(height),
		"place", cell{(from.col + to.col) / 2, max(from.row, to.row)}.String(), "jump", better,
	}
	wide, high := abs(to.col-from.col)-1, from.row-to.row
	switch {
	case wide > 0 && g.walled(from, to):
		j.findOr("way_blocked", "", name, args)
	case float64(high) > height:
		args = append(args, "size", strconv.Itoa(high))
		j.findOr("step_too_high", better, name, args)
	case wide > 0:
		args = append(args, "size", strconv.Itoa(wide))
		j.findOr("gap_too_wide", better, name, args)
	default:
		j.findOr("way_blocked", "", name, args)
	}
}

// findOr takes the fix that names a proven number when there is one.
func (j *judge) findOr(code, better, name string, args []string) {
	j.find(code, dreamcore.Fail, name, args...)
	if better != "" {
		f := &j.report.Findings[len(j.report.Findings)-1]
		f.Fix += " " + j.text("raise_jump", "jump", better)
	}
}

// walled reports whether something solid stands between two places of about one
// height.
func (g *grid) walled(from, to cell) bool {
	if abs(from.row-to.row) > 1 {
		return false
	}
	for c := min(from.col, to.col) + 1; c < max(from.col, to.col); c++ {
		if k := g.at(c, min(from.row, to.row)); k == solid || k == locked {
			return true
		}
	}
	return false
}

// nearestGap returns a cell where the figure stood and the nearest place to
// stand that it did not reach, the pair that is closest to the goal.
func (g *grid) nearestGap(found reach) (from, to cell, ok bool) {
	best := math.Inf(1)
	goal := g.goals[0]
	// Places to stand are many in a big level; the rows of a column suffice.
	for col := range g.cols {
		for row := range g.rows {
			c := cell{col, row}
			if found.stood[c] || g.at(col, row) == solid || g.at(col, row) == spike || g.at(col, row+1) != solid {
				continue
			}
			for s := range found.stood {
				if g.at(s.col, s.row+1) != solid && len(found.stood) > 1 {
					continue // it stands on the very edge: the gap begins before
				}
				away := math.Hypot(float64(c.col-s.col), float64(c.row-s.row))
				if away > 40 {
					continue
				}
				score := 3*away + math.Hypot(float64(goal.col-c.col), float64(goal.row-c.row))
				if score < best || (score == best && (c.col < to.col || (c.col == to.col && s.col < from.col))) {
					best, from, to, ok = score, s, c, true
				}
			}
		}
	}
	return from, to, ok
}

func abs(v int) int {
	if v < 0 {
		return -v
	}
	return v
}
