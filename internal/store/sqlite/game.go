package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"dreamcore"
)

const gameColumns = `id, creator, title, wish, lang, current, created, updated, removed`

func scanGame(row scanner) (dreamcore.Game, error) {
	var g dreamcore.Game
	var created, updated, removed int64
	err := row.Scan(&g.ID, &g.Creator, &g.Title, &g.Wish, &g.Lang, &g.Current, &created, &updated, &removed)
	g.Created, g.Updated, g.Removed = moment(created), moment(updated), moment(removed)
	return g, err
}

// CreateGame implements store.Games.
func (s *Store) CreateGame(ctx context.Context, g dreamcore.Game) error {
	return s.tx(ctx, "create game", func(tx *sql.Tx) error { return s.createGame(ctx, tx, g) })
}

func (s *Store) createGame(ctx context.Context, tx *sql.Tx, g dreamcore.Game) error {
	if g.ID == "" || g.Creator == "" {
		return dreamcore.Errorf(dreamcore.Invalid, "store.game", "a game needs an id and a creator")
	}
	if g.Created.IsZero() {
		g.Created = s.now()
	}
	if g.Updated.IsZero() {
		g.Updated = g.Created
	}
	res, err := tx.ExecContext(ctx, `INSERT INTO games (`+gameColumns+`) VALUES (?, ?, ?, ?, ?, '', ?, ?, 0) ON CONFLICT DO NOTHING`,
		g.ID, g.Creator, g.Title, g.Wish, g.Lang, micros(g.Created), micros(g.Updated))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return err
	}
	old, err := findGame(ctx, tx, g.ID)
	if err != nil {
		return err
	}
	if old.Creator != g.Creator || old.Wish != g.Wish {
		return dreamcore.Errorf(dreamcore.Conflict, "store.game", "game %s exists already", g.ID)
	}
	return nil
}

func findGame(ctx context.Context, q querier, id dreamcore.GameID) (dreamcore.Game, error) {
	g, err := scanGame(q.QueryRowContext(ctx, `SELECT `+gameColumns+` FROM games WHERE id = ?`, id))
	return g, missing(err, "game", string(id))
}

// Game implements store.Games.
func (s *Store) Game(ctx context.Context, id dreamcore.GameID) (dreamcore.Game, error) {
	g, err := findGame(ctx, s.read, id)
	if err != nil {
		return dreamcore.Game{}, fmt.Errorf("read game: %w", err)
	}
	return g, nil
}

// GamesBy implements store.Games.
func (s *Store) GamesBy(ctx context.Context, creator dreamcore.CreatorID, limit int) ([]dreamcore.Game, error) {
	games, err := collect(ctx, s.read, scanGame, `SELECT `+gameColumns+` FROM games
		WHERE creator = ? AND removed = 0 ORDER BY updated DESC, id DESC LIMIT ?`, creator, max(limit, 0))
	if err != nil {
		return nil, fmt.Errorf("read a creator's games: %w", err)
	}
	return games, nil
}

// Gallery implements store.Games. Its cursor is the place of the last game shown.
func (s *Store) Gallery(ctx context.Context, limit int, cursor string) ([]dreamcore.Game, string, error) {
	if limit < 1 {
		return nil, "", dreamcore.Errorf(dreamcore.Invalid, "store.gallery", "the limit must be at least 1")
	}
	where, args := "", []any{}
	if cursor != "" {
		at, id, ok := strings.Cut(cursor, ".")
		us, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			return nil, "", dreamcore.Errorf(dreamcore.Invalid, "store.gallery", "the cursor is not one of ours")
		}
		where, args = ` AND (updated, id) < (?, ?)`, []any{us, id}
	}
	games, err := collect(ctx, s.read, scanGame, `SELECT `+gameColumns+` FROM games
		WHERE current <> '' AND removed = 0`+where+` ORDER BY updated DESC, id DESC LIMIT ?`, append(args, limit+1)...)
	if err != nil {
		return nil, "", fmt.Errorf("read gallery: %w", err)
	}
	next := ""
	if len(games) > limit {
		games = games[:limit]
		last := games[limit-1]
		next = fmt.Sprintf("%d.%s", micros(last.Updated), last.ID)
	}
	return games, next, nil
}

// RemoveGame implements store.Games.
func (s *Store) RemoveGame(ctx context.Context, id dreamcore.GameID) error {
	return s.tx(ctx, "remove game", func(tx *sql.Tx) error {
		if _, err := findGame(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `UPDATE games SET removed = ? WHERE id = ? AND removed = 0`, micros(s.now()), id)
		return err
	})
}

// AddMessage implements store.Games.
func (s *Store) AddMessage(ctx context.Context, m dreamcore.Message) error {
	return s.tx(ctx, "add message", func(tx *sql.Tx) error { return s.addMessage(ctx, tx, m) })
}

func (s *Store) addMessage(ctx context.Context, tx *sql.Tx, m dreamcore.Message) error {
	if m.Role != "creator" && m.Role != "dreamcore" {
		return dreamcore.Errorf(dreamcore.Invalid, "store.message", "nobody has the role %q", m.Role)
	}
	if _, err := findGame(ctx, tx, m.Game); err != nil {
		return err
	}
	if m.Created.IsZero() {
		m.Created = s.now()
	}
	sum := sha256.Sum256([]byte(m.Text))
	_, err := tx.ExecContext(ctx, `INSERT INTO messages (game, job, role, text, digest, created) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (game, job, role, digest) DO NOTHING`,
		m.Game, m.Job, m.Role, m.Text, hex.EncodeToString(sum[:]), micros(m.Created))
	return err
}

// Messages implements store.Games.
func (s *Store) Messages(ctx context.Context, game dreamcore.GameID) ([]dreamcore.Message, error) {
	list, err := collect(ctx, s.read, func(row scanner) (dreamcore.Message, error) {
		var m dreamcore.Message
		var created int64
		err := row.Scan(&m.Game, &m.Job, &m.Role, &m.Text, &created)
		m.Created = moment(created)
		return m, err
	}, `SELECT game, job, role, text, created FROM messages WHERE game = ? ORDER BY seq`, game)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	return list, nil
}
