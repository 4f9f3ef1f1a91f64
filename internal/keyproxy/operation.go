package keyproxy

import (
	"maps"
	"regexp"
	"strings"

	"dreamcore/internal/egress"
	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/keyproxy/provider/anthropic"
	"dreamcore/internal/keyproxy/provider/asset"
	"dreamcore/internal/keyproxy/provider/gemini"
	"dreamcore/internal/keyproxy/provider/npm"
	"dreamcore/internal/keyproxy/provider/openai"
)

// answers are the operations that the proxy knows, by the names in the declarations.
func answers() map[string]*provider.Operation {
	all := map[string]*provider.Operation{}
	for _, of := range []map[string]*provider.Operation{anthropic.Operations(), openai.Operations(), gemini.Operations(), npm.Operations(), asset.Operations()} {
		maps.Copy(all, of)
	}
	return all
}

// operations puts what the proxy knows onto the routes that are declared, one for
// each route but HEAD /. A declared route that nobody answers is not there.
func operations() []*provider.Operation {
	known := answers()
	var out []*provider.Operation
	seen := map[string]bool{}
	for _, d := range egress.Declarations(egress.Features()) {
		for _, r := range d.Routes {
			o := known[r.Operation]
			if o == nil || seen[r.String()] {
				continue
			}
			seen[r.String()] = true
			op := *o
			op.Method, op.Path, op.Feature = r.Method, r.Path, d.Feature
			out = append(out, &op)
		}
	}
	return out
}

// holes are what a part of a path in braces may be.
var holes = map[string]string{
	"{model}":   `([A-Za-z0-9][A-Za-z0-9._-]{0,127})`,
	"{package}": `((?:@[a-z0-9~-][a-z0-9._~-]{0,127}/)?[a-z0-9~][a-z0-9._~-]{0,127})`,
	"{file}":    `([A-Za-z0-9~][A-Za-z0-9._~+-]{0,213}\.tgz)`,
	"{host}":    `([a-z0-9][a-z0-9.-]{0,252})`,
	"{path...}": `([A-Za-z0-9_~@+-][A-Za-z0-9_/.~@+-]{0,199})`,
}

// table finds operations by path.
type table struct {
	fixed    map[string]map[string]*provider.Operation // path, then method
	patterns []pattern
}

// pattern is a path with holes.
type pattern struct {
	path    string
	match   *regexp.Regexp
	names   []string
	methods map[string]*provider.Operation
}

func newTable(ops []*provider.Operation) *table {
	t := &table{fixed: map[string]map[string]*provider.Operation{}}
	at := map[string]int{}
	for _, o := range ops {
		if !strings.Contains(o.Path, "{") {
			if t.fixed[o.Path] == nil {
				t.fixed[o.Path] = map[string]*provider.Operation{}
			}
			t.fixed[o.Path][o.Method] = o
			continue
		}
		i, ok := at[o.Path]
		if !ok {
			i = len(t.patterns)
			at[o.Path] = i
			t.patterns = append(t.patterns, newPattern(o.Path))
		}
		t.patterns[i].methods[o.Method] = o
	}
	return t
}

var hole = regexp.MustCompile(`\{[a-z]+(\.\.\.)?\}`)

func newPattern(path string) pattern {
	p := pattern{path: path, methods: map[string]*provider.Operation{}}
	expr, from := "^", 0
	for _, at := range hole.FindAllStringIndex(path, -1) {
		name := path[at[0]:at[1]]
		expr += regexp.QuoteMeta(path[from:at[0]]) + holes[name]
		p.names = append(p.names, strings.Trim(name, "{.}"))
		from = at[1]
	}
	p.match = regexp.MustCompile(expr + regexp.QuoteMeta(path[from:]) + "$")
	return p
}

// find returns the operations of a path by method, nil when there is no such
// path, and what stands in its holes.
func (t *table) find(path string) (methods map[string]*provider.Operation, parts map[string]string) {
	if m := t.fixed[path]; m != nil {
		return m, nil
	}
	for _, p := range t.patterns {
		if found := p.match.FindStringSubmatch(path); found != nil {
			parts = map[string]string{}
			for i, name := range p.names {
				parts[name] = found[i+1]
			}
			return p.methods, parts
		}
	}
	return nil, nil
}

// letters are those that a family's paths may have beside the usual ones.
var letters = map[string]string{"gemini": ":", "npm": ":@~+", "asset": "@~+"}

// scoped is the one form in which npm writes the slash of a scope as an escape.
var scoped = regexp.MustCompile(`^(/npm/@[a-z0-9~-][a-z0-9._~-]*)%2[fF]([a-z0-9~][a-z0-9._~-]*(/.*)?)$`)
