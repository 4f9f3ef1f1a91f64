package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// command is one program that a build runs on the host or in a new root.
type command struct {
	args []string
	dir  string
	env  []string // the whole environment
	// isolated runs it in a PID and mount namespace of its own: when it ends,
	// however it ends, its children and mounts are gone. offline takes the
	// network away too.
	isolated, offline bool
	// line hears every line that it prints.
	line func(string)
}

// tailBytes is how much of a failing program's output its error keeps.
const tailBytes = 6 << 10

// commandError is a program that failed, with the end of what it printed.
type commandError struct {
	name string
	tail string
	err  error
}

func (e *commandError) Error() string { return fmt.Sprintf("%s: %v\n%s", e.name, e.err, e.tail) }
func (e *commandError) Unwrap() error { return e.err }

// said reports whether the program printed any of the words.
func (e *commandError) said(words ...string) bool {
	for _, w := range words {
		if strings.Contains(e.tail, w) {
			return true
		}
	}
	return false
}

// run runs c and returns its standard output. When ctx ends, or this process
// dies, it is killed.
func (c command) run(ctx context.Context) ([]byte, error) {
	args := c.args
	if c.isolated {
		// --kill-child binds the first process of the PID namespace to unshare;
		// the kernel then ends all others with it, and the mounts go with the last.
		ns := []string{"unshare", "--mount", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child=SIGKILL", "--propagation", "private"}
		if c.offline {
			ns = append(ns, "--net")
		}
		args = append(append(ns, "--"), args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, tail := &bytes.Buffer{}, &tailWriter{line: c.line}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(out, tail), tail

	// The kernel sends the death signal when the thread that forked ends, not
	// the process, so the thread is kept until the program has ended.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, &commandError{name: c.args[0], tail: tail.String(), err: err}
	}
	return out.Bytes(), nil
}

// tailWriter keeps the end of what is written. Standard output and error write
// to it from two goroutines.
type tailWriter struct {
	mu   sync.Mutex
	b    []byte
	part []byte // of a line that has not ended
	line func(string)
}

func (t *tailWriter) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b) - tailBytes; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	if t.line != nil {
		t.part = append(t.part, p...)
		for {
			line, rest, ok := bytes.Cut(t.part, []byte("\n"))
			if !ok {
				break
			}
			t.line(string(line))
			t.part = rest
		}
	}
	return len(p), nil
}

func (t *tailWriter) String() string { return strings.ToValidUTF8(string(t.b), "?") }

// hostEnv is the environment of programs that run on the host: the host's own,
// because its settings for mirrors and proxies must count, in plain English.
func hostEnv() []string {
	return append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive")
}

// needBytes is the free space that a build asks for before it begins.
const needBytes = 3 << 30

// freeBytes returns the free space where dir is, 0 when that is unknown.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}

func gib(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<30)) }

// diskFull, offline: what apt, dpkg, mmdebstrap and npm print then.
func diskFull(err error) bool {
	var e *commandError
	return errors.As(err, &e) && e.said("No space left on device", "ENOSPC", "Disk quota exceeded") || errors.Is(err, syscall.ENOSPC)
}

func noNetwork(err error) bool {
	var e *commandError
	return errors.As(err, &e) && e.said("Temporary failure resolving", "Could not resolve", "Could not connect", "Connection failed",
		"Network is unreachable", "Unable to connect", "Connection timed out", "ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ENETUNREACH")
}
