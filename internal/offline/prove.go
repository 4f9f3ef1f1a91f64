package offline

import (
	"path"
	"slices"
	"strings"

	"dreamcore/internal/offline/recipe"
	"dreamcore/internal/offline/wire"
)

// maxRounds bounds how often a turn mends and judges again.
const maxRounds = 4

// prove runs the judgements and mends what they find. It returns what is left.
// The checker is cheap and runs until it passes; levels and play are judged
// after it, and again only when something was mended for them.
func (j *job) prove(g *game, plan *recipe.Plan) ([]finding, error) {
	return j.proveWith(&mender{job: j, game: g, plan: plan, tried: map[string]bool{}})
}

func (j *job) proveWith(m *mender) ([]finding, error) {
	for _, tool := range []string{"check", "level", "playtest"} {
		for round := 0; ; round++ {
			left, err := j.judge(tool, round)
			if err != nil {
				return nil, err
			}
			if len(left) == 0 {
				break
			}
			mended := false
			if round < maxRounds {
				if mended, err = m.mend(left); err != nil {
					return nil, err
				}
			}
			if !mended {
				return left, nil
			}
		}
	}
	return nil, nil
}

// judge runs one judgement on the project.
func (j *job) judge(tool string, round int) ([]finding, error) {
	words := j.say("judge." + tool)
	if round > 0 {
		words = j.say("judge.again", "tool", tool)
	}
	output, code, err := j.shell(words, tool+" "+project)
	if err != nil || code == 0 {
		return nil, err
	}
	found := parseFindings(output)
	if len(found) == 0 && code == 1 {
		found = []finding{{code: tool + "_failed"}}
	}
	if len(found) == 0 {
		// Any other code: it could not judge, which is not the game's fault. The
		// host judges for itself; here it is only not passed over in silence.
		j.unjudged = append(j.unjudged, tool)
	}
	return found, nil
}

// mender mends findings by the game's plan and the kept skeleton. Each mend is
// tried once a turn: what did not help will not help again.
type mender struct {
	*job
	game  *game
	plan  *recipe.Plan
	tried map[string]bool
}

// mend does what it can about the findings and reports whether it did anything.
func (m *mender) mend(found []finding) (bool, error) {
	var pictures []string
	for _, o := range m.plan.Orders {
		pictures = append(pictures, o.File)
	}
	did := false
	for _, f := range found {
		does := remedyFor(f, pictures)
		for _, step := range escalation[does] {
			key := string(step) + " " + f.file
			if step == retreat || step == calm {
				key = string(step) // these are for the whole project
			}
			if m.tried[key] {
				continue
			}
			m.tried[key] = true
			done, err := m.try(step, f)
			if err != nil {
				return false, err
			}
			if done {
				did = true
				break
			}
		}
	}
	return did, nil
}

// escalation is what to do when a remedy alone did not help. Only findings
// about play can be the fault of the numbers and rules that the plan chose.
var escalation = map[remedy][]remedy{
	redraw:  {redraw, restore},
	retell:  {retell, restore},
	refill:  {refill, calm},
	restore: {restore, retreat},
	retreat: {retreat, calm},
}

func (m *mender) try(r remedy, f finding) (bool, error) {
	switch r {
	case redraw:
		return m.redraw(f)
	case retell:
		file := f.file
		if file == "" {
			file = pageFile
		}
		if strings.HasSuffix(file, ".json") {
			return m.refill()
		}
		return true, m.reword(file, m.plan)
	case refill:
		return m.refill()
	case restore:
		if f.file == "" || slices.Contains(m.game.manifest.Files(), f.file) {
			return false, nil
		}
		return true, m.restore(f.file)
	case retreat:
		return true, m.retreat(m.plan.Files)
	case calm:
		return true, m.retreat(m.plan.Calm)
	}
	return false, nil
}

// redraw orders the picture that a finding names again, or all of them where it
// names none of ours.
func (m *mender) redraw(f finding) (bool, error) {
	var again []recipe.Order
	for _, o := range m.plan.Orders {
		if o.File == f.file || strings.Contains(f.text, o.File) {
			again = append(again, o)
		}
	}
	if len(again) == 0 {
		return false, nil
	}
	return true, m.reorder(m.say("mend.redraw"), again)
}

// refill writes the data files as planned.
func (m *mender) refill() (bool, error) {
	for _, file := range m.game.manifest.Files() {
		if text, ok := m.plan.Files[file]; ok {
			if err := m.write(m.say("mend.refill", "file", file), file, string(text)); err != nil {
				return false, err
			}
		}
	}
	return len(m.plan.Files) > 0, nil
}

// restore puts one file back as it was delivered, and its names anew; a file
// that was not delivered goes.
func (m *mender) restore(file string) error {
	was, is := wire.Quote(skeleton+"/"+file), wire.Quote(project+"/"+file)
	_, _, err := m.shell(m.say("mend.restore", "file", file),
		"if test -e "+was+"; then mkdir -p "+wire.Quote(path.Dir(project+"/"+file))+" && cp -a "+was+" "+is+"; else rm -f "+is+"; fi")
	if err != nil {
		return err
	}
	if strings.HasSuffix(file, ".html") {
		return m.reword(file, m.plan)
	}
	return nil
}

// delivered stands in the output of retreat before a picture that is missing
// or still the template's.
const delivered = "not ours: "

// retreat puts all code and levels back as they were delivered, then writes
// data over it. Pictures stay where there are any: they cannot break a game.
func (m *mender) retreat(data map[string][]byte) error {
	command := strings.Join([]string{
		"cd " + skeleton,
		"find . -type f ! -path './assets/*' ! -name " + specFile + " -exec cp -a --parents {} " + project + "/ \\;",
		"find . -type f -path './assets/*' | while read -r f; do test -s " + project + `/"$f" || cp -a --parents "$f" ` + project + "/; done",
		"cd " + project,
		"find . -type f | while read -r f; do test -e " + skeleton + `/"$f" || case "$f" in ./` + specFile + `) ;; *.js|*.html|*.css) rm -f "$f" ;; esac; done`,
	}, " && ")
	// A picture that is the delivered one is none of the plan's.
	for _, o := range m.plan.Orders {
		f := wire.Quote(o.File)
		command += "\ncmp -s " + skeleton + "/" + f + " " + f + " && echo " + wire.Quote(delivered+o.File)
		command += "\ntest -s " + f + " || echo " + wire.Quote(delivered+o.File)
	}
	output, _, err := m.shell(m.say("mend.retreat"), command)
	if err != nil {
		return err
	}
	var again []recipe.Order
	for _, o := range m.plan.Orders {
		if strings.Contains(output, delivered+o.File+"\n") {
			again = append(again, o)
		}
	}
	if err := m.reorder(m.say("mend.redraw"), again); err != nil {
		return err
	}
	for _, file := range m.game.manifest.Files() {
		if file != recipe.GameFile {
			continue // a level's numbers stay as they were delivered
		}
		if text, ok := data[file]; ok {
			if err := m.write(m.say("mend.refill", "file", file), file, string(text)); err != nil {
				return err
			}
		}
	}
	return m.reword(pageFile, m.plan)
}
