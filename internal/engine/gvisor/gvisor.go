// Package gvisor boots and destroys the computers of the embedded engine: each
// is a gVisor sandbox without a network device, with an image's folder as its
// root (never written), and with one folder of the host mounted, which holds
// the sockets through which it is driven.
package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

const (
	sandboxdName = "sandboxd"
	cpuPeriod    = 100_000 // microseconds
	runBytes     = 16 << 20
	tmpShare     = 2 // /tmp may hold DiskBytes/tmpShare
	shmShare     = 4 // /dev/shm may hold DiskBytes/shmShare
	// minFreeBytes must remain of MemoryBytes when every memory-backed folder is
	// full, so that a full disk alone never hits the memory wall.
	minFreeBytes = 192 << 20
	killPatience = 20 * time.Second
)

// Limits bound one box.
type Limits struct {
	// MemoryBytes is everything: processes, files in /workspace, /tmp and
	// /dev/shm, and gVisor itself.
	MemoryBytes int64
	// CPUs is how many processors' worth of time it gets.
	CPUs float64
	// Processes bounds the processes and threads of each of its users.
	Processes int
	// DiskBytes bounds /workspace, and the written part of the root separately;
	// /tmp gets half of it and /dev/shm a quarter.
	DiskBytes int64
}

// DefaultLimits suit one agent with a headless browser.
var DefaultLimits = Limits{MemoryBytes: 3 << 30, CPUs: 2, Processes: 1024, DiskBytes: 1 << 30}

func (l Limits) check(lang dreamcore.Lang) error {
	if l.CPUs <= 0 || l.Processes < 16 || l.DiskBytes < 1<<20 {
		return fail(lang, dreamcore.Invalid, "engine.limits", "small_limits")
	}
	need := l.DiskBytes + l.DiskBytes/tmpShare + l.DiskBytes/shmShare + minFreeBytes
	if l.MemoryBytes < need {
		return fail(lang, dreamcore.Invalid, "engine.limits", "disk_over_memory",
			"disk", mib(l.DiskBytes), "need", mib(need), "memory", mib(l.MemoryBytes))
	}
	return nil
}

func mib(n int64) string { return strconv.FormatInt(n>>20, 10) }

// Config says where everything is.
type Config struct {
	Dir      string // ours alone: sockets, bundles, runsc's state
	Runsc    string // path of the runsc program
	Sandboxd string // path of the static sandboxd program
	Limits   Limits
	Profile  Profile
	// AllowNoLimits goes on where the machine cannot enforce limits.
	AllowNoLimits bool
	// Spare is asked once by Open for each box that a Runtime which died left: one
	// that it spares goes on, to be taken back with Adopt. nil: none is.
	Spare func(id string) bool
	Log   *slog.Logger
	// Lang is the language of the errors that people see; English when empty.
	Lang dreamcore.Lang
}

// Runtime boots boxes in one folder. Only one Runtime may have a folder open.
type Runtime struct {
	cfg     Config
	log     *slog.Logger
	cgroups *cgroups // nil: limits are not enforced
	lock    *os.File
	// stopLogs ends the care for the boxes' logs.
	stopLogs func()

	mu    sync.Mutex
	boxes map[string]*Box
	left  map[string]bool // boxes that go on without us
	aside map[string]bool // boxes that boot for nobody yet
}

// New builds a Runtime.
func New(cfg Config) *Runtime {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits
	}
	return &Runtime{cfg: cfg, log: cfg.Log, boxes: map[string]*Box{}, left: map[string]bool{}, aside: map[string]bool{}}
}

func (r *Runtime) stateDir() string            { return filepath.Join(r.cfg.Dir, "runsc") }
func (r *Runtime) boxesDir() string            { return filepath.Join(r.cfg.Dir, "box") }
func (r *Runtime) boxDir(id string) string     { return filepath.Join(r.boxesDir(), id) }
func (r *Runtime) sandboxd() string            { return filepath.Join(r.cfg.Dir, sandboxdName) }
func (r *Runtime) Limited() bool               { return r.cgroups != nil }
func (r *Runtime) overlayDir(id string) string { return filepath.Join(r.boxDir(id), "overlay") }
func (r *Runtime) controlDir(id string) string { return filepath.Join(r.boxDir(id), "control") }

// Open checks the machine, takes the folder, and removes whatever a Runtime
// that died left in it. It returns the ids of the boxes that it removed.
func (r *Runtime) Open(ctx context.Context) ([]string, error) {
	if err := r.cfg.Limits.check(r.cfg.Lang); err != nil {
		return nil, err
	}
	switch r.cfg.Profile {
	case "", Job, E2B:
	default:
		return nil, dreamcore.Errorf(dreamcore.Invalid, "engine.open", "there is no profile %q of a sandbox", r.cfg.Profile)
	}
	if err := TryRootless(ctx); err != nil {
		return nil, fail(r.cfg.Lang, dreamcore.Missing, "engine.open", "needs_root").Because(err)
	}
	for _, p := range []string{r.cfg.Runsc, r.cfg.Sandboxd} {
		if fi, err := os.Stat(p); err != nil || fi.Mode()&0o111 == 0 {
			return nil, fail(r.cfg.Lang, dreamcore.Missing, "engine.open", "no_program", "path", p).Because(err)
		}
	}
	if abs, err := filepath.Abs(r.cfg.Dir); err != nil {
		return nil, fmt.Errorf("find the engine's folder: %w", err)
	} else if r.cfg.Dir, err = resolved(abs); err != nil {
		return nil, fmt.Errorf("make the engine's folder: %w", err)
	}
	if err := r.take(); err != nil {
		return nil, err
	}
	ids, err := r.setUp(ctx)
	if err != nil {
		r.lock.Close()
		r.lock = nil
		return ids, err
	}
	r.stopLogs = r.keepLogsShort()
	return ids, nil
}

func (r *Runtime) setUp(ctx context.Context) ([]string, error) {
	sum := sha256.Sum256([]byte(r.cfg.Dir))
	groups, err := findCgroups("/proc/self/mountinfo", "dreamcore-"+hex.EncodeToString(sum[:6]))
	if err == nil {
		err = groups.try()
	}
	if err != nil {
		if !r.cfg.AllowNoLimits {
			return nil, fail(r.cfg.Lang, dreamcore.Missing, "engine.open", "no_limits").Because(err)
		}
		r.log.Warn("this machine does not limit a sandbox's processors, nor its memory as a whole", "decision", "go on", "because", "allow_no_limits", "reason", err.Error())
	} else {
		r.cgroups = groups
	}
	for _, d := range []string{r.boxesDir(), r.stateDir()} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the engine's folder: %w", err)
		}
	}
	if err := r.spare(); err != nil {
		return nil, err
	}
	ids, err := r.reap(ctx)
	clear(r.left) // from here on they are Adopt's
	if err != nil {
		return ids, err
	}
	// One copy on the file system of the boxes: each gets a hard link to it.
	if err := copyFile(r.cfg.Sandboxd, r.sandboxd(), 0o500); err != nil {
		return ids, fmt.Errorf("copy sandboxd: %w", err)
	}
	return ids, nil
}

// resolved makes dir and returns its path without symbolic links: runsc
// refuses to have a state folder that it reaches over one.
func resolved(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// take locks the folder. The kernel drops the lock with the process, however it ends.
func (r *Runtime) take() error {
	f, err := os.OpenFile(filepath.Join(r.cfg.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock the engine's folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return fail(r.cfg.Lang, dreamcore.Conflict, "engine.open", "taken", "dir", r.cfg.Dir).Because(err)
	}
	r.lock = f
	return nil
}

// Close kills every box but those that were left, and gives the folder back. It
// may be called twice.
func (r *Runtime) Close(ctx context.Context) error {
	r.mu.Lock()
	if r.lock == nil {
		r.mu.Unlock()
		return nil
	}
	boxes := make([]*Box, 0, len(r.boxes))
	for _, b := range r.boxes {
		boxes = append(boxes, b)
	}
	r.mu.Unlock()
	r.stopLogs()
	errs := make([]error, len(boxes))
	var wg sync.WaitGroup
	for i, b := range boxes {
		wg.Add(1)
		go func() { defer wg.Done(); errs[i] = b.Kill(ctx) }()
	}
	wg.Wait()
	err := errors.Join(errs...)
	if _, rerr := r.reap(ctx); rerr != nil {
		err = errors.Join(err, rerr)
	}
	if r.cgroups != nil && len(r.left) == 0 {
		if cerr := r.cgroups.remove("", time.Now().Add(killPatience)); cerr != nil {
			err = errors.Join(err, cerr)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lock.Close()
	r.lock = nil
	return err
}

// run executes runsc to its end and returns what it printed.
func (r *Runtime) run(ctx context.Context, args ...string) (string, error) {
	out, err := r.command(ctx, append(r.flags(), args...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("runsc %s: %w: %s", args[0], err, clip(strings.TrimSpace(string(out)), 600))
	}
	return string(out), nil
}

// fail makes the error that people see out of the texts engine.KEY and, where
// there is one, engine.KEY_hint.
func fail(lang dreamcore.Lang, code dreamcore.Code, op, key string, args ...string) *dreamcore.Error {
	return text.Error(lang, code, op, "engine."+key, args...)
}

// runscEnv is all that runsc sees of our environment, so that nothing of the
// operator's is in the environment of a process that serves a box.
var runscEnv = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if _, err = io.Copy(tmp, in); err == nil {
		err = tmp.Chmod(mode)
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), to)
}
