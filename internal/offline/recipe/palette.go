package recipe

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"dreamcore/internal/offline/wish"
)

// palette colours the game by its place, turned a little by the wish, with the
// colours that the wish names as accents.
func (c *Cook) palette(p *Plan, m Manifest, w wish.Wish, doc *document) {
	roles := make([]string, 0, len(m.Change.Palette))
	for role := range m.Change.Palette {
		roles = append(roles, role)
	}
	slices.Sort(roles)
	base := c.Lexicon.Places[p.Place].Palette
	turn := 6 + 12*w.Share("hue")
	if w.Pick("hue way", 2) == 0 {
		turn = -turn
	}
	vivid, light := 0.88+0.24*w.Share("vivid"), 0.06*(w.Share("light")-0.5)
	set := map[string]colour{}
	for _, role := range roles {
		var old string
		if !doc.get(m.Change.Palette[role], &old) {
			continue
		}
		was, isColour := parseColour(old)
		if !isColour {
			continue
		}
		now, known := parseColour(base[role])
		if !known {
			now = was.turned(140) // a role that no place has a colour for
		}
		now = now.turned(turn).shaded(vivid, light)
		if role == "accent" && len(w.Colours) > 0 {
			if named, ok := parseColour(c.Lexicon.Colours[w.Colours[0]].Hex); ok {
				now = named
			}
		}
		if now == was {
			now = now.turned(25)
		}
		set[role] = now
	}
	legible(set)
	look(c.Lexicon.Places[p.Place].Look, doc)
	for _, role := range roles {
		if now, ok := set[role]; ok {
			doc.set(m.Change.Palette[role], now.String())
		}
	}
}

// look tells the kit's backdrop what is to be seen in a place. Games have it as
// /look in game.json, each part of it true or false.
func look(place map[string]bool, doc *document) {
	for part, want := range place {
		var now bool
		if pointer := "/look/" + escape.Replace(part); doc.get(pointer, &now) && now != want {
			doc.set(pointer, want)
		}
	}
}

// leastContrast is what WCAG asks of text.
const leastContrast = 4.5

// legible keeps text readable on the sky, whatever was turned.
func legible(set map[string]colour) {
	text, ok := set["text"]
	back, has := set["sky"]
	if !ok || !has || contrast(text, back) >= leastContrast {
		return
	}
	light, dark := colour{255, 255, 255}, colour{12, 16, 32}
	set["text"] = dark
	if contrast(light, back) > contrast(dark, back) {
		set["text"] = light
	}
}

// colour is sRGB, 0 to 255 a channel.
type colour struct{ r, g, b float64 }

func parseColour(s string) (colour, bool) {
	hex, ok := strings.CutPrefix(s, "#")
	if ok && len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	n, err := strconv.ParseUint(hex, 16, 32)
	if !ok || len(hex) != 6 || err != nil {
		return colour{}, false
	}
	return colour{float64(n >> 16), float64(n >> 8 & 0xff), float64(n & 0xff)}, true
}

// String is the colour as "#rrggbb".
func (c colour) String() string {
	return fmt.Sprintf("#%02x%02x%02x", int(math.Round(c.r)), int(math.Round(c.g)), int(math.Round(c.b)))
}

// turned rotates the hue by degrees. A grey has no hue: it gets a breath of one,
// so that it too differs.
func (c colour) turned(degrees float64) colour {
	h, s, l := c.hsl()
	if s < 0.02 {
		s = 0.08
		l = min(max(l, 0.03), 0.97)
	}
	return fromHSL(math.Mod(h+degrees+720, 360), s, l)
}

// shaded makes a colour more or less vivid, lighter or darker.
func (c colour) shaded(vivid, light float64) colour {
	h, s, l := c.hsl()
	return fromHSL(h, min(s*vivid, 1), min(max(l+light, 0.02), 0.98))
}

func (c colour) hsl() (h, s, l float64) {
	r, g, b := c.r/255, c.g/255, c.b/255
	high, low := max(r, g, b), min(r, g, b)
	l = (high + low) / 2
	d := high - low
	if d == 0 {
		return 0, 0, l
	}
	s = d / (1 - math.Abs(2*l-1))
	switch high {
	case r:
		h = math.Mod((g-b)/d+6, 6)
	case g:
		h = (b-r)/d + 2
	default:
		h = (r-g)/d + 4
	}
	return h * 60, s, l
}

func fromHSL(h, s, l float64) colour {
	chroma := (1 - math.Abs(2*l-1)) * s
	x := chroma * (1 - math.Abs(math.Mod(h/60, 2)-1))
	var r, g, b float64
	switch int(h/60) % 6 {
	case 0:
		r, g = chroma, x
	case 1:
		r, g = x, chroma
	case 2:
		g, b = chroma, x
	case 3:
		g, b = x, chroma
	case 4:
		r, b = x, chroma
	default:
		r, b = chroma, x
	}
	m := l - chroma/2
	round := func(v float64) float64 { return math.Round(min(max((v+m)*255, 0), 255)) }
	return colour{round(r), round(g), round(b)}
}

func contrast(a, b colour) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func (c colour) luminance() float64 {
	linear := func(v float64) float64 {
		if v /= 255; v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c.r) + 0.7152*linear(c.g) + 0.0722*linear(c.b)
}
