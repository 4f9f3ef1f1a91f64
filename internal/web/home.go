package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"dreamcore"
	"dreamcore/internal/text"
)

const (
	// MaxWishRunes is what the form counts up to; the Service decides.
	MaxWishRunes = 2000
	galleryPage  = 24
	ownGames     = 12
)

type homeView struct {
	Page
	Wish     string // what was typed, given back
	Error    string
	Max      int
	Examples []string
	Mine     []card
	Gallery  []card
	Next     string // address of the gallery's next page
	Paged    bool   // this is not its first
}

// card is a game in a list.
type card struct {
	Title     string
	Href      string
	Poster    string // address, "" when there is no picture
	Recording string
	State     dreamcore.JobState // of its latest job, for the creator's own
}

// home is the front page.
func (a *App) home(w http.ResponseWriter, r *http.Request) {
	// A wish in the address only fills the box: nothing is made by a link.
	a.homeWith(w, r, http.StatusOK, firstRunes(r.URL.Query().Get("wish"), MaxWishRunes), "")
}

func (a *App) homeWith(w http.ResponseWriter, r *http.Request, status int, wish, problem string) {
	ctx := r.Context()
	cursor := r.URL.Query().Get("after")
	games, next, err := a.store.Gallery(ctx, galleryPage, cursor)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	v := homeView{Page: a.page(r, text.T(langOf(r), "web.name")), Wish: wish, Error: problem, Max: MaxWishRunes, Paged: cursor != ""}
	for i := 1; i <= 4; i++ {
		v.Examples = append(v.Examples, v.T("web.example_"+string(rune('0'+i))))
	}
	for _, g := range games {
		v.Gallery = append(v.Gallery, a.card(r, g, false))
	}
	if next != "" {
		v.Next = "/?" + url.Values{"after": {next}}.Encode() + "#gallery"
	}
	if me := a.creatorOf(r); me != "" {
		mine, err := a.store.GamesBy(ctx, me, ownGames)
		if err != nil {
			a.problem(w, r, err)
			return
		}
		for _, g := range mine {
			v.Mine = append(v.Mine, a.card(r, g, true))
		}
	}
	a.render(w, r, status, "home", v)
}

// card builds the entry of a game. A picture that cannot be found is left out:
// the list is worth more than the picture.
func (a *App) card(r *http.Request, g dreamcore.Game, mine bool) card {
	c := card{Title: orElse(g.Title, g.Wish), Href: "/play/" + string(g.ID)}
	if mine {
		c.Href = "/game/" + string(g.ID)
		if jobs, err := a.store.JobsOf(r.Context(), g.ID, 1); err != nil {
			a.log.Warn("a game's jobs cannot be read", "game", string(g.ID), "reason", err.Error())
		} else if len(jobs) > 0 {
			c.State = jobs[0].State
		}
	}
	if g.Current == "" {
		return c
	}
	v, err := a.store.Version(r.Context(), g.Current)
	if err != nil {
		a.log.Warn("a game's version cannot be read", "game", string(g.ID), "reason", err.Error())
		return c
	}
	c.Poster, c.Recording = pictureLink(v, "poster"), pictureLink(v, "recording")
	return c
}

// makeGame answers the wish form.
func (a *App) makeGame(w http.ResponseWriter, r *http.Request) {
	wish, err := formWish(r)
	if err == nil {
		var g dreamcore.Game
		if g, _, err = a.service.Make(r.Context(), a.becomeCreator(w, r), wish, langOf(r)); err == nil {
			http.Redirect(w, r, "/game/"+string(g.ID), http.StatusSeeOther)
			return
		}
	}
	status, problem := a.wishProblem(r, err)
	a.homeWith(w, r, status, wish, problem)
}

// formWish reads the wish of a form. Browsers send line breaks as CR LF.
func formWish(r *http.Request) (string, error) {
	if err := r.ParseForm(); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return "", dreamcore.Errorf(dreamcore.Invalid, "web", "%s", text.T(langOf(r), "web.body_too_large"))
		}
		return "", dreamcore.Errorf(dreamcore.Invalid, "web", "%s", text.T(langOf(r), "web.invalid_form"))
	}
	return strings.ReplaceAll(r.PostForm.Get("wish"), "\r\n", "\n"), nil
}

// wishProblem is what a person reads above the box, and the status beside it.
func (a *App) wishProblem(r *http.Request, err error) (int, string) {
	lang := langOf(r)
	said := spoken(err)
	switch dreamcore.CodeOf(err) {
	case dreamcore.Invalid:
		return http.StatusUnprocessableEntity, orElse(said, text.T(lang, "web.invalid"))
	case dreamcore.Conflict:
		return http.StatusConflict, orElse(said, text.T(lang, "web.conflict"))
	case dreamcore.Refused:
		return http.StatusTooManyRequests, orElse(said, text.T(lang, "web.refused"))
	case dreamcore.Unavailable, dreamcore.Missing, dreamcore.Lost:
		return http.StatusServiceUnavailable, orElse(said, text.T(lang, "web.unavailable"))
	}
	a.log.Error("wish failed", "reason", err.Error())
	return http.StatusInternalServerError, text.T(lang, "web.fault") + " " + text.T(lang, "web.fault_body")
}

func firstRunes(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n])
	}
	return s
}
