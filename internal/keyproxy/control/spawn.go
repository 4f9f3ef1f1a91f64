package control

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is the argument by which the program knows that it is to be the proxy.
const Command = "keyproxy"

// User is whom the proxy runs as.
type User struct{ UID, GID int }

// process is the proxy's process, seen from the host.
type process struct {
	pid   int
	kill  func() // at once; harmless when it is gone
	wire  *wire
	said  *os.File      // its log
	ended chan struct{} // closed when it is gone
	how   error         // set before ended is closed; nil: it ended by itself, well
}

// spawn starts the proxy on the folder dir, as user or, when that is nil, as
// whoever we are.
func spawn(program, dir string, user *User) (*process, error) {
	folder, err := settleFolder(dir, user)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }() // the child has a copy
	near, far, err := pair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = far.Close() }() // the same
	said, says, err := os.Pipe()
	if err != nil {
		_ = near.close() // the first error is the one that matters
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer func() { _ = says.Close() }() // the same
	// Whoever started us may have left descriptors open that nobody knows of.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil && !errors.Is(err, unix.ENOSYS) {
		return nil, errors.Join(fmt.Errorf("guard our descriptors: %w", err), near.close(), said.Close())
	}
	cmd := &exec.Cmd{
		Path: program, Args: []string{"dreamcore", Command}, Env: []string{}, Stderr: says, Dir: "/",
		ExtraFiles: []*os.File{far, folder}, // controlFD, folderFD
		SysProcAttr: &syscall.SysProcAttr{
			Setsid:    true, // Ctrl-C is for the host, which ends things in order
			Pdeathsig: syscall.SIGKILL,
		},
	}
	if user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user.UID), Gid: uint32(user.GID), Groups: []uint32{}}
	}
	p := &process{wire: near, said: said, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// What this thread gives up its children never have. It is not given back
		// (the runtime makes no thread out of a locked one), and it stays until the
		// process ends: a thread's end counts as the parent's death.
		runtime.LockOSThread()
		err := giveUp(user != nil)
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		p.kill = func() { _ = cmd.Process.Kill() } // it may be gone already
		started <- nil
		p.how = cmd.Wait()
		close(p.ended)
	}()
	if err := <-started; err != nil {
		err = errors.Join(err, near.close(), said.Close())
		if errors.Is(err, fs.ErrPermission) && user != nil {
			return nil, &StartError{User: user, Err: err}
		}
		return nil, fmt.Errorf("start the key proxy: %w", err)
	}
	return p, nil
}

// StartError says that the proxy cannot be started as its user.
type StartError struct {
	User *User
	Err  error
}

// Error says why.
func (e *StartError) Error() string {
	return fmt.Sprintf("start the key proxy as user %d: %v", e.User.UID, e.Err)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// giveUp takes from this thread what its children must never get: privileges
// of the programs they run and, where the user changes too, any capability.
func giveUp(all bool) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	if !all {
		return nil
	}
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel knows no more
		}
		if errors.Is(err, unix.EPERM) {
			return nil // we cannot give what we may not drop; the user's change clears the rest
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
}

// settleFolder makes the proxy's folder and gives it, and what a former life
// left in it, to the user.
func settleFolder(dir string, user *User) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the key proxy's folder: %w", err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the key proxy's folder: %w", err)
	}
	f := os.NewFile(uintptr(fd), dir)
	if err := give(f, user); err != nil {
		_ = f.Close() // the first error is the one that matters
		return nil, fmt.Errorf("give the key proxy its folder: %w", err)
	}
	return f, nil
}

func give(f *os.File, user *User) error {
	if err := f.Chmod(0o700); err != nil {
		return err
	}
	if user == nil {
		return nil
	}
	if err := f.Chown(user.UID, user.GID); err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	fd := int(f.Fd())
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
		// Whoever owns the folder may have put anything there: only plain files
		// that have no other name are given away.
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || int(st.Uid) == user.UID && int(st.Gid) == user.GID {
			continue
		}
		if err := unix.Fchownat(fd, e.Name(), user.UID, user.GID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	return nil
}

// confined looks at the process from outside: what the host believes of it is
// what the kernel says.
func (p *process) confined(user *User) error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return fmt.Errorf("look at the key proxy: %w", err)
	}
	is := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		is[name] = strings.Join(strings.Fields(value), " ")
	}
	want := map[string]string{"NoNewPrivs": "1"}
	if user != nil {
		const none = "0000000000000000"
		same := func(id int) string { return strings.TrimSpace(strings.Repeat(fmt.Sprintf("%d ", id), 4)) }
		want["Uid"], want["Gid"], want["Groups"] = same(user.UID), same(user.GID), ""
		want["CapInh"], want["CapPrm"], want["CapEff"], want["CapAmb"] = none, none, none, none
	}
	for name, v := range want {
		if is[name] != v {
			return fmt.Errorf("the key proxy is not confined: %s is %q, not %q", name, is[name], v)
		}
	}
	return nil
}
