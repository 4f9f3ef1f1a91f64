package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Usage is what a box takes of the host, gVisor included.
type Usage struct {
	CPU         time.Duration // since it booted
	MemoryBytes int64         // what cannot be taken back, files in its memory included
	CacheBytes  int64         // of the host's files; the kernel takes it back when it is needed
	// OwnBytes of MemoryBytes are gVisor's own: what it keeps of files, sockets and
	// descriptors, not what is in them.
	OwnBytes int64
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

// WrittenBytes is what the box has written into its root, 0 when that cannot
// be told: gVisor keeps it in a file of the host that it has unlinked, and the
// box's own file system does not tell.
func (b *Box) WrittenBytes() int64 {
	dir := fmt.Sprintf("/proc/%d/fd", b.sandboxPID())
	fds, err := os.ReadDir(dir)
	if err != nil {
		return 0 // it has ended
	}
	for _, fd := range fds {
		name := filepath.Join(dir, fd.Name())
		if to, err := os.Readlink(name); err != nil || !strings.HasPrefix(to, b.r.overlayDir(b.ID)+"/") {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat(name, &st) == nil {
			return st.Blocks * 512 // it is as long as it may grow, and sparse
		}
	}
	return 0
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
	prefix, anonymous := "total_", "total_rss" // with the groups below it
	if c.v2 {
		prefix, anonymous = "", "anon"
	}
	// The memory of the box's processes is a file in memory to the kernel.
	u.OwnBytes, _ = value(stat, anonymous)         // not there: it is not known
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
