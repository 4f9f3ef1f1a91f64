package keyproxy

import (
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/egress"
)

// Health is how the proxy and its upstreams do. Nothing is asked for it: it is
// what the calls of jobs have met.
type Health struct {
	Jobs      int              `json:"jobs"` // that are open
	Alerts    int64            `json:"alerts"`
	Upstreams []UpstreamHealth `json:"upstreams"` // sorted by feature
}

// The states of an upstream.
const (
	Untried = "untried"
	Up      = "up"
	Failing = "failing"
)

// UpstreamHealth is what calls have met at one upstream since the proxy began.
type UpstreamHealth struct {
	Feature    dreamcore.Feature `json:"feature"`
	Host       string            `json:"host"`
	State      string            `json:"state"`
	Since      time.Time         `json:"since"` // of State
	Good       int64             `json:"good"`
	Failed     int64             `json:"failed"`
	LastReason Reason            `json:"last_reason,omitempty"` // of the last failure
	LastStatus int               `json:"last_status,omitempty"` // the upstream's, 0 when it gave none
	LastFailed time.Time         `json:"last_failed"`
}

// Plausible reports whether h can be what a proxy says of itself.
func (h *Health) Plausible() bool {
	ok := h.Jobs >= 0 && h.Alerts >= 0 && len(h.Upstreams) <= maxUpstreams
	for _, u := range h.Upstreams {
		ok = ok && slices.Contains(egress.Features(), u.Feature) && len(u.Host) <= 300 && slices.Contains([]string{Untried, Up, Failing}, u.State) &&
			u.Good >= 0 && u.Failed >= 0 && len(u.LastReason) <= 60 && u.LastStatus >= 0 && u.LastStatus < 1000
	}
	return ok
}

// maxUpstreams bounds the upstreams of one proxy.
const maxUpstreams = 64

// failuresInRow is how many calls must fail, one after the other, before an
// upstream that has worked is called failing.
const failuresInRow = 3

// pulse counts what calls meet at an upstream.
type pulse struct {
	mu    sync.Mutex
	now   UpstreamHealth
	inRow int
}

// feel takes in how a call ended; c.rec is complete.
func (c *call) feel() {
	if c.up == nil || !c.rec.Dialled && c.rec.Reason != GuardDenied {
		return
	}
	failed := false
	switch c.rec.Reason {
	case "":
	case GuardDenied, UpstreamDown, UpstreamSilent, UpstreamBroken, UpstreamMoved, UpstreamKey:
		failed = true
	case UpstreamError:
		// Other statuses are the client's fault, and an answer.
		failed = c.rec.Status >= 500 || c.rec.Status == http.StatusTooManyRequests
	default:
		return // the job or the client ended it: that says nothing of the upstream
	}
	p := c.up.pulse
	p.mu.Lock()
	was := p.now.State
	state := Up
	if failed {
		p.now.Failed++
		p.inRow++
		p.now.LastReason, p.now.LastFailed, p.now.LastStatus = c.rec.Reason, c.p.now().UTC(), 0
		if c.rec.Reason == UpstreamError {
			p.now.LastStatus = c.rec.Status
		}
		if was == Up && p.inRow < failuresInRow && c.rec.Reason != UpstreamKey {
			state = was
		} else {
			state = Failing
		}
	} else {
		p.now.Good++
		p.inRow = 0
	}
	changed := state != was
	if changed {
		p.now.State, p.now.Since = state, c.p.now().UTC()
	}
	now := p.now
	p.mu.Unlock()
	switch {
	case !changed:
	case state == Failing:
		c.p.log.Warn("upstream", "upstream", c.up.String(), "decision", Failing, "reason", now.LastReason, "status", now.LastStatus, "good", now.Good, "failed", now.Failed)
	default:
		c.p.log.Info("upstream", "upstream", c.up.String(), "decision", Up, "was", was, "good", now.Good, "failed", now.Failed)
	}
}

// Health returns how the proxy and its upstreams do.
func (p *Proxy) Health() Health {
	p.mu.Lock()
	h := Health{Jobs: len(p.jobs), Alerts: p.alerts.Load(), Upstreams: []UpstreamHealth{}}
	p.mu.Unlock()
	for _, f := range slices.Sorted(maps.Keys(p.upstreams)) {
		for _, u := range p.upstreams[f] {
			u.pulse.mu.Lock()
			h.Upstreams = append(h.Upstreams, u.pulse.now)
			u.pulse.mu.Unlock()
		}
	}
	return h
}
