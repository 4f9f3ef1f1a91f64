package picture

import (
	"image"
	"image/color"
)

// paintPlace fills m with a place and returns its name.
func paintPlace(m *image.RGBA, place string, seed uint64) string {
	if place == "" {
		place = "sky"
	}
	top, bottom := color.RGBA{98, 184, 246, 255}, color.RGBA{226, 244, 255, 255}
	h := m.Rect.Dy()
	for y := range h {
		k := float64(y) / float64(h)
		for x := range m.Rect.Dx() {
			m.SetRGBA(x, y, mixColour(top, bottom, k))
		}
	}
	return place
}

func mixColour(a, b color.RGBA, k float64) color.RGBA {
	f := func(x, y byte) byte { return byte(float64(x) + (float64(y)-float64(x))*k + 0.5) }
	return color.RGBA{f(a.R, b.R), f(a.G, b.G), f(a.B, b.B), 255}
}
