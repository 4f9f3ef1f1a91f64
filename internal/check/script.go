package check

import (
	"fmt"
	"path"
	"strings"
	"unsafe"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// script is one piece of JavaScript of the game.
type script struct {
	name    string // the file that it stands in
	line    int    // line of its first character in that file
	source  []byte
	module  bool
	wait    bool // runs when the page is parsed
	element int  // number of its element in the page; 0 for imported modules
	vendor  bool
	tree    *js.AST // nil when it could not be parsed
	broken  bool    // it has a syntax error

	imports []imported
	exports map[string]bool
	stars   []string // modules whose exports it passes on
	globals map[string]bool
	scan    *scan
}

type imported struct {
	from  string
	names []string
	line  int
}

// place turns bytes of the source into a line of the file.
func (s *script) place(data []byte) int {
	if len(data) == 0 || len(s.source) == 0 {
		return s.line
	}
	// The parser's names are slices of the source.
	offset := int(uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.source))))
	if offset < 0 || offset >= len(s.source) {
		return s.line
	}
	return s.line - 1 + lineAt(s.source, offset)
}

// readScripts parses all scripts that the pages load, then what they import.
func (c *checker) readScripts() {
	modules := map[string]bool{}
	var queue []*script
	for _, p := range c.pages {
		for _, t := range p.scripts {
			s := &script{name: p.name, line: t.line, source: t.inline, module: t.module, wait: t.wait, element: t.element}
			if t.src != "" {
				name, ok := resolve(p.name, t.src)
				if !ok || !c.project.has(name) {
					continue // a finding of the assets
				}
				if t.module && modules[name] {
					continue
				}
				modules[name] = t.module
				s.name, s.line, s.source = name, 1, c.project.get(name).data
				s.vendor = c.project.isVendored(name)
			}
			c.parse(s)
			c.scripts = append(c.scripts, s)
			queue = append(queue, s)
		}
	}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		for _, im := range s.imports {
			name, ok := c.locate(s, im.from)
			if !ok || modules[name] || !c.project.has(name) || strings.HasSuffix(name, ".json") {
				continue
			}
			modules[name] = true
			m := &script{name: name, line: 1, source: c.project.get(name).data, module: true, wait: true, vendor: c.project.isVendored(name)}
			c.parse(m)
			c.scripts = append(c.scripts, m)
			queue = append(queue, m)
		}
	}
	// Scripts that no page loads are only read for their grammar: workers and
	// leftovers alike.
	used := map[string]bool{}
	for _, s := range c.scripts {
		used[s.name] = true
	}
	for _, name := range c.project.names {
		if ext := path.Ext(name); (ext == ".js" || ext == ".mjs") && !used[name] {
			s := &script{name: name, line: 1, source: c.project.get(name).data, module: ext == ".mjs", vendor: c.project.isVendored(name)}
			c.grammar(s)
		}
	}
}

// locate finds the file that an import names, through the page's import map.
func (c *checker) locate(s *script, from string) (string, bool) {
	if strings.HasPrefix(from, "./") || strings.HasPrefix(from, "../") {
		return resolve(s.name, from)
	}
	for _, p := range c.pages {
		if url, ok := p.imports[from]; ok {
			return resolve(p.name, url)
		}
		for key, url := range p.imports {
			if strings.HasSuffix(key, "/") && strings.HasPrefix(from, key) {
				return resolve(p.name, url+strings.TrimPrefix(from, key))
			}
		}
	}
	return "", false
}

// grammar reports a syntax error; esbuild is the judge.
func (c *checker) grammar(s *script) bool {
	if len(s.source) > maxTextBytes {
		return false
	}
	result := api.Transform(string(s.source), api.TransformOptions{
		Loader: api.LoaderJS, Target: api.ESNext, LogLevel: api.LogLevelSilent, LogLimit: 3,
	})
	for _, e := range result.Errors {
		line := s.line
		if e.Location != nil {
			line = s.line - 1 + e.Location.Line
		}
		code := "syntax_error"
		switch {
		case strings.Contains(e.Text, "has already been declared"):
			code = "duplicate_declaration"
		case strings.Contains(e.Text, "Unexpected end of file"):
			code = "file_cut_off"
		}
		c.fail(code, s.name, line, "error", quote(e.Text), "name", quote(betweenQuotes(e.Text)), "other", s.name)
		s.broken = true
	}
	return !s.broken
}

func betweenQuotes(s string) string {
	if _, rest, ok := strings.Cut(s, `"`); ok {
		if name, _, ok := strings.Cut(rest, `"`); ok {
			return name
		}
	}
	return s
}

// parse fills in the tree and the facts of a script.
func (c *checker) parse(s *script) {
	s.globals = map[string]bool{}
	s.exports = map[string]bool{}
	s.scan = newScan(s)
	// With a spare byte at the end the parser works in place, so that its names
	// are slices of the source.
	s.source = append(make([]byte, 0, len(s.source)+1), s.source...)
	if !c.grammar(s) {
		return
	}
	tree, err := parseJS(s.source)
	if err != nil {
		// esbuild understood it and decides; but a return outside a function is
		// a fault in a browser that esbuild allows.
		if !s.module && strings.Contains(err.Error(), "return") {
			c.fail("syntax_error", s.name, s.line, "error", quote(firstLine(err.Error())))
			s.broken = true
		}
		return
	}
	s.tree = tree
	s.readModule()
	js.Walk(s.scan, tree)
	for _, v := range tree.BlockStmt.Scope.Declared {
		if !s.module {
			s.globals[string(v.Data)] = true
		}
	}
	for name := range s.scan.assigned {
		s.globals[name] = true
	}
	if s.vendor {
		for name := range s.scan.members {
			s.globals[name] = true
		}
	}
}

// parseJS guards against a parser that fails on purpose-made input.
func parseJS(source []byte) (tree *js.AST, err error) {
	defer func() {
		if r := recover(); r != nil {
			tree, err = nil, fmt.Errorf("parser failed: %v", r)
		}
	}()
	return js.Parse(parse.NewInputBytes(source), js.Options{})
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// readModule gathers imports and exports.
func (s *script) readModule() {
	for _, stmt := range s.tree.BlockStmt.List {
		switch n := stmt.(type) {
		case *js.ImportStmt:
			im := imported{from: unquote(n.Module), line: s.place(n.Module)}
			if n.Default != nil {
				im.names = append(im.names, "default")
				s.scan.bindings[string(n.Default)] = true
			}
			for _, a := range n.List {
				name, binding := string(a.Name), string(a.Binding)
				if name == "" {
					name = binding
				}
				if name != "*" {
					im.names = append(im.names, name)
				}
				s.scan.bindings[binding] = true
			}
			s.imports = append(s.imports, im)
		case *js.ExportStmt:
			s.export(n)
		}
	}
}

func (s *script) export(n *js.ExportStmt) {
	if n.Default {
		s.exports["default"] = true
	}
	for _, a := range n.List {
		name := string(a.Binding)
		if name == "" {
			name = string(a.Name)
		}
		if string(a.Name) == "*" && len(a.Binding) == 0 || name == "*" {
			s.stars = append(s.stars, unquote(n.Module))
			continue
		}
		s.exports[unquote([]byte(name))] = true
	}
	if len(n.Module) > 0 {
		s.imports = append(s.imports, imported{from: unquote(n.Module), line: s.place(n.Module)})
	}
	switch d := n.Decl.(type) {
	case *js.FuncDecl:
		if d.Name != nil {
			s.exports[string(d.Name.Data)] = true
		}
	case *js.ClassDecl:
		if d.Name != nil {
			s.exports[string(d.Name.Data)] = true
		}
	case *js.VarDecl:
		for _, b := range d.List {
			for _, v := range boundNames(b.Binding) {
				s.exports[v] = true
			}
		}
	}
}

// boundNames lists the names that a binding declares.
func boundNames(b js.IBinding) []string {
	switch b := b.(type) {
	case *js.Var:
		return []string{string(b.Data)}
	case *js.BindingArray:
		var names []string
		for _, e := range b.List {
			names = append(names, boundNames(e.Binding)...)
		}
		return append(names, boundNames(b.Rest)...)
	case *js.BindingObject:
		var names []string
		for _, e := range b.List {
			names = append(names, boundNames(e.Value.Binding)...)
		}
		if b.Rest != nil {
			names = append(names, string(b.Rest.Data))
		}
		return names
	}
	return nil
}

func unquote(b []byte) string {
	s := string(b)
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'' || s[0] == '`') && s[len(s)-1] == s[0] {
		s = s[1 : len(s)-1]
	}
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\'`, `'`, `\"`, `"`, "\\`", "`", `\/`, `/`, `\n`, "\n").Replace(s)
}
