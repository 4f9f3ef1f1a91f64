package envd

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MetricsPath answers with Metrics as JSON.
const MetricsPath = "/metrics"

// Metrics is what a box uses, in E2B's words. Memory that holds files in a
// tmpfs counts as used.
type Metrics struct {
	Timestamp   int64   `json:"ts"` // Unix seconds
	CPUs        int     `json:"cpu_count"`
	CPUPercent  float64 `json:"cpu_used_pct"` // of all CPUs together, since the time before
	MemoryBytes int64   `json:"mem_total"`
	UsedBytes   int64   `json:"mem_used"`
	CacheBytes  int64   `json:"mem_cache"`
	MemoryMiB   int64   `json:"mem_total_mib"`
	UsedMiB     int64   `json:"mem_used_mib"`
	DiskBytes   int64   `json:"disk_total"`
	DiskUsed    int64   `json:"disk_used"`
}

// leastWindow is the shortest time over which the use of CPUs is measured.
const leastWindow = 200 * time.Millisecond

// cpuUse measures the use of CPUs from one question to the next.
type cpuUse struct {
	mu      sync.Mutex
	at      time.Time
	spent   time.Duration
	percent float64
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	m, err := s.metrics()
	if err != nil {
		s.log.Error("cannot measure the box", "reason", err.Error())
		writeFailure(w, http.StatusInternalServerError, "the box cannot be measured")
		return
	}
	writeJSON(w, http.StatusOK, m)
}

func (s *Server) metrics() (Metrics, error) {
	m := Metrics{Timestamp: time.Now().Unix()}
	total, free, cache, err := memoryUse()
	if err != nil {
		return m, err
	}
	m.MemoryBytes, m.UsedBytes, m.CacheBytes = total, max(total-free-cache, 0), cache
	m.MemoryMiB, m.UsedMiB = m.MemoryBytes>>20, m.UsedBytes>>20

	spent, cpus, err := cpuTime()
	if err != nil {
		return m, err
	}
	m.CPUs, m.CPUPercent = cpus, s.cpu.since(time.Now(), spent, cpus)

	m.DiskBytes, m.DiskUsed, err = s.diskUse()
	return m, err
}

// diskUse reads the size of the user's file system and what of it is used, in
// bytes.
func (s *Server) diskUse() (total, used int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.disk(), &st); err != nil {
		return 0, 0, fmt.Errorf("read disk use: %w", err)
	}
	total = int64(st.Blocks) * st.Bsize
	return total, total - int64(st.Bfree)*st.Bsize, nil
}

// disk is the file system that the user works in: the root's own tells nothing
// true about its size.
func (s *Server) disk() string {
	const workspace = "/workspace"
	if fi, err := os.Stat(workspace); err == nil && fi.IsDir() {
		return workspace
	}
	if u, err := s.user(s.cfg.DefaultUser); err == nil {
		if _, err := os.Stat(u.home); err == nil {
			return u.home
		}
	}
	return "/"
}

func (c *cpuUse) since(now time.Time, spent time.Duration, cpus int) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	window := now.Sub(c.at)
	if window < leastWindow {
		return c.percent // asked too soon: what was measured last
	}
	if !c.at.IsZero() && cpus > 0 {
		share := float64(spent-c.spent) / float64(window) / float64(cpus)
		c.percent = math.Round(max(0, min(share, 1))*10000) / 100
	}
	c.at, c.spent = now, spent
	return c.percent
}

// cpuTime reads how long all CPUs have worked since the box booted.
func cpuTime() (spent time.Duration, cpus int, err error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read CPU use: %w", err)
	}
	return parseStat(data)
}

func parseStat(data []byte) (spent time.Duration, cpus int, err error) {
	const perTick = time.Second / 100
	found := false
	for line := range bytes.Lines(data) {
		f := bytes.Fields(line)
		if len(f) == 0 || !bytes.HasPrefix(f[0], []byte("cpu")) {
			continue
		}
		if len(f[0]) > len("cpu") {
			cpus++
			continue
		}
		found = true
		for i, v := range f[1:] {
			if i == 3 || i == 4 || i > 7 {
				continue // idle, waiting for a disk, and guests, which are in the others
			}
			n, err := strconv.ParseInt(string(v), 10, 64)
			if err != nil || n < 0 || n > math.MaxInt64/int64(perTick)/16 {
				return 0, 0, fmt.Errorf("read CPU use: %q in /proc/stat", clip(string(v), 32))
			}
			spent += time.Duration(n) * perTick
		}
	}
	if !found || cpus == 0 {
		return 0, 0, errors.New("read CPU use: /proc/stat has no line of CPUs")
	}
	return spent, cpus, nil
}
