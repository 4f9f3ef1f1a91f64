package picture

import (
	"image"
	imagedraw "image/draw"
	"image/png"
	"os"
	"strings"
	"testing"

	"dreamcore/internal/offline/picture/svg"
	"dreamcore/internal/offline/words"
)

func TestEveryPictureIsDrawn(t *testing.T) {
	names := Names()
	if len(names) < 1600 {
		t.Fatalf("only %d pictures", len(names))
	}
	for _, name := range names {
		d, err := open(name)
		if err != nil {
			t.Error(err)
			continue
		}
		m := image.NewRGBA(image.Rect(0, 0, 32, 32))
		if err := d.Draw(m, d.Fit(32, 32)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r := visible(m); r.Dx() < 4 && r.Dy() < 4 {
			t.Errorf("%s shows nothing", name)
		}
	}
}

// testdata/librsvg.png was drawn by librsvg 2.54 from the same icons, 8 in a
// row, 64 pixels each.
func TestLooksAsLibrsvgDrawsIt(t *testing.T) {
	f, err := os.Open("testdata/librsvg.png")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	sheet, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	const names = "1f408 1f431 1f415 1f436 1f407 1f427 1f98a 1f43c 1f419 1f409 1f432 1f996 1f42c 1f988 1f41d 1f98b 1f680 2708 1f697 1f3ce 1f6f8 1f681 1f6a2 1f47d 1f47b 1f916 1f9d9 1f9da 1f977 1f468-200d-1f680 2b50 1f319 1fa90 1f525 1f308 1f48e 1fa99 1f3c6 1f381 1f511 1f34e 1f353 1f370 1f354 1f3f0 1f30b 1f333 1f335"
	for i, name := range strings.Fields(names) {
		d, err := open(name)
		if err != nil {
			t.Fatal(err)
		}
		got := image.NewRGBA(image.Rect(0, 0, 64, 64))
		if err := d.Draw(got, d.Fit(64, 64)); err != nil {
			t.Fatal(err)
		}
		want := image.NewRGBA(got.Rect)
		imagedraw.Draw(want, want.Rect, sheet, image.Pt(i%8*64, i/8*64), imagedraw.Src)
		sum, far := 0, 0
		for j := range got.Pix {
			diff := max(int(got.Pix[j])-int(want.Pix[j]), int(want.Pix[j])-int(got.Pix[j]))
			sum += diff
			if diff > 64 {
				far++
			}
		}
		// Edges differ by a shade between renderers; a missing part differs by far more.
		if mean := float64(sum) / float64(len(got.Pix)); mean > 1.0 || far > 120 {
			t.Errorf("%s differs from librsvg by %.2f of 255 on average, %d values by more than 64", name, mean, far)
		}
	}
}

func TestEveryWordHasAPicture(t *testing.T) {
	for _, e := range words.Entries() {
		if !Has(e.Picture) {
			t.Errorf("%s (%s) has no picture %q", e.Concept, e.Emoji, e.Picture)
		}
	}
}

// Every effect, costume, figure and place that the data files name must exist.
func TestDataFilesAgree(t *testing.T) {
	lex := openLexicon()
	cat := words.Lookup("cat")[0].Entry
	try := func(effect string) {
		r := reading{main: cat, picture: cat.Picture, effects: []string{effect}}
		plain, err := compose(reading{main: cat, picture: cat.Picture})
		if err != nil {
			t.Fatal(err)
		}
		layers, err := compose(r)
		if err != nil {
			t.Errorf("effect %s: %v", effect, err)
		}
		// A cat in profile wears no glasses, but its face does.
		if len(layers) == len(plain) && effect != "glasses" && effect != "faint" && !strings.HasPrefix(effect, "tint:") {
			t.Errorf("effect %s changes nothing", effect)
		}
	}
	read := map[string]bool{"mirror": true, "style": true, "scene": true, "face": true, "body": true, "top": true, "tint": true, "tile": true}
	seen := map[string]bool{}
	for _, m := range lex.modifiers {
		kind, arg, _ := strings.Cut(m.effect, ":")
		if seen[m.effect] {
			continue
		}
		seen[m.effect] = true
		if kind == "tint" && arg != "rainbow" {
			if _, ok := parseHex(arg); !ok {
				t.Errorf("modifier %s has no colour", m.effect)
			}
		}
		if kind == "style" && !knownStyle(arg) {
			t.Errorf("there is no style %s", arg)
		}
		if !read[kind] {
			try(m.effect)
		}
	}
	for concept, effects := range lex.costumes {
		if m := words.Lookup(concept); len(m) == 0 || m[0].Entry.Concept != concept {
			t.Errorf("costume.tsv: the word index has no %q", concept)
		}
		for _, e := range effects {
			try(e)
		}
	}
	for name, f := range lex.figures {
		if !Has(name) || f.portrait != "" && !Has(f.portrait) {
			t.Errorf("figure.tsv: %s or its portrait %s is no picture", name, f.portrait)
		}
	}
	for name, f := range lex.figures {
		if _, ok := parseHex(f.coat); !ok && f.coat != "" {
			t.Errorf("figure.tsv: %s has the coat %q", name, f.coat)
		}
	}
	for concept, place := range lex.places {
		if _, ok := sceneries[place]; !ok {
			t.Errorf("place.tsv: %s is no place", place)
		}
		if m := words.Lookup(concept); len(m) == 0 {
			t.Errorf("place.tsv: the word index has no %q", concept)
		}
	}
	for _, m := range lex.materials {
		if !Has("tile-" + m.effect) {
			t.Errorf("modifier.tsv: there is no picture of %s", m.effect)
		}
	}
	for _, place := range Places() {
		m := image.NewRGBA(image.Rect(0, 0, 80, 60))
		if _, err := paintPlace(m, place, 1); err != nil {
			t.Error(err)
		}
		for i := 3; i < len(m.Pix); i += 4 {
			if m.Pix[i] != 255 {
				t.Errorf("the place %s has holes", place)
				break
			}
		}
	}
}

func TestTurnsToWhereItIsAsked(t *testing.T) {
	for name, f := range openLexicon().figures {
		if !f.sided {
			continue
		}
		for _, want := range []struct {
			facing string
			x, y   float64
		}{{"right", 1, 0}, {"left", -1, 0}} {
			m := facing(f, reading{picture: name, facing: want.facing})
			d := direction(f.faces)
			x, y := m.A*d[0]+m.C*d[1], m.B*d[0]+m.D*d[1]
			if x*want.x+y*want.y < 0.99 {
				t.Errorf("%s looks to (%.2f, %.2f) when asked to face %s", name, x, y, want.facing)
			}
		}
	}
}

func direction(degrees float64) [2]float64 {
	m := svg.Rotate(degrees)
	return [2]float64{m.A, m.B}
}
