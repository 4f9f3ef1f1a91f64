package soak

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// alive is how many boxes live at once.
const alive = 100

// A hundred boxes live at once on a small machine, each still does what it is
// told, and all of them go at once. Prints what an idle one takes.
func TestHundredAlive(t *testing.T) {
	s := start(t, order{Dir: t.TempDir(), Limits: engine.Limits{MemoryBytes: 256 << 20, CPUs: 1, Processes: 64, DiskBytes: 32 << 20}})
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	all := make([]sandbox.Sandbox, alive)
	begun := time.Now()
	each(t, 4, func(i int) (err error) {
		all[i], err = s.provider.Create(ctx, sandbox.Spec{Image: s.image, Timeout: time.Hour})
		return err
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d boxes booted in %s, 4 at once", alive, time.Since(begun).Round(time.Millisecond))
	ids := map[dreamcore.SandboxID]bool{}
	each(t, 4, func(i int) error {
		res, err := sandbox.Run(ctx, all[i], sandbox.Command{Args: []string{"sh", "-c", "echo $0 > /workspace/me && cat /workspace/me", strconv.Itoa(i)}}, 100)
		if err == nil && string(res.Stdout) != strconv.Itoa(i)+"\n" {
			t.Errorf("box %d says %q", i, res.Stdout)
		}
		return err
	})
	infos, err := s.provider.List(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		ids[info.ID] = true
	}
	if len(ids) != alive {
		t.Errorf("%d boxes are listed", len(ids))
	}
	group, pss, rss := memory(t, s.order.Dir)
	if len(group) != alive {
		t.Errorf("%d boxes have a control group", len(group))
	}
	for name, of := range map[string][]int64{"by its control group": group, "its processes, shared pages divided (PSS)": pss, "its processes, shared pages counted (RSS)": rss} {
		t.Logf("memory of an idle box, %s: %.1f MiB in the middle, %.1f MiB at most", name, mib(middle(of)), mib(slices.Max(of)))
	}
	// By the kernel's count of processor time, not by the clock: boxes that all
	// look at something again and again use up a small machine by their number.
	const idle = 3 * time.Second
	before := processor(t, s.order.Dir)
	time.Sleep(idle)
	used := processor(t, s.order.Dir) - before
	t.Logf("%d idle boxes use %.2f of a core", alive, used.Seconds()/idle.Seconds())
	if used > idle/2 {
		t.Errorf("%d idle boxes used %s of processor time in %s", alive, used, idle)
	}
	m := s.measure()
	t.Logf("the server meanwhile: %+v", m)
	begun = time.Now()
	each(t, alive, func(i int) error { return s.provider.Kill(ctx, all[i].ID()) })
	t.Logf("%d boxes killed at once in %s", alive, time.Since(begun).Round(time.Millisecond))
	nothing(t, s.order.Dir)
	s.close()
}

// each does something with every box, some at once.
func each(t *testing.T, atOnce int, do func(i int) error) {
	t.Helper()
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i := range alive {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			if err := do(i); err != nil {
				t.Errorf("box %d: %v", i, err)
			}
		}()
	}
	wg.Wait()
}

// memory is what each box in dir takes: its control group's count, and the
// proportional and the resident size of its processes on the host.
func memory(t *testing.T, dir string) (group, pss, rss []int64) {
	t.Helper()
	groups, err := enginetest.Groups(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		data, err := os.ReadFile(filepath.Join(g, "memory.usage_in_bytes"))
		if err != nil {
			if data, err = os.ReadFile(filepath.Join(g, "memory.current")); err != nil {
				continue // a hierarchy of another controller
			}
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		procs, err := os.ReadFile(filepath.Join(g, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		var p, r int64
		for _, pid := range strings.Fields(string(procs)) {
			shared, err := field("/proc/"+pid+"/smaps_rollup", "Pss:")
			if err != nil {
				continue // it has ended
			}
			resident, err := field("/proc/"+pid+"/smaps_rollup", "Rss:")
			if err != nil {
				continue
			}
			p, r = p+shared, r+resident
		}
		group, pss, rss = append(group, n), append(pss, p), append(rss, r)
	}
	return group, pss, rss
}

// processor is the processor time that all boxes in dir have used.
func processor(t *testing.T, dir string) time.Duration {
	t.Helper()
	groups, err := enginetest.Groups(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all time.Duration
	for _, g := range groups {
		if data, err := os.ReadFile(filepath.Join(g, "cpuacct.usage")); err == nil {
			n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			all += time.Duration(n)
		} else if data, err := os.ReadFile(filepath.Join(g, "cpu.stat")); err == nil {
			if _, after, ok := strings.Cut(string(data), "usage_usec "); ok {
				line, _, _ := strings.Cut(after, "\n")
				n, err := strconv.ParseInt(line, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				all += time.Duration(n) * time.Microsecond
			}
		}
	}
	if all == 0 {
		t.Fatal("no control group tells how much processor time its box used")
	}
	return all
}

func middle(all []int64) int64 {
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
