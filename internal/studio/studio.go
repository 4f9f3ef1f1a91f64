// Package studio is what a creator can do: wish for a game, ask for a change,
// cancel, go back to a former version. It checks who owns what and how much,
// stores, and queues; the job package does the work.
package studio

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"dreamcore"
	"dreamcore/internal/text"
)

// MaxWishRunes bounds a wish; longer ones drown what is asked for.
const MaxWishRunes = 2000

// Store is the part of the store that the studio needs.
type Store interface {
	Submit(ctx context.Context, g *dreamcore.Game, j dreamcore.Job, m dreamcore.Message) error
	Game(ctx context.Context, id dreamcore.GameID) (dreamcore.Game, error)
	Job(ctx context.Context, id dreamcore.JobID) (dreamcore.Job, error)
	JobsIn(ctx context.Context, states ...dreamcore.JobState) ([]dreamcore.Job, error)
	Unended(ctx context.Context, creator dreamcore.CreatorID) (int, error)
	Version(ctx context.Context, id dreamcore.VersionID) (dreamcore.Version, error)
	SetCurrent(ctx context.Context, game dreamcore.GameID, version dreamcore.VersionID) error
	AppendEvent(ctx context.Context, e dreamcore.Event) (dreamcore.Event, error)
}

// Queue makes a stored job durable.
type Queue interface {
	// Enqueue is harmless twice; code Conflict when the job's steps have ended.
	Enqueue(ctx context.Context, id dreamcore.JobID) error
}

// Canceller ends a job wherever it stands.
type Canceller interface {
	Cancel(ctx context.Context, id dreamcore.JobID) error
	// Abandon fails a job whose steps will never run.
	Abandon(ctx context.Context, id dreamcore.JobID) error
}

// Config is what a Studio needs.
type Config struct {
	Store      Store
	Queue      Queue
	Canceller  Canceller
	PerCreator int // unfinished jobs of one creator
	Queued     int // jobs that wait, of all creators
	Log        *slog.Logger
}

// Studio serves creators.
type Studio struct{ cfg Config }

// New returns a Studio.
func New(cfg Config) *Studio { return &Studio{cfg} }

// CheckWish returns the wish as it is stored, or an error that says in lang what
// is wrong with it. Any words are a wish; what they ask for is the agent's
// matter, inside the sandbox.
func CheckWish(lang dreamcore.Lang, wish string) (string, error) {
	const op = "studio.wish"
	refuse := func(key string, args ...string) error {
		return &dreamcore.Error{Code: dreamcore.Invalid, Op: op, Msg: text.T(lang, key, args...), Hint: text.T(lang, key+"_hint")}
	}
	if !utf8.ValidString(wish) {
		return "", refuse("studio.wish_broken")
	}
	// Control and invisible characters would hide from the reader what is asked.
	wish = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r):
			return -1
		// The joiner and the variation selectors belong to emoji.
		case unicode.Is(unicode.Cf, r) && r != 0x200d:
			return -1
		}
		return r
	}, wish)
	wish = strings.TrimSpace(wish)
	// What only joins or marks other letters says nothing by itself.
	if !strings.ContainsFunc(wish, func(r rune) bool { return !unicode.In(r, unicode.Cf, unicode.M, unicode.Z, unicode.C) }) {
		return "", refuse("studio.wish_empty")
	}
	if utf8.RuneCountInString(wish) > MaxWishRunes {
		return "", refuse("studio.wish_long", "max", "2000")
	}
	return wish, nil
}

// Make stores a new game with its first job and queues it.
func (s *Studio) Make(ctx context.Context, creator dreamcore.CreatorID, wish string, lang dreamcore.Lang) (dreamcore.Game, dreamcore.Job, error) {
	wish, err := s.admit(ctx, creator, wish, lang)
	if err != nil {
		return dreamcore.Game{}, dreamcore.Job{}, err
	}
	now := time.Now().UTC()
	game := dreamcore.Game{ID: dreamcore.NewGameID(), Creator: creator, Wish: wish, Lang: dreamcore.DetectLang(wish), Created: now, Updated: now}
	job, err := s.submit(ctx, &game, game, "", wish)
	return game, job, err
}

// Change queues a change of the current version of a game.
func (s *Studio) Change(ctx context.Context, creator dreamcore.CreatorID, id dreamcore.GameID, wish string, lang dreamcore.Lang) (dreamcore.Job, error) {
	game, err := s.owned(ctx, creator, id)
	if err != nil {
		return dreamcore.Job{}, err
	}
	if wish, err = s.admit(ctx, creator, wish, lang); err != nil {
		return dreamcore.Job{}, err
	}
	// One change at a time: a second one would start from a version that the
	// first is about to replace, and undo it.
	busy, err := s.cfg.Store.JobsIn(ctx, dreamcore.Queued, dreamcore.Running)
	if err != nil {
		return dreamcore.Job{}, err
	}
	for _, j := range busy {
		if j.Game == id {
			return dreamcore.Job{}, &dreamcore.Error{Code: dreamcore.Conflict, Op: "studio.change", Msg: text.T(lang, "studio.busy"), Hint: text.T(lang, "studio.busy_hint")}
		}
	}
	return s.submit(ctx, nil, game, game.Current, wish)
}

// Cancel ends a creator's job.
func (s *Studio) Cancel(ctx context.Context, creator dreamcore.CreatorID, id dreamcore.JobID) error {
	job, err := s.cfg.Store.Job(ctx, id)
	if err != nil {
		return err
	}
	if job.Creator != creator {
		return dreamcore.Errorf(dreamcore.NotFound, "studio.cancel", "there is no job %s", id)
	}
	return s.cfg.Canceller.Cancel(ctx, id)
}

// Restore makes a former version the current one. Later versions are kept.
func (s *Studio) Restore(ctx context.Context, creator dreamcore.CreatorID, id dreamcore.GameID, version dreamcore.VersionID) error {
	if _, err := s.owned(ctx, creator, id); err != nil {
		return err
	}
	v, err := s.cfg.Store.Version(ctx, version)
	if err != nil {
		return err
	}
	if v.Game != id {
		return dreamcore.Errorf(dreamcore.NotFound, "studio.restore", "the game has no version %s", version)
	}
	return s.cfg.Store.SetCurrent(ctx, id, version)
}

// owned returns a game of this creator; another's does not exist for them.
func (s *Studio) owned(ctx context.Context, creator dreamcore.CreatorID, id dreamcore.GameID) (dreamcore.Game, error) {
	game, err := s.cfg.Store.Game(ctx, id)
	if err != nil {
		return game, err
	}
	if game.Creator != creator || !game.Removed.IsZero() {
		return dreamcore.Game{}, dreamcore.Errorf(dreamcore.NotFound, "studio", "there is no game %s", id)
	}
	return game, nil
}

func (s *Studio) admit(ctx context.Context, creator dreamcore.CreatorID, wish string, lang dreamcore.Lang) (string, error) {
	wish, err := CheckWish(lang, wish)
	if err != nil {
		return "", err
	}
	// Anybody can be a new creator, so the queue as a whole has an end too.
	waiting, err := s.cfg.Store.JobsIn(ctx, dreamcore.Queued)
	if err != nil {
		return "", err
	}
	if len(waiting) >= s.cfg.Queued {
		s.cfg.Log.Warn("a wish was refused", "decision", "refuse", "reason", "queue_full", "queued", len(waiting))
		return "", &dreamcore.Error{Code: dreamcore.Unavailable, Op: "studio", Msg: text.T(lang, "studio.full"), Hint: text.T(lang, "studio.full_hint")}
	}
	n, err := s.cfg.Store.Unended(ctx, creator)
	if err != nil {
		return "", err
	}
	if n >= s.cfg.PerCreator {
		s.cfg.Log.Info("a wish was refused", "decision", "refuse", "reason", "too_many_unfinished", "unfinished", n)
		return "", &dreamcore.Error{Code: dreamcore.Refused, Op: "studio", Msg: text.T(lang, "studio.too_many"), Hint: text.T(lang, "studio.too_many_hint")}
	}
	return wish, nil
}

func (s *Studio) submit(ctx context.Context, newGame *dreamcore.Game, game dreamcore.Game, base dreamcore.VersionID, wish string) (dreamcore.Job, error) {
	now := time.Now().UTC()
	job := dreamcore.Job{
		ID: dreamcore.NewJobID(), Game: game.ID, Creator: game.Creator, Wish: wish, Lang: dreamcore.DetectLang(wish),
		Base: base, State: dreamcore.Queued, Created: now,
	}
	msg := dreamcore.Message{Game: game.ID, Job: job.ID, Role: "creator", Text: wish, Created: now}
	if err := s.cfg.Store.Submit(ctx, newGame, job, msg); err != nil {
		return job, err
	}
	// Stored is promised: that the browser goes away must not keep it from the queue.
	ctx = context.WithoutCancel(ctx)
	e := dreamcore.Event{Job: job.ID, Kind: dreamcore.EventState, Text: string(dreamcore.Queued), Key: "job.queued", Time: now}
	if _, err := s.cfg.Store.AppendEvent(ctx, e); err != nil {
		s.cfg.Log.Error("an event was lost", "job_id", job.ID, "kind", e.Kind, "err", err)
	}
	s.cfg.Log.Info("job queued", "decision", "queue", "job_id", job.ID, "game_id", game.ID, "lang", job.Lang, "change", base != "")
	return job, s.enqueue(ctx, job.ID)
}

// enqueue queues a stored job; one that can never be queued fails, so that it
// does not block its game.
func (s *Studio) enqueue(ctx context.Context, id dreamcore.JobID) error {
	err := s.cfg.Queue.Enqueue(ctx, id)
	if err == nil {
		return nil
	}
	s.cfg.Log.Error("job could not be queued", "job_id", id, "decision", dreamcore.FailedJob, "err", err)
	return errors.Join(err, s.cfg.Canceller.Abandon(ctx, id))
}

// Requeue queues what was stored but may not have reached the queue when the
// host died in between. Queueing twice is harmless.
func (s *Studio) Requeue(ctx context.Context) error {
	jobs, err := s.cfg.Store.JobsIn(ctx, dreamcore.Queued, dreamcore.Running)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		s.cfg.Log.Info("unfinished job found at start", "decision", "go on", "job_id", j.ID, "state", j.State)
		err := s.cfg.Queue.Enqueue(ctx, j.ID)
		switch {
		case err == nil:
		case dreamcore.CodeOf(err) == dreamcore.Conflict:
			s.cfg.Log.Error("unfinished job has no steps left", "job_id", j.ID, "decision", dreamcore.FailedJob, "err", err)
			if err := s.cfg.Canceller.Abandon(ctx, j.ID); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return nil
}
