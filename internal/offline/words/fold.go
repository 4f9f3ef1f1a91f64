package words

import (
	"strings"
	"unicode"
)

// fold makes writing that differs in form only the same: case, full width, and
// katakana as hiragana. It maps one rune to one, so that offsets survive.
func fold(r rune) rune {
	switch {
	case r >= 0xff01 && r <= 0xff5e:
		r -= 0xfee0
	case r >= 'ァ' && r <= 'ヶ':
		return r - 0x60
	case r == '’' || r == '‘':
		return '\''
	case r == '\u3000':
		return ' '
	}
	return unicode.ToLower(r)
}

// isWord reports whether r belongs to a word that is written with spaces.
func isWord(r rune) bool {
	return r < 0x2e80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '\''
}

func isHan(r rune) bool { return unicode.Is(unicode.Han, r) || r == '々' }

func isHiragana(r rune) bool { return r >= 'ぁ' && r <= 'ゖ' }

func isKatakana(r rune) bool { return r >= 'ァ' && r <= 'ヶ' || r == 'ー' }

func isCJK(r rune) bool { return isHan(r) || isHiragana(r) || isKatakana(r) }

// key is the form under which a term stands in the index: folded, with single
// spaces between words and none between other characters.
func key(term string) string {
	var b strings.Builder
	gap := false
	last := rune(0)
	for _, r := range term {
		f := fold(r)
		if !isWord(f) && !isCJK(f) && !isCJK(r) {
			gap = true
			continue
		}
		if gap && b.Len() > 0 && isWord(f) && isWord(last) {
			b.WriteByte(' ')
		}
		gap = false
		b.WriteRune(f)
		last = f
	}
	return b.String()
}

// singular returns the forms that w may be the plural of, w first.
func singular(w string) []string {
	w = strings.TrimSuffix(strings.TrimSuffix(w, "'s"), "'")
	out := []string{w}
	add := func(suffix, instead string) {
		if s, ok := strings.CutSuffix(w, suffix); ok && len(s) > 1 && !strings.HasSuffix(w, "ss") {
			out = append(out, s+instead)
		}
	}
	add("ies", "y")
	add("ves", "f")
	add("ves", "fe")
	add("es", "")
	add("s", "")
	return out
}

// stems returns the verbs or nouns that w may be a form of.
func stems(w string) []string {
	var out []string
	for _, suffix := range []string{"ing", "ed", "er", "y"} {
		s, ok := strings.CutSuffix(w, suffix)
		if !ok || len(s) < 3 {
			continue
		}
		out = append(out, s, s+"e")
		if n := len(s); s[n-1] == s[n-2] {
			out = append(out, s[:n-1])
		}
	}
	return out
}
