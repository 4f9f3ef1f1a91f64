package engine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"dreamcore"
)

// proc is a /proc with so much memory and pressure.
func proc(t *testing.T, files map[string]string) machine {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return machine{dir}
}

func TestMachineLoad(t *testing.T) {
	const mem = "MemTotal:       1000 kB\nMemFree:        10 kB\nMemAvailable:   250 kB\n"
	full := proc(t, map[string]string{
		"meminfo":         mem,
		"pressure/memory": "some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n",
		"pressure/cpu":    "some avg10=80.01 avg60=1.00 avg300=0.00 total=5\n",
	})
	if l, err := full.load(); err != nil || l != (load{1000 << 10, 250 << 10, 12.5, 80.01}) {
		t.Errorf("%+v, %v", l, err)
	}
	// An older kernel tells no pressure.
	if l, err := proc(t, map[string]string{"meminfo": mem}).load(); err != nil || l != (load{1000 << 10, 250 << 10, 0, 0}) {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{"", "MemTotal: 5 kB\n", "MemTotal: x kB\nMemAvailable: 5 kB\n", "MemTotal:\nMemAvailable: 5 kB\n"} {
		if l, err := proc(t, map[string]string{"meminfo": bad}).load(); err == nil {
			t.Errorf("%q: %+v", bad, l)
		}
	}
	if _, err := (machine{"/nowhere"}).load(); err == nil {
		t.Error("no machine at all")
	}
	if l, err := (machine{"/proc"}).load(); err != nil || l.freeBytes <= 0 || l.freeBytes > l.totalBytes {
		t.Errorf("this machine: %+v, %v", l, err)
	}
}

func TestAffords(t *testing.T) {
	e := New(Config{Limits: Limits{MemoryBytes: 3 << 30, CPUs: 1, Processes: 100, DiskBytes: 1 << 30}, Overcommit: 2})
	const gib = 1 << 30
	for _, c := range []struct {
		coming int
		l      load
		ok     bool
	}{
		{0, load{totalBytes: 8 * gib, freeBytes: 4 * gib}, true},
		{4, load{totalBytes: 8 * gib, freeBytes: 4 * gib}, true},  // 15 of 16 GiB promised
		{5, load{totalBytes: 8 * gib, freeBytes: 4 * gib}, false}, // 18
		{0, load{totalBytes: 8 * gib, freeBytes: gib / 4}, false}, // 4 % must stay free
		{0, load{totalBytes: 1 * gib, freeBytes: gib}, false},
	} {
		e.coming = c.coming
		err := e.affords(c.l, blankBytes)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, errFull) || dreamcore.CodeOf(err) != dreamcore.Refused) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestPoolWants(t *testing.T) {
	now := time.Now()
	a, b := Image{Digest: "a"}, Image{Digest: "b"}
	free := load{totalBytes: 100 << 30, freeBytes: 50 << 30}
	at := func(ago ...time.Duration) (all []time.Time) {
		for _, d := range ago {
			all = append(all, now.Add(-d))
		}
		return all
	}
	for name, c := range map[string]struct {
		asks map[string]*demand
		l    load
		want map[Image]int
	}{
		"nobody asked":          {map[string]*demand{}, free, map[Image]int{}},
		"the next image":        {map[string]*demand{"a": {image: a, next: true}}, free, map[Image]int{a: 1}},
		"one lately":            {map[string]*demand{"a": {image: a, at: at(time.Second)}}, free, map[Image]int{a: 1}},
		"three lately":          {map[string]*demand{"a": {image: a, at: at(3*time.Second, 2*time.Second, time.Second)}}, free, map[Image]int{a: 3}},
		"one, some time ago":    {map[string]*demand{"a": {image: a, at: at(5 * time.Minute)}}, free, map[Image]int{a: 1}},
		"one, long ago":         {map[string]*demand{"a": {image: a, at: at(time.Hour)}}, free, map[Image]int{}},
		"more than fit":         {map[string]*demand{"a": {image: a, at: at(4*time.Second, 3*time.Second)}, "b": {image: b, at: at(2*time.Second, time.Second)}}, free, map[Image]int{b: 2, a: 1}},
		"memory is short":       {map[string]*demand{"a": {image: a, next: true}}, load{totalBytes: 100 << 30, freeBytes: 7 << 30}, map[Image]int{}},
		"somebody waits for it": {map[string]*demand{"a": {image: a, next: true}}, load{totalBytes: 100 << 30, freeBytes: 50 << 30, memoryStall: 16}, map[Image]int{}},
	} {
		p := &pool{max: 3, asks: c.asks}
		got := p.want(now, c.l)
		if len(got) != len(c.want) {
			t.Errorf("%s: %v", name, got)
		}
		for image, n := range c.want {
			if got[image] != n {
				t.Errorf("%s: %v", name, got)
			}
		}
	}
}

func TestPoolHolds(t *testing.T) {
	now := time.Now()
	free := load{totalBytes: 100 << 30, freeBytes: 50 << 30}
	e := New(Config{MaxBoxes: 2})
	for name, c := range map[string]struct {
		change func(*pool, *load)
		may    bool
	}{
		"nothing is up":        {func(*pool, *load) {}, true},
		"one boots":            {func(p *pool, _ *load) { p.fill = &filling{} }, false},
		"somebody's boots":     {func(p *pool, _ *load) { p.cold = 1 }, false},
		"somebody got one now": {func(p *pool, _ *load) { p.lastUse = now }, false},
		"the last failed":      {func(p *pool, _ *load) { p.retryAt = now.Add(time.Second) }, false},
		"it is closed":         {func(p *pool, _ *load) { p.closed = true }, false},
		"little memory":        {func(_ *pool, l *load) { l.freeBytes = 15 << 30 }, false},
		"memory is waited for": {func(_ *pool, l *load) { l.memoryStall = 6 }, false},
		"the processor is":     {func(_ *pool, l *load) { l.cpuStall = 61 }, false},
		"no more may live":     {func(p *pool, _ *load) { p.idle = make([]*waiting, 2) }, false},
	} {
		p := newPool(e, Pool{Max: 3})
		l := free
		c.change(p, &l)
		if reason := p.holds(now, l, blankBytes); (reason == "") != c.may {
			t.Errorf("%s: %q", name, reason)
		}
	}
}
