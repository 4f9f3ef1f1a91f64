package engine_test

import (
	"bufio"
	"bytes"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
	"dreamcore/internal/sandbox"
)

// waitingNode keeps a Node program waiting.
func waitingNode(tb testing.TB) func(*engine.Config) {
	script, err := os.ReadFile("testdata/warm.mjs")
	if err != nil {
		tb.Fatal(err)
	}
	return func(c *engine.Config) {
		c.Limits = engine.DefaultLimits
		c.Warmup = &engine.Warmup{Args: []string{"node", "--input-type=module", "-e", string(script)}, Tag: "warm", Ready: "warm"}
	}
}

func image(e *enginetest.Engine) engine.Image {
	return engine.Image{Digest: e.Image, Root: e.Root, Warm: true}
}

// give hands the warm process of a box its job and returns what it prints.
func give(tb testing.TB, e *enginetest.Engine, id, token, job string) string {
	tb.Helper()
	rpc := processconnect.NewProcessClient(http.DefaultClient, e.URL)
	tag := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: "warm"}}
	in := connect.NewRequest(&process.SendInputRequest{Process: tag, Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(job + "\n")}}})
	out := connect.NewRequest(&process.ConnectRequest{Process: tag})
	for _, h := range []http.Header{in.Header(), out.Header()} {
		h.Set("X-Access-Token", token)
		h.Set("E2b-Sandbox-Id", id)
	}
	stream, err := rpc.Connect(ctxOf(tb), out)
	if err != nil {
		tb.Fatal(err)
	}
	defer stream.Close()
	if _, err := rpc.SendInput(ctxOf(tb), in); err != nil {
		tb.Fatal(err)
	}
	var text string
	for stream.Receive() {
		text += string(stream.Msg().GetEvent().GetData().GetStdout()) + string(stream.Msg().GetEvent().GetData().GetStderr())
	}
	if stream.Err() != nil {
		tb.Fatalf("%v after %q", stream.Err(), text)
	}
	return text
}

// lines is a log to look into.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

// A box of a warm image begins with the program in memory, which becomes what it
// is told to, with its own randomness. Whenever there is nothing warm that fits,
// the box is booted and one line says why.
func TestWarm(t *testing.T) {
	dir := t.TempDir()
	var log lines
	logged := func(c *engine.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	e, err := enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), waitingNode(t), logged)
	if err != nil {
		t.Fatal(err)
	}
	shut := func() {
		t.Helper()
		if err := e.Shut(); err != nil {
			t.Fatal(err)
		}
		nothing(t, dir)
	}
	t.Cleanup(func() { e.Shut() }) // for when the test fails
	const cold = "a sandbox starts cold"
	alive := func(e *enginetest.Engine) {
		t.Helper()
		sb := boot(t, e)
		if got := sh(t, sb, sandbox.User, "echo fine"); got != "fine" {
			t.Errorf("got %q", got)
		}
		if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
			t.Fatal(err)
		}
	}
	alive(e)
	if log.count(cold) != 1 || log.count("nothing warm fits") != 1 {
		t.Error("nothing says that the first box is cold")
	}
	if err := e.Warm(ctxOf(t), image(e)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); log.count("made a warm state") == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no warm state")
		}
	}
	c := client{t, e}
	own := map[string]bool{}
	for i := range 2 {
		id, token := c.create("/v2/sandboxes", `{"templateID":"base","timeout":300,"envVars":{"A":"1"}}`)
		own[give(t, e, id, token, `{"probe":true}`)] = true
		if got := sh(t, c.connected(id), sandbox.User, "echo $A; tr '\\0' '\\n' < /proc/1/environ | grep -c SECRET"); !strings.HasPrefix(got, "1") {
			t.Errorf("variables %q", got)
		}
		c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
		id, token = c.create("/v2/sandboxes", `{"templateID":"base","timeout":300}`)
		if got := give(t, e, id, token, `{"argv":["--version"],"cwd":"/workspace"}`); !strings.HasPrefix(got, "1.") {
			t.Errorf("box %d: the agent says %q", i, got)
		}
		c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	}
	if len(own) != 2 {
		t.Errorf("two boxes drew the same: %v", own)
	}
	if log.count(cold) != 1 {
		t.Error("a box was cold although there is a warm state")
	}
	if all, _ := c.list("/snapshots"); len(all) != 0 {
		t.Errorf("clients see the warm state as theirs: %v", all)
	}
	shut()

	// The next engine has it still.
	if e, err = enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), waitingNode(t), logged); err != nil {
		t.Fatal(err)
	}
	c = client{t, e}
	id, token := c.create("/v2/sandboxes", `{"templateID":"base","timeout":300}`)
	if got := give(t, e, id, token, `{"argv":["--version"]}`); !strings.HasPrefix(got, "1.") {
		t.Errorf("the agent says %q", got)
	}
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	// One that is damaged is thrown away, and whoever asked gets a box.
	states, err := filepath.Glob(filepath.Join(dir, "snapshot", "warm*"))
	if err != nil || len(states) != 1 {
		t.Fatalf("%v, %v", states, err)
	}
	if err := flip(filepath.Join(states[0], "checkpoint", "pages.img")); err != nil {
		t.Fatal(err)
	}
	alive(e)
	if log.count(cold) != 2 || log.count("throw the warm state away") != 1 {
		t.Error("nothing says that the warm state was damaged")
	}
	if err := e.Warm(ctxOf(t), image(e)); err != nil {
		t.Fatal(err)
	}
	shut()

	// Another command needs another state, and the former goes; one that fails is
	// said to have failed, and boxes are booted.
	another := func(c *engine.Config) {
		waitingNode(t)(c)
		c.Warmup.Args = []string{"bash", "-c", "echo no; exit 3"}
	}
	if e, err = enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), another, logged); err != nil {
		t.Fatal(err)
	}
	empty(t, dir)
	alive(e)
	if err := e.Warm(ctxOf(t), image(e)); err == nil || !strings.Contains(err.Error(), "ended before it was ready") {
		t.Errorf("a warm-up that fails: %v", err)
	}
	alive(e)
	shut()
	empty(t, dir)
}

// Only who asks for it gets a warm box; what waits in the pool is warm as soon
// as it can be; and an engine that is to make no warm state uses one that is
// there.
func TestWhoGetsAWarmBox(t *testing.T) {
	dir := t.TempDir()
	var log lines
	found := false
	open := func() *enginetest.Engine {
		t.Helper()
		e, err := enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), waitingNode(t), func(c *engine.Config) {
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.Warmup.Found = found
			images := c.Images
			c.Images = func(ref string) (engine.Image, error) {
				ref, cold := strings.CutSuffix(ref, "-cold")
				img, err := images(ref)
				img.Warm = !cold
				return img, err
			}
			if !found {
				c.Pool = engine.Pool{Max: 1, Next: func() (engine.Image, error) { return c.Images("base") }}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	warm := func(e *enginetest.Engine, image string) bool {
		t.Helper()
		sb, err := e.Provider.Create(ctxOf(t), sandbox.Spec{Image: image, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
				t.Error(err)
			}
		}()
		_, err = sb.(sandbox.Joiner).Join(ctxOf(t), "warm")
		if err != nil && dreamcore.CodeOf(err) != dreamcore.NotFound {
			t.Error(err)
		}
		return err == nil
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	e := open()
	t.Cleanup(func() { e.Shut() }) // for when the test fails
	if warm(e, "base-cold") {
		t.Error("a box is warm that nobody wanted so")
	}
	e.WarmSoon(image(e))
	until("no warm state was made by itself", func() bool { return log.count("made a warm state") == 1 })
	e.WarmSoon(image(e)) // there is one
	until("no box waits", func() bool { return e.Waiting() == 1 })
	// A cold one that was being booted for the pool all the while is given up.
	until("what waits is cold", func() bool { return warm(e, "base") })
	if warm(e, "base-cold") {
		t.Error("a box is warm that nobody wanted so")
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}

	found = true
	e = open()
	if !warm(e, "base") {
		t.Error("the warm state that is there is not used")
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, dir)
	dir = t.TempDir()
	e = open()
	if warm(e, "base") {
		t.Error("a box is warm out of nothing")
	}
	e.WarmSoon(image(e))
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	if log.count("there is nothing warm, and none is made") != 1 || log.count("made a warm state") != 1 {
		t.Error("the log does not say why, or something was made")
	}
	empty(t, dir)
}

const childWarms = "DREAMCORE_TEST_CHILD_WARMS"

// shell keeps a shell waiting.
func shell(c *engine.Config) {
	c.Warmup = &engine.Warmup{Args: []string{"sh", "-c", "echo ready; read -r x"}, Tag: "warm", Ready: "ready"}
}

// A host that is killed while it makes a warm state, at any moment, leaves
// nothing once the next one has opened, or a state that is whole.
func TestKilledWhileItWarms(t *testing.T) {
	dir := t.TempDir()
	programs, root := enginetest.Programs(t), enginetest.Image(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		cmd := exec.Command(self, "-test.run=^$")
		cmd.Env = append(os.Environ(), childDir+"="+dir, childWarms+"=1", "DREAMCORE_TEST_CHILD_ROOT="+root,
			"DREAMCORE_TEST_CHILD_RUNSC="+programs.Runsc, "DREAMCORE_TEST_CHILD_SANDBOXD="+programs.Sandboxd)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "warms" {
			t.Fatalf("the host says %q", lines.Text())
		}
		// While it hashes, boots, warms up, saves, or is done.
		time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, as it was told
		e, err := enginetest.Open(dir, programs, root, shell)
		if err != nil {
			t.Fatal(err)
		}
		nothing(t, dir)
		if half, err := filepath.Glob(filepath.Join(dir, "snapshot", ".new-*")); err != nil || len(half) > 0 {
			t.Errorf("half a state is left: %v, %v", half, err)
		}
		if err := e.Warm(ctxOf(t), image(e)); err != nil {
			t.Error(err)
		}
		sb := boot(t, e)
		if _, err := sb.(sandbox.Joiner).Join(ctxOf(t), "warm"); err != nil {
			t.Errorf("the box is not warm: %v", err)
		}
		if err := e.Shut(); err != nil {
			t.Fatal(err)
		}
		nothing(t, dir)
		if err := os.RemoveAll(filepath.Join(dir, "snapshot")); err != nil {
			t.Fatal(err)
		}
	}
}
