package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"dreamcore"
)

// What a box weighs against the others when all want the processor: a box that
// somebody uses, and one that boots or waits for nobody yet.
const (
	usedShares, asideShares = 1024, 2 // control groups, version 1; and what runsc is told
	usedWeight              = 100     // version 2, into which runsc turns shares
)

// Aside says that the box id, not booted yet, is for nobody so far: until Promote
// it gets processor time that no other box wants.
func (r *Runtime) Aside(id dreamcore.SandboxID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aside[string(id)] = true
}

// Promote gives the box its full share of the processor. The box may be about to
// boot, to boot or to live.
func (r *Runtime) Promote(id dreamcore.SandboxID) error {
	r.mu.Lock()
	delete(r.aside, string(id))
	r.mu.Unlock()
	if r.cgroups == nil {
		return nil
	}
	return r.cgroups.setShares(string(id))
}

func (r *Runtime) isAside(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.aside[id]
}

// setShares gives a box its full share. A group that is not there yet is no error:
// its box boots, and whoever waits for that sets it then.
func (c *cgroups) setShares(id string) error {
	file, value := "cpu.shares", usedShares
	if c.v2 {
		file, value = "cpu.weight", usedWeight
	}
	path := filepath.Join(c.mount("cpu"), c.parent, id, file)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(value))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("share the processor: %w", err)
	}
	return nil
}
