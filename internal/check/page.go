package check

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// page is one HTML file as far as rules ask for it.
type page struct {
	name      string
	title     string
	titleLine int
	hasTitle  bool
	viewport  bool
	charset   bool
	base      bool
	imports   map[string]string // of its import map
	scripts   []tagScript
	styles    []style
	ids       map[string]int // id to the number of its element in the page
	refs      []reference
	handlers  []handler
	texts     []textRun
	canvases  []canvasTag
	navigates []reference // links that leave the page
	elements  int
	focusable bool // some element has a tabindex
}

type tagScript struct {
	src     string
	inline  []byte
	line    int
	module  bool
	wait    bool // defer, async or module: runs when the page is parsed
	element int
}

type style struct {
	css  []byte
	line int
}

// reference is a URL in a file.
type reference struct {
	url  string
	line int
	tag  string
}

type handler struct {
	name, code string
	line       int
}

type textRun struct {
	text string
	line int
}

type canvasTag struct {
	id, width, height string
	line              int
}

// readPages parses index.html and the HTML files that it embeds.
func (c *checker) readPages() {
	for _, name := range c.project.names {
		if ext := strings.ToLower(path.Ext(name)); (ext == ".html" || ext == ".htm") && (name == "index.html" || c.embedded(name)) {
			c.pages = append(c.pages, parsePage(name, c.project.get(name).data))
		}
	}
}

// embedded reports whether index.html mentions the file; another page that
// nobody opens is not part of the game.
func (c *checker) embedded(name string) bool {
	return bytes.Contains(c.project.get("index.html").data, []byte(path.Base(name)))
}

func parsePage(name string, data []byte) *page {
	p := &page{name: name, ids: map[string]int{}, imports: map[string]string{}}
	z := html.NewTokenizer(bytes.NewReader(data))
	line := 1
	inTitle := false
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			return p
		}
		raw := z.Raw()
		start := line
		line += bytes.Count(raw, []byte{'\n'})
		switch kind {
		case html.TextToken:
			if t := strings.TrimSpace(html.UnescapeString(string(raw))); t != "" {
				if inTitle {
					p.title = t
				} else {
					p.texts = append(p.texts, textRun{t, start})
				}
			}
		case html.EndTagToken:
			inTitle = false
		case html.StartTagToken, html.SelfClosingTagToken:
			tag, attr := readTag(z)
			p.elements++
			switch tag {
			case "title":
				inTitle, p.hasTitle, p.titleLine = true, true, start
			case "script":
				line += p.script(z, attr, start, line)
			case "style":
				if z.Next() == html.TextToken {
					css := append([]byte(nil), z.Raw()...)
					p.styles = append(p.styles, style{css, line})
					line += bytes.Count(css, []byte{'\n'})
				}
			}
			p.element(tag, attr, start)
		}
	}
}

// script takes in a script element with its text and returns how many lines the
// text has.
func (p *page) script(z *html.Tokenizer, attr map[string]string, start, line int) int {
	kind := strings.ToLower(strings.TrimSpace(attr["type"]))
	s := tagScript{src: attr["src"], line: start, module: kind == "module", element: p.elements}
	_, deferred := attr["defer"]
	_, async := attr["async"]
	s.wait = s.module || ((deferred || async) && s.src != "")
	lines := 0
	if z.Next() == html.TextToken {
		s.inline = append([]byte(nil), z.Raw()...)
		lines = bytes.Count(s.inline, []byte{'\n'})
		s.line = line
	}
	switch kind {
	case "", "module", "text/javascript", "application/javascript":
		if s.src != "" {
			s.inline = nil
		}
		p.scripts = append(p.scripts, s)
	case "importmap":
		var m struct {
			Imports map[string]string `json:"imports"`
		}
		// A map that is no JSON maps nothing; the imports then say so.
		if json.Unmarshal(s.inline, &m) == nil {
			p.imports = m.Imports
			for _, url := range m.Imports {
				if !strings.HasSuffix(url, "/") { // a prefix is no file
					p.refs = append(p.refs, reference{url, start, "importmap"})
				}
			}
		}
	}
	return lines
}

func readTag(z *html.Tokenizer) (string, map[string]string) {
	name, more := z.TagName()
	tag := string(name)
	attr := map[string]string{}
	for more {
		var key, value []byte
		key, value, more = z.TagAttr()
		if _, ok := attr[string(key)]; !ok {
			attr[string(key)] = string(value)
		}
	}
	return tag, attr
}

func (p *page) element(tag string, attr map[string]string, line int) {
	if id := attr["id"]; id != "" {
		p.ids[id] = p.elements
	}
	if _, ok := attr["tabindex"]; ok {
		p.focusable = true
	}
	for key, value := range attr {
		if strings.HasPrefix(key, "on") && len(key) > 2 {
			p.handlers = append(p.handlers, handler{key[2:], value, line})
		}
	}
	if s := attr["style"]; s != "" {
		p.styles = append(p.styles, style{[]byte(s), line})
	}
	switch tag {
	case "meta":
		switch strings.ToLower(attr["name"]) {
		case "viewport":
			p.viewport = true
		}
		if attr["charset"] != "" || strings.Contains(strings.ToLower(attr["content"]), "charset=") {
			p.charset = true
		}
		if strings.EqualFold(attr["http-equiv"], "refresh") {
			p.navigates = append(p.navigates, reference{attr["content"], line, "meta refresh"})
		}
	case "base":
		p.base = true
	case "a", "area":
		if href := strings.TrimSpace(attr["href"]); href != "" && !strings.HasPrefix(href, "#") && !strings.HasPrefix(strings.ToLower(href), "javascript:") {
			p.navigates = append(p.navigates, reference{href, line, tag})
		}
	case "form":
		if attr["action"] != "" {
			p.navigates = append(p.navigates, reference{attr["action"], line, tag})
		}
	case "canvas":
		p.canvases = append(p.canvases, canvasTag{attr["id"], attr["width"], attr["height"], line})
	case "link":
		if attr["href"] != "" && !strings.EqualFold(attr["rel"], "canonical") {
			p.refs = append(p.refs, reference{attr["href"], line, tag})
		}
	}
	if tag != "a" && tag != "link" {
		for _, key := range []string{"src", "poster", "data", "href", "xlink:href"} {
			if v := strings.TrimSpace(attr[key]); v != "" && (key != "data" || tag == "object") && (key != "href" || tag == "image" || tag == "use") {
				p.refs = append(p.refs, reference{v, line, tag})
			}
		}
	}
	for _, part := range strings.Split(attr["srcset"], ",") {
		if fields := strings.Fields(part); len(fields) > 0 {
			p.refs = append(p.refs, reference{fields[0], line, tag})
		}
	}
}

var placeholderTitle = regexp.MustCompile(`(?i)^(document|untitled( document)?|(my |new |test |the |phaser |html5? )?(game|app|page|project)|title( here)?|your title.*|game title|todo.*|template|skeleton|hello world|index)$`)

// checkPages judges the markup itself.
func (c *checker) checkPages() {
	for _, p := range c.pages {
		if p.name != "index.html" {
			continue
		}
		if !p.viewport {
			c.fail("viewport_missing", p.name, 0)
		}
		if !p.charset {
			c.fail("charset_missing", p.name, 0)
		}
		switch {
		case !p.hasTitle || p.title == "":
			c.fail("title_missing", p.name, p.titleLine)
		case placeholderTitle.MatchString(p.title):
			c.fail("title_placeholder", p.name, p.titleLine, "title", quote(p.title))
		}
		if len(p.scripts) == 0 {
			c.fail("no_script", p.name, 0)
		}
	}
	for _, p := range c.pages {
		if p.base {
			c.fail("base_tag", p.name, 0)
		}
		for _, t := range p.texts {
			if todoText.MatchString(t.text) {
				c.fail("todo_visible", p.name, t.line, "text", quote(t.text))
			}
		}
		for _, n := range p.navigates {
			switch {
			case n.tag == "meta refresh" || n.tag == "form":
				c.fail("navigation", p.name, n.line, "what", quote(n.tag+" "+n.url))
			case isExternal(n.url):
				c.fail("external_link", p.name, n.line, "url", quote(n.url))
			}
		}
		for _, cv := range p.canvases {
			if len(cv.width) >= 4 && cv.width > "0480" && !c.scales() {
				c.warn("size_fixed", p.name, cv.line, "width", quote(cv.width))
			}
		}
	}
}

var todoText = regexp.MustCompile(`(?i)^\s*(todo\b|fixme\b|lorem ipsum|placeholder\b|your (game|text|title) here)`)

// scales reports whether anything in the game looks able to fit a canvas to the
// screen.
func (c *checker) scales() bool {
	for _, name := range c.project.names {
		switch strings.ToLower(path.Ext(name)) {
		case ".html", ".js", ".mjs", ".css":
			data := c.project.get(name).data
			for _, word := range []string{"innerWidth", "clientWidth", "max-width", "width:100%", "width: 100%", "100vw", "resize", "Scale.FIT", "object-fit"} {
				if bytes.Contains(data, []byte(word)) {
					return true
				}
			}
		}
	}
	return false
}
