package web

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"dreamcore"
)

// secretLength of the creator cookie: 130 bits.
const secretLength = 26

// creatorOf returns who asks, "" for somebody who has made nothing yet. The
// cookie is a secret and the id its digest, so that neither the database nor a
// page that shows an id lets anybody in.
func (a *App) creatorOf(r *http.Request) dreamcore.CreatorID {
	c, err := r.Cookie(a.cookieName())
	if err != nil || !validSecret(c.Value) {
		return ""
	}
	return creatorID(c.Value)
}

func creatorID(secret string) dreamcore.CreatorID {
	sum := sha256.Sum256([]byte("dreamcore creator\n" + secret))
	return dreamcore.CreatorID(hex.EncodeToString(sum[:16]))
}

func validSecret(s string) bool {
	if len(s) != secretLength {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// cookieName has the prefix with which browsers keep other hosts of the same
// domain (a game's, with a wildcard name) from planting it, where there is TLS.
func (a *App) cookieName() string {
	if a.origin.Scheme == "https" {
		return "__Host-dreamcore"
	}
	return "dreamcore"
}

// becomeCreator returns who asks and gives a newcomer an identity.
func (a *App) becomeCreator(w http.ResponseWriter, r *http.Request) dreamcore.CreatorID {
	if id := a.creatorOf(r); id != "" {
		return id
	}
	secret := dreamcore.NewToken(secretLength)
	http.SetCookie(w, &http.Cookie{
		Name: a.cookieName(), Value: secret, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: a.origin.Scheme == "https", MaxAge: int((400 * 24 * time.Hour).Seconds()),
	})
	return creatorID(secret)
}

const langCookie = "dreamcore-lang"

// langOf is the language of a visitor: asked for, chosen before, or the browser's.
func langOf(r *http.Request) dreamcore.Lang {
	if l, ok := dreamcore.ParseLang(r.URL.Query().Get("lang")); ok {
		return l
	}
	if c, err := r.Cookie(langCookie); err == nil {
		if l, ok := dreamcore.ParseLang(c.Value); ok {
			return l
		}
	}
	return dreamcore.AcceptLang(r.Header.Get("Accept-Language"))
}

// rememberLang keeps a language that was asked for by ?lang.
func (a *App) rememberLang(w http.ResponseWriter, r *http.Request) {
	l, ok := dreamcore.ParseLang(r.URL.Query().Get("lang"))
	if !ok {
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: langCookie, Value: string(l), Path: "/", SameSite: http.SameSiteLaxMode, HttpOnly: true,
		Secure: a.origin.Scheme == "https", MaxAge: int((400 * 24 * time.Hour).Seconds()),
	})
}

// ownGame returns a game if whoever asks made it. Another's does not exist.
func (a *App) ownGame(r *http.Request) (dreamcore.Game, error) {
	id := dreamcore.GameID(r.PathValue("game"))
	g, err := a.store.Game(r.Context(), id)
	if err != nil {
		return g, err
	}
	if me := a.creatorOf(r); me == "" || g.Creator != me || !g.Removed.IsZero() {
		return dreamcore.Game{}, dreamcore.Errorf(dreamcore.NotFound, "web", "there is no game")
	}
	return g, nil
}

// ownJob returns a job if whoever asks started it.
func (a *App) ownJob(r *http.Request) (dreamcore.Job, error) {
	j, err := a.store.Job(r.Context(), dreamcore.JobID(r.PathValue("job")))
	if err != nil {
		return j, err
	}
	if me := a.creatorOf(r); me == "" || j.Creator != me {
		return dreamcore.Job{}, dreamcore.Errorf(dreamcore.NotFound, "web", "there is no job")
	}
	return j, nil
}

// publicGame returns a game that anybody may play.
func (a *App) publicGame(r *http.Request) (dreamcore.Game, error) {
	g, err := a.store.Game(r.Context(), dreamcore.GameID(r.PathValue("game")))
	if err == nil && (g.Current == "" || !g.Removed.IsZero()) {
		err = dreamcore.Errorf(dreamcore.NotFound, "web", "there is no game to play")
	}
	return g, err
}

func asError(err error) *dreamcore.Error {
	var e *dreamcore.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

// clip makes untrusted text one short escaped line for the log.
func clip(s string) string {
	if len(s) > 120 {
		s = s[:120]
	}
	return fmt.Sprintf("%+q", s)
}
