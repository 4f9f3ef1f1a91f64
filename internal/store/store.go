// Package store owns how games, versions, jobs, chats and events persist: the
// interfaces, and the rules that each implementation keeps. The rules are tried
// by storetest; sqlite implements them.
//
// Errors are *dreamcore.Error or wrap one: NotFound for what is not there,
// Conflict for what its state forbids, Invalid for what makes no sense.
//
// Every write may be run twice: a step of a job that was interrupted by a crash
// is run again with the same arguments, and that must do no harm.
package store

import (
	"context"

	"dreamcore"
)

// Store is everything. A consumer declares the few methods that it needs.
type Store interface {
	Games
	Jobs
	Events
	Versions
	// Close ends the store; watchers are woken for the last time.
	Close() error
}

// Games keeps games and their chats.
type Games interface {
	// CreateGame stores a new game. The same game again is harmless; another
	// creator's game under that id is Conflict.
	CreateGame(ctx context.Context, g dreamcore.Game) error
	// Game returns a game, also one that was removed.
	Game(ctx context.Context, id dreamcore.GameID) (dreamcore.Game, error)
	// GamesBy returns a creator's games, the latest change first, at most limit.
	GamesBy(ctx context.Context, creator dreamcore.CreatorID, limit int) ([]dreamcore.Game, error)
	// Gallery returns games that can be played, the latest change first, at most
	// limit. cursor is "" for the first page and otherwise the next of the page
	// before; next is "" on the last page.
	Gallery(ctx context.Context, limit int, cursor string) (games []dreamcore.Game, next string, err error)
	// RemoveGame takes a game down: it leaves the gallery and its creator's
	// list, and Game tells when. Nothing of it is deleted.
	RemoveGame(ctx context.Context, id dreamcore.GameID) error
	// AddMessage appends to a game's chat. The same role saying the same text
	// for the same job is one message.
	AddMessage(ctx context.Context, m dreamcore.Message) error
	// Messages returns a game's chat, oldest first.
	Messages(ctx context.Context, game dreamcore.GameID) ([]dreamcore.Message, error)
}

// Jobs keeps jobs and guards their states: queued, running, then exactly one of
// published, failed, cancelled. Running may go back to queued (a restarted host
// runs it afresh). An ended job never changes.
type Jobs interface {
	// Submit stores, in one step, a job with the message that asks for it, and
	// with its game when that is new (nil: the game exists). So a crash leaves
	// neither a game without a job nor a job without a message.
	Submit(ctx context.Context, g *dreamcore.Game, j dreamcore.Job, m dreamcore.Message) error
	// CreateJob stores a queued job alone.
	CreateJob(ctx context.Context, j dreamcore.Job) error
	Job(ctx context.Context, id dreamcore.JobID) (dreamcore.Job, error)
	// UpdateJob changes a job in one step and returns it as stored. attempt is
	// the generation that the caller believes to be current; another one is
	// Conflict, so that a stale worker cannot write; 0 does not ask. change may
	// raise Attempt, never lower it, and may not touch what identifies the job.
	// Started and Ended are set by the store when the state says so. Asking for
	// the end that the job already has is harmless and changes nothing; any
	// other change of an ended job is Conflict. A job becomes published by
	// Publish only.
	UpdateJob(ctx context.Context, id dreamcore.JobID, attempt int, change func(*dreamcore.Job) error) (dreamcore.Job, error)
	// JobsIn returns the jobs in these states, oldest first.
	JobsIn(ctx context.Context, states ...dreamcore.JobState) ([]dreamcore.Job, error)
	// JobsOf returns a game's jobs, newest first, at most limit.
	JobsOf(ctx context.Context, game dreamcore.GameID, limit int) ([]dreamcore.Job, error)
	// Unended counts a creator's jobs that are queued or running.
	Unended(ctx context.Context, creator dreamcore.CreatorID) (int, error)
	// Ahead counts the queued jobs that are older than this one.
	Ahead(ctx context.Context, id dreamcore.JobID) (int, error)
}

// MaxEvents bounds the events of one job, and MaxEventTextBytes the text of
// one. What an agent says is untrusted, and that includes how much. Steps and
// states are few and are taken beyond the bound.
const (
	MaxEvents         = 20000
	MaxEventTextBytes = 8 << 10
)

// Events keeps what happened in each job.
type Events interface {
	// AppendEvent stores an event and returns it with its Seq: 1, 2, 3 ... within
	// the job, without a gap. A state or step that equals the last of its kind is
	// the same one reported twice, and is returned instead. Text beyond
	// MaxEventTextBytes is cut with a mark; events beyond MaxEvents are Refused.
	AppendEvent(ctx context.Context, e dreamcore.Event) (dreamcore.Event, error)
	// Events returns those with Seq > after, in order, at most limit.
	Events(ctx context.Context, job dreamcore.JobID, after int64, limit int) ([]dreamcore.Event, error)
	// Watch returns a channel that receives after events of the job were stored
	// by this process, and is buffered by one: a slow watcher misses signals, not
	// events, and costs nothing. Read Events after each signal, and once before
	// the first. It is closed when the store is. stop ends the watch.
	Watch(job dreamcore.JobID) (changed <-chan struct{}, stop func())
}

// Versions keeps published versions. They never change.
type Versions interface {
	// Publish makes v the current version of its game, in one step: v is stored
	// with the next number, the game gets it as Current and title as Title, and
	// the job becomes published. It is Conflict unless the job runs at this
	// attempt. Publishing the same version for the same job again is harmless
	// and returns what is stored.
	Publish(ctx context.Context, v dreamcore.Version, title string, attempt int) (dreamcore.Version, error)
	Version(ctx context.Context, id dreamcore.VersionID) (dreamcore.Version, error)
	// Versions returns all of a game, the newest number first.
	Versions(ctx context.Context, game dreamcore.GameID) ([]dreamcore.Version, error)
	// SetCurrent makes an older (or newer) version of the game the current one.
	SetCurrent(ctx context.Context, game dreamcore.GameID, version dreamcore.VersionID) error
}
