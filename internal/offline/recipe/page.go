package recipe

import (
	"html"
	"regexp"
	"strings"
)

// Where a page's names may not be touched: tags (their attributes name files)
// and code.
var notText = regexp.MustCompile(`(?is)<!--.*?-->|<(script|style)\b.*?</(?:script|style)\s*>|<[^>]*>`)

// RewordPage replaces the template's names in the text of an HTML page, and
// nowhere in its tags, scripts and styles. The number of lines stays.
func (p *Plan) RewordPage(page string) string {
	var out strings.Builder
	at := 0
	for _, m := range notText.FindAllStringIndex(page, -1) {
		out.WriteString(p.rewordText(page[at:m[0]]))
		out.WriteString(page[m[0]:m[1]])
		at = m[1]
	}
	out.WriteString(p.rewordText(page[at:]))
	return out.String()
}

// rewordText is Reword for text within markup: a name that a wish made up must
// not become a tag.
func (p *Plan) rewordText(s string) string {
	if strings.TrimSpace(s) == "" {
		return s
	}
	safe := &Plan{Renames: make([]Rename, len(p.Renames))}
	for i, r := range p.Renames {
		safe.Renames[i] = Rename{r.Old, html.EscapeString(r.New), r.Whole}
	}
	return safe.Reword(s)
}
