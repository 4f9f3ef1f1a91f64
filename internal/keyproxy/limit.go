package keyproxy

import (
	"math"
	"sync"
	"time"

	"dreamcore"
)

// Limit bounds the calls of a creator, or to an upstream; a zero is no limit. A
// job has its own, see JobTerms.
type Limit struct {
	Concurrency int // calls at once
	PerMinute   int
}

// throttle keeps a Limit.
type throttle struct {
	mu       sync.Mutex
	limit    Limit
	inflight int
	tokens   float64
	filled   time.Time
}

func newThrottle(l Limit, now time.Time) *throttle {
	return &throttle{limit: l, tokens: float64(l.PerMinute), filled: now}
}

// enter admits one call, or says why not and when to come again.
func (t *throttle) enter(now time.Time, whose string) *stop {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.limit.Concurrency > 0 && t.inflight >= t.limit.Concurrency {
		return nof(TooManyAtOnce, "of %s", whose)
	}
	if t.limit.PerMinute > 0 {
		t.fill(now)
		if t.tokens < 1 {
			s := nof(TooFast, "of %s", whose)
			s.wait = max(1, int(math.Ceil((1-t.tokens)*60/float64(t.limit.PerMinute))))
			return s
		}
		t.tokens--
	}
	t.inflight++
	return nil
}

func (t *throttle) fill(now time.Time) {
	if d := now.Sub(t.filled); d > 0 {
		t.tokens = min(float64(t.limit.PerMinute), t.tokens+d.Minutes()*float64(t.limit.PerMinute))
		t.filled = now
	}
}

func (t *throttle) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inflight--
}

// idle reports that forgetting the throttle changes nothing.
func (t *throttle) idle(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fill(now)
	return t.inflight == 0 && t.tokens >= float64(t.limit.PerMinute)
}

// creators are the throttles of those who have jobs.
type creators struct {
	mu sync.Mutex
	of map[dreamcore.CreatorID]*throttle
}

// creatorsKept is the number beyond which idle ones are forgotten.
const creatorsKept = 256

func (c *creators) throttle(id dreamcore.CreatorID, l Limit, now time.Time) *throttle {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.of[id]
	if t == nil {
		if c.of == nil {
			c.of = map[dreamcore.CreatorID]*throttle{}
		}
		if len(c.of) >= creatorsKept {
			for name, old := range c.of {
				if old.idle(now) {
					delete(c.of, name)
				}
			}
		}
		t = newThrottle(l, now)
		c.of[id] = t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fill(now)
	t.tokens = min(t.tokens+float64(max(0, l.PerMinute-t.limit.PerMinute)), float64(l.PerMinute))
	t.limit = l
	return t
}

// throttled takes the call past the limits of its creator and of its upstream.
// What it holds there is given back when the call ends.
func (c *call) throttled() *stop {
	now := c.p.now()
	if id := c.terms.Creator; id != "" && c.terms.CreatorLimit != (Limit{}) {
		t := c.p.creators.throttle(id, c.terms.CreatorLimit, now)
		if s := t.enter(now, "this creator"); s != nil {
			return s
		}
		c.release = append(c.release, t.leave)
	}
	if t := c.up.throttle; t != nil {
		if s := t.enter(now, "the model's server"); s != nil {
			return s
		}
		c.release = append(c.release, t.leave)
	}
	return nil
}
