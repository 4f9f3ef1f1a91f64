package studio

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/store/sqlite"
)

func TestCheckWish(t *testing.T) {
	for wish, want := range map[string]string{
		"  a cat flies \n":      "a cat flies",
		"ネコが空を飛ぶゲーム":            "ネコが空を飛ぶゲーム",
		"🐱✈️👨‍👩‍👧":              "🐱✈️👨‍👩‍👧",
		"<b>bold</b>":           "<b>bold</b>",
		"a\x00b\x1b[31mc\u202e": "ab[31mc",
		"two\nlines":            "two\nlines",
	} {
		if got, err := CheckWish(dreamcore.English, wish); err != nil || got != want {
			t.Errorf("%q is taken as %q, %v", wish, got, err)
		}
	}
	for _, wish := range []string{"", " \n\t ", "\u200b\u202e", "\u200b\u200d\u2060", "\ufe0f\u0301", strings.Repeat("x", 20000), strings.Repeat("猫", MaxWishRunes+1), "a\xff"} {
		for _, lang := range dreamcore.Langs {
			_, err := CheckWish(lang, wish)
			if dreamcore.CodeOf(err) != dreamcore.Invalid || !strings.Contains(err.Error(), "(") {
				t.Errorf("%.20q in %s: %v, want what is wrong and what to do", wish, lang, err)
			}
		}
	}
	if _, err := CheckWish(dreamcore.English, strings.Repeat("猫", MaxWishRunes)); err != nil {
		t.Errorf("the longest wish is refused: %v", err)
	}
}

// queue remembers what was queued and abandoned.
type queue struct {
	ids, abandoned []dreamcore.JobID
	err            error
}

func (q *queue) Enqueue(ctx context.Context, id dreamcore.JobID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	q.ids = append(q.ids, id)
	return q.err
}

func (q *queue) Abandon(_ context.Context, id dreamcore.JobID) error {
	q.abandoned = append(q.abandoned, id)
	return nil
}

func (q *queue) Cancel(context.Context, dreamcore.JobID) error { return nil }

func open(t *testing.T) (*Studio, *sqlite.Store, *queue) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	q := &queue{}
	return New(Config{Store: s, Queue: q, Canceller: q, PerCreator: 2, Queued: 4, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}), s, q
}

func TestMakeStoresThenQueues(t *testing.T) {
	st, s, q := open(t)
	game, job, err := st.Make(t.Context(), "ann", "一只猫", dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Job(t.Context(), job.ID)
	if err != nil || got.State != dreamcore.Queued || got.Lang != dreamcore.Chinese || got.Game != game.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if len(q.ids) != 1 || q.ids[0] != job.ID {
		t.Errorf("queued %v", q.ids)
	}
	msgs, err := s.Messages(t.Context(), game.ID)
	if err != nil || len(msgs) != 1 || msgs[0].Text != "一只猫" {
		t.Errorf("the chat is %v, %v", msgs, err)
	}
}

func TestAnothersGameDoesNotExist(t *testing.T) {
	st, _, _ := open(t)
	game, job, err := st.Make(t.Context(), "ann", "a cat", dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Change(t.Context(), "bob", game.ID, "faster", dreamcore.English); dreamcore.CodeOf(err) != dreamcore.NotFound {
		t.Errorf("change: %v", err)
	}
	if err := st.Cancel(t.Context(), "bob", job.ID); dreamcore.CodeOf(err) != dreamcore.NotFound {
		t.Errorf("cancel: %v", err)
	}
	if err := st.Restore(t.Context(), "bob", game.ID, "v"); dreamcore.CodeOf(err) != dreamcore.NotFound {
		t.Errorf("restore: %v", err)
	}
}

func TestOneChangeAtATimeAndSoManyGames(t *testing.T) {
	st, _, _ := open(t)
	game, _, err := st.Make(t.Context(), "ann", "a cat", dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Change(t.Context(), "ann", game.ID, "faster", dreamcore.Japanese); dreamcore.CodeOf(err) != dreamcore.Conflict {
		t.Errorf("a change while the game is being made: %v", err)
	}
	if _, _, err := st.Make(t.Context(), "ann", "a dog", dreamcore.English); err != nil {
		t.Fatal(err)
	}
	if _, _, err := st.Make(t.Context(), "ann", "a bird", dreamcore.English); dreamcore.CodeOf(err) != dreamcore.Refused {
		t.Errorf("a third unfinished game: %v", err)
	}
	if _, _, err := st.Make(t.Context(), "bob", "a bird", dreamcore.English); err != nil {
		t.Errorf("another creator: %v", err)
	}
}

func TestRequeueFindsWhatTheQueueNeverSaw(t *testing.T) {
	st, _, q := open(t)
	_, job, err := st.Make(t.Context(), "ann", "a cat", dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	q.ids = nil // as if the host had died between storing and queueing
	if err := st.Requeue(t.Context()); err != nil || len(q.ids) != 1 || q.ids[0] != job.ID {
		t.Errorf("queued %v, %v", q.ids, err)
	}
}

// leaving is a store whose client goes away once its job is stored.
type leaving struct {
	*sqlite.Store
	leave context.CancelFunc
}

func (l leaving) Submit(ctx context.Context, g *dreamcore.Game, j dreamcore.Job, m dreamcore.Message) error {
	defer l.leave()
	return l.Store.Submit(ctx, g, j, m)
}

func TestAStoredJobIsQueuedThoughTheClientLeaves(t *testing.T) {
	st, s, q := open(t)
	ctx, leave := context.WithCancel(t.Context())
	st.cfg.Store = leaving{s, leave}
	if _, _, err := st.Make(ctx, "ann", "a cat", dreamcore.English); err != nil || len(q.ids) != 1 {
		t.Errorf("queued %v, %v", q.ids, err)
	}
}

func TestAJobWithoutStepsIsAbandoned(t *testing.T) {
	st, _, q := open(t)
	_, job, err := st.Make(t.Context(), "ann", "a cat", dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	q.err = dreamcore.Errorf(dreamcore.Conflict, "durable", "ended")
	if err := st.Requeue(t.Context()); err != nil || len(q.abandoned) != 1 || q.abandoned[0] != job.ID {
		t.Errorf("abandoned %v, %v", q.abandoned, err)
	}
	q.err = dreamcore.Errorf(dreamcore.Unavailable, "durable", "no disk")
	if _, _, err := st.Make(t.Context(), "bob", "a dog", dreamcore.English); err == nil || len(q.abandoned) != 2 {
		t.Errorf("abandoned %v, %v", q.abandoned, err)
	}
}

func TestTheQueueHasAnEnd(t *testing.T) {
	st, _, _ := open(t)
	for _, who := range []dreamcore.CreatorID{"a", "b", "c", "d"} {
		if _, _, err := st.Make(t.Context(), who, "a cat", dreamcore.English); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := st.Make(t.Context(), "e", "a cat", dreamcore.Chinese); dreamcore.CodeOf(err) != dreamcore.Unavailable {
		t.Errorf("a fifth wish in a queue for four: %v", err)
	}
}
