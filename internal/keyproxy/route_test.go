package keyproxy

import (
	"strings"
	"testing"
)

// testPicture is a red PNG of 2x2 pixels.
const testPicture = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="

func TestEveryModelRouteStreamsThroughAGrant(t *testing.T) {
	for _, path := range modelPaths {
		w := newWorld(t)
		r := w.post(path, minimal(path, true))
		if r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" || r.err != nil {
			t.Fatalf("%s: %d %v %s", path, r.status, r.err, r.body)
		}
		if !strings.Contains(r.body, "hel") || !strings.Contains(r.body, "lo") {
			t.Errorf("%s: the text is missing: %s", path, r.body)
		}
		req, body := w.up.seen()
		key := req.Header.Get("X-Api-Key") + strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		if key != canary {
			t.Errorf("%s: the operator's key did not arrive: %q", path, key)
		}
		if strings.Contains(strings.Join(req.Header.Values("Authorization"), " "), "v4.public") {
			t.Errorf("%s: the grant went upstream", path)
		}
		if body["model"] != "fake-model" {
			t.Errorf("%s: body %v", path, body)
		}
		a := w.settled(1)[0]
		if a.Decision != "allow" || a.Reason != "" || a.InputTokens != 100 || a.OutputTokens != 7 || a.Status != 200 || !a.Dialled {
			t.Errorf("%s: audit %+v", path, a)
		}
		u := w.usage()
		if u.Requests != 1 || u.InputTokens != 100 || u.OutputTokens != 7 || u.CostMicros != 405 {
			t.Errorf("%s: usage %+v", path, u)
		}
	}
}

func TestEveryRouteAnswersWhole(t *testing.T) {
	for _, path := range append([]string{imagesPath, messagesPath + "/count_tokens"}, modelPaths...) {
		w := newWorld(t)
		r := w.post(path, minimal(path, false))
		if r.status != 200 || r.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %s", path, r.status, r.body)
		}
	}
}
