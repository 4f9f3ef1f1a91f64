package picture

import (
	"image"
	"image/color"
	"math"
	"strconv"
)

// parseHex reads "#rrggbb".
func parseHex(s string) (color.RGBA, bool) {
	if len(s) != 7 || s[0] != '#' {
		return color.RGBA{}, false
	}
	v, err := strconv.ParseUint(s[1:], 16, 32)
	if err != nil {
		return color.RGBA{}, false
	}
	return color.RGBA{byte(v >> 16), byte(v >> 8), byte(v), 255}, true
}

func luminance(r, g, b float64) float64 { return 0.299*r + 0.587*g + 0.114*b }

// tint paints m in shades of one colour: what was of middling brightness
// becomes the colour, darker stays darker and lighter lighter, so that eyes,
// outlines and lights survive. "rainbow" goes through the hues from top to
// bottom.
func tint(m *image.RGBA, with string) {
	target, ok := parseHex(with)
	rainbow := with == "rainbow"
	if !ok && !rainbow {
		return
	}
	// The reference is the mean brightness of what is neither outline nor light.
	sum, weight := 0.0, 0.0
	for i := 0; i < len(m.Pix); i += 4 {
		a := float64(m.Pix[i+3])
		if a == 0 {
			continue
		}
		l := luminance(float64(m.Pix[i]), float64(m.Pix[i+1]), float64(m.Pix[i+2])) / a
		if l > 0.22 {
			sum += l * a
			weight += a
		}
	}
	ref := 0.5
	if weight > 0 {
		ref = math.Min(0.86, math.Max(0.2, sum/weight))
	}
	area := visible(m)
	const strength = 0.92
	for y := m.Rect.Min.Y; y < m.Rect.Max.Y; y++ {
		if rainbow {
			target = hue(330 * float64(y-area.Min.Y) / float64(max(1, area.Dy())))
		}
		tr, tg, tb := float64(target.R)/255, float64(target.G)/255, float64(target.B)/255
		for x := m.Rect.Min.X; x < m.Rect.Max.X; x++ {
			px := m.Pix[m.PixOffset(x, y):][:4:4]
			if px[3] == 0 {
				continue
			}
			a := float64(px[3]) / 255
			r, g, b := float64(px[0])/255/a, float64(px[1])/255/a, float64(px[2])/255/a
			l := luminance(r, g, b)
			shade := func(t float64) float64 {
				if l <= ref {
					return t * l / ref
				}
				return t + (1-t)*(l-ref)/(1-ref)
			}
			mix := func(old, t float64) byte {
				v := old*(1-strength) + shade(t)*strength
				return byte(math.Min(1, math.Max(0, v))*a*255 + 0.5)
			}
			px[0], px[1], px[2] = mix(r, tr), mix(g, tg), mix(b, tb)
		}
	}
}

// hue is a clear colour at an angle of the colour circle.
func hue(degrees float64) color.RGBA {
	return hsv(degrees, 0.75, 0.95)
}

func hsv(h, s, v float64) color.RGBA {
	h = math.Mod(math.Mod(h, 360)+360, 360) / 60
	f := func(n float64) byte {
		k := math.Mod(n+h, 6)
		return byte((v-v*s*math.Max(0, math.Min(1, math.Min(k, 4-k))))*255 + 0.5)
	}
	return color.RGBA{f(5), f(3), f(1), 255}
}

// outline draws a rim of colour c and the given width in pixels behind what m shows.
func outline(m *image.RGBA, c color.RGBA, width float64) *image.RGBA {
	out := image.NewRGBA(m.Rect)
	reach := int(math.Ceil(width)) + 1
	type offset struct {
		dx, dy int
		k      float64
	}
	var disc []offset
	for dy := -reach; dy <= reach; dy++ {
		for dx := -reach; dx <= reach; dx++ {
			if k := width + 0.5 - math.Hypot(float64(dx), float64(dy)); k > 0 {
				disc = append(disc, offset{dx, dy, math.Min(1, k)})
			}
		}
	}
	w, h := m.Rect.Dx(), m.Rect.Dy()
	alpha := make([]float64, w*h)
	for y := range h {
		for x := range w {
			a := m.Pix[m.PixOffset(x+m.Rect.Min.X, y+m.Rect.Min.Y)+3]
			if a == 0 {
				continue
			}
			if a == 255 && inner(m, x, y) {
				alpha[y*w+x] = 1 // covered by its neighbours' discs anyway
				continue
			}
			for _, o := range disc {
				if nx, ny := x+o.dx, y+o.dy; nx >= 0 && ny >= 0 && nx < w && ny < h {
					alpha[ny*w+nx] = math.Max(alpha[ny*w+nx], o.k*float64(a)/255)
				}
			}
		}
	}
	for i, a := range alpha {
		out.Pix[4*i], out.Pix[4*i+1] = byte(float64(c.R)*a+0.5), byte(float64(c.G)*a+0.5)
		out.Pix[4*i+2], out.Pix[4*i+3] = byte(float64(c.B)*a+0.5), byte(255*a+0.5)
	}
	blend(out, m, 1)
	return out
}

// inner reports whether all neighbours of a pixel are opaque too.
func inner(m *image.RGBA, x, y int) bool {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	if x == 0 || y == 0 || x == w-1 || y == h-1 {
		return false
	}
	for dy := -1; dy <= 1; dy++ {
		for dx := -1; dx <= 1; dx++ {
			if m.Pix[4*((y+dy)*w+x+dx)+3] != 255 {
				return false
			}
		}
	}
	return true
}

// mirror turns m from left to right.
func mirror(m *image.RGBA) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	for y := range h {
		for x := range w / 2 {
			a, b := 4*(y*w+x), 4*(y*w+w-1-x)
			for j := range 4 {
				m.Pix[a+j], m.Pix[b+j] = m.Pix[b+j], m.Pix[a+j]
			}
		}
	}
}
