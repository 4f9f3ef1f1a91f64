package e2b

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dreamcore"
)

// Whoever comes first goes first, at the pace of the limit.
func TestGateIsFairAndPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Limits{CreateEvery: time.Second})
		start := time.Now()
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				if err := g.enter(t.Context()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if got := time.Since(start); got != time.Duration(i)*time.Second {
					t.Errorf("number %d went after %s", i, got)
				}
				order = append(order, i)
				g.admit(dreamcore.SandboxID(fmt.Sprint(i)), time.Now().Add(time.Minute))
			}()
			synctest.Wait() // it stands in the queue, or is through
		}
		time.Sleep(10 * time.Second)
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("they went as %v", order)
		}
		time.Sleep(time.Hour) // the last timer
	})
}

// No more live at once than allowed; a place is free again when a sandbox is
// killed, when its time is over, and when none came of an entry.
func TestGateCountsTheLiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Limits{Concurrent: 2})
		through := make(chan struct{}, 10)
		queue := func() {
			go func() {
				if err := g.enter(t.Context()); err != nil {
					t.Error(err)
				}
				through <- struct{}{}
			}()
			synctest.Wait()
		}
		expect := func(n int, when string) {
			t.Helper()
			synctest.Wait()
			if len(through) != n {
				t.Fatalf("%s: %d are through, want %d", when, len(through), n)
			}
		}
		queue()
		queue()
		queue()
		queue()
		queue()
		expect(2, "at first")
		g.admit("a", time.Now().Add(time.Minute))
		g.admit("b", time.Now().Add(time.Hour))
		expect(2, "both live")
		g.leave("b")
		expect(3, "one was killed")
		g.leave("")
		expect(4, "a creation failed")
		g.admit("c", time.Now().Add(time.Hour))
		g.prolong("a", time.Now().Add(2*time.Minute))
		time.Sleep(90 * time.Second)
		expect(4, "the first lives longer than it was to")
		time.Sleep(time.Minute)
		expect(5, "its time is over")
		g.leave("nobody")
		g.leave("c")
	})
}

// A context that ends takes its caller out of the queue, and nobody else.
func TestGateObeysContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Limits{Concurrent: 1})
		if err := g.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		done := make(chan error)
		go func() { done <- g.enter(t.Context()) }()
		synctest.Wait()
		g.leave("")
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(g.queue) != 0 || g.pending != 1 {
			t.Errorf("%d wait, %d are pending", len(g.queue), g.pending)
		}
	})
}

// What one is told to wait, the others wait too.
func TestGateHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Limits{})
		g.hold(30 * time.Second)
		g.hold(time.Second) // less never shortens it
		start := time.Now()
		if err := g.enter(t.Context()); err != nil {
			t.Error(err)
		}
		if got := time.Since(start); got != 30*time.Second {
			t.Errorf("it went after %s", got)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"7": 7 * time.Second, "0": 100 * time.Millisecond, "-3": 100 * time.Millisecond, "": time.Second, "soon": time.Second,
		"99999999999999999999": time.Second, "9223372036854775807": time.Hour, "86400": time.Hour,
		"Mon, 30 Nov 2026 12:00:09 GMT": 9 * time.Second, "Mon, 30 Nov 2026 11:00:00 GMT": 100 * time.Millisecond, "Tue, 01 Dec 2026 12:00:00 GMT": time.Hour,
	} {
		if got := retryAfter(s, now); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func TestPausesGrowToTheirMost(t *testing.T) {
	r := Retry{}.complete()
	for try := range 100 {
		least := min(r.First<<min(try, 10), r.Most) / 2
		if d := r.pause(try); d < least || d > r.Most {
			t.Errorf("after try %d: %s", try, d)
		}
	}
}
