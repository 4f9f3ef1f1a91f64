package svg

import (
	"fmt"
	"image"
	"math"

	"golang.org/x/image/vector"
)

// style is what children inherit.
type style struct {
	fill, stroke               string
	fillOpacity, strokeOpacity float64
	pen                        pen
}

// painter draws one Drawing into one picture.
type painter struct {
	d    *Drawing
	dst  *image.RGBA
	clip *image.Alpha // nil: everything
	mask *image.Alpha // scratch of the size of dst
	left *int         // work that may still be done: use can multiply elements without end
}

// spend counts one element and says when there were too many.
func (p *painter) spend(depth int) error {
	*p.left--
	if *p.left < 0 || depth > maxDepth {
		return fmt.Errorf("elements refer to each other too often")
	}
	return nil
}

// spendLines counts an outline, which may be far more work than its element.
func (p *painter) spendLines(lines []polyline) error {
	for _, l := range lines {
		*p.left -= len(l.points) / 64
	}
	if *p.left < 0 {
		return fmt.Errorf("the outlines are too long")
	}
	return nil
}

// Draw paints d into dst with m mapping the drawing's units to pixels of dst.
func (d *Drawing) Draw(dst *image.RGBA, m Matrix) error {
	p := &painter{d: d, dst: dst, mask: image.NewAlpha(dst.Bounds()), left: new(int)}
	*p.left = 2 * maxNodes
	s := style{fill: "black", stroke: "none", fillOpacity: 1, strokeOpacity: 1, pen: pen{1, "butt", "miter", 4}}
	if err := p.children(d.root, s.with(d.root), m, 0); err != nil {
		return fmt.Errorf("draw svg: %w", err)
	}
	return nil
}

// Fit returns the map that puts the view box into a rectangle of w by h pixels,
// whole and centred.
func (d *Drawing) Fit(w, h float64) Matrix {
	k := math.Min(w/d.Box[2], h/d.Box[3])
	return Translate((w-d.Box[2]*k)/2, (h-d.Box[3]*k)/2).Mul(Scale(k, k)).Mul(Translate(-d.Box[0], -d.Box[1]))
}

func (s style) with(n *node) style {
	set := func(dst *string, name string) {
		if v := n.attr[name]; v != "" && v != "inherit" {
			*dst = v
		}
	}
	set(&s.fill, "fill")
	set(&s.stroke, "stroke")
	set(&s.pen.cap, "stroke-linecap")
	set(&s.pen.join, "stroke-linejoin")
	s.fillOpacity = n.num("fill-opacity", s.fillOpacity)
	s.strokeOpacity = n.num("stroke-opacity", s.strokeOpacity)
	s.pen.width = n.num("stroke-width", s.pen.width)
	s.pen.miter = n.num("stroke-miterlimit", s.pen.miter)
	return s
}

func (p *painter) children(n *node, s style, m Matrix, depth int) error {
	for _, c := range n.children {
		if err := p.element(c, s, m, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (p *painter) element(n *node, s style, m Matrix, depth int) error {
	if err := p.spend(depth); err != nil {
		return err
	}
	switch n.name {
	case "defs", "symbol", "clipPath", "linearGradient", "radialGradient", "title", "stop":
		return nil
	}
	if n.attr["display"] == "none" {
		return nil
	}
	t, err := parseTransform(n.attr["transform"])
	if err != nil {
		return err
	}
	m, s = m.Mul(t), s.with(n)

	outer := p.clip
	defer func() { p.clip = outer }()
	if c := n.attr["clip-path"]; c != "" && c != "none" {
		if ref := p.d.ref(c); ref != nil && ref.name == "clipPath" {
			if err := p.cut(ref, m, depth); err != nil {
				return err
			}
		}
	}
	opacity := clamp(n.num("opacity", 1))
	if opacity < 1 {
		// A group that shines through is drawn apart and laid on as a whole.
		under := p.dst
		p.dst = image.NewRGBA(under.Bounds())
		clip := p.clip
		p.clip = nil
		err := p.content(n, s, m, depth)
		layer := p.dst
		p.dst, p.clip = under, clip
		if err != nil {
			return err
		}
		p.lay(layer, opacity)
		return nil
	}
	return p.content(n, s, m, depth)
}

func (p *painter) content(n *node, s style, m Matrix, depth int) error {
	switch n.name {
	case "g", "svg":
		return p.children(n, s, m, depth)
	case "use":
		ref := p.d.ref(n.attr["href"])
		if ref == nil {
			return nil
		}
		m = m.Mul(Translate(n.num("x", 0), n.num("y", 0)))
		if ref.name == "symbol" {
			box, err := viewBox(ref)
			if err != nil {
				return err
			}
			w, h := n.num("width", box[2]), n.num("height", box[3])
			k := math.Min(w/box[2], h/box[3])
			m = m.Mul(Translate((w-box[2]*k)/2, (h-box[3]*k)/2)).Mul(Scale(k, k)).Mul(Translate(-box[0], -box[1]))
			return p.children(ref, s.with(ref), m, depth+1)
		}
		return p.element(ref, s, m, depth+1)
	}
	lines, err := n.shape(m.size())
	if err != nil || len(lines) == 0 {
		return err
	}
	if err := p.paint(lines, lines, s.fill, s.fillOpacity, m); err != nil {
		return err
	}
	if s.stroke != "none" && s.pen.width > 0 {
		return p.paint(s.pen.outline(lines, m.size()), lines, s.stroke, s.strokeOpacity, m)
	}
	return nil
}

// paint fills lines; shape is the outline by which gradients in units of the
// bounding box are laid.
func (p *painter) paint(lines, shape []polyline, what string, opacity float64, m Matrix) error {
	if what == "none" || what == "transparent" || opacity <= 0 {
		return nil
	}
	var col paint
	if ref := p.d.ref(what); ref != nil {
		g, err := p.d.gradient(ref, m, bounds(shape))
		if err != nil {
			return err
		}
		if g == nil {
			return nil
		}
		col = g
	} else if len(what) > 3 && what[:4] == "url(" {
		return nil // a reference to nothing paints nothing
	} else {
		c, err := parseColour(what)
		if err != nil {
			return err
		}
		col = solid(c)
	}
	if err := p.spendLines(lines); err != nil {
		return err
	}
	area := p.cover(lines, m)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			a := float64(p.mask.Pix[p.mask.PixOffset(x, y)]) / 255
			if a == 0 {
				continue
			}
			if p.clip != nil {
				a *= float64(p.clip.Pix[p.clip.PixOffset(x, y)]) / 255
			}
			over(p.dst, x, y, col.at(point{float64(x) + 0.5, float64(y) + 0.5}), a*opacity)
		}
	}
	return nil
}

// over lays colour c, covering the pixel by a, on dst.
func over(dst *image.RGBA, x, y int, c rgba, a float64) {
	a *= clamp(c.a)
	if a <= 0 {
		return
	}
	o := dst.PixOffset(x, y)
	px := dst.Pix[o : o+4 : o+4]
	k := 1 - a
	px[0] = byte(float64(px[0])*k + clamp(c.r)*a*255 + 0.5)
	px[1] = byte(float64(px[1])*k + clamp(c.g)*a*255 + 0.5)
	px[2] = byte(float64(px[2])*k + clamp(c.b)*a*255 + 0.5)
	px[3] = byte(float64(px[3])*k + a*255 + 0.5)
}

// cover fills p.mask with how much of each pixel lines cover, and returns the
// rectangle that it wrote.
func (p *painter) cover(lines []polyline, m Matrix) image.Rectangle {
	b := p.dst.Bounds()
	lo, hi := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	device := make([][]point, len(lines))
	for i, l := range lines {
		device[i] = make([]point, len(l.points))
		for j, q := range l.points {
			q = m.apply(q)
			device[i][j] = q
			lo = point{math.Min(lo.x, q.x), math.Min(lo.y, q.y)}
			hi = point{math.Max(hi.x, q.x), math.Max(hi.y, q.y)}
		}
	}
	const far = 1e6 // beyond this a float32 has no pixel left
	if !(lo.x > -far && lo.y > -far && hi.x < far && hi.y < far) {
		return image.Rectangle{}
	}
	area := image.Rect(int(math.Floor(lo.x)), int(math.Floor(lo.y)), int(math.Ceil(hi.x))+1, int(math.Ceil(hi.y))+1).Intersect(b)
	if area.Empty() {
		return area
	}
	r := vector.NewRasterizer(area.Dx(), area.Dy())
	for _, l := range device {
		for j, q := range l {
			x, y := float32(q.x-float64(area.Min.X)), float32(q.y-float64(area.Min.Y))
			if j == 0 {
				r.MoveTo(x, y)
			} else {
				r.LineTo(x, y)
			}
		}
		r.ClosePath()
	}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		o := p.mask.PixOffset(area.Min.X, y)
		clear(p.mask.Pix[o : o+area.Dx()])
	}
	r.Draw(p.mask, area, image.Opaque, image.Point{})
	return area
}

// cut narrows the clip to what the children of ref cover.
func (p *painter) cut(ref *node, m Matrix, depth int) error {
	layer := image.NewRGBA(p.dst.Bounds())
	q := &painter{d: p.d, dst: layer, mask: p.mask, left: p.left}
	s := style{fill: "black", stroke: "none", fillOpacity: 1, strokeOpacity: 1}
	t, err := parseTransform(ref.attr["transform"])
	if err != nil {
		return err
	}
	m = m.Mul(t)
	if ref.attr["clipPathUnits"] == "objectBoundingBox" {
		return fmt.Errorf("clipPathUnits objectBoundingBox is not supported")
	}
	for _, c := range ref.children {
		if err := q.silhouette(c, s, m, depth+1); err != nil {
			return err
		}
	}
	clip := image.NewAlpha(p.dst.Bounds())
	for i := range clip.Pix {
		a := int(layer.Pix[4*i+3])
		if p.clip != nil {
			a = a * int(p.clip.Pix[i]) / 255
		}
		clip.Pix[i] = byte(a)
	}
	p.clip = clip
	return nil
}

// silhouette draws the shape of n in black, whatever its paint: what a clip
// path looks at.
func (p *painter) silhouette(n *node, s style, m Matrix, depth int) error {
	if err := p.spend(depth); err != nil {
		return err
	}
	t, err := parseTransform(n.attr["transform"])
	if err != nil {
		return err
	}
	m = m.Mul(t)
	if n.name == "use" {
		ref := p.d.ref(n.attr["href"])
		if ref == nil {
			return nil
		}
		return p.silhouette(ref, s, m.Mul(Translate(n.num("x", 0), n.num("y", 0))), depth+1)
	}
	lines, err := n.shape(m.size())
	if err != nil || len(lines) == 0 {
		return err
	}
	return p.paint(lines, lines, "black", 1, m)
}

// lay puts layer on the picture with an opacity, inside the clip.
func (p *painter) lay(layer *image.RGBA, opacity float64) {
	for i := 0; i < len(layer.Pix); i += 4 {
		if layer.Pix[i+3] == 0 {
			continue
		}
		k := opacity
		if p.clip != nil {
			k *= float64(p.clip.Pix[i/4]) / 255
		}
		rest := 1 - float64(layer.Pix[i+3])/255*k
		for j := range 4 {
			p.dst.Pix[i+j] = byte(math.Min(255, float64(p.dst.Pix[i+j])*rest+float64(layer.Pix[i+j])*k+0.5))
		}
	}
}

func bounds(lines []polyline) [4]float64 {
	lo, hi := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, l := range lines {
		for _, q := range l.points {
			lo = point{math.Min(lo.x, q.x), math.Min(lo.y, q.y)}
			hi = point{math.Max(hi.x, q.x), math.Max(hi.y, q.y)}
		}
	}
	return [4]float64{lo.x, lo.y, hi.x - lo.x, hi.y - lo.y}
}
