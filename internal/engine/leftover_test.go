package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

func left(t *testing.T, dir string) []string {
	t.Helper()
	all, err := enginetest.Left(dir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func nothing(t *testing.T, dir string) {
	t.Helper()
	for _, l := range left(t, dir) {
		t.Errorf("left over: %s", l)
	}
}

// stubborn are processes that do not want to go.
const stubborn = `trap "" TERM HUP INT
	(setsid bash -c 'trap "" TERM; (setsid sleep 8001 &) ; exec sleep 8001' &)
	python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 &
	mkfifo /tmp/p; echo up; while :; do sleep 1; done`

func startStubborn(t *testing.T, sb sandbox.Sandbox) {
	t.Helper()
	p, err := sb.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", stubborn}})
	if err != nil {
		t.Fatal(err)
	}
	if o := <-p.Events(); string(o.Data) != "up\n" {
		t.Fatalf("got %q", o.Data)
	}
}

// Once Kill has returned, nothing of a box is left, whatever ran in it.
func TestS02KillLeavesNothing(t *testing.T) {
	e := enginetest.Start(t)
	sb := boot(t, e)
	startStubborn(t, sb)
	if n := len(left(t, e.Dir)); n < 4 {
		t.Fatalf("a living box has only %d things on this machine: the search is blind", n)
	}
	if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
		t.Fatal(err)
	}
	nothing(t, e.Dir)
}

// Many boxes in a row and at once, and none leaves anything; Close takes the rest.
func TestManyBoxes(t *testing.T) {
	e := enginetest.Start(t)
	const workers, each = 3, 6
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				sb, err := e.Provider.Create(ctxOf(t), sandbox.Spec{Image: e.Image, Timeout: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				res, err := sandbox.Run(ctxOf(t), sb, sandbox.Command{Args: []string{"echo", fmt.Sprint(w, i)}}, 100)
				if err != nil || string(res.Stdout) != fmt.Sprintf("%d %d\n", w, i) {
					t.Errorf("got %q, %v", res.Stdout, err)
				}
				if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	nothing(t, e.Dir)
	for range 3 {
		startStubborn(t, boot(t, e))
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, e.Dir)
	if m, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(m, []byte(e.Dir)) {
		t.Errorf("a mount of the engine is left (%v)", err)
	}
}

// A boot that the client gives up leaves nothing, whenever it is given up.
func TestCancelledBoot(t *testing.T) {
	e := enginetest.Start(t)
	for i := range 8 {
		ctx, cancel := context.WithTimeout(ctxOf(t), time.Duration(i*25)*time.Millisecond)
		sb, err := e.Provider.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute})
		cancel()
		if err == nil {
			if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The engine learns of the client's going a moment later, and a boot that
	// was over by then ends with its time to live.
	for deadline := time.Now().Add(patience); len(left(t, e.Dir)) > 0; time.Sleep(100 * time.Millisecond) {
		infos, err := e.Provider.List(ctxOf(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			if err := e.Provider.Kill(ctxOf(t), i.ID); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(deadline) {
			nothing(t, e.Dir)
			return
		}
	}
}

const childDir = "DREAMCORE_TEST_ENGINE_DIR"

// child is an engine in a process of its own, to be killed.
func child(dir string) {
	root, runsc, sandboxd := os.Getenv("DREAMCORE_TEST_CHILD_ROOT"), os.Getenv("DREAMCORE_TEST_CHILD_RUNSC"), os.Getenv("DREAMCORE_TEST_CHILD_SANDBOXD")
	cfg := enginetest.Config{Runsc: runsc, Sandboxd: sandboxd}
	var change []func(*enginetest.Config)
	if os.Getenv(childKeeps) != "" {
		change = append(change, keepers)
	}
	if os.Getenv(childWarms) != "" {
		change = append(change, shell)
	}
	e, err := enginetest.Open(dir, cfg, root, change...)
	if err == nil && os.Getenv(childKeeps) != "" {
		err = keepChild(e)
	}
	if err == nil && os.Getenv(childPauses) != "" {
		err = pauseChild(e)
	}
	if err == nil && os.Getenv(childWarms) != "" {
		fmt.Println("warms")
		err = e.Warm(context.Background(), image(e))
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		sb, err := e.Provider.Create(context.Background(), sandbox.Spec{Image: e.Image, Timeout: 10 * time.Minute})
		if err == nil {
			_, err = sb.Start(context.Background(), sandbox.Command{Args: []string{"bash", "-c", stubborn}})
		}
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		fmt.Println("booted", sb.ID())
		if i >= 3 {
			_ = e.Provider.Kill(context.Background(), sb.ID())
		}
	}
}

// A host that is killed at any moment leaves nothing once the next one has
// opened, and the boxes of the dead one are known to be lost.
func TestS03KilledHost(t *testing.T) {
	dir := t.TempDir()
	programs, root := enginetest.Programs(t), enginetest.Image(t)
	for round := range 4 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^$")
		cmd.Env = append(os.Environ(), childDir+"="+dir, "DREAMCORE_TEST_CHILD_ROOT="+root,
			"DREAMCORE_TEST_CHILD_RUNSC="+programs.Runsc, "DREAMCORE_TEST_CHILD_SANDBOXD="+programs.Sandboxd)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var ids []string
		for len(ids) < round+1 && lines.Scan() {
			id, ok := strings.CutPrefix(lines.Text(), "booted ")
			if !ok {
				t.Fatal(lines.Text())
			}
			ids = append(ids, id)
		}
		// In the middle of the next boot or kill, wherever that is by now.
		time.Sleep(time.Duration(rand.IntN(250)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, as it was told
		if len(left(t, dir)) == 0 {
			t.Error("the killed host left nothing at all: this test proves nothing")
		}
		e, err := enginetest.Open(dir, programs, root)
		if err != nil {
			t.Fatal(err)
		}
		nothing(t, dir)
		for _, id := range ids {
			if _, err := e.Provider.Connect(ctxOf(t), dreamcore.SandboxID(id)); dreamcore.CodeOf(err) != dreamcore.Lost {
				t.Errorf("a box of the dead host: %v", err)
			}
		}
		// The folder is ours alone meanwhile.
		if _, err := enginetest.Open(dir, programs, root); dreamcore.CodeOf(err) != dreamcore.Conflict {
			t.Errorf("a second engine in the folder: %v", err)
		}
		if err := e.Shut(); err != nil {
			t.Fatal(err)
		}
		nothing(t, dir)
	}
}
