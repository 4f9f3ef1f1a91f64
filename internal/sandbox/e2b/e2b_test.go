package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// What the client does with an engine that answers strangely. That it drives a
// real one is tested in package engine, by the conformance suite.

func provider(t *testing.T, h http.HandlerFunc) *Provider {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return New(Config{APIURL: s.URL, SandboxURL: s.URL, APIKey: dreamcore.NewSecret("the-key"), Metadata: map[string]string{"installation": "i1"}, Retry: fast})
}

// fast tries again as often as ever, and at once.
var fast = Retry{First: time.Millisecond, Most: time.Millisecond, Settle: time.Millisecond}

// A create request denies the whole network in words, and with egress allows
// one address.
func TestE26CreateDeniesAll(t *testing.T) {
	var got map[string]any
	p := provider(t, func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Header.Get("X-Api-Key") != "the-key" || r.URL.Path != "/v2/sandboxes" {
			t.Errorf("%s, %v", r.URL.Path, err)
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"sandboxID":"abc","envdAccessToken":"tok"}`)
	})
	for _, egress := range []bool{false, true} {
		sb, err := p.Create(context.Background(), sandbox.Spec{Image: "img", Timeout: 90 * time.Second, Egress: egress, Metadata: map[string]string{"job": "j"}})
		if err != nil || sb.ID() != "abc" {
			t.Fatal(sb, err)
		}
		network, _ := json.Marshal(got["network"])
		want := `{"allowPublicTraffic":false,"denyOut":["0.0.0.0/0"]}`
		if egress {
			want = `{"allowOut":["127.0.0.1/32"],"allowPublicTraffic":false,"denyOut":["0.0.0.0/0"]}`
		}
		if string(network) != want || got["allow_internet_access"] != false || got["secure"] != nil || got["timeout"] != float64(90) {
			t.Errorf("got %v", got)
		}
		meta := got["metadata"].(map[string]any)
		if meta["installation"] != "i1" || meta["job"] != "j" || len(fmt.Sprint(meta[AttemptKey])) < 16 {
			t.Errorf("metadata %v", meta)
		}
	}
}

// An engine without version 2 is asked in version 1 from then on; its own 404
// is final.
func TestFallsBackToVersion1(t *testing.T) {
	asked := []string{}
	p := provider(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/") && !strings.Contains(r.URL.Path, "gone"):
			http.NotFound(w, r)
		case strings.Contains(r.URL.Path, "gone"):
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, `{"code":404,"message":"no such sandbox"}`)
		default:
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, `{"sandboxID":"abc"}`)
		}
	})
	if _, err := p.Create(context.Background(), sandbox.Spec{Image: "x"}); err != nil {
		t.Error(err)
	}
	if _, err := p.Connect(context.Background(), "gone"); dreamcore.CodeOf(err) != dreamcore.Lost {
		t.Errorf("got %v", err)
	}
	if got, want := strings.Join(asked, " "), "/v2/sandboxes /sandboxes /sandboxes/gone/connect"; got != want {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// Told to come back later, it does.
func TestRateLimit(t *testing.T) {
	n := 0
	p := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		io.WriteString(w, `[]`)
	})
	if _, err := p.List(context.Background(), nil); err != nil || n != 2 {
		t.Errorf("%d requests, %v", n, err)
	}
}

// Nonsense is an error with a code, never a panic, an endless loop or the key
// on its way to somebody else.
func TestStrangeAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		h    http.HandlerFunc
		want dreamcore.Code
	}{
		"not JSON":   {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, dreamcore.Unavailable},
		"no id":      {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }, dreamcore.Unavailable},
		"key wrong":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, dreamcore.Refused},
		"broken":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, dreamcore.Unavailable},
		"bad reason": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }, dreamcore.Invalid},
		"hung up":    {func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, dreamcore.Unavailable},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/away" {
				t.Error("the redirect was followed")
			}
			http.Redirect(w, r, "/away", http.StatusTemporaryRedirect)
		}, dreamcore.Invalid},
	} {
		_, err := provider(t, c.h).Create(context.Background(), sandbox.Spec{Image: "x"})
		if dreamcore.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want code %s", name, err, c.want)
		}
	}
}
