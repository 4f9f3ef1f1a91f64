package publish

import (
	"bytes"
	"strings"
	"unicode"

	"golang.org/x/net/html"

	"dreamcore/internal/tree"
)

// MaxTitleRunes bounds a game's title.
const MaxTitleRunes = 80

// Title is what the game's own page calls itself, else the wish, on one line of
// at most MaxTitleRunes. It is untrusted text: data for an escaping template.
func Title(t *tree.Tree, wish string) string {
	page, _ := t.Lookup("index.html")
	if s := oneLine(pageTitle(page)); s != "" {
		return s
	}
	return oneLine(wish)
}

// pageTitle returns the text of the first title element of an HTML page.
func pageTitle(page []byte) string {
	z := html.NewTokenizer(bytes.NewReader(page[:min(len(page), 1<<20)]))
	z.SetMaxBuf(1 << 20)
	for {
		switch z.Next() {
		case html.ErrorToken:
			return ""
		case html.StartTagToken:
			name, _ := z.TagName()
			switch string(name) {
			case "title":
				if z.Next() == html.TextToken {
					return string(z.Text())
				}
				return ""
			case "svg", "body":
				return "" // a title in there names something else
			}
		}
	}
}

// oneLine drops what cannot be seen, joins white space and caps the length.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Cf, r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) > MaxTitleRunes {
		runes = append(runes[:MaxTitleRunes-1], '…')
	}
	return string(runes)
}
