package web

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// The JSON of /api/. Creators' ids never leave the app.
type (
	// GameJSON is a game as its creator's programs see it.
	GameJSON struct {
		ID       dreamcore.GameID    `json:"id"`
		Title    string              `json:"title"`
		Wish     string              `json:"wish"`
		Lang     dreamcore.Lang      `json:"lang"`
		Current  dreamcore.VersionID `json:"current"`
		Created  time.Time           `json:"created"`
		Updated  time.Time           `json:"updated"`
		GameURL  string              `json:"gameURL"` // the game itself, on the games' origin
		PlayURL  string              `json:"playURL"` // the link to share
		PageURL  string              `json:"pageURL"` // the creator's page
		Versions []VersionJSON       `json:"versions,omitempty"`
		Jobs     []JobJSON           `json:"jobs,omitempty"`
	}
	// VersionJSON is a version without its files.
	VersionJSON struct {
		ID       dreamcore.VersionID `json:"id"`
		Number   int                 `json:"number"`
		Job      dreamcore.JobID     `json:"job"`
		Created  time.Time           `json:"created"`
		Evidence dreamcore.Evidence  `json:"evidence"`
	}
	// JobJSON is a job.
	JobJSON struct {
		ID       dreamcore.JobID     `json:"id"`
		Game     dreamcore.GameID    `json:"game"`
		Wish     string              `json:"wish"`
		State    dreamcore.JobState  `json:"state"`
		Attempt  int                 `json:"attempt"`
		Ahead    int                 `json:"ahead"` // queued jobs before it
		Error    string              `json:"error,omitempty"`
		Findings []dreamcore.Finding `json:"findings,omitempty"`
		Version  dreamcore.VersionID `json:"version,omitempty"`
		Usage    dreamcore.Usage     `json:"usage"`
		Created  time.Time           `json:"created"`
		Started  time.Time           `json:"started,omitzero"`
		Ended    time.Time           `json:"ended,omitzero"`
	}
	// WorkJSON answers a wish: the game and the job that makes or changes it.
	WorkJSON struct {
		Game GameJSON `json:"game"`
		Job  JobJSON  `json:"job"`
	}
	// WishJSON is what is sent to make or change a game.
	WishJSON struct {
		Wish string `json:"wish"`
		Lang string `json:"lang,omitempty"` // of the answer; default: the request's
	}
	// RestoreJSON is what is sent to go back to a version.
	RestoreJSON struct {
		Version dreamcore.VersionID `json:"version"`
	}

	apiError struct {
		Error apiErrorBody `json:"error"`
	}
	apiErrorBody struct {
		Code    dreamcore.Code `json:"code"`
		Message string         `json:"message"`
		Hint    string         `json:"hint,omitempty"`
	}
)

func codeFor(status int) dreamcore.Code {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return dreamcore.NotFound
	case http.StatusConflict:
		return dreamcore.Conflict
	case http.StatusForbidden, http.StatusTooManyRequests:
		return dreamcore.Refused
	case http.StatusServiceUnavailable:
		return dreamcore.Unavailable
	case http.StatusInternalServerError:
		return dreamcore.Internal
	}
	return dreamcore.Invalid
}

func writeJSON(w http.ResponseWriter, log *slog.Logger, status int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		log.Error("answer cannot be encoded", "reason", err.Error())
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil {
		log.Info("answer not delivered", "reason", err.Error())
	}
}

// readJSON decodes the body: one document, known fields only.
func readJSON(r *http.Request, into any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return dreamcore.Errorf(dreamcore.Invalid, "web", "the body must be application/json")
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return dreamcore.Errorf(dreamcore.Invalid, "web", "%s", text.T(langOf(r), "web.body_too_large"))
		}
		return dreamcore.Errorf(dreamcore.Invalid, "web", "the body is not the JSON that is asked for").Because(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return dreamcore.Errorf(dreamcore.Invalid, "web", "there is something behind the JSON document")
	}
	return nil
}

func (a *App) gameJSON(g dreamcore.Game) GameJSON {
	return GameJSON{
		ID: g.ID, Title: g.Title, Wish: g.Wish, Lang: g.Lang, Current: g.Current, Created: g.Created, Updated: g.Updated,
		GameURL: a.games.URL(g.ID), PlayURL: a.PlayURL(g.ID), PageURL: a.GameURL(g.ID),
	}
}

func (a *App) jobJSON(r *http.Request, j dreamcore.Job) (JobJSON, error) {
	out := JobJSON{
		ID: j.ID, Game: j.Game, Wish: j.Wish, State: j.State, Attempt: j.Attempt, Error: jobError(langOf(r), j),
		Findings: j.Findings, Version: j.Version, Usage: j.Usage, Created: j.Created, Started: j.Started, Ended: j.Ended,
	}
	if j.State != dreamcore.Queued {
		return out, nil
	}
	var err error
	out.Ahead, err = a.store.Ahead(r.Context(), j.ID)
	return out, err
}

// apiHealth tells `dreamcore make` that a service is running here.
func (a *App) apiHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, a.log, http.StatusOK, map[string]any{"name": "dreamcore", "standIn": a.config.StandIn})
}

func (a *App) apiMake(w http.ResponseWriter, r *http.Request) {
	var in WishJSON
	if err := readJSON(r, &in); err != nil {
		a.problem(w, r, err)
		return
	}
	g, j, err := a.service.Make(r.Context(), a.becomeCreator(w, r), in.Wish, a.askedLang(r, in.Lang))
	a.answerWork(w, r, g, j, err)
}

func (a *App) apiChange(w http.ResponseWriter, r *http.Request) {
	g, err := a.ownGame(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	var in WishJSON
	if err := readJSON(r, &in); err != nil {
		a.problem(w, r, err)
		return
	}
	j, err := a.service.Change(r.Context(), g.Creator, g.ID, in.Wish, a.askedLang(r, in.Lang))
	a.answerWork(w, r, g, j, err)
}

func (a *App) askedLang(r *http.Request, lang string) dreamcore.Lang {
	if l, ok := dreamcore.ParseLang(lang); ok {
		return l
	}
	return langOf(r)
}

func (a *App) answerWork(w http.ResponseWriter, r *http.Request, g dreamcore.Game, j dreamcore.Job, err error) {
	if err != nil {
		a.problem(w, r, err)
		return
	}
	job, err := a.jobJSON(r, j)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	w.Header().Set("Location", "/api/jobs/"+string(j.ID))
	writeJSON(w, a.log, http.StatusCreated, WorkJSON{a.gameJSON(g), job})
}

func (a *App) apiGame(w http.ResponseWriter, r *http.Request) {
	g, err := a.ownGame(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	out := a.gameJSON(g)
	versions, err := a.store.Versions(r.Context(), g.ID)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	for _, v := range versions {
		out.Versions = append(out.Versions, VersionJSON{v.ID, v.Number, v.Job, v.Created, v.Evidence})
	}
	jobs, err := a.store.JobsOf(r.Context(), g.ID, 100)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	for _, j := range jobs {
		job, err := a.jobJSON(r, j)
		if err != nil {
			a.problem(w, r, err)
			return
		}
		out.Jobs = append(out.Jobs, job)
	}
	writeJSON(w, a.log, http.StatusOK, out)
}

func (a *App) apiRestore(w http.ResponseWriter, r *http.Request) {
	g, err := a.ownGame(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	var in RestoreJSON
	if err := readJSON(r, &in); err != nil {
		a.problem(w, r, err)
		return
	}
	if err := a.service.Restore(r.Context(), g.Creator, g.ID, in.Version); err != nil {
		a.problem(w, r, err)
		return
	}
	if g, err = a.store.Game(r.Context(), g.ID); err != nil {
		a.problem(w, r, err)
		return
	}
	writeJSON(w, a.log, http.StatusOK, a.gameJSON(g))
}

func (a *App) apiJob(w http.ResponseWriter, r *http.Request) {
	j, err := a.ownJob(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	a.answerJob(w, r, j)
}

func (a *App) answerJob(w http.ResponseWriter, r *http.Request, j dreamcore.Job) {
	out, err := a.jobJSON(r, j)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	writeJSON(w, a.log, http.StatusOK, out)
}

func (a *App) apiCancel(w http.ResponseWriter, r *http.Request) {
	j, err := a.ownJob(r)
	if err == nil {
		err = a.service.Cancel(r.Context(), j.Creator, j.ID)
	}
	if err == nil {
		j, err = a.store.Job(r.Context(), j.ID)
	}
	if err != nil {
		a.problem(w, r, err)
		return
	}
	a.answerJob(w, r, j)
}

func itoa(n int) string { return strconv.Itoa(n) }

func escape(s string) string { return url.PathEscape(s) }
