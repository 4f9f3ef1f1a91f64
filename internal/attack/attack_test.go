package attack_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/attack"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/text"
	"dreamcore/internal/tree"
)

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.CleanUp()
	os.Exit(code)
}

const (
	plantedName = "DREAMCORE_ATTACK_PLANTED"
	planted     = "planted-in-the-service-0123456789"
	model       = "range-model"
)

var features = []dreamcore.Feature{dreamcore.AnthropicMessages}

// control is the key proxy's control side, as the app has it.
type control struct {
	*keyproxy.Proxy
	*grant.Minter
}

func (c control) Open(ctx context.Context, job dreamcore.Job, box dreamcore.SandboxID) (string, error) {
	if err := c.OpenJob(ctx, keyproxy.JobTerms{
		Job: job.ID, Attempt: job.Attempt, Channel: string(box), Features: features, Models: []string{model},
		Budget: dreamcore.Budget{Requests: 1000, InputTokens: 1e9, OutputTokens: 1e9, Bytes: 1 << 30, CostMicros: 1e9},
	}); err != nil {
		return "", err
	}
	return c.Mint(grant.Claims{
		Job: job.ID, Attempt: job.Attempt, Channel: string(box), Audience: keyproxy.Audience, Features: features,
		NotBefore: time.Now().Add(-grant.Skew), Expires: time.Now().Add(10 * time.Minute),
	})
}

func (c control) Close(ctx context.Context, id dreamcore.JobID, attempt int) (dreamcore.Usage, error) {
	return c.CloseJob(ctx, id, attempt)
}

// toolkit is built from the present source, once.
var toolkit = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "dreamcore-toolkit-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/toolkit", "dreamcore/cmd/toolkit")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build toolkit: %w\n%s", err, out)
	}
	return os.ReadFile(dir + "/toolkit")
})

// sabotage takes one wall away.
type sabotage struct {
	engine func(*engine.Config)
	egress func(up *attack.Upstream) func(context.Context, dreamcore.SandboxID, net.Conn)
	config func(*attack.Config)
}

// attacked runs the range on a real engine and a real key proxy.
func attacked(t *testing.T, s sabotage) []attack.Row {
	t.Helper()
	t.Setenv(plantedName, planted)
	up, err := attack.OpenUpstream("sk-range/+" + dreamcore.NewToken(32))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { up.Close() })
	minter, err := grant.NewMinter()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	dir := t.TempDir()
	proxy, err := keyproxy.New(keyproxy.Config{
		Verifier: minter.Verifier(), Dir: dir, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Upstreams: map[dreamcore.Feature][]keyproxy.Upstream{dreamcore.AnthropicMessages: {{
			BaseURL: up.URL, Key: dreamcore.NewSecret(up.Key), Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			Models: []keyproxy.ModelPrice{{Name: model, Free: true}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	egress := func(ctx context.Context, id dreamcore.SandboxID, conn net.Conn) {
		proxy.ServeConn(ctx, string(id), conn)
	}
	if s.egress != nil {
		egress = s.egress(up)
	}
	e := enginetest.Start(t, func(c *engine.Config) {
		c.Egress = egress
		if s.engine != nil {
			s.engine(c)
		}
	})
	tools, err := toolkit()
	if err != nil {
		t.Fatal(err)
	}
	cfg := attack.Config{
		Sandboxes: e.Provider, Image: e.Image, Toolkit: tools, Proxy: control{proxy, minter}, Upstream: up,
		API: "anthropic-messages", Model: model, Features: features, ProxyAddress: "127.0.0.1:4000",
		Planted: planted, PlantedName: plantedName,
		MemoryBytes: 1 << 30, DiskBytes: 256 << 20, Processes: 256, Limited: e.Limited(),
		Local: true, Left: func() ([]string, error) { return enginetest.Left(e.Dir) },
		Written: func() (map[string][]byte, error) {
			all := map[string][]byte{"log": log.Bytes()}
			files, err := filepath.Glob(dir + "/*")
			for _, f := range files {
				data, rerr := os.ReadFile(f)
				err = errors.Join(err, rerr)
				if len(data) > 0 {
					all[filepath.Base(f)] = data
				}
			}
			return all, err
		},
		Done: func(r attack.Row) { t.Logf("%-5s %-9s %2d %.300q", r.Line, r.Verdict, r.Tries, r.Detail) },
	}
	if s.config != nil {
		s.config(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	rows, err := attack.Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := enginetest.Left(e.Dir); err != nil || len(left) > 0 {
		t.Errorf("the range leaves %q, %v", left, err)
	}
	return rows
}

func brokenIn(rows []attack.Row) []string {
	var lines []string
	for _, r := range rows {
		if r.Verdict == attack.Broken {
			lines = append(lines, r.Line)
		}
	}
	return lines
}

// The whole range on the product as it is. The lines are those of the threat
// model; each has a number of tries, and a twin in the same sandbox.
func TestE01E02E03E04E09E10E11D01D04S05S06C10TheRangeHolds(t *testing.T) {
	rows := attacked(t, sabotage{})
	if !attack.Holds(rows) {
		t.Error("it does not hold")
	}
	for _, line := range strings.Fields("T01 T03 T04 T06 T07 T08 T09 T10 T12 T13 T14 T19 H01 H02 H04 H06 H08 H11 H21 H24 M01 M02 M04 M07 M08 M09 M10 M11 M12 M15 M16 " +
		"E01 E02 E03 E04 E09 E10 E11 D01 D04 R01 R03 L02 L03 L07 C01 C02 C03 C04 C05 C06 C10 S01 S02 S05 S06 twins") {
		i := slices.IndexFunc(rows, func(r attack.Row) bool { return r.Line == line })
		if i < 0 || rows[i].Tries == 0 || rows[i].Verdict != attack.Held {
			t.Errorf("%s was not tried, or did not hold", line)
		}
	}
	for _, r := range rows {
		for _, key := range []string{r.Attempt, r.Stopped} {
			for _, lang := range dreamcore.Langs {
				if text.T(lang, key) == key {
					t.Errorf("%s has no text in %s", key, lang)
				}
			}
		}
	}
}

// Each wall that is taken away is missed: a range that cannot fail shows nothing.
func TestTheRangeFindsWhatIsOpen(t *testing.T) {
	for name, c := range map[string]struct {
		sabotage
		parts []string
		want  []string // at least
	}{
		"the machine's network in the sandbox": {sabotage{engine: func(c *engine.Config) { c.Runsc = hostNetwork(t, c.Runsc) }}, []string{"network"}, []string{"E01", "E02"}},
		"a way out that asks nothing":          {sabotage{egress: open}, []string{"channel", "endings"}, []string{"T01", "T08", "T13", "M01", "H24"}},
		"a way out to anywhere":                {sabotage{egress: forward}, []string{"channel"}, []string{"E11"}},
		"the service's environment inside": {sabotage{config: func(c *attack.Config) {
			c.Env = map[string]string{plantedName: planted}
		}}, []string{"secrets"}, []string{"S05", "S06"}},
		"one collector that takes links": {sabotage{config: func(c *attack.Config) { c.Collect = careless }}, []string{"trees"}, []string{"C01", "C02", "C03", "C04", "C10"}},
		"a sandbox that gets more than it may": {sabotage{config: func(c *attack.Config) {
			c.Processes, c.DiskBytes, c.MemoryBytes = 32, 64<<20, 64<<20
		}}, []string{"limits"}, []string{"S01"}},
		"a log of the key": {sabotage{config: func(c *attack.Config) {
			written := c.Written
			c.Written = func() (map[string][]byte, error) {
				all, err := written()
				all["leak"] = []byte("the key is " + c.Upstream.Key)
				return all, err
			}
		}}, []string{"channel", "written"}, []string{"L02"}},
		"a kill that leaves something": {sabotage{config: func(c *attack.Config) {
			left := c.Left
			var all []string
			c.Left = func() ([]string, error) {
				now, err := left()
				all = append(all, now...)
				return all, err
			}
		}}, []string{"endings"}, []string{"S02"}},
	} {
		t.Run(name, func(t *testing.T) {
			change := c.config
			c.config = func(cfg *attack.Config) {
				cfg.Parts = c.parts
				if change != nil {
					change(cfg)
				}
			}
			rows := attacked(t, c.sabotage)
			if attack.Holds(rows) {
				t.Error("it is said to hold")
			}
			got := brokenIn(rows)
			for _, line := range c.want {
				if !slices.Contains(got, line) {
					t.Errorf("%s is not found broken; broken are %q", line, got)
				}
			}
		})
	}
}

// hostNetwork is a runsc that gives sandboxes this machine's network.
func hostNetwork(t *testing.T, runsc string) string {
	path := filepath.Join(t.TempDir(), "runsc")
	// The specification asks for an empty network of its own: that wall goes too.
	script := `#!/usr/bin/python3
import json, os, sys
args, done = sys.argv[1:], "` + path + `.done"
if "-bundle" in args and not os.path.exists(done): # the first sandbox only: two cannot share a port
    open(done, "w").close()
    args = ["--network=host" if a == "--network=none" else a for a in args]
    name = args[args.index("-bundle") + 1] + "/config.json"
    spec = json.load(open(name))
    spec["linux"]["namespaces"] = [n for n in spec["linux"]["namespaces"] if n["type"] != "network"]
    json.dump(spec, open(name, "w"))
os.execv("` + runsc + `", ["runsc"] + args)
`
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// open passes every request on as it is.
func open(up *attack.Upstream) func(context.Context, dreamcore.SandboxID, net.Conn) {
	return func(_ context.Context, _ dreamcore.SandboxID, conn net.Conn) {
		target, _ := url.Parse(up.URL)
		l := &one{conn: make(chan net.Conn, 1), gone: make(chan struct{})}
		l.conn <- conn
		srv := &http.Server{Handler: httputil.NewSingleHostReverseProxy(target), ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				l.Close()
			}
		}}
		_ = srv.Serve(l) // ends with its one connection
	}
}

// forward is an open CONNECT proxy.
func forward(up *attack.Upstream) func(context.Context, dreamcore.SandboxID, net.Conn) {
	pass := open(up)
	return func(ctx context.Context, id dreamcore.SandboxID, conn net.Conn) {
		r := bufio.NewReader(conn)
		if head, err := r.Peek(8); err != nil || string(head) != "CONNECT " {
			pass(ctx, id, &peeked{conn, r})
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	}
}

type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

// one is a listener of one connection.
type one struct {
	conn chan net.Conn
	gone chan struct{}
	once sync.Once
}

func (l *one) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.gone:
		return nil, net.ErrClosed
	}
}
func (l *one) Close() error   { l.once.Do(func() { close(l.gone) }); return nil }
func (l *one) Addr() net.Addr { return &net.UnixAddr{Name: "one", Net: "unix"} }

// careless takes whatever it is given, while the agent runs.
func careless(context.Context, sandbox.Sandbox) (*tree.Tree, error) {
	return tree.New([]tree.File{{Path: "index.html", Data: []byte("ok")}}, tree.DefaultLimits())
}
