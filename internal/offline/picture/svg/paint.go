package svg

import (
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
)

// rgba is a colour that is not premultiplied, channels 0 to 1.
type rgba struct{ r, g, b, a float64 }

// named are the colour names that occur in the icon sets.
var named = map[string]string{
	"black": "#000", "white": "#fff", "red": "#f00", "gray": "#808080", "grey": "#808080", "silver": "#c0c0c0",
	"orange": "#ffa500", "yellow": "#ff0", "blue": "#00f", "green": "#008000", "currentcolor": "#000",
	"purple": "#800080", "tan": "#d2b48c", "brown": "#a52a2a", "pink": "#ffc0cb", "navy": "#000080",
	"gold": "#ffd700", "lime": "#0f0", "cyan": "#0ff", "magenta": "#f0f", "maroon": "#800000", "teal": "#008080",
}

// parseColour reads #rgb, #rrggbb, rgb(), rgba() and the names above.
func parseColour(s string) (rgba, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	if hex, ok := named[s]; ok {
		s = hex
	}
	if hex, ok := strings.CutPrefix(s, "#"); ok {
		if len(hex) == 3 {
			hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
		}
		v, err := strconv.ParseUint(hex, 16, 32)
		if err != nil || len(hex) != 6 {
			return rgba{}, fmt.Errorf("bad colour %q", s)
		}
		return rgba{float64(v>>16) / 255, float64(v>>8&255) / 255, float64(v&255) / 255, 1}, nil
	}
	if _, args, ok := strings.Cut(s, "("); ok && strings.HasPrefix(s, "rgb") {
		c := [4]float64{0, 0, 0, 1}
		for i, f := range strings.Split(strings.TrimSuffix(args, ")"), ",") {
			v, err := strconv.ParseFloat(strings.TrimSpace(f), 64)
			if err != nil || i > 3 {
				return rgba{}, fmt.Errorf("bad colour %q", s)
			}
			if i < 3 {
				v /= 255
			}
			c[i] = v
		}
		return rgba{c[0], c[1], c[2], c[3]}, nil
	}
	return rgba{}, fmt.Errorf("bad colour %q", s)
}

// paint gives the colour at a place in device pixels.
type paint interface{ at(p point) rgba }

type solid rgba

func (s solid) at(point) rgba { return rgba(s) }

type stop struct {
	offset float64
	c      rgba
}

// gradient is linear (x1,y1 to x2,y2) or radial (cx,cy,r with focus fx,fy).
type gradient struct {
	radial         bool
	x1, y1, x2, y2 float64
	cx, cy, r      float64
	fx, fy         float64
	stops          []stop
	inverse        Matrix // device to gradient space
}

func (g *gradient) at(p point) rgba {
	p = g.inverse.apply(p)
	var t float64
	if g.radial {
		t = g.radialAt(p)
	} else {
		dx, dy := g.x2-g.x1, g.y2-g.y1
		if l := dx*dx + dy*dy; l > 0 {
			t = ((p.x-g.x1)*dx + (p.y-g.y1)*dy) / l
		} else {
			t = 1
		}
	}
	return g.colour(t)
}

// radialAt solves for the circle, of those between the focus and the outer one,
// on which p lies.
func (g *gradient) radialAt(p point) float64 {
	if g.r <= 0 {
		return 1
	}
	d := point{p.x - g.fx, p.y - g.fy}
	c := point{g.cx - g.fx, g.cy - g.fy}
	a := g.r*g.r - c.x*c.x - c.y*c.y
	b := d.x*c.x + d.y*c.y
	q := d.x*d.x + d.y*d.y
	if a <= 1e-9 {
		return 1
	}
	return (math.Sqrt(math.Max(0, b*b+a*q)) - b) / a
}

func (g *gradient) colour(t float64) rgba {
	s := g.stops
	if len(s) == 0 {
		return rgba{}
	}
	i := sort.Search(len(s), func(i int) bool { return s[i].offset > t })
	switch i {
	case 0:
		return s[0].c
	case len(s):
		return s[len(s)-1].c
	}
	a, b := s[i-1], s[i]
	k := (t - a.offset) / (b.offset - a.offset)
	return rgba{
		a.c.r + (b.c.r-a.c.r)*k, a.c.g + (b.c.g-a.c.g)*k,
		a.c.b + (b.c.b-a.c.b)*k, a.c.a + (b.c.a-a.c.a)*k,
	}
}

// gradient reads a gradient element; m maps user space to device and box is the
// bounding box of what is painted, in user space.
func (d *Drawing) gradient(n *node, m Matrix, box [4]float64) (paint, error) {
	g := &gradient{radial: n.name == "radialGradient"}
	attr, stops := d.inherit(n)
	if len(stops) == 0 {
		return nil, nil
	}
	last := 0.0
	for _, s := range stops {
		c, err := parseColour(or(s.attr["stop-color"], "black"))
		if err != nil {
			return nil, err
		}
		c.a *= clamp(s.num("stop-opacity", 1))
		last = math.Max(last, clamp(s.num("offset", 0)))
		g.stops = append(g.stops, stop{last, c})
	}
	n = &node{attr: attr}
	// The defaults are those of objectBoundingBox units; icon sets give every
	// number when they use user space.
	if g.radial {
		g.cx, g.cy, g.r = n.num("cx", 0.5), n.num("cy", 0.5), n.num("r", 0.5)
		g.fx, g.fy = n.num("fx", g.cx), n.num("fy", g.cy)
		// A focus on or outside the circle is pulled inside.
		if f := math.Hypot(g.fx-g.cx, g.fy-g.cy); f > g.r*0.999 && f > 0 {
			k := g.r * 0.999 / f
			g.fx, g.fy = g.cx+(g.fx-g.cx)*k, g.cy+(g.fy-g.cy)*k
		}
	} else {
		g.x1, g.y1, g.x2, g.y2 = n.num("x1", 0), n.num("y1", 0), n.num("x2", 1), n.num("y2", 0)
	}
	if attr["gradientUnits"] != "userSpaceOnUse" {
		m = m.Mul(Matrix{box[2], 0, 0, box[3], box[0], box[1]})
	}
	t, err := parseTransform(attr["gradientTransform"])
	if err != nil {
		return nil, err
	}
	inv, ok := m.Mul(t).invert()
	if !ok {
		return solid(g.stops[len(g.stops)-1].c), nil
	}
	g.inverse = inv
	return g, nil
}

// inherit collects what a gradient takes from the one that it refers to.
func (d *Drawing) inherit(n *node) (map[string]string, []*node) {
	attr := map[string]string{}
	var stops []*node
	for range 8 { // a chain that is longer is a loop
		if n == nil {
			break
		}
		for k, v := range n.attr {
			if _, ok := attr[k]; !ok {
				attr[k] = v
			}
		}
		if len(stops) == 0 {
			for _, c := range n.children {
				if c.name == "stop" {
					stops = append(stops, c)
				}
			}
		}
		n = d.ref(n.attr["href"])
	}
	return attr, stops
}

func clamp(v float64) float64 { return math.Min(1, math.Max(0, v)) }

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
