package keyproxy

import (
	"net/http"
	"sync"
	"time"
)

// Most refusals come before a job's own rate limit, and each costs a record and
// a line of the log. So a channel as a whole has a limit too: floodFactor times
// what its job may ask. What is beyond is refused unseen, and shares one record
// for each floodEvery.
const (
	floodFactor = 2
	floodEvery  = time.Second
	// gatesKept is the number of channels beyond which idle ones are forgotten.
	gatesKept = 64
)

// gates holds the limits of all channels.
type gates struct {
	mu     sync.Mutex
	of     map[string]*gate
	closed bool
	report sync.Mutex // held while a flood is recorded, so that Close can wait
}

// gate is the token bucket of one channel, over all its connections.
type gate struct {
	perMinute float64 // also what the bucket holds
	tokens    float64
	filled    time.Time
	refused   int64 // since the last record
}

// allow sets what a channel's job may ask in a minute.
func (g *gates) allow(channel string, perMinute int, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.gate(channel, now)
	rate := float64(floodFactor * max(perMinute, DefaultPerMinute))
	old.tokens = min(rate, old.tokens+max(0, rate-old.perMinute))
	old.perMinute = rate
}

// gate finds or makes the gate of a channel, filled up to now; g.mu is held.
func (g *gates) gate(channel string, now time.Time) *gate {
	b := g.of[channel]
	if b == nil {
		if len(g.of) >= gatesKept {
			for name, old := range g.of {
				if old.fill(now); old.tokens >= old.perMinute && old.refused == 0 {
					delete(g.of, name)
				}
			}
		}
		const rate = floodFactor * DefaultPerMinute
		b = &gate{perMinute: rate, tokens: rate, filled: now}
		g.of[channel] = b
	}
	b.fill(now)
	return b
}

func (b *gate) fill(now time.Time) {
	if d := now.Sub(b.filled); d > 0 {
		b.tokens = min(b.perMinute, b.tokens+d.Minutes()*b.perMinute)
		b.filled = now
	}
}

// pass takes one request in. The first that is refused calls report once
// floodEvery is over.
func (g *gates) pass(channel string, now time.Time, report func(channel string)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.gate(channel, now)
	if b.tokens >= 1 {
		b.tokens--
		return true
	}
	if b.refused++; b.refused == 1 && !g.closed {
		time.AfterFunc(floodEvery, func() { report(channel) })
	}
	return false
}

// take returns how many requests of a channel were refused, and counts anew.
func (g *gates) take(channel string) (n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.of[channel]; b != nil {
		n, b.refused = b.refused, 0
	}
	return n
}

// flooded writes the one record and the one line about what a channel's gate
// has refused.
func (p *Proxy) flooded(channel string) {
	p.gates.report.Lock()
	defer p.gates.report.Unlock()
	n := p.gates.take(channel)
	if n == 0 {
		return
	}
	rec := AuditRecord{
		Time: p.now().UTC(), Channel: channel, Decision: "refuse", Reason: Flood,
		Detail: "more requests than the channel may send", Status: http.StatusTooManyRequests, Requests: n,
	}
	p.mu.Lock()
	for id, j := range p.jobs {
		if t := j.terms.Load(); t.Channel == channel {
			rec.Job, rec.Attempt = id, t.Attempt
		}
	}
	p.mu.Unlock()
	p.record(rec)
	p.log.Warn("flood of proxy calls", "job_id", rec.Job, "sandbox_id", channel, "decision", rec.Decision, "reason", rec.Reason, "requests", n)
}

// closeGates records what has not been recorded yet.
func (p *Proxy) closeGates() {
	p.gates.mu.Lock()
	p.gates.closed = true
	var names []string
	for name := range p.gates.of {
		names = append(names, name)
	}
	p.gates.mu.Unlock()
	for _, name := range names {
		p.flooded(name)
	}
}

// turnAway answers a request that its channel's gate refused, and ends the
// connection.
func (p *Proxy) turnAway(w http.ResponseWriter, r *http.Request) {
	rc, now := http.NewResponseController(w), time.Now()
	_ = rc.SetReadDeadline(now.Add(lastWords)) // recorders in tests have none
	_ = rc.SetWriteDeadline(now.Add(lastWords))
	fam := family(r.URL.Path)
	row := refusals[Flood]
	h := w.Header()
	h.Set("Connection", "close")
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Retry-After", row.retryAfter)
	w.WriteHeader(row.status(fam))
	if r.Method != http.MethodHead {
		_, _ = w.Write(shape(fam).ErrorBody(row.status(fam), string(Flood), row.message+" ["+string(Flood)+"]")) // a client that is gone misses it
	}
}
