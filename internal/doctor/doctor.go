// Package doctor says what a machine lacks for running sandboxes and how to
// mend it. It changes nothing.
package doctor

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dreamcore"
	"dreamcore/internal/text"
)

// State is how a check went.
type State string

// A Bad check keeps games from being made; a Weak one makes the service worse.
const (
	Good State = "ok"
	Weak State = "weak"
	Bad  State = "missing"
)

// Check is the outcome of one check, in the language that was asked for.
type Check struct {
	Name  string
	State State
	Says  string
	Fix   string // "" when there is nothing to do
}

// Config is what is looked at.
type Config struct {
	Lang        dreamcore.Lang
	Ordinary    bool // whoever asks is not root
	Data, Cache string
	Listen      []string               // addresses that must be free
	Runsc       func() (string, error) // where the sandbox program is
	Image       func() (string, error) // the current image, as text
	// Boot makes a sandbox and runs a command in it; nil: that is not tried, because a
	// service that runs uses what it needs.
	Boot func(ctx context.Context) error
	// Remote is where sandboxes run that this machine does not run itself; "": it
	// does. What only its own engine needs is not looked at then.
	Remote string
	// Limited reports, after Boot, whether the sandbox's limits were enforced; nil:
	// nobody can tell.
	Limited func() bool
	// Engine is where `dreamcore engine` would listen; "" is not looked at.
	// Serving says where one runs already, "" when none does.
	Engine, Serving string
	AllowNoLimits   bool
	// Cold says why jobs begin without the agent started ahead: "agent" (it
	// cannot be), "off", "remote" or "rootless"; "": they begin with it.
	Cold string
	// Rootless tries whether an ordinary user can boot sandboxes here; nil: no.
	Rootless func(context.Context) error
}

// What a machine must have at least.
const (
	needDiskBytes   = 4 << 30
	needMemoryBytes = 4 << 30
)

type exam struct {
	cfg    Config
	checks []Check
}

// Run makes every check, the dear ones last.
func Run(ctx context.Context, cfg Config) []Check {
	e := &exam{cfg: cfg}
	if cfg.Remote != "" {
		return e.remote(ctx)
	}
	e.system()
	e.user(ctx)
	e.cgroups()
	e.memory()
	e.disk("data", cfg.Data)
	e.disk("cache", cfg.Cache)
	for _, addr := range cfg.Listen {
		e.port(addr)
	}
	e.engine()
	e.runsc(ctx)
	e.warm()
	if e.image() && cfg.Boot != nil {
		e.boot(ctx)
	}
	return e.checks
}

// remote makes the checks for a service whose sandboxes run elsewhere, and says
// which are left out and why.
func (e *exam) remote(ctx context.Context) []Check {
	e.add("remote", Good, "where", e.cfg.Remote)
	e.disk("data", e.cfg.Data)
	e.disk("cache", e.cfg.Cache)
	for _, addr := range e.cfg.Listen {
		e.port(addr)
	}
	if e.cfg.Serving != "" {
		e.engine()
	}
	e.warm()
	if e.cfg.Boot == nil {
		e.add("boot_untried", Good, "where", e.cfg.Remote)
	} else {
		e.boot(ctx)
	}
	return e.checks
}

// Ready reports whether nothing is Bad.
func Ready(checks []Check) bool {
	for _, c := range checks {
		if c.State == Bad {
			return false
		}
	}
	return true
}

func (e *exam) add(name string, state State, args ...string) {
	c := Check{Name: text.T(e.cfg.Lang, "doctor."+name), State: state}
	if state == Good {
		c.Says = text.T(e.cfg.Lang, "doctor."+name+"_ok", args...)
	} else {
		c.Says = text.T(e.cfg.Lang, "doctor."+name+"_bad", args...)
		fix := "doctor." + name + "_fix"
		if user := fix + "_user"; e.cfg.Ordinary && text.Has(user) {
			fix = user
		}
		c.Fix = text.T(e.cfg.Lang, fix, args...)
	}
	e.checks = append(e.checks, c)
}

func (e *exam) system() {
	state := Good
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		state = Bad
	}
	e.add("system", state, "system", runtime.GOOS+"/"+runtime.GOARCH)
}

func (e *exam) user(ctx context.Context) {
	switch {
	case !e.cfg.Ordinary:
		e.add("root", Good)
	case e.cfg.Rootless != nil && e.cfg.Rootless(ctx) == nil:
		e.add("rootless", Weak)
	default:
		e.add("root", Bad)
	}
}

// cgroups looks for the three controllers that limit a sandbox, in either version.
func (e *exam) cgroups() {
	var missing []string
	v2, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	for _, c := range []string{"cpu", "memory", "pids"} {
		// There is not enough: a sandbox's group has to be made in it.
		if strings.Contains(" "+strings.TrimSpace(string(v2))+" ", " "+c+" ") && unix.Access("/sys/fs/cgroup", unix.W_OK) == nil {
			continue
		}
		if unix.Access(filepath.Join("/sys/fs/cgroup", c), unix.W_OK) == nil {
			continue
		}
		missing = append(missing, c)
	}
	state := Good
	if len(missing) > 0 {
		state = Bad
		if e.cfg.AllowNoLimits {
			state = Weak
		}
	}
	e.add("cgroups", state, "missing", strings.Join(missing, ", "))
}

func (e *exam) memory() {
	var info syscall.Sysinfo_t
	state, total := Good, uint64(0)
	if err := syscall.Sysinfo(&info); err == nil {
		total = uint64(info.Totalram) * uint64(info.Unit)
	}
	if total < needMemoryBytes {
		state = Weak
	}
	e.add("memory", state, "have", gib(total), "need", gib(needMemoryBytes))
}

func gib(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

func (e *exam) disk(which, dir string) {
	probe := dir
	for { // the folder itself may not exist yet
		if _, err := os.Stat(probe); err == nil || filepath.Dir(probe) == probe {
			break
		}
		probe = filepath.Dir(probe)
	}
	var fs syscall.Statfs_t
	free := uint64(0)
	if err := syscall.Statfs(probe, &fs); err == nil {
		free = fs.Bavail * uint64(fs.Bsize)
	}
	state := Good
	if free < needDiskBytes {
		state = Bad
	}
	e.add("disk_"+which, state, "dir", dir, "have", gib(free), "need", gib(needDiskBytes))
}

func (e *exam) port(addr string) {
	state := Good
	l, err := net.Listen("tcp", addr)
	if err == nil {
		l.Close()
	} else {
		state = Bad
	}
	e.add("port", state, "addr", addr)
}

// engine looks at what `dreamcore engine` needs beyond what games need. It is
// no reason against games.
func (e *exam) engine() {
	switch {
	case e.cfg.Serving != "":
		e.add("engine_runs", Good, "url", e.cfg.Serving)
	case e.cfg.Engine != "":
		state := Good
		l, err := net.Listen("tcp", e.cfg.Engine)
		if err == nil {
			l.Close()
		} else {
			state = Weak
		}
		e.add("engine", state, "addr", e.cfg.Engine)
	}
}

// warm says whether the agent is started ahead.
func (e *exam) warm() {
	switch e.cfg.Cold {
	case "":
		e.add("warm", Good)
	case "rootless":
		e.add("warm_rootless", Weak)
	default:
		e.add("warm_"+e.cfg.Cold, Good)
	}
}

func (e *exam) runsc(ctx context.Context) {
	path, err := e.cfg.Runsc()
	if err != nil {
		e.add("runsc", Bad, "reason", Say(err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		e.add("runsc", Bad, "reason", Say(err))
		return
	}
	version, _, _ := strings.Cut(string(out), "\n")
	// A runsc built from the Go module does not know its release; its build does.
	if info, err := buildinfo.ReadFile(path); err == nil {
		if v := gvisorOf(info); v != "" {
			version = "runsc, gVisor " + v
		}
	}
	e.add("runsc", Good, "version", version)
}

// gvisorOf is the version of gVisor's module in a build: its own, or of what it
// was built with; "" when there is none.
func gvisorOf(info *buildinfo.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == "gvisor.dev/gvisor" {
			return m.Version
		}
	}
	return ""
}

func (e *exam) image() bool {
	current, err := e.cfg.Image()
	if err != nil {
		e.add("image", Bad, "reason", Say(err))
		return false
	}
	e.add("image", Good, "image", current)
	return true
}

func (e *exam) boot(ctx context.Context) {
	if err := e.cfg.Boot(ctx); err != nil {
		e.add("boot", Bad, "reason", Say(err))
		return
	}
	e.add("boot", Good)
	if e.cfg.Limited == nil {
		return
	}
	state := Good
	if !e.cfg.Limited() {
		state = Weak
	}
	e.add("limits", state)
}

// Say is the message of an error with its hint.
func Say(err error) string {
	var de *dreamcore.Error
	if !errors.As(err, &de) {
		return err.Error()
	}
	if de.Hint != "" {
		return de.Msg + " (" + de.Hint + ")"
	}
	return de.Msg
}
