package envd

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore/internal/envd/spec/process"
)

// screen is a client at a terminal: what came out so far, and what comes.
type screen struct {
	t      *testing.T
	f      *fixture
	pid    uint32
	stream interface {
		Receive() bool
		Err() error
		Close() error
	}
	event func() *process.ProcessEvent
	text  string
	end   *process.ProcessEvent_EndEvent
}

func (f *fixture) terminal(t *testing.T, ctx context.Context, cmd string, args []string, env map[string]string, cols, rows uint32, header ...string) *screen {
	t.Helper()
	r := connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: cmd, Args: args, Envs: env},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: cols, Rows: rows}},
	})
	r.Header().Set("Authorization", as("user"))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header().Set(header[i], header[i+1])
	}
	stream, err := f.procs.Start(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, f: f, stream: stream, event: func() *process.ProcessEvent { return stream.Msg().GetEvent() }}
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	s.pid = s.event().GetStart().GetPid()
	t.Cleanup(func() {
		stream.Close()
		_ = syscall.Kill(-int(s.pid), syscall.SIGKILL) // it has ended, in most tests
	})
	return s
}

// until reads until the text holds want, or the process ended.
func (s *screen) until(want string) {
	s.t.Helper()
	for !strings.Contains(s.text, want) {
		if !s.stream.Receive() {
			s.t.Fatalf("it ended before %q: %q, %v", want, s.text, s.stream.Err())
		}
		s.take()
	}
}

func (s *screen) take() {
	e := s.event()
	if d := e.GetData(); d != nil {
		if len(d.GetStdout()) > 0 || len(d.GetStderr()) > 0 {
			s.t.Errorf("output beside the terminal: %v", d)
		}
		s.text += string(d.GetPty())
	}
	if e.GetEnd() != nil {
		s.end = e.GetEnd()
	}
}

func (s *screen) rest() error {
	for s.stream.Receive() {
		s.take()
	}
	return s.stream.Err()
}

func (s *screen) send(in string) {
	s.t.Helper()
	_, err := s.f.procs.SendInput(ctxOf(s.t), connect.NewRequest(&process.SendInputRequest{
		Process: byPID(s.pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(in)}},
	}))
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) resize(cols, rows uint32) error {
	_, err := s.f.procs.Update(ctxOf(s.t), connect.NewRequest(&process.UpdateRequest{
		Process: byPID(s.pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: cols, Rows: rows}},
	}))
	return err
}

// A login shell at a terminal: its size, its owner, its name, input, interrupts
// and its end.
func TestTerminal(t *testing.T) {
	f := daemon(t)
	s := f.terminal(t, ctxOf(t), "/bin/bash", []string{"-i", "-l"}, map[string]string{"PS1": "$ ", "LC_ALL": "C.UTF-8"}, 100, 31)
	s.send("stty size; echo term=$TERM; test -t 0 && test -t 1 && test -t 2 && echo all-three; stat -c owner=%u $(tty)\n")
	s.until("owner=12345")
	for _, want := range []string{"31 100", "term=" + defaultTerm, "all-three"} {
		if !strings.Contains(s.text, want) {
			t.Errorf("%q is missing in %q", want, s.text)
		}
	}
	// It is the controlling terminal: Ctrl-C reaches the program in front, and
	// the shell stays.
	s.send("sh -c 'echo wai''ting; exec sleep 9002'\n")
	s.until("waiting")
	s.send("\x03")
	s.send("echo status-$?\n")
	s.until("status-130")
	// A new size reaches the program in front.
	s.send("trap 'echo now $(stty size)' WINCH; echo trap''ped\n")
	s.until("trapped")
	if err := s.resize(132, 43); err != nil {
		t.Fatal(err)
	}
	s.send("\n")
	s.until("now 43 132")
	// Ctrl-D ends the shell.
	s.send("\x04")
	if err := s.rest(); err != nil || !s.end.GetExited() {
		t.Errorf("end %v, %v", s.end, err)
	}
	if err := s.resize(10, 10); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("resizing what has ended: %v", err)
	}
}

// All that was printed before the end arrives, however short the life.
func TestTerminalLosesNothing(t *testing.T) {
	f := daemon(t)
	for range 20 {
		s := f.terminal(t, ctxOf(t), "seq", []string{"2000"}, nil, 80, 24)
		if err := s.rest(); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(s.text, "1999\r\n2000\r\n") || strings.Count(s.text, "\n") != 2000 {
			t.Fatalf("%d lines, the last are %q", strings.Count(s.text, "\n"), s.text[max(0, len(s.text)-20):])
		}
	}
}

// A child that keeps the terminal open does not keep the stream open.
func TestTerminalWithChildren(t *testing.T) {
	f := daemon(t)
	s := f.terminal(t, ctxOf(t), "sh", []string{"-c", "trap '' HUP; (sleep 9003 & echo started); echo last; exit 3"}, nil, 80, 24)
	if err := s.rest(); err != nil || s.end.GetExitCode() != 3 || !strings.Contains(s.text, "last\r\n") {
		t.Errorf("%q, %v, %v", s.text, s.end, err)
	}
}

// A terminal outlives its client: another one connects, sees what was printed
// meanwhile, and kills it.
func TestTerminalReconnect(t *testing.T) {
	f := daemon(t)
	ctx, cancel := context.WithCancel(ctxOf(t))
	s := f.terminal(t, ctx, "sh", []string{"-c", "echo first; read line; echo got $line; exec sleep 9004"}, nil, 80, 24)
	s.until("first")
	cancel()
	f.unread(t, s.pid)
	s.send("word\n")
	again, err := f.procs.Connect(ctxOf(t), connect.NewRequest(&process.ConnectRequest{Process: byPID(s.pid)}))
	if err != nil {
		t.Fatal(err)
	}
	s = &screen{t: t, f: f, pid: s.pid, stream: again, event: func() *process.ProcessEvent { return again.Msg().GetEvent() }}
	s.until("got word")
	if _, err := f.procs.SendSignal(ctxOf(t), connect.NewRequest(&process.SendSignalRequest{Process: byPID(s.pid), Signal: process.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Fatal(err)
	}
	if err := s.rest(); err != nil || s.end.GetExited() || s.end.GetExitCode() != -1 {
		t.Errorf("end %v, %v", s.end, err)
	}
}

// Pipes and terminals each take their own kind of input.
func TestInputOfTheWrongKind(t *testing.T) {
	f := daemon(t)
	s := f.terminal(t, ctxOf(t), "cat", nil, nil, 80, 24)
	pid, stream := f.started(t, ctxOf(t), script("echo up; cat", true))
	defer stream.Close()
	stdin := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}
	pty := &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("x")}}
	for _, c := range []struct {
		name string
		pid  uint32
		in   *process.ProcessInput
		want connect.Code
	}{
		{"stdin to a terminal", s.pid, stdin, connect.CodeInvalidArgument},
		{"pty to pipes", pid, pty, connect.CodeInvalidArgument},
		{"nothing", pid, nil, connect.CodeInvalidArgument},
		{"nothing inside", pid, &process.ProcessInput{}, connect.CodeInvalidArgument},
		{"to nobody", 4_000_000, stdin, connect.CodeNotFound},
	} {
		_, err := f.procs.SendInput(ctxOf(t), connect.NewRequest(&process.SendInputRequest{Process: byPID(c.pid), Input: c.in}))
		if connect.CodeOf(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := f.procs.CloseStdin(ctxOf(t), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(s.pid)})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("closing a terminal: %v", err)
	}
	if _, err := f.procs.Update(ctxOf(t), connect.NewRequest(&process.UpdateRequest{Process: byPID(pid), Pty: &process.PTY{Size: &process.PTY_Size{Cols: 1, Rows: 1}}})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("resizing pipes: %v", err)
	}
	for _, pid := range []uint32{s.pid, pid} {
		if _, err := f.procs.SendSignal(ctxOf(t), connect.NewRequest(&process.SendSignalRequest{Process: byPID(pid), Signal: process.Signal_SIGNAL_SIGKILL})); err != nil {
			t.Error(err)
		}
	}
}

// The time limit of a terminal ends it and everything at it.
func TestTerminalTimeout(t *testing.T) {
	f := daemon(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := f.terminal(t, ctx, "sh", []string{"-c", "sleep 9005 & echo child=$!.; wait"}, nil, 80, 24, "Connect-Timeout-Ms", "1500")
	s.until(".")
	if err := s.rest(); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("%v", err)
	}
	for end := time.Now().Add(time.Minute); len(session(int(s.pid))) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("something at the terminal lives on")
		}
	}
}
