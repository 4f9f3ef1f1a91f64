package job

import (
	"context"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// event appends one event. A watcher's loss must not stop the work: a failure
// is logged and the job goes on.
func (r *Runner) event(ctx context.Context, job dreamcore.Job, e dreamcore.Event) {
	e.Job, e.Time = job.ID, time.Now().UTC()
	_, err := r.cfg.Store.AppendEvent(context.WithoutCancel(ctx), e)
	switch {
	case err == nil:
	case dreamcore.CodeOf(err) == dreamcore.Refused:
		// An agent that talks without end must not fill the log as well.
		if r.firstRefusal(job.ID) {
			r.cfg.Log.Warn("the job has too many events; further ones are dropped", "job_id", job.ID, "decision", "drop", "err", err)
		}
	default:
		r.cfg.Log.Error("an event was lost", "job_id", job.ID, "kind", e.Kind, "err", err)
	}
}

// firstRefusal reports whether this is the first event of the job that was refused.
func (r *Runner) firstRefusal(id dreamcore.JobID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.silent[id]
	r.silent[id] = true
	return first
}

// step tells that a step of the job's life begins.
func (r *Runner) step(ctx context.Context, job dreamcore.Job, turn dreamcore.Turn, key string, args map[string]string) {
	r.event(ctx, job, dreamcore.Event{Kind: dreamcore.EventStep, Turn: turn, Key: key, Args: args})
}

func (r *Runner) say(job dreamcore.Job, key string, args ...string) string {
	return text.T(job.Lang, key, args...)
}

// tell tells the watchers how a job ended; twice is once.
func (r *Runner) tell(ctx context.Context, job dreamcore.Job) {
	args := map[string]string{"error": job.Error}
	if job.State == dreamcore.Published {
		args = map[string]string{"version": string(job.Version)}
	}
	r.event(ctx, job, dreamcore.Event{Kind: dreamcore.EventState, Text: string(job.State), Args: args})
}

// find tells the watchers what verification found.
func (r *Runner) find(ctx context.Context, job dreamcore.Job, findings []dreamcore.Finding) {
	for _, f := range findings {
		r.event(ctx, job, dreamcore.Event{Kind: dreamcore.EventFind, Text: f.String()})
	}
}

// patiently tries f for some seconds: a job that is never ended blocks its game
// for ever, so a busy or full disk gets some time to recover.
func (r *Runner) patiently(id dreamcore.JobID, f func() error) error {
	const tries = 5
	for try := range tries {
		err := f()
		if code := dreamcore.CodeOf(err); err == nil || code == dreamcore.Conflict || code == dreamcore.NotFound || try == tries-1 {
			return err
		}
		r.cfg.Log.Error("the end of a job could not be written", "job_id", id, "decision", "try again", "err", err)
		time.Sleep(time.Duration(1<<try) * 400 * time.Millisecond)
	}
	return nil // not reached
}

// finish writes how a job without a version ended and tells the watchers. A job
// that has ended already is left alone, and the watchers are told that end.
func (r *Runner) finish(ctx context.Context, id dreamcore.JobID, endOf func(dreamcore.Job) end) error {
	var job dreamcore.Job
	var e end
	err := r.patiently(id, func() (err error) {
		if job, err = r.cfg.Store.Job(ctx, id); err != nil {
			return err
		}
		e = endOf(job)
		job, err = r.cfg.Store.UpdateJob(ctx, id, 0, func(j *dreamcore.Job) error {
			j.State, j.Error, j.Findings, j.Usage = e.state, e.message, e.findings, e.usage
			return nil
		})
		return err
	})
	if dreamcore.CodeOf(err) == dreamcore.Conflict {
		r.cfg.Log.Info("the job had ended already", "job_id", id, "decision", "leave", "wanted", e.state)
		if job, err = r.cfg.Store.Job(ctx, id); err == nil {
			r.tell(ctx, job)
		}
		return err
	}
	if err != nil {
		return err
	}
	r.find(ctx, job, e.findings)
	r.tell(ctx, job)
	return nil
}
