// Package sqlite is the store on one machine: a single SQLite file in WAL mode.
// One connection writes, several read, so that a long page never blocks a job.
package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"dreamcore"
	"dreamcore/internal/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Store implements store.Store.
type Store struct {
	write *sql.DB
	read  *sql.DB
	now   func() time.Time
	store.Watchers
}

var _ store.Store = (*Store)(nil)

// Open opens or makes the file at path and brings it to this program's schema.
// A file of a newer program is refused with code Conflict.
func Open(ctx context.Context, path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	// The chats are the creators' own: nobody else on the machine reads them.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{now: time.Now}
	if s.write, err = connect(path, 1); err != nil {
		return nil, err
	}
	if s.read, err = connect(path, 4); err != nil {
		return nil, errors.Join(err, s.write.Close())
	}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func connect(path string, conns int) (*sql.DB, error) {
	q := url.Values{"_pragma": {
		// Another process may hold the file for a moment (a backup, a second command).
		"busy_timeout(20000)",
		"journal_mode(WAL)",
		// FULL: what was answered "stored" survives a power cut.
		"synchronous(FULL)",
		"foreign_keys(1)",
	}}
	// A transaction that begins by reading and then writes can lose to another
	// writer without the busy timeout helping; taking the lock at once cannot.
	q.Set("_txlock", "immediate")
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// Close ends the watchers and closes the file. It may be called twice.
func (s *Store) Close() error {
	s.Watchers.Close()
	return errors.Join(s.read.Close(), s.write.Close())
}

// migrate runs the embedded files that this database has not seen, each in its
// own transaction. They only ever go forward, and one that has run never
// changes: its digest is compared.
func (s *Store) migrate(ctx context.Context) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	if _, err := s.write.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migrations (
		number INTEGER PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL, ran INTEGER NOT NULL) STRICT`); err != nil {
		return fmt.Errorf("prepare migrations: %w", err)
	}
	return s.tx(ctx, "migrate", func(tx *sql.Tx) error {
		var newest int
		if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(number), 0) FROM migrations`).Scan(&newest); err != nil {
			return err
		}
		if newest > len(names) {
			return dreamcore.Errorf(dreamcore.Conflict, "store.open", "the database was written by a newer DreamCore (schema %d, this one knows %d)", newest, len(names)).
				WithHint("use that version, or restore a backup from before the upgrade")
		}
		for i, name := range names {
			body, err := migrations.ReadFile(name)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(body)
			digest := hex.EncodeToString(sum[:])
			if i < newest {
				var had string
				if err := tx.QueryRowContext(ctx, `SELECT digest FROM migrations WHERE number = ?`, i+1).Scan(&had); err != nil {
					return err
				}
				if had != digest {
					return dreamcore.Errorf(dreamcore.Conflict, "store.open", "%s is not what this database was made with", name).
						WithHint("a migration that has run must never be edited; add a new one")
				}
				continue
			}
			if _, err := tx.ExecContext(ctx, string(body)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO migrations VALUES (?, ?, ?, ?)`,
				i+1, strings.TrimPrefix(name, "migrations/"), digest, micros(s.now())); err != nil {
				return err
			}
		}
		return nil
	})
}

// tx runs f in a transaction that holds the write lock from its beginning.
func (s *Store) tx(ctx context.Context, op string, f func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := f(tx); err != nil {
		if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
			err = errors.Join(err, rerr)
		}
		return fmt.Errorf("%s: %w", op, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// querier is what a transaction and a pool have in common.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// scanner is one row, of one or of many.
type scanner interface{ Scan(dest ...any) error }

// collect reads all rows of a query by scan.
func collect[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) (all []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// missing turns "no row" into a NotFound that names what is not there.
func missing(err error, what, id string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return dreamcore.Errorf(dreamcore.NotFound, "store", "there is no %s %q", what, id)
	}
	return err
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func moment(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
