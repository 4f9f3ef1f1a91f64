package picture

import (
	"image"
	"math"

	"dreamcore/internal/offline/picture/svg"
)

// unit is the side of the square in which pictures are put together.
const unit = 128.0

// layer is one drawing laid on the others.
type layer struct {
	drawing *svg.Drawing
	m       svg.Matrix // from the unit square of the drawing to that of the picture
	tint    string
	opacity float64
}

// newLayer opens a picture and places it by m.
func newLayer(name string, m svg.Matrix) (layer, error) {
	d, err := open(name)
	if err != nil {
		return layer{}, err
	}
	return layer{drawing: d, m: m.Mul(d.Fit(unit, unit)), opacity: 1}, nil
}

// draw paints the layers, the first at the bottom, through view: from the unit
// square to pixels.
func draw(dst *image.RGBA, layers []layer, view svg.Matrix) error {
	for _, l := range layers {
		if l.tint == "" && l.opacity == 1 {
			if err := l.drawing.Draw(dst, view.Mul(l.m)); err != nil {
				return err
			}
			continue
		}
		own := image.NewRGBA(dst.Bounds())
		if err := l.drawing.Draw(own, view.Mul(l.m)); err != nil {
			return err
		}
		if l.tint != "" {
			tint(own, l.tint)
		}
		blend(dst, own, l.opacity)
	}
	return nil
}

// box is a rectangle in units: left, top, right, bottom.
type box struct{ l, t, r, b float64 }

func (b box) w() float64 { return b.r - b.l }
func (b box) h() float64 { return b.b - b.t }

// extent returns what the layers cover, in units. Things may stick out of the
// unit square by as much as its side.
func extent(layers []layer) (box, error) {
	const scale = 1.5
	probe := image.NewRGBA(image.Rect(0, 0, int(3*unit*scale), int(3*unit*scale)))
	view := svg.Scale(scale, scale).Mul(svg.Translate(unit, unit))
	if err := draw(probe, layers, view); err != nil {
		return box{}, err
	}
	r := visible(probe)
	if r.Empty() {
		return box{0, 0, unit, unit}, nil
	}
	at := func(v int) float64 { return float64(v)/scale - unit }
	return box{at(r.Min.X), at(r.Min.Y), at(r.Max.X), at(r.Max.Y)}, nil
}

// visible is the smallest rectangle with all pixels that can be seen.
func visible(m *image.RGBA) image.Rectangle {
	b := m.Bounds()
	out := image.Rectangle{}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		first, last := -1, -1
		for x := b.Min.X; x < b.Max.X; x++ {
			if m.Pix[m.PixOffset(x, y)+3] > 24 {
				if first < 0 {
					first = x
				}
				last = x
			}
		}
		if first >= 0 {
			out = out.Union(image.Rect(first, y, last+1, y+1))
		}
	}
	return out
}

// fit returns the view that puts b whole into the middle of a w by h picture
// with a margin that is a part of its shorter side.
func fit(b box, w, h int, margin float64) svg.Matrix {
	pad := margin * float64(min(w, h))
	k := math.Min((float64(w)-2*pad)/b.w(), (float64(h)-2*pad)/b.h())
	return svg.Translate((float64(w)-b.w()*k)/2, (float64(h)-b.h()*k)/2).Mul(svg.Scale(k, k)).Mul(svg.Translate(-b.l, -b.t))
}

// blend lays src on dst.
func blend(dst, src *image.RGBA, opacity float64) {
	o := uint32(opacity*255 + 0.5)
	for i := 0; i < len(src.Pix); i += 4 {
		a := uint32(src.Pix[i+3])
		if a == 0 {
			continue
		}
		rest := 255 - a*o/255
		for j := range 4 {
			dst.Pix[i+j] = byte(min(255, (uint32(dst.Pix[i+j])*rest+uint32(src.Pix[i+j])*o+127)/255))
		}
	}
}
