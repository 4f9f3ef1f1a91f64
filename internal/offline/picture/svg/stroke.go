package svg

import "math"

// pen is how a line is drawn.
type pen struct {
	width float64
	cap   string // butt, round, square
	join  string // miter, round, bevel
	miter float64
}

// outline returns polygons whose union is the stroke of lines, all turning the
// same way, so that a non-zero fill of all of them is the union. scale is
// device pixels per unit.
func (p pen) outline(lines []polyline, scale float64) []polyline {
	var out []polyline
	r := p.width / 2
	add := func(pts ...point) {
		area := 0.0
		for i, a := range pts {
			b := pts[(i+1)%len(pts)]
			area += a.x*b.y - b.x*a.y
		}
		if area < 0 {
			for i, j := 0, len(pts)-1; i < j; i, j = i+1, j-1 {
				pts[i], pts[j] = pts[j], pts[i]
			}
		}
		if area != 0 {
			out = append(out, polyline{pts, true})
		}
	}
	disc := func(c point) {
		n := int(math.Min(48, math.Max(8, math.Ceil(math.Sqrt(r*scale)*6))))
		pts := make([]point, n)
		for i := range pts {
			s, co := math.Sincos(2 * math.Pi * float64(i) / float64(n))
			pts[i] = point{c.x + r*co, c.y + r*s}
		}
		add(pts...)
	}
	for _, l := range lines {
		pts := distinct(l.points)
		closed := l.closed && len(pts) > 2
		if closed && pts[0] == pts[len(pts)-1] {
			pts = pts[:len(pts)-1]
		}
		if len(pts) == 1 {
			if p.cap == "round" {
				disc(pts[0])
			}
			continue
		}
		n := len(pts)
		segments := n - 1
		if closed {
			segments = n
		}
		side := func(i int) point { // the normal of segment i, r long
			d := pts[(i+1)%n].sub(pts[i])
			k := r / d.len()
			return point{-d.y * k, d.x * k}
		}
		for i := range segments {
			a, b, s := pts[i], pts[(i+1)%n], side(i)
			if p.cap == "square" && !closed {
				along := point{s.y, -s.x}
				if i == 0 {
					a = a.sub(along)
				}
				if i == segments-1 {
					b = b.add(along)
				}
			}
			add(a.add(s), b.add(s), b.sub(s), a.sub(s))
			if i == segments-1 && !closed {
				break
			}
			p.corner(b, s, side((i+1)%segments), add, disc)
		}
		if p.cap == "round" && !closed {
			disc(pts[0])
			disc(pts[n-1])
		}
	}
	return out
}

// corner fills the wedge between two segments that meet in c and have the
// normals s and t.
func (p pen) corner(c, s, t point, add func(...point), disc func(point)) {
	r := p.width / 2
	cross := s.x*t.y - s.y*t.x
	dot := s.x*t.x + s.y*t.y
	if p.join == "round" && dot < 0.95*r*r {
		disc(c)
		return
	}
	if cross > 0 { // the open side is the other one
		s, t = s.mul(-1), t.mul(-1)
	}
	mid := s.add(t)
	if m := mid.len(); m > 1e-9 && p.join != "bevel" {
		// The tip of the miter lies on the bisector at r/cos(half the angle).
		half := m / (2 * r)
		if 1/half <= p.miter {
			add(c, c.add(s), c.add(mid.mul(r/half/m)), c.add(t))
			return
		}
	}
	add(c, c.add(s), c.add(t))
}

func distinct(pts []point) []point {
	out := pts[:0:0]
	for i, p := range pts {
		if i == 0 || p != pts[i-1] {
			out = append(out, p)
		}
	}
	return out
}
