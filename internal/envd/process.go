package envd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dreamcore/internal/envd/spec/process"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	readBytes   = 32 << 10         // one read of a process's output
	readerStall = 30 * time.Second // see backlog
	maxEnded    = 64               // ended processes kept until somebody collects their end
)

// running is one process that a client started, until its end was collected.
type running struct {
	pid    int
	tag    string
	config *process.ProcessConfig
	out    *backlog

	mu       sync.Mutex
	stdin    *os.File // nil when it has none or it was closed
	over     bool
	end      *process.ProcessEvent_EndEvent // set before out is closed
	why      string                         // what the daemon killed it for
	timeout  *time.Timer
	timedOut bool
}

// ordered is what a Start request asks for, checked and made absolute.
type ordered struct {
	user   user
	config *process.ProcessConfig
	tag    string
	stdin  bool
	life   time.Duration // 0: as long as it likes
}

var (
	errNoDir     = errors.New("the working folder does not exist")
	errNoCommand = errors.New("there is no such command")
)

// start runs a command. It executes the file itself: no shell, no wrapper.
func (s *Server) start(o ordered) (*running, error) {
	cfg := o.config
	if cfg.GetCmd() == "" {
		return nil, fmt.Errorf("the command is empty: %w", unix.EINVAL)
	}
	dir, err := o.user.resolve(cfg.GetCwd())
	if err != nil {
		return nil, err
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		// The home of an account need not exist; a folder that was asked for must.
		if cfg.GetCwd() != "" {
			return nil, fmt.Errorf("%w: %q", errNoDir, clip(dir, 256))
		}
		dir = "/"
	}
	env, search := s.environ(o.user, cfg.GetEnvs())
	file, err := lookPath(cfg.GetCmd(), dir, search)
	if err != nil {
		return nil, err
	}

	files, err := openStreams(o.stdin)
	if err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: []uintptr{uintptr(files.child[0]), uintptr(files.child[1]), uintptr(files.child[2])},
		// A session of its own makes it leader of a group that one signal reaches.
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if os.Geteuid() == 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: o.user.uid, Gid: o.user.gid, Groups: o.user.groups}
	}
	argv := append([]string{cfg.GetCmd()}, cfg.GetArgs()...)
	pid, status, err := s.reap.start(file, argv, attr)
	files.closeChild()
	if err != nil {
		files.closeOurs()
		return nil, fmt.Errorf("execute %q: %w", clip(file, 256), err)
	}

	p := &running{pid: pid, tag: o.tag, config: cfg, out: newBacklog(maxBacklogBytes, readerStall), stdin: files.stdin}
	s.mu.Lock()
	s.procs[pid] = p
	s.mu.Unlock()
	if o.life > 0 {
		p.mu.Lock()
		p.timeout = time.AfterFunc(o.life, func() {
			p.mu.Lock()
			p.timedOut = true
			p.mu.Unlock()
			// It may have ended in this moment, which is as good.
			_ = p.signal(syscall.SIGKILL, "the time limit of the command was reached")
		})
		p.mu.Unlock()
	}
	go s.follow(p, files, status)
	return p, nil
}

// follow pumps a process's output until it ended and everything that it had
// printed by then is in the backlog.
func (s *Server) follow(p *running, files streams, status <-chan syscall.WaitStatus) {
	exited := make(chan struct{})
	var pumps sync.WaitGroup
	for _, x := range []struct {
		from source
		file *os.File
	}{{stdout, files.stdout}, {stderr, files.stderr}} {
		pumps.Add(1)
		go func() { p.pump(x.from, x.file, exited, pumps.Done) }()
	}
	ws := <-status
	close(exited)
	// Wake the pumps: children that the process left behind may hold the pipes
	// open for ever, but what it printed itself is in them already.
	_ = files.stdout.SetReadDeadline(time.Now())
	_ = files.stderr.SetReadDeadline(time.Now())
	pumps.Wait()

	p.mu.Lock()
	p.over = true
	if p.timeout != nil {
		p.timeout.Stop()
	}
	if p.stdin != nil {
		p.stdin.Close()
		p.stdin = nil
	}
	p.end = endEvent(ws, p.why)
	p.mu.Unlock()
	s.keepEnded(p)
	p.out.close()
}

// pump moves one stream into the backlog. After the end of the process it
// takes what is in the pipe without waiting, reports done, and goes on throwing
// away what children print, so that they are not killed by a broken pipe.
func (p *running) pump(from source, f *os.File, exited <-chan struct{}, done func()) {
	defer f.Close()
	buf := make([]byte, readBytes)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			p.out.add(from, append([]byte(nil), buf[:n]...))
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			done()
			return
		}
		<-exited
		break
	}
	// The deadline has done its work; without it the raw reads below are allowed.
	_ = f.SetReadDeadline(time.Time{})
	for {
		n, err := readNow(f, buf)
		if n > 0 {
			p.out.add(from, append([]byte(nil), buf[:n]...))
			continue
		}
		done()
		if err != nil {
			return
		}
		break
	}
	_, _ = io.Copy(io.Discard, f)
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

func endEvent(ws syscall.WaitStatus, why string) *process.ProcessEvent_EndEvent {
	e := &process.ProcessEvent_EndEvent{}
	if ws.Exited() {
		e.ExitCode, e.Exited = int32(ws.ExitStatus()), true
		e.Status = fmt.Sprintf("exit status %d", ws.ExitStatus())
	} else {
		e.ExitCode = -1
		e.Status = "signal: " + ws.Signal().String()
	}
	if why == "" && e.ExitCode != 0 {
		why = e.Status
	}
	if why != "" {
		e.Error = &why
	}
	return e
}

// keepEnded keeps an ended process for whoever asks how it ended, a few at most.
func (s *Server) keepEnded(p *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, p)
	for len(s.ended) > maxEnded {
		s.forget(s.ended[0])
	}
}

// collected forgets an ended process whose end a client has.
func (s *Server) collected(p *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(p)
}

func (s *Server) forget(p *running) {
	for i, q := range s.ended {
		if q == p {
			s.ended = append(s.ended[:i:i], s.ended[i+1:]...)
			break
		}
	}
	// The kernel may have given the number to a later process.
	if s.procs[p.pid] == p {
		delete(s.procs, p.pid)
	}
}

// signal reaches the process's whole group and, for SIGKILL, its descendants
// that left the group while their parents still live.
func (p *running) signal(sig syscall.Signal, why string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return os.ErrProcessDone
	}
	if why != "" && p.why == "" {
		p.why = why
	}
	var tree []int
	if sig == syscall.SIGKILL {
		tree = descendants(p.pid)
	}
	err := syscall.Kill(-p.pid, sig)
	for _, pid := range tree {
		_ = syscall.Kill(pid, sig) // gone already is fine
	}
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// write sends data to the process's standard input.
func (p *running) write(ctx context.Context, data []byte) error {
	p.mu.Lock()
	f := p.stdin
	p.mu.Unlock()
	if f == nil {
		return fmt.Errorf("the process has no open standard input: %w", syscall.EPIPE)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Now()) })
	defer stop()
	_, err := f.Write(data)
	if err != nil && ctx.Err() != nil {
		_ = f.SetWriteDeadline(time.Time{})
		return ctx.Err()
	}
	return err
}

func (p *running) closeStdin() error {
	p.mu.Lock()
	f := p.stdin
	p.stdin = nil
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Close()
}

// streams are both ends of a process's standard streams.
type streams struct {
	stdin, stdout, stderr *os.File // ours; stdin may be nil
	child                 [3]int
}

func openStreams(stdin bool) (streams, error) {
	s := streams{child: [3]int{-1, -1, -1}}
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
		if err := unix.SetNonblock(ours, true); err != nil {
			unix.Close(ours)
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
		return os.NewFile(uintptr(ours), name), nil
	}
	var err error
	if stdin {
		s.stdin, err = pipe(false, 0, "stdin")
	} else {
		s.child[0], err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		s.stdout, err = pipe(true, 1, "stdout")
	}
	if err == nil {
		s.stderr, err = pipe(true, 2, "stderr")
	}
	if err != nil {
		s.closeChild()
		s.closeOurs()
		return streams{}, err
	}
	return s, nil
}

func (s streams) closeChild() {
	for _, fd := range s.child {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func (s streams) closeOurs() {
	for _, f := range []*os.File{s.stdin, s.stdout, s.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// environ builds a process's environment: the account's, the sandbox's, the
// request's, later ones winning. It returns the PATH in it too.
func (s *Server) environ(u user, own map[string]string) (env []string, search string) {
	m := map[string]string{"PATH": defaultPath, "HOME": u.home, "USER": u.name, "LOGNAME": u.name, "LANG": "C.UTF-8"}
	if u.shell != "" {
		m["SHELL"] = u.shell
	}
	s.mu.Lock()
	for k, v := range s.env {
		m[k] = v
	}
	s.mu.Unlock()
	for k, v := range own {
		m[k] = v
	}
	for k, v := range m {
		// The kernel cannot hold such a variable; execve would refuse them all.
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			continue
		}
		env = append(env, k+"="+v)
	}
	return env, m["PATH"]
}

// lookPath finds cmd as execvp would, in the process's own PATH and folder.
func lookPath(cmd, dir, search string) (string, error) {
	if strings.ContainsRune(cmd, 0) {
		return "", fmt.Errorf("a command must not hold a NUL byte: %w", unix.EINVAL)
	}
	if strings.Contains(cmd, "/") {
		if !path.IsAbs(cmd) {
			cmd = path.Join(dir, cmd)
		}
		if _, err := os.Stat(cmd); err != nil {
			return "", fmt.Errorf("%w: %q", errNoCommand, clip(cmd, 256))
		}
		return cmd, nil
	}
	for _, d := range strings.Split(search, ":") {
		if !path.IsAbs(d) {
			d = path.Join(dir, d)
		}
		file := path.Join(d, cmd)
		if fi, err := os.Stat(file); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%w: %q", errNoCommand, clip(cmd, 256))
}
