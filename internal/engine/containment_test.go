package engine_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/envd"
	"dreamcore/internal/sandbox"
)

const patience = 2 * time.Minute

func ctxOf(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

func boot(tb testing.TB, e *enginetest.Engine, change ...func(*sandbox.Spec)) sandbox.Sandbox {
	tb.Helper()
	spec := sandbox.Spec{Image: e.Image, Timeout: 10 * time.Minute}
	for _, f := range change {
		f(&spec)
	}
	sb, err := e.Provider.Create(ctxOf(tb), spec)
	if err != nil {
		tb.Fatal(err)
	}
	return sb
}

func run(tb testing.TB, sb sandbox.Sandbox, cmd sandbox.Command) sandbox.Result {
	tb.Helper()
	res, err := sandbox.Run(ctxOf(tb), sb, cmd, 1<<20)
	if err != nil {
		tb.Fatalf("%q: %v", cmd.Args, err)
	}
	return res
}

// sh runs a script as user and returns what it printed, however it ended.
func sh(tb testing.TB, sb sandbox.Sandbox, user, script string) string {
	tb.Helper()
	res := run(tb, sb, sandbox.Command{Args: []string{"bash", "-c", script}, User: user})
	return strings.TrimSpace(string(res.Stdout) + string(res.Stderr))
}

// The user of a box has no privilege and no way to one; PID 1 keeps its secret.
func TestUserHasNothing(t *testing.T) {
	e := enginetest.Start(t)
	sb := boot(t, e)
	status := sh(t, sb, sandbox.User, "grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status")
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		want := "0000000000000000"
		if name == "NoNewPrivs" {
			want = "1"
		}
		if strings.TrimSpace(value) != want {
			t.Errorf("%s is %s", name, value)
		}
	}
	if n := strings.Count(status, "\n"); n != 4 {
		t.Errorf("the status lacks lines: %q", status)
	}
	// The box's root: the positive control of each attempt below.
	if got := sh(t, sb, sandbox.Root, "ls "+envd.ControlDir); !strings.Contains(got, envd.EgressSocket) {
		t.Errorf("root sees %q", got)
	}
	for _, attempt := range []string{
		"ls " + envd.ControlDir,
		"cat " + envd.ControlDir + "/" + envd.BootFile,
		"cat /proc/1/environ",
		"cat /proc/1/mem",
		"ls /proc/1/fd",
		"ls /proc/1/root",
		"kill -9 1",
		"echo x > /etc/passwd",
		"mount -t tmpfs x /mnt",
		"chroot / true",
		"echo 1 > /proc/sys/kernel/hostname",
		"mkdir " + envd.ControlDir + "/x",
	} {
		if res := run(t, sb, sandbox.Command{Args: []string{"bash", "-c", attempt}}); res.Code == 0 {
			t.Errorf("the user may: %s: %q", attempt, res.Stdout)
		}
	}
	// Even root in the box cannot write into the host's folder, and what could
	// have let somebody else in is gone.
	for _, attempt := range []string{
		"echo x > " + envd.ControlDir + "/x",
		"rm " + envd.ControlDir + "/" + envd.EgressSocket,
		"cat " + envd.ControlDir + "/" + envd.BootFile,
		"cat " + envd.ControlDir + "/" + envd.ControlSocket,
		"mount -t tmpfs x /mnt",
		"mknod /tmp/kmem c 1 2",
	} {
		if res := run(t, sb, sandbox.Command{Args: []string{"bash", "-c", attempt}, User: sandbox.Root}); res.Code == 0 {
			t.Errorf("root may: %s: %q", attempt, res.Stdout)
		}
	}
	// What root put into the workspace stays there.
	if err := sb.WriteFiles(ctxOf(t), []sandbox.File{
		{Path: "/workspace/tools/check", Data: []byte("tool"), Mode: 0o755, Owner: sandbox.Root},
		{Path: "/workspace/project/mine", Data: []byte("mine")},
	}); err != nil {
		t.Fatal(err)
	}
	got := sh(t, sb, sandbox.User, `mv /workspace/tools /workspace/t 2>/dev/null && echo moved; rm -rf /workspace/tools 2>/dev/null
		(echo x > /workspace/tools/check) 2>/dev/null && echo written; cat /workspace/tools/check; echo; echo more >> /workspace/project/mine && mv /workspace/project /workspace/p && echo own`)
	if got != "tool\nown" {
		t.Errorf("got %q", got)
	}
	// Nothing of the engine's environment or secrets is anywhere to be seen.
	seen := sh(t, sb, sandbox.Root, "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
	for _, secret := range []string{enginetest.APIKey, e.Dir} {
		if strings.Contains(seen, secret) {
			t.Errorf("the box holds %q", secret)
		}
	}
}

// The image's folder is never written, and one box does not see another's files.
func TestImageIsNotWritten(t *testing.T) {
	e := enginetest.Start(t)
	a, b := boot(t, e), boot(t, e)
	name := "dreamcore-test-" + dreamcore.NewToken(8)
	script := "touch /etc/" + name + " /home/user/" + name + " && rm -rf /usr/share/doc && ls /etc/" + name
	if got := sh(t, a, sandbox.Root, script); got != "/etc/"+name {
		t.Fatalf("root of the box cannot write: %q", got)
	}
	if got := sh(t, b, sandbox.Root, "ls /etc/"+name+" 2>&1 >/dev/null | wc -l"); got != "1" {
		t.Errorf("the other box sees it: %q", got)
	}
	for _, p := range []string{"etc", "home/user"} {
		if _, err := os.Stat(filepath.Join(e.Root, p, name)); err == nil {
			t.Errorf("it is in the image's %s", p)
		}
	}
}

// A box without egress reaches nothing; one with egress reaches the one way
// out, and the engine knows which box it is.
func TestNetwork(t *testing.T) {
	// A twin on the host's loopback, which no box may reach.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	touched := make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			touched <- c.RemoteAddr().String()
			c.Close()
		}
	}()
	e := enginetest.Start(t, func(c *engine.Config) {
		c.Egress = func(_ context.Context, id dreamcore.SandboxID, conn net.Conn) {
			defer conn.Close()
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err == nil {
				fmt.Fprintf(conn, "%s said %s", id, line)
			}
		}
	})
	open := boot(t, e, func(s *sandbox.Spec) { s.Egress = true })
	shut := boot(t, e)
	const ask = `exec 3<>/dev/tcp/127.0.0.1/4000 && echo hello >&3 && cat <&3`
	for range 3 { // more than one connection
		if got, want := sh(t, open, sandbox.User, ask), string(open.ID())+" said hello"; got != want {
			t.Errorf("the way out answered %q, want %q", got, want)
		}
	}
	if got := sh(t, shut, sandbox.User, ask); strings.Contains(got, "said") {
		t.Errorf("a box without egress got %q", got)
	}
	// In the box: its own loopback works (the control), nothing else does.
	loop := `perl -MIO::Socket::INET -e '$s=IO::Socket::INET->new(Listen=>1,LocalAddr=>"127.0.0.1",LocalPort=>5555) or die; if(!fork){$c=IO::Socket::INET->new("127.0.0.1:5555") or die; print $c "loop"; exit} print $s->accept->getline'`
	if got := sh(t, open, sandbox.User, loop); got != "loop" {
		t.Errorf("the box's own loopback: %q", got)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_, enginePort, _ := net.SplitHostPort(strings.TrimPrefix(e.URL, "http://"))
	for _, to := range []string{
		"127.0.0.1/" + port, "127.0.0.1/" + enginePort, "localhost/22", "1.1.1.1/443", "8.8.8.8/53", "169.254.169.254/80", "10.0.0.1/80", "::1/" + port, "2606:4700:4700::1111/443", "example.com/80",
	} {
		for _, sb := range []sandbox.Sandbox{open, shut} {
			for _, proto := range []string{"tcp", "udp"} {
				if proto == "udp" && (strings.HasPrefix(to, "127.") || strings.HasPrefix(to, "::1") || strings.HasPrefix(to, "localhost")) {
					continue // sending into the box's own loopback succeeds and reaches nobody
				}
				res := run(t, sb, sandbox.Command{Args: []string{"timeout", "20", "bash", "-c", "exec 3<>/dev/" + proto + "/" + to + " && echo x >&3"}})
				if res.Code == 0 {
					t.Errorf("%s to %s was possible", proto, to)
				}
			}
		}
	}
	if got := sh(t, open, sandbox.Root, "grep : /proc/net/dev | cut -d: -f1 | tr -d ' '"); got != "lo" {
		t.Errorf("the box has interfaces: %q", got)
	}
	select {
	case who := <-touched:
		t.Errorf("the host's loopback was reached by %s", who)
	default:
	}
	// The control of the twin: from the host it can be reached.
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if who := <-touched; who == "" {
		t.Error("nobody came")
	}
}

// Ways out end with the box, and cannot be piled up without end.
func TestEgressEndsWithTheBox(t *testing.T) {
	came, ended := make(chan struct{}, 1), make(chan error, 1)
	e := enginetest.Start(t, func(c *engine.Config) {
		c.Egress = func(ctx context.Context, _ dreamcore.SandboxID, conn net.Conn) {
			defer conn.Close()
			came <- struct{}{}
			_, err := io.Copy(io.Discard, conn)
			<-ctx.Done()
			ended <- err
		}
	})
	sb := boot(t, e, func(s *sandbox.Spec) { s.Egress = true })
	if _, err := sb.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/4000; sleep 1000"}}); err != nil {
		t.Fatal(err)
	}
	<-came
	if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// Whatever one box spends, its neighbour and the engine go on.
func TestS01Limits(t *testing.T) {
	e := enginetest.Start(t)
	if !e.Limited() {
		t.Fatal("this machine enforces no limits; run the tests where control groups are")
	}
	neighbour := boot(t, e)
	fine := func(t *testing.T) {
		t.Helper()
		if got := sh(t, neighbour, sandbox.User, "echo fine"); got != "fine" {
			t.Errorf("the neighbour says %q", got)
		}
	}
	t.Run("fork bomb", func(t *testing.T) {
		sb := boot(t, e)
		bomb, err := sb.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", "b() { b | b & }; b; sleep 1000"}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range bomb.Events() {
			}
		}()
		time.Sleep(2 * time.Second) // let it spread
		fine(t)
		// The host's own commands still run in the box, and it can be cleaned.
		if got := sh(t, sb, sandbox.Root, "echo root"); got != "root" {
			t.Errorf("root says %q", got)
		}
		if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
			t.Fatal(err)
		}
		fine(t)
	})
	t.Run("memory", func(t *testing.T) {
		sb := boot(t, e)
		eat := sandbox.Command{Args: []string{"perl", "-e", `$|=1; print "go\n"; my @a; while (1) { push @a, "x" x (8<<20); select undef, undef, undef, 0.01 }`}}
		res := run(t, sb, eat)
		if res.Signal != "SIGKILL" || !res.OutOfMemory || string(res.Stdout) != "go\n" {
			t.Errorf("the eater ended with %+v", res)
		}
		// The box lives, its files too.
		if got := sh(t, sb, sandbox.User, "echo alive"); got != "alive" {
			t.Errorf("the box says %q", got)
		}
		fine(t)
	})
	t.Run("memory after a rest", func(t *testing.T) {
		// A process that does nothing costs its box nothing, and the box is awake in
		// time all the same when it is no longer so.
		sb := boot(t, e)
		res := run(t, sb, sandbox.Command{Args: []string{"perl", "-e", `$|=1; sleep 6; print "go\n"; my @a; while (1) { push @a, "x" x (8<<20); select undef, undef, undef, 0.01 }`}})
		if res.Signal != "SIGKILL" || !res.OutOfMemory || string(res.Stdout) != "go\n" {
			t.Errorf("the eater ended with %+v", res)
		}
		if got := sh(t, sb, sandbox.User, "echo alive"); got != "alive" {
			t.Errorf("the box says %q", got)
		}
		fine(t)
	})
	t.Run("memory of many", func(t *testing.T) {
		sb := boot(t, e)
		res := run(t, sb, sandbox.Command{Args: []string{"bash", "-c", `for i in 1 2 3 4; do perl -e 'push @a, "x" x (8<<20) while 1' & done; wait; echo over`}})
		// Here the kernel may be quicker than the watcher. The shell itself is small
		// and outlives its children either way.
		if string(res.Stdout) != "over\n" || res.Code != 0 {
			t.Errorf("got %+v", res.Exit)
		}
		fine(t)
	})
	t.Run("disk", func(t *testing.T) {
		sb := boot(t, e)
		got := sh(t, sb, sandbox.User, `for d in /workspace /tmp /dev/shm; do head -c 2G /dev/zero > $d/big 2>/dev/null && echo $d took it all; done; echo $(( $(stat -c %s /workspace/big) >> 20 ))`)
		if got != "256" {
			t.Errorf("got %q, want 256 MiB in /workspace and an error each", got)
		}
		err := sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/workspace/more", Data: make([]byte, 1<<20)}})
		if dreamcore.CodeOf(err) != dreamcore.Refused {
			t.Errorf("writing to a full disk: %v", err)
		}
		if got := sh(t, sb, sandbox.User, "rm /workspace/big; echo room > /workspace/more && cat /workspace/more"); got != "room" {
			t.Errorf("after clearing up: %q", got)
		}
		fine(t)
	})
	t.Run("root file system", func(t *testing.T) {
		sb := boot(t, e)
		if got := sh(t, sb, sandbox.User, "head -c 2G /dev/zero > ~/big 2>/dev/null && echo took it all; echo $(( $(stat -c %s ~/big) >> 20 ))"); strings.Contains(got, "all") {
			t.Errorf("got %q", got)
		}
		fine(t)
	})
	t.Run("open files", func(t *testing.T) {
		sb := boot(t, e)
		got := sh(t, sb, sandbox.User, `perl -e 'my @f; while (open(my $f, "<", "/dev/null")) { push @f, $f; last if @f > 70000 } print scalar(@f) < 70000 ? "bounded" : "endless"'`)
		if got != "bounded" {
			t.Errorf("got %q", got)
		}
		fine(t)
	})
	t.Run("output", func(t *testing.T) {
		sb := boot(t, e)
		// Nobody reads: it must neither block the box nor grow the daemon.
		p, err := sb.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", "seq 100000000 & sleep 1000"}})
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, sb, sandbox.User, "echo here"); got != "here" {
			t.Errorf("the box says %q", got)
		}
		if err := p.Signal(ctxOf(t), "SIGKILL"); err != nil {
			t.Error(err)
		}
		go func() {
			for range p.Events() {
			}
		}()
		fine(t)
	})
	t.Run("memory wall", func(t *testing.T) {
		// Root's own processes are not the watcher's business: here they stand for
		// whatever it is too slow for. The kernel then ends the process, or the
		// whole box, which must say so.
		sb := boot(t, e)
		res, err := sandbox.Run(ctxOf(t), sb, sandbox.Command{Args: []string{"perl", "-e", `push @a, "x" x (8<<20) while 1`}, User: sandbox.Root}, 1000)
		switch {
		case err == nil:
			if res.Signal != "SIGKILL" {
				t.Errorf("got %+v", res)
			}
			if got := sh(t, sb, sandbox.User, "echo alive"); got != "alive" {
				t.Errorf("the box says %q", got)
			}
		case dreamcore.CodeOf(err) != dreamcore.Lost || !strings.Contains(err.Error(), "ran out of memory"):
			t.Errorf("got %v", err)
		}
		fine(t)
	})
}
