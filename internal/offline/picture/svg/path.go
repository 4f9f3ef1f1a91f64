package svg

import (
	"fmt"
	"math"
	"strconv"
)

// point is a place in some coordinate system.
type point struct{ x, y float64 }

func (p point) sub(q point) point { return point{p.x - q.x, p.y - q.y} }
func (p point) add(q point) point { return point{p.x + q.x, p.y + q.y} }
func (p point) mul(k float64) point {
	return point{p.x * k, p.y * k}
}
func (p point) len() float64 { return math.Hypot(p.x, p.y) }

// polyline is one subpath after its curves were cut into straight pieces.
type polyline struct {
	points []point
	closed bool
}

// maxPoints bounds what one path may become, so that a hostile path cannot fill
// the memory.
const maxPoints = 200_000

// flattener turns path commands into polylines.
type flattener struct {
	lines   []polyline
	cur     []point
	start   point
	at      point
	count   int
	perUnit float64 // straight pieces per unit of control polygon, from the scale
}

func (f *flattener) push(p point) error {
	f.count++
	if f.count > maxPoints || math.IsNaN(p.x) || math.IsNaN(p.y) || math.IsInf(p.x, 0) || math.IsInf(p.y, 0) {
		return fmt.Errorf("path is too long or not finite")
	}
	f.cur = append(f.cur, p)
	f.at = p
	return nil
}

func (f *flattener) move(p point) error {
	f.end(false)
	f.start = p
	return f.push(p)
}

func (f *flattener) line(p point) error {
	if len(f.cur) == 0 {
		if err := f.push(f.at); err != nil {
			return err
		}
	}
	return f.push(p)
}

// end finishes the current subpath.
func (f *flattener) end(closed bool) {
	if len(f.cur) > 0 {
		f.lines = append(f.lines, polyline{f.cur, closed})
	}
	f.cur = nil
	if closed {
		f.at = f.start
	}
}

func (f *flattener) pieces(length float64) int {
	return int(math.Min(96, math.Max(4, math.Ceil(math.Sqrt(length*f.perUnit)*2))))
}

func (f *flattener) cubic(b, c, d point) error {
	a := f.at
	n := f.pieces(b.sub(a).len() + c.sub(b).len() + d.sub(c).len())
	for i := 1; i <= n; i++ {
		t := float64(i) / float64(n)
		u := 1 - t
		p := a.mul(u * u * u).add(b.mul(3 * u * u * t)).add(c.mul(3 * u * t * t)).add(d.mul(t * t * t))
		if err := f.line(p); err != nil {
			return err
		}
	}
	return nil
}

func (f *flattener) quad(b, c point) error {
	a := f.at
	return f.cubic(a.add(b.sub(a).mul(2.0/3)), c.add(b.sub(c).mul(2.0/3)), c)
}

// arc follows the SVG implementation notes on elliptical arcs.
func (f *flattener) arc(rx, ry, rotation float64, large, sweep bool, to point) error {
	from := f.at
	rx, ry = math.Abs(rx), math.Abs(ry)
	if rx == 0 || ry == 0 || from == to {
		return f.line(to)
	}
	sin, cos := math.Sincos(rotation * math.Pi / 180)
	h := from.sub(to).mul(0.5)
	p := point{cos*h.x + sin*h.y, -sin*h.x + cos*h.y}
	if k := p.x*p.x/(rx*rx) + p.y*p.y/(ry*ry); k > 1 {
		rx, ry = rx*math.Sqrt(k), ry*math.Sqrt(k)
	}
	num := rx*rx*ry*ry - rx*rx*p.y*p.y - ry*ry*p.x*p.x
	k := math.Sqrt(math.Max(0, num/(rx*rx*p.y*p.y+ry*ry*p.x*p.x)))
	if large == sweep {
		k = -k
	}
	c := point{k * rx * p.y / ry, -k * ry * p.x / rx}
	mid := from.add(to).mul(0.5)
	center := point{cos*c.x - sin*c.y + mid.x, sin*c.x + cos*c.y + mid.y}
	begin := math.Atan2((p.y-c.y)/ry, (p.x-c.x)/rx)
	end := math.Atan2((-p.y-c.y)/ry, (-p.x-c.x)/rx)
	turn := end - begin
	if sweep && turn < 0 {
		turn += 2 * math.Pi
	} else if !sweep && turn > 0 {
		turn -= 2 * math.Pi
	}
	n := f.pieces(math.Abs(turn) * math.Max(rx, ry))
	for i := 1; i < n; i++ {
		s, co := math.Sincos(begin + turn*float64(i)/float64(n))
		if err := f.line(point{center.x + rx*co*cos - ry*s*sin, center.y + rx*co*sin + ry*s*cos}); err != nil {
			return err
		}
	}
	return f.line(to)
}

// scanner reads the numbers of a path or a transform.
type scanner struct {
	s string
	i int
}

func (s *scanner) skip() {
	for s.i < len(s.s) {
		switch s.s[s.i] {
		case ' ', '\t', '\n', '\r', ',':
			s.i++
		default:
			return
		}
	}
}

func (s *scanner) more() bool {
	s.skip()
	return s.i < len(s.s)
}

// number reads one number in the packed form of SVG: "0-.5.3" is 0, -0.5, 0.3.
func (s *scanner) number() (float64, error) {
	s.skip()
	from := s.i
	if s.i < len(s.s) && (s.s[s.i] == '-' || s.s[s.i] == '+') {
		s.i++
	}
	dot := false
	for s.i < len(s.s) {
		c := s.s[s.i]
		switch {
		case c >= '0' && c <= '9':
		case c == '.' && !dot:
			dot = true
		case (c == 'e' || c == 'E') && s.i+1 < len(s.s) && s.i > from:
			s.i++
			if s.s[s.i] != '-' && s.s[s.i] != '+' && (s.s[s.i] < '0' || s.s[s.i] > '9') {
				return 0, fmt.Errorf("bad number at %d", from)
			}
		default:
			goto done
		}
		s.i++
	}
done:
	v, err := strconv.ParseFloat(s.s[from:s.i], 64)
	if err != nil {
		return 0, fmt.Errorf("bad number at %d", from)
	}
	return v, nil
}

func (s *scanner) numbers(n int) ([7]float64, error) {
	var v [7]float64
	for i := range n {
		x, err := s.number()
		if err != nil {
			return v, err
		}
		v[i] = x
	}
	return v, nil
}

// flag reads an arc flag, which may stand without a space before the next number.
func (s *scanner) flag() (bool, error) {
	s.skip()
	if s.i < len(s.s) && (s.s[s.i] == '0' || s.s[s.i] == '1') {
		s.i++
		return s.s[s.i-1] == '1', nil
	}
	return false, fmt.Errorf("bad arc flag at %d", s.i)
}

// flatten parses path data. scale is device pixels per unit.
func flatten(d string, scale float64) ([]polyline, error) {
	f := &flattener{perUnit: math.Max(scale, 0.05)}
	s := &scanner{s: d}
	var cmd, prev byte
	var ctrl point // last control point, for S and T
	for s.more() {
		if c := s.s[s.i]; (c|0x20) >= 'a' && (c|0x20) <= 'z' {
			cmd = c
			s.i++
		} else if cmd == 0 || cmd|0x20 == 'z' {
			return nil, fmt.Errorf("path begins with a number")
		}
		rel := point{}
		if cmd >= 'a' {
			rel = f.at
		}
		kind := cmd | 0x20
		var err error
		switch kind {
		case 'z':
			f.end(true)
		case 'm', 'l':
			v, e := s.numbers(2)
			if e != nil {
				return nil, e
			}
			if p := rel.add(point{v[0], v[1]}); kind == 'm' {
				err = f.move(p)
				cmd-- // from m to l: what follows a move without a letter is a line
			} else {
				err = f.line(p)
			}
		case 'h', 'v':
			v, e := s.number()
			if e != nil {
				return nil, e
			}
			p := point{rel.x + v, f.at.y}
			if kind == 'v' {
				p = point{f.at.x, rel.y + v}
			}
			err = f.line(p)
		case 'c', 's':
			n := 6
			if kind == 's' {
				n = 4
			}
			v, e := s.numbers(n)
			if e != nil {
				return nil, e
			}
			b := f.at
			rest := v[:]
			if kind == 'c' {
				b, rest = rel.add(point{v[0], v[1]}), v[2:]
			} else if prev == 'c' || prev == 's' {
				b = f.at.mul(2).sub(ctrl)
			}
			ctrl = rel.add(point{rest[0], rest[1]})
			err = f.cubic(b, ctrl, rel.add(point{rest[2], rest[3]}))
		case 'q', 't':
			n := 4
			if kind == 't' {
				n = 2
			}
			v, e := s.numbers(n)
			if e != nil {
				return nil, e
			}
			to := rel.add(point{v[0], v[1]})
			if kind == 'q' {
				ctrl, to = to, rel.add(point{v[2], v[3]})
			} else if prev == 'q' || prev == 't' {
				ctrl = f.at.mul(2).sub(ctrl)
			} else {
				ctrl = f.at
			}
			err = f.quad(ctrl, to)
		case 'a':
			r, e := s.numbers(3)
			if e != nil {
				return nil, e
			}
			large, e1 := s.flag()
			sweep, e2 := s.flag()
			to, e3 := s.numbers(2)
			if e1 != nil || e2 != nil || e3 != nil {
				return nil, fmt.Errorf("bad arc")
			}
			err = f.arc(r[0], r[1], r[2], large, sweep, rel.add(point{to[0], to[1]}))
		default:
			return nil, fmt.Errorf("unknown path command %q", string(rune(cmd)))
		}
		if err != nil {
			return nil, err
		}
		prev = kind
	}
	f.end(false)
	return f.lines, nil
}
