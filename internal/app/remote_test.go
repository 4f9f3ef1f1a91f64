package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/keyproxy/control"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/sandbox/e2b/e2btest"
)

// TestMain lets the test binary be the key proxy of the services that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == control.Command {
		os.Exit(Run(context.Background(), Terminal{Out: io.Discard, Err: os.Stderr}, os.Args[1:]))
	}
	code := m.Run()
	enginetest.CleanUp()
	os.Exit(code)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// remoteSettings are those of a service whose engine is a cloud of the test's.
func remoteSettings(t *testing.T) config.Config {
	t.Helper()
	t.Setenv("E2B_API_KEY", enginetest.APIKey)
	cfg, err := config.Load("", func(c *config.Config) {
		c.Data = filepath.Join(t.TempDir(), "data")
		c.App, c.Games = config.Listener{Listen: freeAddress(t)}, config.Listener{Listen: freeAddress(t)}
		c.Engine = config.Remote
		// Inside our own boxes, which have no network device, the one way out is
		// a relay at this address: here it stands for the proxy's public one.
		c.E2B = config.E2B{Template: "base", APIURL: "https://" + e2btest.APIHost, ProxyAddress: "127.0.0.1:4000", ProxyListen: freeAddress(t)}
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// carry is a network that leads a box's way out to the proxy's listener.
func carry(to string) func(*engine.Config) {
	return func(c *engine.Config) {
		c.Limits = engine.Limits{MemoryBytes: 3 << 30, CPUs: 2, Processes: 400, DiskBytes: 1 << 30}
		c.Egress = func(ctx context.Context, _ dreamcore.SandboxID, in net.Conn) {
			defer in.Close()
			out, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				return // the service has ended
			}
			defer out.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(out, in)
				_ = out.(*net.TCPConn).CloseWrite() // either side may be gone
			}()
			_, _ = io.Copy(in, out)
			in.Close()
			<-done
		}
	}
}

// From a wish to a game on a remote engine: TLS, names, a proxy that is reached
// by one address, and what a former life left there is gone.
func TestGameOnARemoteEngine(t *testing.T) {
	cfg := remoteSettings(t)
	e := enginetest.Start(t, carry(cfg.E2B.ProxyListen))
	c := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{Network: true, V2Only: true})
	log := &lines{}
	s := New(cfg, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	s.transport = c.Transport()
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		t.Fatal(err)
	}
	name, err := s.installation()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	former := c.Provider(t, func(c *e2b.Config) { c.Metadata = map[string]string{"installation": name} })
	left, err := former.Create(ctx, sandbox.Spec{Image: "base", Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	other := c.Provider(t, func(c *e2b.Config) { c.Metadata = map[string]string{"installation": "another"} })
	theirs, err := other.Create(ctx, sandbox.Spec{Image: "base", Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}

	if err := s.Open(ctx); err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			s.Close()
		}
		if t.Failed() {
			t.Logf("%.20000s", log)
		}
	}()
	if _, err := former.Connect(ctx, left.ID()); dreamcore.CodeOf(err) != dreamcore.Lost {
		t.Errorf("what a former life left lives on: %v", err)
	}
	_, job, err := s.Studio.Make(ctx, "tester", "a game where a cat flies through the sky", dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	for !job.State.Ended() {
		time.Sleep(200 * time.Millisecond) // ctx bounds the loop
		if job, err = s.Store.Job(ctx, job.ID); err != nil {
			t.Fatal(err)
		}
	}
	if job.State != dreamcore.Published {
		t.Fatalf("the job ended as %s: %+v", job.State, job)
	}
	if usage := job.Usage; usage.Requests == 0 {
		t.Error("nobody asked the model through the proxy")
	}
	if said := log.String(); !strings.Contains(said, "egress=true decision=\"go on\"") || !strings.Contains(said, "egress=false decision=\"go on\"") || strings.Contains(said, "ALERT") {
		t.Error("the log does not say that both sandboxes' networks were found closed")
	}
	if infos, err := former.List(ctx, nil); err != nil || len(infos) != 0 {
		t.Errorf("after the job %d sandboxes live, %v", len(infos), err)
	}
	closed = true
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := other.Connect(ctx, theirs.ID()); err != nil {
		t.Errorf("another installation's sandbox: %v", err)
	}
}

// A start without a key says what to set, in the operator's language.
func TestRemoteEngineWithoutItsKey(t *testing.T) {
	cfg := remoteSettings(t)
	t.Setenv("E2B_API_KEY", "")
	cfg.Lang = dreamcore.Japanese
	s := New(cfg, slog.New(slog.DiscardHandler))
	if err := s.Open(t.Context()); dreamcore.CodeOf(err) != dreamcore.Missing || !strings.Contains(err.Error(), "環境変数 E2B_API_KEY") {
		t.Errorf("got %v", err)
	}
}

// The doctor looks for what the configured engine needs, not for gVisor.
func TestDoctorOfARemoteEngine(t *testing.T) {
	data := t.TempDir()
	t.Setenv("DREAMCORE_DATA", data)
	t.Setenv("E2B_API_KEY", "")
	file := filepath.Join(t.TempDir(), "settings.json")
	settings := `{"engine": "e2b", "e2b": {"template": "base", "api_url": "https://e2b.invalid", "proxy_address": "203.0.113.7:4000", "proxy_listen": "` + freeAddress(t) + `"}}`
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, said strings.Builder
	code := Run(t.Context(), Terminal{Out: &out, Err: &said, Lang: dreamcore.English}, []string{"doctor", "--config", file, "--app", freeAddress(t), "--games", freeAddress(t)})
	if code != 1 || !strings.Contains(out.String(), "Sandboxes run at https://e2b.invalid") || !strings.Contains(out.String(), "E2B_API_KEY") {
		t.Errorf("exit %d\n%s\n%s", code, out.String(), said.String())
	}
	for _, of := range []string{"Limits (cgroups)", "Sandbox program", "Sandbox image"} {
		if strings.Contains(out.String(), of+":") {
			t.Errorf("it looks at %s:\n%s", of, out.String())
		}
	}
}
