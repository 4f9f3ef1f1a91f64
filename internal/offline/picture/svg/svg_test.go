package svg

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"strings"
	"testing"
	"time"
)

// paintAt draws the inside of an svg element of 100 by 100 at 100 pixels.
func paintAt(t *testing.T, inside string) *image.RGBA {
	t.Helper()
	d, err := Parse([]byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">` + inside + `</svg>`))
	if err != nil {
		t.Fatal(err)
	}
	m := image.NewRGBA(image.Rect(0, 0, 100, 100))
	if err := d.Draw(m, d.Fit(100, 100)); err != nil {
		t.Fatal(err)
	}
	return m
}

// area is how many pixels are covered.
func area(m *image.RGBA) float64 {
	sum := 0.0
	for i := 3; i < len(m.Pix); i += 4 {
		sum += float64(m.Pix[i]) / 255
	}
	return sum
}

func TestAreasOfShapes(t *testing.T) {
	for _, c := range []struct {
		name, svg string
		want      float64
	}{
		{"rect", `<rect x="10" y="20" width="30" height="40"/>`, 1200},
		{"circle", `<circle cx="50" cy="50" r="30"/>`, math.Pi * 900},
		{"ellipse", `<ellipse cx="50" cy="50" rx="40" ry="20"/>`, math.Pi * 800},
		{"rounded rect", `<rect x="10" y="10" width="40" height="40" rx="10"/>`, 1600 - (4-math.Pi)*100},
		{"polygon", `<polygon points="10,10 90,10 10,90"/>`, 3200},
		{"relative path", `<path d="m10 10h80v80h-80z"/>`, 6400},
		{"move goes on as line", `<path d="M10 10 90 10 90 90z"/>`, 3200},
		{"packed numbers", `<path d="M10 10l.5.5-.5-.5h80v80"/>`, 3200},
		{"packed arc flags", `<path d="M20 50a30 30 0 1160 0 30 30 0 11-60 0"/>`, math.Pi * 900},
		{"cubic circle", `<path d="M50 20c16.569 0 30 13.431 30 30s-13.431 30-30 30-30-13.431-30-30 13.431-30 30-30z"/>`, math.Pi * 900},
		{"quadratic", `<path d="M10 90Q50 10 90 90Z"/>`, 2.0 / 3 * 80 * 40 * 1},
		{"smooth quadratic", `<path d="M10 50Q20 30 30 50T50 50"/>`, 2 * 2.0 / 3 * 20 * 10},
		{"hole", `<path d="M10 10h80v80h-80zM30 30v40h40v-40z"/>`, 6400 - 1600},
		{"same way round is no hole", `<path d="M10 10h80v80h-80zM30 30h40v40h-40z"/>`, 6400},
		{"stroke", `<path d="M10 50h80" stroke="#000" stroke-width="10" fill="none"/>`, 800},
		{"square caps", `<path d="M10 50h80" stroke="#000" stroke-width="10" fill="none" stroke-linecap="square"/>`, 900},
		{"round caps", `<path d="M10 50h80" stroke="#000" stroke-width="10" fill="none" stroke-linecap="round"/>`, 800 + math.Pi*25},
		{"miter", `<path d="M20 80V20H80" stroke="#000" stroke-width="10" fill="none"/>`, 1200},
		{"bevel", `<path d="M20 80V20H80" stroke="#000" stroke-width="10" fill="none" stroke-linejoin="bevel"/>`, 1200 - 12.5},
		{"closed stroke", `<rect x="20" y="20" width="60" height="60" stroke="#000" stroke-width="10" fill="none"/>`, 70*70 - 50*50},
		{"ring", `<circle cx="50" cy="50" r="30" stroke="#000" stroke-width="10" fill="none"/>`, math.Pi * (35*35 - 25*25)},
		{"scaled stroke", `<g transform="scale(2)"><path d="M5 25h40" stroke="#000" stroke-width="5" fill="none"/></g>`, 800},
		{"rotate", `<rect x="30" y="30" width="40" height="40" transform="rotate(45 50 50)"/>`, 1600},
		{"matrix", `<rect width="10" height="10" transform="matrix(2 0 0 3 10 10)"/>`, 600},
		{"group opacity", `<g opacity=".5"><rect x="10" y="10" width="40" height="40"/><rect x="20" y="20" width="40" height="40"/></g>`, (1600 + 1600 - 900) * 0.5},
		{"clip", `<clipPath id="c"><circle cx="50" cy="50" r="30"/></clipPath><g clip-path="url(#c)"><rect width="100" height="100"/></g>`, math.Pi * 900},
		{"clip by use", `<defs><path id="p" d="M10 10h40v40h-40z"/></defs><clipPath id="c"><use href="#p"/></clipPath><rect width="100" height="100" clip-path="url(#c)"/>`, 1600},
		{"nested clips", `<clipPath id="a"><rect width="50" height="100"/></clipPath><clipPath id="b"><rect width="100" height="50"/></clipPath><g clip-path="url(#a)"><g clip-path="url(#b)"><rect width="100" height="100"/></g></g>`, 2500},
		{"clip ends with its group", `<clipPath id="a"><rect width="50" height="100"/></clipPath><g clip-path="url(#a)"><rect width="10" height="10"/></g><rect x="60" width="10" height="10"/>`, 200},
		{"use", `<defs><rect id="r" width="10" height="10"/></defs><use href="#r" x="10"/><use href="#r" x="30" y="30"/>`, 200},
		{"symbol", `<symbol id="s" viewBox="0 0 10 10"><rect width="10" height="10"/></symbol><use href="#s" x="10" y="10" width="40" height="40"/>`, 1600},
		{"fill none", `<rect width="50" height="50" fill="none"/>`, 0},
		{"fill opacity", `<rect width="50" height="50" fill-opacity=".5"/>`, 1250},
		{"unknown reference", `<rect width="50" height="50" fill="url(#none)"/>`, 0},
		{"off the picture", `<rect x="-50" y="-50" width="100" height="100"/>`, 2500},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := area(paintAt(t, c.svg))
			if math.Abs(got-c.want) > 2+c.want*0.004 {
				t.Errorf("covers %.1f pixels, want %.1f", got, c.want)
			}
		})
	}
}

func near(a, b color.RGBA) bool {
	d := func(x, y byte) bool { return math.Abs(float64(x)-float64(y)) <= 3 }
	return d(a.R, b.R) && d(a.G, b.G) && d(a.B, b.B) && d(a.A, b.A)
}

func TestColours(t *testing.T) {
	for _, c := range []struct {
		name, svg string
		x, y      int
		want      color.RGBA
	}{
		{"hex", `<rect width="100" height="100" fill="#1a2b3c"/>`, 50, 50, color.RGBA{0x1a, 0x2b, 0x3c, 255}},
		{"short hex", `<rect width="100" height="100" fill="#f80"/>`, 50, 50, color.RGBA{255, 0x88, 0, 255}},
		{"name", `<rect width="100" height="100" fill="red"/>`, 50, 50, color.RGBA{255, 0, 0, 255}},
		{"rgba", `<rect width="100" height="100" fill="rgba(255, 0, 0, .5)"/>`, 50, 50, color.RGBA{128, 0, 0, 128}},
		{"inherited", `<g fill="#00f"><rect width="100" height="100"/></g>`, 50, 50, color.RGBA{0, 0, 255, 255}},
		{"over", `<rect width="100" height="100" fill="#fff"/><rect width="100" height="100" opacity=".5"/>`, 50, 50, color.RGBA{127, 127, 127, 255}},
		{"linear start", linear, 1, 50, color.RGBA{3, 0, 0, 255}},
		{"linear middle", linear, 50, 50, color.RGBA{128, 0, 0, 255}},
		{"linear end", linear, 98, 50, color.RGBA{252, 0, 0, 255}},
		{"bounding box", `<linearGradient id="g"><stop stop-color="#000"/><stop offset="1" stop-color="#f00"/></linearGradient><rect x="50" width="50" height="100" fill="url(#g)"/>`, 75, 50, color.RGBA{130, 0, 0, 255}},
		{"inherited stops", `<linearGradient id="a"><stop stop-color="#000"/><stop offset="1" stop-color="#f00"/></linearGradient><linearGradient id="g" href="#a" x1="0" x2="100" gradientUnits="userSpaceOnUse"/><rect width="100" height="100" fill="url(#g)"/>`, 50, 50, color.RGBA{128, 0, 0, 255}},
		{"radial centre", radial, 50, 50, color.RGBA{2, 2, 2, 255}},
		{"radial half", radial, 75, 50, color.RGBA{129, 129, 129, 255}},
		{"radial outside", radial, 99, 99, color.RGBA{255, 255, 255, 255}},
		{"radial with transform", `<radialGradient id="g" cx="0" cy="0" r="1" gradientTransform="matrix(50 0 0 25 50 50)" gradientUnits="userSpaceOnUse"><stop stop-color="#000"/><stop offset="1" stop-color="#fff"/></radialGradient><rect width="100" height="100" fill="url(#g)"/>`, 50, 62, color.RGBA{128, 128, 128, 255}},
		{"focus", `<radialGradient id="g" cx="50" cy="50" r="50" fx="25" fy="50" gradientUnits="userSpaceOnUse"><stop stop-color="#000"/><stop offset="1" stop-color="#fff"/></radialGradient><rect width="100" height="100" fill="url(#g)"/>`, 62, 50, color.RGBA{128, 128, 128, 255}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := paintAt(t, c.svg).RGBAAt(c.x, c.y); !near(got, c.want) {
				t.Errorf("at %d,%d is %v, want %v", c.x, c.y, got, c.want)
			}
		})
	}
}

const (
	linear = `<linearGradient id="g" x1="0" x2="100" y1="0" y2="0" gradientUnits="userSpaceOnUse"><stop stop-color="#000"/><stop offset="1" stop-color="#f00"/></linearGradient><rect width="100" height="100" fill="url(#g)"/>`
	radial = `<radialGradient id="g" cx="50" cy="50" r="50" gradientUnits="userSpaceOnUse"><stop stop-color="#000"/><stop offset="1" stop-color="#fff"/></radialGradient><rect width="100" height="100" fill="url(#g)"/>`
)

func TestRefusesWhatItCannotDraw(t *testing.T) {
	for _, doc := range []string{
		"", "<html></html>", "<svg", `<svg viewBox="0 0 0 10"/>`, `<svg viewBox="0 0 x 10"/>`,
		`<svg viewBox="0 0 9 9"><image href="x.png"/></svg>`,
		`<svg viewBox="0 0 9 9"><script/></svg>`,
		`<svg viewBox="0 0 9 9"><g filter="url(#f)"/></svg>`,
		`<svg viewBox="0 0 9 9"><g mask="url(#m)"/></svg>`,
		`<svg viewBox="0 0 9 9"><g style="opacity:0"/></svg>`,
		`<svg viewBox="0 0 9 9">` + strings.Repeat("<g>", 100) + strings.Repeat("</g>", 100) + `</svg>`,
		strings.Repeat(" ", maxBytes+1),
	} {
		if _, err := Parse([]byte(doc)); err == nil {
			t.Errorf("%.60q was accepted", doc)
		}
	}
	for _, inside := range []string{
		`<path d="M0 0L1"/>`, `<path d="0 0"/>`, `<path d="M0 0X"/>`, `<path d="M0 0a1 1 0 2 0 3 3"/>`,
		`<path d="M1e309 0h1"/>`, `<rect width="9" height="9" fill="#12"/>`, `<g transform="spin(3)"/>`, `<g transform="scale(x)"/>`,
		`<use id="a" href="#a"/>`, bomb(),
	} {
		d, err := Parse([]byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">` + inside + `</svg>`))
		if err != nil {
			continue
		}
		if err := d.Draw(image.NewRGBA(image.Rect(0, 0, 9, 9)), Identity); err == nil {
			t.Errorf("%.80q was drawn", inside)
		}
	}
}

// bomb refers to itself in ten generations of ten: ten thousand million squares.
func bomb() string {
	var b strings.Builder
	b.WriteString(`<defs><rect id="u0" width="1" height="1"/>`)
	for i := range 10 {
		fmt.Fprintf(&b, `<g id="u%d">%s</g>`, i+1, strings.Repeat(fmt.Sprintf(`<use href="#u%d"/>`, i), 10))
	}
	return b.String() + `</defs><use href="#u10"/>`
}

func FuzzDraw(f *testing.F) {
	f.Add(`<path d="M10 10c1-2 3-4 5-6s7 8 9 10q1 2 3 4t5 6a7 8 9 0110 11z" fill="url(#a)" stroke="#fff"/>`)
	f.Add(linear)
	f.Add(radial)
	f.Add(bomb())
	f.Add(`<symbol id="s" viewBox="0 0 1 1"><use href="#s"/></symbol><use href="#s"/>`)
	f.Add(`<clipPath id="c"><use href="#c"/></clipPath><rect width="9" height="9" clip-path="url(#c)" transform="matrix(1 2 3 4 5 6)"/>`)
	f.Fuzz(func(t *testing.T, inside string) {
		begin := time.Now()
		d, err := Parse([]byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">` + inside + `</svg>`))
		if err != nil {
			return
		}
		m := image.NewRGBA(image.Rect(0, 0, 32, 32))
		if err := d.Draw(m, d.Fit(32, 32)); err != nil {
			return
		}
		for i := 0; i < len(m.Pix); i += 4 {
			if max(m.Pix[i], m.Pix[i+1], m.Pix[i+2]) > m.Pix[i+3] {
				t.Fatalf("a pixel is brighter than opaque: %v", m.Pix[i:i+4])
			}
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Fatalf("%d bytes took %v", len(inside), took)
		}
	})
}
