package store

import (
	"time"
	"unicode/utf8"

	"dreamcore"
)

// Change applies change to job by the rules of Jobs.UpdateJob and returns the
// job to be stored; same is true when nothing is to be stored. It is the one
// place of these rules, so that implementations cannot drift.
func Change(job dreamcore.Job, attempt int, now time.Time, change func(*dreamcore.Job) error) (next dreamcore.Job, same bool, err error) {
	const op = "store.job"
	if attempt != 0 && attempt != job.Attempt {
		return job, false, dreamcore.Errorf(dreamcore.Conflict, op, "job %s is at attempt %d, not %d", job.ID, job.Attempt, attempt)
	}
	next = job
	next.Findings = append([]dreamcore.Finding(nil), job.Findings...)
	if err := change(&next); err != nil {
		return job, false, err
	}
	if job.State.Ended() {
		if next.State == job.State {
			return job, true, nil
		}
		return job, false, dreamcore.Errorf(dreamcore.Conflict, op, "job %s has ended: it is %s", job.ID, job.State)
	}
	switch {
	case next.ID != job.ID, next.Game != job.Game, next.Creator != job.Creator, next.Base != job.Base,
		next.Wish != job.Wish, next.Lang != job.Lang, !next.Created.Equal(job.Created):
		return job, false, dreamcore.Errorf(dreamcore.Invalid, op, "job %s: what identifies a job cannot change", job.ID)
	case next.Attempt < job.Attempt:
		return job, false, dreamcore.Errorf(dreamcore.Invalid, op, "job %s: attempt %d cannot follow %d", job.ID, next.Attempt, job.Attempt)
	case !follows(job.State, next.State):
		return job, false, dreamcore.Errorf(dreamcore.Conflict, op, "job %s cannot go from %s to %s", job.ID, job.State, next.State)
	}
	if next.State == dreamcore.Running && next.Started.IsZero() {
		next.Started = now
	}
	if next.State.Ended() {
		next.Ended = now
	}
	return next, false, nil
}

// follows reports whether UpdateJob may take a job from one state to the other.
func follows(from, to dreamcore.JobState) bool {
	switch to {
	case dreamcore.Queued, dreamcore.Running, dreamcore.FailedJob, dreamcore.Cancelled:
		return !from.Ended()
	}
	return false // published is Publish's to say; anything else is no state
}

// CutText bounds a text to n bytes without cutting a rune in two.
func CutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = " …"
	s = s[:n-len(mark)]
	for len(s) > 0 {
		if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size > 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return s + mark
}
