package gvisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
// this folder that is not spared when id is "". Every process of runsc carries the state folder
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
	var all []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n.Name()); err == nil && pid != os.Getpid() && r.owns(pid, id) {
			all = append(all, pid)
		}
	}
	return all
}

// owns reports whether the process serves the box id, or with "" any box of this
// folder that is not spared.
func (r *Runtime) owns(pid int, id string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return false // it has ended
	}
	args := strings.Split(string(data), "\x00")
	if !slices.Contains(args, "--root="+r.stateDir()) {
		return false
	}
	if id == "" {
		return !slices.ContainsFunc(args, r.spared)
	}
	return slices.Contains(args, id)
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
		if r.spared(id) {
			continue
		}
		if err := r.remove(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		ids = append(ids, id)
		r.log.Info("removed a sandbox of a former engine", "sandbox_id", id)
	}
	slices.Sort(ids)
	return ids, errors.Join(append(errs, r.clearState())...)
}

// spare asks for each folder of a box whether it is to go on.
func (r *Runtime) spare() error {
	if r.cfg.Spare == nil {
		return nil
	}
	entries, err := os.ReadDir(r.boxesDir())
	if err != nil {
		return fmt.Errorf("look for old sandboxes: %w", err)
	}
	for _, e := range entries {
		if r.cfg.Spare(e.Name()) {
			r.mu.Lock()
			r.left[e.Name()] = true
			r.mu.Unlock()
		}
	}
	return nil
}

// clearState removes what is left of runsc's state and belongs to no box: an
// empty network namespace that it keeps mounted, and locks.
func (r *Runtime) clearState() error {
	entries, err := os.ReadDir(r.stateDir())
	if err != nil {
		return fmt.Errorf("clear runsc's state: %w", err)
	}
	r.mu.Lock()
	left := slices.Collect(maps.Keys(r.left))
	r.mu.Unlock()
	var errs []error
	for _, e := range entries {
		path := filepath.Join(r.stateDir(), e.Name())
		if slices.ContainsFunc(left, func(id string) bool { return strings.Contains(e.Name(), id) }) {
			continue
		}
		if e.Name() == "null-netns" {
			if len(left) > 0 {
				continue // mounted still, for those that go on
			}
			// Boots at once may have mounted it one over the other.
			for err = nil; err == nil; {
				err = syscall.Unmount(path, syscall.MNT_DETACH)
			}
			if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
				errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
			}
		}
		if err := os.RemoveAll(path); err != nil {
			errs = append(errs, fmt.Errorf("clear runsc's state: %w", err))
		}
	}
	return errors.Join(errs...)
}
