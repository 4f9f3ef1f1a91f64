//go:build e2b

package cloud

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/sandbox/sandboxtest"
)

// settings are read from the environment; what is missing is said precisely.
//
//	E2B_API_KEY       the account's key
//	E2B_TEMPLATE      the template; "base" is E2B's own, ours is better
//	E2B_DOMAIN        of a self-hosted E2B
//	E2B_PLAN          "free" (the default) or "paid"
//	E2B_PROXY_ADDRESS the one IPv4 address that is left open; the default is one
//	                  of those that documents use, where nobody answers
func settings(t *testing.T, guard *e2b.Guard) e2b.Config {
	t.Helper()
	key := os.Getenv("E2B_API_KEY")
	if key == "" {
		t.Fatal("E2B_API_KEY is not set; put your key of E2B there, and in E2B_TEMPLATE the id of the template (see `dreamcore image export --e2b DIR`)")
	}
	limits := e2b.FreePlan
	switch plan := os.Getenv("E2B_PLAN"); plan {
	case "", "free":
	case "paid":
		limits = e2b.PaidPlan
	default:
		t.Fatalf("E2B_PLAN is %q; set it to free or paid", plan)
	}
	proxy := cmp.Or(os.Getenv("E2B_PROXY_ADDRESS"), "203.0.113.7")
	if a, err := netip.ParseAddr(proxy); err != nil || !a.Is4() {
		t.Fatalf("E2B_PROXY_ADDRESS is %q, which is no IPv4 address", proxy)
	}
	return e2b.Config{
		Domain: os.Getenv("E2B_DOMAIN"), APIKey: dreamcore.NewSecret(key), Template: cmp.Or(os.Getenv("E2B_TEMPLATE"), "base"),
		Transport: http.DefaultTransport, Proxy: proxy + "/32", Limits: limits, Guard: guard,
		// A name of this run's own: nobody else's sandboxes are touched.
		Metadata: map[string]string{"installation": "test-" + dreamcore.NewToken(12)},
		Log:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}

func TestConformanceAtE2B(t *testing.T) {
	p := e2b.New(settings(t, &e2b.Guard{ProxyName: "proxy.dreamcore.internal"}))
	t.Cleanup(func() {
		if n, err := p.Reap(context.Background(), nil); n != 0 || err != nil {
			t.Errorf("%d sandboxes were left, %v", n, err)
		}
		p.Close()
	})
	t.Run("suite", func(t *testing.T) {
		sandboxtest.Run(t, p, sandbox.Spec{Image: "test", Timeout: 10 * time.Minute, Egress: true, Env: map[string]string{"GIVEN": "to every command"}})
	})
}

// The probe finds an open network where there is one: a sandbox that a client
// without a guard made, whose network is opened, is found and killed.
func TestProbeFindsAnOpenNetworkAtE2B(t *testing.T) {
	cfg := settings(t, nil)
	cfg.Proxy = "8.8.8.8/32" // the one address that is left open is one that answers
	p := e2b.New(cfg)
	t.Cleanup(func() {
		if _, err := p.Reap(context.Background(), nil); err != nil {
			t.Error(err)
		}
		p.Close()
	})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	sb, err := p.Create(ctx, sandbox.Spec{Image: "test", Timeout: 5 * time.Minute, Egress: true})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Guard = &e2b.Guard{}
	guarded := e2b.New(cfg)
	defer guarded.Close()
	err = guarded.Inspect(ctx, sb.ID(), true)
	var open *e2b.NetworkError
	if !errors.As(err, &open) {
		t.Fatalf("got %v", err)
	}
	t.Log(open)
	if _, err := p.Connect(ctx, sb.ID()); dreamcore.CodeOf(err) != dreamcore.Lost {
		t.Errorf("it lives on: %v", err)
	}
}
