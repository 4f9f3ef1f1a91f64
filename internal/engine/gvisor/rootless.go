package gvisor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// rootless reports whether boxes are booted by an ordinary user. runsc then
// runs as root of a user namespace of its own that holds one user: us.
func rootless() bool { return os.Geteuid() != 0 }

// Rootless reports whether boxes are booted by an ordinary user, who cannot save
// them.
func Rootless() bool { return rootless() }

// command is runsc with args, as whoever we are.
func (r *Runtime) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.cfg.Runsc, args...)
	cmd.Env = runscEnv
	cmd.SysProcAttr = asRoot()
	return cmd
}

// asRoot makes a program root in a new user namespace where we are not root;
// each gets its own, since all of them are the same user outside.
func asRoot() *syscall.SysProcAttr {
	if !rootless() {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

// TryRootless reports whether an ordinary user can boot boxes on this machine;
// the error says what the kernel refused. It is nil for root.
func TryRootless(ctx context.Context) error {
	if !rootless() {
		return nil
	}
	cmd := exec.CommandContext(ctx, "/bin/true")
	cmd.SysProcAttr = asRoot()
	// Some machines allow the namespace and forbid what one does in it: a mount
	// namespace inside is the first thing that runsc asks for.
	cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWNS
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("make a user namespace: %w", err)
	}
	return nil
}
