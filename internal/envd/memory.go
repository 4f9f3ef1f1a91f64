package envd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The watcher acts when less than this share of the memory is left. It looks as
// often as a process that takes memory at fillPerSecond could use up what is
// left, within bounds: looking costs time, and a hundred idle boxes all look.
const (
	memoryReserve = 0.08
	fillPerSecond = 8 << 30
	lookOften     = 10 * time.Millisecond
	lookSeldom    = 200 * time.Millisecond
	lookAlone     = 5 * time.Second
	// What the host does not watch from outside, the watcher watches by itself. A box
	// that holds less than farShare of its memory, and in which the host has seen no
	// more for trustFor, is left to the host: even waking up costs a box in gVisor
	// most of a millisecond.
	farShare = 0.4
	trustFor = 3 * time.Second
)

// memoryWatch is what the watcher asks and does. Its functions are fields so that
// its decisions can be tested without a box that is full.
type memoryWatch struct {
	limitBytes int64
	alone      func() bool
	born       <-chan struct{} // somebody was started
	host       *hostWatch
	// glance is cheap and never less than look, which is exact and dear.
	glance, look func() (usedBytes int64, err error)
	end          func(usedBytes int64) // makes room
}

// WatchMemory ends the biggest process of an ordinary user whenever the box has
// used nearly all of limitBytes, until ctx ends; with root's the biggest of all
// but PID 1. The wall itself, the host's limit, would end the whole box.
func (s *Server) WatchMemory(ctx context.Context, limitBytes int64, roots bool) {
	w := memoryWatch{
		limitBytes: limitBytes,
		alone:      alone,
		born:       s.reap.born,
		host:       &s.host,
		glance:     heldBytes,
		look: func() (int64, error) {
			total, free, _, err := memoryUse()
			return total - free, err
		},
		end: func(used int64) { s.endBiggest(used, limitBytes, roots) },
	}
	if err := w.run(ctx); err != nil {
		s.log.Warn("memory is not watched", "reason", err.Error())
	}
}

// run watches until ctx ends, which is no error.
func (w *memoryWatch) run(ctx context.Context) error {
	wall := int64(float64(w.limitBytes) * (1 - memoryReserve))
	wait, held := lookSeldom, int64(math.MaxInt64) // until it is known, it may be all
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if w.alone() {
			// Nobody is here who could take memory, until somebody is started.
			select {
			case <-ctx.Done():
				return nil
			case <-w.born:
			case <-time.After(lookAlone):
			}
			wait = lookOften
			continue
		}
		if far := int64(float64(w.limitBytes) * farShare); held < far && w.host.trusted() {
			select {
			case <-ctx.Done():
				return nil
			case <-w.host.called():
			case <-time.After(lookAlone):
			}
		}
		used, err := w.glance()
		held = used
		if err == nil && used > wall {
			used, err = w.look()
		}
		if err != nil {
			return err
		}
		left := time.Duration(float64(wall-used) / fillPerSecond * float64(time.Second))
		wait = min(max(left, lookOften), lookSeldom)
		if used > wall {
			w.end(used)
		}
	}
}

// hostWatch is what PID 1 knows of a host that counts what the box takes. The zero
// value is ready: nobody counts.
type hostWatch struct {
	mu      sync.Mutex
	counts  bool
	since   time.Time     // the host last called, or went
	calling chan struct{} // closed by the next call
}

// call notes that the host counts, and that it wants the box watched closely now.
func (h *hostWatch) call(counts bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts, h.since = counts, time.Now()
	if h.calling != nil {
		close(h.calling)
		h.calling = nil
	}
}

// called returns what is closed by the next call.
func (h *hostWatch) called() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calling == nil {
		h.calling = make(chan struct{})
	}
	return h.calling
}

// trusted reports whether the host counts and has not called for a while.
func (h *hostWatch) trusted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts && time.Since(h.since) >= trustFor
}

// ServeWatch takes the host's word that it counts what the box takes, and that
// this is the moment to look closely.
func (s *Server) ServeWatch(w http.ResponseWriter, _ *http.Request) {
	s.host.call(true)
	w.WriteHeader(http.StatusNoContent)
}

// HostGone tells that nobody watches the box from outside any more.
func (s *Server) HostGone() { s.host.call(false) }

// heldBytes is what memory the box holds, by the kernel's own quick count: in
// gVisor one question to the host, and what was given back and not yet taken
// counts too. Reading /proc/meminfo instead makes gVisor look at every page, which
// a box with one sleeping process paid with 1 to 4 % of a core.
func heldBytes() (int64, error) {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0, fmt.Errorf("read memory use: %w", err)
	}
	return int64(s.Totalram-s.Freeram) * int64(s.Unit), nil
}

// alone reports whether PID 1 is the only process of the box: all others are
// its descendants, so they have ended when it has no child. Asking is one system
// call, and a hundred idle boxes ask it each few seconds only.
func alone() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

// A process is ended only when that helps: it holds a good part of the memory, or
// all together hold nearly all of it. Memory of one that has just been ended
// counts as used for a while yet, and whoever starts meanwhile is innocent.
const (
	guiltyShare = 0.05
	heldShare   = 0.7
)

func (s *Server) endBiggest(used, limitBytes int64, roots bool) {
	var victim stat
	var biggest, all int64
	for _, p := range everyProcess() {
		n := residentBytes(p.pid)
		all += n
		if (p.uid != 0 || roots) && p.pid != 1 && n > biggest {
			victim, biggest = p, n
		}
	}
	if biggest == 0 || float64(biggest) < guiltyShare*float64(limitBytes) && float64(all) < heldShare*float64(limitBytes) {
		return
	}
	why := fmt.Sprintf("out of memory: process %d used %d MiB", victim.pid, biggest>>20)
	s.mu.Lock()
	// Whose command it belongs to: each command leads a session.
	if p := s.procs[victim.session]; p != nil {
		p.mu.Lock()
		if p.why == "" {
			p.why = why
		}
		p.mu.Unlock()
	}
	s.mu.Unlock()
	if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		s.log.Error("cannot end the biggest process", "pid", victim.pid, "reason", err.Error())
		return
	}
	s.log.Warn("ended the biggest process", "pid", victim.pid, "bytes", biggest, "used_bytes", used)
}

// memoryUse reads what memory the box has, what of it is free and what holds
// files, in bytes.
func memoryUse() (total, free, cache int64, err error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, 0, fmt.Errorf("read memory use: %w", err)
	}
	total, ok1 := meminfo(data, "MemTotal:")
	free, ok2 := meminfo(data, "MemFree:")
	if !ok1 || !ok2 {
		return 0, 0, 0, errors.New("read memory use: /proc/meminfo lacks MemTotal or MemFree")
	}
	cache, _ = meminfo(data, "Cached:") // without it nothing is known to be cache
	return total, free, cache, nil
}

func meminfo(data []byte, key string) (int64, bool) {
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			f := bytes.Fields(rest)
			if len(f) == 0 {
				return 0, false
			}
			n, err := strconv.ParseInt(string(f[0]), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}

func residentBytes(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0 // it has ended
	}
	f := bytes.Fields(data)
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(f[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
