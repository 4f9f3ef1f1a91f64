package engine_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/agent"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// BenchmarkWarmAgent measures from the request for a box to the first request of
// the real agent in it to its model: restored with the agent started, beside
// booted and started there; and the same of a box that waited in the pool.
func BenchmarkWarmAgent(b *testing.B) {
	asked := make(chan struct{}, 1)
	upstream := func(_ context.Context, _ dreamcore.SandboxID, conn net.Conn) {
		defer conn.Close()
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil && r.Method == http.MethodPost {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				select {
				case asked <- struct{}{}:
				default: // nobody has looked at the one before
				}
			}
		}
	}
	w := agent.Pi{}.Warmup()
	with := func(ahead int, warm bool) *enginetest.Engine {
		return enginetest.Start(b, func(c *engine.Config) {
			c.Limits, c.Egress = engine.DefaultLimits, upstream
			if warm {
				c.Warmup = &engine.Warmup{Args: w.Args, Env: w.Env, Tag: w.Tag, Ready: w.Ready}
			}
			images := c.Images
			c.Pool = engine.Pool{Max: ahead, Next: func() (engine.Image, error) { return images("base") }}
		})
	}
	coldEngine, warmEngine := with(0, false), with(0, true)
	coldPool, warmPool := with(1, false), with(1, true)
	for _, e := range []*enginetest.Engine{warmEngine, warmPool} {
		if err := e.Warm(ctxOf(b), image(e)); err != nil {
			b.Fatal(err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(warmEngine.Dir, "snapshot", "warm*", "checkpoint", "pages.img"))
	if err != nil || len(pages) != 1 {
		b.Fatal(pages, err)
	}
	state, err := os.Stat(pages[0])
	if err != nil {
		b.Fatal(err)
	}
	first := func(e *enginetest.Engine, warm bool) time.Duration {
		var sb sandbox.Sandbox
		ctx, cancel := context.WithCancel(ctxOf(b))
		ended := make(chan error, 1)
		took := timed(b, func() (err error) {
			if sb, err = e.Provider.Create(ctx, sandbox.Spec{Image: e.Image, Egress: true, Timeout: 5 * time.Minute}); err != nil {
				return err
			}
			s := agent.Session{
				ID: dreamcore.NewJobID(), API: agent.Anthropic, Model: "m", ProxyURL: "http://127.0.0.1:4000", GrantFile: "/home/user/grant",
				Dir: "/workspace", Timeout: time.Minute, Warm: warm,
			}
			files, err := agent.Pi{}.Files(s)
			if err != nil {
				return err
			}
			if err := sb.WriteFiles(ctx, append(files, sandbox.File{Path: s.GrantFile, Data: []byte("grant")})); err != nil {
				return err
			}
			go func() {
				ended <- agent.RunTurn(ctx, sb, agent.Pi{}, s, "hello", slog.New(slog.DiscardHandler), func(agent.Event) {})
			}()
			select {
			case <-asked:
			case err = <-ended:
			}
			return err
		})
		if err := e.Provider.Kill(ctx, sb.ID()); err != nil {
			b.Fatal(err)
		}
		cancel()
		<-ended
		for len(asked) > 0 { // it asks again when nobody answers
			<-asked
		}
		return took
	}
	// waited is first of a box that waits already.
	waited := func(e *enginetest.Engine, warm bool) time.Duration {
		for deadline := time.Now().Add(patience); e.Waiting() == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				b.Fatal("no box waits")
			}
		}
		return first(e, warm)
	}
	var cold, warm, coldAhead, warmAhead timing
	for b.Loop() {
		cold, warm = append(cold, first(coldEngine, false)), append(warm, first(warmEngine, true))
		coldAhead, warmAhead = append(coldAhead, waited(coldPool, false)), append(warmAhead, waited(warmPool, true))
	}
	report(b, warm, cold, "booted")
	note(row{"the same of a box from the pool", "the same, booted cold", warmAhead, coldAhead})
	b.ReportMetric(float64(state.Size()>>20), "MiB-state")
}
