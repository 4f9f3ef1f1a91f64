package picture

import (
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"dreamcore/internal/offline/picture/svg"
)

// scenery describes one place: what is painted from the back to the front.
type scenery struct {
	sky    [2]string // top and bottom
	stars  int
	light  string // sun, moon, planet or ""
	clouds int
	// ridges are painted from the back; heights are parts of the picture's.
	ridges []ridge
	rays   bool
}

// ridge is one line of land.
type ridge struct {
	shape  string // hills, peaks, dunes, towers, firs, trees, sea, rocks, floor
	colour string
	height float64
}

// sceneries are the places that can be painted; place.tsv maps words to them.
var sceneries = map[string]scenery{
	"sky":      {sky: [2]string{"#4aa8f0", "#dff3ff"}, light: "sun", clouds: 7},
	"field":    {sky: [2]string{"#63b8f5", "#e8f6ff"}, light: "sun", clouds: 4, ridges: []ridge{{"hills", "#a9d98a", 0.46}, {"hills", "#84c765", 0.34}, {"hills", "#5fae49", 0.2}}},
	"forest":   {sky: [2]string{"#8fd0e8", "#eaf7e4"}, light: "sun", clouds: 2, ridges: []ridge{{"firs", "#9ccfa8", 0.6}, {"firs", "#63ab74", 0.46}, {"trees", "#3d8a53", 0.34}, {"hills", "#2f6d3f", 0.14}}},
	"jungle":   {sky: [2]string{"#7fd6c2", "#f0f9d8"}, rays: true, ridges: []ridge{{"trees", "#7cc48b", 0.66}, {"trees", "#43a064", 0.48}, {"trees", "#23754a", 0.3}, {"hills", "#185638", 0.13}}},
	"desert":   {sky: [2]string{"#f6a94f", "#fff0cf"}, light: "sun", ridges: []ridge{{"peaks", "#e2a767", 0.42}, {"dunes", "#efc27f", 0.34}, {"dunes", "#e2a95f", 0.2}}},
	"beach":    {sky: [2]string{"#4fb4f2", "#e4f7ff"}, light: "sun", clouds: 4, ridges: []ridge{{"sea", "#3aa7d8", 0.42}, {"sea", "#62c6e6", 0.32}, {"dunes", "#f5dfa6", 0.2}}},
	"sea":      {sky: [2]string{"#5ed0f0", "#0b5fa5"}, rays: true, ridges: []ridge{{"rocks", "#1a78b5", 0.32}, {"rocks", "#125c92", 0.2}, {"dunes", "#d9c48a", 0.1}}},
	"snow":     {sky: [2]string{"#7fb8ea", "#eef7ff"}, light: "sun", clouds: 3, ridges: []ridge{{"peaks", "#b9d4ec", 0.62}, {"peaks", "#d5e6f5", 0.44}, {"firs", "#7ea6bf", 0.3}, {"hills", "#ffffff", 0.16}}},
	"mountain": {sky: [2]string{"#74b9ee", "#eef6ff"}, light: "sun", clouds: 4, ridges: []ridge{{"peaks", "#9fb3c8", 0.64}, {"peaks", "#7f95ad", 0.46}, {"firs", "#5f8f6d", 0.28}, {"hills", "#4d8f4f", 0.14}}},
	"space":    {sky: [2]string{"#0b0b2b", "#3a1f66"}, stars: 150, light: "planet", ridges: []ridge{{"hills", "#5d5878", 0.16}, {"hills", "#79738f", 0.09}}},
	"night":    {sky: [2]string{"#0d1440", "#40407f"}, stars: 90, light: "moon", clouds: 2, ridges: []ridge{{"hills", "#2b2f66", 0.36}, {"trees", "#1d214d", 0.26}, {"hills", "#141739", 0.12}}},
	"city":     {sky: [2]string{"#7cc3f3", "#fdeee0"}, light: "sun", clouds: 3, ridges: []ridge{{"towers", "#b8cadb", 0.62}, {"towers", "#8ea7c0", 0.46}, {"towers", "#66809c", 0.3}, {"floor", "#55606e", 0.1}}},
	"cave":     {sky: [2]string{"#2b2440", "#584a6e"}, rays: true, ridges: []ridge{{"rocks", "#493f5c", 0.5}, {"rocks", "#3a314b", 0.34}, {"rocks", "#2a2338", 0.18}}},
	"castle":   {sky: [2]string{"#8ec5f4", "#fbeef7"}, light: "sun", clouds: 4, ridges: []ridge{{"peaks", "#b7c5da", 0.46}, {"towers", "#a99fb8", 0.44}, {"hills", "#7cbf6a", 0.22}}},
	"kitchen":  {sky: [2]string{"#ffe9c7", "#fff6e6"}, ridges: []ridge{{"floor", "#f2c98f", 0.34}, {"floor", "#d79f5c", 0.28}}},
}

// Places are the names of the places that can be painted, sorted.
func Places() []string {
	var names []string
	for n := range sceneries {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// paintPlace fills m with a place and returns its name; an unknown one is the sky.
func paintPlace(m *image.RGBA, place string, seed uint64) (string, error) {
	s, ok := sceneries[place]
	if !ok {
		place = "sky"
		s = sceneries[place]
	}
	w, h := float64(m.Rect.Dx()), float64(m.Rect.Dy())
	d, err := svg.Parse([]byte(s.document(w, h, rand.New(rand.NewPCG(seed, 1)))))
	if err != nil {
		return place, fmt.Errorf("paint place %s: %w", place, err)
	}
	if err := d.Draw(m, svg.Identity); err != nil {
		return place, fmt.Errorf("paint place %s: %w", place, err)
	}
	return place, nil
}

// document writes the place as SVG of w by h.
func (s scenery) document(w, h float64, rnd *rand.Rand) string {
	var b strings.Builder
	short := math.Min(w, h)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g"><defs>`, w, h)
	fmt.Fprintf(&b, `<linearGradient id="sky" x1="0" y1="0" x2="0" y2="%g" gradientUnits="userSpaceOnUse"><stop offset="0" stop-color="%s"/><stop offset="1" stop-color="%s"/></linearGradient>`, h, s.sky[0], s.sky[1])
	for i, r := range s.ridges {
		fmt.Fprintf(&b, `<linearGradient id="r%d" x1="0" y1="%g" x2="0" y2="%g" gradientUnits="userSpaceOnUse"><stop offset="0" stop-color="%s"/><stop offset="1" stop-color="%s"/></linearGradient>`,
			i, h*(1-r.height), h, shade(r.colour, 1.08), shade(r.colour, 0.86))
	}
	fmt.Fprintf(&b, `<radialGradient id="glow"><stop offset="0" stop-color="#fffbe0"/><stop offset="1" stop-color="#fffbe0" stop-opacity="0"/></radialGradient></defs>`)
	fmt.Fprintf(&b, `<rect x="0" y="0" width="%g" height="%g" fill="url(#sky)"/>`, w, h)
	for range s.stars {
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="%.2f" fill="#ffffff" opacity="%.2f"/>`,
			rnd.Float64()*w, rnd.Float64()*h*0.85, short*(0.0015+0.004*rnd.Float64()*rnd.Float64()), 0.4+0.6*rnd.Float64())
	}
	s.lights(&b, w, h, rnd)
	if s.rays {
		for range 5 {
			x, wide := rnd.Float64()*w, w*(0.03+0.05*rnd.Float64())
			fmt.Fprintf(&b, `<path d="M%.1f 0L%.1f 0L%.1f %.1f L%.1f %.1fZ" fill="#ffffff" opacity="0.09"/>`, x, x+wide, x+wide*2.4-w*0.12, h, x-w*0.16, h)
		}
	}
	for range s.clouds {
		cloud(&b, rnd.Float64()*w, h*(0.08+0.42*rnd.Float64()), short*(0.08+0.1*rnd.Float64()), rnd)
	}
	for i, r := range s.ridges {
		fmt.Fprintf(&b, `<path d="%s" fill="url(#r%d)"/>`, r.line(w, h, rnd), i)
	}
	b.WriteString(`</svg>`)
	return b.String()
}

// lights paints the sun, the moon or a planet.
func (s scenery) lights(b *strings.Builder, w, h float64, rnd *rand.Rand) {
	short := math.Min(w, h)
	x, y, r := w*(0.7+0.2*rnd.Float64()), h*(0.14+0.1*rnd.Float64()), short*0.09
	switch s.light {
	case "sun":
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="url(#glow)" opacity="0.8"/><circle cx="%.1f" cy="%.1f" r="%.1f" fill="#fff3b0"/>`, x, y, r*2.6, x, y, r*0.8)
	case "moon":
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="url(#glow)" opacity="0.5"/><circle cx="%.1f" cy="%.1f" r="%.1f" fill="#fdf6d8"/><circle cx="%.1f" cy="%.1f" r="%.1f" fill="#e9dfb4"/><circle cx="%.1f" cy="%.1f" r="%.1f" fill="#e9dfb4"/>`,
			x, y, r*2.4, x, y, r, x-r*0.3, y-r*0.2, r*0.22, x+r*0.3, y+r*0.3, r*0.16)
	case "planet":
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f" fill="#e79a6b"/><path d="M%.1f %.1fq%.1f %.1f %.1f 0" fill="none" stroke="#f7c69c" stroke-width="%.1f" stroke-linecap="round"/><ellipse cx="%.1f" cy="%.1f" rx="%.1f" ry="%.1f" fill="none" stroke="#f3dcae" stroke-width="%.1f" transform="rotate(-18 %.1f %.1f)" opacity="0.85"/>`,
			x, y, r, x-r*0.8, y-r*0.2, r*0.8, r*0.3, r*1.6, r*0.16, x, y, r*1.8, r*0.42, r*0.12, x, y)
	}
}

func cloud(b *strings.Builder, x, y, size float64, rnd *rand.Rand) {
	fmt.Fprintf(b, `<g fill="#ffffff" opacity="%.2f">`, 0.6+0.35*rnd.Float64())
	for i, k := range []float64{0.55, 0.8, 1, 0.75, 0.5} {
		r := size * k * 0.5 * (0.9 + 0.2*rnd.Float64())
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="%.1f"/>`, x+(float64(i)-2)*size*0.42, y-r*0.5, r)
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.1f"/></g>`, x-size*1.08, y-size*0.26, size*2.16, size*0.3, size*0.15)
}

// line is the outline of the ridge, closed along the lower edge.
func (r ridge) line(w, h float64, rnd *rand.Rand) string {
	var b strings.Builder
	base := h * (1 - r.height)
	fmt.Fprintf(&b, "M0 %.1f", h)
	size := math.Min(w, h*1.4)
	switch r.shape {
	case "hills", "dunes", "sea":
		n := map[string]float64{"hills": 3, "dunes": 2, "sea": 9}[r.shape]
		amp := map[string]float64{"hills": 0.05, "dunes": 0.06, "sea": 0.008}[r.shape] * h
		phase := rnd.Float64() * 6
		for i := 0; i <= 64; i++ {
			x := w * float64(i) / 64
			a := x/size*n*2*math.Pi/2 + phase
			fmt.Fprintf(&b, "L%.1f %.1f", x, base+amp*(math.Sin(a)+0.4*math.Sin(2.3*a+1)))
		}
	case "peaks":
		for x := -size * 0.1 * rnd.Float64(); x < w; {
			step := size * (0.16 + 0.16*rnd.Float64())
			high := h * 0.24 * (0.5 + 0.5*rnd.Float64())
			fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1f", x, base+h*0.08, x+step*0.5, base+h*0.08-high)
			x += step
			if x >= w {
				fmt.Fprintf(&b, "L%.1f %.1f", x, base+h*0.08)
			}
		}
	case "rocks":
		for x := 0.0; x < w; {
			step := size * (0.06 + 0.1*rnd.Float64())
			y := base + h*0.14*(rnd.Float64()-0.4)
			fmt.Fprintf(&b, "L%.1f %.1fQ%.1f %.1f %.1f %.1f", x, base+h*0.08, x+step/2, y-h*0.04, x+step, base+h*0.06)
			x += step
		}
	case "towers":
		for x := 0.0; x < w; {
			step := size * (0.05 + 0.07*rnd.Float64())
			y := base + h*0.2*(rnd.Float64()-0.35)
			fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1f", x, y, x+step, y)
			x += step
		}
	case "firs":
		for x := -size * 0.03; x < w; {
			step := size * (0.05 + 0.03*rnd.Float64())
			high := h * (0.1 + 0.09*rnd.Float64())
			low := base + h*0.08
			fmt.Fprintf(&b, "L%.1f %.1f", x, low)
			for i := 1; i <= 3; i++ {
				k := float64(i) / 3
				fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1f", x+step*0.5*k-step*0.02, low-high*k, x+step*0.5*k-step*0.08*(1-k), low-high*k)
			}
			for i := 2; i >= 0; i-- {
				k := float64(i) / 3
				fmt.Fprintf(&b, "L%.1f %.1fL%.1f %.1f", x+step-step*0.5*k+step*0.02, low-high*k, x+step-step*0.5*k, low-high*k)
			}
			x += step * 0.86
		}
	case "trees":
		for x := -size * 0.04; x < w; {
			step := size * (0.09 + 0.07*rnd.Float64())
			fmt.Fprintf(&b, "L%.1f %.1fA%.1f %.1f 0 0 1 %.1f %.1f", x, base+h*0.05, step*0.52, step*(0.5+0.3*rnd.Float64()), x+step, base+h*0.05)
			x += step
		}
	default: // floor
		fmt.Fprintf(&b, "L0 %.1fL%.1f %.1f", base, w, base)
	}
	fmt.Fprintf(&b, "L%.1f %.1fZ", w*1.05, h)
	return b.String()
}

// shade makes a colour lighter (k above 1) or darker.
func shade(colour string, k float64) string {
	c, ok := parseHex(colour)
	if !ok {
		return colour
	}
	f := func(v byte) byte { return byte(math.Min(255, float64(v)*k)) }
	c.R, c.G, c.B = f(c.R), f(c.G), f(c.B)
	return hex(c)
}
