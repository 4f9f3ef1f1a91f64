package gvisor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroups knows where the boxes of one engine are in the control groups of this
// machine. runsc makes a box's group and puts itself in it; this type finds,
// reads, empties and removes it.
type cgroups struct {
	v2     bool
	mounts map[string]string // controller to where its hierarchy is mounted; "" for v2
	parent string            // the folder of all boxes of this engine, below each mount
}

// findCgroups reads mountinfo. An error says what is missing.
func findCgroups(mountinfo, parent string) (*cgroups, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	defer f.Close()
	c := &cgroups{mounts: map[string]string{}, parent: parent}
	var unified string
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			unified = fields[4]
		case "cgroup":
			for _, o := range strings.Split(kind[2], ",") {
				if o != "rw" && o != "ro" {
					c.mounts[o] = fields[4]
				}
			}
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	if c.mounts["memory"] == "" {
		if unified == "" {
			return nil, errors.New("find control groups: none are mounted")
		}
		have, err := os.ReadFile(filepath.Join(unified, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("find control groups: %w", err)
		}
		c.v2, c.mounts = true, map[string]string{"": unified}
		for _, need := range []string{"cpu", "memory", "pids"} {
			if !slices.Contains(strings.Fields(string(have)), need) {
				return nil, fmt.Errorf("find control groups: the %s controller is not delegated", need)
			}
		}
		return c, nil
	}
	for _, need := range []string{"cpu", "memory", "pids"} {
		if c.mounts[need] == "" {
			return nil, fmt.Errorf("find control groups: the %s controller is not mounted", need)
		}
	}
	return c, nil
}

// try makes and removes a group where it matters, to learn now what a boot
// would learn too late.
func (c *cgroups) try() error {
	for _, need := range []string{"cpu", "memory", "pids"} {
		dir := filepath.Join(c.mount(need), c.parent)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a control group: %w", err)
		}
	}
	return nil
}

func (c *cgroups) mount(controller string) string {
	if c.v2 {
		return c.mounts[""]
	}
	return c.mounts[controller]
}

// path is a box's group in the terms of the OCI specification.
func (c *cgroups) path(id string) string { return "/" + c.parent + "/" + id }

// dirs are the folders of a box, or of all boxes for "".
func (c *cgroups) dirs(id string) []string {
	var all []string
	for _, m := range c.mounts {
		if d := filepath.Join(m, c.parent, id); !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

// ids lists the boxes that have a group, whether or not anything else knows them.
func (c *cgroups) ids() []string {
	var all []string
	for _, d := range c.dirs("") {
		// A hierarchy in which no box was is no error.
		entries, _ := os.ReadDir(d)
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(all, e.Name()) {
				all = append(all, e.Name())
			}
		}
	}
	return all
}

// processes lists everything of a box that runs on the host.
func (c *cgroups) processes(id string) []int {
	var all []int
	for _, d := range c.dirs(id) {
		data, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if err != nil {
			continue // not in this hierarchy
		}
		for _, f := range bytes.Fields(data) {
			if pid, err := strconv.Atoi(string(f)); err == nil && !slices.Contains(all, pid) {
				all = append(all, pid)
			}
		}
	}
	return all
}

// outOfMemory reports whether the kernel ended something of the box because of
// its memory limit.
func (c *cgroups) outOfMemory(id string) bool {
	file, key := "memory.oom_control", "oom_kill "
	if c.v2 {
		file = "memory.events"
	}
	data, err := os.ReadFile(filepath.Join(c.mount("memory"), c.parent, id, file))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(data) {
		if n, ok := bytes.CutPrefix(line, []byte(key)); ok {
			return strings.TrimSpace(string(n)) != "0"
		}
	}
	return false
}

// memoryBytes is what a box takes of the host now.
func (c *cgroups) memoryBytes(id string) (int64, error) {
	file := "memory.usage_in_bytes"
	if c.v2 {
		file = "memory.current"
	}
	data, err := os.ReadFile(filepath.Join(c.mount("memory"), c.parent, id, file))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
}

// remove empties a box's group, or with "" the parent of all, and removes it.
func (c *cgroups) remove(id string, until time.Time) error {
	for {
		var left error
		for _, d := range c.dirs(id) {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				left = err
			}
		}
		if left == nil {
			return nil
		}
		for _, pid := range c.processes(id) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is fine
		}
		if time.Now().After(until) {
			return fmt.Errorf("remove the control group of %s: %w", id, left)
		}
		time.Sleep(time.Millisecond)
	}
}
