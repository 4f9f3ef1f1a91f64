package envd

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore/internal/envd/spec/filesystem/filesystemconnect"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
)

// fixture is one daemon for all tests: it owns the children of this process.
type fixture struct {
	*Server
	url   string
	procs processconnect.ProcessClient
	files filesystemconnect.FilesystemClient
}

func TestMain(m *testing.M) {
	code := m.Run()
	if fixtureDir != "" {
		_ = os.RemoveAll(fixtureDir) // a leftover in the temporary folder harms nobody
	}
	os.Exit(code)
}

var fixtureDir string

var start = sync.OnceValues(func() (*fixture, error) {
	dir, err := os.MkdirTemp("", "envd-test-")
	if err != nil {
		return nil, err
	}
	fixtureDir = dir
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	home := filepath.Join(dir, "home")
	passwd := fmt.Sprintf("# a comment\nroot:x:0:0:root:/root:/bin/sh\nbroken\nuser:x:12345:12345::%s:/bin/sh\n", home)
	err = errors.Join(
		os.Mkdir(home, 0o755), os.Chown(home, 12345, 12345),
		os.WriteFile(filepath.Join(dir, "passwd"), []byte(passwd), 0o644),
		os.WriteFile(filepath.Join(dir, "group"), []byte("root:x:0:\nuser:x:12345:\nextra:x:23456:other,user\n"), 0o644),
	)
	if err != nil {
		return nil, err
	}
	s := New(Config{Passwd: filepath.Join(dir, "passwd"), Group: filepath.Join(dir, "group")})
	srv := httptest.NewServer(s.Handler())
	return &fixture{s, srv.URL, processconnect.NewProcessClient(srv.Client(), srv.URL), filesystemconnect.NewFilesystemClient(srv.Client(), srv.URL)}, nil
})

func daemon(t *testing.T) *fixture {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("the daemon changes users: run the tests as root")
	}
	f, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func as(user string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":")) }

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// result is a finished process.
type result struct {
	pid      uint32
	out, err string
	end      *process.ProcessEvent_EndEvent
	pings    int
}

func (f *fixture) run(t *testing.T, ctx context.Context, user string, req *process.StartRequest, header ...string) (result, error) {
	t.Helper()
	r := connect.NewRequest(req)
	r.Header().Set("Authorization", as(user))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header().Set(header[i], header[i+1])
	}
	stream, err := f.procs.Start(ctx, r)
	if err != nil {
		return result{}, err
	}
	defer stream.Close()
	var res result
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Start:
			res.pid = e.Start.GetPid()
		case *process.ProcessEvent_Data:
			res.out += string(e.Data.GetStdout())
			res.err += string(e.Data.GetStderr())
		case *process.ProcessEvent_End:
			res.end = e.End
		case *process.ProcessEvent_Keepalive:
			res.pings++
		}
	}
	return res, stream.Err()
}

func script(s string, stdin bool) *process.StartRequest {
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "sh", Args: []string{"-c", s}}, Stdin: &stdin}
}

func TestProcess(t *testing.T) {
	f := daemon(t)
	res, err := f.run(t, ctxOf(t), "user", script(`echo out; echo err >&2; id -u; id -G; pwd; echo $HOME $USER; exit 3`, false))
	if err != nil {
		t.Fatal(err)
	}
	home, err := f.user("user")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("out\n12345\n12345 23456\n%[1]s\n%[1]s user\n", home.home)
	if res.out != want || res.err != "err\n" {
		t.Errorf("out %q (want %q), err %q", res.out, want, res.err)
	}
	if !res.end.GetExited() || res.end.GetExitCode() != 3 || res.end.GetStatus() != "exit status 3" {
		t.Errorf("end %v", res.end)
	}
	if res, err = f.run(t, ctxOf(t), "user", script(`kill -9 $$`, false)); err != nil {
		t.Fatal(err)
	}
	if res.end.GetExited() || res.end.GetExitCode() != -1 || res.end.GetStatus() != "signal: killed" {
		t.Errorf("end %v", res.end)
	}
}

func TestProcessRefusals(t *testing.T) {
	f := daemon(t)
	dir, file, nul, long := "/no/such/folder", "/etc/passwd", "/tmp\x00", "/"+strings.Repeat("x/", 2500)
	for _, c := range []struct {
		name string
		user string
		req  *process.StartRequest
		want connect.Code
	}{
		{"no user", "nobody-there", script("true", false), connect.CodeUnauthenticated},
		{"no process", "user", &process.StartRequest{}, connect.CodeInvalidArgument},
		{"no command", "user", &process.StartRequest{Process: &process.ProcessConfig{}}, connect.CodeInvalidArgument},
		{"NUL in the command", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "a\x00b"}}, connect.CodeInvalidArgument},
		{"NUL in an argument", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Args: []string{"a\x00b"}}}, connect.CodeInvalidArgument},
		{"no such command", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "no-such-command"}}, connect.CodeNotFound},
		{"no folder", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &dir}}, connect.CodeInvalidArgument},
		{"too long", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Args: []string{strings.Repeat("x", 4<<20)}}}, connect.CodeInvalidArgument},
		{"a folder that is a file", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &file}}, connect.CodeInvalidArgument},
		{"NUL in the folder", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &nul}}, connect.CodeInvalidArgument},
		{"a long folder", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &long}}, connect.CodeInvalidArgument},
		{"a folder", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/etc"}}, connect.CodePermissionDenied},
		{"a huge terminal", "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true"}, Pty: &process.PTY{Size: &process.PTY_Size{Cols: 1 << 16, Rows: 2}}}, connect.CodeInvalidArgument},
	} {
		if _, err := f.run(t, ctxOf(t), c.user, c.req); connect.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	// Variables that the kernel cannot hold are left out, the rest stays.
	res, err := f.run(t, ctxOf(t), "user", &process.StartRequest{Process: &process.ProcessConfig{
		Cmd: "env", Envs: map[string]string{"GOOD": "1", "BAD=X": "2", "": "3", "NUL": "a\x00b"},
	}})
	if err != nil || !strings.Contains(res.out, "GOOD=1\n") || strings.Contains(res.out, "BAD") || strings.Contains(res.out, "NUL") {
		t.Errorf("got %q, %v", res.out, err)
	}
}

// The reference daemon panics at a keepalive interval of 0 or less.
func TestKeepalive(t *testing.T) {
	f := daemon(t)
	for _, v := range []string{"0", "-1", "nonsense", "99999999999999999999"} {
		if res, err := f.run(t, ctxOf(t), "user", script("echo fine", false), keepaliveHeader, v); err != nil || res.out != "fine\n" {
			t.Errorf("interval %q: %q, %v", v, res.out, err)
		}
	}
	if res, err := f.run(t, ctxOf(t), "user", script("sleep 2.5", false), keepaliveHeader, "1"); err != nil || res.pings == 0 {
		t.Errorf("%d pings, %v", res.pings, err)
	}
}

// started starts a process and returns its number once it has printed a line.
func (f *fixture) started(t *testing.T, ctx context.Context, req *process.StartRequest) (uint32, *connect.ServerStreamForClient[process.StartResponse]) {
	t.Helper()
	r := connect.NewRequest(req)
	r.Header().Set("Authorization", as("user"))
	stream, err := f.procs.Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	var pid uint32
	for stream.Receive() {
		e := stream.Msg().GetEvent()
		if s := e.GetStart(); s != nil {
			pid = s.GetPid()
		}
		if e.GetData() != nil {
			return pid, stream
		}
	}
	t.Fatalf("it ended before it printed: %v", stream.Err())
	return 0, nil
}

func byPID(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

// A process outlives its request, and what it printed meanwhile is kept for
// whoever connects, its end included.
func TestConnect(t *testing.T) {
	f := daemon(t)
	ctx, cancel := context.WithCancel(ctxOf(t))
	pid, stream := f.started(t, ctx, script(`echo first; read line; echo "got $line"; exit 5`, true))
	cancel()
	for stream.Receive() {
	}
	f.unread(t, pid)
	if _, err := f.procs.SendInput(ctxOf(t), connect.NewRequest(&process.SendInputRequest{
		Process: byPID(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("word\n")}},
	})); err != nil {
		t.Fatal(err)
	}
	again, err := f.procs.Connect(ctxOf(t), connect.NewRequest(&process.ConnectRequest{Process: byPID(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	var out string
	var end *process.ProcessEvent_EndEvent
	for again.Receive() {
		e := again.Msg().GetEvent()
		out += string(e.GetData().GetStdout())
		if x := e.GetEnd(); x != nil {
			end = x
		}
	}
	if err := again.Err(); err != nil || out != "got word\n" || end.GetExitCode() != 5 {
		t.Errorf("got %q, %v, %v", out, end, err)
	}
	// Its end has been collected: it is gone.
	gone, err := f.procs.Connect(ctxOf(t), connect.NewRequest(&process.ConnectRequest{Process: byPID(pid)}))
	if err == nil {
		for gone.Receive() {
		}
		err = gone.Err()
	}
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a process whose end was collected: %v", err)
	}
}

// unread waits until the daemon has noticed that the clients of a process went
// away; until then the output belongs to them.
func (f *fixture) unread(t *testing.T, pid uint32) {
	t.Helper()
	f.mu.Lock()
	p := f.Server.procs[int(pid)]
	f.mu.Unlock()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p.out.mu.Lock()
		n := len(p.out.readers)
		p.out.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the daemon does not notice that the client is gone")
		}
	}
}

func TestInputAndTags(t *testing.T) {
	f := daemon(t)
	tag := "worker"
	var pids []uint32
	for range 2 { // the reference daemon fails when several carry a tag
		req := script("echo up; cat; echo over", true)
		req.Tag = &tag
		pid, stream := f.started(t, ctxOf(t), req)
		pids = append(pids, pid)
		defer stream.Close()
	}
	list, err := f.procs.List(ctxOf(t), connect.NewRequest(&process.ListRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	tagged := 0
	for _, p := range list.Msg.GetProcesses() {
		if p.GetTag() == tag && p.GetConfig().GetCmd() == "sh" {
			tagged++
		}
	}
	if tagged != 2 {
		t.Errorf("%d of 2 are listed", tagged)
	}
	byTag := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
	if _, err := f.procs.SendSignal(ctxOf(t), connect.NewRequest(&process.SendSignalRequest{Process: byTag, Signal: process.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Errorf("by tag: %v", err)
	}
	if _, err := f.procs.CloseStdin(ctxOf(t), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(pids[0])})); err != nil {
		t.Error(err)
	}
	for _, sig := range []process.Signal{process.Signal_SIGNAL_UNSPECIFIED, 2} {
		if _, err := f.procs.SendSignal(ctxOf(t), connect.NewRequest(&process.SendSignalRequest{Process: byPID(pids[0]), Signal: sig})); err == nil {
			t.Errorf("signal %d was sent", sig)
		}
	}
	if _, err := f.procs.SendSignal(ctxOf(t), connect.NewRequest(&process.SendSignalRequest{Process: byPID(4_000_000), Signal: process.Signal_SIGNAL_SIGKILL})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a process that is not there: %v", err)
	}
}

// The daemon's own timer holds although the client went away.
func TestTimeoutWithoutClient(t *testing.T) {
	f := daemon(t)
	r := connect.NewRequest(script("echo up; exec sleep 9001", false))
	r.Header().Set("Authorization", as("user"))
	r.Header().Set("Connect-Timeout-Ms", "700")
	// Without a deadline of its own: that would become the process's.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := f.procs.Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	pid := int(stream.Msg().GetEvent().GetStart().GetPid())
	cancel()
	for deadline := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it runs on")
		}
	}
}

// Nobody reads and the process prints without end: it does not block the
// daemon, which keeps a bounded part.
func TestOutputWithoutReader(t *testing.T) {
	f := daemon(t)
	ctx, cancel := context.WithCancel(ctxOf(t))
	pid, stream := f.started(t, ctx, script("seq 3000000; echo last", false))
	cancel()
	for stream.Receive() {
	}
	f.mu.Lock()
	p := f.Server.procs[int(pid)]
	f.mu.Unlock()
	for deadline := time.Now().Add(time.Minute); !p.ended(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it waits for a reader")
		}
	}
	p.out.mu.Lock()
	size := p.out.size
	p.out.mu.Unlock()
	if size > maxBacklogBytes {
		t.Errorf("the daemon keeps %d bytes", size)
	}
	again, err := f.procs.Connect(ctxOf(t), connect.NewRequest(&process.ConnectRequest{Process: byPID(pid)}))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for again.Receive() {
		out = append(out, again.Msg().GetEvent().GetData().GetStdout()...)
	}
	if !bytes.HasSuffix(out, []byte("\n3000000\nlast\n")) {
		t.Errorf("the end is missing: %d bytes, %v", len(out), again.Err())
	}
}

// After any number of changes of identity this process is still root on every
// thread that serves.
func TestIdentityIsLeft(t *testing.T) {
	u := user{name: "user", uid: 12345, gid: 12345, groups: []uint32{23456}}
	var wg sync.WaitGroup
	for range 50 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := u.do(func() error {
				if os.Geteuid() != 12345 {
					return fmt.Errorf("acting as %d", os.Geteuid())
				}
				_, err := os.Open("/etc/shadow")
				if !errors.Is(err, os.ErrPermission) {
					return fmt.Errorf("the user reads /etc/shadow: %v", err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if os.Geteuid() != 0 {
				t.Errorf("left as %d", os.Geteuid())
			}
		}()
	}
	wg.Wait()
}

func TestWatchMemoryReads(t *testing.T) {
	total, free, cache, err := memoryUse()
	if err != nil || total-free <= 0 || cache < 0 {
		t.Errorf("got %d, %d and %d, %v", total, free, cache, err)
	}
	if n := residentBytes(os.Getpid()); n < 1<<20 {
		t.Errorf("this process holds %d bytes", n)
	}
	if _, ok := meminfo([]byte("MemTotal: \nMemFree: x kB\n"), "MemTotal:"); ok {
		t.Error("an empty line was read")
	}
	if n, ok := meminfo([]byte("A: 1 kB\nMemFree: 17 kB\n"), "MemFree:"); !ok || n != 17<<10 {
		t.Errorf("got %d, %v", n, ok)
	}
}
