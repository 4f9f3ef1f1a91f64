// Package check reads a game's files and finds what would keep it from working:
// names that nothing defines, files that are not there, requests to elsewhere,
// input that nobody can give. It runs nothing of the game.
//
// Every finding says what is wrong, where, and how to fix it, in the language
// that was asked for; never how to make the checker look away. A rule that
// cannot be sure stays silent or warns: a FAIL on a good game is worse than a
// fault that the playtest will find.
package check

import (
	"context"
	"encoding/json"
	"io/fs"
	"slices"
	"sort"
	"strings"

	"dreamcore"
	"dreamcore/internal/text"
)

// Version changes whenever a verdict may change.
const Version = "1"

// maxFindings bounds a report; the first ones are the most important.
const maxFindings = 60

// Options says how to judge.
type Options struct {
	// Lang is the language of findings; empty is English.
	Lang dreamcore.Lang
	// Template is the folder that was delivered to the agent, when the host
	// judges: files that are still as they came are trusted, pictures that were
	// there must be pictures, and its hero must not be left over. nil: unknown.
	Template fs.FS
}

// Run checks the game in fsys.
func Run(ctx context.Context, fsys fs.FS, opt Options) dreamcore.Report {
	if opt.Lang == "" {
		opt.Lang = dreamcore.English
	}
	c := &checker{ctx: ctx, opt: opt, seen: map[string]bool{}}
	if c.load(fsys) {
		c.run()
	}
	sort.SliceStable(c.findings, func(i, k int) bool {
		a, b := c.findings[i], c.findings[k]
		if a.Severity != b.Severity {
			return a.Severity == dreamcore.Fail
		}
		return rank(a.Code) < rank(b.Code)
	})
	if len(c.findings) > maxFindings {
		c.findings = c.findings[:maxFindings]
	}
	report := dreamcore.Report{Tool: "check", Version: Version, Findings: c.findings}
	if report.Findings == nil {
		report.Findings = []dreamcore.Finding{}
	}
	report.Judge()
	return report
}

// first lists what to mend before anything else: it may be the cause of the rest.
var first = []string{"index_missing", "syntax_error", "json_syntax", "duplicate_declaration", "import_unresolved", "import_bare", "engine_missing", "engine_as_module", "helper_call_unresolved", "name_undefined"}

func rank(code string) int {
	if i := slices.Index(first, code); i >= 0 {
		return i
	}
	return len(first)
}

// checker is one check on its way.
type checker struct {
	ctx      context.Context
	opt      Options
	project  *project
	pages    []*page
	scripts  []*script // those that run, in the order in which they run
	findings []dreamcore.Finding
	seen     map[string]bool
}

func (c *checker) run() {
	c.project.oversize(c)
	c.checkJSON()
	c.checkSecrets()
	if c.project.get("index.html") == nil {
		c.fail("index_missing", "", 0)
		return
	}
	c.readPages()
	c.readScripts()
	if c.ctx.Err() != nil {
		return
	}
	c.checkPages()
	c.checkNames()
	c.checkModules()
	c.checkUse()
	c.checkInput()
	c.checkElements()
	c.checkSDK()
	c.checkAssets()
	c.checkPictures()
	c.checkLeftovers()
}

func (c *checker) fail(code, file string, line int, args ...string) {
	c.find(dreamcore.Fail, code, file, line, args...)
}

func (c *checker) warn(code, file string, line int, args ...string) {
	c.find(dreamcore.Warn, code, file, line, args...)
}

// find adds a finding once. Its texts stand in the catalogue under its code.
func (c *checker) find(severity dreamcore.Severity, code, file string, line int, args ...string) {
	f := dreamcore.Finding{
		Code: code, Severity: severity, File: file, Line: line,
		Message: text.T(c.opt.Lang, "check."+code, args...),
		Fix:     text.T(c.opt.Lang, "check."+code+"_fix", args...),
	}
	key := code + "\x00" + file + "\x00" + f.Message
	if c.seen[key] {
		return
	}
	c.seen[key] = true
	c.findings = append(c.findings, f)
}

// quote makes text out of the game safe to print: one line, capped, in quotes.
func quote(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\u202e' || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80]) + "…"
	}
	b, err := json.Marshal(s)
	if err != nil {
		return `"?"`
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(b))
}
