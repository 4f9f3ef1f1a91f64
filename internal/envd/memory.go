package envd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
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
)

// WatchMemory ends the biggest process of an ordinary user whenever the box has
// used nearly all of limitBytes, until ctx ends; with root's the biggest of all
// but PID 1. The wall itself, the host's limit, would end the whole box.
func (s *Server) WatchMemory(ctx context.Context, limitBytes int64, roots bool) {
	wall := int64(float64(limitBytes) * (1 - memoryReserve))
	wait := lookSeldom
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if alone() {
			// Nobody is here who could take memory, until somebody is started.
			select {
			case <-ctx.Done():
				return
			case <-s.reap.born:
			case <-time.After(lookAlone):
			}
			wait = lookOften
			continue
		}
		total, free, _, err := memoryUse()
		if err != nil {
			s.log.Warn("memory is not watched", "reason", err.Error())
			return
		}
		used := total - free
		left := time.Duration(float64(wall-used) / fillPerSecond * float64(time.Second))
		wait = min(max(left, lookOften), lookSeldom)
		if used > wall {
			s.endBiggest(used, limitBytes, roots)
		}
	}
}

// alone reports whether PID 1 is the only process of the box: all others are
// its descendants, so they have ended when it has no child. Asking is one system
// call; asking for the memory makes gVisor look through all of its pages, and a
// hundred idle boxes that did so five times a second kept four cores busy.
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
