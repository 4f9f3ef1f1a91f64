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

// finish writes how a job without a version ended and tells the watchers. A job
// that has ended already is left alone.
func (r *Runner) finish(ctx context.Context, job dreamcore.Job, e end) error {
	// A job that is never ended blocks its game for ever, so a busy or full disk
	// gets some time to recover.
	var err error
	for try := range 5 {
		_, err = r.cfg.Store.UpdateJob(ctx, job.ID, 0, func(j *dreamcore.Job) error {
			j.State, j.Error, j.Findings, j.Usage = e.state, e.message, e.findings, e.usage
			return nil
		})
		if err == nil || dreamcore.CodeOf(err) == dreamcore.Conflict {
			break
		}
		r.cfg.Log.Error("the end of a job could not be written", "job_id", job.ID, "decision", "try again", "err", err)
		time.Sleep(time.Duration(1<<try) * 200 * time.Millisecond)
	}
	if dreamcore.CodeOf(err) == dreamcore.Conflict {
		r.cfg.Log.Info("the job had ended already", "job_id", job.ID, "decision", "leave", "wanted", e.state)
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range e.findings {
		r.event(ctx, job, dreamcore.Event{Kind: dreamcore.EventFind, Text: f.String()})
	}
	r.event(ctx, job, dreamcore.Event{Kind: dreamcore.EventState, Text: string(e.state), Args: map[string]string{"error": e.message}})
	return nil
}
