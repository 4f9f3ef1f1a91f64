package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"dreamcore"
	"dreamcore/internal/envd"
)

// Identity tells a box's process on the host from every other process that has
// run or will run on this machine, though numbers come again.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks from the machine's start to the process's
	Boot  string `json:"boot"`  // the kernel's name for this run of the machine
}

// Identity returns who the box's process is; after Boot.
func (b *Box) Identity() (Identity, error) {
	pid := b.sandboxPID()
	if pid <= 0 {
		return Identity{}, errors.New("identify the sandbox: its process is not known")
	}
	start, err := startOf(pid)
	if err != nil {
		return Identity{}, fmt.Errorf("identify the sandbox: %w", err)
	}
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		return Identity{}, fmt.Errorf("identify the sandbox: %w", err)
	}
	return Identity{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

const bootIDFile = "/proc/sys/kernel/random/boot_id"

// startOf is when a process started, in clock ticks after the machine.
func startOf(pid int) (uint64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	return parseStart(data)
}

// parseStart reads field 22 of a stat file. The process's name, in brackets, may
// hold anything, so fields are counted from its end.
func parseStart(stat []byte) (uint64, error) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, errors.New("read when a process started: the file is malformed")
	}
	f := bytes.Fields(stat[i+1:])
	if len(f) < 20 {
		return 0, errors.New("read when a process started: the file is malformed")
	}
	if string(f[0]) == "Z" {
		return 0, errors.New("the process has ended")
	}
	return strconv.ParseUint(string(f[19]), 10, 64)
}

// BoxDir is the folder of the box id on this machine. It belongs to root alone
// and goes with the box.
func (r *Runtime) BoxDir(id dreamcore.SandboxID) string { return r.boxDir(string(id)) }

// Dir is the box's folder on this machine; see Runtime.BoxDir.
func (b *Box) Dir() string { return b.r.boxDir(b.ID) }

// Adopt takes a box back that another Runtime booted in the same folder and that
// Config.Spare spared: it checks that the process is the one that was recorded,
// listens for what the box sends out, and waits for PID 1 to call again. On
// failure nothing of the box is left.
func (r *Runtime) Adopt(ctx context.Context, id dreamcore.SandboxID, was Identity) (*Box, error) {
	b := &Box{ID: string(id), r: r, booted: make(chan struct{}), gone: make(chan struct{})}
	close(b.booted)
	r.mu.Lock()
	if r.lock == nil {
		r.mu.Unlock()
		return nil, fail(r.cfg.Lang, dreamcore.Unavailable, "engine.adopt", "closed")
	}
	r.boxes[b.ID] = b
	r.mu.Unlock()
	if err := b.adopt(ctx, was); err != nil {
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("take sandbox back: %w", err), b.Kill(kctx))
	}
	return b, nil
}

func (b *Box) adopt(ctx context.Context, was Identity) error {
	is, err := b.Identity()
	if err != nil {
		return err
	}
	if is != was || !b.r.owns(was.PID, b.ID) {
		return fmt.Errorf("process %d is not the one that was recorded", was.PID)
	}
	if b.key, err = os.ReadFile(filepath.Join(b.Dir(), keyFile)); err != nil {
		return err
	}
	if len(b.key) == 0 {
		return errors.New("its key is empty")
	}
	control := b.r.controlDir(b.ID)
	if err := os.Remove(filepath.Join(control, envd.EgressSocket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if b.Egress, err = listen(control, envd.EgressSocket); err != nil {
		return err
	}
	return b.Reopen(ctx)
}

// Leave lets go of the box without ending it, for another Runtime to Adopt. PID 1
// waits for one for some seconds.
func (b *Box) Leave() error {
	err := errors.Join(b.Control.Close(), b.Egress.Close())
	b.r.mu.Lock()
	delete(b.r.boxes, b.ID)
	b.r.left[b.ID] = true
	b.r.mu.Unlock()
	return err
}

// spared reports whether a found box is not to be removed.
func (r *Runtime) spared(id string) bool {
	r.mu.Lock()
	left := r.left[id]
	r.mu.Unlock()
	return left
}
