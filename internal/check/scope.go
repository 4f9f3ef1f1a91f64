package check

import (
	"fmt"
	"path"
	"sort"
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// checkNames reports names that nothing defines.
func (c *checker) checkNames() {
	globals := map[string]bool{}
	anyBroken := false
	for _, s := range c.scripts {
		anyBroken = anyBroken || s.broken || s.tree == nil
		for name := range s.globals {
			globals[name] = true
		}
	}
	for _, p := range c.pages {
		for id := range p.ids {
			globals[id] = true // an element with an id is a global of that name
		}
	}
	c.checkClashes()
	for _, s := range c.scripts {
		if s.tree == nil || s.vendor {
			continue
		}
		var missing []*js.Var
		for _, v := range s.tree.BlockStmt.Scope.Undeclared {
			if v.Uses > 0 && !s.knows(string(v.Data), globals) {
				missing = append(missing, v)
			}
		}
		sort.SliceStable(missing, func(i, k int) bool { return s.place(missing[i].Data) < s.place(missing[k].Data) })
		for _, v := range missing {
			c.undefined(s, string(v.Data), s.place(v.Data), anyBroken)
		}
	}
	c.checkHandlers(globals)
	c.checkMembers()
}

// undefined reports one unknown name. While another script cannot be parsed, it
// may well be defined there.
func (c *checker) undefined(s *script, name string, line int, anyBroken bool) {
	if engine, ok := engines[name]; ok {
		switch loaded := c.engineLoaded(engine); loaded {
		case "":
			c.fail("engine_missing", s.name, line, "name", name, "file", engine.file)
		default:
			c.fail("engine_as_module", s.name, line, "name", name, "file", loaded)
		}
		return
	}
	if anyBroken {
		return
	}
	if s.scan.called[name] {
		c.fail("helper_call_unresolved", s.name, line, "name", quote(name)[1:len(quote(name))-1], "line", fmt.Sprint(line))
		return
	}
	c.fail("name_undefined", s.name, line, "name", quote(name)[1:len(quote(name))-1], "line", fmt.Sprint(line))
}

type engine struct{ word, file string }

// engines are the globals of vendored engines.
var engines = map[string]engine{
	"THREE":         {"three", "three.js"},
	"Phaser":        {"phaser", "phaser.js"},
	"PIXI":          {"pixi", "pixi.js"},
	"Kit":           {"kit", "kit/core.js"},
	"DreamCoreSDK2": {"dreamcore-sdk", "dreamcore-sdk.js"},
}

// engineLoaded returns the module file through which an engine is loaded, or "".
func (c *checker) engineLoaded(e engine) string {
	for _, s := range c.scripts {
		if s.module && strings.Contains(strings.ToLower(path.Base(s.name)), e.word) && s.name != "index.html" {
			return s.name
		}
		for _, im := range s.imports {
			if im.from == e.word || strings.Contains(strings.ToLower(path.Base(im.from)), e.word) {
				return s.name
			}
		}
	}
	return ""
}

// checkClashes reports let, const and class at the top of two classic scripts.
func (c *checker) checkClashes() {
	owner := map[string]*script{}
	lexical := map[string]bool{}
	for _, s := range c.scripts {
		if s.tree == nil || s.module {
			continue
		}
		mine := map[string]bool{}
		for _, v := range s.tree.BlockStmt.Scope.Declared {
			name := string(v.Data)
			isLexical := v.Decl == js.LexicalDecl
			if isLexical && unforgeable[name] {
				c.fail("duplicate_declaration", s.name, s.place(v.Data), "name", quote(name), "other", "window")
			}
			if was := owner[name]; was != nil && was != s && !mine[name] && (isLexical || lexical[name]) {
				c.fail("duplicate_declaration", s.name, s.place(v.Data), "name", quote(name), "other", was.name)
			}
			mine[name] = true
			if owner[name] == nil {
				owner[name] = s
			}
			lexical[name] = lexical[name] || isLexical
		}
	}
}

var unforgeable = map[string]bool{"window": true, "document": true, "location": true, "top": true, "undefined": true, "NaN": true, "Infinity": true}

// checkHandlers judges onclick="..." and the like: their code sees globals only.
func (c *checker) checkHandlers(globals map[string]bool) {
	for _, p := range c.pages {
		for _, h := range p.handlers {
			tree, err := func() (tree *js.AST, err error) {
				defer func() {
					if r := recover(); r != nil {
						err = fmt.Errorf("parser failed: %v", r)
					}
				}()
				return js.Parse(parse.NewInputString(h.code), js.Options{Inline: true})
			}()
			if err != nil {
				continue
			}
			for _, v := range tree.BlockStmt.Scope.Undeclared {
				name := string(v.Data)
				if v.Uses == 0 || name == "event" || browserNames[name] || globals[name] {
					continue
				}
				inModule := ""
				broken := false
				for _, s := range c.scripts {
					broken = broken || s.tree == nil
					if s.module && s.tree != nil {
						for _, d := range s.tree.BlockStmt.Scope.Declared {
							if string(d.Data) == name {
								inModule = s.name
							}
						}
					}
				}
				switch {
				case inModule != "":
					c.fail("handler_in_module", p.name, h.line, "name", quote(name), "file", inModule)
				case !broken:
					c.fail("handler_undefined", p.name, h.line, "name", quote(name), "event", quote("on"+h.name))
				}
			}
		}
	}
}

// checkMembers reports members of a library that its source never mentions.
func (c *checker) checkMembers() {
	for global, e := range engines {
		words := map[string]bool{}
		found := false
		for _, s := range c.scripts {
			if s.name == "index.html" || !s.vendor || !(strings.Contains(strings.ToLower(s.name), e.word)) {
				continue
			}
			found = true
			for _, w := range identifierPattern.FindAll(s.source, -1) {
				words[string(w)] = true
			}
		}
		if !found {
			continue
		}
		for _, s := range c.scripts {
			if s.vendor {
				continue
			}
			for _, m := range s.scan.uses[global] {
				if !words[m.name] && !c.assignsMember(global, m.name) {
					c.fail("engine_api_missing", s.name, m.line, "name", global+"."+m.name, "library", e.file)
				}
			}
		}
	}
}

func (c *checker) assignsMember(global, name string) bool {
	for _, s := range c.scripts {
		if s.scan.extends[global+"."+name] {
			return true
		}
	}
	return false
}

// checkModules judges imports and exports.
func (c *checker) checkModules() {
	byName := map[string]*script{}
	for _, s := range c.scripts {
		if s.element == 0 || s.module {
			byName[s.name] = s
		}
	}
	for _, s := range c.scripts {
		if !s.module && s.tree != nil && (len(s.imports) > 0 || len(s.exports) > 0 || len(s.stars) > 0) {
			c.fail("import_in_classic", s.name, s.line)
		}
		for _, im := range s.imports {
			if isExternal(im.from) {
				continue // said as an external URL
			}
			name, ok := c.locate(s, im.from)
			if !ok {
				if !s.vendor {
					c.fail("import_bare", s.name, im.line, "from", quote(im.from))
				}
				continue
			}
			if !c.project.has(name) {
				c.fail("import_unresolved", s.name, im.line, "from", quote(im.from))
				continue
			}
			target := byName[name]
			if target == nil || target.tree == nil || len(target.stars) > 0 {
				continue
			}
			for _, n := range im.names {
				if !target.exports[n] {
					c.fail("export_missing", s.name, im.line, "name", quote(n), "file", name)
				}
			}
		}
	}
}

// knows reports whether a name that the script does not declare in its scopes is
// there all the same: of the browser, of another script, or made by assigning.
func (s *script) knows(name string, globals map[string]bool) bool {
	if browserNames[name] || globals[name] || s.scan.bindings[name] || s.scan.guarded[name] || s.scan.blockFuncs[name] {
		return true
	}
	return !s.module && s.scan.written[name] // a loose script makes a global by assigning to it
}
