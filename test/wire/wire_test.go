package wire

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/sandbox/e2b/e2btest"
	"dreamcore/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.CleanUp()
	os.Exit(code)
}

// The suite that our own engine passes, through everything that a cloud puts in
// between, and every word of it of the types of E2B's own package.
func TestConformanceInTheCloud(t *testing.T) {
	e := enginetest.Start(t)
	var seen []e2btest.Exchange
	for name, mode := range map[string]e2btest.Mode{
		"version 2, HTTP-2, latency": {V2Only: true, Latency: 6 * time.Millisecond, Network: true},
		// Here the network is the engine's own to tell and to change.
		"version 1, HTTP-1, rate-limited, few at once": {V1Only: true, HTTP1: true, TooMany: 9, Limits: e2b.Limits{Concurrent: 3, CreateEvery: 200 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2btest.Start(t, e.URL, enginetest.APIKey, mode)
			p := c.Provider(t, func(cfg *e2b.Config) {
				cfg.Guard = &e2b.Guard{ProxyName: "proxy.cloud.test"}
				cfg.Limits = mode.Limits
				cfg.Metadata = map[string]string{"installation": "wire"}
			})
			t.Run("suite", func(t *testing.T) {
				sandboxtest.Run(t, p, sandbox.Spec{Image: e.Image, Timeout: 5 * time.Minute, Egress: true, Env: map[string]string{"GIVEN": "to every command"}})
			})
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if n, err := p.Reap(ctx, nil); n != 0 || err != nil {
				t.Errorf("%d sandboxes were left, %v", n, err)
			}
			if n := c.Counts(); (n.TooMany > 0) != (mode.TooMany > 0) || mode.Limits.Concurrent > 0 && n.Most > mode.Limits.Concurrent {
				t.Errorf("at the cloud: %+v", n)
			}
			seen = append(seen, c.Seen()...)
		})
	}
	if len(seen) < 60 {
		t.Fatalf("only %d requests were made", len(seen))
	}
	if said := Compile(t, Program(seen)); said != "" {
		t.Errorf("not of E2B's types:\n%.8000s", said)
	}
}

// The judge finds what is wrong: a field too many, one of another kind, a path,
// a query and a status that are not there.
func TestWrongWordsAreFound(t *testing.T) {
	for name, x := range map[string]e2btest.Exchange{
		"a field too many":   {Method: "POST", Path: "/v2/sandboxes", Body: []byte(`{"templateID":"t","secure":true}`), Status: 401, Answer: []byte(`{"code":401,"message":"no"}`)},
		"a field inside":     {Method: "POST", Path: "/v2/sandboxes", Body: []byte(`{"templateID":"t","network":{"allowOutgoing":[]}}`), Status: 401, Answer: []byte(`{"code":401,"message":"no"}`)},
		"another kind":       {Method: "POST", Path: "/sandboxes/abc/timeout", Body: []byte(`{"timeout":"1"}`), Status: 204},
		"no such path":       {Method: "POST", Path: "/v9/sandboxes", Status: 204},
		"no such status":     {Method: "DELETE", Path: "/sandboxes/abc", Status: 299},
		"an answer too much": {Method: "DELETE", Path: "/sandboxes/abc", Status: 204, Answer: []byte(`{"code":1}`)},
		"a query":            {Method: "GET", Path: "/v2/sandboxes", Query: map[string][]string{"state": {"asleep"}}, Status: 200, Answer: []byte("[]")},
		"an answer too bare": {Method: "POST", Path: "/sandboxes", Body: []byte(`{"templateID":"t"}`), Status: 201, Answer: []byte(`{"sandboxID":"x"}`)},
	} {
		if said := Compile(t, Program([]e2btest.Exchange{x})); !strings.Contains(said, "error TS") {
			t.Errorf("%s: %q", name, said)
		}
	}
	right := e2btest.Exchange{Method: "DELETE", Path: "/sandboxes/abc", Status: 404, Answer: []byte(`{"code":404,"message":"no"}`)}
	if said := Compile(t, Program([]e2btest.Exchange{right})); said != "" {
		t.Errorf("what is right is called wrong: %s", said)
	}
}
