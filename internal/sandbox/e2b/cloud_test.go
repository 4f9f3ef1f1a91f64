package e2b_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/sandbox/e2b/e2btest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.CleanUp()
	os.Exit(code)
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func guarded(c *e2b.Config) { c.Guard = &e2b.Guard{ProxyName: "proxy.cloud.test"} }

// none fails unless nothing lives that carries the metadata of p.
func none(t *testing.T, p *e2b.Provider) {
	t.Helper()
	infos, err := p.List(ctxOf(t), nil)
	if err != nil || len(infos) != 0 {
		t.Errorf("%d sandboxes are left: %v, %v", len(infos), infos, err)
	}
}

// Where connections break at random points, what may be done twice is, and what
// may not fails with a code; never are there two sandboxes for one creation.
func TestBrokenConnections(t *testing.T) {
	e := enginetest.Start(t)
	for _, mode := range []e2btest.Mode{{Drop: 3, Seed: 1}, {Drop: 3, Seed: 2, HTTP1: true, V1Only: true}} {
		c := e2btest.Start(t, e.URL, enginetest.APIKey, mode)
		p := c.Provider(t, func(cfg *e2b.Config) { cfg.Metadata = map[string]string{"installation": fmt.Sprint(mode.Seed)} })
		ctx := ctxOf(t)
		var boxes []sandbox.Sandbox
		for range 6 {
			sb, err := p.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			boxes = append(boxes, sb)
		}
		data := bytes.Repeat([]byte("0123456789"), 20_000)
		ran, broke := 0, 0
		for i, sb := range boxes {
			again, err := p.Connect(ctx, sb.ID())
			if err != nil {
				t.Fatal(err)
			}
			if err := again.WriteFiles(ctx, []sandbox.File{{Path: "/tmp/a/1", Data: data}, {Path: "/tmp/a/2"}}); err != nil {
				t.Error(err)
			}
			if got, err := sb.ReadFile(ctx, "/tmp/a/1", 1<<20); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if _, err := sb.ReadFile(ctx, "/tmp/a/none", 10); dreamcore.CodeOf(err) != dreamcore.NotFound {
				t.Error(err)
			}
			if all, err := sb.List(ctx, "/tmp/a", 1); err != nil || len(all) != 2 {
				t.Errorf("%v, %v", all, err)
			}
			if err := sb.SetTimeout(ctx, time.Minute); err != nil {
				t.Error(err)
			}
			for j := range 5 {
				// The file proves how often it ran.
				res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"sh", "-c", fmt.Sprintf("echo x >>/tmp/ran%d; echo out", j)}}, 100)
				if err == nil && string(res.Stdout) == "out\n" && res.Code == 0 {
					ran++
				} else if broke++; dreamcore.CodeOf(err) != dreamcore.Unavailable {
					t.Errorf("a command that broke: %+v, %v", res, err)
				}
				got, err := sb.ReadFile(ctx, fmt.Sprintf("/tmp/ran%d", j), 100)
				if n := strings.Count(string(got), "x"); n > 1 || res.Code == 0 && string(res.Stdout) == "out\n" && n != 1 {
					t.Errorf("box %d ran a command %d times (%v)", i, n, err)
				}
			}
		}
		if ran == 0 || broke == 0 || c.Counts().Dropped < 10 {
			t.Errorf("%d commands ran, %d broke, %d requests were dropped: nothing was tried", ran, broke, c.Counts().Dropped)
		}
		p.Close() // what is in doubt is swept now
		infos, err := p.List(ctx, nil)
		if err != nil || len(infos) != len(boxes) {
			t.Errorf("%d sandboxes live, %d were wanted (%v); the cloud made %d", len(infos), len(boxes), err, c.Counts().Created)
		}
		for _, sb := range boxes {
			if err := p.Kill(ctx, sb.ID()); err != nil {
				t.Error(err)
			}
		}
		none(t, p)
	}
}

// A creation that its caller gave up leaves nothing behind.
func TestGivenUpCreation(t *testing.T) {
	e := enginetest.Start(t)
	c := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{Latency: 20 * time.Millisecond})
	p := c.Provider(t)
	for i := range 8 {
		ctx, cancel := context.WithTimeout(ctxOf(t), time.Duration(i)*40*time.Millisecond)
		if sb, err := p.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute}); err == nil {
			if err := p.Kill(ctxOf(t), sb.ID()); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	for ctx := ctxOf(t); ; {
		infos, err := p.List(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(infos) == 0 {
			break
		}
	}
	p.Close()
	none(t, p)
}

// A proxy that answers where nothing may: the engine's way out stands for it.
func answering(say string) func(*engine.Config) {
	return func(c *engine.Config) {
		c.Egress = func(ctx context.Context, _ dreamcore.SandboxID, conn net.Conn) {
			defer conn.Close()
			buf := make([]byte, 100)
			if _, err := conn.Read(buf); err == nil && say != "" {
				_, _ = io.WriteString(conn, say) // the box may be gone
			}
		}
	}
}

// A sandbox whose network answers is killed and the error says what answered.
func TestE26OpenNetworkIsFoundFromInside(t *testing.T) {
	way := e2b.Probe{Net: "tcp", Host: "127.0.0.1", Port: 4000, Say: "hello"}
	probes := append(e2b.DefaultProbes(), way)
	for _, c := range []struct {
		name, say string
		egress    bool
		open      bool
	}{
		{"answers", "I am here", true, true},
		{"is taken but not answered", "", true, false},
		{"is not there", "I am here", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := enginetest.Start(t, answering(c.say))
			p := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{Network: true}).Provider(t, func(cfg *e2b.Config) {
				cfg.Guard = &e2b.Guard{Probes: probes, Wait: 10 * time.Second}
			})
			sb, err := p.Create(ctxOf(t), sandbox.Spec{Image: e.Image, Timeout: time.Minute, Egress: c.egress})
			var open *e2b.NetworkError
			if errors.As(err, &open) != c.open {
				t.Fatalf("got %v", err)
			}
			if !c.open {
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Kill(ctxOf(t), sb.ID()); err != nil {
					t.Error(err)
				}
				return
			}
			if !slices.Equal(open.Answered, []string{"tcp 127.0.0.1:4000"}) || dreamcore.CodeOf(err) != dreamcore.Refused || !strings.Contains(err.Error(), "127.0.0.1:4000") {
				t.Errorf("got %v", err)
			}
			none(t, p)
		})
	}
}

// Datagrams too, and IPv6: listeners in the box's own loopback.
func TestE26ProbeOfEveryKind(t *testing.T) {
	e := enginetest.Start(t)
	c := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{Network: true})
	plain := c.Provider(t)
	ctx := ctxOf(t)
	sb, err := plain.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := sb.Start(ctx, sandbox.Command{Args: []string{"python3", "-uc", `
import socket, threading
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 5353))
t = socket.socket(socket.AF_INET6); t.bind(("::1", 4433)); t.listen()
print("up")
def udp():
    while True:
        d, a = u.recvfrom(999); u.sendto(d, a)
threading.Thread(target=udp, daemon=True).start()
while True:
    s, _ = t.accept(); s.sendall(s.recv(999)); s.close()
`}})
	if err != nil {
		t.Fatal(err)
	}
	if o := <-srv.Events(); !strings.HasPrefix(string(o.Data), "up") {
		t.Fatalf("%q", o.Data)
	}
	p := c.Provider(t, func(cfg *e2b.Config) {
		cfg.Guard = &e2b.Guard{Wait: 10 * time.Second, Probes: []e2b.Probe{
			{Net: "udp", Host: "127.0.0.1", Port: 5353, Say: "AA"},
			{Net: "tcp", Host: "::1", Port: 4433, Say: "AA"},
			{Net: "tcp", Host: "127.0.0.1", Port: 9, Say: "AA"},
		}}
	})
	err = p.Inspect(ctx, sb.ID(), false)
	var open *e2b.NetworkError
	if !errors.As(err, &open) || !slices.Equal(open.Answered, []string{"udp 127.0.0.1:5353", "tcp [::1]:4433"}) {
		t.Errorf("got %v", err)
	}
	none(t, p)
	if _, err := sb.List(ctx, "/", 1); dreamcore.CodeOf(err) != dreamcore.Lost {
		t.Errorf("the sandbox lives: %v", err)
	}
}

// What cannot be tried is not closed: no bash, no verdict.
func TestSandboxThatCannotBeProbed(t *testing.T) {
	e := enginetest.Start(t)
	c := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{Network: true})
	plain := c.Provider(t)
	ctx := ctxOf(t)
	sb, err := plain.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"sh", "-c", "rm $(readlink -f /bin/bash)"}, User: sandbox.Root, Dir: "/"}, 100); err != nil || res.Code != 0 {
		t.Fatal(res, err)
	}
	p := c.Provider(t, guarded)
	if err := p.Inspect(ctx, sb.ID(), false); dreamcore.CodeOf(err) != dreamcore.Unavailable || !strings.Contains(err.Error(), "could not be checked") {
		t.Errorf("got %v", err)
	}
	none(t, p)
}

// A cloud that takes the network and keeps an open one is found by reading back.
func TestForgetfulCloud(t *testing.T) {
	e := enginetest.Start(t)
	p := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{Network: true, Forget: true}).Provider(t, guarded)
	_, err := p.Create(ctxOf(t), sandbox.Spec{Image: e.Image, Timeout: time.Minute, Egress: true})
	var open *e2b.NetworkError
	if !errors.As(err, &open) || !strings.Contains(err.Error(), "denyOut") || !strings.Contains(err.Error(), "allowPublicTraffic") {
		t.Errorf("got %v", err)
	}
	none(t, p)
}

// A template that is not the image that jobs were made for runs none.
func TestAnotherTemplate(t *testing.T) {
	e := enginetest.Start(t)
	c := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{})
	ctx := ctxOf(t)
	for _, f := range []struct {
		name string
		file sandbox.File
		good bool
	}{
		{"as it must be", sandbox.File{Path: "/usr/share/doc/dreamcore/image.json"}, true},
		{"another", sandbox.File{Path: "/etc/passwd", Data: []byte("somebody else's")}, false},
		{"none", sandbox.File{Path: "/usr/share/doc/dreamcore/none.json", Data: []byte("{}")}, false},
	} {
		if f.good {
			data, err := os.ReadFile(filepath.Join(e.Root, f.file.Path))
			if err != nil {
				t.Fatal(err)
			}
			f.file.Data = data
		}
		p := c.Provider(t, func(cfg *e2b.Config) {
			cfg.Template, cfg.Guard = "base", &e2b.Guard{Holds: []sandbox.File{f.file}}
		})
		sb, err := p.Create(ctx, sandbox.Spec{Image: "sha256:of-ours", Timeout: time.Minute})
		if f.good {
			if err != nil {
				t.Fatal(f.name, err)
			}
			infos, err := p.List(ctx, nil)
			if err != nil || len(infos) != 1 || infos[0].Metadata[e2b.ImageKey] != "sha256:of-ours" {
				t.Errorf("%v, %v", infos, err)
			}
			if err := p.Kill(ctx, sb.ID()); err != nil {
				t.Error(err)
			}
		} else if dreamcore.CodeOf(err) != dreamcore.Conflict || !strings.Contains(err.Error(), "export --e2b") {
			t.Errorf("%s: %v", f.name, err)
		}
		none(t, p)
	}
}

// sudo and su make nobody root any more, and commands of ours still can be.
func TestNobodyBecomesRoot(t *testing.T) {
	e := enginetest.Start(t, func(c *engine.Config) { c.Profile = engine.E2B })
	c := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{})
	ctx := ctxOf(t)
	sudo := func(p *e2b.Provider) int {
		sb, err := p.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Kill(ctx, sb.ID())
		if res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"id", "-u"}, User: sandbox.Root}, 100); err != nil || string(res.Stdout) != "0\n" {
			t.Errorf("our own root: %q, %v", res.Stdout, err)
		}
		res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"sudo", "-n", "true"}}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		return res.Code
	}
	if code := sudo(c.Provider(t)); code != 0 {
		t.Fatalf("sudo does not work to begin with: %d; nothing would be shown", code)
	}
	if sudo(c.Provider(t, guarded)) == 0 {
		t.Error("sudo makes the user root")
	}
}

// The proxy's name is known inside without asking anybody, and written once.
func TestProxyNameIsInTheHostsFile(t *testing.T) {
	e := enginetest.Start(t)
	p := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{Network: true}).Provider(t, guarded)
	ctx := ctxOf(t)
	for _, egress := range []bool{true, false} {
		sb, err := p.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute, Egress: egress})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Inspect(ctx, sb.ID(), egress); err != nil {
			t.Error(err)
		}
		hosts, err := sb.ReadFile(ctx, "/etc/hosts", 10_000)
		if n := strings.Count(string(hosts), "127.0.0.1 proxy.cloud.test\n"); err != nil || egress && n != 1 || !egress && n != 0 {
			t.Errorf("egress %v: %q, %v", egress, hosts, err)
		}
		if err := p.Kill(ctx, sb.ID()); err != nil {
			t.Error(err)
		}
	}
}

// A host that starts anew finds its own and nobody else's.
func TestS03Reap(t *testing.T) {
	e := enginetest.Start(t)
	c := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{})
	of := func(name string) *e2b.Provider {
		return c.Provider(t, func(cfg *e2b.Config) { cfg.Metadata = map[string]string{"installation": name} })
	}
	ours, theirs := of("ours"), of("theirs")
	ctx := ctxOf(t)
	for _, p := range []*e2b.Provider{ours, ours, theirs} {
		if _, err := p.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute, Metadata: map[string]string{"job": "j"}}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := of("ours").Reap(ctx, nil); n != 2 || err != nil {
		t.Errorf("reaped %d, %v", n, err)
	}
	none(t, ours)
	if infos, err := theirs.List(ctx, nil); err != nil || len(infos) != 1 {
		t.Errorf("of the others' %d are left, %v", len(infos), err)
	}
	if n, err := theirs.Reap(ctx, func(i sandbox.Info) bool { return i.Metadata["job"] == "j" }); n != 0 || err != nil {
		t.Errorf("reaped %d of those to be spared, %v", n, err)
	}
	if _, err := c.Provider(t).Reap(ctx, nil); err == nil {
		t.Error("a client without a name of its own reaped everybody's")
	}
	if n, err := theirs.Reap(ctx, nil); n != 1 || err != nil {
		t.Errorf("reaped %d, %v", n, err)
	}
}

// Many creations at once come through one after the other as the plan allows,
// without one refusal by the cloud.
func TestCreationsWaitForTheirTurn(t *testing.T) {
	e := enginetest.Start(t)
	limits := e2b.Limits{Concurrent: 3, CreateEvery: 50 * time.Millisecond}
	enforced := limits
	enforced.CreateEvery /= 2 // the way there takes a varying time
	c := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{Limits: enforced})
	p := c.Provider(t, func(cfg *e2b.Config) { cfg.Limits = limits })
	var wg sync.WaitGroup
	for range 9 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			sb, err := p.Create(ctxOf(t), sandbox.Spec{Image: e.Image, Timeout: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			if err := p.Kill(ctxOf(t), sb.ID()); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if n := c.Counts(); n.Created != 9 || n.Most > 3 {
		t.Errorf("at the cloud: %+v", n)
	}
	none(t, p)
}

// A life that the plan does not give is refused before anything is asked.
func TestLifeOfThePlan(t *testing.T) {
	e := enginetest.Start(t)
	p := e2btest.Start(t, e.URL, enginetest.APIKey, e2btest.Mode{}).Provider(t, func(cfg *e2b.Config) { cfg.Limits = e2b.FreePlan })
	ctx := ctxOf(t)
	if _, err := p.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: 61 * time.Minute}); dreamcore.CodeOf(err) != dreamcore.Refused || !strings.Contains(err.Error(), "1h0m0s") {
		t.Errorf("got %v", err)
	}
	sb, err := p.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.Connect(ctx, sb.ID()) // which does not know its age
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range []sandbox.Sandbox{sb, again} {
		if err := sb.SetTimeout(ctx, 59*time.Minute); err != nil {
			t.Error(err)
		}
		if err := sb.SetTimeout(ctx, time.Hour); dreamcore.CodeOf(err) != dreamcore.Refused {
			t.Errorf("got %v", err)
		}
	}
	if err := p.Kill(ctx, sb.ID()); err != nil {
		t.Error(err)
	}
}
