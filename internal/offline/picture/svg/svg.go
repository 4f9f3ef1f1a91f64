// Package svg draws the part of SVG that icon sets use: paths and basic shapes,
// fills, strokes, linear and radial gradients (with focus), groups with
// opacity, clip paths, use and symbol. What it does not know it refuses when
// the drawing is parsed, so that nothing is drawn half right; the generator of
// the icon pack compares what it draws with a full SVG renderer.
package svg

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of one drawing; beyond them Parse refuses.
const (
	maxBytes = 1 << 20
	maxNodes = 20_000
	maxDepth = 64
)

// Drawing is a parsed picture. It is safe for use by several goroutines.
type Drawing struct {
	// Box is the view box: left, top, width, height in the drawing's own units.
	Box  [4]float64
	root *node
	ids  map[string]*node
}

type node struct {
	name     string
	attr     map[string]string
	children []*node
}

// known are the elements that are drawn or referred to.
var known = map[string]bool{
	"svg": true, "g": true, "path": true, "circle": true, "ellipse": true, "rect": true, "polygon": true,
	"polyline": true, "line": true, "use": true, "symbol": true, "defs": true, "clipPath": true,
	"linearGradient": true, "radialGradient": true, "stop": true, "title": true,
}

// refused are attributes that change the picture in ways that are not drawn.
var refused = map[string]bool{
	"filter": true, "mask": true, "style": true, "class": true, "stroke-dasharray": true, "spreadMethod": true,
}

// Parse reads an SVG document.
func Parse(data []byte) (*Drawing, error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("parse svg: %d bytes are too many", len(data))
	}
	dec := xml.NewDecoder(strings.NewReader(string(data)))
	d := &Drawing{ids: map[string]*node{}}
	var stack []*node
	count := 0
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("parse svg: %w", err)
		}
		switch t := tok.(type) {
		case xml.StartElement:
			count++
			if count > maxNodes || len(stack) > maxDepth {
				return nil, fmt.Errorf("parse svg: too many or too deep elements")
			}
			n := &node{name: t.Name.Local, attr: map[string]string{}}
			if !known[n.name] {
				return nil, fmt.Errorf("parse svg: element %q is not supported", n.name)
			}
			for _, a := range t.Attr {
				if refused[a.Name.Local] && a.Value != "none" {
					return nil, fmt.Errorf("parse svg: attribute %q is not supported", a.Name.Local)
				}
				n.attr[a.Name.Local] = a.Value // href and xlink:href become one
			}
			if id := n.attr["id"]; id != "" {
				d.ids[id] = n
			}
			if len(stack) > 0 {
				p := stack[len(stack)-1]
				p.children = append(p.children, n)
			} else if d.root == nil {
				d.root = n
			}
			stack = append(stack, n)
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		}
	}
	if d.root == nil || d.root.name != "svg" {
		return nil, fmt.Errorf("parse svg: no svg element")
	}
	box, err := viewBox(d.root)
	if err != nil {
		return nil, fmt.Errorf("parse svg: %w", err)
	}
	d.Box = box
	return d, nil
}

func viewBox(n *node) ([4]float64, error) {
	var box [4]float64
	s := &scanner{s: n.attr["viewBox"]}
	for i := range box {
		v, err := s.number()
		if err != nil {
			return box, fmt.Errorf("bad viewBox: %w", err)
		}
		box[i] = v
	}
	if box[2] <= 0 || box[3] <= 0 {
		return box, fmt.Errorf("empty viewBox")
	}
	return box, nil
}

// num is a numeric attribute; a percentage counts as its fraction.
func (n *node) num(name string, def float64) float64 {
	s := strings.TrimSpace(n.attr[name])
	k := 1.0
	if t, ok := strings.CutSuffix(s, "%"); ok {
		s, k = t, 0.01
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "px"), 64)
	if err != nil {
		return def
	}
	return v * k
}

// ref follows url(#id) or #id.
func (d *Drawing) ref(s string) *node {
	s = strings.TrimSpace(s)
	if t, ok := strings.CutPrefix(s, "url("); ok {
		s = strings.Trim(strings.TrimSuffix(t, ")"), `"' `)
	}
	id, ok := strings.CutPrefix(s, "#")
	if !ok {
		return nil
	}
	return d.ids[id]
}

// shape returns the outline of a basic element, nil for one that has none.
func (n *node) shape(scale float64) ([]polyline, error) {
	switch n.name {
	case "path":
		return flatten(n.attr["d"], scale)
	case "circle", "ellipse":
		rx, ry := n.num("rx", n.num("r", 0)), n.num("ry", n.num("r", 0))
		cx, cy := n.num("cx", 0), n.num("cy", 0)
		if rx <= 0 || ry <= 0 {
			return nil, nil
		}
		return flatten(fmt.Sprintf("M%g %gA%g %g 0 1 1 %g %gA%g %g 0 1 1 %g %gZ",
			cx-rx, cy, rx, ry, cx+rx, cy, rx, ry, cx-rx, cy), scale)
	case "rect":
		x, y, w, h := n.num("x", 0), n.num("y", 0), n.num("width", 0), n.num("height", 0)
		rx := n.num("rx", n.num("ry", 0))
		ry := n.num("ry", rx)
		rx, ry = min(rx, w/2), min(ry, h/2)
		if w <= 0 || h <= 0 {
			return nil, nil
		}
		if rx <= 0 || ry <= 0 {
			return flatten(fmt.Sprintf("M%g %gh%gv%gh%gZ", x, y, w, h, -w), scale)
		}
		return flatten(fmt.Sprintf("M%g %gh%ga%g %g 0 0 1 %g %gv%ga%g %g 0 0 1 %g %gh%ga%g %g 0 0 1 %g %gv%ga%g %g 0 0 1 %g %gZ",
			x+rx, y, w-2*rx, rx, ry, rx, ry, h-2*ry, rx, ry, -rx, ry, -(w-2*rx), rx, ry, -rx, -ry, -(h-2*ry), rx, ry, rx, -ry), scale)
	case "line":
		return flatten(fmt.Sprintf("M%g %gL%g %g", n.num("x1", 0), n.num("y1", 0), n.num("x2", 0), n.num("y2", 0)), scale)
	case "polygon", "polyline":
		end := ""
		if n.name == "polygon" {
			end = "Z"
		}
		return flatten("M"+n.attr["points"]+end, scale)
	}
	return nil, nil
}
