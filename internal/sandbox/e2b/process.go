package e2b

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

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
	c, err := s.start(ctx, cmd, nil)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// start is Start, with a terminal where pty is not nil; its output comes as if
// from standard output.
func (s *box) start(ctx context.Context, cmd sandbox.Command, pty *process.PTY) (*command, error) {
	if len(cmd.Args) == 0 || cmd.Args[0] == "" {
		return nil, dreamcore.Errorf(dreamcore.Invalid, "sandbox.start", "the command is empty")
	}
	cfg := &process.ProcessConfig{Cmd: cmd.Args[0], Args: cmd.Args[1:], Envs: cmd.Env}
	if cmd.Dir != "" {
		cfg.Cwd = &cmd.Dir
	}
	req := connect.NewRequest(&process.StartRequest{Process: cfg, Stdin: &cmd.Stdin, Pty: pty})
	user := cmd.User
	if user == "" {
		user = sandbox.User
	}
	actAs(req.Header(), user)
	req.Header().Set("Keepalive-Ping-Interval", strconv.Itoa(int(keepalive/time.Second)))
	if cmd.Timeout > 0 {
		// As a header and not as a deadline of ours: the daemon kills the process,
		// and we still get its last output.
		req.Header().Set("Connect-Timeout-Ms", strconv.FormatInt(max(cmd.Timeout.Milliseconds(), 1), 10))
	}
	// The stream outlives ctx, which only bounds the start.
	sctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	fail := func(err error) (*command, error) {
		stop()
		cancel(nil)
		return nil, fmt.Errorf("start command: %w", s.explain(ctx, err))
	}
	stream, err := s.open(ctx, sctx, req)
	if err != nil {
		return fail(err)
	}
	start := stream.Msg().GetEvent().GetStart()
	if start == nil {
		return fail(errors.Join(errors.New("the stream did not begin with the start"), stream.Close()))
	}
	stop()
	c := s.command(start.GetPid())
	c.begin(sctx, cancel, launched{stream}, cmd.Timeout)
	return c, nil
}

func (s *box) command(pid uint32) *command {
	return &command{s: s, pid: int(pid), events: make(chan sandbox.Output, 64), done: make(chan struct{})}
}

// begin follows the command's stream until it ends.
func (c *command) begin(ctx context.Context, cancel context.CancelCauseFunc, stream events, timeout time.Duration) {
	// A connection that died without a word is known by the missing pings.
	watch := time.AfterFunc(silence, func() {
		c.s.p.log.Warn("a command's stream fell silent", "sandbox_id", c.s.id, "pid", c.pid, "decision", "give up", "wait_ms", silence.Milliseconds())
		cancel(errSilent)
	})
	go func() {
		defer cancel(nil)
		defer watch.Stop()
		c.follow(ctx, stream, timeout, watch)
	}()
}

// events is the stream of a command, whoever started it.
type events interface {
	Receive() bool
	event() *process.ProcessEvent
	Err() error
	Close() error
}

type launched struct {
	*connect.ServerStreamForClient[process.StartResponse]
}

func (s launched) event() *process.ProcessEvent { return s.Msg().GetEvent() }

const (
	// keepalive is how often the daemon is asked for a sign of life while a
	// command prints nothing: less than what connections on the way idle.
	keepalive = 50 * time.Second
	silence   = 3 * keepalive
)

var errSilent = errors.New("the stream fell silent")

// open starts the command. Once it may have arrived it is not sent again: a
// command runs once or fails, but never twice.
func (s *box) open(ctx, sctx context.Context, req *connect.Request[process.StartRequest]) (*connect.ServerStreamForClient[process.StartResponse], error) {
	for try := 1; ; try++ {
		again := connect.NewRequest(req.Msg)
		maps.Copy(again.Header(), req.Header())
		stream, err := s.processes.Start(sctx, again)
		if err == nil {
			if stream.Receive() {
				return stream, nil
			}
			if err = stream.Err(); err == nil {
				err = errors.New("the stream ended before the command started")
			}
			err = errors.Join(err, stream.Close())
		}
		if !neverSent(err) || hopeless(err) || try >= s.p.cfg.Retry.Tries || ctx.Err() != nil {
			return nil, err
		}
		d := s.p.cfg.Retry.pause(try - 1)
		s.p.log.Warn("a request to a sandbox failed", "sandbox_id", s.id, "request", "Start", "decision", "try again", "reason", clip(err.Error()), "try", try, "wait_ms", d.Milliseconds())
		if sleep(ctx, d) != nil {
			return nil, err
		}
	}
}

// follow delivers events until the stream ends.
func (c *command) follow(ctx context.Context, stream events, timeout time.Duration, watch *time.Timer) {
	ended := false
	for stream.Receive() {
		watch.Stop() // whoever takes the output may be as slow as they like
		switch e := stream.event().GetEvent().(type) {
		case *process.ProcessEvent_Data:
			if out := e.Data.GetStdout(); len(out) > 0 {
				c.events <- sandbox.Output{Data: out}
			}
			if out := e.Data.GetPty(); len(out) > 0 {
				c.events <- sandbox.Output{Data: out}
			}
			if out := e.Data.GetStderr(); len(out) > 0 {
				c.events <- sandbox.Output{Stderr: true, Data: out}
			}
		case *process.ProcessEvent_End:
			ended = true
			c.exit = exitOf(e.End)
		}
		watch.Reset(silence)
	}
	err := stream.Err()
	if errors.Is(context.Cause(ctx), errSilent) {
		err = errSilent
	}
	ctx = context.WithoutCancel(ctx)
	_ = stream.Close() // it has ended; the error is in Err
	switch {
	case ended:
	case connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeDeadlineExceeded:
		c.exit = sandbox.Exit{Code: -1, Signal: "SIGKILL"}
		c.err = fmt.Errorf("the command was killed after %s: %w", timeout, context.DeadlineExceeded)
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
	asked := 0
	err := c.s.again(ctx, "SendSignal", func() error {
		asked++
		_, err := c.s.processes.SendSignal(ctx, connect.NewRequest(&process.SendSignalRequest{
			Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: uint32(c.pid)}}, Signal: n,
		}))
		return err
	})
	if asked > 1 && dreamcore.CodeOf(err) == dreamcore.NotFound {
		return nil // the signal whose answer was lost has ended it
	}
	if err != nil {
		return fmt.Errorf("signal command: %w", err)
	}
	return nil
}
