package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	"dreamcore/internal/store"
)

func to(state dreamcore.JobState) func(*dreamcore.Job) error {
	return func(j *dreamcore.Job) error { j.State = state; return nil }
}

func endedJobs(t *testing.T, s store.Store) {
	ctx := t.Context()
	g := newGame(t, s, "ann")
	for _, end := range []dreamcore.JobState{dreamcore.FailedJob, dreamcore.Cancelled} {
		for _, begin := range []dreamcore.Job{newJob(t, s, g), running(t, s, g)} {
			j := must(s.UpdateJob(ctx, begin.ID, 0, func(j *dreamcore.Job) error {
				j.State, j.Error = end, "because"
				j.Findings = []dreamcore.Finding{{Code: "x", Severity: dreamcore.Fail}}
				return nil
			}))(t)
			if j.Ended.IsZero() || j.State != end || j.Error != "because" {
				t.Fatalf("%+v", j)
			}
			again := must(s.UpdateJob(ctx, j.ID, 0, func(j *dreamcore.Job) error {
				j.State, j.Error = end, "another reason"
				return nil
			}))(t)
			if diff := cmp.Diff(j, again); diff != "" {
				t.Errorf("ending again changed the job: %s", diff)
			}
			for _, state := range []dreamcore.JobState{dreamcore.Queued, dreamcore.Running, dreamcore.Published, dreamcore.FailedJob, dreamcore.Cancelled} {
				if state != end {
					_, err := s.UpdateJob(ctx, j.ID, 0, to(state))
					wantCode(t, err, dreamcore.Conflict)
				}
			}
			if diff := cmp.Diff(j, must(s.Job(ctx, j.ID))(t)); diff != "" {
				t.Error(diff)
			}
		}
	}
	live := running(t, s, g)
	if live.Started.IsZero() {
		t.Error("a running job does not say since when")
	}
	for _, state := range []dreamcore.JobState{dreamcore.Published, "", "sleeping"} {
		_, err := s.UpdateJob(ctx, live.ID, 0, to(state))
		wantCode(t, err, dreamcore.Conflict)
	}
	back := must(s.UpdateJob(ctx, live.ID, 1, to(dreamcore.Queued)))(t)
	if back.State != dreamcore.Queued {
		t.Error("a running job cannot be queued again")
	}
	boom := errors.New("boom")
	if _, err := s.UpdateJob(ctx, live.ID, 1, func(j *dreamcore.Job) error { j.Error = "x"; return boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
	if must(s.Job(ctx, live.ID))(t).Error != "" {
		t.Error("a change that failed was stored")
	}
}

func attempts(t *testing.T, s store.Store) {
	ctx := t.Context()
	j := running(t, s, newGame(t, s, "ann"))
	j = must(s.UpdateJob(ctx, j.ID, 1, func(j *dreamcore.Job) error { j.Attempt = 2; return nil }))(t)
	if j.Attempt != 2 {
		t.Fatal(j.Attempt)
	}
	_, err := s.UpdateJob(ctx, j.ID, 1, to(dreamcore.FailedJob))
	wantCode(t, err, dreamcore.Conflict)
	_, err = s.UpdateJob(ctx, j.ID, 2, func(j *dreamcore.Job) error { j.Attempt = 1; return nil })
	wantCode(t, err, dreamcore.Invalid)
	_, err = s.Publish(ctx, version(j, "v1"), "t", 1)
	wantCode(t, err, dreamcore.Conflict)
	if got := must(s.Job(ctx, j.ID))(t); got.State != dreamcore.Running {
		t.Error(got.State)
	}
}

func identity(t *testing.T, s store.Store) {
	j := running(t, s, newGame(t, s, "ann"))
	for name, change := range map[string]func(*dreamcore.Job){
		"id":      func(j *dreamcore.Job) { j.ID = "x" },
		"game":    func(j *dreamcore.Job) { j.Game = "x" },
		"creator": func(j *dreamcore.Job) { j.Creator = "x" },
		"wish":    func(j *dreamcore.Job) { j.Wish = "x" },
		"lang":    func(j *dreamcore.Job) { j.Lang = "x" },
		"base":    func(j *dreamcore.Job) { j.Base = "x" },
		"created": func(j *dreamcore.Job) { j.Created = time.Now() },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.UpdateJob(t.Context(), j.ID, 0, func(j *dreamcore.Job) error { change(j); return nil })
			wantCode(t, err, dreamcore.Invalid)
		})
	}
}

func queue(t *testing.T, s store.Store) {
	ctx := t.Context()
	g := newGame(t, s, "ann")
	var jobs []dreamcore.Job
	for range 4 {
		jobs = append(jobs, newJob(t, s, g))
	}
	must(s.UpdateJob(ctx, jobs[1].ID, 0, to(dreamcore.Running)))(t)
	ids := func(list []dreamcore.Job) (out []dreamcore.JobID) {
		for _, j := range list {
			out = append(out, j.ID)
		}
		return out
	}
	if diff := cmp.Diff([]dreamcore.JobID{jobs[0].ID, jobs[2].ID, jobs[3].ID}, ids(must(s.JobsIn(ctx, dreamcore.Queued))(t))); diff != "" {
		t.Error(diff)
	}
	if n := len(must(s.JobsIn(ctx, dreamcore.Queued, dreamcore.Running))(t)); n != 4 {
		t.Errorf("%d jobs", n)
	}
	if n := len(must(s.JobsIn(ctx))(t)); n != 0 {
		t.Errorf("%d jobs in no state", n)
	}
	if n := must(s.Ahead(ctx, jobs[3].ID))(t); n != 2 {
		t.Errorf("%d ahead", n)
	}
	if n := must(s.Ahead(ctx, jobs[0].ID))(t); n != 0 {
		t.Errorf("%d ahead of the first", n)
	}
	if diff := cmp.Diff([]dreamcore.JobID{jobs[3].ID, jobs[2].ID}, ids(must(s.JobsOf(ctx, g.ID, 2))(t))); diff != "" {
		t.Error(diff)
	}
	must(s.UpdateJob(ctx, jobs[0].ID, 0, to(dreamcore.Cancelled)))(t)
	if n := must(s.Unended(ctx, "ann"))(t); n != 3 {
		t.Errorf("%d have not ended", n)
	}
}

func gapless(t *testing.T, s store.Store) {
	ctx := t.Context()
	g := newGame(t, s, "ann")
	a, b := newJob(t, s, g), newJob(t, s, g)
	const writers, each = 8, 12
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				for _, job := range []dreamcore.JobID{a.ID, b.ID} {
					e := dreamcore.Event{Job: job, Kind: dreamcore.EventSay, Text: fmt.Sprint(w, " ", i)}
					if _, err := s.AppendEvent(ctx, e); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, job := range []dreamcore.JobID{a.ID, b.ID} {
		var after int64
		said := map[string]bool{}
		for {
			page := must(s.Events(ctx, job, after, 7))(t)
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				if e.Seq != after+1 || e.Job != job {
					t.Fatalf("seq %d follows %d", e.Seq, after)
				}
				after, said[e.Text] = e.Seq, true
			}
		}
		if after != writers*each || len(said) != writers*each {
			t.Errorf("%d events, %d texts", after, len(said))
		}
	}
}

func stepTwice(t *testing.T, s store.Store) {
	ctx := t.Context()
	j := newJob(t, s, newGame(t, s, "ann"))
	step := func(key string) dreamcore.Event {
		return must(s.AppendEvent(ctx, dreamcore.Event{Job: j.ID, Kind: dreamcore.EventStep, Key: key, Args: map[string]string{"a": "b"}, Time: moment}))(t)
	}
	say := dreamcore.Event{Job: j.ID, Kind: dreamcore.EventSay, Text: "again", Time: moment}
	first := step("job.boot")
	must(s.AppendEvent(ctx, say))(t)
	if diff := cmp.Diff(first, step("job.boot")); diff != "" {
		t.Error(diff)
	}
	must(s.AppendEvent(ctx, say))(t) // people do repeat themselves
	step("job.build")
	step("job.boot")
	list := must(s.Events(ctx, j.ID, 0, 100))(t)
	var got []string
	for _, e := range list {
		got = append(got, e.Key+e.Text)
	}
	if diff := cmp.Diff([]string{"job.boot", "again", "again", "job.build", "job.boot"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(first, list[0]); diff != "" {
		t.Error(diff)
	}
}

func bounded(t *testing.T, s store.Store) {
	j := newJob(t, s, newGame(t, s, "ann"))
	huge := strings.Repeat("猫", store.MaxEventTextBytes)
	e := must(s.AppendEvent(t.Context(), dreamcore.Event{
		Job: j.ID, Kind: dreamcore.EventTool, Text: huge, Args: map[string]string{"name": huge},
	}))(t)
	for _, text := range []string{e.Text, e.Args["name"]} {
		if len(text) > store.MaxEventTextBytes || !utf8.ValidString(text) || !strings.HasSuffix(text, "…") {
			t.Errorf("%d bytes", len(text))
		}
	}
}

func watch(t *testing.T, s store.Store) {
	ctx := t.Context()
	g := newGame(t, s, "ann")
	a, b := newJob(t, s, g), newJob(t, s, g)
	changed, stop := s.Watch(a.ID)
	other, stopOther := s.Watch(b.ID)
	defer stopOther()
	for range 3 { // nobody reads: nothing may block
		must(s.AppendEvent(ctx, dreamcore.Event{Job: a.ID, Kind: dreamcore.EventSay, Text: "x"}))(t)
	}
	await(t, changed)
	select {
	case <-changed:
		t.Error("three events left more than one signal")
	case <-other:
		t.Error("woken by another job")
	default:
	}
	stop()
	stop()
	must(s.AppendEvent(ctx, dreamcore.Event{Job: a.ID, Kind: dreamcore.EventSay, Text: "x"}))(t)
	select {
	case <-changed:
		t.Error("woken after stop")
	default:
	}
	ok(t, s.Close())
	await(t, other)
	if _, open := <-other; open {
		t.Error("the watch outlives the store")
	}
	late, stopLate := s.Watch(a.ID)
	defer stopLate()
	await(t, late)
}

func await(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(time.Minute):
		t.Fatal("never woken")
	}
}
