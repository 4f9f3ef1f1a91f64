package lexicon

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Hit is one place in a text where a word stands. Offsets are in bytes.
type Hit struct {
	ID         string
	Start, End int
}

// Finder finds known words in a text of any of the three languages: whole words
// where a script puts spaces between them, parts of the text elsewhere. The
// longest match wins and hits never overlap. The zero Finder finds nothing.
type Finder struct {
	phrases map[string][]string // of spaced scripts, tokens joined by one space
	longest int                 // tokens in the longest phrase
	runs    map[rune][]run      // of unspaced scripts, by first character
}

type run struct{ text, id string }

// Add makes the finder find words, English ones with their regular endings too.
func (f *Finder) Add(id string, words Words) { f.add(id, words, true) }

func (f *Finder) add(id string, words Words, inflect bool) {
	if f.phrases == nil {
		f.phrases, f.runs = map[string][]string{}, map[rune][]run{}
	}
	for _, forms := range words {
		for _, form := range forms {
			form = Fold(form)
			first, _ := utf8.DecodeRuneInString(form)
			if unspaced(first) || unspacedAny(form) || len(Tokens(form)) == 0 {
				if slices.Contains(f.runs[first], run{form, id}) {
					continue // Japanese and Chinese share it
				}
				f.runs[first] = append(f.runs[first], run{form, id})
				slices.SortStableFunc(f.runs[first], func(a, b run) int { return len(b.text) - len(a.text) })
				continue
			}
			f.addPhrase(id, form, inflect)
		}
	}
}

func (f *Finder) addPhrase(id, form string, inflect bool) {
	var words []string
	for _, t := range Tokens(form) {
		words = append(words, t.Text)
	}
	f.longest = max(f.longest, len(words))
	firsts := []string{words[0]}
	if inflect {
		firsts = Inflect(words[0])
	}
	for _, first := range firsts {
		key := strings.Join(append([]string{first}, words[1:]...), " ")
		if !slices.Contains(f.phrases[key], id) {
			f.phrases[key] = append(f.phrases[key], id)
		}
	}
}

// Find returns the hits in text, in order. A word with several ids gives
// several hits at one place.
func (f *Finder) Find(text string) []Hit {
	text = Fold(text)
	hits := f.findPhrases(text)
	hits = append(hits, f.findRuns(text)...)
	slices.SortStableFunc(hits, func(a, b Hit) int { return a.Start - b.Start })
	return hits
}

func (f *Finder) findPhrases(text string) []Hit {
	var hits []Hit
	tokens := Tokens(text)
	for i := 0; i < len(tokens); {
		n := min(f.longest, len(tokens)-i)
		for ; n > 0; n-- {
			words := make([]string, n)
			for k := range n {
				words[k] = tokens[i+k].Text
			}
			ids := f.phrases[strings.Join(words, " ")]
			for _, id := range ids {
				hits = append(hits, Hit{id, tokens[i].Start, tokens[i+n-1].End})
			}
			if ids != nil {
				break
			}
		}
		i += max(n, 1)
	}
	return hits
}

func (f *Finder) findRuns(text string) []Hit {
	var hits []Hit
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		step := size
		for _, w := range f.runs[r] {
			if len(w.text) < step {
				break
			}
			if strings.HasPrefix(text[i:], w.text) && (step == size || len(w.text) == step) {
				hits = append(hits, Hit{w.id, i, i + len(w.text)})
				step = len(w.text)
			}
		}
		i += step
	}
	return hits
}

// Token is one word of a spaced script, or one mark.
type Token struct {
	Text       string
	Start, End int
}

// Tokens cuts the spaced scripts of text into words; a comma and an ampersand
// are tokens too. Characters of unspaced scripts are left out.
func Tokens(text string) []Token {
	var all []Token
	start := -1
	flush := func(end int) {
		if start >= 0 {
			if w := strings.Trim(text[start:end], "'-’"); w != "" {
				at := start + strings.Index(text[start:end], w)
				all = append(all, Token{w, at, at + len(w)})
			}
			start = -1
		}
	}
	for i, r := range text {
		switch {
		case !unspaced(r) && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\'' || r == '-' || r == '’'):
			if start < 0 {
				start = i
			}
		default:
			flush(i)
			if r == ',' || r == '&' {
				all = append(all, Token{string(r), i, i + 1})
			}
		}
	}
	flush(len(text))
	return all
}

// Fold makes letters small without moving any byte, so that offsets hold in the
// original too (of valid UTF-8): only letters whose small form is as long as
// they are change.
func Fold(text string) string {
	return strings.Map(func(r rune) rune {
		if l := unicode.ToLower(r); utf8.RuneLen(l) == utf8.RuneLen(r) {
			return l
		}
		return r
	}, text)
}

func unspaced(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) || r >= 0x3000 && r <= 0x30ff || r >= 0xff00 && r <= 0xffef
}

func unspacedAny(s string) bool { return strings.ContainsFunc(s, unspaced) }

// Inflect returns an English word with its regular endings.
func Inflect(w string) []string {
	all := []string{w}
	add := func(forms ...string) { all = append(all, forms...) }
	last := w[len(w)-1]
	switch {
	case len(w) < 3 || strings.HasSuffix(w, "ing"):
		if !strings.HasSuffix(w, "ing") {
			add(w + "s")
		}
	case last == 'e':
		add(w+"s", w+"d", w+"r", w[:len(w)-1]+"ing")
	case last == 'y' && !strings.ContainsRune("aeiou", rune(w[len(w)-2])):
		add(w[:len(w)-1]+"ies", w[:len(w)-1]+"ied", w+"ing")
	case strings.HasSuffix(w, "s"), strings.HasSuffix(w, "x"), strings.HasSuffix(w, "sh"), strings.HasSuffix(w, "ch"):
		add(w+"es", w+"ed", w+"er", w+"ing")
	default:
		add(w+"s", w+"ed", w+"er", w+"ing")
		if doubles(w) {
			d := w + string(last)
			add(d+"ed", d+"er", d+"ing")
		}
	}
	return all
}

// Singular takes a regular English plural ending off.
func Singular(w string) string {
	switch {
	case strings.HasSuffix(w, "ies") && len(w) > 4:
		return w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "ches"), strings.HasSuffix(w, "shes"), strings.HasSuffix(w, "xes"), strings.HasSuffix(w, "sses"):
		return w[:len(w)-2]
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is") && len(w) > 3:
		return w[:len(w)-1]
	}
	return w
}

// doubles reports whether a word may double its last letter before an ending:
// run, running.
func doubles(w string) bool {
	n := len(w)
	return n >= 3 && !strings.ContainsRune("aeiouwxy", rune(w[n-1])) &&
		strings.ContainsRune("aeiou", rune(w[n-2])) && !strings.ContainsRune("aeiou", rune(w[n-3]))
}
