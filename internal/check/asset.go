package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"
)

// schemes of URLs that leave the game.
var externalPattern = regexp.MustCompile(`(?i)^\s*(?:https?:|wss?:|ftp:)?//[^/\s]`)

// isExternal reports whether a URL leads out of the game. Names of XML
// namespaces look like URLs and are none.
func isExternal(url string) bool {
	if !externalPattern.MatchString(url) {
		return false
	}
	return !strings.HasPrefix(url, "http://www.w3.org/") && !strings.HasPrefix(url, "https://www.w3.org/")
}

// namesFile matches strings that name a file of a game.
var namesFile = regexp.MustCompile(`(?i)^[^\s<>{}"'|*?:]*[\w)\]-]\.(png|jpe?g|gif|webp|avif|svg|bmp|mp3|ogg|wav|m4a|aac|flac|mp4|webm|json|js|mjs|css|wasm|glb|gltf|obj|mtl|hdr|ktx2|fnt|atlas|tmx|ttf|otf|woff2?)([?#]\S*)?$`)

// checkAssets judges every reference to a file or URL.
func (c *checker) checkAssets() {
	for _, p := range c.pages {
		for _, r := range p.refs {
			c.reference(p.name, r.url, r.line)
		}
		for _, st := range p.styles {
			c.stylesheet(p.name, st.css, st.line, strings.Contains(string(st.css), "{"))
		}
	}
	for _, name := range c.project.names {
		if path.Ext(name) == ".css" {
			c.stylesheet(name, c.project.get(name).data, 1, true)
		}
	}
	c.own(func(s *script) {
		for _, l := range s.scan.strings {
			c.codeString(s, l)
		}
	})
	for _, name := range c.project.names {
		if path.Ext(name) == ".json" && name != "template.json" {
			c.jsonStrings(name)
		}
	}
}

// reference judges a URL that certainly is one.
func (c *checker) reference(from, url string, line int) {
	url = strings.TrimSpace(url)
	lower := strings.ToLower(url)
	switch {
	case url == "" || strings.HasPrefix(lower, "data:") || strings.HasPrefix(lower, "blob:") || strings.HasPrefix(url, "#") ||
		strings.HasPrefix(lower, "about:") || strings.HasPrefix(lower, "javascript:"):
		return
	case isExternal(url) || strings.HasPrefix(url, "//"):
		c.fail("external_url", from, line, "url", quote(url))
		return
	case strings.HasPrefix(lower, "file:"):
		c.fail("asset_path", from, line, "path", quote(url))
		return
	case strings.Contains(url, `\`):
		c.fail("asset_backslash", from, line, "path", quote(url))
		return
	case strings.HasPrefix(url, "/"):
		c.fail("asset_path", from, line, "path", quote(url))
		return
	}
	name, ok := resolve(from, unescape(url))
	if !ok {
		c.fail("asset_path", from, line, "path", quote(url))
		return
	}
	c.present(from, name, url, line)
}

func unescape(url string) string { return strings.ReplaceAll(url, "%20", " ") }

// present reports a file that is not there, or only with other letters.
func (c *checker) present(from, name, written string, line int) {
	if c.project.has(name) {
		return
	}
	if real, ok := c.project.lower[strings.ToLower(name)]; ok {
		c.fail("asset_case", from, line, "path", quote(written), "file", real)
		return
	}
	c.fail("asset_missing", from, line, "path", quote(written))
}

// codeString judges a string in a script. Where it may be a part of a path or
// no path at all, only certainty is reported.
func (c *checker) codeString(s *script, l literal) {
	v := strings.TrimSpace(l.value)
	if isExternal(v) && l.role != "compared" {
		c.fail("external_url", s.name, l.line, "url", quote(v))
		return
	}
	if l.role == "template" {
		if m := externalInside.FindString(l.value); m != "" && isExternal(m) {
			c.fail("external_url", s.name, l.line, "url", quote(m))
		}
		return
	}
	if !namesFile.MatchString(v) || l.role == "compared" || strings.HasPrefix(v, "data:") || strings.HasPrefix(v, ".") && strings.Count(v, ".") == 1 && !strings.Contains(v, "/") {
		return
	}
	callee := l.callee[strings.LastIndexByte(l.callee, '.')+1:]
	if notPaths[callee] || strings.HasPrefix(l.callee, "console.") || strings.HasSuffix(l.target, ".download") || strings.HasSuffix(l.callee, "Error") {
		return
	}
	for _, im := range s.imports {
		if im.from == v {
			return // said as an import
		}
	}
	if strings.Contains(v, `\`) {
		c.fail("asset_backslash", s.name, l.line, "path", quote(v))
		return
	}
	page := "index.html" // URLs in scripts are relative to the page
	if strings.HasPrefix(v, "/") {
		if c.suffix(strings.TrimPrefix(v, "/")) != "" {
			c.fail("asset_path", s.name, l.line, "path", quote(v))
		} else {
			c.fail("asset_missing", s.name, l.line, "path", quote(v))
		}
		return
	}
	name, ok := resolve(page, unescape(v))
	if !ok {
		c.fail("asset_path", s.name, l.line, "path", quote(v))
		return
	}
	if c.project.has(name) {
		return
	}
	if beside, ok := resolve(s.name, unescape(v)); ok && c.project.has(beside) {
		return // import.meta.url and modules are relative to themselves
	}
	if c.suffix(name) != "" {
		return // a part of a path: 'assets/' + 'hero.png', setPath and the like
	}
	if real := c.suffixFold(name); real != "" {
		c.fail("asset_case", s.name, l.line, "path", quote(v), "file", real)
		return
	}
	c.fail("asset_missing", s.name, l.line, "path", quote(v))
}

var externalInside = regexp.MustCompile(`(?i)\b(https?|wss?)://[\w.-]+\.[a-z]{2,}[^\s"']*`)

// notPaths are functions whose strings may look like files and are none.
var notPaths = map[string]bool{
	"endsWith": true, "startsWith": true, "includes": true, "indexOf": true, "test": true, "match": true, "replace": true,
	"split": true, "log": true, "warn": true, "error": true, "setItem": true, "getItem": true, "getElementById": true,
	"fillText": true, "createTextNode": true, "has": true, "localeCompare": true,
}

// suffix returns a file whose path ends with name.
func (c *checker) suffix(name string) string {
	for _, n := range c.project.names {
		if n == name || strings.HasSuffix(n, "/"+name) {
			return n
		}
	}
	return ""
}

func (c *checker) suffixFold(name string) string {
	name = strings.ToLower(name)
	for _, n := range c.project.names {
		if l := strings.ToLower(n); l == name || strings.HasSuffix(l, "/"+name) {
			return n
		}
	}
	return ""
}

// stylesheet judges the URLs of a stylesheet, or of a style attribute.
func (c *checker) stylesheet(name string, data []byte, line int, whole bool) {
	lexer := css.NewLexer(parse.NewInputBytes(append(make([]byte, 0, len(data)+1), data...)))
	at := line
	importing := false
	for {
		kind, text := lexer.Next()
		start := at
		at += bytes.Count(text, []byte{'\n'})
		switch kind {
		case css.ErrorToken:
			if err := lexer.Err(); err != io.EOF && whole {
				c.warn("css_broken", name, start)
			}
			return
		case css.AtKeywordToken:
			importing = strings.EqualFold(string(text), "@import")
		case css.SemicolonToken:
			importing = false
		case css.StringToken:
			if importing {
				c.reference(name, unquote(text), start)
			}
		case css.URLToken:
			url := strings.TrimSpace(strings.TrimSuffix(string(text)[4:], ")"))
			c.reference(name, unquote([]byte(url)), start)
		}
	}
}

// checkJSON reports JSON files that no browser can read.
func (c *checker) checkJSON() {
	for _, name := range c.project.names {
		if path.Ext(name) != ".json" {
			continue
		}
		f := c.project.get(name)
		if f.size > maxReadBytes || f.trusted {
			continue
		}
		var v any
		if err := json.Unmarshal(bytes.TrimPrefix(f.data, []byte("\xef\xbb\xbf")), &v); err != nil {
			offset := len(f.data)
			if e, ok := err.(*json.SyntaxError); ok {
				offset = int(e.Offset)
			}
			c.fail("json_syntax", name, lineAt(f.data, min(offset, len(f.data))), "error", quote(err.Error()))
		}
	}
}

// jsonStrings judges the files that a JSON file names.
func (c *checker) jsonStrings(name string) {
	f := c.project.get(name)
	var v any
	if json.Unmarshal(f.data, &v) != nil {
		return
	}
	walkJSON(v, func(s string) {
		line := lineAt(f.data, max(0, bytes.Index(f.data, []byte(fmt.Sprintf("%q", s)))))
		if isExternal(s) && (namesFile.MatchString(lastPart(s))) {
			c.fail("external_url", name, line, "url", quote(s))
			return
		}
		if !namesFile.MatchString(s) || isExternal(s) {
			return
		}
		if strings.Contains(s, `\`) {
			c.fail("asset_backslash", name, line, "path", quote(s))
			return
		}
		clean := strings.TrimPrefix(path.Clean("/"+s), "/")
		if beside, ok := resolve(name, s); ok && c.project.has(beside) || c.suffix(clean) != "" {
			return
		}
		if real := c.suffixFold(clean); real != "" {
			c.fail("asset_case", name, line, "path", quote(s), "file", real)
			return
		}
		c.fail("asset_missing", name, line, "path", quote(s))
	})
}

func lastPart(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

func walkJSON(v any, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, e := range v {
			walkJSON(e, visit)
		}
	case map[string]any:
		for _, e := range v {
			walkJSON(e, visit)
		}
	}
}

// secretPatterns are shapes of credentials that must never be published.
var secretPatterns = []*regexp.Regexp{
	regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`),
	regexp.MustCompile(`\bAKIA[0-9A-Z]{16}\b`),
	regexp.MustCompile(`\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}\b`),
	regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{30,}\b`),
	regexp.MustCompile(`\bxox[abps]-[A-Za-z0-9-]{20,}\b`),
	regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}\b`),
	regexp.MustCompile(`\bv4\.public\.[A-Za-z0-9_-]{60,}`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{20,}`),
}

// checkSecrets reports credentials and files that hold them. The value itself
// is not repeated.
func (c *checker) checkSecrets() {
	for _, name := range c.project.names {
		base := path.Base(name)
		if base == ".env" || strings.HasPrefix(base, ".env.") || base == "id_rsa" || base == "id_ed25519" || base == ".npmrc" || base == ".netrc" {
			c.fail("secret_file", name, 0)
			continue
		}
		switch strings.ToLower(path.Ext(name)) {
		case ".js", ".mjs", ".html", ".htm", ".css", ".json", ".txt", ".md", ".svg", ".pem", ".key", "":
		default:
			continue
		}
		f := c.project.get(name)
		if f.trusted {
			continue
		}
		for _, p := range secretPatterns {
			if at := p.FindIndex(f.data); at != nil {
				c.fail("secret", name, lineAt(f.data, at[0]))
			}
		}
	}
}
