package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/text"
)

// execInSandbox runs a command in a sandbox as if it ran here: input, output
// and exit code are its own.
func execInSandbox(ctx context.Context, t Terminal, args []string) error {
	cmd := sandbox.Command{Env: map[string]string{}}
	var tty, noInput bool
	h, rest, err := begin(ctx, t, args, func(f *flag.FlagSet) {
		f.StringVar(&cmd.User, "u", sandbox.User, "")
		f.StringVar(&cmd.Dir, "w", "", "")
		f.Var(pairs(cmd.Env), "e", "")
		f.BoolVar(&tty, "t", false, "")
		f.BoolVar(&noInput, "n", false, "")
		f.DurationVar(&cmd.Timeout, "timeout", 0, "")
	})
	if err != nil {
		return trouble(err)
	}
	if len(rest) < 2 {
		return trouble(usage(t))
	}
	sb, err := h.open(ctx, rest[0])
	if err != nil {
		return trouble(err)
	}
	cmd.Args = rest[1:]
	x := execution{h: h, sb: sb, cmd: cmd, tty: tty}
	if !noInput {
		x.in = t.In
	}
	return x.run(ctx)
}

// trouble gives an error of ours the code that no command has.
func trouble(err error) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	if errors.Is(err, errUsage) || errors.Is(err, errSaid) {
		return &exitError{code: exitTrouble}
	}
	return &exitError{exitTrouble, err}
}

// execution is one command of `dreamcore sandbox exec`.
type execution struct {
	h   *hand
	sb  *e2b.Remote
	cmd sandbox.Command
	tty bool
	in  *os.File // nil: no input
}

// killAfter is how long a command that was asked to end may take before it is
// killed.
const killAfter = 5 * time.Second

func (x execution) run(ctx context.Context) error {
	// A reader of ours that goes away must end the command, not us at once.
	signal.Ignore(syscall.SIGPIPE)
	var size *e2b.Size
	if x.tty {
		now := terminalSize(x.in)
		size = &now
		if x.cmd.Env["TERM"] == "" && os.Getenv("TERM") != "" {
			x.cmd.Env["TERM"] = os.Getenv("TERM")
		}
	}
	x.cmd.Stdin = x.in != nil
	s, err := x.sb.Exec(ctx, x.cmd, size)
	if err != nil {
		return x.notStarted(ctx, err)
	}
	if x.tty && x.in != nil {
		restore, err := makeRaw(x.in)
		if err != nil {
			return trouble(fmt.Errorf("set up the terminal: %w", err))
		}
		defer restore()
		stop := x.followSize(ctx, s)
		defer stop()
	}
	fed := make(chan error, 1)
	if x.in != nil {
		go func() { fed <- x.feed(context.WithoutCancel(ctx), s) }()
	}
	outErr := x.print(ctx, s)
	exit, err := s.Wait(context.WithoutCancel(ctx))
	switch {
	case ctx.Err() != nil:
		return &exitError{exitSignal + int(syscall.SIGINT), nil}
	case errors.Is(err, context.DeadlineExceeded):
		return trouble(text.Error(x.h.t.Lang, dreamcore.Refused, "sandbox", "sandbox_cmd.timed_out", "time", x.cmd.Timeout.String()))
	case outErr != nil && errors.Is(outErr, syscall.EPIPE):
		return &exitError{exitSignal + int(syscall.SIGPIPE), nil}
	case outErr != nil:
		return trouble(fmt.Errorf("print the output: %w", outErr))
	case err != nil:
		return trouble(x.h.explain(err, string(x.sb.ID())))
	}
	select {
	case err := <-fed:
		if err != nil {
			return trouble(x.h.explain(err, string(x.sb.ID())))
		}
	default: // it did not want all of it
	}
	return x.end(exit)
}

// notStarted is the error of a command that did not run.
func (x execution) notStarted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &exitError{exitSignal + int(syscall.SIGINT), nil}
	}
	name := printable(x.cmd.Args[0], 100)
	switch {
	case e2b.CannotRun(err):
		return &exitError{exitCannotRun, text.Error(x.h.t.Lang, dreamcore.Refused, "sandbox", "sandbox_cmd.cannot_run", "command", name)}
	case dreamcore.CodeOf(err) == dreamcore.NotFound:
		return &exitError{exitNoCommand, text.Error(x.h.t.Lang, dreamcore.NotFound, "sandbox", "sandbox_cmd.no_command", "command", name)}
	}
	return trouble(x.h.explain(err, string(x.sb.ID())))
}

// feed passes our input on until its end or until nobody wants it.
func (x execution) feed(ctx context.Context, s *e2b.Session) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := x.in.Read(buf)
		if n > 0 {
			if serr := s.Send(ctx, buf[:n]); serr != nil {
				return unlessOver(serr)
			}
		}
		if errors.Is(err, io.EOF) {
			if x.tty {
				return unlessOver(s.Send(ctx, []byte{4})) // Ctrl-D
			}
			return unlessOver(s.CloseInput(ctx))
		}
		if err != nil {
			return fmt.Errorf("read the input: %w", err)
		}
	}
}

// unlessOver drops the errors of a command that has ended or reads no more.
func unlessOver(err error) error {
	switch dreamcore.CodeOf(err) {
	case dreamcore.NotFound, dreamcore.Conflict, dreamcore.Lost:
		return nil
	}
	return err
}

// print passes the output on as it is until the command has ended. When ctx
// ends, or nobody takes the output, the command is ended.
func (x execution) print(ctx context.Context, s *e2b.Session) error {
	var failed error
	stopped := ctx.Done()
	var kill <-chan time.Time
	end := func(sig string) {
		ectx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killAfter)
		defer cancel()
		_ = s.Signal(ectx, sig) // it may have ended in this moment
	}
	for {
		select {
		case o, ok := <-s.Events():
			if !ok {
				return failed
			}
			w := x.h.t.Out
			if o.Stderr {
				w = x.h.t.Err
			}
			if failed == nil {
				if _, failed = w.Write(o.Data); failed != nil {
					end("SIGTERM")
					kill = time.After(killAfter)
				}
			}
		case <-stopped:
			stopped = nil
			end("SIGTERM")
			kill = time.After(killAfter)
		case <-kill:
			end("SIGKILL")
		}
	}
}

// end turns how the command ended into our exit code.
func (x execution) end(exit sandbox.Exit) error {
	if exit.OutOfMemory {
		fmt.Fprintln(x.h.t.Err, text.T(x.h.t.Lang, "sandbox_cmd.out_of_memory"))
	}
	switch {
	case exit.Signal != "":
		if n := unix.SignalNum(exit.Signal); n != 0 {
			return &exitError{exitSignal + int(n), nil}
		}
		return &exitError{exitSignal, nil}
	case exit.Code != 0:
		return &exitError{exit.Code, nil}
	}
	return nil
}

// followSize tells the sandbox whenever our terminal changes its size.
func (x execution) followSize(ctx context.Context, s *e2b.Session) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	quit := make(chan struct{})
	go func() {
		for {
			select {
			case <-changed:
				// A terminal of a wrong size is no reason to end.
				_ = s.Resize(ctx, terminalSize(x.in))
			case <-quit:
				return
			}
		}
	}()
	return func() { signal.Stop(changed); close(quit) }
}

// terminalSize is that of f, or of an old-fashioned one where f is none.
func terminalSize(f *os.File) e2b.Size {
	if f != nil {
		if w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && w.Col > 0 && w.Row > 0 {
			return e2b.Size{Columns: int(w.Col), Rows: int(w.Row)}
		}
	}
	return e2b.Size{Columns: 80, Rows: 24}
}

// makeRaw lets every key through to the sandbox: Ctrl-C too is then its. What is
// no terminal is left as it is.
func makeRaw(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}, nil
	}
	raw := *old
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, old) }, nil // there is nothing to do about it
}
