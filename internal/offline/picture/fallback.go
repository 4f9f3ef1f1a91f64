package picture

import (
	"fmt"
	"hash/fnv"
	"image/color"
	"strings"

	"dreamcore/internal/offline/picture/svg"
)

// seedOf is the number from which all that the words leave open follows.
func seedOf(q Request) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\x00%s", q.Seed, strings.ToLower(strings.Join(strings.Fields(q.Prompt), " ")))
	return h.Sum64()
}

// friendly draws what stands for a word that nobody knows: a little round
// creature in colours that follow from the words.
func friendly(seed uint64, tinted string) ([]layer, error) {
	base := hsv(float64(seed%360), 0.62, 0.95)
	dark := hsv(float64(seed%360)+12, 0.75, 0.66)
	light := hsv(float64(seed%360)-14, 0.32, 1)
	bodies := []string{
		`M64 10c34 0 54 26 54 58 0 34-24 50-54 50S10 102 10 68c0-32 20-58 54-58z`,
		`M30 14h68c14 0 22 8 22 22v60c0 14-8 22-22 22H30c-14 0-22-8-22-22V36c0-14 8-22 22-22z`,
		`M64 6c8 0 12 5 16 13l36 74c6 14-2 25-16 25H28c-14 0-22-11-16-25l36-74c4-8 8-13 16-13z`,
		`M64 8c10 12 24 10 36 16s18 18 18 32c6 14 2 30-8 40-8 14-26 22-46 22s-38-8-46-22C8 86 4 70 10 56c0-14 6-26 18-32S54 20 64 8z`,
	}
	ears := []string{``,
		`<circle cx="30" cy="18" r="14" fill="%[2]s"/><circle cx="98" cy="18" r="14" fill="%[2]s"/>`,
		`<path d="M40 18L30-10M88 18l10-28" stroke="%[2]s" stroke-width="6" stroke-linecap="round"/><circle cx="30" cy="-12" r="8" fill="%[3]s"/><circle cx="98" cy="-12" r="8" fill="%[3]s"/>`,
	}
	doc := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 128 128"><defs><radialGradient id="a" cx=".4" cy=".3" r=".8"><stop offset="0" stop-color="%[3]s"/><stop offset=".5" stop-color="%[1]s"/><stop offset="1" stop-color="%[2]s"/></radialGradient></defs>`+
		ears[seed/360%uint64(len(ears))]+
		`<path d="`+bodies[seed/1080%uint64(len(bodies))]+`" fill="url(#a)"/>`+
		`<circle cx="46" cy="66" r="13" fill="#fff"/><circle cx="84" cy="66" r="13" fill="#fff"/><circle cx="48" cy="68" r="7" fill="#22263a"/><circle cx="82" cy="68" r="7" fill="#22263a"/><circle cx="45" cy="65" r="2.5" fill="#fff"/><circle cx="79" cy="65" r="2.5" fill="#fff"/>`+
		`<path d="M50 90q15 14 30 0" fill="none" stroke="#22263a" stroke-width="5" stroke-linecap="round"/><ellipse cx="30" cy="84" rx="8" ry="5" fill="#ff7f9f" opacity=".55"/><ellipse cx="100" cy="84" rx="8" ry="5" fill="#ff7f9f" opacity=".55"/></svg>`,
		hex(base), hex(dark), hex(light))
	d, err := svg.Parse([]byte(doc))
	if err != nil {
		return nil, err
	}
	return []layer{{drawing: d, m: d.Fit(unit, unit), tint: tinted, opacity: 1}}, nil
}

func hex(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }
