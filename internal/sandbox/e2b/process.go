package e2b

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/sandbox"
)

// command is one running command. Its stream lives until the command ends.
type command struct {
	s      *box
	pid    int
	events chan sandbox.Output
	done   chan struct{}
	exit   sandbox.Exit
	err    error
}

var _ sandbox.Process = (*command)(nil)

// Start starts a command; it outlives ctx.
func (s *box) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if len(cmd.Args) == 0 || cmd.Args[0] == "" {
		return nil, dreamcore.Errorf(dreamcore.Invalid, "sandbox.start", "the command is empty")
	}
	cfg := &process.ProcessConfig{Cmd: cmd.Args[0], Args: cmd.Args[1:], Envs: cmd.Env}
	if cmd.Dir != "" {
		cfg.Cwd = &cmd.Dir
	}
	req := connect.NewRequest(&process.StartRequest{Process: cfg, Stdin: &cmd.Stdin})
	user := cmd.User
	if user == "" {
		user = sandbox.User
	}
	actAs(req.Header(), user)
	if cmd.Timeout > 0 {
		// As a header and not as a deadline of ours: the daemon kills the process,
		// and we still get its last output.
		req.Header().Set("Connect-Timeout-Ms", strconv.FormatInt(max(cmd.Timeout.Milliseconds(), 1), 10))
	}
	// The stream outlives ctx, which only bounds the start.
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	fail := func(err error) (sandbox.Process, error) {
		stop()
		cancel()
		return nil, fmt.Errorf("start command: %w", s.explain(ctx, err))
	}
	stream, err := s.processes.Start(sctx, req)
	if err != nil {
		return fail(err)
	}
	if !stream.Receive() {
		err := stream.Err()
		if err == nil {
			err = errors.New("the stream ended before the command started")
		}
		return fail(errors.Join(err, stream.Close()))
	}
	start := stream.Msg().GetEvent().GetStart()
	if start == nil {
		return fail(errors.Join(errors.New("the stream did not begin with the start"), stream.Close()))
	}
	stop()
	c := &command{s: s, pid: int(start.GetPid()), events: make(chan sandbox.Output, 64), done: make(chan struct{})}
	go func() {
		defer cancel()
		c.follow(sctx, stream, cmd)
	}()
	return c, nil
}

// follow delivers events until the stream ends.
func (c *command) follow(ctx context.Context, stream *connect.ServerStreamForClient[process.StartResponse], cmd sandbox.Command) {
	ended := false
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *process.ProcessEvent_Data:
			if out := e.Data.GetStdout(); len(out) > 0 {
				c.events <- sandbox.Output{Data: out}
			}
			if out := e.Data.GetStderr(); len(out) > 0 {
				c.events <- sandbox.Output{Stderr: true, Data: out}
			}
		case *process.ProcessEvent_End:
			ended = true
			c.exit = exitOf(e.End)
		}
	}
	err := stream.Err()
	_ = stream.Close() // it has ended; the error is in Err
	switch {
	case ended:
	case connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeDeadlineExceeded:
		c.exit = sandbox.Exit{Code: -1, Signal: "SIGKILL"}
		c.err = fmt.Errorf("the command was killed after %s: %w", cmd.Timeout, context.DeadlineExceeded)
	case err != nil:
		c.err = fmt.Errorf("follow command: %w", c.s.explain(ctx, err))
	default:
		c.err = fmt.Errorf("follow command: %w", c.s.explain(ctx, errors.New("the stream ended before the command")))
	}
	close(c.done)
	close(c.events)
}

// exitOf reads how a command ended; the words of the status are the daemon's.
func exitOf(e *process.ProcessEvent_EndEvent) sandbox.Exit {
	x := sandbox.Exit{Code: int(e.GetExitCode())}
	if !e.GetExited() {
		x.Code = -1
		name := strings.TrimSpace(strings.TrimPrefix(e.GetStatus(), "signal:"))
		name, _, _ = strings.Cut(name, " (core dumped)")
		if x.Signal = signals[name]; x.Signal == "" {
			x.Signal = clip(name)
		}
	}
	x.OutOfMemory = strings.HasPrefix(e.GetError(), "out of memory")
	return x
}

var signals = map[string]string{
	"killed": "SIGKILL", "terminated": "SIGTERM", "interrupt": "SIGINT", "hangup": "SIGHUP", "quit": "SIGQUIT",
	"aborted": "SIGABRT", "segmentation fault": "SIGSEGV", "broken pipe": "SIGPIPE", "bus error": "SIGBUS",
	"illegal instruction": "SIGILL", "floating point exception": "SIGFPE", "trace/breakpoint trap": "SIGTRAP", "alarm clock": "SIGALRM",
}

func (c *command) PID() int { return c.pid }

func (c *command) Events() <-chan sandbox.Output { return c.events }

// Wait blocks until the command ended. A command that Command.Timeout ended
// gives its Exit and an error that is context.DeadlineExceeded.
func (c *command) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-c.done:
		return c.exit, c.err
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Signal reaches the whole process group. A command that has ended is code NotFound.
func (c *command) Signal(ctx context.Context, sig string) error {
	var n process.Signal
	switch sig {
	case "SIGTERM":
		n = process.Signal_SIGNAL_SIGTERM
	case "SIGKILL":
		n = process.Signal_SIGNAL_SIGKILL
	default:
		return dreamcore.Errorf(dreamcore.Invalid, "sandbox.signal", "only SIGTERM and SIGKILL can be sent, not %q", sig)
	}
	_, err := c.s.processes.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{
		Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: uint32(c.pid)}}, Signal: n,
	}))
	if err != nil {
		return fmt.Errorf("signal command: %w", c.s.explain(ctx, err))
	}
	return nil
}
