package playtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// arms plays with keys and pointer and compares with idle, those first that the
// control scheme asks for. Once its gate is passed the others are left out: they
// cannot change the verdict. The idle game goes on in page, where that is not nil.
func (j *judge) arms(ctx context.Context, page *tab, wait int) (evidence, error) {
	seen := evidence{arms: map[string]difference{}}
	if err := j.idle(ctx, page, wait); err != nil {
		return seen, err
	}
	idle := j.runs["idle"]
	seen.noise = noisy(idle, j.runs["idle-again"])
	for i := 1; i < len(idle.samples); i++ {
		a, b := idle.samples[i-1], idle.samples[i]
		seen.alive = seen.alive || a.Texts != b.Texts || a.Picture != b.Picture || a.Layout != b.Layout || !sameEntities(a.Entities, b.Entities)
	}
	todo := choose(idle.end.Handlers, j.opt.Controls)
	hasKeys := slices.ContainsFunc(todo, isKeyArm)
	first, rest := j.split(todo, idle.end.Scrollable)
	for _, arms := range [][]arm{first, rest} {
		if err := j.playAgainst(ctx, seen, idle, wait, arms); err != nil {
			return seen, err
		}
		if _, ok := seen.gate(j.opt.Controls); ok {
			return seen, nil
		}
	}
	if !hasKeys || !needsKeys(j.opt.Controls) {
		return seen, nil
	}
	if seen.oppose(sideways...) == nil || seen.oppose(upright...) == nil {
		more := []arm{keyArm("d", keyD), keyArm("a", keyA), keyArm("w", keyW), keyArm("s", keyS)}
		if err := j.playAgainst(ctx, seen, idle, wait, more); err != nil {
			return seen, err
		}
	}
	if seen.oppose(sideways...) == nil {
		// What steers like a car only goes sideways while it goes ahead.
		more := []arm{keyArm("up-right", keyUp, keyRight), keyArm("up-left", keyUp, keyLeft)}
		if err := j.playAgainst(ctx, seen, j.runs["up"], wait, more); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

// idle lets the game run untouched, twice: what differs between the two is noise.
func (j *judge) idle(ctx context.Context, page *tab, wait int) error {
	idle, again := arm{name: "idle", screen: desktop}, arm{name: "idle-again", screen: desktop}
	if page == nil {
		return j.playAll(ctx, wait, j.opt.Parallel, idle, again)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		r, err := page.play(idle, wait)
		page.lost = page.lost || err != nil
		page.Close()
		if err != nil {
			return fmt.Errorf("play %s: %w", idle.name, err)
		}
		j.remember(r)
		return nil
	})
	group.Go(func() error { return j.playAll(ctx, wait, 1, again) })
	return group.Wait()
}

// touch plays on a phone. A swipe is tried where taps do nothing, or where the
// gate is still closed.
func (j *judge) touch(ctx context.Context, seen evidence, wait, parallel int) error {
	idle := arm{name: "touch-idle", screen: phone}
	if j.opt.Out != "" {
		idle.shoot = func(t *tab) error {
			shot, err := t.shoot()
			if err != nil {
				return err
			}
			j.report.Touch, err = j.save("touch.png", shot)
			return err
		}
	}
	touch, swipe := arm{name: "touch", screen: phone, act: touchAct}, arm{name: "swipe", screen: phone, act: dragAct}
	if err := j.playAll(ctx, wait, parallel, idle, touch); err != nil {
		return err
	}
	j.compare(seen, j.runs["touch-idle"], touch)
	if _, ok := seen.gate(j.opt.Controls); ok && seen.arms["touch"].responds() {
		return nil
	}
	return j.playAgainst(ctx, seen, j.runs["touch-idle"], wait, []arm{swipe})
}

func needsKeys(controls string) bool { return controls != "pointer" && controls != "board" }

func isKeyArm(a arm) bool { return len(a.hold) > 0 }

// asked are the arms that a control scheme asks for.
var asked = map[string][]string{
	"move-2d":  {"right", "left", "up", "down"},
	"move-x":   {"right", "left"},
	"steer-3d": {"right", "left"},
	"jump-x":   {"right", "left", "space"},
	"tap":      {"space", "click"},
	"pointer":  {"click", "point-right"},
	"board":    {"click"},
}

// split parts the arms that the scheme asks for from the others. All keys are
// played where they could scroll the page.
func (j *judge) split(arms []arm, scrollable bool) (first, rest []arm) {
	names, ok := asked[j.opt.Controls]
	for _, a := range arms {
		if !ok || slices.Contains(names, a.name) || (scrollable && isKeyArm(a) && needsKeys(j.opt.Controls)) {
			first = append(first, a)
		} else {
			rest = append(rest, a)
		}
	}
	return first, rest
}

// choose leaves out what cannot be answered: keys where nothing listens to
// keys, the pointer where nothing listens to it.
func choose(handlers map[string]int, controls string) []arm {
	keys := handlers["keydown"]+handlers["keyup"]+handlers["keypress"] > 0
	pointer := false
	for name := range handlers {
		if strings.HasPrefix(name, "mouse") || strings.HasPrefix(name, "pointer") || strings.HasPrefix(name, "touch") || name == "click" {
			pointer = true
		}
	}
	var arms []arm
	if keys || !pointer {
		arms = append(arms, keyArm("right", keyRight), keyArm("left", keyLeft), keyArm("up", keyUp), keyArm("down", keyDown), keyArm("space", keySpace))
	}
	if pointer || !keys {
		arms = append(arms, arm{name: "click", screen: desktop, act: clickAct})
		if controls != "board" {
			arms = append(arms,
				arm{name: "point-right", screen: desktop, act: glideAct(0.8, 0.5)},
				arm{name: "point-left", screen: desktop, act: glideAct(0.2, 0.5)})
		}
		arms = append(arms, arm{name: "drag", screen: desktop, act: dragAct})
	}
	return arms
}

// playAll plays the arms, a few at once, and remembers their runs. After an
// endless loop the rest is left out.
func (j *judge) playAll(ctx context.Context, wait, parallel int, arms ...arm) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, a := range arms {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			begun := time.Now()
			r, err := j.browser.play(j.site, a, wait)
			if err != nil {
				return fmt.Errorf("play %s: %w", a.name, err)
			}
			j.opt.Log.Debug("arm played", "arm", a.name, "dur_ms", time.Since(begun).Milliseconds())
			j.remember(r)
			return nil
		})
	}
	return group.Wait()
}

func (j *judge) remember(r run) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.runs[r.arm] = r
}

// playAgainst plays the arms and compares them with what idle is to them.
func (j *judge) playAgainst(ctx context.Context, seen evidence, idle run, wait int, arms []arm) error {
	if err := j.playAll(ctx, wait, j.opt.Parallel, arms...); err != nil {
		return err
	}
	j.compare(seen, idle, arms...)
	return nil
}

func (j *judge) compare(seen evidence, idle run, arms ...arm) {
	for _, a := range arms {
		seen.arms[a.name] = differ(idle, j.runs[a.name], seen.noise)
	}
}
