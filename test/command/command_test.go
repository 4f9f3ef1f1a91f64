// Package command drives the built binary from outside: the engine that serves
// others, and the commands that people have for its sandboxes.
package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dreamcore/internal/engine/enginetest"
)

// patience bounds what takes a second on a quiet machine.
const patience = 2 * time.Minute

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "dreamcore-command-")
	if err == nil {
		binary, err = build(dir)
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir) // a leftover in the temporary folder harms nobody
	os.Exit(code)
}

// build makes the binary of the present source, with the present sandboxd in it
// whatever `make payload` left.
func build(dir string) (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(root, "internal/payload/bin/runsc")); err != nil {
		return "", fmt.Errorf("runsc is not built; run `make setup` (%w)", err)
	}
	gobuild := func(out, pkg string, args ...string) error {
		cmd := exec.Command("go", append(append([]string{"build", "-o", out}, args...), pkg)...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, said)
		}
		return nil
	}
	sandboxd := filepath.Join(dir, "sandboxd")
	if err := gobuild(sandboxd, "./cmd/sandboxd", "-trimpath", "-ldflags=-s -w"); err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, "internal/payload/bin/sandboxd"): sandboxd}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "dreamcore")
	return out, gobuild(out, "./cmd/dreamcore", "-overlay="+overlay)
}

// world is the environment of one test: a data folder, and no engine's
// variables of whoever runs the test.
type world struct {
	t    testing.TB
	data string
	env  []string
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, data: filepath.Join(t.TempDir(), "data")}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "E2B_") && !strings.HasPrefix(v, "DREAMCORE_DATA=") && !strings.HasPrefix(v, "L") {
			w.env = append(w.env, v)
		}
	}
	w.env = append(w.env, "DREAMCORE_DATA="+w.data, "LC_ALL=C.UTF-8", "TERM=xterm")
	return w
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = w.env
	return cmd
}

// result is a finished command.
type result struct {
	code     int
	out, err string
}

// run runs one command line with the given input.
func (w *world) run(input string, args ...string) result {
	w.t.Helper()
	cmd := w.command(args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%q: %v", args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// must is run for what has to succeed; it returns the output without its last
// line break.
func (w *world) must(args ...string) string {
	w.t.Helper()
	r := w.run("", args...)
	if r.code != 0 {
		w.t.Fatalf("%q: code %d\n%s%s", args, r.code, r.out, r.err)
	}
	return strings.TrimSuffix(r.out, "\n")
}

// engine is a `dreamcore engine` that runs.
type engine struct {
	w    *world
	cmd  *exec.Cmd
	vars map[string]string // what it printed for the SDK
	log  *lines
	done chan struct{}
}

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
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

// serve starts an engine and returns once it has printed its variables.
func (w *world) serve(args ...string) *engine {
	w.t.Helper()
	e := &engine{w: w, vars: map[string]string{}, log: &lines{}, done: make(chan struct{})}
	e.cmd = w.command(append([]string{"engine", "--listen", "127.0.0.1:0"}, args...)...)
	e.cmd.Stderr = e.log
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	printed := bufio.NewScanner(out)
	for len(e.vars) < 3 && printed.Scan() {
		k, v, _ := strings.Cut(strings.TrimPrefix(printed.Text(), "export "), "=")
		e.vars[k] = v
	}
	if len(e.vars) < 3 {
		_ = e.cmd.Wait()
		w.t.Fatalf("the engine did not start: %s", e.log)
	}
	go func() {
		defer close(e.done)
		_, _ = io.Copy(io.Discard, out)
		_ = e.cmd.Wait() // its code is in the state
	}()
	w.t.Cleanup(func() {
		e.stop(syscall.SIGTERM)
		if w.t.Failed() {
			w.t.Logf("the engine said:\n%s", e.log)
		}
	})
	return e
}

// stop sends a signal and waits for the end; it returns the exit code.
func (e *engine) stop(sig syscall.Signal) int {
	e.w.t.Helper()
	_ = e.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-e.done:
	case <-time.After(patience):
		e.w.t.Errorf("the engine does not end:\n%s", e.log)
		_ = e.cmd.Process.Kill()
		<-e.done
	}
	return e.cmd.ProcessState.ExitCode()
}

// boxes lists what is left on this machine of the engine's sandboxes.
func (w *world) boxes() []string {
	w.t.Helper()
	all, err := enginetest.Left(filepath.Join(w.data, "serving/engine"))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// leftovers lists what is left of an engine that ended: its sandboxes, every
// process that names its data folder, and its address.
func (w *world) leftovers() []string {
	w.t.Helper()
	all := w.boxes()
	real, err := filepath.EvalSymlinks(w.data)
	if err != nil {
		w.t.Fatal(err)
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range procs {
		if data, err := os.ReadFile(p); err == nil && (bytes.Contains(data, []byte(w.data)) || bytes.Contains(data, []byte(real))) {
			all = append(all, "process "+strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	if _, err := os.Stat(filepath.Join(w.data, "serving/address.json")); err == nil {
		all = append(all, "the address")
	}
	return all
}
