package engine_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// idleBoxes is how many boxes do nothing beside each other.
const idleBoxes = 20

// What boxes cost in which nothing happens, beside boxes in which there is
// nothing: a process that sleeps must not make its box look for memory all the
// time. Counted is the processor time that the kernel charges to the boxes.
func BenchmarkIdle(b *testing.B) {
	const rounds = 3 // however many are asked for: each takes seconds
	const window = 5 * time.Second
	e := enginetest.Start(b)
	boxes := make([]sandbox.Sandbox, idleBoxes)
	for i := range boxes {
		boxes[i] = boot(b, e)
		if err := trueIn(b, boxes[i])(); err != nil {
			b.Fatal(err)
		}
	}
	idle := func() time.Duration {
		time.Sleep(2 * time.Second) // what was begun is over
		before := charged(b, e.Dir)
		time.Sleep(window)
		return (charged(b, e.Dir) - before) * time.Second / window
	}
	var with, without timing
	for b.Loop() {
		if len(with) == rounds {
			continue
		}
		without = append(without, idle())
		sleepers := make([]sandbox.Process, len(boxes))
		for i, sb := range boxes {
			p, err := sb.Start(ctxOf(b), sandbox.Command{Args: []string{"sleep", "1000"}})
			if err != nil {
				b.Fatal(err)
			}
			sleepers[i] = p
		}
		with = append(with, idle())
		for _, p := range sleepers {
			if err := p.Signal(ctxOf(b), "SIGKILL"); err != nil {
				b.Fatal(err)
			}
			for range p.Events() {
			}
		}
	}
	report(b, with, without, "alone")
}

// charged is the processor time that all boxes in dir have used so far.
func charged(tb testing.TB, dir string) time.Duration {
	tb.Helper()
	groups, err := enginetest.Groups(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var all time.Duration
	for _, g := range groups {
		unit, text := time.Nanosecond, ""
		if data, err := os.ReadFile(filepath.Join(g, "cpuacct.usage")); err == nil {
			text = string(data)
		} else if data, err := os.ReadFile(filepath.Join(g, "cpu.stat")); err == nil {
			if _, after, ok := strings.Cut(string(data), "usage_usec "); ok {
				unit = time.Microsecond
				text, _, _ = strings.Cut(after, "\n")
			}
		}
		if text == "" {
			continue // a hierarchy of another controller
		}
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		all += time.Duration(n) * unit
	}
	if all == 0 {
		tb.Fatal("no control group tells how much processor time its box used")
	}
	return all
}
