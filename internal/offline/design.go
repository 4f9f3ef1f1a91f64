package offline

import (
	"strings"

	"dreamcore/internal/offline/recipe"
	"dreamcore/internal/offline/wish"
)

// specFile is what a design turn leaves; its first line is for the host.
const specFile = "spec.md"

// design picks a template and writes the spec.
func (j *job) design() (string, error) {
	w := j.model.reader.Read(j.wish, j.lang)
	entry, found := j.model.cook.Choose(recipe.ParseCatalogue(j.rest), w)
	if !found {
		entry = recipe.Entry{Tag: noTemplate, Title: j.say("spec.own"), Controls: ownControls}
	}
	spec := j.spec(w, entry)
	if err := j.write(j.say("design.write", "template", entry.Title), specFile, spec); err != nil {
		return "", err
	}
	return j.say("design.done", "template", entry.Title, "tag", entry.Tag), nil
}

// What a spec says when no template is on offer.
const (
	noTemplate  = "none"
	ownControls = "move-2d"
)

// spec is the design in the language of the wish; the first two lines are read
// by the host.
func (j *job) spec(w wish.Wish, e recipe.Entry) string {
	d := j.model.cook.Design(w, e)
	head := "template: " + e.Tag
	if e.Tag == noTemplate {
		head += "\ncontrols: " + e.Controls
	}
	lines := []string{
		head,
		"",
		"# " + d.Title.In(j.lang),
		"",
		j.say("spec.wish") + " " + strings.Join(strings.Fields(j.wish), " "),
		"",
		"- " + j.say("spec.hero", "name", d.Hero.Names.In(j.lang)),
		"- " + j.say("spec.foes", "names", j.listed(d.Foes)),
		"- " + j.say("spec.prizes", "names", j.listed(d.Prizes)),
		"- " + j.say("spec.place", "name", j.placeName(d.Place)),
		"- " + j.say("spec.template", "title", e.Title, "summary", e.Summary),
	}
	for _, means := range keys(w.Numbers) {
		direction := "spec.more"
		if w.Numbers[means] < 1 {
			direction = "spec.less"
		}
		lines = append(lines, "- "+j.say(direction, "what", j.say("means."+means)))
	}
	for _, means := range keys(w.Rules) {
		state := "spec.off"
		if w.Rules[means] {
			state = "spec.on"
		}
		lines = append(lines, "- "+j.say(state, "what", j.say("means."+means)))
	}
	lines = append(lines, "", j.say("spec.honest"), "")
	return strings.Join(lines, "\n")
}

func (j *job) listed(cast []wish.Cast) string {
	names := make([]string, len(cast))
	for i, c := range cast {
		names[i] = c.Names.In(j.lang)
	}
	return strings.Join(names, j.say("and"))
}

// placeName is a word for the place in the language of the turn.
func (j *job) placeName(id string) string {
	if words := j.model.cook.Lexicon.Places[id].Words[j.lang]; len(words) > 0 {
		return words[0]
	}
	return id
}
