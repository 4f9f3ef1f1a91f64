package envd

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dreamcore/internal/envd/spec/process"
)

const (
	readerStall = 30 * time.Second // see backlog
	maxEnded    = 64               // ended processes kept until somebody collects their end
)

// running is one process that a client started, until its end was collected.
type running struct {
	pid    int
	number int // counts what was started
	tag    string
	config *process.ProcessConfig
	out    *backlog
	in     *input
	tty    *os.File // nil when it has none
	reap   *reaper
	pace   pace

	mu       sync.Mutex
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
	pty    *process.PTY      // nil: pipes
	env    map[string]string // below the request's own variables
	life   time.Duration     // 0: as long as it likes
}

var (
	errNoDir     = errors.New("the working folder does not exist")
	errNoCommand = errors.New("there is no such command")
	errTooMany   = errors.New("there are too many")
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
	if o.pty != nil && cfg.GetEnvs()["TERM"] == "" {
		o.env = map[string]string{"TERM": defaultTerm}
	}
	env, search := s.environ(o.user, o.env, cfg.GetEnvs())
	file, err := lookPath(cfg.GetCmd(), dir, search)
	if err != nil {
		return nil, err
	}
	if err := s.reserve(); err != nil {
		return nil, err
	}
	p, err := s.execute(o, file, dir, env)
	s.mu.Lock()
	s.starting--
	if err == nil {
		s.started++
		p.number = s.started
		s.procs[p.pid] = p
		s.living++
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
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
	return p, nil
}

// reserve makes room for one process more.
func (s *Server) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.living+s.starting >= s.cfg.MaxProcesses {
		return fmt.Errorf("%w: %d processes run, started by clients", errTooMany, s.living)
	}
	s.starting++
	return nil
}

// execute forks and executes what was checked.
func (s *Server) execute(o ordered, file, dir string, env []string) (*running, error) {
	var std stdio
	var err error
	if o.pty != nil {
		std, err = openTerminal(o.user, o.pty.GetSize())
	} else {
		std, err = openPipes(o.stdin)
	}
	if err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: []uintptr{uintptr(std.child[0]), uintptr(std.child[1]), uintptr(std.child[2])},
		// A session of its own makes it leader of a group that one signal reaches,
		// and lets it have a controlling terminal.
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: o.pty != nil},
	}
	if os.Geteuid() == 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: o.user.uid, Gid: o.user.gid, Groups: o.user.groups}
	}
	argv := append([]string{o.config.GetCmd()}, o.config.GetArgs()...)
	pid, status, err := s.reap.start(file, argv, attr)
	std.closeChild()
	if err != nil {
		std.closeOurs()
		return nil, fmt.Errorf("execute %q: %w", clip(file, 256), err)
	}
	p := &running{
		pid: pid, tag: o.tag, config: o.config, reap: s.reap, pace: s.pace,
		out: newBacklog(maxBacklogBytes, readerStall, &s.kept), in: newInput(std.in), tty: std.tty,
	}
	go s.follow(p, std.out, status)
	return p, nil
}

// follow pumps a process's output until it ended and everything that it had
// printed by then is in the backlog.
func (s *Server) follow(p *running, out []output, status <-chan syscall.WaitStatus) {
	exited := make(chan struct{})
	var pumps sync.WaitGroup
	for _, o := range out {
		pumps.Add(1)
		go func() { p.pump(o, exited, pumps.Done) }()
	}
	ws := <-status
	close(exited)
	for _, o := range out {
		// Wake the pumps: children that the process left behind may hold a stream
		// open for ever. In a pipe is all that it printed; a terminal says by an
		// error when all has come through.
		at := time.Now()
		if o.from == terminal {
			at = at.Add(hangUp)
		}
		_ = o.file.SetReadDeadline(at) // closed already is as good
	}
	pumps.Wait()

	p.mu.Lock()
	p.over = true
	if p.timeout != nil {
		p.timeout.Stop()
	}
	p.end = endEvent(ws, p.why)
	p.mu.Unlock()
	_ = p.in.close() // nobody reads it any more
	s.keepEnded(p)
	p.out.close()
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
	s.living--
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
	p.out.forget()
	// The kernel may have given the number to a later process.
	if s.procs[p.pid] == p {
		delete(s.procs, p.pid)
	}
}

// signal reaches the process's whole group and, for SIGKILL, everything in its
// session and its descendants that left it while their parents still live.
func (p *running) signal(sig syscall.Signal, why string) error {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return os.ErrProcessDone
	}
	if why != "" && p.why == "" {
		p.why = why
	}
	p.mu.Unlock()
	var others []int
	if sig == syscall.SIGKILL {
		others = family(p.pid)
	}
	// Not a moment after it was reaped: its number may be another's then.
	err := p.reap.whileChild(p.pid, func() error { return syscall.Kill(-p.pid, sig) })
	for again := 0; len(others) > 0 && again < killRounds; again++ {
		for _, pid := range others {
			_ = syscall.Kill(pid, sig) // gone already is fine
		}
		// What they forked meanwhile is in the session still.
		others = session(p.pid)
	}
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// killRounds bounds how often a session is looked through for what was forked
// while it was being killed.
const killRounds = 10
