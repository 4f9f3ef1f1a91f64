package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/gvisor"
	"dreamcore/internal/envd"
)

const (
	sampleEvery = 5 * time.Second
	// maxSamples bounds what is kept of one box. When it is reached every other
	// sample goes and from then on they are twice as far apart: a box's whole life
	// stays in view, however long it is.
	maxSamples = 720
	maxAsked   = 100 // boxes in one question
	// freshFor is how long a sample counts as now.
	freshFor = time.Second
	// A box that used less of the processor than that since its disk was measured
	// has not changed it: it is not woken up to be asked.
	stillCPU = 10 * time.Millisecond
)

// sample is what a box used at one moment.
type sample struct {
	at         time.Time
	cpuPercent float64 // of what it may use, since the sample before
	memory     int64
	cache      int64
	disk       int64
}

// history is what a box used since it began, thinned out as it grows.
type history struct {
	mu      sync.Mutex
	step    time.Duration
	all     []sample
	latest  sample // taken last, though perhaps not kept
	cpu     time.Duration
	disk    int64
	diskCPU time.Duration // what the box had used when its disk was measured
	diskAt  time.Time
}

// add keeps s, if it is not too near to the one before.
func (h *history) add(s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest = s
	if h.step == 0 {
		h.step = sampleEvery
	}
	// A little early is fine: clocks that tick do not tick exactly.
	if n := len(h.all); n > 0 && s.at.Sub(h.all[n-1].at) < h.step*9/10 {
		return
	}
	if len(h.all) == maxSamples {
		kept := h.all[:0]
		for i := 0; i < len(h.all); i += 2 {
			kept = append(kept, h.all[i])
		}
		h.all = kept
		h.step *= 2
	}
	h.all = append(h.all, s)
}

// between returns what is known of a time, the latest sample included.
func (h *history) between(start, end time.Time) []sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.all)
	if n := len(all); !h.latest.at.IsZero() && (n == 0 || h.latest.at.After(all[n-1].at)) {
		all = append(all, h.latest)
	}
	return slices.DeleteFunc(all, func(s sample) bool { return s.at.Before(start) || s.at.After(end) })
}

// measureInside takes a sample of b where only the box itself counts what it uses.
func (e *Engine) measureInside(ctx context.Context, b *box) error {
	c, thawed := b.line()
	if thawed != nil {
		return nil // it uses nothing
	}
	var m envd.Metrics
	if err := c.ask(ctx, envd.MetricsPath, &m); err != nil {
		return err
	}
	b.history.add(sample{
		at: time.Now(), cpuPercent: max(0, min(m.CPUPercent, 100)),
		memory: max(m.UsedBytes, 0), cache: max(m.CacheBytes, 0), disk: max(m.DiskUsed, 0) + b.machine.WrittenBytes(),
	})
	return nil
}

// measure takes a sample of b.
func (e *Engine) measure(ctx context.Context, b *box) error {
	u, err := b.machine.Usage()
	if errors.Is(err, gvisor.ErrUnknown) {
		return e.measureInside(ctx, b)
	}
	if err != nil {
		return err
	}
	now := time.Now()
	h := &b.history
	h.mu.Lock()
	s := sample{at: now, memory: u.MemoryBytes, cache: u.CacheBytes, cpuPercent: h.latest.cpuPercent}
	before, since := h.cpu, h.latest.at
	ask := h.diskAt.IsZero() || u.CPU-h.diskCPU > stillCPU
	h.mu.Unlock()
	if since.IsZero() {
		since, before = b.started, 0
	}
	if window := now.Sub(since); window >= freshFor/2 {
		share := float64(u.CPU-before) / float64(window) / b.limits.CPUs
		s.cpuPercent = math.Round(max(0, min(share, 1))*10000) / 100
	}
	if c, thawed := b.line(); ask && thawed == nil {
		if st, err := c.state(ctx); err == nil {
			h.mu.Lock()
			h.disk, h.diskCPU, h.diskAt = st.DiskUsed, u.CPU, now
			h.mu.Unlock()
		}
	}
	h.mu.Lock()
	h.cpu = u.CPU
	s.disk = h.disk + b.machine.WrittenBytes()
	h.mu.Unlock()
	h.add(s)
	return nil
}

// tend looks at every living box now and then: it takes a sample of each, and
// ends those that nobody uses. It ends with ctx.
func (e *Engine) tend(ctx context.Context) {
	every := sampleEvery
	if idle := e.cfg.IdleTimeout; idle > 0 {
		every = min(every, max(idle/4, 10*time.Millisecond))
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		e.mu.Lock()
		all := make([]*box, 0, len(e.boxes))
		for _, b := range e.boxes {
			all = append(all, b)
		}
		e.mu.Unlock()
		slots := make(chan struct{}, 4) // one box that does not answer holds up no other
		var wg sync.WaitGroup
		for _, b := range all {
			slots <- struct{}{}
			wg.Add(1)
			go func() {
				defer func() { <-slots; wg.Done() }()
				e.look(ctx, b)
			}()
		}
		wg.Wait()
	}
}

// look measures one box and ends it if nobody uses it.
func (e *Engine) look(ctx context.Context, b *box) {
	b.history.mu.Lock()
	last := b.history.latest.at
	b.history.mu.Unlock()
	if time.Since(last) >= sampleEvery*9/10 {
		if err := e.measure(ctx, b); err != nil && b.ctx.Err() == nil && !b.dead() {
			e.log.Warn("a sandbox cannot be measured", "sandbox_id", b.id, "reason", err.Error())
		}
	}
	if e.cfg.IdleTimeout > 0 && e.idles(ctx, b) {
		if b.ordered().autoPause {
			e.log.Info("nobody uses a sandbox", "sandbox_id", b.id, "decision", "pause it")
			e.expire(b, 1)
			return
		}
		e.log.Info("nobody uses a sandbox", "sandbox_id", b.id, "decision", "end it")
		e.finish(b, reasonIdle)
	}
}

// idles reports whether nothing has run in b and nobody has asked it for anything
// for the time after which that is to end it.
func (e *Engine) idles(ctx context.Context, b *box) bool {
	c, thawed := b.line()
	if thawed != nil || b.using.Load() > 0 {
		b.touch()
		return false
	}
	st, err := c.state(ctx)
	if err != nil || !st.Alone {
		// Who cannot say that nothing runs in it may be busy.
		b.touch()
		return false
	}
	return b.using.Load() == 0 && time.Since(time.Unix(0, b.used.Load())) >= e.cfg.IdleTimeout
}

// touch notes that somebody uses b now.
func (b *box) touch() { b.used.Store(time.Now().UnixNano()) }

// use notes that somebody uses b until the returned function is called.
func (b *box) use() func() {
	b.using.Add(1)
	return func() { b.touch(); b.using.Add(-1) }
}

// metricBody is a sample in E2B's words.
type metricBody struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"`
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

func (b *box) metric(s sample) metricBody {
	return metricBody{
		Timestamp: s.at.UTC(), TimestampUnix: s.at.Unix(), CPUCount: max(int(b.limits.CPUs), 1), CPUUsedPct: s.cpuPercent,
		MemUsed: s.memory, MemTotal: b.limits.MemoryBytes, MemCache: s.cache, DiskUsed: s.disk, DiskTotal: b.limits.DiskBytes,
	}
}

// refresh makes sure that the latest sample is of now.
func (e *Engine) refresh(ctx context.Context, b *box) {
	b.history.mu.Lock()
	last := b.history.latest.at
	b.history.mu.Unlock()
	if time.Since(last) < freshFor {
		return
	}
	if err := e.measure(ctx, b); err != nil {
		e.log.Warn("a sandbox cannot be measured", "sandbox_id", b.id, "reason", err.Error())
	}
}

// serveMetrics answers with what a box used from start to end, in Unix seconds;
// by default all its life.
func (e *Engine) serveMetrics(w http.ResponseWriter, r *http.Request, b *box) {
	start, ok1 := unixTime(r.URL.Query().Get("start"), time.Time{})
	end, ok2 := unixTime(r.URL.Query().Get("end"), time.Now().Add(time.Hour))
	if !ok1 || !ok2 || end.Before(start) {
		refuse(w, http.StatusBadRequest, "start and end must be Unix times in seconds, start before end")
		return
	}
	if r.URL.Query().Get("end") != "" {
		end = end.Add(time.Second - 1) // the whole of its last second
	}
	e.refresh(r.Context(), b)
	all := []metricBody{}
	for _, s := range b.history.between(start, end) {
		all = append(all, b.metric(s))
	}
	answer(w, http.StatusOK, all)
}

func unixTime(s string, otherwise time.Time) (time.Time, bool) {
	if s == "" {
		return otherwise, true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt32*100 {
		return time.Time{}, false
	}
	return time.Unix(n, 0), true
}

// serveAllMetrics answers with the latest sample of each box that was asked for
// and lives.
func (e *Engine) serveAllMetrics(w http.ResponseWriter, r *http.Request) {
	ids := strings.Split(strings.Join(r.URL.Query()["sandbox_ids"], ","), ",")
	if ids[0] == "" || len(ids) > maxAsked {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("sandbox_ids must name from 1 to %d sandboxes", maxAsked))
		return
	}
	all := map[string]metricBody{}
	for _, id := range ids {
		b, ok := e.find(dreamcore.SandboxID(id))
		if !ok {
			continue // as E2B does: it has no metrics
		}
		e.refresh(r.Context(), b)
		b.history.mu.Lock()
		s := b.history.latest
		b.history.mu.Unlock()
		if !s.at.IsZero() {
			all[id] = b.metric(s)
		}
	}
	answer(w, http.StatusOK, map[string]any{"sandboxes": all})
}
