package picture

import (
	_ "embed" // the data files
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"dreamcore/internal/offline/words"
)

//go:embed modifier.tsv
var modifierData string

//go:embed place.tsv
var placeData string

//go:embed costume.tsv
var costumeData string

//go:embed figure.tsv
var figureData string

// figure is what the composer must know about one picture.
type figure struct {
	// faces is where it looks: degrees clockwise from right; 180 is left.
	faces float64
	// sided is false for what looks at the viewer.
	sided bool
	// head is where a hat sits: centre, top edge, width, in the units of a
	// 128 by 128 picture; zero when unknown.
	headX, headY, headW float64
	// tilt turns a hat with the head, in degrees clockwise.
	tilt float64
	// flier is true for what has wings already or flies without.
	flier bool
	// portrait is the picture of the same thing's face, "" when there is none.
	portrait string
	// coat is the colour of the body that a mere head is given when the whole
	// thing is asked for, "" where the picture is whole.
	coat string
}

// modifier is one word that changes a picture.
type modifier struct {
	term   string
	effect string
	latin  bool
}

type lexicon struct {
	modifiers []modifier
	materials []modifier          // of tiles only: "ice" is a thing everywhere else
	places    map[string]string   // concept to place
	costumes  map[string][]string // concept to effects
	figures   map[string]figure
}

var openLexicon = sync.OnceValue(func() *lexicon {
	l, err := readLexicon()
	if err != nil {
		// The files are part of the binary: this is a fault of the build, and the tests see it.
		panic(fmt.Sprintf("picture: %v", err))
	}
	return l
})

// rows returns the cells of a data file.
func rows(data string) [][]string {
	var out [][]string
	for line := range strings.Lines(data) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		out = append(out, cells)
	}
	return out
}

func terms(cell string) []string {
	var out []string
	for _, t := range strings.Split(cell, ",") {
		if t = words.Fold(strings.TrimSpace(t)); t != "" {
			out = append(out, t)
		}
	}
	return out
}

func readLexicon() (*lexicon, error) {
	l := &lexicon{places: map[string]string{}, costumes: map[string][]string{}, figures: map[string]figure{}}
	for _, r := range rows(costumeData) {
		if len(r) != 2 {
			return nil, fmt.Errorf("costume.tsv: %q has %d columns, not 2", r[0], len(r))
		}
		l.costumes[r[0]] = terms(r[1])
	}
	for _, r := range rows(modifierData) {
		if len(r) != 4 {
			return nil, fmt.Errorf("modifier.tsv: %q has %d columns, not 4", r[0], len(r))
		}
		for _, cell := range r[1:] {
			for _, t := range terms(cell) {
				first, _ := utf8.DecodeRuneInString(t)
				m := modifier{t, r[0], first < 0x2e80}
				if material, ok := strings.CutPrefix(r[0], "material:"); ok {
					m.effect = material
					l.materials = append(l.materials, m)
				} else {
					l.modifiers = append(l.modifiers, m)
				}
			}
		}
	}
	for _, r := range rows(placeData) {
		if len(r) != 2 {
			return nil, fmt.Errorf("place.tsv: %q has %d columns, not 2", r[0], len(r))
		}
		for _, t := range terms(r[1]) {
			l.places[t] = r[0]
		}
	}
	for _, r := range rows(figureData) {
		f, err := readFigure(r)
		if err != nil {
			return nil, fmt.Errorf("figure.tsv: %w", err)
		}
		l.figures[r[0]] = f
	}
	return l, nil
}

func readFigure(r []string) (figure, error) {
	if len(r) != 6 {
		return figure{}, fmt.Errorf("%q has %d columns, not 6", r[0], len(r))
	}
	f := figure{portrait: r[4], coat: r[5], flier: r[3] == "flies"}
	if r[1] != "front" {
		v, err := strconv.ParseFloat(r[1], 64)
		if err != nil {
			return f, fmt.Errorf("%q: %w", r[0], err)
		}
		f.faces, f.sided = v, true
	}
	if r[2] != "" {
		var v [4]float64
		for i, s := range strings.Fields(r[2]) {
			x, err := strconv.ParseFloat(s, 64)
			if err != nil || i > 3 {
				return f, fmt.Errorf("%q: bad head", r[0])
			}
			v[i] = x
		}
		f.headX, f.headY, f.headW, f.tilt = v[0], v[1], v[2], v[3]
	}
	return f, nil
}

// found is a modifier in a prompt, from byte start to before byte end.
type found struct {
	effect     string
	start, end int
}

// find returns the modifiers of a list in a prompt that was folded; where
// several overlap the longest wins.
func find(list []modifier, prompt string) []found {
	var out []found
	for _, m := range list {
		for from := 0; ; {
			i := strings.Index(prompt[from:], m.term)
			if i < 0 {
				break
			}
			f := found{m.effect, from + i, from + i + len(m.term)}
			from = f.end
			if !m.latin || apart(prompt, f.start, f.end) {
				out = append(out, f)
			}
		}
	}
	kept := out[:0:0]
	for i, f := range out {
		inside := false
		for j, g := range out {
			longer := g.end-g.start > f.end-f.start || g.end-g.start == f.end-f.start && j < i
			if i != j && longer && f.start < g.end && g.start < f.end {
				inside = true
			}
		}
		if !inside {
			kept = append(kept, f)
		}
	}
	return kept
}

// apart reports whether what lies from start to end is not a part of a longer word.
func apart(s string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(s[:start])
	after, _ := utf8.DecodeRuneInString(s[end:])
	word := func(r rune) bool { return r < 0x2e80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) }
	return (start == 0 || !word(before)) && (end == len(s) || !word(after))
}
