package keyproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"dreamcore"
	"dreamcore/internal/egress"
)

// Defaults of JobTerms.
const (
	DefaultConcurrency = 8
	DefaultPerMinute   = 600
)

// JobTerms is what one attempt of a job may do. What is not listed is refused.
type JobTerms struct {
	Job     dreamcore.JobID
	Attempt int    // generation of the job's sandbox, from 1
	Channel string // the sandbox whose listener the requests come in on
	// Features and Models are exact lists; an empty one opens nothing.
	Features []dreamcore.Feature
	Models   []string
	// Budget is the whole job's, over all attempts.
	Budget dreamcore.Budget
	// Creator has a budget of its own, over all jobs, when it is not empty.
	Creator       dreamcore.CreatorID
	CreatorBudget dreamcore.Budget
	// CreatorLimit holds for all jobs of the creator together.
	CreatorLimit Limit
	// Concurrency is the number of requests at once and PerMinute their rate;
	// zero means the defaults.
	Concurrency int
	PerMinute   int
}

// A body beyond largeBytes is held in memory, as text and as a tree, for at
// most largeAtOnce requests of a job.
const (
	largeBytes  = 2 << 20
	largeAtOnce = 2
)

// job is one open attempt.
type job struct {
	terms  atomic.Pointer[openTerms]
	ctx    context.Context // ends all calls of the job
	cancel context.CancelCauseFunc
	large  chan struct{} // a place for each large body that is in memory

	mu       sync.Mutex
	closing  bool
	inflight int
	idle     chan struct{} // closed when closing and nothing is in flight
	tokens   float64       // of the rate limit
	filled   time.Time
}

// openTerms is what an attempt may do at the moment; OpenJob replaces it whole.
type openTerms struct {
	JobTerms
	routes []string // of the policy that follows from the features
}

// errClosed is the cause with which CloseJob cancels calls.
var errClosed = errors.New("the job has ended")

func jobAccount(id dreamcore.JobID) string         { return "job:" + string(id) }
func creatorAccount(id dreamcore.CreatorID) string { return "creator:" + string(id) }

func (t *JobTerms) accounts() []string {
	a := []string{jobAccount(t.Job)}
	if t.Creator != "" {
		a = append(a, creatorAccount(t.Creator))
	}
	return a
}

func (t *JobTerms) check() error {
	const op = "keyproxy.open_job"
	switch {
	case t.Job == "" || t.Channel == "":
		return dreamcore.Errorf(dreamcore.Invalid, op, "a job needs an id and a channel")
	case t.Attempt < 1:
		return dreamcore.Errorf(dreamcore.Invalid, op, "attempts count from 1, not %d", t.Attempt)
	case t.Concurrency < 0 || t.PerMinute < 0 || t.CreatorLimit.Concurrency < 0 || t.CreatorLimit.PerMinute < 0:
		return dreamcore.Errorf(dreamcore.Invalid, op, "a limit is negative")
	}
	return nil
}

// ledger marks of a job's account.
func mark(state string, attempt int) string { return fmt.Sprintf("%s:%d", state, attempt) }

// OpenJob lets an attempt of a job spend. Opening the same attempt again renews
// its terms, so a host that was restarted may simply do so. A later attempt
// ends the earlier one; an attempt that was closed, or is older than the last,
// is code Conflict for ever.
func (p *Proxy) OpenJob(ctx context.Context, terms JobTerms) error {
	const op = "keyproxy.open_job"
	if err := terms.check(); err != nil {
		return err
	}
	if terms.Concurrency == 0 {
		terms.Concurrency = DefaultConcurrency
	}
	if terms.PerMinute == 0 {
		terms.PerMinute = DefaultPerMinute
	}
	terms.Features = slices.Clone(terms.Features)
	terms.Models = slices.Clone(terms.Models)

	p.opening.Lock() // one change of the set of jobs at a time
	defer p.opening.Unlock()

	var state string
	var last int
	if _, err := fmt.Sscanf(p.ledger.State(jobAccount(terms.Job)), "%4s:%d", &state, &last); err == nil {
		if terms.Attempt < last || terms.Attempt == last && state == "shut" {
			return dreamcore.Errorf(dreamcore.Conflict, op, "attempt %d of job %s has ended", terms.Attempt, terms.Job)
		}
	}
	if old := p.job(terms.Job); old != nil && old.terms.Load().Attempt != terms.Attempt {
		if err := p.shut(ctx, old); err != nil {
			return err
		}
	}
	if err := p.ledger.Grant(jobAccount(terms.Job), terms.Budget); err != nil {
		return unavailable(op, err)
	}
	if terms.Creator != "" {
		if err := p.ledger.Grant(creatorAccount(terms.Creator), terms.CreatorBudget); err != nil {
			return unavailable(op, err)
		}
	}
	if err := errors.Join(p.ledger.Mark(jobAccount(terms.Job), mark("open", terms.Attempt)), p.ledger.Sync()); err != nil {
		return unavailable(op, err)
	}

	p.gates.allow(terms.Channel, terms.PerMinute, time.Now())
	open := &openTerms{terms, egress.PolicyOf(terms.Features).Routes}
	if j := p.job(terms.Job); j != nil {
		j.terms.Store(open) // the same attempt under new terms; its calls run on
	} else {
		jctx, cancel := context.WithCancelCause(p.ctx)
		j := &job{ctx: jctx, cancel: cancel, large: make(chan struct{}, largeAtOnce), idle: make(chan struct{}), tokens: float64(terms.PerMinute), filled: p.now()}
		j.terms.Store(open)
		p.mu.Lock()
		p.jobs[terms.Job] = j
		p.mu.Unlock()
	}
	p.log.Info("job opened", "job_id", terms.Job, "attempt", terms.Attempt, "sandbox_id", terms.Channel)
	return nil
}

// CloseJob ends an attempt: from its first moment every request is refused,
// calls in flight are cancelled and settled, and the grant is worth nothing
// more. It returns what the whole job has used. Closing twice is fine.
func (p *Proxy) CloseJob(ctx context.Context, id dreamcore.JobID, attempt int) (dreamcore.Usage, error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	if j := p.job(id); j != nil && j.terms.Load().Attempt == attempt {
		if err := p.shut(ctx, j); err != nil {
			return dreamcore.Usage{}, err
		}
	} else if account := jobAccount(id); j == nil && p.ledger.State(account) == mark("open", attempt) {
		// A former life of the proxy had it open.
		if err := errors.Join(p.ledger.Mark(account, mark("shut", attempt)), p.ledger.Sync()); err != nil {
			return dreamcore.Usage{}, unavailable("keyproxy.close_job", err)
		}
	}
	return p.Usage(id)
}

// shut does the work of closing; p.opening is held.
func (p *Proxy) shut(ctx context.Context, j *job) error {
	const op = "keyproxy.close_job"
	start, terms := p.now(), j.terms.Load()
	j.stop()
	err := p.ledger.Mark(jobAccount(terms.Job), mark("shut", terms.Attempt))
	select {
	case <-j.idle:
	case <-ctx.Done():
		return fmt.Errorf("close job %s: wait for calls in flight: %w", terms.Job, context.Cause(ctx))
	}
	p.mu.Lock()
	delete(p.jobs, terms.Job)
	p.mu.Unlock()
	p.remote.forget(terms.Job)
	used, _ := p.ledger.Spent(jobAccount(terms.Job)) // it has an account
	p.record(AuditRecord{
		Time: p.now().UTC(), Job: terms.Job, Attempt: terms.Attempt, Channel: terms.Channel, Decision: "seal",
		InputTokens: used.InputTokens, OutputTokens: used.OutputTokens, Images: used.Images, CostMicros: used.CostMicros, Requests: used.Requests,
	})
	if err = errors.Join(err, p.ledger.Sync()); err != nil {
		return unavailable(op, err)
	}
	p.log.Info("job closed", "job_id", terms.Job, "attempt", terms.Attempt, "sandbox_id", terms.Channel,
		"dur_ms", p.now().Sub(start).Milliseconds())
	return nil
}

// Seal returns the last record of the proxy's own audit; the zero Seal when
// another Auditor takes the records.
func (p *Proxy) Seal() Seal {
	if log, ok := p.audit.(*AuditLog); ok {
		return log.Head()
	}
	return Seal{}
}

// Usage returns what a job has used so far, over all attempts.
func (p *Proxy) Usage(id dreamcore.JobID) (dreamcore.Usage, error) {
	u, err := p.ledger.Spent(jobAccount(id))
	if err != nil {
		return u, dreamcore.Errorf(dreamcore.NotFound, "keyproxy.usage", "no job %s was ever opened", id)
	}
	return u, nil
}

func (p *Proxy) job(id dreamcore.JobID) *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.jobs[id]
}

// stop changes the state, then cancels.
func (j *job) stop() {
	j.mu.Lock()
	if !j.closing {
		j.closing = true
		if j.inflight == 0 {
			close(j.idle)
		}
	}
	j.mu.Unlock()
	j.cancel(errClosed)
}

// enter admits one request, or says why not.
func (j *job) enter(now time.Time) (reason Reason) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closing {
		return JobEnded
	}
	terms := j.terms.Load()
	if j.inflight >= terms.Concurrency {
		return TooManyAtOnce
	}
	perSecond := float64(terms.PerMinute) / 60
	if d := now.Sub(j.filled).Seconds(); d > 0 {
		j.tokens = min(float64(terms.PerMinute), j.tokens+d*perSecond)
		j.filled = now
	}
	if j.tokens < 1 {
		return TooFast
	}
	j.tokens--
	j.inflight++
	return ""
}

func (j *job) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.inflight--; j.inflight == 0 && j.closing {
		close(j.idle)
	}
}

func unavailable(op string, err error) error {
	return dreamcore.Errorf(dreamcore.Unavailable, op, "the key proxy cannot write its ledger").
		WithHint("look for a full or read-only disk").Because(err)
}
