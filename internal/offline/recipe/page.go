package recipe

import (
	"html"
	"regexp"
	"strings"

	"dreamcore"
)

// Where a page's names may not be touched: tags (their attributes name files)
// and code.
var notText = regexp.MustCompile(`(?is)<!--.*?-->|<(script|style)\b.*?</(?:script|style)\s*>|<[^>]*>`)

// Where a page says its title and its language.
var (
	pageTitle = regexp.MustCompile(`(?i)(<title>)[^<\n]*(</title>)`)
	pageLang  = regexp.MustCompile(`(?i)(<html\b[^>]*\blang=["'])[^"']*`)
)

// RewordPage replaces the template's names in the text of an HTML page, and
// nowhere in its tags, scripts and styles; the page's own title and language
// become those of lang. The number of lines stays.
func (p *Plan) RewordPage(page string, lang dreamcore.Lang) string {
	page = p.rewordPage(page)
	if title := p.Title.In(lang); title != "" {
		page = replaceFirst(pageTitle, page, func(m []string) string { return m[1] + html.EscapeString(oneLine(title)) + m[2] })
		page = replaceFirst(pageLang, page, func(m []string) string { return m[1] + string(lang) })
	}
	return page
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func replaceFirst(re *regexp.Regexp, s string, by func([]string) string) string {
	at := re.FindStringSubmatchIndex(s)
	if at == nil {
		return s
	}
	return s[:at[0]] + by(re.FindStringSubmatch(s)) + s[at[1]:]
}

func (p *Plan) rewordPage(page string) string {
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
