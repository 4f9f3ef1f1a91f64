package engine

import (
	"net/http"
	"strings"
)

// matters are what E2B's cloud has and a sandbox engine has not, by the first
// part of the path.
var matters = map[string]string{
	"templates":     "template builds: it boots images, which `dreamcore image build` makes; name one by its digest, or \"base\"",
	"volumes":       "volumes: a sandbox's files end with it",
	"secrets":       "a store of secrets: give a sandbox what it may know as environment variables",
	"teams":         "teams: whoever has the key has everything",
	"api-keys":      "keys to make: its one key is set when it starts",
	"access-tokens": "access tokens to make: its one key is set when it starts",
	"nodes":         "nodes: it is one machine",
	"admin":         "an administration over HTTP",
	"events":        "events and webhooks",
	"webhooks":      "events and webhooks",
	"sandboxes":     "that operation on sandboxes",
}

// serveMissing answers for everything that is not served: which matter it is,
// with a numeric code, which is what E2B's clients look at.
func (e *Engine) serveMissing(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) > 1 && len(parts[0]) == 2 && parts[0][0] == 'v' {
		parts = parts[1:] // the version
	}
	asked := r.Method + " " + clip(r.URL.Path, 100)
	matter, ok := matters[parts[0]]
	if !ok {
		e.log.Info("a request is not served", "decision", "refused", "reason", "unknown_path", "request", asked)
		refuse(w, http.StatusNotFound, "this engine has no "+asked)
		return
	}
	e.log.Info("a request is not served", "decision", "refused", "reason", "cloud_matter", "request", asked)
	refuse(w, http.StatusNotImplemented, "this engine has no "+matter+" ("+asked+")")
}
