package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"dreamcore"
	"dreamcore/internal/store"
)

func scanEvent(row scanner) (dreamcore.Event, error) {
	var e dreamcore.Event
	var doc []byte
	if err := row.Scan(&doc); err != nil {
		return e, err
	}
	if err := json.Unmarshal(doc, &e); err != nil {
		return e, fmt.Errorf("decode event: %w", err)
	}
	return e, nil
}

// AppendEvent implements store.Events.
func (s *Store) AppendEvent(ctx context.Context, e dreamcore.Event) (dreamcore.Event, error) {
	if e.Time.IsZero() {
		e.Time = s.now()
	}
	e.Time = moment(micros(e.Time))
	e.Text = store.CutText(e.Text, store.MaxEventTextBytes)
	for k, v := range e.Args {
		if len(v) > store.MaxEventTextBytes {
			e.Args = maps.Clone(e.Args)
			e.Args[k] = store.CutText(v, store.MaxEventTextBytes)
		}
	}
	err := s.tx(ctx, "append event", func(tx *sql.Tx) error {
		var last int64
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM events WHERE job = ?`, e.Job).Scan(&last); err != nil {
			return err
		}
		if last == 0 {
			if _, err := findJob(ctx, tx, e.Job); err != nil {
				return err
			}
		}
		if e.Kind == dreamcore.EventState || e.Kind == dreamcore.EventStep {
			old, err := scanEvent(tx.QueryRowContext(ctx, `SELECT doc FROM events WHERE job = ? AND kind = ? ORDER BY seq DESC LIMIT 1`, e.Job, e.Kind))
			switch {
			case err == nil && old.Turn == e.Turn && old.Key == e.Key && old.Text == e.Text && maps.Equal(old.Args, e.Args):
				e = old
				return nil
			case err != nil && !errors.Is(err, sql.ErrNoRows):
				return err
			}
		} else if last >= store.MaxEvents {
			return dreamcore.Errorf(dreamcore.Refused, "store.event", "job %s has %d events, which is the most", e.Job, last)
		}
		e.Seq = last + 1
		doc, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO events (job, seq, kind, doc) VALUES (?, ?, ?, ?)`, e.Job, e.Seq, e.Kind, string(doc))
		return err
	})
	if err != nil {
		return dreamcore.Event{}, err
	}
	s.Wake(e.Job)
	return e, nil
}

// Events implements store.Events.
func (s *Store) Events(ctx context.Context, job dreamcore.JobID, after int64, limit int) ([]dreamcore.Event, error) {
	list, err := collect(ctx, s.read, scanEvent, `SELECT doc FROM events WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?`, job, after, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return list, nil
}
