package engine_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
)

// hostilePrograms are those of a test engine whose boxes have a hostile PID 1.
func hostilePrograms(t *testing.T) engine.Config {
	t.Helper()
	p := enginetest.Programs(t)
	p.Sandboxd = filepath.Join(t.TempDir(), "hostile")
	cmd := exec.Command("go", "build", "-o", p.Sandboxd, "./enginetest/hostile")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the hostile program: %v\n%s", err, out)
	}
	return p
}

// Boxes that flood the host with everything that the protocol allows and forbids
// take neither its memory nor the other boxes' time, and end when they are told.
func TestFloods(t *testing.T) {
	honest := enginetest.Start(t)
	hostile, err := enginetest.Open(t.TempDir(), hostilePrograms(t), enginetest.Image(t), func(c *engine.Config) { c.Limits.CPUs = 0.5 })
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := hostile.Shut(); err != nil {
			t.Error(err)
		}
	}()
	sb := boot(t, honest)
	do := func() {
		if got := sh(t, sb, "user", "echo here"); got != "here" {
			t.Errorf("an honest box says %q", got)
		}
	}
	do()
	// Libraries print to the standard logger: a box must not be able to fill it.
	var printed lineCount
	log.SetOutput(&printed)
	defer log.SetOutput(os.Stderr)
	before := heap()
	for _, what := range []string{"pings", "settings", "windows", "unknown", "resets", "hints", "headers", "body", "nothings"} {
		t.Run(what, func(t *testing.T) {
			c := client{t, hostile}
			id, token := c.create("/v2/sandboxes", `{"templateID":"base"}`)
			ctx, cancel := context.WithCancel(ctxOf(t))
			defer cancel()
			var wg sync.WaitGroup
			for i := range 3 { // the first starts it, the others wait for an answer
				wg.Add(1)
				go func() {
					defer wg.Done()
					req, err := http.NewRequestWithContext(ctx, "GET", hostile.URL+"/files?path="+what+"&username=user", nil)
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("E2b-Sandbox-Id", id)
					req.Header.Set("X-Access-Token", token)
					res, err := http.DefaultTransport.RoundTrip(req)
					if err == nil {
						<-ctx.Done() // it reads nothing
						res.Body.Close()
					} else if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
						t.Logf("request %d: %v", i, err)
					}
				}()
			}
			most := before
			for range 5 {
				do()
				most = max(most, heap())
				time.Sleep(100 * time.Millisecond) // the flood goes on
			}
			if most > before+48<<20 {
				t.Errorf("the host's memory grew from %d to %d MiB", before>>20, most>>20)
			}
			if n := runtime.NumGoroutine(); n > 500 {
				t.Errorf("the host has %d goroutines", n)
			}
			cancel()
			wg.Wait()
			// It may have been ended already, because it broke the rules.
			if status, m := c.api("DELETE", "/sandboxes/"+id, ""); status != http.StatusNoContent && status != http.StatusNotFound {
				t.Errorf("kill: %d %v", status, m)
			}
		})
	}
	do()
	nothing(t, hostile.Dir)
	if n := printed.Load(); n > 50 {
		t.Errorf("the boxes made the host print %d lines", n)
	}
}

// lineCount counts what is printed.
type lineCount struct{ atomic.Int64 }

func (c *lineCount) Write(p []byte) (int, error) { c.Add(1); return len(p), nil }

// heap is what the host holds, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
