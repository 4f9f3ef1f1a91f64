package playtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"dreamcore"
)

const (
	soakChunks     = 60 // of framesPerChunk each: fifteen seconds of play
	framesPerChunk = 15
	recordFrames   = 20
	recordStep     = 8  // frames of play between two pictures
	heavyFrames    = 13 // the same for a scene in 3D: it is drawn in software here
	heavyStep      = 12
	recordShrink   = 3 // times smaller than the screen
	posterAt       = 8 // which picture is also taken large
)

// shown is what playing for show has brought.
type shown struct {
	poster, recording string
	facts             facts
	end               string // the code of what ended it too early
	notNumber         bool   // a place that is no number was seen
	dead              string // the state that the game could not be played again from
}

// add adds the findings of playing for show.
func (j *judge) add(s shown) {
	if s.end != "" {
		j.find(s.end, dreamcore.Fail)
	}
	if s.notNumber {
		j.findOnce("not_a_number", dreamcore.Fail)
	}
	if s.facts.Dialogs > 0 {
		j.findOnce("dialog", dreamcore.Fail)
	}
	if s.dead != "" {
		j.find("retry_dead", dreamcore.Fail, "state", quote(s.dead))
	}
	j.pageErrors(s.facts)
}

// show plays with the keys that the game answers to, for poster and recording,
// then on at random.
func (j *judge) show(seen evidence) (shown, error) {
	var s shown
	t, err := j.browser.open(j.site, small, j.opt.Out != "")
	if err != nil {
		return s, err
	}
	defer t.Close()
	if _, err = t.start(startWait); err == nil && j.opt.Out != "" {
		err = j.record(t, seen, &s)
	}
	if err == nil {
		err = j.soak(t, &s)
	}
	t.lost = t.lost || err != nil
	// What was seen before still counts, so these are findings among others.
	switch {
	case errors.Is(err, errStuck):
		s.end, err = "endless_loop", nil
	case errors.Is(err, errLeft):
		s.end, err = "left", nil
	}
	return s, err
}

// save writes one picture, where pictures are wanted, and returns its name.
func (j *judge) save(name string, data []byte) (string, error) {
	if j.opt.Out == "" {
		return "", nil
	}
	if err := os.WriteFile(filepath.Join(j.opt.Out, name), data, 0o644); err != nil {
		return "", fmt.Errorf("write picture: %w", err)
	}
	return name, nil
}

// record takes the poster and a short recording of play.
func (j *judge) record(t *tab, seen evidence, s *shown) error {
	pick := rand.New(rand.NewPCG(1, 2))
	keys := answeringKeys(seen)
	var held []key
	var frames [][]byte
	count, step := recordFrames, recordStep
	var heavy bool
	if err := t.eval("return watch.heavy()", &heavy); err != nil {
		return err
	}
	if heavy {
		count, step = heavyFrames, heavyStep
	}
	for i := range count {
		if i%5 == 0 {
			if err := t.keys(false, held...); err != nil {
				return err
			}
			held = nil
			if len(keys) > 0 {
				held = []key{keys[pick.IntN(len(keys))]}
				if err := t.keys(true, held...); err != nil {
					return err
				}
			} else if err := clickAct(t, i/5); err != nil {
				return err
			}
		}
		if err := t.draw(step); err != nil {
			return err
		}
		frame, err := t.snap()
		if err != nil {
			return err
		}
		frames = append(frames, frame)
		if i != posterAt {
			continue
		}
		poster, err := t.shoot()
		if err != nil {
			return err
		}
		if s.poster, err = j.save("poster.png", poster); err != nil {
			return err
		}
	}
	if err := t.keys(false, held...); err != nil {
		return err
	}
	movie, err := animate(frames, step)
	if err != nil {
		return fmt.Errorf("make recording: %w", err)
	}
	s.recording, err = j.save("recording.png", movie)
	return err
}

// answeringKeys are the keys whose arm moved something.
func answeringKeys(seen evidence) []key {
	var keys []key
	for _, k := range []struct {
		arm string
		key key
	}{{"right", keyRight}, {"up", keyUp}, {"left", keyLeft}, {"down", keyDown}, {"space", keySpace}, {"d", keyD}, {"a", keyA}, {"w", keyW}, {"s", keyS}} {
		if seen.moves(k.arm) {
			keys = append(keys, k.key)
		}
	}
	return keys
}

// over reports whether a probe's state is that of a game that has ended.
func over(p *probe) bool {
	if p == nil {
		return false
	}
	switch strings.ToLower(p.State) {
	case "end", "ended", "over", "gameover", "game-over", "won", "lost", "win", "lose", "dead":
		return true
	}
	return false
}

// soak plays at random, looks for errors and numbers that are none, and if the
// game ends, tries to begin it again.
func (j *judge) soak(t *tab, seen *shown) error {
	pick := rand.New(rand.NewPCG(7, 11))
	all := []key{keyRight, keyLeft, keyUp, keyDown, keySpace, keyD, keyA}
	var held []key
	for i := range soakChunks {
		if err := t.keys(false, held...); err != nil {
			return err
		}
		held = nil
		for _, k := range all {
			if pick.IntN(4) == 0 {
				held = append(held, k)
			}
		}
		if err := t.keys(true, held...); err != nil {
			return err
		}
		if i%4 == 3 {
			if err := clickAct(t, pick.IntN(40)); err != nil {
				return err
			}
		}
		if i%6 != 5 {
			if err := t.frames(framesPerChunk); err != nil {
				return err
			}
			continue
		}
		s, err := t.look(framesPerChunk)
		if err != nil {
			return err
		}
		seen.notNumber = seen.notNumber || s.Bad || (s.Probe != nil && s.Probe.Bad)
		if over(s.Probe) {
			if err := t.keys(false, held...); err != nil {
				return err
			}
			held = nil
			if err := j.retry(t, s, seen); err != nil {
				return err
			}
			break
		}
	}
	if err := t.keys(false, held...); err != nil {
		return err
	}
	var err error
	seen.facts, err = t.facts()
	return err
}

// retry tries what a person would to play again: the button, Enter, Space, a
// click into the middle. The game's own state says whether it worked.
func (j *judge) retry(t *tab, ended sample, seen *shown) error {
	tries := []func() error{
		func() error { _, err := t.start(30); return err },
		func() error { return press(t, keySpace) },
		func() error { return press(t, key{"KeyR", "r", "r", 82}) },
		func() error {
			at, err := t.onCanvas(0.5, 0.6)
			if err != nil {
				return err
			}
			return t.click(at)
		},
	}
	// An end screen may not take a press at once.
	if err := t.frames(90); err != nil {
		return err
	}
	for _, try := range tries {
		if err := try(); err != nil {
			return err
		}
		s, err := t.look(20)
		if err != nil {
			return err
		}
		if !over(s.Probe) || s.Probe.Score < ended.Probe.Score {
			return nil
		}
	}
	seen.dead = ended.Probe.State
	return nil
}

func press(t *tab, k key) error {
	if err := t.keys(true, k); err != nil {
		return err
	}
	if err := t.frames(2); err != nil {
		return err
	}
	return t.keys(false, k)
}
