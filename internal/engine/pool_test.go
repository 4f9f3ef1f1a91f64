package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// pooled has one image booted ahead.
func pooled(n int) func(*engine.Config) {
	return func(c *engine.Config) {
		images := c.Images
		c.Pool = engine.Pool{Max: n, Next: func() (engine.Image, error) { return images("base") }}
	}
}

func awaitWaiting(tb testing.TB, e *enginetest.Engine, n int) {
	tb.Helper()
	for deadline := time.Now().Add(patience); e.Waiting() != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%d boxes wait, not %d", e.Waiting(), n)
		}
	}
}

// waitingIDs are the boxes that have a folder and that no client has.
func waitingIDs(t *testing.T, e *enginetest.Engine) []string {
	t.Helper()
	infos, err := e.Provider.List(ctxOf(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(e.Dir, "box"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range entries {
		found := false
		for _, i := range infos {
			found = found || string(i.ID) == d.Name()
		}
		if !found {
			ids = append(ids, d.Name())
		}
	}
	return ids
}

// A box that was booted ahead is handed out once, as good as any other; no client
// sees it before; closing the engine ends those that still wait.
func TestPool(t *testing.T) {
	e := enginetest.Start(t, pooled(1), func(c *engine.Config) { c.Egress = nil })
	awaitWaiting(t, e, 1)
	ids := waitingIDs(t, e)
	if len(ids) != 1 {
		t.Fatalf("waiting are %v", ids)
	}
	c := client{t, e}
	for _, method := range []string{"GET", "DELETE"} {
		if status, _ := c.api(method, "/sandboxes/"+ids[0], ""); status != 404 {
			t.Errorf("%s of a box that waits: %d", method, status)
		}
	}
	if status, _, body := c.do("GET", "/health", "", "E2b-Sandbox-Id", ids[0]); status != 502 {
		t.Errorf("a box that waits answers: %d %s", status, body)
	}
	seen := map[dreamcore.SandboxID]bool{}
	for i := range 3 {
		awaitWaiting(t, e, 1)
		want := waitingIDs(t, e)
		sb := boot(t, e, func(s *sandbox.Spec) { s.Env = map[string]string{"N": fmt.Sprint(i)} })
		if string(sb.ID()) != want[0] || seen[sb.ID()] {
			t.Errorf("got %s, waiting was %v", sb.ID(), want)
		}
		seen[sb.ID()] = true
		if got := sh(t, sb, sandbox.User, "echo $N; ls -A /workspace ~ /tmp"); !strings.HasPrefix(got, fmt.Sprint(i)) || strings.Contains(got, "mark") {
			t.Errorf("got %q", got)
		}
		sh(t, sb, sandbox.User, "touch /workspace/mark /tmp/mark")
		// It has the processor like any other.
		if got := shares(t, e, string(sb.ID())); got != "1024" && got != "100" {
			t.Errorf("its share is %s", got)
		}
		if i == 1 {
			if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitWaiting(t, e, 1)
	if got := shares(t, e, waitingIDs(t, e)[0]); got != "2" && got != "1" {
		t.Errorf("a box that waits has the share %s", got)
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, e.Dir)
}

func shares(t *testing.T, e *enginetest.Engine, id string) string {
	t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/cpu*/dreamcore-*/" + id + "/cpu.shares", "/sys/fs/cgroup/dreamcore-*/" + id + "/cpu.weight"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(data))
		}
	}
	t.Fatalf("%s has no control group", id)
	return ""
}

// A box that dies while it waits is noticed, removed and replaced.
func TestPoolReplacesTheDead(t *testing.T) {
	e := enginetest.Start(t, pooled(1))
	awaitWaiting(t, e, 1)
	dead := waitingIDs(t, e)[0]
	data, err := os.ReadFile(filepath.Join(e.Dir, "box", dead, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if ids := waitingIDs(t, e); e.Waiting() == 1 && len(ids) == 1 && ids[0] != dead {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the dead box was not replaced")
		}
	}
	sh(t, boot(t, e), sandbox.User, "true")
}

// When the image changes, boxes of the former one are not handed out and end.
func TestPoolFollowsTheImage(t *testing.T) {
	var now atomic.Pointer[engine.Image]
	e := enginetest.Start(t, func(c *engine.Config) {
		old, err := c.Images("base")
		if err != nil {
			t.Fatal(err)
		}
		now.Store(&old)
		c.Images = func(string) (engine.Image, error) { return *now.Load(), nil }
		c.Pool = engine.Pool{Max: 1, Next: func() (engine.Image, error) { return *now.Load(), nil }}
	})
	awaitWaiting(t, e, 1)
	old := waitingIDs(t, e)[0]
	switched := *now.Load()
	switched.Digest = "sha256:" + strings.Repeat("1", 64)
	now.Store(&switched)
	sb := boot(t, e)
	if string(sb.ID()) == old {
		t.Error("a box of the former image was handed out")
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if ids := waitingIDs(t, e); e.Waiting() == 1 && len(ids) == 1 && ids[0] != old {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the box of the former image still waits")
		}
	}
}

// Clients that come while a box is being booted ahead, and clients that give up,
// never lose one.
func TestPoolLosesNothing(t *testing.T) {
	e := enginetest.Start(t, pooled(2))
	for i := range 6 {
		ctx, cancel := context.WithTimeout(ctxOf(t), time.Duration(i*20)*time.Millisecond)
		sb, err := e.Provider.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute})
		cancel()
		if err == nil {
			if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitWaiting(t, e, 2)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		infos, err := e.Provider.List(ctxOf(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos { // a client gave up after its box was there
			if err := e.Provider.Kill(ctxOf(t), i.ID); err != nil {
				t.Fatal(err)
			}
		}
		if ids := waitingIDs(t, e); len(ids) == e.Waiting() && len(infos) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("boxes %v, %d wait", waitingIDs(t, e), e.Waiting())
		}
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, e.Dir)
}
