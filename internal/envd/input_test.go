package envd

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore/internal/envd/spec/process"
)

func event(e any) *process.StreamInputRequest {
	switch x := e.(type) {
	case *process.ProcessSelector:
		return &process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: x}}}
	case string:
		in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(x)}}
		return &process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: in}}}
	case bool:
		return &process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}}
	}
	return &process.StreamInputRequest{}
}

func TestStreamInput(t *testing.T) {
	f := daemon(t)
	pid, stream := f.started(t, ctxOf(t), script("echo up; cat", true))
	in := f.procs.StreamInput(ctxOf(t))
	for _, e := range []any{byPID(pid), true, "one ", "two ", true, strings.Repeat("x", 300_000), " three"} {
		if err := in.Send(event(e)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	// The end of the stream is not the end of the input.
	if _, err := f.procs.SendInput(ctxOf(t), connect.NewRequest(&process.SendInputRequest{
		Process: byPID(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(" four")}},
	})); err != nil {
		t.Fatal(err)
	}
	for range 2 { // closing what is closed is fine
		if _, err := f.procs.CloseStdin(ctxOf(t), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(pid)})); err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	for stream.Receive() {
		out.Write(stream.Msg().GetEvent().GetData().GetStdout())
	}
	if want := "one two " + strings.Repeat("x", 300_000) + " three four"; out.String() != want {
		t.Errorf("got %d bytes of %d, %v", out.Len(), len(want), stream.Err())
	}
	pid, stream = f.started(t, ctxOf(t), script("echo up; sleep 9006", false))
	defer stream.Close()
	for _, c := range []struct {
		name   string
		events []any
		want   connect.Code
	}{
		{"no process selected", []any{"x"}, connect.CodeInvalidArgument},
		{"selected twice", []any{byPID(pid), byPID(pid)}, connect.CodeInvalidArgument},
		{"nobody", []any{byPID(4_000_000)}, connect.CodeNotFound},
		{"no selector", []any{&process.ProcessSelector{}}, connect.CodeInvalidArgument},
		{"an empty event", []any{byPID(pid), nil}, connect.CodeInvalidArgument},
		{"no stdin", []any{byPID(pid), "x"}, connect.CodeFailedPrecondition},
		{"nothing at all", nil, 0},
	} {
		in := f.procs.StreamInput(ctxOf(t))
		for _, e := range c.events {
			_ = in.Send(event(e)) // the answer says why it failed
		}
		_, err := in.CloseAndReceive()
		if c.want == 0 && err != nil || c.want != 0 && connect.CodeOf(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := f.procs.SendSignal(ctxOf(t), connect.NewRequest(&process.SendSignalRequest{Process: byPID(pid), Signal: process.Signal_SIGNAL_SIGKILL})); err != nil {
		t.Error(err)
	}
}

// A client that gives up a write to a process that does not read spoils nothing
// for those that write after it, and stdin that nobody mentions is open.
func TestInputGivenUp(t *testing.T) {
	f := daemon(t)
	req := script("echo up; read go; cat | wc -c", true)
	req.Stdin = nil
	pid, stream := f.started(t, ctxOf(t), req)
	send := func(ctx context.Context, data string) error {
		_, err := f.procs.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
			Process: byPID(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(data)}},
		}))
		return err
	}
	// More than a pipe holds, and nobody reads yet.
	short, cancel := context.WithTimeout(ctxOf(t), 300*time.Millisecond)
	defer cancel()
	if err := send(short, "go\n"+strings.Repeat("a", 200_000)); connect.CodeOf(err) != connect.CodeDeadlineExceeded && err != nil {
		t.Errorf("giving up: %v", err)
	}
	if err := send(ctxOf(t), strings.Repeat("b", 100_000)); err != nil {
		t.Errorf("after a client that gave up: %v", err)
	}
	if _, err := f.procs.CloseStdin(ctxOf(t), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(pid)})); err != nil {
		t.Error(err)
	}
	var out string
	for stream.Receive() {
		out += string(stream.Msg().GetEvent().GetData().GetStdout())
	}
	if n, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || n < 100_000 {
		t.Errorf("it read %q bytes, %v", out, stream.Err())
	}
}

// The deadline of a Connect ends that stream and not the process; a process that
// outlives it is still there for the next.
func TestConnectDeadline(t *testing.T) {
	f := daemon(t)
	pid, first := f.started(t, ctxOf(t), script("echo up; read line; exit 4", true))
	r := connect.NewRequest(&process.ConnectRequest{Process: byPID(pid)})
	r.Header().Set("Connect-Timeout-Ms", "200")
	second, err := f.procs.Connect(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	for second.Receive() {
		if second.Msg().GetEvent().GetStart() == nil {
			t.Errorf("got %v", second.Msg())
		}
	}
	if connect.CodeOf(second.Err()) != connect.CodeDeadlineExceeded {
		t.Errorf("the second client: %v", second.Err())
	}
	if _, err := f.procs.CloseStdin(ctxOf(t), connect.NewRequest(&process.CloseStdinRequest{Process: byPID(pid)})); err != nil {
		t.Fatal(err)
	}
	var end *process.ProcessEvent_EndEvent
	for first.Receive() {
		if e := first.Msg().GetEvent().GetEnd(); e != nil {
			end = e
		}
	}
	if end.GetExitCode() != 4 {
		t.Errorf("the first client: %v, %v", end, first.Err())
	}
}

// A kill reaches all that a process has started: its group, the groups of a
// shell with jobs, and those that made a session of their own.
func TestKillReachesAll(t *testing.T) {
	f := daemon(t)
	jobs := "set -m; sleep 9010 & setsid sleep 9011 & (sleep 9012 | sleep 9013) & sleep 0.2; echo up; wait"
	pid, stream := f.started(t, ctxOf(t), &process.StartRequest{Process: &process.ProcessConfig{Cmd: "bash", Args: []string{"-c", jobs}}})
	defer stream.Close()
	all := family(int(pid))
	if len(all) < 4 {
		t.Errorf("only %v were started", all)
	}
	f.kill(t, pid)
	for stream.Receive() {
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		left := 0
		for _, p := range everyProcess() {
			if slices.Contains(all, p.pid) && !p.zombie {
				left++
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %v live on", left, all)
		}
	}
}
