package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a box takes of the host, gVisor included.
type Usage struct {
	CPU         time.Duration // since it booted
	MemoryBytes int64         // what cannot be taken back, files in its memory included
	CacheBytes  int64         // of the host's files; the kernel takes it back when it is needed
}

// ErrUnknown says that this machine does not count what a box uses.
var ErrUnknown = errors.New("this machine does not count what a sandbox uses")

// Usage reads what the box uses now; ErrUnknown where nobody counts.
func (b *Box) Usage() (Usage, error) {
	if b.r.cgroups == nil {
		return Usage{}, ErrUnknown
	}
	return b.r.cgroups.usage(b.ID)
}

func (c *cgroups) usage(id string) (Usage, error) {
	var u Usage
	total, err := c.memoryBytes(id)
	if err != nil {
		return u, fmt.Errorf("read memory use: %w", err)
	}
	stat, err := os.ReadFile(filepath.Join(c.mount("memory"), c.parent, id, "memory.stat"))
	if err != nil {
		return u, fmt.Errorf("read memory use: %w", err)
	}
	prefix := "total_" // with the groups below it
	if c.v2 {
		prefix = ""
	}
	active, _ := value(stat, prefix+"active_file") // not there: nothing is known to be cache
	inactive, _ := value(stat, prefix+"inactive_file")
	u.CacheBytes = min(active+inactive, total)
	u.MemoryBytes = total - u.CacheBytes

	if c.v2 {
		stat, err := os.ReadFile(filepath.Join(c.mount("cpu"), c.parent, id, "cpu.stat"))
		if err != nil {
			return u, fmt.Errorf("read processor use: %w", err)
		}
		micros, ok := value(stat, "usage_usec")
		if !ok {
			return u, errors.New("read processor use: cpu.stat has no usage_usec")
		}
		u.CPU = time.Duration(micros) * time.Microsecond
		return u, nil
	}
	if c.mount("cpuacct") == "" {
		return u, fmt.Errorf("read processor use: %w", ErrUnknown)
	}
	data, err := os.ReadFile(filepath.Join(c.mount("cpuacct"), c.parent, id, "cpuacct.usage"))
	if err != nil {
		return u, fmt.Errorf("read processor use: %w", err)
	}
	nanos, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return u, fmt.Errorf("read processor use: %w", err)
	}
	u.CPU = time.Duration(nanos)
	return u, nil
}

// value finds "key number" in a control group's file.
func value(data []byte, key string) (int64, bool) {
	for line := range bytes.Lines(data) {
		if k, v, ok := strings.Cut(strings.TrimSpace(string(line)), " "); ok && k == key {
			n, err := strconv.ParseInt(v, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
