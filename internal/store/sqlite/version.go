package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"dreamcore"
)

func scanVersion(row scanner) (dreamcore.Version, error) {
	var v dreamcore.Version
	var doc []byte
	if err := row.Scan(&doc); err != nil {
		return v, err
	}
	if err := json.Unmarshal(doc, &v); err != nil {
		return v, fmt.Errorf("decode version: %w", err)
	}
	return v, nil
}

func findVersion(ctx context.Context, q querier, id dreamcore.VersionID) (dreamcore.Version, error) {
	v, err := scanVersion(q.QueryRowContext(ctx, `SELECT doc FROM versions WHERE id = ?`, id))
	return v, missing(err, "version", string(id))
}

// Publish implements store.Versions.
func (s *Store) Publish(ctx context.Context, v dreamcore.Version, title string, attempt int) (dreamcore.Version, error) {
	const op = "store.publish"
	err := s.tx(ctx, "publish version", func(tx *sql.Tx) error {
		j, err := findJob(ctx, tx, v.Job)
		if err != nil {
			return err
		}
		if v.ID == "" || v.Game != j.Game {
			return dreamcore.Errorf(dreamcore.Invalid, op, "version %s is not of the game of job %s", v.ID, v.Job)
		}
		if j.State == dreamcore.Published && j.Version == v.ID {
			v, err = findVersion(ctx, tx, v.ID)
			return err
		}
		if j.State != dreamcore.Running {
			return dreamcore.Errorf(dreamcore.Conflict, op, "job %s is %s", j.ID, j.State)
		}
		if j.Attempt != attempt {
			return dreamcore.Errorf(dreamcore.Conflict, op, "job %s is at attempt %d, not %d", j.ID, j.Attempt, attempt)
		}
		now := moment(micros(s.now()))
		if v.Created.IsZero() {
			v.Created = now
		}
		v.Created = moment(micros(v.Created))
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(number), 0) + 1 FROM versions WHERE game = ?`, v.Game).Scan(&v.Number); err != nil {
			return err
		}
		doc, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO versions (id, game, job, number, created, doc) VALUES (?, ?, ?, ?, ?, ?)`,
			v.ID, v.Game, v.Job, v.Number, micros(v.Created), string(doc)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE games SET current = ?, title = ?, updated = ? WHERE id = ?`,
			v.ID, title, micros(now), v.Game); err != nil {
			return err
		}
		j.State, j.Version, j.Usage, j.Ended = dreamcore.Published, v.ID, v.Evidence.Usage, now
		return writeJob(ctx, tx, j)
	})
	if err != nil {
		return dreamcore.Version{}, err
	}
	s.Wake(v.Job)
	return v, nil
}

// Version implements store.Versions.
func (s *Store) Version(ctx context.Context, id dreamcore.VersionID) (dreamcore.Version, error) {
	v, err := findVersion(ctx, s.read, id)
	if err != nil {
		return dreamcore.Version{}, fmt.Errorf("read version: %w", err)
	}
	return v, nil
}

// Versions implements store.Versions.
func (s *Store) Versions(ctx context.Context, game dreamcore.GameID) ([]dreamcore.Version, error) {
	list, err := collect(ctx, s.read, scanVersion, `SELECT doc FROM versions WHERE game = ? ORDER BY number DESC`, game)
	if err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	return list, nil
}

// SetCurrent implements store.Versions.
func (s *Store) SetCurrent(ctx context.Context, game dreamcore.GameID, version dreamcore.VersionID) error {
	return s.tx(ctx, "set current version", func(tx *sql.Tx) error {
		var one int
		err := tx.QueryRowContext(ctx, `SELECT 1 FROM versions WHERE id = ? AND game = ?`, version, game).Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			return dreamcore.Errorf(dreamcore.NotFound, "store.version", "game %s has no version %q", game, version)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE games SET current = ?, updated = ? WHERE id = ? AND current <> ?`,
			version, micros(s.now()), game, version)
		return err
	})
}
