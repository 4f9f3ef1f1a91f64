// Package picture is the built-in picture maker: words in English, Japanese or
// Chinese to a good-looking picture, without a key, a network or a model, and
// the same picture for the same words every time. It understands the words by
// package words, draws free icon art, and puts simple scenes together: a flying
// cat has wings, a blue dog is blue, a pirate fox wears the hat.
//
// An unknown word gives a friendly shape and a log line, never an error.
package picture

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"

	"dreamcore"
	"dreamcore/internal/offline/picture/svg"
)

// The bounds of a picture's sides, in pixels.
const (
	MinSide = 16
	MaxSide = 2048
)

// Request says what to draw.
type Request struct {
	Prompt string
	W, H   int // pixels, from MinSide to MaxSide
	// Transparent leaves the background out; otherwise a place is painted
	// behind the thing, the one that the prompt names or one that suits it.
	Transparent bool
	// Style is one of Styles; it wins over a style that the prompt asks for.
	Style string
	// Seed varies what the words leave open: the fallback's shape, the place.
	Seed    int64
	Effects Effects
}

// Effects are asked for beside the words, and win over them.
type Effects struct {
	Tint    string // "#rrggbb" or "rainbow"; "" for none
	Outline string // "#rrggbb"; "" for none
	FlipX   bool
	Facing  string // "left", "right" or "up"; "" as the words say
}

// Info says what was drawn.
type Info struct {
	// Concept is the English name of the thing, "" for a scene or a fallback.
	Concept string
	// Picture is its name in the pack.
	Picture string
	// Place is the background that was painted, "" for none.
	Place string
	// Fallback is true when no word was understood.
	Fallback bool
}

// Make draws a picture and returns it as PNG. The error has the code Invalid
// for a request that makes no sense.
func Make(ctx context.Context, q Request) ([]byte, Info, error) {
	m, info, err := Draw(ctx, q)
	if err != nil {
		return nil, info, err
	}
	var b bytes.Buffer
	enc := png.Encoder{CompressionLevel: png.DefaultCompression}
	if err := enc.Encode(&b, m); err != nil {
		return nil, info, fmt.Errorf("encode picture: %w", err)
	}
	return b.Bytes(), info, nil
}

// Draw is Make without the encoding.
func Draw(ctx context.Context, q Request) (*image.RGBA, Info, error) {
	if err := q.validate(); err != nil {
		return nil, Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return nil, Info{}, fmt.Errorf("make picture: %w", err)
	}
	r := understand(q.Prompt)
	if q.Style != "" {
		r.style = q.Style
	}
	if q.Effects.Tint != "" {
		r.tint = q.Effects.Tint
	}
	if q.Effects.Facing != "" {
		r.facing = q.Effects.Facing
	}
	info := Info{Place: r.place}
	canvas := image.NewRGBA(image.Rect(0, 0, q.W, q.H))
	scene := r.scene && (r.place != "" || !q.Transparent)
	if scene || !q.Transparent && !r.tile {
		place, err := paintPlace(canvas, r.place, seedOf(q))
		if err != nil {
			return nil, info, fmt.Errorf("make picture: %w", err)
		}
		info.Place = place
	}
	if !scene {
		figure, err := drawFigure(q, r, &info)
		if err != nil {
			return nil, info, err
		}
		blend(canvas, figure, 1)
	}
	if err := ctx.Err(); err != nil {
		return nil, info, fmt.Errorf("make picture: %w", err)
	}
	return canvas, info, nil
}

// drawFigure draws the thing itself, alone.
func drawFigure(q Request, r reading, info *Info) (*image.RGBA, error) {
	var layers []layer
	var err error
	switch {
	case r.tile:
		return drawTile(q, r, info)
	case r.main == nil:
		info.Fallback = true
		layers, err = friendly(seedOf(q), r.tint)
	default:
		info.Concept, info.Picture = r.main.Concept, r.picture
		layers, err = compose(r)
	}
	if err != nil {
		return nil, fmt.Errorf("make picture: %w", err)
	}
	b, err := extent(layers)
	if err != nil {
		return nil, fmt.Errorf("make picture: %w", err)
	}
	margin := 0.03
	if r.style == "sticker" || q.Effects.Outline != "" {
		margin = 0.06
	}
	if !q.Transparent {
		margin = 0.14
	}
	m := image.NewRGBA(image.Rect(0, 0, q.W, q.H))
	if err := draw(m, layers, fit(b, q.W, q.H, margin)); err != nil {
		return nil, fmt.Errorf("make picture: %w", err)
	}
	m = applyStyle(m, r.style)
	if c, ok := parseHex(q.Effects.Outline); ok {
		m = outline(m, c, max(1, float64(min(q.W, q.H))*0.02))
	}
	if q.Effects.FlipX {
		mirror(m)
	}
	return m, nil
}

// drawTile fills the picture with a piece of ground.
func drawTile(q Request, r reading, info *Info) (*image.RGBA, error) {
	info.Picture = "tile-" + r.material
	if r.material == "" {
		info.Picture = "tile-grass"
	}
	l, err := newLayer(info.Picture, svg.Identity)
	if err != nil {
		return nil, fmt.Errorf("make picture: %w", err)
	}
	l.tint = r.tint
	m := image.NewRGBA(image.Rect(0, 0, q.W, q.H))
	// Square tiles side by side, so that a wide platform is not a stretched one.
	side := float64(min(q.W, q.H))
	for y := 0.0; y < float64(q.H); y += side {
		for x := 0.0; x < float64(q.W); x += side {
			if err := draw(m, []layer{l}, svg.Translate(x, y).Mul(svg.Scale(side/unit, side/unit))); err != nil {
				return nil, fmt.Errorf("make picture: %w", err)
			}
		}
	}
	return applyStyle(m, r.style), nil
}

func (q Request) validate() error {
	bad := func(format string, args ...any) error {
		return dreamcore.Errorf(dreamcore.Invalid, "picture.make", format, args...)
	}
	if q.W < MinSide || q.H < MinSide || q.W > MaxSide || q.H > MaxSide {
		return bad("a picture of %d by %d pixels is outside %d to %d", q.W, q.H, MinSide, MaxSide)
	}
	if !knownStyle(q.Style) {
		return bad("there is no style %q", q.Style)
	}
	for _, c := range []string{q.Effects.Tint, q.Effects.Outline} {
		if _, ok := parseHex(c); !ok && c != "" && c != "rainbow" {
			return bad("%q is not a colour like #ff8800", c)
		}
	}
	switch q.Effects.Facing {
	case "", "left", "right", "up":
	default:
		return bad("a picture cannot face %q", q.Effects.Facing)
	}
	return nil
}
