// Package sandboxtest is the suite that every sandbox engine passes, however it
// boots its computers.
package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// patience is a deadline that only a hang reaches.
const patience = 2 * time.Minute

// Run runs the suite. spec needs an image with a POSIX shell, coreutils, the
// account "user", and a folder /tmp.
func Run(t *testing.T, p sandbox.Provider, spec sandbox.Spec) {
	s := suite{p: p, spec: spec}
	s.sb = s.boot(t)
	for _, c := range []struct {
		name string
		f    func(*testing.T)
	}{
		{"command", s.command},
		{"arguments", s.arguments},
		{"environment", s.environment},
		{"users", s.users},
		{"stdin", s.stdin},
		{"files", s.files},
		{"bulk", s.bulk},
		{"refused files", s.refusedFiles},
		{"refused commands", s.refusedCommands},
		{"signals", s.signals},
		{"group", s.group},
		{"timeout", s.timeout},
		{"outlives", s.outlives},
		{"background", s.background},
		{"stream", s.stream},
		{"concurrency", s.concurrency},
		{"cancel", s.cancel},
		{"list", s.list},
		{"connect", s.connect},
		{"kill", s.kill},
		{"time to live", s.life},
	} {
		t.Run(c.name, c.f)
	}
}

type suite struct {
	p    sandbox.Provider
	spec sandbox.Spec
	sb   sandbox.Sandbox // shared by the tests that do not end it
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// boot makes a sandbox that ends with the test.
func (s suite) boot(t *testing.T) sandbox.Sandbox {
	t.Helper()
	sb, err := s.p.Create(ctxOf(t), s.spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.p.Kill(context.Background(), sb.ID()); err != nil {
			t.Error(err)
		}
	})
	return sb
}

func run(t *testing.T, sb sandbox.Sandbox, cmd sandbox.Command) sandbox.Result {
	t.Helper()
	res, err := sandbox.Run(ctxOf(t), sb, cmd, 1<<20)
	if err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	return res
}

// sh runs a script as the user and returns what it printed.
func (s suite) sh(t *testing.T, script string) string {
	t.Helper()
	res := run(t, s.sb, sandbox.Command{Args: []string{"sh", "-c", script}})
	if res.Code != 0 {
		t.Fatalf("%s: exit %d: %s", script, res.Code, res.Stderr)
	}
	return strings.TrimSpace(string(res.Stdout))
}

func code(t *testing.T, err error, want dreamcore.Code) {
	t.Helper()
	if got := dreamcore.CodeOf(err); got != want {
		t.Errorf("code %q, want %q (%v)", got, want, err)
	}
}

func (s suite) command(t *testing.T) {
	res := run(t, s.sb, sandbox.Command{Args: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}})
	if string(res.Stdout) != "out\n" || string(res.Stderr) != "err\n" || res.Code != 7 || res.Signal != "" {
		t.Errorf("got %+v", res)
	}
}

// arguments go through as they are: no shell reads them.
func (s suite) arguments(t *testing.T) {
	args := []string{"printf", "%s|", "-n", "a b", "$HOME", "'\"`;&|", "line\nline", "ネコ", ""}
	res := run(t, s.sb, sandbox.Command{Args: args})
	if want := strings.Join(args[2:], "|") + "|"; string(res.Stdout) != want {
		t.Errorf("got %q, want %q", res.Stdout, want)
	}
}

func (s suite) environment(t *testing.T) {
	res := run(t, s.sb, sandbox.Command{
		Args: []string{"sh", "-c", "echo $A $B $HOME; pwd"}, Dir: "/tmp", Env: map[string]string{"A": "1", "B": "two words"},
	})
	if want := "1 two words /home/user\n/tmp\n"; string(res.Stdout) != want {
		t.Errorf("got %q, want %q", res.Stdout, want)
	}
	if got := s.sh(t, "pwd"); got != "/home/user" {
		t.Errorf("a command without a folder starts in %q", got)
	}
	for k, v := range s.spec.Env {
		if got := s.sh(t, "echo $"+k); got != v {
			t.Errorf("%s is %q, want %q", k, got, v)
		}
	}
}

func (s suite) users(t *testing.T) {
	if got := s.sh(t, "id -un"); got != sandbox.User {
		t.Errorf("a command runs as %q", got)
	}
	if res := run(t, s.sb, sandbox.Command{Args: []string{"id", "-u"}, User: sandbox.Root}); string(res.Stdout) != "0\n" {
		t.Errorf("root is %q", res.Stdout)
	}
	if _, err := s.sb.Start(ctxOf(t), sandbox.Command{Args: []string{"true"}, User: "nobody-there"}); err == nil {
		t.Error("a user that does not exist ran a command")
	}
}

func (s suite) stdin(t *testing.T) {
	if got := s.sh(t, "cat; echo end"); got != "end" {
		t.Errorf("a closed input gave %q", got)
	}
}

func (s suite) refusedCommands(t *testing.T) {
	ctx := ctxOf(t)
	for _, c := range []struct {
		cmd  sandbox.Command
		want dreamcore.Code
	}{
		{sandbox.Command{Args: []string{"no-such-command"}}, dreamcore.NotFound},
		{sandbox.Command{Args: []string{"/no/such/command"}}, dreamcore.NotFound},
		{sandbox.Command{Args: []string{"true"}, Dir: "/no/such/folder"}, dreamcore.Invalid},
		{sandbox.Command{Args: []string{"/tmp"}}, dreamcore.Refused},
		{sandbox.Command{}, dreamcore.Invalid},
	} {
		_, err := s.sb.Start(ctx, c.cmd)
		code(t, err, c.want)
	}
}

func (s suite) signals(t *testing.T) {
	ctx := ctxOf(t)
	for _, sig := range []string{"SIGTERM", "SIGKILL"} {
		p, err := s.sb.Start(ctx, sandbox.Command{Args: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(ctx, sig); err != nil {
			t.Fatal(err)
		}
		drain(p)
		exit, err := p.Wait(ctx)
		if err != nil || exit.Code != -1 || exit.Signal != sig {
			t.Errorf("after %s: %+v, %v", sig, exit, err)
		}
		code(t, p.Signal(ctx, sig), dreamcore.NotFound)
	}
}

func drain(p sandbox.Process) {
	for range p.Events() {
	}
}

// group: one signal reaches children that ignore the polite one.
func (s suite) group(t *testing.T) {
	ctx := ctxOf(t)
	p, err := s.sb.Start(ctx, sandbox.Command{Args: []string{"sh", "-c", `
		trap "" TERM
		sh -c 'trap "" TERM; echo in; exec sleep 7001' &
		sh -c 'trap "" TERM; echo in; exec sleep 7001' &
		wait`}})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 2; {
		o, ok := <-p.Events()
		if !ok {
			t.Fatal("it ended before it started")
		}
		n += strings.Count(string(o.Data), "in")
	}
	if err := p.Signal(ctx, "SIGKILL"); err != nil {
		t.Fatal(err)
	}
	drain(p)
	s.none(t, "7001")
}

// none fails unless soon nothing runs that has arg among its arguments.
func (s suite) none(t *testing.T, arg string) {
	t.Helper()
	script := `for i in $(seq 200); do
		n=0; for f in /proc/[0-9]*/cmdline; do tr '\0' '\n' < $f 2>/dev/null | grep -qx ` + arg + ` && n=$((n+1)); done
		[ $n = 0 ] && exit 0; sleep 0.1; done; echo $n left; exit 1`
	if res := run(t, s.sb, sandbox.Command{Args: []string{"sh", "-c", script}}); res.Code != 0 {
		t.Errorf("%s", res.Stdout)
	}
}

func (s suite) timeout(t *testing.T) {
	ctx := ctxOf(t)
	p, err := s.sb.Start(ctx, sandbox.Command{
		Args: []string{"sh", "-c", `trap "" TERM; echo before; sleep 7002 & wait`}, Timeout: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for o := range p.Events() {
		out.Write(o.Data)
	}
	exit, err := p.Wait(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || exit.Code != -1 {
		t.Errorf("a command over its time ended with %+v, %v", exit, err)
	}
	if out.String() != "before\n" {
		t.Errorf("its output is %q", out.String())
	}
	s.none(t, "7002")
}

// outlives: the context of the start only bounds the start.
func (s suite) outlives(t *testing.T) {
	ctx, cancel := context.WithCancel(ctxOf(t))
	p, err := s.sb.Start(ctx, sandbox.Command{Args: []string{"sh", "-c", "sleep 1; echo alive"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	var out bytes.Buffer
	for o := range p.Events() {
		out.Write(o.Data)
	}
	if exit, err := p.Wait(ctxOf(t)); err != nil || exit.Code != 0 || out.String() != "alive\n" {
		t.Errorf("got %+v, %v, %q", exit, err, out.String())
	}
}

// background: a command ends when it exits, though a child holds its output.
func (s suite) background(t *testing.T) {
	res := run(t, s.sb, sandbox.Command{Args: []string{"sh", "-c", "(sleep 3; touch /tmp/late; sleep 7003) & echo done"}})
	if string(res.Stdout) != "done\n" || res.Code != 0 {
		t.Errorf("got %+v", res)
	}
	if got := s.sh(t, "[ -e /tmp/late ] && echo early; for i in $(seq 300); do [ -e /tmp/late ] && break; sleep 0.1; done; ls /tmp/late"); got != "/tmp/late" {
		t.Errorf("the child: %q", got)
	}
}

// stream: nothing of 200 commands' output is lost or mixed up.
func (s suite) stream(t *testing.T) {
	const commands, lines, workers = 200, 50, 4
	var next sync.Mutex
	n := 0
	var wg sync.WaitGroup
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				next.Lock()
				i := n
				n++
				next.Unlock()
				if i >= commands {
					return
				}
				script := fmt.Sprintf("for j in $(seq %d); do echo %d.$j; done", lines, i)
				res, err := sandbox.Run(ctxOf(t), s.sb, sandbox.Command{Args: []string{"sh", "-c", script}}, 1<<20)
				if err != nil {
					t.Errorf("command %d: %v", i, err)
					return
				}
				var want strings.Builder
				for j := range lines {
					fmt.Fprintf(&want, "%d.%d\n", i, j+1)
				}
				if string(res.Stdout) != want.String() || res.Code != 0 {
					t.Errorf("command %d: exit %d, %d bytes of %d", i, res.Code, len(res.Stdout), want.Len())
				}
			}
		}()
	}
	wg.Wait()
	// And one long one: more than any buffer on the way holds.
	res, err := sandbox.Run(ctxOf(t), s.sb, sandbox.Command{Args: []string{"sh", "-c", "seq 1000000"}}, 16<<20)
	if err != nil || len(res.Stdout) != 6888896 || !bytes.HasSuffix(res.Stdout, []byte("\n999999\n1000000\n")) {
		t.Errorf("%d bytes, %v", len(res.Stdout), err)
	}
}

func (s suite) concurrency(t *testing.T) {
	ctx := ctxOf(t)
	var ps []sandbox.Process
	for range 30 {
		p, err := s.sb.Start(ctx, sandbox.Command{Args: []string{"sleep", "7004"}})
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	if got := s.sh(t, "echo still"); got != "still" {
		t.Errorf("got %q", got)
	}
	for _, p := range ps {
		if err := p.Signal(ctx, "SIGKILL"); err != nil {
			t.Error(err)
		}
		drain(p)
	}
}

// cancel: a context that ends kills what Run runs.
func (s suite) cancel(t *testing.T) {
	ctx, cancel := context.WithCancel(ctxOf(t))
	_, err := sandbox.Stream(ctx, s.sb, sandbox.Command{Args: []string{"sh", "-c", "echo go; sleep 7005"}}, func(sandbox.Output) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.none(t, "7005")
}

func (s suite) list(t *testing.T) {
	ctx := ctxOf(t)
	spec := s.spec
	spec.Metadata = map[string]string{"job": "a job & more=%20", "attempt": "1"}
	sb, err := s.p.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	defer s.p.Kill(ctx, sb.ID())
	for _, c := range []struct {
		filter map[string]string
		want   bool
	}{
		{spec.Metadata, true},
		{map[string]string{"attempt": "1"}, true},
		{map[string]string{"attempt": "2"}, false},
		{map[string]string{"other": "1"}, false},
	} {
		infos, err := s.p.List(ctx, c.filter)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, i := range infos {
			found = found || i.ID == sb.ID()
		}
		if found != c.want {
			t.Errorf("filter %v: found %v, want %v", c.filter, found, c.want)
		}
	}
}

func (s suite) connect(t *testing.T) {
	ctx := ctxOf(t)
	s.sh(t, "echo here > /tmp/connect")
	again, err := s.p.Connect(ctx, s.sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.ReadFile(ctx, "/tmp/connect", 100); err != nil || string(got) != "here\n" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = s.p.Connect(ctx, dreamcore.NewSandboxID())
	code(t, err, dreamcore.Lost)
}

func (s suite) kill(t *testing.T) {
	ctx := ctxOf(t)
	sb := s.boot(t)
	p, err := sb.Start(ctx, sandbox.Command{Args: []string{"sh", "-c", "echo up; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Events()
	if err := s.p.Kill(ctx, sb.ID()); err != nil {
		t.Fatal(err)
	}
	if err := s.p.Kill(ctx, sb.ID()); err != nil {
		t.Errorf("killing the dead: %v", err)
	}
	drain(p)
	_, err = p.Wait(ctx)
	code(t, err, dreamcore.Lost)
	_, err = sb.Start(ctx, sandbox.Command{Args: []string{"true"}})
	code(t, err, dreamcore.Lost)
	code(t, sb.WriteFiles(ctx, []sandbox.File{{Path: "/tmp/x"}}), dreamcore.Lost)
	_, err = sb.ReadFile(ctx, "/etc/passwd", 1<<20)
	code(t, err, dreamcore.Lost)
	_, err = sb.List(ctx, "/", 1)
	code(t, err, dreamcore.Lost)
	code(t, sb.SetTimeout(ctx, time.Minute), dreamcore.Lost)
	_, err = s.p.Connect(ctx, sb.ID())
	code(t, err, dreamcore.Lost)
}

func (s suite) life(t *testing.T) {
	ctx := ctxOf(t)
	sb := s.boot(t)
	if err := sb.SetTimeout(ctx, time.Second); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := sb.List(ctx, "/", 1)
		if dreamcore.CodeOf(err) == dreamcore.Lost {
			return
		}
		if err != nil {
			t.Fatalf("while it lived: %v", err)
		}
		time.Sleep(50 * time.Millisecond) // ctx bounds the loop
	}
}
