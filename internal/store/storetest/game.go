package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	"dreamcore/internal/store"
)

func games(t *testing.T, s store.Store) {
	g := newGame(t, s, "ann")
	if diff := cmp.Diff(g, must(s.Game(t.Context(), g.ID))(t)); diff != "" {
		t.Error(diff)
	}
	older := g
	older.ID, older.Updated = dreamcore.NewGameID(), moment.Add(-time.Hour)
	ok(t, s.CreateGame(t.Context(), older))
	newGame(t, s, "bob")
	if diff := cmp.Diff([]dreamcore.Game{g, older}, must(s.GamesBy(t.Context(), "ann", 10))(t)); diff != "" {
		t.Error(diff)
	}
	if n := len(must(s.GamesBy(t.Context(), "ann", 1))(t)); n != 1 {
		t.Errorf("%d games beyond the limit of 1", n)
	}
}

func createTwice(t *testing.T, s store.Store) {
	g, _ := published(t, s, "ann")
	again := g
	again.Title, again.Current = "other", ""
	ok(t, s.CreateGame(t.Context(), again))
	if diff := cmp.Diff(g, must(s.Game(t.Context(), g.ID))(t)); diff != "" {
		t.Errorf("creating again changed the game: %s", diff)
	}
	again.Creator = "bob"
	wantCode(t, s.CreateGame(t.Context(), again), dreamcore.Conflict)
	wantCode(t, s.CreateGame(t.Context(), dreamcore.Game{}), dreamcore.Invalid)

	j := newJob(t, s, g)
	ok(t, s.CreateJob(t.Context(), j))
	j.Wish = "another"
	wantCode(t, s.CreateJob(t.Context(), j), dreamcore.Conflict)
	j.ID, j.Creator = dreamcore.NewJobID(), "bob"
	wantCode(t, s.CreateJob(t.Context(), j), dreamcore.NotFound) // bob is not told that the game is there
	j.Creator, j.State = "ann", dreamcore.Running
	wantCode(t, s.CreateJob(t.Context(), j), dreamcore.Invalid)
}

func gallery(t *testing.T, s store.Store) {
	var want []dreamcore.GameID
	for range 5 {
		g, _ := published(t, s, "ann")
		want = append(want, g.ID)
	}
	newGame(t, s, "ann") // nothing to play yet
	// Those that were published in the same microsecond come in any order, but
	// each comes once.
	var got []dreamcore.GameID
	cursor := ""
	for pages := 0; ; pages++ {
		list, next, err := s.Gallery(t.Context(), 2, cursor)
		ok(t, err)
		for i, g := range list {
			got = append(got, g.ID)
			if i > 0 && g.Updated.After(list[i-1].Updated) {
				t.Error("not the latest first")
			}
		}
		if cursor = next; next == "" {
			if pages != 2 {
				t.Errorf("%d pages", pages+1)
			}
			break
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"x", "1", ".", "'; DROP TABLE games", "1e3.a"} {
		_, _, err := s.Gallery(t.Context(), 2, bad)
		wantCode(t, err, dreamcore.Invalid)
	}
	_, _, err := s.Gallery(t.Context(), 0, "")
	wantCode(t, err, dreamcore.Invalid)
}

func removal(t *testing.T, s store.Store) {
	g, _ := published(t, s, "ann")
	ok(t, s.RemoveGame(t.Context(), g.ID))
	first := must(s.Game(t.Context(), g.ID))(t)
	if first.Removed.IsZero() {
		t.Error("the game does not say that it was removed")
	}
	ok(t, s.RemoveGame(t.Context(), g.ID))
	if again := must(s.Game(t.Context(), g.ID))(t); !again.Removed.Equal(first.Removed) {
		t.Error("removing again changed when")
	}
	list, _, err := s.Gallery(t.Context(), 10, "")
	ok(t, err)
	if mine := must(s.GamesBy(t.Context(), "ann", 10))(t); len(list)+len(mine) != 0 {
		t.Errorf("still listed: %v %v", list, mine)
	}
}

func chat(t *testing.T, s store.Store) {
	g := newGame(t, s, "ann")
	var want []dreamcore.Message
	for i := range 4 {
		m := dreamcore.Message{Game: g.ID, Job: "j1", Role: "creator", Text: fmt.Sprint("m", i), Created: moment}
		if i%2 == 1 {
			m.Role = "dreamcore"
		}
		want = append(want, m)
		ok(t, s.AddMessage(t.Context(), m))
		m.Created = moment.Add(time.Minute)
		ok(t, s.AddMessage(t.Context(), m)) // a step that runs twice
	}
	again := want[0]
	again.Job = "j2" // the same words, meant again
	want = append(want, again)
	ok(t, s.AddMessage(t.Context(), again))
	if diff := cmp.Diff(want, must(s.Messages(t.Context(), g.ID))(t)); diff != "" {
		t.Error(diff)
	}
	again.Role = "admin"
	wantCode(t, s.AddMessage(t.Context(), again), dreamcore.Invalid)
}

func submit(t *testing.T, s store.Store) {
	ctx := t.Context()
	g := dreamcore.Game{ID: dreamcore.NewGameID(), Creator: "ann", Wish: "w", Lang: "en", Created: moment, Updated: moment}
	j := dreamcore.Job{ID: dreamcore.NewJobID(), Game: g.ID, Creator: "ann", Wish: "w", State: dreamcore.Queued, Created: moment}
	m := dreamcore.Message{Game: g.ID, Job: j.ID, Role: "creator", Text: "w", Created: moment}
	bad := m
	bad.Role = "nobody"
	wantCode(t, s.Submit(ctx, &g, j, bad), dreamcore.Invalid)
	_, err := s.Game(ctx, g.ID)
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.Job(ctx, j.ID)
	wantCode(t, err, dreamcore.NotFound)
	for range 2 {
		ok(t, s.Submit(ctx, &g, j, m))
	}
	if n := len(must(s.Messages(ctx, g.ID))(t)); n != 1 {
		t.Errorf("%d messages", n)
	}
	if n := len(must(s.JobsOf(ctx, g.ID, 10))(t)); n != 1 {
		t.Errorf("%d jobs", n)
	}
	next := j
	next.ID = dreamcore.NewJobID()
	ok(t, s.Submit(ctx, nil, next, m))
}
