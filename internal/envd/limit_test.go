package envd

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore/internal/envd/spec/filesystem"
	"dreamcore/internal/envd/spec/process"
)

func (f *fixture) kill(t *testing.T, pid uint32) {
	t.Helper()
	_, err := f.procs.SendSignal(ctxOf(t), connect.NewRequest(&process.SendSignalRequest{Process: byPID(pid), Signal: process.Signal_SIGNAL_SIGKILL}))
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		t.Error(err)
	}
}

// Processes are counted while they run; the end of one makes room.
func TestProcessLimit(t *testing.T) {
	f := daemon(t)
	f.mu.Lock()
	old := f.cfg.MaxProcesses
	f.cfg.MaxProcesses = f.living + 3
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.cfg.MaxProcesses = old
		f.mu.Unlock()
	}()
	var pids []uint32
	for range 3 {
		pid, stream := f.started(t, ctxOf(t), script("echo up; exec sleep 9008", false))
		defer stream.Close()
		pids = append(pids, pid)
	}
	for _, req := range []*process.StartRequest{script("true", false), {Process: &process.ProcessConfig{Cmd: "true"}, Pty: &process.PTY{}}} {
		if _, err := f.run(t, ctxOf(t), "user", req); connect.CodeOf(err) != connect.CodeResourceExhausted {
			t.Errorf("one too many: %v", err)
		}
	}
	// A start that fails takes no place, and neither does one that has ended.
	f.kill(t, pids[0])
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := f.run(t, ctxOf(t), "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "no-such-command"}}); connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatal(err)
		}
		if _, err := f.run(t, ctxOf(t), "user", script("true", false)); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		f.kill(t, pid)
	}
}

// A daemon that can open no more files says so and goes on when it can.
func TestOpenFileLimit(t *testing.T) {
	f := daemon(t)
	u, err := f.user("user")
	must(t, err)
	var old syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	var hold []*os.File
	defer func() {
		for _, h := range hold {
			h.Close()
		}
	}()
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: old.Max}))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)) }()
	for {
		h, err := os.Open("/dev/null")
		if err != nil {
			break
		}
		hold = append(hold, h)
	}
	for free := range 8 {
		for _, o := range []ordered{{user: u, config: &process.ProcessConfig{Cmd: "/bin/true"}, stdin: true}, {user: u, config: &process.ProcessConfig{Cmd: "/bin/true"}, pty: &process.PTY{}}} {
			p, err := f.start(o)
			if err == nil {
				for !p.ended() {
					time.Sleep(time.Millisecond)
				}
			} else if connect.CodeOf(rpcError(err)) != connect.CodeResourceExhausted {
				t.Errorf("with %d files free: %v", free, err)
			}
		}
		if w, err := f.watch(u, "/tmp", false, false, false); err == nil {
			w.close()
		} else if connect.CodeOf(rpcError(err)) != connect.CodeResourceExhausted {
			t.Errorf("with %d files free: %v", free, err)
		}
		if len(hold) > 0 {
			hold[0].Close()
			hold = hold[1:]
		}
	}
	f.settled(t, 0)
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old))
	if res, err := f.run(t, ctxOf(t), "user", script("echo fine", false)); err != nil || res.out != "fine\n" {
		t.Errorf("%q, %v", res.out, err)
	}
}

// All that processes printed and nobody took is bounded together, not only for
// each, and given back.
func TestBacklogsTogether(t *testing.T) {
	var total atomic.Int64
	var all []*backlog
	for range 200 {
		b := newBacklog(maxBacklogBytes, time.Minute, &total)
		for range 40 {
			b.add(stdout, make([]byte, readBytes))
		}
		all = append(all, b)
	}
	if n := total.Load(); n > maxBacklogsBytes+200*(minBacklogBytes+2*readBytes) || n < maxBacklogsBytes {
		t.Errorf("%d bytes are held", n)
	}
	// The newest output is there even so.
	last := all[len(all)-1]
	last.add(stdout, []byte("the end"))
	last.close()
	if got := last.attach().all(t); !bytes.HasSuffix(got, []byte("the end")) || len(got) < unreadBytes {
		t.Errorf("%d bytes are kept", len(got))
	}
	for _, b := range all[:len(all)-1] {
		r := b.attach()
		b.forget() // while it is read, it stays
		if p, what := r.peek(context.Background(), time.Minute); what != more || len(p.data) == 0 {
			t.Fatal(what)
		}
		r.detach()
	}
	last.forget()
	if n := total.Load(); n != 0 {
		t.Errorf("%d bytes were not given back", n)
	}
}

// 10,000 lines a second with nobody reading: the process does not wait, and the
// daemon keeps what came last.
func TestManyLinesWithoutReader(t *testing.T) {
	f := daemon(t)
	ctx, cancel := context.WithCancel(ctxOf(t))
	// Each line is a write of its own.
	pid, stream := f.started(t, ctx, script(`i=0; while [ $i -lt 20000 ]; do echo "line $i"; i=$((i+1)); done; echo last >&2; exit 6`, false))
	cancel()
	for stream.Receive() {
	}
	f.mu.Lock()
	p := f.Server.procs[int(pid)]
	f.mu.Unlock()
	for end := time.Now().Add(time.Minute); !p.ended(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it waits for a reader")
		}
	}
	p.out.mu.Lock()
	size, pieces := p.out.size, len(p.out.pieces)
	p.out.mu.Unlock()
	if size > maxBacklogBytes || pieces > 1000 {
		t.Errorf("%d bytes in %d pieces are kept", size, pieces)
	}
	again, err := f.procs.Connect(ctxOf(t), connect.NewRequest(&process.ConnectRequest{Process: byPID(pid)}))
	must(t, err)
	var out, last string
	code := int32(0)
	for again.Receive() {
		e := again.Msg().GetEvent()
		out, last = out+string(e.GetData().GetStdout()), last+string(e.GetData().GetStderr())
		if e.GetEnd() != nil {
			code = e.GetEnd().GetExitCode()
		}
	}
	if !strings.HasSuffix(out, "line 19998\nline 19999\n") || last != "last\n" || code != 6 {
		t.Errorf("%d bytes, %q, %d, %v", len(out), last, code, again.Err())
	}
}

// What a process prints comes at once; what it prints right behind comes in one
// piece, when the moment that it is given is over or it has ended.
func TestOutputIsGathered(t *testing.T) {
	f := daemon(t)
	f.Server.pace = pace{burst: time.Hour, gather: time.Hour}
	pid, stream := f.started(t, ctxOf(t), script("echo up; read line; for i in 1 2 3 4 5; do /bin/echo $i; done; head -c 50000 /dev/zero; echo end", true))
	// It is up: the first piece did not wait.
	_, err := f.procs.SendInput(ctxOf(t), connect.NewRequest(&process.SendInputRequest{
		Process: byPID(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("go\n")}},
	}))
	must(t, err)
	var out []byte
	pieces := 0
	for stream.Receive() {
		if d := stream.Msg().GetEvent().GetData().GetStdout(); len(d) > 0 {
			out, pieces = append(out, d...), pieces+1
		}
	}
	want := "1\n2\n3\n4\n5\n" + strings.Repeat("\x00", 50_000) + "end\n"
	if string(out) != want || pieces > 5 {
		t.Errorf("%d bytes of %d in %d pieces: %.20q, %v", len(out), len(want), pieces, out, stream.Err())
	}
}

// A process that falls silent has what it printed on the way all the same.
func TestGatheringEnds(t *testing.T) {
	f := daemon(t)
	f.Server.pace = pace{burst: time.Hour, gather: time.Millisecond}
	pid, stream := f.started(t, ctxOf(t), script("echo up; while read line; do echo $line; done", true))
	defer stream.Close()
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		_, err := f.procs.SendInput(ctxOf(t), connect.NewRequest(&process.SendInputRequest{
			Process: byPID(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(line)}},
		}))
		must(t, err)
		if !stream.Receive() || string(stream.Msg().GetEvent().GetData().GetStdout()) != line {
			t.Fatalf("%v, %v", stream.Msg(), stream.Err())
		}
	}
}

// Ended processes that nobody asks for are forgotten, the oldest first.
func TestEndedAreForgotten(t *testing.T) {
	f := daemon(t)
	var first uint32
	for i := range maxEnded + 5 {
		ctx, cancel := context.WithCancel(ctxOf(t))
		pid, stream := f.started(t, ctx, script("echo up; read line", true))
		cancel()
		stream.Close()
		f.unread(t, pid)
		if i == 0 {
			first = pid
		}
		f.kill(t, pid)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		n := len(f.ended)
		_, there := f.Server.procs[int(first)]
		f.mu.Unlock()
		if n == maxEnded && !there {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d are kept, the first is still there: %v", n, there)
		}
	}
}

// A message that is too long, a list that is too long: refused, not swallowed.
func TestMessageLimit(t *testing.T) {
	f := daemon(t)
	_, err := f.files.Stat(ctxOf(t), connect.NewRequest(&filesystem.StatRequest{Path: strings.Repeat("x", maxMessageBytes+1)}))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a long message: %v", err)
	}
	_, err = f.procs.SendInput(ctxOf(t), connect.NewRequest(&process.SendInputRequest{
		Process: byPID(1), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, maxMessageBytes+1)}},
	}))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("long input: %v", err)
	}
	var b strings.Builder
	for i := range maxUploadFiles + 1 {
		fmt.Fprintf(&b, "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/etc/envd-test/%d\"\r\n\r\n\r\n", i)
	}
	// It may not write there either: refused when the first batch is full.
	if status, body := f.post(t, "/files?username=user", "multipart/form-data; boundary=b", strings.NewReader(b.String())); status != http.StatusForbidden {
		t.Errorf("%d %s", status, body)
	}
}
