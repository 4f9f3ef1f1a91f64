package offline

import (
	"fmt"
	"strings"

	"dreamcore/internal/offline/recipe"
	"dreamcore/internal/offline/wire"
)

// The files of a game that the programs name.
const (
	manifestFile = "template.json"
	pageFile     = "index.html"
)

// skeleton is where the delivered files are kept beside the project, so that a
// file which turned out broken can be put back.
const skeleton = "/tmp/dreamcore-skeleton"

// build turns the delivered skeleton into the game of the wish.
func (j *job) build() (string, error) {
	if j.sabotage == SabotageHang {
		return "", errSilent
	}
	g, err := j.open(project)
	if err != nil {
		return "", err
	}
	if g == nil {
		if g, err = j.own(); err != nil {
			return "", err
		}
	}
	w := j.model.reader.Read(j.wish, j.lang)
	plan, err := j.model.cook.Make(g.manifest, g.files, w)
	if err != nil {
		return j.say("build.unreadable", "file", recipe.GameFile), nil
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
	return j.summary(plan, left), nil
}

// game is the project as it stands: the manifest and the JSON files that it
// reaches into.
type game struct {
	manifest recipe.Manifest
	files    map[string][]byte
}

// open reads the game in a folder; nil when there is none.
func (j *job) open(folder string) (*game, error) {
	text, err := j.readJSON(j.say("build.read"), folder, manifestFile)
	if err != nil {
		return nil, err
	}
	m, err := recipe.ParseManifest([]byte(text))
	if err != nil {
		return nil, nil // no template, or none that can be read: the same to us
	}
	g := &game{manifest: m, files: map[string][]byte{}}
	for _, file := range m.Files() {
		text, err := j.readJSON("", folder, file)
		if err != nil {
			return nil, err
		}
		g.files[file] = []byte(text)
	}
	return g, nil
}

// keep copies the project aside, once a turn.
func (j *job) keep() error {
	_, _, err := j.shell(j.say("build.keep"), "rm -rf "+skeleton+" && cp -a "+project+" "+skeleton)
	return err
}

// apply orders the pictures, writes the files and waits for the pictures.
func (j *job) apply(g *game, plan *recipe.Plan) error {
	if err := j.order(j.say("build.order", "hero", plan.Hero.Names.In(j.lang)), plan.Orders); err != nil {
		return err
	}
	for _, file := range g.manifest.Files() {
		if text, ok := plan.Files[file]; ok {
			if err := j.write(j.say("build.write", "file", file), file, string(text)); err != nil {
				return err
			}
		}
	}
	if err := j.reword(pageFile, plan); err != nil {
		return err
	}
	if len(plan.Orders) == 0 {
		return nil
	}
	made, err := j.wait()
	if err != nil || made {
		return err
	}
	// Those that failed are tried once more; the others count as done.
	if err := j.order(j.say("mend.redraw"), plan.Orders); err != nil {
		return err
	}
	made, err = j.wait()
	j.undrawn = !made
	return err
}

// order orders pictures, all in one go; they are made while the work goes on.
func (j *job) order(words string, orders []recipe.Order) error {
	if len(orders) == 0 {
		return nil
	}
	var lines []string
	for _, o := range orders {
		lines = append(lines, fmt.Sprintf("image order %s --out %s --size %dx%d --transparent",
			wire.Quote(o.Words), wire.Quote(project+"/"+o.File), o.Size, o.Size))
	}
	_, _, err := j.shell(words, strings.Join(lines, "\n"))
	return err
}

// reorder orders pictures again that turned out wrong. They are removed first:
// an order whose picture is there counts as done.
func (j *job) reorder(words string, orders []recipe.Order) error {
	if len(orders) == 0 {
		return nil
	}
	remove := "rm -f"
	for _, o := range orders {
		remove += " " + wire.Quote(project+"/"+o.File)
	}
	if _, _, err := j.shell(words, remove); err != nil {
		return err
	}
	if err := j.order("", orders); err != nil {
		return err
	}
	made, err := j.wait()
	j.undrawn = !made
	return err
}

// wait waits for the pictures and reports whether all were made.
func (j *job) wait() (bool, error) {
	_, code, err := j.shell(j.say("build.wait"), "image wait")
	return code == 0, err
}

// reword replaces what is left of the template's names in a page.
func (j *job) reword(file string, plan *recipe.Plan) error {
	old, err := j.read(j.say("build.page", "file", file), project, file)
	if err != nil || old == "" {
		return err
	}
	now := plan.RewordPage(old, j.lang)
	if now == old {
		return nil
	}
	call, err := j.req.Edit(project+"/"+file, lineEdits(old, now), now)
	_, err = j.do(j.say("build.reword", "file", file), call, err)
	return err
}

// lineEdits are the lines that differ, or nil where one of them does not stand
// alone: an edit tool must find what it replaces exactly once.
func lineEdits(old, now string) []wire.Edit {
	was, is := strings.Split(old, "\n"), strings.Split(now, "\n")
	var edits []wire.Edit
	for i := range was {
		if was[i] == is[i] {
			continue
		}
		if strings.Count(old, was[i]) != 1 {
			return nil
		}
		edits = append(edits, wire.Edit{Old: was[i], New: is[i]})
	}
	return edits
}

// summary is what the person reads at the end.
func (j *job) summary(plan *recipe.Plan, left []finding) string {
	parts := []string{
		j.say("done.game", "title", plan.Title.In(j.lang), "hero", plan.Hero.Names.In(j.lang), "place", j.placeName(plan.Place)),
	}
	if len(plan.Changed) > 0 {
		names := make([]string, len(plan.Changed))
		for i, means := range plan.Changed {
			names[i] = j.say("means." + means)
		}
		parts = append(parts, j.say("done.changed", "list", strings.Join(names, j.say("and"))))
	}
	parts = append(parts, j.verdict(left), j.say("done.honest"))
	return strings.Join(parts, " ")
}

// verdict says what the judgements said, and what went wrong beside them.
func (j *job) verdict(left []finding) string {
	said := j.judged(left)
	if j.undrawn {
		said += " " + j.say("done.undrawn")
	}
	return said
}

func (j *job) judged(left []finding) string {
	if len(left) == 0 && len(j.unjudged) > 0 {
		return j.say("done.unjudged", "list", strings.Join(j.unjudged, j.say("and")))
	}
	if len(left) == 0 {
		return j.say("done.passed")
	}
	codes := make([]string, len(left))
	for i, f := range left {
		codes[i] = f.code
	}
	return j.say("done.left", "list", strings.Join(codes, ", "))
}
