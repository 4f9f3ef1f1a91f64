package picture

import (
	"image"
	"image/color"
	"slices"
)

// Styles are the names that Request.Style knows; "" is the plain picture.
var Styles = []string{"", "pixel", "sticker", "silhouette", "soft"}

// knownStyle reports whether s is one of them.
func knownStyle(s string) bool { return slices.Contains(Styles, s) }

// applyStyle redraws a finished figure.
func applyStyle(m *image.RGBA, style string) *image.RGBA {
	side := float64(min(m.Rect.Dx(), m.Rect.Dy()))
	switch style {
	case "sticker":
		return outline(outline(m, color.RGBA{255, 255, 255, 255}, max(1.5, side*0.028)), color.RGBA{70, 80, 100, 255}, max(0.7, side*0.006))
	case "silhouette":
		for i := 0; i < len(m.Pix); i += 4 {
			a := uint32(m.Pix[i+3])
			m.Pix[i], m.Pix[i+1], m.Pix[i+2] = byte(26*a/255), byte(31*a/255), byte(54*a/255)
		}
	case "pixel":
		return pixelate(m, max(1, int(side/48)))
	case "soft":
		for i := 0; i < len(m.Pix); i += 4 {
			a := uint32(m.Pix[i+3])
			for j := range 3 {
				m.Pix[i+j] = byte((uint32(m.Pix[i+j])*7 + a*3) / 10)
			}
		}
	}
	return m
}

// pixelate makes squares of n pixels, each of one opaque colour of few.
func pixelate(m *image.RGBA, n int) *image.RGBA {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	out := image.NewRGBA(m.Rect)
	for by := 0; by < h; by += n {
		for bx := 0; bx < w; bx += n {
			var sum [4]int
			count := 0
			for y := by; y < min(h, by+n); y++ {
				for x := bx; x < min(w, bx+n); x++ {
					for j := range 4 {
						sum[j] += int(m.Pix[4*(y*w+x)+j])
					}
					count++
				}
			}
			if sum[3] < 128*count {
				continue
			}
			var c [4]byte
			for j := range 3 {
				// Steps of 24 keep the look of a small palette.
				c[j] = byte(min(255, (sum[j]*255/sum[3]+12)/24*24))
			}
			c[3] = 255
			for y := by; y < min(h, by+n); y++ {
				for x := bx; x < min(w, bx+n); x++ {
					copy(out.Pix[4*(y*w+x):], c[:])
				}
			}
		}
	}
	return out
}
