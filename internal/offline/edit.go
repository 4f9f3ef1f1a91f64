package offline

import (
	"regexp"
	"strings"

	"dreamcore/internal/offline/recipe"
	"dreamcore/internal/offline/wish"
)

// edit changes the game that is there by what the wish says of it.
func (j *job) edit() (string, error) {
	if j.sabotage == SabotageHang {
		return "", errSilent
	}
	g, err := j.open(project)
	if err != nil {
		return "", err
	}
	if g == nil {
		return j.say("edit.unknown_game"), nil
	}
	plan, err := j.change(g)
	if err != nil {
		return j.say("build.unreadable", "file", recipe.GameFile), nil
	}
	if len(plan.Files) == 0 && len(plan.Orders) == 0 {
		if len(plan.Refused) > 0 {
			return j.refused(plan), nil
		}
		return j.say("edit.nothing"), nil
	}
	if err := j.keep(); err != nil {
		return "", err
	}
	if err := j.apply(g, plan); err != nil {
		return "", err
	}
	if j.sabotage != SabotageNone {
		if last, err := j.spoil(); err != nil || last != "" {
			return last, err
		}
	}
	left, err := j.prove(g, plan)
	if err != nil {
		return "", err
	}
	said := j.say("edit.done", "list", j.changes(plan))
	if len(plan.Refused) > 0 {
		said += " " + j.refused(plan)
	}
	return said + " " + j.verdict(left) + " " + j.say("done.honest"), nil
}

// refused says what was asked and understood, and could not be done.
func (j *job) refused(p *recipe.Plan) string {
	names := make([]string, len(p.Refused))
	for i, means := range p.Refused {
		names[i] = j.say("means." + means)
	}
	return j.say("edit.refused", "list", strings.Join(names, j.say("and")))
}

// change plans what the wish asks to change.
func (j *job) change(g *game) (*recipe.Plan, error) {
	w := j.model.reader.Read(j.wish, j.lang)
	w.Title = j.titleIn(w)
	return j.model.cook.Edit(g.manifest, g.files, w)
}

// changes lists what an edit did, in words.
func (j *job) changes(p *recipe.Plan) string {
	var all []string
	if len(p.Orders) > 0 {
		all = append(all, j.say("edit.pictures"))
	}
	for _, means := range p.Changed {
		all = append(all, j.say("means."+means))
	}
	if len(all) == 0 {
		all = append(all, j.say("edit.looks"))
	}
	return strings.Join(all, j.say("and"))
}

var quoted = regexp.MustCompile(`["“「『《']([^"”」』》']{1,40})["”」』》']`)

// titleIn is a quoted title, where the wish speaks of the name of the game.
func (j *job) titleIn(w wish.Wish) string {
	for _, h := range j.model.cook.Lexicon.FindChanges(w.Text) {
		if h.ID == "call" {
			if m := quoted.FindStringSubmatch(j.wish); m != nil {
				return strings.TrimSpace(m[1])
			}
		}
	}
	return ""
}
