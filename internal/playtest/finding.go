package playtest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"dreamcore"
	"dreamcore/internal/text"
)

// pageErrors adds a finding for each error of the page, once.
func (j *judge) pageErrors(f facts) {
	for _, e := range f.Errors {
		if slices.Contains(j.report.Errors, e) || len(j.report.Errors) >= 10 {
			continue
		}
		j.report.Errors = append(j.report.Errors, e)
		if len(j.report.Errors) <= 4 {
			file, line := errorPlace(e)
			j.findAt("page_error", dreamcore.Fail, file, line, "error", quote(e))
		}
	}
}

// find adds a finding whose texts stand in the catalogue under its code.
func (j *judge) find(code string, severity dreamcore.Severity, args ...string) {
	j.findAt(code, severity, "", 0, args...)
}

func (j *judge) findAt(code string, severity dreamcore.Severity, file string, line int, args ...string) {
	f := dreamcore.Finding{
		Code: code, Severity: severity, File: file, Line: line,
		Message: text.T(j.opt.Lang, "playtest."+code, args...),
		Fix:     text.T(j.opt.Lang, "playtest."+code+"_fix", args...),
	}
	if !slices.Contains(j.report.Findings, f) {
		j.report.Findings = append(j.report.Findings, f)
	}
}

// findOnce is find, for what may be seen in many arms: equal findings are one.
func (j *judge) findOnce(code string, severity dreamcore.Severity, args ...string) {
	j.find(code, severity, args...)
}

// clean makes a text from the page safe to print: one line, capped.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\u202e' || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}

// quote marks a text from the page as data.
func quote(s string) string {
	b, err := json.Marshal(clean(s, 160))
	if err != nil {
		return `"?"`
	}
	return string(b)
}

var placePattern = regexp.MustCompile(`\(((?:[\w-]+/)*[\w.-]+\.\w+):(\d+)\)$`)

// errorPlace reads "(game.js:12)" from the end of an error of the page.
func errorPlace(e string) (string, int) {
	m := placePattern.FindStringSubmatch(e)
	if m == nil {
		return "", 0
	}
	line := 0
	for _, c := range m[2] {
		line = line*10 + int(c-'0')
		if line > 1_000_000 {
			return m[1], 0
		}
	}
	return m[1], line
}
