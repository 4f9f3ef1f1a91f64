package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/keyproxy"
)

// Config is what a Host is built from.
type Config struct {
	// Program is started with Command as its only argument; "" is this program.
	Program string
	// Dir is the proxy's folder; only User reads it. Required.
	Dir string
	// User is whom the proxy runs as; nil is whoever the host is.
	User *User
	// Settings are asked for at each start of the proxy, with the key files that
	// they count; the host closes these. Required.
	Settings func() (Settings, []*os.File, error)
	// Seal is told the audit's last record whenever a job has been closed: where
	// the proxy cannot write, so that it cannot deny what it wrote. nil: nobody.
	Seal func(job dreamcore.JobID, n int, s keyproxy.Seal)
	// Health is told every ten seconds how the proxy does; nil: nobody.
	Health func(keyproxy.Health)
	Log    *slog.Logger
	// Wait is how long the host waits before it starts a proxy again that has
	// ended, at first; each time it doubles. 0 means 100 ms.
	Wait time.Duration
}

const (
	startTimeout = time.Minute
	firstWait    = 100 * time.Millisecond
	lastWait     = 10 * time.Second
	steady       = time.Minute // after which a life counts as a good one
	askEvery     = 10 * time.Second
	askPatience  = time.Minute
	// grace is how long a connection waits for a proxy that is being started.
	grace = 2 * time.Second
)

// Host is the host's half of the key proxy: one process after the other, in
// which the same jobs are open. It is safe for concurrent use.
type Host struct {
	cfg   Config
	log   *slog.Logger
	ctx   context.Context // ends the host
	end   context.CancelFunc
	done  chan struct{} // the watching has ended
	first Ready

	mu      sync.Mutex
	life    *life         // nil while none is ready
	ready   chan struct{} // closed while one is
	jobs    map[dreamcore.JobID]keyproxy.JobTerms
	closing map[attempt]bool // closed, and no proxy has confirmed it
	lives   int
}

// attempt is one attempt of a job.
type attempt struct {
	job dreamcore.JobID
	n   int
}

// Start starts a proxy, in which no job is open, and keeps one alive until Close.
func Start(ctx context.Context, cfg Config) (*Host, error) {
	if cfg.Program == "" {
		cfg.Program = "/proc/self/exe"
	}
	if cfg.Wait == 0 {
		cfg.Wait = firstWait
	}
	h := &Host{
		cfg: cfg, log: cfg.Log, done: make(chan struct{}), ready: make(chan struct{}),
		jobs: map[dreamcore.JobID]keyproxy.JobTerms{}, closing: map[attempt]bool{},
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.ctx, h.end = context.WithCancel(context.Background())
	l, ready, err := h.begin(ctx)
	if err != nil {
		h.end()
		return nil, err
	}
	h.first = ready
	h.enter(l)
	go h.watch(l)
	return h, nil
}

// CA is the certificate of the proxy's remote side, in PEM; each life of the
// proxy makes a new one.
func (h *Host) CA() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.first.CA
}

// PID is the process of the proxy that is ready, 0 when none is.
func (h *Host) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life == nil {
		return 0
	}
	return h.life.pid
}

// begin starts a process and opens in it what is open.
func (h *Host) begin(ctx context.Context) (_ *life, _ Ready, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	start := time.Now()
	settings, files, err := h.cfg.Settings()
	defer closeAll(files)
	if err != nil {
		return nil, Ready{}, err
	}
	settings.Verbose = h.log.Enabled(ctx, slog.LevelDebug)
	p, err := spawn(h.cfg.Program, h.cfg.Dir, h.cfg.User)
	if err != nil {
		return nil, Ready{}, err
	}
	go relay(p.said, h.log)
	l := newLife(p)
	defer func() {
		if err != nil {
			l.end(err)
			<-l.gone
		}
	}()
	got, err := l.call(ctx, request{Op: opStart, Start: &settings}, files...)
	if errors.Is(err, errGone) {
		<-l.gone
		return nil, Ready{}, fmt.Errorf("start the key proxy: %w", l.cause())
	}
	if err != nil {
		return nil, Ready{}, err
	}
	if got.Ready == nil {
		return nil, Ready{}, errForm
	}
	if err := p.confined(h.cfg.User); err != nil {
		return nil, Ready{}, err
	}
	h.mu.Lock()
	jobs, closing := slices.Collect(maps.Values(h.jobs)), slices.Collect(maps.Keys(h.closing))
	h.lives++
	lives := h.lives
	h.mu.Unlock()
	for _, a := range closing {
		if _, err := l.call(ctx, request{Op: opClose, Job: a.job, Attempt: a.n}); err != nil && dreamcore.CodeOf(err) != dreamcore.NotFound {
			return nil, Ready{}, fmt.Errorf("close job %s again: %w", a.job, err)
		}
		h.closedFor(a)
	}
	for _, terms := range jobs {
		if _, err := l.call(ctx, request{Op: opOpen, Terms: &terms}); err != nil && dreamcore.CodeOf(err) != dreamcore.Conflict {
			return nil, Ready{}, fmt.Errorf("open job %s again: %w", terms.Job, err)
		}
	}
	user := "its own"
	if h.cfg.User == nil {
		user = "the host's"
	}
	h.log.Info("the key proxy runs", "pid", p.pid, "user", user, "life", lives, "jobs", len(jobs), "lost_calls", got.Ready.Lost, "dur_ms", time.Since(start).Milliseconds())
	return l, *got.Ready, nil
}

func (h *Host) enter(l *life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life = l
	close(h.ready)
}

// watch starts a proxy again whenever one has ended, until Close.
func (h *Host) watch(l *life) {
	defer close(h.done)
	wait := h.cfg.Wait
	for {
		began := time.Now()
		l.alive(askEvery, askPatience, h.cfg.Health)
		if h.ctx.Err() != nil {
			return
		}
		h.mu.Lock()
		h.life, h.ready = nil, make(chan struct{})
		h.mu.Unlock()
		if time.Since(began) > steady {
			wait = h.cfg.Wait
		}
		h.log.Error("the key proxy ended", "pid", l.pid, "reason", keyproxy.Clip(l.cause().Error(), maxSaid), "decision", "start again", "wait_ms", wait.Milliseconds())
		var err error
		for l = nil; l == nil; wait = min(2*wait, lastWait) {
			select {
			case <-time.After(wait):
			case <-h.ctx.Done():
				return
			}
			var ready Ready
			if l, ready, err = h.begin(h.ctx); err != nil {
				if h.ctx.Err() != nil {
					return
				}
				l = nil
				h.log.Error("the key proxy does not start", "reason", keyproxy.Clip(err.Error(), maxSaid), "decision", "try again", "wait_ms", min(2*wait, lastWait).Milliseconds())
				continue
			}
			h.mu.Lock()
			h.first = ready
			h.mu.Unlock()
		}
		h.enter(l)
	}
}

// await returns the proxy that is ready, as soon as one is.
func (h *Host) await(ctx context.Context) (*life, error) {
	for {
		h.mu.Lock()
		l, ready := h.life, h.ready
		h.mu.Unlock()
		if l != nil {
			select {
			case <-l.gone: // and nobody has noticed yet
				select {
				case <-time.After(time.Millisecond):
					continue
				case <-ctx.Done():
				case <-h.ctx.Done():
				}
			default:
				return l, nil
			}
		} else {
			select {
			case <-ready:
				continue
			case <-ctx.Done():
			case <-h.ctx.Done():
			}
		}
		if h.ctx.Err() != nil {
			return nil, h.unavailable(net.ErrClosed)
		}
		return nil, h.unavailable(context.Cause(ctx))
	}
}

func (h *Host) unavailable(err error) error {
	return dreamcore.Errorf(dreamcore.Unavailable, "keyproxy", "the key proxy does not run").Because(err).
		WithHint("it is started again by itself; the log says why it ended")
}

// ask asks the proxy, and the next one when that ended before it answered.
func (h *Host) ask(ctx context.Context, r request, files ...*os.File) (reply, error) {
	for {
		l, err := h.await(ctx)
		if err != nil {
			return reply{}, err
		}
		got, err := l.call(ctx, r, files...)
		if errors.Is(err, errGone) {
			continue
		}
		return got, err
	}
}

// OpenJob lets an attempt of a job spend, see keyproxy.OpenJob. It stays open
// over the lives of the proxy.
func (h *Host) OpenJob(ctx context.Context, terms keyproxy.JobTerms) error {
	h.mu.Lock()
	old, had := h.jobs[terms.Job]
	h.jobs[terms.Job] = terms
	h.mu.Unlock()
	_, err := h.ask(ctx, request{Op: opOpen, Terms: &terms})
	if err != nil {
		h.mu.Lock()
		if h.jobs[terms.Job].Attempt == terms.Attempt {
			if delete(h.jobs, terms.Job); had {
				h.jobs[terms.Job] = old
			}
		}
		h.mu.Unlock()
	}
	return err
}

// CloseJob ends an attempt, see keyproxy.CloseJob. When it cannot be heard in
// time it is closed all the same: no later life of the proxy opens it.
func (h *Host) CloseJob(ctx context.Context, id dreamcore.JobID, n int) (dreamcore.Usage, error) {
	a := attempt{id, n}
	h.mu.Lock()
	if h.jobs[id].Attempt == n {
		delete(h.jobs, id)
	}
	h.closing[a] = true
	h.mu.Unlock()
	got, err := h.ask(ctx, request{Op: opClose, Job: id, Attempt: n})
	if err == nil || dreamcore.CodeOf(err) == dreamcore.NotFound {
		h.closedFor(a)
	}
	if err == nil && got.Seal != nil && h.cfg.Seal != nil {
		h.cfg.Seal(id, n, *got.Seal)
	}
	return usageOf(got, err)
}

func (h *Host) closedFor(a attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.closing, a)
}

// Usage returns what a job has used so far, over all attempts.
func (h *Host) Usage(ctx context.Context, id dreamcore.JobID) (dreamcore.Usage, error) {
	return usageOf(h.ask(ctx, request{Op: opUsage, Job: id}))
}

func usageOf(got reply, err error) (dreamcore.Usage, error) {
	if err != nil {
		return dreamcore.Usage{}, err
	}
	if got.Usage == nil {
		return dreamcore.Usage{}, fmt.Errorf("ask the key proxy: %w", errForm)
	}
	return *got.Usage, nil
}

// Health returns how the proxy and its upstreams do.
func (h *Host) Health(ctx context.Context) (keyproxy.Health, error) {
	got, err := h.ask(ctx, request{Op: opHealth})
	if err == nil && got.Health == nil {
		err = fmt.Errorf("ask the key proxy: %w", errForm)
	}
	if err != nil {
		return keyproxy.Health{}, err
	}
	return *got.Health, nil
}

// Rotate takes the keys anew, from their files, without a restart: what is asked
// from now on uses them. It returns how many are others than before.
func (h *Host) Rotate(ctx context.Context) (changed int, err error) {
	settings, files, err := h.cfg.Settings()
	defer closeAll(files)
	if err != nil {
		return 0, err
	}
	got, err := h.ask(ctx, request{Op: opKeys, Start: &settings}, files...)
	return got.Changed, err
}

// Close lets the proxy end its jobs and its process; after ctx it is killed.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	l := h.life
	h.mu.Unlock()
	h.end()
	var err error
	if l != nil {
		err = l.leave(ctx)
	}
	<-h.done
	return err
}
