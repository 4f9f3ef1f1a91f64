package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"dreamcore"
	"dreamcore/internal/store"
)

// scanJob reads the document; the columns beside it are for finding only and
// are written from it.
func scanJob(row scanner) (dreamcore.Job, error) {
	var j dreamcore.Job
	var doc []byte
	if err := row.Scan(&doc); err != nil {
		return j, err
	}
	if err := json.Unmarshal(doc, &j); err != nil {
		return j, fmt.Errorf("decode job: %w", err)
	}
	return j, nil
}

func findJob(ctx context.Context, q querier, id dreamcore.JobID) (dreamcore.Job, error) {
	j, err := scanJob(q.QueryRowContext(ctx, `SELECT doc FROM jobs WHERE id = ?`, id))
	return j, missing(err, "job", string(id))
}

// Submit implements store.Jobs.
func (s *Store) Submit(ctx context.Context, g *dreamcore.Game, j dreamcore.Job, m dreamcore.Message) error {
	return s.tx(ctx, "submit job", func(tx *sql.Tx) error {
		if g != nil {
			if err := s.createGame(ctx, tx, *g); err != nil {
				return err
			}
		}
		if err := s.createJob(ctx, tx, j); err != nil {
			return err
		}
		return s.addMessage(ctx, tx, m)
	})
}

// CreateJob implements store.Jobs.
func (s *Store) CreateJob(ctx context.Context, j dreamcore.Job) error {
	return s.tx(ctx, "create job", func(tx *sql.Tx) error { return s.createJob(ctx, tx, j) })
}

func (s *Store) createJob(ctx context.Context, tx *sql.Tx, j dreamcore.Job) error {
	if j.ID == "" || j.State != dreamcore.Queued {
		return dreamcore.Errorf(dreamcore.Invalid, "store.job", "a new job has an id and is queued, not %q", j.State)
	}
	g, err := findGame(ctx, tx, j.Game)
	if err != nil {
		return err
	}
	if g.Creator != j.Creator {
		return dreamcore.Errorf(dreamcore.NotFound, "store.job", "there is no game %q", j.Game)
	}
	if j.Created.IsZero() {
		j.Created = s.now()
	}
	j.Created = moment(micros(j.Created))
	doc, err := json.Marshal(j)
	if err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO jobs (id, game, creator, state, attempt, created, doc) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO NOTHING`, j.ID, j.Game, j.Creator, j.State, j.Attempt, micros(j.Created), string(doc))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	old, err := findJob(ctx, tx, j.ID)
	if err != nil {
		return err
	}
	if old.Game != j.Game || old.Creator != j.Creator || old.Wish != j.Wish || old.Base != j.Base {
		return dreamcore.Errorf(dreamcore.Conflict, "store.job", "job %s exists already", j.ID)
	}
	return nil
}

// Job implements store.Jobs.
func (s *Store) Job(ctx context.Context, id dreamcore.JobID) (dreamcore.Job, error) {
	j, err := findJob(ctx, s.read, id)
	if err != nil {
		return dreamcore.Job{}, fmt.Errorf("read job: %w", err)
	}
	return j, nil
}

// UpdateJob implements store.Jobs.
func (s *Store) UpdateJob(ctx context.Context, id dreamcore.JobID, attempt int, change func(*dreamcore.Job) error) (dreamcore.Job, error) {
	var out dreamcore.Job
	err := s.tx(ctx, "update job", func(tx *sql.Tx) error {
		j, err := findJob(ctx, tx, id)
		if err != nil {
			return err
		}
		next, same, err := store.Change(j, attempt, moment(micros(s.now())), change)
		if err != nil {
			return err
		}
		if out = next; same {
			return nil
		}
		return writeJob(ctx, tx, next)
	})
	if err != nil {
		return dreamcore.Job{}, err
	}
	s.Wake(id) // an end is news to those who watch, also before its event is stored
	return out, nil
}

func writeJob(ctx context.Context, tx *sql.Tx, j dreamcore.Job) error {
	doc, err := json.Marshal(j)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE jobs SET state = ?, attempt = ?, doc = ? WHERE id = ?`, j.State, j.Attempt, string(doc), j.ID)
	return err
}

// JobsIn implements store.Jobs.
func (s *Store) JobsIn(ctx context.Context, states ...dreamcore.JobState) ([]dreamcore.Job, error) {
	if len(states) == 0 {
		return nil, nil
	}
	args := make([]any, len(states))
	for i, st := range states {
		args[i] = st
	}
	jobs, err := collect(ctx, s.read, scanJob, `SELECT doc FROM jobs WHERE state IN (?`+
		strings.Repeat(`, ?`, len(states)-1)+`) ORDER BY seq`, args...)
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	return jobs, nil
}

// JobsOf implements store.Jobs.
func (s *Store) JobsOf(ctx context.Context, game dreamcore.GameID, limit int) ([]dreamcore.Job, error) {
	jobs, err := collect(ctx, s.read, scanJob, `SELECT doc FROM jobs WHERE game = ? ORDER BY seq DESC LIMIT ?`, game, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read a game's jobs: %w", err)
	}
	return jobs, nil
}

// Unended implements store.Jobs.
func (s *Store) Unended(ctx context.Context, creator dreamcore.CreatorID) (int, error) {
	var n int
	err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM jobs WHERE creator = ? AND state IN (?, ?)`,
		creator, dreamcore.Queued, dreamcore.Running).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count a creator's jobs: %w", err)
	}
	return n, nil
}

// Ahead implements store.Jobs.
func (s *Store) Ahead(ctx context.Context, id dreamcore.JobID) (int, error) {
	var n int
	err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM jobs WHERE state = ? AND seq < (SELECT seq FROM jobs WHERE id = ?)`,
		dreamcore.Queued, id).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the queue: %w", err)
	}
	return n, nil
}
