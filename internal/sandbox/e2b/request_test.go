package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// What may be made twice is, as often as Retry says; an answer is final.
func TestWhatIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		tries  int
		do     func(context.Context, *Provider) error
	}{
		{"a list that fails", 500, 5, func(ctx context.Context, p *Provider) error { _, err := p.List(ctx, nil); return err }},
		{"a kill through a bad gateway", 502, 5, func(ctx context.Context, p *Provider) error { return p.Kill(ctx, "x") }},
		{"a connection", 503, 5, func(ctx context.Context, p *Provider) error { _, err := p.Connect(ctx, "x"); return err }},
		{"a wrong key", 401, 1, func(ctx context.Context, p *Provider) error { _, err := p.List(ctx, nil); return err }},
		{"nonsense", 400, 1, func(ctx context.Context, p *Provider) error { return p.Kill(ctx, "x") }},
		{"what the engine lacks", 501, 1, func(ctx context.Context, p *Provider) error { return p.Kill(ctx, "x") }},
	} {
		n := 0
		p := provider(t, func(w http.ResponseWriter, _ *http.Request) { n++; w.WriteHeader(c.status) })
		if err := c.do(t.Context(), p); err == nil || n != c.tries {
			t.Errorf("%s: %d tries, want %d (%v)", c.name, n, c.tries, err)
		}
	}
}

// A creation that may have happened is looked for before it is asked for again.
func TestCreationInDoubt(t *testing.T) {
	for _, c := range []struct {
		name   string
		lives  bool // the first creation made a sandbox all the same
		want   string
		second bool // a second creation is right
	}{{"it happened", true, "first", false}, {"it did not", false, "second", true}} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			created := 0
			attempts := map[string]bool{}
			p := provider(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case r.Method == http.MethodPost && r.URL.Path == "/v2/sandboxes":
					var in createBody
					if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
						t.Error(err)
					}
					attempts[in.Metadata[AttemptKey]] = true
					if created++; created == 1 {
						panic(http.ErrAbortHandler)
					}
					w.WriteHeader(http.StatusCreated)
					io.WriteString(w, `{"sandboxID":"second"}`)
				case r.Method == http.MethodGet:
					if !c.lives {
						io.WriteString(w, `[]`)
						return
					}
					for a := range attempts {
						fmt.Fprintf(w, `[{"sandboxID":"first","metadata":{%q:%q,"installation":"i1"}}]`, AttemptKey, a)
					}
				default:
					io.WriteString(w, `{"sandboxID":"first","envdAccessToken":"t"}`)
				}
			})
			sb, err := p.Create(t.Context(), sandbox.Spec{Image: "x"})
			p.Close()
			if err != nil || string(sb.ID()) != c.want {
				t.Fatal(sb, err)
			}
			if (created == 2) != c.second || len(attempts) != 1 {
				t.Errorf("%d creations of %d attempts", created, len(attempts))
			}
		})
	}
}

// A sandbox that comes to light after the second creation is killed.
func TestSandboxTooMany(t *testing.T) {
	var mu sync.Mutex
	created, killed := 0, []string{}
	attempt := ""
	p := provider(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch r.Method {
		case http.MethodPost:
			var in createBody
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Error(err)
			}
			attempt = in.Metadata[AttemptKey]
			if created++; created == 1 {
				w.WriteHeader(http.StatusGatewayTimeout)
				return
			}
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, `{"sandboxID":"kept"}`)
		case http.MethodGet:
			if created == 1 {
				io.WriteString(w, `[]`)
				return
			}
			entry := func(id, a string) string {
				return fmt.Sprintf(`{"sandboxID":%q,"metadata":{%q:%q}}`, id, AttemptKey, a)
			}
			fmt.Fprintf(w, "[%s,%s,%s]", entry("kept", attempt), entry("late", attempt), entry("foreign", "other"))
		case http.MethodDelete:
			killed = append(killed, r.URL.Path)
			w.WriteHeader(http.StatusNoContent)
		}
	})
	if _, err := p.Create(t.Context(), sandbox.Spec{Image: "x"}); err != nil {
		t.Fatal(err)
	}
	p.Close()
	if fmt.Sprint(killed) != "[/sandboxes/late]" {
		t.Errorf("killed %v", killed)
	}
}

// Told to wait longer than its caller has, it says so at once.
func TestPutOffForTooLong(t *testing.T) {
	p := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3000")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for name, c := range map[string]context.Context{"the caller's": ctx, "its own": t.Context()} {
		if _, err := p.List(c, nil); dreamcore.CodeOf(err) != dreamcore.Unavailable || !strings.Contains(err.Error(), "3000 seconds") {
			t.Errorf("beyond %s patience: %v", name, err)
		}
	}
}

// An engine that nobody can reach costs as many tries as Retry says, and one
// whose certificate is wrong a single one.
func TestUnreachable(t *testing.T) {
	tries := 0
	count := func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) { tries++; return next.RoundTrip(r) })
	}
	p := New(Config{APIURL: "http://127.0.0.1:1", Transport: count(http.DefaultTransport), Retry: fast})
	if _, err := p.Create(t.Context(), sandbox.Spec{Image: "x"}); dreamcore.CodeOf(err) != dreamcore.Unavailable || tries != 5 {
		t.Errorf("%d tries, %v", tries, err)
	}
	p.Close()
	if tries != 5 {
		t.Error("what surely did not arrive was swept up after")
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The network is read back, and what is not as it was said is found.
func TestNetworkReadBack(t *testing.T) {
	const right = `"allowOut":["127.0.0.1/32"],"denyOut":["0.0.0.0/0"]`
	for network, says := range map[string]string{
		`{` + right + `,"allowPublicTraffic":true}`:                                "allowPublicTraffic",
		`{"allowOut":["127.0.0.1/32","8.8.8.8/32"],"denyOut":["0.0.0.0/0"]}`:       "8.8.8.8",
		`{"allowOut":["127.0.0.1/32"],"denyOut":[]}`:                               "denyOut",
		`{"denyOut":["0.0.0.0/0"]}`:                                                "allowOut",
		`{` + right + `,"rules":{"example.com":[{}]}}`:                             "rules",
		`{` + right + `,"egressProxy":{"address":"example.com:1080"}}`:             "egressProxy",
		`{` + right + `,"egressProxy":null,"rules":{}},"allowInternetAccess":true`: "allowInternetAccess",
	} {
		killed := false
		p := provider(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.Method {
			case http.MethodPost:
				w.WriteHeader(http.StatusCreated)
				io.WriteString(w, `{"sandboxID":"x"}`)
			case http.MethodPut:
				var got map[string]any
				if err := json.NewDecoder(r.Body).Decode(&got); err != nil || fmt.Sprint(got) != "map[allowOut:[127.0.0.1/32] allow_internet_access:false denyOut:[0.0.0.0/0]]" {
					t.Errorf("the update is %v, %v", got, err)
				}
				w.WriteHeader(http.StatusNoContent)
			case http.MethodGet:
				io.WriteString(w, `{"sandboxID":"x","network":`+network+`}`)
			case http.MethodDelete:
				killed = true
				w.WriteHeader(http.StatusNoContent)
			}
		})
		p.cfg.Guard = &Guard{}
		_, err := p.Create(t.Context(), sandbox.Spec{Image: "x", Egress: true})
		var open *NetworkError
		if !errors.As(err, &open) || !strings.Contains(err.Error(), says) || !killed {
			t.Errorf("%s: killed %v, %v", network, killed, err)
		}
	}
}

// Whatever a probe says, and whatever its target is called, the script is one
// that bash can read; what is no address is refused.
func FuzzProbeScript(f *testing.F) {
	for _, p := range DefaultProbes() {
		f.Add(p.Host, p.Port, p.Say)
	}
	f.Add("$(touch /tmp/x)", 80, "'")
	f.Add("a'b", 80, "%s\n")
	f.Add("-e", 1, "\x00")
	f.Fuzz(func(t *testing.T, host string, port int, say string) {
		script, err := probeScript([]Probe{{"tcp", host, port, say}}, "", false, time.Second)
		if err != nil {
			if dreamcore.CodeOf(err) != dreamcore.Invalid {
				t.Error(err)
			}
			return
		}
		if strings.ContainsAny(host, "$'`\"\\ \n;&|<>()") {
			t.Fatalf("%q is taken for a host", host)
		}
		if out, err := exec.Command("bash", "-n", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, out, script)
		}
	})
}
