package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// remove deletes everything of one box, however much of it there is.
func (r *Runtime) remove(ctx context.Context, id string) error {
	_, derr := r.run(ctx, "delete", "-force", id)
	if derr != nil {
		// runsc knows nothing of it, or cannot cope; what follows does not need it.
		r.killProcesses(id)
	}
	until := time.Now().Add(killPatience)
	if r.cgroups != nil {
		if err := r.cgroups.remove(id, until); err != nil {
			return err
		}
	} else if err := r.awaitProcesses(ctx, id, until); err != nil {
		return err
	}
	if err := os.RemoveAll(r.boxDir(id)); err != nil {
		return fmt.Errorf("remove the folder of %s: %w", id, err)
	}
	// runsc's own records and socket, when it could not delete them.
	left, err := filepath.Glob(filepath.Join(r.stateDir(), "*"+id+"*"))
	if err != nil {
		return err
	}
	for _, f := range left {
		if err := os.RemoveAll(f); err != nil {
			return fmt.Errorf("remove the state of %s: %w", id, err)
		}
	}
	return nil
}

// killProcesses ends what runs on the host for the box id, or for any box of
// this folder when id is "". Every process of runsc carries the state folder
// and the box's id among its arguments.
func (r *Runtime) killProcesses(id string) int {
	n := 0
	for _, pid := range r.processes(id) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			n++
		}
	}
	return n
}

func (r *Runtime) awaitProcesses(ctx context.Context, id string, until time.Time) error {
	for r.killProcesses(id) > 0 {
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("end the processes of %s: some are left", id)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

func (r *Runtime) processes(id string) []int {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	root := []byte("--root=" + r.stateDir())
	var all []int
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		data, err := os.ReadFile("/proc/" + n.Name() + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		args := bytes.Split(data, []byte{0})
		has := func(want []byte) bool {
			return slices.ContainsFunc(args, func(a []byte) bool { return bytes.Equal(a, want) })
		}
		if has(root) && (id == "" || has([]byte(id))) {
			all = append(all, pid)
		}
	}
	return all
}

// reap removes everything in this folder that is no living box of ours: found
// by its folder, by runsc's own list, by its control group and by its
// processes, because a host that was killed may have left any subset of them.
func (r *Runtime) reap(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	entries, err := os.ReadDir(r.boxesDir())
	if err != nil {
		return nil, fmt.Errorf("look for old sandboxes: %w", err)
	}
	for _, e := range entries {
		found[e.Name()] = true
	}
	if out, err := r.run(ctx, "list", "-quiet"); err != nil {
		r.log.Warn("runsc cannot list what it knows", "reason", err.Error())
	} else {
		for _, id := range strings.Fields(out) {
			found[id] = true
		}
	}
	if r.cgroups != nil {
		for _, id := range r.cgroups.ids() {
			found[id] = true
		}
	}
	// First whatever still boots: it would make new things behind our back.
	if err := r.awaitProcesses(ctx, "", time.Now().Add(killPatience)); err != nil {
		return nil, err
	}
	var ids []string
	var errs []error
	for id := range found {
		if err := r.remove(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		ids = append(ids, id)
		r.log.Info("removed a sandbox of a former engine", "sandbox_id", id)
	}
	slices.Sort(ids)
	// What is left of runsc's state belongs to no box: an empty network
	// namespace that it keeps mounted, and locks.
	netns := filepath.Join(r.stateDir(), "null-netns")
	for {
		// Boots at once may have mounted it one over the other.
		err := syscall.Unmount(netns, syscall.MNT_DETACH)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOENT) {
			break // not mounted any more
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", netns, err))
			break
		}
	}
	if err := os.RemoveAll(r.stateDir()); err != nil {
		errs = append(errs, fmt.Errorf("clear runsc's state: %w", err))
	}
	if err := os.MkdirAll(r.stateDir(), 0o700); err != nil {
		errs = append(errs, err)
	}
	return ids, errors.Join(errs...)
}
