package offline

import (
	"dreamcore"
	"dreamcore/internal/offline/recipe"
)

// repair mends what verification refused. It has the game as the agent left it,
// the plan that follows from the wish, and the kept skeleton.
func (j *job) repair() (string, error) {
	found := parseFindings(j.findings)
	if j.sabotage == SabotageRuin {
		if _, _, err := j.shell(j.say("sabotage", "mode", string(j.sabotage)), breakCode); err != nil {
			return "", err
		}
		return j.say("sabotage.done", "mode", string(j.sabotage)), nil
	}
	g, plan, err := j.replan()
	if err != nil {
		return "", err
	}
	if plan == nil {
		// No skeleton and so no plan: the turn before never came to a game.
		return j.build()
	}
	m := &mender{job: j, game: g, plan: plan, tried: map[string]bool{}}
	if j.talk.repairs() > 1 {
		// What was mended singly before was not enough.
		m.tried[string(retreat)] = true
		err = m.retreat(plan.Calm)
	} else if len(found) > 0 {
		_, err = m.mend(found)
	}
	if err != nil {
		return "", err
	}
	left, err := j.proveWith(m)
	if err != nil {
		return "", err
	}
	return j.say("repair.done", "count", count(found)) + " " + j.verdict(left), nil
}

// replan works the plan out again, from the kept skeleton: the project itself
// may be broken.
func (j *job) replan() (*game, *recipe.Plan, error) {
	g, err := j.open(skeleton)
	if err != nil || g == nil {
		return nil, nil, err
	}
	var plan *recipe.Plan
	if j.talk.maker() == dreamcore.Edit {
		plan, err = j.change(g)
	} else {
		plan, err = j.model.cook.Make(g.manifest, g.files, j.model.reader.Read(j.wish, j.lang))
	}
	if err != nil {
		return nil, nil, nil // the skeleton itself cannot be read: nothing to plan from
	}
	return g, plan, nil
}
