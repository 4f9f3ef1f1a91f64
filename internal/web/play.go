package web

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"dreamcore"
	"dreamcore/internal/publish"
)

type playView struct {
	Page
	Game  dreamcore.Game
	Stage stage
	Share share
	Mine  bool
}

// play is the page behind the link that people share: the game in the whole
// window, in a frame that cannot leave the games' origin.
func (a *App) play(w http.ResponseWriter, r *http.Request) { a.playWith(w, r, "play") }

// embed is the same without anything of ours around it, for other sites.
func (a *App) embed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", a.policy("*"))
	w.Header().Del("Cross-Origin-Opener-Policy")
	w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
	a.playWith(w, r, "embed")
}

func (a *App) playWith(w http.ResponseWriter, r *http.Request, name string) {
	g, err := a.publicGame(r)
	if err != nil {
		if !g.Removed.IsZero() {
			a.status(w, r, http.StatusGone, "web.gone")
			return
		}
		a.problem(w, r, err)
		return
	}
	version, err := a.store.Version(r.Context(), g.Current)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	v := playView{Page: a.page(r, orElse(g.Title, g.Wish)), Game: g, Share: a.share(g), Mine: g.Creator == a.creatorOf(r)}
	v.Bare = true
	v.Stage = a.stage(v.Page, g, []dreamcore.Version{version})
	a.render(w, r, http.StatusOK, name, v)
}

// publicPicture is one of a version's pictures that anybody may see.
func (a *App) publicPicture(w http.ResponseWriter, r *http.Request) {
	g, err := a.publicGame(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	v, err := a.store.Version(r.Context(), dreamcore.VersionID(r.PathValue("version")))
	if err == nil && v.Game != g.ID {
		err = dreamcore.Errorf(dreamcore.NotFound, "web", "there is no picture")
	}
	if err != nil {
		a.problem(w, r, err)
		return
	}
	// An hour, not for ever: a game that is taken down takes its picture along.
	w.Header().Set("Cache-Control", "public, max-age=3600")
	a.picture(w, r, v, pictureName(v.Evidence.Play, r.PathValue("which")))
}

// pictureName is the file of one of the public pictures.
func pictureName(p dreamcore.PlayReport, which string) string {
	switch which {
	case "poster":
		return p.Poster
	case "recording":
		return p.Recording
	case "touch":
		return p.Touch
	}
	return ""
}

// pictureLink is the public address of a picture, "" when there is none.
func pictureLink(v dreamcore.Version, which string) string {
	if v.Evidence.PictureHashes[pictureName(v.Evidence.Play, which)] == "" {
		return ""
	}
	return "/picture/" + string(v.Game) + "/" + string(v.ID) + "/" + which
}

// picture answers with one of a version's pictures. It came out of a sandbox:
// it is served as a picture or not at all, and can be nothing else.
func (a *App) picture(w http.ResponseWriter, r *http.Request, v dreamcore.Version, name string) {
	hash, ok := v.Evidence.PictureHashes[name]
	if !ok {
		a.problem(w, r, dreamcore.Errorf(dreamcore.NotFound, "web", "there is no picture"))
		return
	}
	data, err := a.blobs.Get(r.Context(), hash, publish.MaxPictureBytes)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	kind := publish.PictureType(data)
	if kind == "" {
		a.problem(w, r, dreamcore.Errorf(dreamcore.NotFound, "web", "there is no picture"))
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Type", kind)
	h.Set("ETag", `"`+string(hash)+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

type evidenceView struct {
	Page
	Game     dreamcore.Game
	Version  dreamcore.Version
	Passed   bool
	Pictures []evidencePicture
	Cost     string
	Seconds  string
	Findings []dreamcore.Finding
	Bytes    int64
}

type evidencePicture struct {
	Href, Key string
}

// evidence shows what verification saw of a version.
func (a *App) evidence(w http.ResponseWriter, r *http.Request) {
	g, v, err := a.ownVersion(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	e := v.Evidence
	view := evidenceView{
		Page: a.page(r, orElse(g.Title, g.Wish)), Game: g, Version: v, Passed: e.Verdict() == dreamcore.Pass,
		Cost: a.money(e.Usage.CostMicros), Seconds: strconv.FormatFloat(e.Play.Seconds, 'f', 1, 64), Findings: e.Findings(),
	}
	for _, f := range v.Files {
		view.Bytes += f.SizeBytes
	}
	base := "/game/" + string(g.ID) + "/version/" + itoa(v.Number) + "/picture/"
	for _, p := range []evidencePicture{
		{e.Play.Recording, "web.picture_recording"}, {e.Play.Poster, "web.picture_poster"},
		{e.Play.Idle, "web.picture_idle"}, {e.Play.Touch, "web.picture_touch"},
	} {
		if e.PictureHashes[p.Href] != "" {
			view.Pictures = append(view.Pictures, evidencePicture{base + escape(p.Href), p.Key})
		}
	}
	a.render(w, r, http.StatusOK, "evidence", view)
}

// evidencePicture is one of the pictures on that page.
func (a *App) evidencePicture(w http.ResponseWriter, r *http.Request) {
	_, v, err := a.ownVersion(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "private, max-age=3600")
	a.picture(w, r, v, r.PathValue("name"))
}

func (a *App) ownVersion(r *http.Request) (dreamcore.Game, dreamcore.Version, error) {
	none := dreamcore.Errorf(dreamcore.NotFound, "web", "there is no version")
	g, err := a.ownGame(r)
	if err != nil {
		return g, dreamcore.Version{}, err
	}
	versions, err := a.store.Versions(r.Context(), g.ID)
	if err != nil {
		return g, dreamcore.Version{}, err
	}
	for _, v := range versions {
		if itoa(v.Number) == r.PathValue("number") {
			return g, v, nil
		}
	}
	return g, dreamcore.Version{}, none
}
