// Package storetest is the suite that every store passes.
package storetest

import (
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/store"
)

// Run tries a store; open returns a fresh, empty one.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, part := range []struct {
		name string
		try  func(*testing.T, store.Store)
	}{
		{"games are kept", games},
		{"creating twice is harmless, another's id is not", createTwice},
		{"the gallery shows what can be played, page by page", gallery},
		{"a removed game is nowhere to be found but by its id", removal},
		{"chats keep their order and say nothing twice", chat},
		{"submit is all or nothing", submit},
		{"an ended job never changes", endedJobs},
		{"a stale attempt cannot write", attempts},
		{"what identifies a job cannot change", identity},
		{"the queue is in order", queue},
		{"events count without gaps, from many writers", gapless},
		{"a step reported twice is one event", stepTwice},
		{"an event's text is bounded", bounded},
		{"watchers are woken and never block", watch},
		{"publishing is one step", publish},
		{"publishing twice is harmless", publishTwice},
		{"what may not be published is not", publishRefused},
		{"cancel and publish: exactly one wins", race},
		{"an older version can be restored", restore},
		{"what is not there is NotFound", nothing},
	} {
		t.Run(part.name, func(t *testing.T) { part.try(t, open(t)) })
	}
}

// moment is a time that every store keeps exactly (microseconds).
var moment = time.Date(2026, 3, 4, 5, 6, 7, 890000, time.UTC)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t *testing.T, err error, code dreamcore.Code) {
	t.Helper()
	if got := dreamcore.CodeOf(err); got != code {
		t.Fatalf("got code %q (%v), want %q", got, err, code)
	}
}

// newGame stores a game of a creator.
func newGame(t *testing.T, s store.Store, creator dreamcore.CreatorID) dreamcore.Game {
	t.Helper()
	g := dreamcore.Game{
		ID: dreamcore.NewGameID(), Creator: creator, Title: "T", Wish: "a cat\x00 <b>", Lang: "ja",
		Created: moment, Updated: moment,
	}
	ok(t, s.CreateGame(t.Context(), g))
	return g
}

// newJob stores a queued job for a game.
func newJob(t *testing.T, s store.Store, g dreamcore.Game) dreamcore.Job {
	t.Helper()
	j := dreamcore.Job{
		ID: dreamcore.NewJobID(), Game: g.ID, Creator: g.Creator, Wish: g.Wish, Lang: g.Lang,
		State: dreamcore.Queued, Created: moment,
	}
	ok(t, s.CreateJob(t.Context(), j))
	return j
}

// running stores a job and takes it to its first attempt.
func running(t *testing.T, s store.Store, g dreamcore.Game) dreamcore.Job {
	t.Helper()
	j := newJob(t, s, g)
	return must(s.UpdateJob(t.Context(), j.ID, 0, func(j *dreamcore.Job) error {
		j.State, j.Attempt = dreamcore.Running, 1
		return nil
	}))(t)
}

func version(j dreamcore.Job, id string) dreamcore.Version {
	return dreamcore.Version{
		ID: dreamcore.VersionID(id), Game: j.Game, Job: j.ID,
		Files: []dreamcore.VersionFile{{Path: "index.html", Hash: "ab", SizeBytes: 3}},
		Evidence: dreamcore.Evidence{
			AgentName: "pi", Pictures: map[string][]byte{"p.png": []byte("not stored here")},
			PictureHashes: map[string]dreamcore.BlobHash{"p.png": "cd"},
		},
	}
}

// published stores a game with one version.
func published(t *testing.T, s store.Store, creator dreamcore.CreatorID) (dreamcore.Game, dreamcore.Version) {
	t.Helper()
	g := newGame(t, s, creator)
	j := running(t, s, g)
	v := must(s.Publish(t.Context(), version(j, "v-"+string(g.ID)), "Flying cat", 1))(t)
	return must(s.Game(t.Context(), g.ID))(t), v
}

func nothing(t *testing.T, s store.Store) {
	ctx := t.Context()
	_, err := s.Game(ctx, "no")
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.Job(ctx, "no")
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.Version(ctx, "no")
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.UpdateJob(ctx, "no", 0, func(*dreamcore.Job) error { return nil })
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.AppendEvent(ctx, dreamcore.Event{Job: "no", Kind: dreamcore.EventSay})
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.Publish(ctx, dreamcore.Version{ID: "v", Job: "no"}, "", 1)
	wantCode(t, err, dreamcore.NotFound)
	wantCode(t, s.RemoveGame(ctx, "no"), dreamcore.NotFound)
	wantCode(t, s.SetCurrent(ctx, "no", "v"), dreamcore.NotFound)
	wantCode(t, s.AddMessage(ctx, dreamcore.Message{Game: "no", Role: "creator"}), dreamcore.NotFound)
	wantCode(t, s.CreateJob(ctx, dreamcore.Job{ID: "j", Game: "no", State: dreamcore.Queued}), dreamcore.NotFound)
	for name, n := range map[string]int{
		"games":    len(must(s.GamesBy(ctx, "no", 10))(t)),
		"messages": len(must(s.Messages(ctx, "no"))(t)),
		"jobs":     len(must(s.JobsOf(ctx, "no", 10))(t)),
		"events":   len(must(s.Events(ctx, "no", 0, 10))(t)),
		"versions": len(must(s.Versions(ctx, "no"))(t)),
		"unended":  must(s.Unended(ctx, "no"))(t),
	} {
		if n != 0 {
			t.Errorf("%d %s of nobody", n, name)
		}
	}
}
