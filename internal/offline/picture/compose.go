package picture

import (
	"fmt"
	"strings"

	"dreamcore/internal/offline/picture/svg"
	"dreamcore/internal/offline/words"
)

// compose puts the layers of a figure together.
func compose(r reading) ([]layer, error) {
	lex := openLexicon()
	picture := r.picture
	fig := lex.figures[picture]
	if !Has(picture) {
		return nil, fmt.Errorf("there is no picture %q", picture)
	}
	effects := append([]string(nil), r.effects...)
	for _, e := range lex.costumes[r.costume] {
		if tint, ok := strings.CutPrefix(e, "tint:"); !ok {
			effects = append(effects, e)
		} else if r.tint == "" {
			r.tint = tint
		}
	}
	wears := false
	for _, e := range effects {
		if len(e) > 4 && e[:4] == "hat:" || e == "glasses" || e == "helmet" {
			wears = true
		}
	}
	// A hat sits best on a face that looks at us.
	if fig.portrait != "" && !r.body && (r.portrait || wears && fig.headW == 0 || has(effects, "glasses") || has(effects, "helmet")) {
		picture = fig.portrait
		fig = lex.figures[picture]
	}
	if r.top && Has(picture+"-top") {
		picture += "-top"
	}
	main, err := newLayer(picture, svg.Identity)
	if err != nil {
		return nil, err
	}
	main.tint = r.tint
	if has(effects, "faint") {
		main.opacity = 0.6
	}
	b, err := extent([]layer{main})
	if err != nil {
		return nil, err
	}
	c := &composer{fig: fig, main: main, box: b, kind: r.main.Kind, side: looksAside(picture, r.main.Kind), top: r.top}
	for _, e := range effects {
		if err := c.apply(e); err != nil {
			return nil, err
		}
	}
	if r.with != nil {
		if err := c.hold(r.with.Picture); err != nil {
			return nil, err
		}
	}
	if r.body && fig.coat != "" {
		if err := c.giveBody(); err != nil {
			return nil, err
		}
	}
	layers := turn(append(append(c.behind, main), c.front...), facing(fig, r))
	if r.ride != nil {
		return c.ride(layers, r.ride.Picture, r)
	}
	if r.beside != nil {
		return c.beside(layers, r.beside.Picture)
	}
	return layers, nil
}

// looksAside reports whether a picture shows its thing from the side; icons of
// animals and vehicles do unless the table says otherwise.
func looksAside(picture string, kind words.Kind) bool {
	if f, ok := openLexicon().figures[picture]; ok {
		return f.sided
	}
	return kind == words.Animal || kind == words.Vehicle
}

func has(list []string, what string) bool {
	for _, e := range list {
		if e == what {
			return true
		}
	}
	return false
}

// facing returns how to turn the figure so that it looks where it was asked to.
func facing(f figure, r reading) svg.Matrix {
	middle := svg.Translate(unit/2, unit/2)
	flip := middle.Mul(svg.Scale(-1, 1)).Mul(svg.Translate(-unit/2, -unit/2))
	now, sided := f.faces, f.sided
	if _, ok := openLexicon().figures[r.picture]; !ok {
		now, sided = 180, true // icons look left unless the table says otherwise
	}
	if !sided {
		return svg.Identity
	}
	want := 0.0
	switch r.facing {
	case "right":
	case "left":
		want = 180
	case "up":
		want = -90
	default:
		return svg.Identity
	}
	left := func(a float64) bool { return a == 180 }
	switch {
	case left(now) && want == 0, now == 0 && want == 180:
		return flip
	case left(now), now == 0 && want == 0:
		return svg.Identity
	}
	m := middle.Mul(svg.Rotate(-now))
	if want == 180 {
		m = flip.Mul(m)
	} else {
		m = middle.Mul(svg.Rotate(want - now))
	}
	return m.Mul(svg.Translate(-unit/2, -unit/2))
}

func turn(layers []layer, m svg.Matrix) []layer {
	if m == svg.Identity {
		return layers
	}
	for i := range layers {
		layers[i].m = m.Mul(layers[i].m)
	}
	return layers
}

// composer collects what goes behind and in front of the main layer.
type composer struct {
	fig           figure
	main          layer
	box           box
	kind          words.Kind
	side          bool // seen from the side, looking left
	top           bool // seen from above
	behind, front []layer
}

func (c *composer) add(list *[]layer, name string, m svg.Matrix) error {
	l, err := newLayer(name, m)
	if err != nil {
		return err
	}
	*list = append(*list, l)
	return nil
}

// place returns the map that puts a picture of side size with its point (px, py)
// of the unit square at (x, y), turned by degrees.
func place(x, y, size, px, py, degrees float64) svg.Matrix {
	k := size / unit
	return svg.Translate(x, y).Mul(svg.Rotate(degrees)).Mul(svg.Scale(k, k)).Mul(svg.Translate(-px, -py))
}

// mirrored is place with the picture turned from left to right.
func mirrored(x, y, size, px, py, degrees float64) svg.Matrix {
	k := size / unit
	return svg.Translate(x, y).Mul(svg.Rotate(degrees)).Mul(svg.Scale(-k, k)).Mul(svg.Translate(-px, -py))
}

// apply adds what one effect shows.
func (c *composer) apply(effect string) error {
	b := c.box
	switch effect {
	case "wings":
		return c.wings()
	case "speed":
		if c.top || !c.side {
			return nil
		}
		return c.add(&c.behind, "speed-lines", place(b.r-0.04*b.w(), b.t+b.h()*0.5, b.h()*0.8, 0, 64, 0))
	case "anger":
		return c.add(&c.front, "1f4a2", place(b.r, b.t, 0.36*b.w(), 84, 44, 0))
	case "sleep":
		return c.add(&c.front, "1f4a4", place(b.r, b.t, 0.45*b.w(), 84, 64, 0))
	case "love":
		return c.add(&c.front, "2764", place(b.r, b.t, 0.34*b.w(), 84, 44, 12))
	case "dizzy":
		return c.add(&c.front, "1f4ab", place(b.l+b.w()/2, b.t, 0.45*b.w(), 64, 84, 0))
	case "music":
		return c.add(&c.front, "1f3b5", place(b.r, b.t, 0.34*b.w(), 64, 64, 0))
	case "bubble":
		return c.add(&c.front, "bubbles", place(b.l-0.04*b.w(), b.t, 0.36*b.w(), 64, 64, 0))
	case "sparkle":
		if err := c.add(&c.front, "sparkle", place(b.r-0.02*b.w(), b.t+0.1*b.h(), 0.34*b.w(), 64, 64, 0)); err != nil {
			return err
		}
		return c.add(&c.front, "sparkle", place(b.l+0.06*b.w(), b.b-0.2*b.h(), 0.22*b.w(), 64, 64, 0))
	case "flame":
		return c.add(&c.behind, "1f525", place(b.l+b.w()/2, b.b+4, 1.3*max(b.w(), b.h()), 64, 124, 0))
	case "cape":
		if c.side {
			return c.add(&c.behind, "cape", place(b.l+0.44*b.w(), b.t+0.44*b.h(), 0.95*b.w(), 12, 20, 0))
		}
		return c.add(&c.behind, "cape-front", place(b.l+b.w()/2, b.t+0.4*b.h(), 1.3*b.w(), 64, 8, 0))
	case "glasses":
		if c.side {
			return nil // they would hide more than they dress
		}
		y := b.t + 0.5*b.h()
		return c.add(&c.front, "shades", place(b.l+b.w()/2, y, 0.72*b.w(), 64, 64, 0))
	case "antenna":
		return c.hat("antenna")
	case "helmet":
		size := 1.25 * max(b.w(), b.h())
		return c.add(&c.front, "helmet", place(b.l+b.w()/2, b.t+b.h()/2, size, 64, 64, 0))
	}
	if hat := effect; len(hat) > 4 && hat[:4] == "hat:" {
		return c.hat(hat[4:])
	}
	return nil
}

// hat sets a hat on the head.
func (c *composer) hat(name string) error {
	x, y, w := c.fig.headX, c.fig.headY, c.fig.headW
	if w == 0 {
		// Without a known head: the upper middle of what looks at us.
		x, y, w = c.box.l+c.box.w()/2, c.box.t+0.1*c.box.h(), 0.62*c.box.w()
	}
	return c.add(&c.front, name, place(x, y+0.1*w, w*1.15, 64, 104, c.fig.tilt))
}

// wings gives wings to what has none.
func (c *composer) wings() error {
	if c.fig.flier || c.kind == words.Sky || c.kind == words.Place {
		return nil
	}
	b := c.box
	if c.side {
		return c.add(&c.behind, "wing-side", place(b.l+0.62*b.w(), b.t+0.55*b.h(), 0.85*max(b.w(), b.h()), 20, 100, 0))
	}
	x, y, size := b.l+b.w()/2, b.t+0.62*b.h(), 0.8*max(b.w(), b.h())
	if err := c.add(&c.behind, "wing-side", place(x+0.3*b.w(), y, size, 20, 100, 0)); err != nil {
		return err
	}
	return c.add(&c.behind, "wing-side", mirrored(x-0.3*b.w(), y, size, 20, 100, 0))
}

// giveBody sets a mere head on a body of its own colour, behind all else.
func (c *composer) giveBody() error {
	b := c.box
	name := "body"
	if c.kind == words.Person {
		name = "body-dressed"
	}
	body, err := newLayer(name, place(b.l+b.w()/2, b.b-0.2*b.h(), 0.82*b.w(), 64, 12, 0))
	if err != nil {
		return err
	}
	if body.tint = c.main.tint; body.tint == "" {
		body.tint = c.fig.coat
	}
	body.opacity = c.main.opacity
	c.behind = append(c.behind, body)
	return nil
}

// hold gives the figure a thing to hold, in its lower corner.
func (c *composer) hold(name string) error {
	b := c.box
	x := b.r - 0.1*b.w()
	if c.side {
		x = b.l + 0.14*b.w() // in front of it
	}
	return c.add(&c.front, name, place(x, b.b-0.26*b.h(), 0.46*max(b.w(), b.h()), unit/2, unit/2, 0))
}

// ride sets the figure on top of another thing.
func (c *composer) ride(layers []layer, name string, r reading) ([]layer, error) {
	under, err := newLayer(name, svg.Identity)
	if err != nil {
		return nil, err
	}
	mount := []layer{under}
	r.picture = name
	mount = turn(mount, facing(openLexicon().figures[name], r))
	low, err := extent(mount)
	if err != nil {
		return nil, err
	}
	b := c.box
	const k = 0.62 // how much smaller the rider is
	m := svg.Translate(low.l+low.w()*0.52, low.t+low.h()*0.36).Mul(svg.Scale(k, k)).Mul(svg.Translate(-(b.l+b.r)/2, -b.b))
	for i := range layers {
		layers[i].m = m.Mul(layers[i].m)
	}
	// The rider sits in it: what it rides on is in front of its feet.
	return append(layers, mount...), nil
}

// beside puts another thing to the right.
func (c *composer) beside(layers []layer, name string) ([]layer, error) {
	other, err := newLayer(name, svg.Identity)
	if err != nil {
		return nil, err
	}
	b, err := extent([]layer{other})
	if err != nil {
		return nil, err
	}
	other.m = svg.Translate(c.box.r-b.l-0.06*unit, c.box.b-b.b).Mul(other.m)
	return append([]layer{other}, layers...), nil
}
