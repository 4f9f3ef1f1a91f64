package recipe

import (
	"slices"
	"strings"

	"dreamcore"
	"dreamcore/internal/offline/wish"
)

// pictures orders a picture for every slot.
func (c *Cook) pictures(p *Plan, m Manifest, w wish.Wish) {
	look := ""
	for _, id := range w.Activities {
		if a := c.Lexicon.Activities[id]; a.Look != "" {
			look = a.Look
			break
		}
	}
	p.order(m.Change.Hero, p.Hero, look)
	for i, s := range m.Change.Foes {
		p.order(s, p.Foes[i], "")
	}
	for i, s := range m.Change.Prizes {
		p.order(s, p.Prizes[i], "")
	}
	for i, s := range m.Change.Scenery {
		p.order(s, p.Scenery[i], "")
	}
}

// defaultSize is the side of a picture whose slot tells none, in pixels.
const defaultSize = 256

func (p *Plan) order(s Slot, c wish.Cast, doing string) {
	if c.Kept || !safe(s.Picture) || slices.ContainsFunc(p.Orders, func(o Order) bool { return o.File == s.Picture }) {
		return
	}
	size := s.Size
	if size < 16 || size > 1024 {
		size = defaultSize
	}
	p.Orders = append(p.Orders, Order{File: s.Picture, Words: describe(c, doing, s.Look), Size: size})
}

// describe is what the picture maker reads: look, colour, doing and name, then
// how it is drawn.
func describe(c wish.Cast, doing, look string) string {
	var words []string
	for _, w := range []string{c.Look, c.Colour, doing, c.Names.In(dreamcore.English)} {
		if w != "" {
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return look
	}
	if look != "" {
		words[len(words)-1] += ","
		words = append(words, look)
	}
	article := "a "
	if strings.ContainsAny(words[0][:1], "aeiou") {
		article = "an "
	}
	return article + strings.Join(words, " ")
}
