package keyproxy

import (
	"net/http"
	"strings"
	"testing"

	"dreamcore"
)

// What calls meet is counted, and each change of an upstream's state is one
// line; what is the client's own doing does not count.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	of := func() UpstreamHealth {
		h := w.p.Health()
		if !h.Plausible() {
			t.Errorf("%+v", h)
		}
		for _, u := range h.Upstreams {
			if u.Feature == dreamcore.AnthropicMessages {
				return u
			}
		}
		t.Fatal("the upstream is missing")
		return UpstreamHealth{}
	}
	ask := func(n int) {
		for range n {
			w.post(messagesPath, minimal(messagesPath, false))
		}
		w.settled(int(w.sent.Load()))
	}
	want := func(state string, good, failed int64) {
		t.Helper()
		if u := of(); u.State != state || u.Good != good || u.Failed != failed {
			t.Errorf("%+v, want %s %d %d", u, state, good, failed)
		}
	}
	status := func(n int) {
		w.up.set(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.Header().Set("Retry-After", "1")
			rw.WriteHeader(n)
		})
	}
	want(Untried, 0, 0)
	ask(2)
	want(Up, 2, 0)
	status(503)
	ask(failuresInRow - 1)
	want(Up, 2, 2)
	ask(2)
	want(Failing, 2, 4)
	if u := of(); u.LastReason != UpstreamError || u.LastStatus != 503 || u.LastFailed.IsZero() {
		t.Errorf("%+v", u)
	}
	status(400) // the client's fault, and an answer
	ask(1)
	want(Up, 3, 4)
	status(401)
	ask(1)
	want(Failing, 3, 5)
	w.send("POST", messagesPath, "{", with("X-Api-Key", w.token)) // never got there
	want(Failing, 3, 5)
	w.up.set(standard)
	ask(1)
	want(Up, 4, 5)
	log := w.log.String()
	if up, failing := strings.Count(log, `"decision":"up"`), strings.Count(log, `"decision":"failing"`); up != 3 || failing != 2 {
		t.Errorf("%d lines say up, %d failing", up, failing)
	}
}

// What no proxy can say of itself is not believed.
func TestImplausibleHealth(t *testing.T) {
	good := UpstreamHealth{Feature: dreamcore.AnthropicMessages, Host: "api.example", State: Up}
	for name, change := range map[string]func(*Health){
		"jobs":     func(h *Health) { h.Jobs = -1 },
		"alerts":   func(h *Health) { h.Alerts = -1 },
		"feature":  func(h *Health) { h.Upstreams[0].Feature = "x" },
		"state":    func(h *Health) { h.Upstreams[0].State = "\x1b[2J" },
		"host":     func(h *Health) { h.Upstreams[0].Host = strings.Repeat("x", 400) },
		"count":    func(h *Health) { h.Upstreams[0].Good = -1 },
		"reason":   func(h *Health) { h.Upstreams[0].LastReason = Reason(strings.Repeat("x", 61)) },
		"status":   func(h *Health) { h.Upstreams[0].LastStatus = 1000 },
		"too many": func(h *Health) { h.Upstreams = make([]UpstreamHealth, maxUpstreams+1) },
	} {
		h := Health{Upstreams: []UpstreamHealth{good}}
		if !h.Plausible() {
			t.Fatal("the positive control")
		}
		if change(&h); h.Plausible() {
			t.Errorf("%s: %+v", name, h)
		}
	}
}
