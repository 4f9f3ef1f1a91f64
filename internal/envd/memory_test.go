package envd

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A box that is far from its wall is only glanced at; what a glance sees near it is
// looked at closely, and ended when it is true.
func TestMemoryWatch(t *testing.T) {
	const limit = 1000 << 20
	for _, x := range []struct {
		name                string
		glance, look        int64
		alone               bool
		looks, ends, seldom bool
	}{
		{name: "idle", glance: 50 << 20, look: 40 << 20},
		{name: "half", glance: 500 << 20, look: 400 << 20},
		{name: "full", glance: 950 << 20, look: 940 << 20, looks: true, ends: true},
		{name: "given back", glance: 950 << 20, look: 100 << 20, looks: true},
		{name: "nobody", glance: 950 << 20, look: 940 << 20, alone: true, seldom: true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				glances, looks, ends := 0, 0, 0
				w := memoryWatch{
					limitBytes: limit,
					alone:      func() bool { return x.alone },
					host:       &hostWatch{},
					glance:     func() (int64, error) { glances++; return x.glance, nil },
					look:       func() (int64, error) { looks++; return x.look, nil },
					end: func(used int64) {
						if ends++; used != x.look {
							t.Errorf("ended for %d bytes", used)
						}
					},
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := w.run(ctx); err != nil {
					t.Fatal(err)
				}
				// It would be full in 1000 MiB / fillPerSecond: it must look before.
				if (glances < 10*fillPerSecond/limit/2) != x.seldom {
					t.Errorf("%d glances in ten seconds", glances)
				}
				if (looks > 0) != x.looks || (ends > 0) != x.ends {
					t.Errorf("%d looks, %d ends", looks, ends)
				}
			})
		})
	}
}

// Somebody who is started is watched at once, and not when the watcher next asks
// whether anybody is there.
func TestMemoryWatchWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		born := make(chan struct{}, 1)
		alone := true
		var at time.Time
		ctx, cancel := context.WithCancel(t.Context())
		w := memoryWatch{
			limitBytes: 1 << 30, born: born, host: &hostWatch{},
			alone:  func() bool { return alone },
			glance: func() (int64, error) { at = time.Now(); cancel(); return 0, nil },
		}
		done := make(chan error, 1)
		go func() { done <- w.run(ctx) }()
		time.Sleep(time.Minute + time.Second)
		alone = false
		started := time.Now()
		born <- struct{}{}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if d := at.Sub(started); d > 2*lookOften {
			t.Errorf("it was looked at after %s", d)
		}
	})
}

// A machine that tells nothing is said to be unwatched, once.
func TestMemoryWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := errors.New("no")
		for _, w := range []memoryWatch{
			{glance: func() (int64, error) { return 0, no }},
			{glance: func() (int64, error) { return 1 << 40, nil }, look: func() (int64, error) { return 0, no }},
		} {
			w.limitBytes, w.host, w.alone = 1<<30, &hostWatch{}, func() bool { return false }
			if err := w.run(t.Context()); !errors.Is(err, no) {
				t.Errorf("got %v", err)
			}
		}
	})
}

// A box that the host counts sleeps while it holds little, is awake at once when the
// host calls, stays so while it holds much, and watches itself without the host.
func TestMemoryWatchTrustsTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var glances int
		var held int64
		host := &hostWatch{}
		w := memoryWatch{
			limitBytes: 1 << 30, host: host,
			alone: func() bool { return false },
			glance: func() (int64, error) {
				mu.Lock()
				defer mu.Unlock()
				glances++
				return held, nil
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.run(ctx) }()
		// in is how often it glances in so long, holding so much.
		in := func(d time.Duration, holds int64) int {
			mu.Lock()
			glances, held = 0, holds
			mu.Unlock()
			time.Sleep(d)
			mu.Lock()
			defer mu.Unlock()
			return glances
		}
		const little, much = 50 << 20, 700 << 20
		if n := in(10*time.Second, little); n < 50 {
			t.Errorf("by itself it glances %d times", n)
		}
		host.call(true)
		if n := in(trustFor, little); n < 15 {
			t.Errorf("right after a call it glances %d times", n)
		}
		if n := in(time.Minute, little); n > 15 {
			t.Errorf("guarded by the host it glances %d times in a minute", n)
		}
		host.call(true)
		if n := in(100*time.Millisecond, much); n < 1 {
			t.Error("it sleeps on when the host calls")
		}
		if n := in(time.Minute, much); n < 60*5 {
			t.Errorf("holding much it glances %d times in a minute", n)
		}
		if in(time.Minute, little); in(time.Minute, little) > 15 {
			t.Error("it does not go back to sleep")
		}
		host.call(false)
		if n := in(time.Minute, little); n < 60*5 {
			t.Errorf("without the host it glances %d times in a minute", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestHeldBytes(t *testing.T) {
	if n, err := heldBytes(); err != nil || n < 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}
