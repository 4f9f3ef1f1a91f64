package wish

import (
	"regexp"
	"strings"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
)

// What stands in a wish and is not words: markup, addresses and code.
var notWords = regexp.MustCompile(strings.Join([]string{
	`(?is)<script\b[^>]*>.*?</script\s*>`,
	`<style\b[^>]*>.*?</style\s*>`,
	`<!--.*?-->`,
	`</?[a-z!][^<>]*>`,
	`\b[a-z][a-z0-9+.-]*://[!-~]+`,
	`\bwww\.[!-~]+`,
	`[a-z0-9._+-]+@[a-z0-9-]+\.[a-z0-9.-]+`,
	`&#?[a-z0-9]+;`,
	`[a-z_][a-z0-9_.]*\([^()a-z]*\)`,          // alert(1)
	`[a-z_][a-z0-9_.]*\([^()]*["'=;][^()]*\)`, // eval("x")
	`[a-z0-9]*[_$\\][a-z0-9_$\\]*`,            // foo_bar, $PATH
	`\{[^{}]*\}`,
}, "|"))

// plain is a text without markup, addresses and code.
func plain(text string) string {
	if !strings.ContainsAny(text, "<>&_$\\{}()@/.") {
		return text
	}
	return notWords.ReplaceAllString(text, " ")
}

// foreign reports whether a sentence in Latin script is in none of the three
// languages: its small words are of another.
func (p *parser) foreign(sentence string) bool {
	list := map[string]bool{}
	for _, w := range p.lex.Grammar[dreamcore.English]["foreign"] {
		list[w] = true
	}
	strange := 0
	for _, r := range sentence {
		if r >= 0xc0 && r <= 0x17f {
			strange++
			break
		}
	}
	for _, t := range lexicon.Tokens(lexicon.Fold(sentence)) {
		if list[t.Text] {
			strange++
		}
	}
	english := 0
	for _, h := range p.lex.FindGrammar(dreamcore.English, sentence) {
		if h.ID != "noise" && !list[lexicon.Fold(sentence[h.Start:h.End])] {
			english++
		}
	}
	return strange >= 2 && strange > english
}

// meant reports whether a mention is a thing for sure enough: a short word in
// Latin script only as a known name, and any word of a foreign sentence only
// as the exact name of a thing that is not short.
func (p *parser) meant(m Mention, text string, foreign bool) bool {
	if text == "" || text[0] >= 0x80 {
		return true
	}
	short := len(text) <= 3
	if foreign {
		return m.Exact && !short
	}
	if !short || m.Exact {
		return true
	}
	for _, w := range p.lex.Grammar[dreamcore.English]["short"] {
		if strings.EqualFold(w, text) {
			return true
		}
	}
	return false
}
