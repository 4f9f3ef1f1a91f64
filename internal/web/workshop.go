package web

import (
	"net/http"
	"strings"

	"dreamcore"
	"dreamcore/internal/text"
)

type workshopView struct {
	Page
	Game     dreamcore.Game
	Chat     []line
	Live     *live // the job that has not ended
	Stage    stage
	Versions []versionView
	Share    share
	Wish     string
	Error    string
	Max      int
	Ideas    []string // changes that a newcomer may ask for
}

// line is one bubble of the chat.
type line struct {
	Mine     bool
	Text     string
	State    dreamcore.JobState // of the job that answers; "" on a creator's line
	Findings []dreamcore.Finding
	Number   int // the version that came of it
}

// live is a job that is waiting or running.
type live struct {
	Job    dreamcore.Job
	Queued bool
	Ahead  int
}

// stage is where the game plays: one frame behind a cover.
type stage struct {
	Page
	Game    dreamcore.GameID
	Title   string
	URL     string // "" while there is nothing to play
	Sandbox string
	Poster  string
	Tall    string // poster for a screen that is higher than wide
	Making  bool
}

type share struct {
	Link, Embed string
}

type versionView struct {
	dreamcore.Version
	Current  bool
	Poster   string
	Evidence string // address of its page
}

// workshop is the page on which a creator works on a game.
func (a *App) workshop(w http.ResponseWriter, r *http.Request) {
	g, err := a.ownGame(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	a.workshopWith(w, r, http.StatusOK, g, "", "")
}

func (a *App) workshopWith(w http.ResponseWriter, r *http.Request, status int, g dreamcore.Game, wish, problem string) {
	ctx := r.Context()
	messages, err := a.store.Messages(ctx, g.ID)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	jobs, err := a.store.JobsOf(ctx, g.ID, 200)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	versions, err := a.store.Versions(ctx, g.ID)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	v := workshopView{Page: a.page(r, orElse(g.Title, g.Wish)), Game: g, Wish: wish, Error: problem, Max: MaxWishRunes}
	v.Path = "/game/" + string(g.ID)
	numbers := map[dreamcore.VersionID]int{}
	for _, ver := range versions {
		numbers[ver.ID] = ver.Number
		v.Versions = append(v.Versions, versionView{
			Version: ver, Current: ver.ID == g.Current, Poster: pictureLink(ver, "poster"),
			Evidence: "/game/" + string(g.ID) + "/version/" + itoa(ver.Number),
		})
	}
	for _, j := range jobs {
		if j.State.Ended() || v.Live != nil {
			continue
		}
		v.Live = &live{Job: j, Queued: j.State == dreamcore.Queued}
		if v.Live.Queued {
			if v.Live.Ahead, err = a.store.Ahead(ctx, j.ID); err != nil {
				a.problem(w, r, err)
				return
			}
		}
	}
	v.Chat = chat(v.Lang, messages, jobs, numbers)
	v.Stage = a.stage(v.Page, g, versions)
	v.Stage.Making = v.Live != nil
	v.Share = a.share(g)
	if g.Current != "" {
		for _, n := range []string{"1", "2", "3"} {
			v.Ideas = append(v.Ideas, v.T("web.idea_"+n))
		}
	}
	a.render(w, r, status, "workshop", v)
}

// chat joins what the creator said with what came of each job.
func chat(lang dreamcore.Lang, messages []dreamcore.Message, jobs []dreamcore.Job, numbers map[dreamcore.VersionID]int) []line {
	byID := map[dreamcore.JobID]dreamcore.Job{}
	for _, j := range jobs {
		byID[j.ID] = j
	}
	var out []line
	for i, m := range messages {
		mine := m.Role == "creator"
		out = append(out, line{Mine: mine, Text: m.Text})
		last := true // of its job
		for _, later := range messages[i+1:] {
			if later.Job == m.Job {
				last = false
			}
		}
		j, known := byID[m.Job]
		if !known || !last || !j.State.Ended() {
			continue
		}
		answer := line{State: j.State, Findings: j.Findings, Number: numbers[j.Version]}
		switch j.State {
		case dreamcore.Published:
			answer.Text = text.T(lang, "web.answer_published", "number", itoa(answer.Number))
		case dreamcore.Cancelled:
			answer.Text = text.T(lang, "web.answer_cancelled")
		default:
			answer.Text = orElse(jobError(lang, j), text.T(lang, "web.answer_failed"))
		}
		if !mine {
			// The job has spoken for itself already: its end is shown on that line.
			said := &out[len(out)-1]
			said.State, said.Findings, said.Number = answer.State, answer.Findings, answer.Number
			continue
		}
		out = append(out, answer)
	}
	return out
}

// jobError is why a job failed, in the reader's language when the job left a
// key of the catalogue.
func jobError(lang dreamcore.Lang, j dreamcore.Job) string {
	if strings.HasPrefix(j.Error, "job.") && !strings.ContainsAny(j.Error, " \n") {
		return text.T(lang, j.Error)
	}
	return j.Error
}

func (a *App) stage(p Page, g dreamcore.Game, versions []dreamcore.Version) stage {
	s := stage{Page: p, Game: g.ID, Title: orElse(g.Title, g.Wish), Sandbox: a.games.FrameSandbox()}
	if g.Current == "" {
		return s
	}
	// The frame shows exactly one version: a publication in the middle of
	// loading must not mix the files of two.
	s.URL = a.games.VersionURL(g.ID, g.Current) + "?lang=" + string(p.Lang)
	for _, v := range versions {
		if v.ID == g.Current {
			s.Poster, s.Tall = pictureLink(v, "poster"), pictureLink(v, "touch")
		}
	}
	return s
}

func (a *App) share(g dreamcore.Game) share {
	embed := a.base() + "/embed/" + string(g.ID)
	return share{
		Link: a.PlayURL(g.ID),
		Embed: `<iframe src="` + embed + `" width="800" height="600" style="border:0" ` +
			`allow="autoplay; fullscreen; gamepad"></iframe>`,
	}
}

// changeGame answers the form that asks for a change.
func (a *App) changeGame(w http.ResponseWriter, r *http.Request) {
	g, err := a.ownGame(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	wish, err := formWish(r)
	if err == nil {
		if _, err = a.service.Change(r.Context(), g.Creator, g.ID, wish, langOf(r)); err == nil {
			http.Redirect(w, r, "/game/"+string(g.ID), http.StatusSeeOther)
			return
		}
	}
	status, problem := a.wishProblem(r, err)
	a.workshopWith(w, r, status, g, wish, problem)
}

// restoreVersion makes a former version current.
func (a *App) restoreVersion(w http.ResponseWriter, r *http.Request) {
	g, err := a.ownGame(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	if err := r.ParseForm(); err != nil {
		a.problem(w, r, dreamcore.Errorf(dreamcore.Invalid, "web", "%s", text.T(langOf(r), "web.invalid_form")))
		return
	}
	if err := a.service.Restore(r.Context(), g.Creator, g.ID, dreamcore.VersionID(r.PostForm.Get("version"))); err != nil {
		a.problem(w, r, err)
		return
	}
	http.Redirect(w, r, "/game/"+string(g.ID)+"#game", http.StatusSeeOther)
}

// cancelJob ends a creator's job.
func (a *App) cancelJob(w http.ResponseWriter, r *http.Request) {
	j, err := a.ownJob(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	// A job that ended in the meantime is what the creator wanted, too.
	if err := a.service.Cancel(r.Context(), j.Creator, j.ID); err != nil && dreamcore.CodeOf(err) != dreamcore.Conflict {
		a.problem(w, r, err)
		return
	}
	http.Redirect(w, r, "/game/"+string(j.Game), http.StatusSeeOther)
}
