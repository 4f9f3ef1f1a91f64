package svg

import (
	"fmt"
	"math"
	"strings"
)

// Matrix is an affine map: x' = A·x + C·y + E, y' = B·x + D·y + F.
type Matrix struct{ A, B, C, D, E, F float64 }

// Identity changes nothing.
var Identity = Matrix{A: 1, D: 1}

// Translate moves by x and y.
func Translate(x, y float64) Matrix { return Matrix{1, 0, 0, 1, x, y} }

// Scale stretches.
func Scale(x, y float64) Matrix { return Matrix{x, 0, 0, y, 0, 0} }

// Rotate turns clockwise (y points down) by degrees.
func Rotate(degrees float64) Matrix {
	s, c := math.Sincos(degrees * math.Pi / 180)
	return Matrix{c, s, -s, c, 0, 0}
}

// Mul returns the map that applies n first and m afterwards.
func (m Matrix) Mul(n Matrix) Matrix {
	return Matrix{
		m.A*n.A + m.C*n.B, m.B*n.A + m.D*n.B,
		m.A*n.C + m.C*n.D, m.B*n.C + m.D*n.D,
		m.A*n.E + m.C*n.F + m.E, m.B*n.E + m.D*n.F + m.F,
	}
}

func (m Matrix) apply(p point) point {
	return point{m.A*p.x + m.C*p.y + m.E, m.B*p.x + m.D*p.y + m.F}
}

// size is how much m enlarges on average.
func (m Matrix) size() float64 { return math.Sqrt(math.Abs(m.A*m.D - m.B*m.C)) }

func (m Matrix) invert() (Matrix, bool) {
	det := m.A*m.D - m.B*m.C
	if math.Abs(det) < 1e-12 {
		return Identity, false
	}
	return Matrix{
		m.D / det, -m.B / det, -m.C / det, m.A / det,
		(m.C*m.F - m.D*m.E) / det, (m.B*m.E - m.A*m.F) / det,
	}, true
}

// parseTransform reads a transform attribute.
func parseTransform(s string) (Matrix, error) {
	m := Identity
	for {
		s = strings.TrimLeft(s, " ,\t\n\r")
		if s == "" {
			return m, nil
		}
		name, rest, ok := strings.Cut(s, "(")
		args, after, ok2 := strings.Cut(rest, ")")
		if !ok || !ok2 {
			return m, fmt.Errorf("bad transform")
		}
		s = after
		var v []float64
		for sc := (&scanner{s: args}); sc.more(); {
			x, err := sc.number()
			if err != nil || len(v) == 6 {
				return m, fmt.Errorf("bad transform")
			}
			v = append(v, x)
		}
		at := func(i int, def float64) float64 {
			if i < len(v) {
				return v[i]
			}
			return def
		}
		if len(v) == 0 {
			return m, fmt.Errorf("bad transform")
		}
		var n Matrix
		switch strings.TrimSpace(name) {
		case "matrix":
			if len(v) != 6 {
				return m, fmt.Errorf("bad matrix")
			}
			n = Matrix{v[0], v[1], v[2], v[3], v[4], v[5]}
		case "translate":
			n = Translate(v[0], at(1, 0))
		case "scale":
			n = Scale(v[0], at(1, v[0]))
		case "rotate":
			n = Translate(at(1, 0), at(2, 0)).Mul(Rotate(v[0])).Mul(Translate(-at(1, 0), -at(2, 0)))
		case "skewX":
			n = Matrix{1, 0, math.Tan(v[0] * math.Pi / 180), 1, 0, 0}
		case "skewY":
			n = Matrix{1, math.Tan(v[0] * math.Pi / 180), 0, 1, 0, 0}
		default:
			return m, fmt.Errorf("unknown transform")
		}
		m = m.Mul(n)
	}
}
