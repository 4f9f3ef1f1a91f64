package envd

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// user is an account of the sandbox.
type user struct {
	name     string
	uid, gid uint32
	groups   []uint32 // supplementary
	home     string
	shell    string
}

var errNoUser = errors.New("there is no such user")

// userOf returns the account that a request selects by Basic auth; the
// password is not looked at.
func (s *Server) userOf(h http.Header) (user, error) {
	auth := h.Get("Authorization")
	if auth == "" {
		return s.user(s.cfg.DefaultUser)
	}
	scheme, value, _ := strings.Cut(auth, " ")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value))
	name, _, ok := strings.Cut(string(raw), ":")
	if err != nil || !ok || !strings.EqualFold(scheme, "Basic") {
		return user{}, fmt.Errorf("the Authorization header is not Basic: %w", errNoUser)
	}
	if name == "" {
		name = s.cfg.DefaultUser
	}
	return s.user(name)
}

// do runs f with the file permissions of u and nobody else's: on a thread of
// its own whose effective ids are u's. gVisor has no setfsuid, so the effective
// ids it is; the kernel drops that thread's capabilities with them and gives
// them back with the effective id 0.
func (u user) do(f func() error) error {
	if int(u.uid) == os.Geteuid() {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := u.assume()
		if err == nil {
			err = f()
		}
		if rerr := restore(); rerr != nil {
			// The goroutine ends locked, so the runtime destroys the thread.
			done <- errors.Join(err, fmt.Errorf("leave the identity of %s: %w", u.name, rerr))
			return
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

const keep = ^uintptr(0) // leaves an id as it is

// assume changes the calling thread only: raw system calls, unlike package
// syscall's functions, do not touch the other threads.
func (u user) assume() error {
	var groups *uint32
	if len(u.groups) > 0 {
		groups = &u.groups[0]
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.groups)), uintptr(unsafe.Pointer(groups)), 0); e != 0 {
		return fmt.Errorf("set groups of %s: %w", u.name, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, uintptr(u.gid), keep); e != 0 {
		return fmt.Errorf("set group of %s: %w", u.name, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(u.uid), keep); e != 0 {
		return fmt.Errorf("set user %s: %w", u.name, e)
	}
	return nil
}

func restore() error {
	uid, gid := uintptr(os.Getuid()), uintptr(os.Getgid())
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uid, keep); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, keep, gid, keep); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// resolve makes a client's path absolute: "~" and relative paths start at the
// user's home.
func (u user) resolve(p string) (string, error) {
	if strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("a path must not hold a NUL byte: %w", unix.EINVAL)
	}
	switch {
	case p == "" || p == "~":
		return path.Clean(u.home), nil
	case strings.HasPrefix(p, "~/"):
		return path.Join(u.home, p[2:]), nil
	case !path.IsAbs(p):
		return path.Join(u.home, p), nil
	}
	return path.Clean(p), nil
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
