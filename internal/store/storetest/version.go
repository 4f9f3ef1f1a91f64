package storetest

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	"dreamcore/internal/store"
)

func publish(t *testing.T, s store.Store) {
	ctx := t.Context()
	g, v := published(t, s, "ann")
	if g.Current != v.ID || g.Title != "Flying cat" || !g.Updated.After(moment) {
		t.Errorf("%+v", g)
	}
	if j := must(s.Job(ctx, v.Job))(t); j.State != dreamcore.Published || j.Version != v.ID || j.Ended.IsZero() {
		t.Errorf("%+v", j)
	}
	want := version(dreamcore.Job{ID: v.Job, Game: g.ID}, string(v.ID))
	want.Number, want.Created, want.Evidence.Pictures = 1, v.Created, nil
	if diff := cmp.Diff(want, must(s.Version(ctx, v.ID))(t)); diff != "" {
		t.Error(diff)
	}
	second := must(s.Publish(ctx, version(running(t, s, g), "v2"), "", 1))(t)
	if second.Number != 2 {
		t.Errorf("number %d", second.Number)
	}
	all := must(s.Versions(ctx, g.ID))(t)
	if len(all) != 2 || all[0].ID != "v2" || all[1].ID != v.ID {
		t.Errorf("%v", all)
	}
}

func publishTwice(t *testing.T, s store.Store) {
	ctx := t.Context()
	g, v := published(t, s, "ann")
	again := must(s.Publish(ctx, version(dreamcore.Job{ID: v.Job, Game: g.ID}, string(v.ID)), "other title", 1))(t)
	v.Evidence.Pictures = nil // never stored
	if diff := cmp.Diff(v, again); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(g, must(s.Game(ctx, g.ID))(t)); diff != "" {
		t.Error(diff)
	}
	// The job is over: another version cannot come from it.
	_, err := s.Publish(ctx, version(dreamcore.Job{ID: v.Job, Game: g.ID}, "other"), "t", 1)
	wantCode(t, err, dreamcore.Conflict)
	if n := len(must(s.Versions(ctx, g.ID))(t)); n != 1 {
		t.Errorf("%d versions", n)
	}
}

func publishRefused(t *testing.T, s store.Store) {
	ctx := t.Context()
	g, first := published(t, s, "ann")
	queued := newJob(t, s, g)
	_, err := s.Publish(ctx, version(queued, "v2"), "t", 0)
	wantCode(t, err, dreamcore.Conflict)
	cancelled := running(t, s, g)
	must(s.UpdateJob(ctx, cancelled.ID, 0, to(dreamcore.Cancelled)))(t)
	_, err = s.Publish(ctx, version(cancelled, "v2"), "t", 1)
	wantCode(t, err, dreamcore.Conflict)
	live := running(t, s, g)
	for _, bad := range []dreamcore.Version{version(live, ""), version(dreamcore.Job{ID: live.ID, Game: "other"}, "v2")} {
		_, err = s.Publish(ctx, bad, "t", 1)
		wantCode(t, err, dreamcore.Invalid)
	}
	if now := must(s.Game(ctx, g.ID))(t); now.Current != first.ID {
		t.Error("the former version is no longer current")
	}
	if n := len(must(s.Versions(ctx, g.ID))(t)); n != 1 {
		t.Errorf("%d versions", n)
	}
}

func race(t *testing.T, s store.Store) {
	ctx := t.Context()
	g := newGame(t, s, "ann")
	for range 10 {
		j := running(t, s, g)
		var perr, cerr error
		var wg sync.WaitGroup
		wg.Go(func() { _, perr = s.Publish(ctx, version(j, "v-"+string(j.ID)), "t", 1) })
		wg.Go(func() { _, cerr = s.UpdateJob(ctx, j.ID, 0, to(dreamcore.Cancelled)) })
		wg.Wait()
		if (perr == nil) == (cerr == nil) {
			t.Fatalf("publish: %v, cancel: %v", perr, cerr)
		}
		now, current := must(s.Job(ctx, j.ID))(t), must(s.Game(ctx, g.ID))(t).Current
		if isCurrent := current == dreamcore.VersionID("v-"+string(j.ID)); isCurrent != (now.State == dreamcore.Published) || isCurrent != (perr == nil) {
			t.Fatalf("the job is %s and the current version %s", now.State, current)
		}
	}
}

func restore(t *testing.T, s store.Store) {
	ctx := t.Context()
	g, first := published(t, s, "ann")
	second := must(s.Publish(ctx, version(running(t, s, g), "v2"), "t", 1))(t)
	for _, v := range []dreamcore.Version{first, second, second, first} {
		ok(t, s.SetCurrent(ctx, g.ID, v.ID))
		if now := must(s.Game(ctx, g.ID))(t); now.Current != v.ID {
			t.Errorf("current is %s", now.Current)
		}
	}
	if n := len(must(s.Versions(ctx, g.ID))(t)); n != 2 {
		t.Errorf("restoring lost a version: %d left", n)
	}
	other, _ := published(t, s, "bob")
	wantCode(t, s.SetCurrent(ctx, other.ID, first.ID), dreamcore.NotFound)
	// What comes next counts on from the newest, not from the restored one.
	third := must(s.Publish(ctx, version(running(t, s, g), "v3"), "t", 1))(t)
	if third.Number != 3 {
		t.Errorf("number %d", third.Number)
	}
}
