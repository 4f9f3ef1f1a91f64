package words

import (
	"cmp"
	"slices"
	"strings"
)

// MaxScanBytes is how much of a text is looked at; a wish is much shorter.
const MaxScanBytes = 64 << 10

// Scan finds the things that a sentence in any of the three languages names,
// in their order, the longest name first wherever several begin. Verbs,
// qualities and talk about the game itself are left out.
func Scan(text string) []Match {
	if len(text) > MaxScanBytes {
		text = text[:MaxScanBytes]
	}
	s := &scan{ix: load(), text: text}
	for i, r := range text {
		s.raw = append(s.raw, r)
		s.folded = append(s.folded, fold(r))
		s.at = append(s.at, i)
	}
	s.at = append(s.at, len(text))
	for i := 0; i < len(s.raw); {
		switch {
		case isWord(s.folded[i]):
			i = s.words(i)
		case isCJK(s.raw[i]):
			i = s.characters(i)
		default:
			i = s.emoji(i)
		}
	}
	return s.found
}

type scan struct {
	ix          *index
	text        string
	raw, folded []rune
	at          []int // byte offset of each rune
	found       []Match
}

func (s *scan) emit(from, to int, p posting) {
	s.found = append(s.found, Match{p.entry, p.rank, s.text[s.at[from]:s.at[to]], s.at[from], s.at[to]})
}

// emoji finds an emoji that begins at rune i; skin tones and the sign that asks
// for a coloured picture are passed over.
func (s *scan) emoji(i int) int {
	if s.raw[i] < 0x203c {
		return i + 1
	}
	const longest = 10 // runes of one emoji
	var bare []rune
	end, hit := i+1, posting{}
	for j := i; j < len(s.raw) && j < i+longest; j++ {
		if r := s.raw[j]; r != 0xfe0f && (r < 0x1f3fb || r > 0x1f3ff) {
			bare = append(bare, r)
		}
		if p, ok := s.ix.emoji[string(bare)]; ok {
			end, hit = j+1, p
		}
	}
	if hit.entry != nil {
		s.emit(i, end, hit)
	}
	return end
}

// vague reports whether a thing is too far from the word to be meant in a
// sentence: a face or a sign for a mere keyword.
func vague(p posting) bool {
	return p.rank == Keyword && (p.entry.Kind == Face || p.entry.Kind == Symbol || p.entry.Kind == Body)
}

// words looks for the longest run of words from rune i on that is a term, and
// returns where to go on.
func (s *scan) words(i int) int {
	var ends []int // the end of the first word, of the first two, ...
	var parts []string
	for j := i; j < len(s.folded) && len(ends) < s.ix.maxWords; {
		k := j
		for k < len(s.folded) && isWord(s.folded[k]) {
			k++
		}
		if k == j {
			break
		}
		parts = append(parts, string(s.folded[j:k]))
		ends = append(ends, k)
		// Words of one term stand a space or a hyphen apart.
		if k >= len(s.folded) || s.folded[k] != ' ' && s.folded[k] != '-' {
			break
		}
		j = k + 1
	}
	for n := len(parts); n > 0; n-- {
		head := strings.Join(parts[:n-1], " ")
		if n > 1 {
			head += " "
		}
		if n == 1 && s.ix.stop[parts[0]] {
			break
		}
		best := s.ix.best(head, singular(parts[n-1]), n == 1)
		if len(best) > 0 && !vague(best[0]) {
			s.emit(i, ends[n-1], best[0])
			return ends[n-1]
		}
	}
	return ends[0]
}

// best returns what head and one of the forms of its last word mean: the form
// that means something best, an earlier one when two mean it equally well.
func (ix *index) best(head string, forms []string, alone bool) []posting {
	var best []posting
	for _, last := range forms {
		if alone && (ix.stop[last] || len(last) < 2) {
			continue
		}
		list := ix.terms[head+last]
		if len(list) > 0 && (len(best) == 0 || list[0].rank < best[0].rank) {
			best = list
		}
	}
	return best
}

// characters does the same for writing without spaces.
func (s *scan) characters(i int) int {
	for n := min(s.ix.maxRunes, len(s.raw)-i); n > 0; n-- {
		k := string(s.folded[i : i+n])
		list := s.ix.terms[k]
		stopped := s.ix.stop[k]
		if (len(list) == 0 || vague(list[0])) && !stopped {
			continue
		}
		if !s.bounded(i, i+n) {
			continue
		}
		if stopped {
			return i + n
		}
		// One character alone is too often a part of something else, unless it is a name.
		if n == 1 && (list[0].rank > Name || !isHan(s.raw[i])) {
			continue
		}
		s.emit(i, i+n, list[0])
		return i + n
	}
	return i + 1
}

// Characters that may stand directly before and after a word in hiragana:
// particles, and the ends of adjectives and verbs.
const (
	before = "はがをにのとでもやへいなたるうくすつむぶぐ"
	after  = "はがをにのとでもやへなだかちさけまよねっ"
)

// bounded reports whether the runes from i to j can be a word of their own.
func (s *scan) bounded(i, j int) bool {
	if isKatakana(s.raw[j-1]) && j < len(s.raw) && isKatakana(s.raw[j]) {
		// Inside a run of katakana only when the rest of the run is a term too.
		end := j
		for end < len(s.raw) && isKatakana(s.raw[end]) {
			end++
		}
		return len(s.ix.terms[string(s.folded[j:end])]) > 0
	}
	if isKatakana(s.raw[i]) && i > 0 && isKatakana(s.raw[i-1]) {
		// What ends a run of katakana may stand alone (スーパーネコ).
		return j-i >= 2 && (j == len(s.raw) || !isKatakana(s.raw[j]))
	}
	if isHiragana(s.raw[i]) && i > 0 {
		last := len(s.found) > 0 && s.found[len(s.found)-1].End == s.at[i]
		if isHan(s.raw[i-1]) && !last || isHiragana(s.raw[i-1]) && !strings.ContainsRune(before, s.raw[i-1]) {
			return false
		}
	}
	if isHiragana(s.raw[j-1]) && j < len(s.raw) && isHiragana(s.raw[i]) {
		if isHiragana(s.raw[j]) && !strings.ContainsRune(after, s.raw[j]) {
			return false
		}
	}
	return true
}

// Lookup finds what a word or short phrase names, best first. When the phrase
// as a whole is no term, the things inside it are returned with rank Partial.
func Lookup(phrase string) []Match {
	if len(phrase) > MaxScanBytes {
		return nil
	}
	ix := load()
	whole := func(list []posting, worst Rank) []Match {
		var out []Match
		for _, p := range list {
			out = append(out, Match{p.entry, max(p.rank, worst), phrase, 0, len(phrase)})
		}
		return out
	}
	k := key(phrase)
	for _, article := range []string{"a ", "an ", "the ", "some ", "my "} {
		if rest, ok := strings.CutPrefix(k, article); ok && len(ix.terms[k]) == 0 {
			k = rest
		}
	}
	head, last := "", k
	if i := strings.LastIndexByte(k, ' '); i >= 0 {
		head, last = k[:i+1], k[i+1:]
	}
	if m := whole(ix.best(head, singular(last), false), Exact); len(m) > 0 {
		return m
	}
	inside := Scan(phrase)
	slices.SortStableFunc(inside, func(a, b Match) int { return cmp.Compare(a.Rank, b.Rank) })
	for i := range inside {
		inside[i].Rank = Partial
	}
	if len(inside) > 0 {
		return inside
	}
	for _, form := range stems(k) {
		if m := whole(ix.terms[form], Partial); len(m) > 0 {
			return m
		}
	}
	return nil
}
