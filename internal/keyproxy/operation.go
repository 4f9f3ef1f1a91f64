package keyproxy

import (
	"maps"

	"dreamcore/internal/egress"
	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/keyproxy/provider/anthropic"
	"dreamcore/internal/keyproxy/provider/openai"
)

// answers are the operations that the proxy knows, by the names in the declarations.
func answers() map[string]*provider.Operation {
	all := map[string]*provider.Operation{}
	for _, of := range []map[string]*provider.Operation{anthropic.Operations(), openai.Operations()} {
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
