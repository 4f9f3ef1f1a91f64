// Package sandbox is how the rest of the project sees a disposable computer:
// five boring operations (write files in bulk, run commands, stream their
// output, read files back, kill). The e2b package implements it for our own
// engine and for E2B alike; sandboxtest is the suite that any engine passes.
package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"dreamcore"
)

// Users of a sandbox. Commands of the agent run as User, the host's own as Root
// (root inside the box: it has no privilege outside).
const (
	User = "user"
	Root = "root"
)

// Provider boots sandboxes and finds those that live.
type Provider interface {
	// Create boots a fresh sandbox and returns once a command can run in it.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Connect finds a living sandbox; code Lost when it is gone.
	Connect(ctx context.Context, id dreamcore.SandboxID) (Sandbox, error)
	// List returns the living sandboxes whose metadata holds every pair of filter.
	List(ctx context.Context, filter map[string]string) ([]Info, error)
	// Kill ends a sandbox and everything in it. Killing a dead one succeeds.
	Kill(ctx context.Context, id dreamcore.SandboxID) error
}

// Sandbox is one living disposable computer. Every method returns an error with
// code Lost once it is dead.
type Sandbox interface {
	ID() dreamcore.SandboxID
	// WriteFiles writes all files, making parent folders, in one request.
	WriteFiles(ctx context.Context, files []File) error
	// ReadFile reads at most limitBytes of one file; a longer one is code Refused.
	ReadFile(ctx context.Context, path string, limitBytes int64) ([]byte, error)
	// List lists a folder, depth levels deep (1: its own entries).
	List(ctx context.Context, path string, depth int) ([]Entry, error)
	// Start starts a command; it outlives ctx. End it by Process.Signal.
	Start(ctx context.Context, cmd Command) (Process, error)
	// SetTimeout lets the sandbox live for d from now, unless it is killed.
	SetTimeout(ctx context.Context, d time.Duration) error
}

// Spec says what to boot.
type Spec struct {
	// Image is an image's digest ("sha256:…"), or a template id on E2B.
	Image string
	// Timeout ends the sandbox if nobody does it before.
	Timeout time.Duration
	// Metadata names installation, job and attempt, so that a restarted host
	// can find and reap its own.
	Metadata map[string]string
	// Env is given to every command.
	Env map[string]string
	// Egress opens the one way out (the key proxy). False: no way out at all.
	Egress bool
}

// Info describes a living sandbox.
type Info struct {
	ID       dreamcore.SandboxID
	Image    string
	Metadata map[string]string
	Started  time.Time
	Ends     time.Time
}

// File is one file to write.
type File struct {
	Path  string // absolute
	Data  []byte
	Mode  uint32 // permission bits; 0 means 0644
	Owner string // User or Root; "" means User
}

// Entry is one file that List found. Everything in it is untrusted.
type Entry struct {
	Path      string
	Dir       bool
	SizeBytes int64
	Mode      uint32
	Modified  time.Time
}

// Command is one program to run: no shell in between.
type Command struct {
	Args    []string // Args[0] is looked up in PATH
	Dir     string   // "" means the user's home
	Env     map[string]string
	User    string        // "" means User
	Timeout time.Duration // ends the whole process group; 0 means none
	Stdin   bool          // open a standard input; false: it reads end of file
}

// Process is a command that runs. Events delivers output as it comes and is
// closed after the end; Wait may then be asked for how it ended.
type Process interface {
	PID() int
	Events() <-chan Output
	// Wait blocks until the process ended, or the stream or sandbox broke.
	Wait(ctx context.Context) (Exit, error)
	// Signal sends "SIGTERM" or "SIGKILL" to the whole process group.
	Signal(ctx context.Context, sig string) error
}

// Joiner is a Sandbox in which something runs that nobody of this host has
// started: it was running when the sandbox was made.
type Joiner interface {
	// Join attaches to the process that carries a tag; code NotFound when there is
	// none. What it has printed before may come first. The stream outlives ctx.
	Join(ctx context.Context, tag string) (Joined, error)
}

// Joined is a Process that was there already, with its standard input.
type Joined interface {
	Process
	// Send writes to its standard input, all or nothing as far as that is known.
	Send(ctx context.Context, data []byte) error
}

// Output is a piece of a process's output. Untrusted.
type Output struct {
	Stderr bool
	Data   []byte
}

// Exit is how a process ended.
type Exit struct {
	Code   int    // -1 when it ended by a signal
	Signal string // what ended it, "" when it exited
	// OutOfMemory: it or a child of it was ended because the sandbox's memory
	// was nearly spent. Only our own engine tells.
	OutOfMemory bool
}

// Result is a finished command with its output.
type Result struct {
	Exit
	Stdout, Stderr []byte
	Truncated      bool // more than the limit was printed
}

// Run runs cmd to its end and collects at most limitBytes of each stream. When
// ctx ends first the process group is killed.
func Run(ctx context.Context, sb Sandbox, cmd Command, limitBytes int) (Result, error) {
	var out, errOut bytes.Buffer
	res := Result{}
	add := func(b *bytes.Buffer, p []byte) {
		if room := limitBytes - b.Len(); len(p) > room {
			p, res.Truncated = p[:max(room, 0)], true
		}
		b.Write(p)
	}
	exit, err := Stream(ctx, sb, cmd, func(o Output) error {
		if o.Stderr {
			add(&errOut, o.Data)
		} else {
			add(&out, o.Data)
		}
		return nil
	})
	res.Exit, res.Stdout, res.Stderr = exit, out.Bytes(), errOut.Bytes()
	return res, err
}

// Stream runs cmd to its end and hands each piece of output to f. When ctx ends
// or f fails, the process group is killed.
func Stream(ctx context.Context, sb Sandbox, cmd Command, f func(Output) error) (Exit, error) {
	p, err := sb.Start(ctx, cmd)
	if err != nil {
		return Exit{}, fmt.Errorf("start %q: %w", cmd.Args, err)
	}
	return Follow(ctx, p, f)
}

// Follow hands each piece of p's output to f, to its end. When ctx ends or f
// fails, the process group is killed.
func Follow(ctx context.Context, p Process, f func(Output) error) (Exit, error) {
	kill := func() {
		// The caller's context may be the one that ended.
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = p.Signal(kctx, "SIGKILL") // fails only when it is dead already
		// Nobody takes the rest, and the stream must not hang on it.
		go func() {
			for range p.Events() {
			}
		}()
	}
	for {
		select {
		case <-ctx.Done():
			kill()
			return Exit{}, ctx.Err()
		case o, ok := <-p.Events():
			if !ok {
				return p.Wait(ctx)
			}
			if err := f(o); err != nil {
				kill()
				return Exit{}, err
			}
		}
	}
}

// Copy streams cmd's standard output to w, at most limitBytes; more is code Refused.
func Copy(ctx context.Context, sb Sandbox, cmd Command, w io.Writer, limitBytes int64) (Exit, error) {
	var n int64
	return Stream(ctx, sb, cmd, func(o Output) error {
		if o.Stderr {
			return nil
		}
		if n += int64(len(o.Data)); n > limitBytes {
			return dreamcore.Errorf(dreamcore.Refused, "sandbox.copy", "the command printed more than %d bytes", limitBytes)
		}
		_, err := w.Write(o.Data)
		return err
	})
}
