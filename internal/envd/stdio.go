package envd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// One read of a process's output takes as much as its pipe holds. The buffer for
// it begins small, as most commands print little, and grows with what comes.
const (
	readBytes      = 128 << 10
	firstReadBytes = 8 << 10
)

// Each piece of output is a dozen system calls and as many wake-ups on its way,
// and in gVisor those cost more than the bytes. So a process that goes on printing
// is left alone for gather before its next piece is read; what comes burst after
// the last piece, or fills the buffer, goes on at once.
type pace struct{ burst, gather time.Duration }

var usualPace = pace{burst: 2 * time.Millisecond, gather: 2 * time.Millisecond}

// stdio is both ends of a process's standard streams: pipes, or one terminal
// for all three.
type stdio struct {
	in    *os.File // ours to write to; nil when the process has no input
	out   []output // ours to read from
	tty   *os.File // ours, when it is a terminal: in and out are the same file
	child [3]int   // the process's ends; -1 when closed
}

// output is one stream that comes out of a process.
type output struct {
	from source
	file *os.File
}

func openPipes(stdin bool) (stdio, error) {
	s := stdio{child: [3]int{-1, -1, -1}}
	pipe := func(readOurs bool, i int, name string) (*os.File, error) {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
		ours, child := p[0], p[1]
		if !readOurs {
			ours, child = p[1], p[0]
		}
		s.child[i] = child
		if readOurs {
			// So that it need not wait meanwhile. One of the usual size does too.
			_, _ = unix.FcntlInt(uintptr(ours), unix.F_SETPIPE_SZ, readBytes)
		}
		if err := unix.SetNonblock(ours, true); err != nil {
			unix.Close(ours)
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
		return os.NewFile(uintptr(ours), name), nil
	}
	var err error
	if stdin {
		s.in, err = pipe(false, 0, "stdin")
	} else {
		s.child[0], err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	for i, from := range []source{stdout, stderr} {
		if err != nil {
			break
		}
		var f *os.File
		if f, err = pipe(true, i+1, "output"); err == nil {
			s.out = append(s.out, output{from, f})
		}
	}
	if err != nil {
		s.closeChild()
		s.closeOurs()
		return stdio{}, err
	}
	return s, nil
}

// closeChild closes the process's ends, once it has them itself.
func (s *stdio) closeChild() {
	seen := map[int]bool{-1: true} // a terminal is all three
	for i, fd := range s.child {
		if !seen[fd] {
			seen[fd] = true
			unix.Close(fd)
		}
		s.child[i] = -1
	}
}

func (s *stdio) closeOurs() {
	if s.in != nil {
		s.in.Close()
	}
	for _, o := range s.out {
		o.file.Close()
	}
}

// pump moves one stream into the backlog. After the end of the process it
// takes what is there without waiting and reports done. Children that the
// process left behind may go on printing to its pipes: that is thrown away, so
// that a broken pipe does not kill them. A terminal is hung up instead.
func (p *running) pump(o output, exited <-chan struct{}, done func()) {
	defer o.file.Close()
	buf := make([]byte, firstReadBytes)
	add := func(n int) {
		if n == 0 {
			return
		}
		if n < len(buf) {
			p.out.add(o.from, bytes.Clone(buf[:n]))
			return
		}
		p.out.add(o.from, buf)
		buf = make([]byte, min(2*len(buf), readBytes))
	}
	var last time.Time
	for {
		n, err := o.file.Read(buf)
		if err == nil && n < len(buf) && time.Since(last) < p.pace.burst {
			select {
			case <-exited:
			case <-time.After(p.pace.gather):
			}
			var k int
			k, err = readNow(o.file, buf[n:])
			n += k
		}
		add(n)
		last = time.Now()
		if err == nil {
			continue
		}
		// A terminal that nobody has open any more fails with EIO.
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			done()
			return
		}
		<-exited
		break
	}
	// The deadline has done its work; without it the raw reads below are allowed.
	_ = o.file.SetReadDeadline(time.Time{})
	for {
		n, err := readNow(o.file, buf)
		if add(n); n > 0 {
			continue
		}
		done()
		if err != nil || o.from == terminal {
			return
		}
		break
	}
	_, _ = io.Copy(io.Discard, o.file)
}

// readNow reads what is there: 0 and no error when that is nothing.
func readNow(f *os.File, buf []byte) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, rerr = unix.Read(int(fd), buf)
			if !errors.Is(rerr, unix.EINTR) {
				return true
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(rerr, unix.EAGAIN):
		return 0, nil
	case rerr != nil:
		return 0, rerr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

var (
	errNoInput    = fmt.Errorf("the process has no open standard input: %w", unix.EPIPE)
	errIsTerminal = fmt.Errorf("the process has a terminal: send it input as pty, and Ctrl-D (byte 4) for the end of it: %w", unix.EINVAL)
	errNoTerminal = fmt.Errorf("the process has no terminal: %w", unix.EINVAL)
)

// input is what clients write to: the process's standard input or its terminal.
// Several clients may write at once; what one sends stays in one piece.
type input struct {
	turn chan struct{} // held while somebody writes, whose deadline it is then

	mu   sync.Mutex
	file *os.File // nil when there is none or it was closed
}

func newInput(f *os.File) *input { return &input{turn: make(chan struct{}, 1), file: f} }

func (in *input) open() *os.File {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.file
}

// write writes all of data, or as much as fits until ctx ends.
func (in *input) write(ctx context.Context, data []byte) error {
	select {
	case in.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-in.turn }()
	f := in.open()
	if f == nil {
		return errNoInput
	}
	if err := f.SetWriteDeadline(time.Time{}); err != nil {
		return errNoInput // it was closed meanwhile
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Now()) })
	defer stop()
	_, err := f.Write(data)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EIO):
		return errNoInput
	}
	return err
}

func (in *input) close() error {
	in.mu.Lock()
	f := in.file
	in.file = nil
	in.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Close()
}
