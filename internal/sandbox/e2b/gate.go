package e2b

import (
	"context"
	"slices"
	"sync"
	"time"

	"dreamcore"
)

// Limits are what the owner of an engine allows one account.
type Limits struct {
	// Concurrent is how many sandboxes may live at once; 0: any number.
	Concurrent int
	// CreateEvery is the least time between two creations; 0: none.
	CreateEvery time.Duration
	// Life is how long a sandbox may live in all; 0: any time.
	Life time.Duration
}

// The limits of E2B's plans.
var (
	FreePlan = Limits{Concurrent: 20, CreateEvery: time.Second, Life: time.Hour}
	PaidPlan = Limits{Concurrent: 100, CreateEvery: time.Second / 5, Life: 24 * time.Hour}
)

// gate lets creations through one after the other in the order in which they
// came, as the limits allow. It counts the sandboxes of this client: those that
// another one made under the same key are noticed by the engine's own 429.
type gate struct {
	limits Limits

	mu      sync.Mutex
	next    time.Time                         // no creation before this
	alive   map[dreamcore.SandboxID]time.Time // until when each may live
	pending int                               // let through, not yet alive
	queue   []chan struct{}
	timer   *time.Timer
}

func newGate(l Limits) *gate {
	return &gate{limits: l, alive: map[dreamcore.SandboxID]time.Time{}}
}

// enter waits for its turn to create one sandbox. Whoever entered ends with
// admit or leave("").
func (g *gate) enter(ctx context.Context) error {
	turn := make(chan struct{})
	g.mu.Lock()
	g.queue = append(g.queue, turn)
	g.advance()
	g.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, turn); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	} else {
		g.pending-- // its turn came in the same moment
	}
	g.advance()
	return ctx.Err()
}

// admit says that what entered is a living sandbox now.
func (g *gate) admit(id dreamcore.SandboxID, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending--
	g.alive[id] = until
	g.advance()
}

// leave says that a sandbox is gone, or with "" that none came of an entry.
func (g *gate) leave(id dreamcore.SandboxID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if id == "" {
		g.pending--
	}
	delete(g.alive, id)
	g.advance()
}

// prolong says until when a sandbox may live now.
func (g *gate) prolong(id dreamcore.SandboxID, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.alive[id]; ok {
		g.alive[id] = until
		g.advance()
	}
}

// hold keeps every creation back for d: the engine asked one to wait, and the
// others would be told the same.
func (g *gate) hold(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := time.Now().Add(d); at.After(g.next) {
		g.next = at
	}
}

// advance lets through whom the limits allow and comes back when they may allow
// more; g.mu is held.
func (g *gate) advance() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	now := time.Now()
	for id, until := range g.alive {
		if !now.Before(until) {
			delete(g.alive, id) // its time to live has ended it
		}
	}
	for len(g.queue) > 0 {
		var again time.Time
		if n := g.limits.Concurrent; n > 0 && len(g.alive)+g.pending >= n {
			for _, until := range g.alive {
				if again.IsZero() || until.Before(again) {
					again = until
				}
			}
			if again.IsZero() {
				return // one that is pending comes back here
			}
		} else if now.Before(g.next) {
			again = g.next
		} else {
			close(g.queue[0])
			g.queue = g.queue[1:]
			g.pending++
			g.next = now.Add(g.limits.CreateEvery)
			continue
		}
		g.timer = time.AfterFunc(again.Sub(now), func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.advance()
		})
		return
	}
}
