// Package job is the life of a job: queue, boot, materials, design turn,
// delivery, build turn, verification while the sandbox still lives, repair
// turns, collect, destroy, publish. It knows no SQL, no HTTP and no runsc.
package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/agent"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/tree"
	"dreamcore/internal/verify"
)

// Store keeps jobs, chats and events.
type Store interface {
	Job(ctx context.Context, id dreamcore.JobID) (dreamcore.Job, error)
	// UpdateJob changes a job in one step; attempt guards against a stale worker,
	// 0 does not ask. An ended job never changes: Conflict.
	UpdateJob(ctx context.Context, id dreamcore.JobID, attempt int, change func(*dreamcore.Job) error) (dreamcore.Job, error)
	AppendEvent(ctx context.Context, e dreamcore.Event) (dreamcore.Event, error)
	// AddMessage appends to a game's chat; the same words for the same job are one.
	AddMessage(ctx context.Context, m dreamcore.Message) error
	Messages(ctx context.Context, game dreamcore.GameID) ([]dreamcore.Message, error)
	Version(ctx context.Context, id dreamcore.VersionID) (dreamcore.Version, error)
}

// end is how a job that published nothing ended.
type end struct {
	state    dreamcore.JobState // FailedJob or Cancelled
	message  string             // for the creator, in their language
	findings []dreamcore.Finding
	usage    dreamcore.Usage
}

// Publisher keeps snapshots and turns the last one into a version.
type Publisher interface {
	Keep(ctx context.Context, t *tree.Tree) ([]dreamcore.VersionFile, error)
	KeepPictures(ctx context.Context, ev *dreamcore.Evidence) error
	Load(ctx context.Context, files []dreamcore.VersionFile) ([]tree.File, error)
	// Publish makes the version current in one atomic step; code Conflict when the
	// job has ended or runs at another attempt.
	Publish(ctx context.Context, job dreamcore.Job, files []dreamcore.VersionFile, ev dreamcore.Evidence) (dreamcore.Version, error)
}

// Proxy is the key proxy's control side.
type Proxy interface {
	// Open lets the sandbox in; the grant is for the box.
	Open(ctx context.Context, job dreamcore.Job, box dreamcore.SandboxID) (grant string, err error)
	// Renew mints the next grant of an open job.
	Renew(ctx context.Context, job dreamcore.Job, box dreamcore.SandboxID) (grant string, err error)
	// Close cancels what is in flight and lets nothing in any more. Closing twice
	// is harmless.
	Close(ctx context.Context, job dreamcore.JobID, attempt int) (dreamcore.Usage, error)
}

// Library is the templates.
type Library interface {
	// Catalogue is what the agent chooses from, one line each.
	Catalogue(lang dreamcore.Lang) string
	// Match finds the template that the first line of a spec names exactly; else
	// ok is false, and reason says why in either case.
	Match(firstLine string) (t Template, reason string, ok bool)
	// Files is what is delivered to project/.
	Files(tag dreamcore.TemplateTag) ([]tree.File, error)
}

// Template is what a job needs to know of one.
type Template struct {
	Tag      dreamcore.TemplateTag
	Title    dreamcore.Localized
	Controls string // the control scheme: what the playtest demands
}

// Image is what a sandbox is booted from.
type Image struct {
	Digest, AgentVersion string
	// Warm is the name under which the engine makes sandboxes of the image that
	// begin with the agent loaded and waiting; "" when it makes none.
	Warm string
}

// Config is what a Runner needs.
type Config struct {
	Store     Store
	Publisher Publisher
	Sandboxes sandbox.Provider
	Proxy     Proxy
	Verifier  *verify.Verifier
	Library   Library
	Agent     agent.Adapter
	API       agent.API
	Model     string
	// ImageModel draws the pictures that the agent orders.
	ImageModel string
	ProxyURL   string                // the proxy as a box sees it
	Features   []dreamcore.Feature   // what the boxes of jobs are offered
	Image      func() (Image, error) // the image of new jobs
	Toolkit    []byte
	Metadata   map[string]string // marks sandboxes as this installation's
	Limits     Limits
	Log        *slog.Logger
}

// Limits bound a job.
type Limits struct {
	Turn    time.Duration // one turn of the agent
	Job     time.Duration // all of it, without the queue
	Repairs int           // repair turns
	Tree    tree.Limits
}

// DefaultLimits suit a hosted model; a small model may need longer turns.
func DefaultLimits() Limits {
	return Limits{Turn: 15 * time.Minute, Job: 45 * time.Minute, Repairs: 2, Tree: tree.DefaultLimits()}
}

// maxAttempts: a job whose sandbox is lost (the host was killed) starts afresh
// once, never more.
const maxAttempts = 2

var (
	errCancelled = errors.New("cancelled by its creator")
	errDeadline  = errors.New("out of time")
)

// Runner runs jobs.
type Runner struct {
	cfg Config

	mu   sync.Mutex
	live map[dreamcore.JobID]context.CancelCauseFunc
	// silent are the living jobs whose events are refused.
	silent map[dreamcore.JobID]bool
}

// New returns a Runner.
func New(cfg Config) *Runner {
	return &Runner{cfg: cfg, live: map[dreamcore.JobID]context.CancelCauseFunc{}, silent: map[dreamcore.JobID]bool{}}
}

// Cancel ends a job wherever it stands. A job that has ended is left alone.
func (r *Runner) Cancel(ctx context.Context, id dreamcore.JobID) error {
	r.mu.Lock()
	cancel := r.live[id]
	r.mu.Unlock()
	if cancel != nil { // its own goroutine cleans up and writes the end
		cancel(errCancelled)
		return nil
	}
	if err := r.finish(ctx, id, func(job dreamcore.Job) end {
		return end{state: dreamcore.Cancelled, message: r.say(job, "job.cancelled")}
	}); err != nil {
		return err
	}
	// It may have begun between the look and the write.
	r.mu.Lock()
	cancel = r.live[id]
	r.mu.Unlock()
	if cancel != nil {
		cancel(errCancelled)
	}
	return nil
}

// Run is the life of one job. It returns an error only when the host is
// stopping: the job then goes on at the next start.
func (r *Runner) Run(ctx context.Context, steps Steps, id dreamcore.JobID) error {
	ctx, leave := r.enter(ctx, id)
	defer leave()
	for attempt := 1; ; attempt++ {
		job, err := do(ctx, steps, fmt.Sprintf("begin-%d", attempt), func(ctx context.Context) (dreamcore.Job, error) {
			return r.begin(ctx, id, attempt)
		})
		if err != nil {
			if stopping(ctx) {
				return err
			}
			// A job that cannot even begin must still end, or it blocks its game for ever.
			r.cfg.Log.Error("job could not begin", "job_id", id, "decision", dreamcore.FailedJob, "err", err)
			return r.finish(context.WithoutCancel(ctx), id, func(job dreamcore.Job) end { return r.endOf(ctx, job, err) })
		}
		log := r.cfg.Log.With("job_id", id, "attempt", attempt)
		if job.State.Ended() {
			log.Info("job had ended before it began", "decision", "stop", "reason", job.State)
			return nil
		}
		// The beginning may be remembered from before a restart, and the job have
		// ended since: cancelled while the host was down, or only its last words
		// were lost.
		if now, err := r.cfg.Store.Job(ctx, id); err == nil && now.State.Ended() {
			log.Info("job had ended before it went on", "decision", "stop", "reason", now.State)
			r.destroy(ctx, now, log)
			r.tell(ctx, now)
			return nil
		}
		usage, findings, err := r.attempt(ctx, steps, job, log)
		switch {
		case err == nil:
			return nil
		case stopping(ctx):
			log.Warn("the host stops; the job goes on at the next start", "decision", "leave", "err", err)
			return err
		case dreamcore.CodeOf(err) == dreamcore.Lost && attempt < maxAttempts && context.Cause(ctx) == nil:
			log.Warn("the sandbox was lost; the job starts afresh", "decision", "afresh", "err", err)
			r.event(ctx, job, dreamcore.Event{Kind: dreamcore.EventStep, Key: "job.afresh"})
			continue
		}
		e := r.endOf(ctx, job, err)
		e.usage, e.findings = usage, findings
		log.Warn("job ended without a version", "decision", e.state, "err", err)
		// The job's own context may be the one that was cancelled.
		return r.finish(context.WithoutCancel(ctx), id, func(dreamcore.Job) end { return e })
	}
}

// Abandon fails a job whose steps will never run again.
func (r *Runner) Abandon(ctx context.Context, id dreamcore.JobID) error {
	if err := r.finish(ctx, id, func(job dreamcore.Job) end {
		return end{state: dreamcore.FailedJob, message: r.say(job, "job.fault")}
	}); err != nil {
		return fmt.Errorf("abandon job %s: %w", id, err)
	}
	return nil
}

// begin moves the job to running at this attempt. One that has ended (cancelled
// while it waited) is returned as it is.
func (r *Runner) begin(ctx context.Context, id dreamcore.JobID, attempt int) (dreamcore.Job, error) {
	job, err := r.cfg.Store.Job(ctx, id)
	if err != nil || job.State.Ended() {
		return job, err
	}
	return r.cfg.Store.UpdateJob(ctx, id, 0, func(j *dreamcore.Job) error {
		j.State, j.Attempt = dreamcore.Running, attempt
		return nil
	})
}

// enter makes the job cancellable and gives it its deadline.
func (r *Runner) enter(ctx context.Context, id dreamcore.JobID) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(r.cfg.Limits.Job, func() { cancel(errDeadline) })
	r.mu.Lock()
	r.live[id] = cancel
	r.mu.Unlock()
	return ctx, func() {
		timer.Stop()
		r.mu.Lock()
		delete(r.live, id)
		delete(r.silent, id)
		r.mu.Unlock()
		cancel(nil)
	}
}

// stopping reports whether the host is going down, as opposed to this one job
// having been cancelled or having run out of time.
func stopping(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	cause := context.Cause(ctx)
	return !errors.Is(cause, errCancelled) && !errors.Is(cause, errDeadline)
}

func (r *Runner) endOf(ctx context.Context, job dreamcore.Job, err error) end {
	e := end{state: dreamcore.FailedJob}
	cause := context.Cause(ctx)
	var refused *refusedError
	switch {
	case errors.Is(cause, errCancelled):
		e.state, e.message = dreamcore.Cancelled, r.say(job, "job.cancelled")
	case errors.Is(cause, errDeadline):
		e.message = r.say(job, "job.deadline")
	case errors.As(err, &refused):
		e.message = r.say(job, "job.refused")
	case strings.HasPrefix(opOf(err), agent.Op):
		e.message = r.say(job, "job.agent_failed")
	case dreamcore.CodeOf(err) == dreamcore.Lost:
		e.message = r.say(job, "job.lost")
	case dreamcore.CodeOf(err) == dreamcore.Missing, dreamcore.CodeOf(err) == dreamcore.Unavailable:
		e.message = r.say(job, "job.not_ready")
	default:
		e.message = r.say(job, "job.fault")
	}
	return e
}

// opOf is where the first Error in err's chain happened.
func opOf(err error) string {
	var e *dreamcore.Error
	if errors.As(err, &e) {
		return e.Op
	}
	return ""
}

// refusedError: verification refused the game after the last repair turn.
type refusedError struct{ evidence dreamcore.Evidence }

func (e *refusedError) Error() string {
	return fmt.Sprintf("verification refused the game: %d findings", len(e.evidence.Findings()))
}
