package recipe

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
	"dreamcore/internal/offline/wish"
)

// names writes titles and the names of things, and remembers what they replace.
func (c *Cook) names(p *Plan, m Manifest, doc *document) {
	for _, pointer := range m.Change.Titles {
		lang := dreamcore.Lang(pointer[strings.LastIndexByte(pointer, '/')+1:])
		var old string
		if doc.get(pointer, &old) {
			p.replaceTitle(old, p.Title.In(lang))
		}
		doc.set(pointer, p.Title.In(lang))
	}
	for lang, old := range m.Title {
		p.replaceTitle(old, p.Title.In(lang))
	}
	name := func(s Slot, cast wish.Cast) {
		var old dreamcore.Localized
		if cast.Kept || !doc.get(s.Name, &old) {
			return
		}
		for _, lang := range dreamcore.Langs {
			now := cast.Names.In(lang)
			if lang == dreamcore.English {
				now = like(old[lang], now)
			}
			if s.Name == m.Change.Hero.Name {
				c.replaceHero(p, lang, old[lang], now)
			}
			doc.set(s.Name+"/"+string(lang), now)
		}
	}
	name(m.Change.Hero, p.Hero)
	for i, s := range m.Change.Foes {
		name(s, p.Foes[i])
	}
	for i, s := range m.Change.Prizes {
		name(s, p.Prizes[i])
	}
	for i, s := range m.Change.Scenery {
		name(s, p.Scenery[i])
	}
}

// replaceHero remembers the hero's old name. Only the hero's is replaced in
// running text: a word for a key or a star is often no name of a thing there.
func (c *Cook) replaceHero(p *Plan, lang dreamcore.Lang, old, now string) {
	if lang == dreamcore.English {
		p.replace(Rename{Old: c.plural(old), New: c.plural(now)})
	}
	p.replace(Rename{Old: old, New: now})
}

// replaceTitle remembers an old title. A title of several words is replaced in
// running text too; a short one may be common words there.
func (p *Plan) replaceTitle(old, now string) {
	p.replace(Rename{old, now, !strings.Contains(old, " ")})
}

func (p *Plan) replace(r Rename) {
	old, now := r.Old, r.New
	if old != "" && old != now && !slices.ContainsFunc(p.Renames, func(x Rename) bool { return strings.EqualFold(x.Old, old) }) {
		p.Renames = append(p.Renames, r)
	}
}

// rename replaces left-over names in the texts of game.json; longer ones first,
// since a title holds the hero's name.
func (p *Plan) rename(doc *document) {
	slices.SortStableFunc(p.Renames, func(a, b Rename) int { return cmp.Compare(len(b.Old), len(a.Old)) })
	doc.rewrite(func(s string) string {
		if looksLikeFile(s) {
			return s
		}
		return p.Reword(s)
	})
}

// Reword replaces the template's names in a text: whole words in English, any
// place in the scripts without spaces. What has been put in is not looked at
// again.
func (p *Plan) Reword(s string) string {
	for _, r := range p.Renames {
		if r.Whole && strings.TrimSpace(s) == r.Old {
			return r.New
		}
	}
	var out strings.Builder
next:
	for i := 0; i < len(s); {
		for _, r := range p.Renames {
			if n := r.at(s, i); n > 0 && !r.Whole {
				out.WriteString(like(s[i:i+n], r.New))
				i += n
				continue next
			}
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		out.WriteString(s[i : i+size])
		i += size
	}
	return out.String()
}

// at returns the length of the old name if it stands at offset i.
func (r Rename) at(s string, i int) int {
	n := len(r.Old)
	if i+n > len(s) || !strings.EqualFold(s[i:i+n], r.Old) {
		return 0
	}
	if r.Old[0] < utf8.RuneSelf {
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		after, _ := utf8.DecodeRuneInString(s[i+n:])
		if wordy(before) || before == '/' || before == '{' || wordy(after) || fileEnding(s[i+n:]) {
			return 0
		}
	}
	return n
}

func wordy(r rune) bool {
	return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-')
}

// fileEnding tells the dot of a file name from the end of a sentence.
func fileEnding(s string) bool {
	return len(s) > 1 && s[0] == '.' && unicode.IsLetter(rune(s[1])) && s[1] < utf8.RuneSelf
}

// looksLikeFile keeps paths, colours and keys from being reworded.
func looksLikeFile(s string) bool {
	return strings.HasPrefix(s, "#") || !strings.Contains(s, " ") && strings.ContainsAny(s, "/._")
}

// like writes now with the case of old's first letter.
func like(old, now string) string {
	r, _ := utf8.DecodeRuneInString(old)
	if unicode.IsUpper(r) {
		n, size := utf8.DecodeRuneInString(now)
		return string(unicode.ToUpper(n)) + now[min(size, len(now)):]
	}
	return now
}

var smallWords = []string{"a", "an", "the", "of", "in", "on", "with", "and", "at", "for"}

// capital writes an English name as in a title.
func capital(name string) string {
	words := strings.Fields(name)
	for i, w := range words {
		if i == 0 || !slices.Contains(smallWords, w) {
			words[i] = like("A", w)
		}
	}
	return strings.Join(words, " ")
}

// plural is an English name in the plural; names of several words end in their
// noun, but for those with a preposition, which stay as they are.
func (c *Cook) plural(name string) string {
	if name == "" || strings.Contains(name, " with ") || strings.Contains(name, " of ") || strings.Contains(name, " on ") {
		return name
	}
	lower := strings.ToLower(name)
	if c.unchanging(lower) || strings.HasSuffix(lower, "s") && !strings.HasSuffix(lower, "ss") && !strings.HasSuffix(lower, "us") {
		return name
	}
	all := lexicon.Inflect(lower)
	if len(all) < 2 {
		return name
	}
	end := all[1][commonPrefix(lower, all[1]):]
	return name[:commonPrefix(lower, all[1])] + end
}

// unchanging reports whether the last word of an English name is its own plural
// or in the plural already. In the lexicon "ice" is that word alone, and "-fish"
// every word that ends so.
func (c *Cook) unchanging(name string) bool {
	last := name[strings.LastIndexAny(name, " -")+1:]
	grammar := c.Lexicon.Grammar[dreamcore.English]
	return slices.Contains(grammar["irregular"], last) || slices.ContainsFunc(grammar["unchanging"], func(w string) bool {
		if end, ok := strings.CutPrefix(w, "-"); ok {
			return strings.HasSuffix(last, end)
		}
		return last == w
	})
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
