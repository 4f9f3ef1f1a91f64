package playtest

import (
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
	recordFrames   = 26
	recordStep     = 5 // frames of play between two pictures: 12 pictures a second
	recordScale    = 0.25
	posterAt       = 9 // which picture is also taken large
)

// after does what follows the verdict: pictures, random play, retry.
func (j *judge) after(seen evidence) error {
	if j.opt.Out != "" {
		if err := os.MkdirAll(j.opt.Out, 0o755); err != nil {
			return fmt.Errorf("make folder for pictures: %w", err)
		}
		if err := j.pictures(seen); err != nil {
			return err
		}
	}
	return j.soak()
}

// save writes one picture and returns its name.
func (j *judge) save(name string, data []byte) (string, error) {
	if err := os.WriteFile(filepath.Join(j.opt.Out, name), data, 0o644); err != nil {
		return "", fmt.Errorf("write picture: %w", err)
	}
	return name, nil
}

// pictures takes the game before any input, at play, on a phone, and a short
// recording of play with the keys that it answered to.
func (j *judge) pictures(seen evidence) error {
	t, err := j.browser.open(j.site.url, desktop, true)
	if err != nil {
		return err
	}
	defer t.Close()
	idle, err := t.shoot(1)
	if err != nil {
		return err
	}
	if j.report.Idle, err = j.save("idle.png", idle); err != nil {
		return err
	}
	if _, err := t.start(startWait); err != nil {
		return err
	}
	pick := rand.New(rand.NewPCG(1, 2))
	keys := answeringKeys(seen)
	var held []key
	var frames [][]byte
	// What is drawn in 3D is drawn in software here: fewer pictures of it.
	count := recordFrames
	var heavy bool
	if err := t.eval("return watch.heavy()", &heavy); err != nil {
		return err
	}
	if heavy {
		count = recordFrames / 2
	}
	for i := range count {
		if i%6 == 0 {
			if err := t.keys(false, held...); err != nil {
				return err
			}
			held = nil
			if len(keys) > 0 {
				held = []key{keys[pick.IntN(len(keys))]}
				if err := t.keys(true, held...); err != nil {
					return err
				}
			} else if err := clickAct(t, i/6); err != nil {
				return err
			}
		}
		if err := t.frames(recordStep, true); err != nil {
			return err
		}
		frame, err := t.shoot(recordScale)
		if err != nil {
			return err
		}
		frames = append(frames, frame)
		if i == posterAt {
			poster, err := t.shoot(1)
			if err != nil {
				return err
			}
			if j.report.Poster, err = j.save("poster.png", poster); err != nil {
				return err
			}
		}
	}
	movie, err := animate(frames, recordStep)
	if err != nil {
		return fmt.Errorf("make recording: %w", err)
	}
	if j.report.Recording, err = j.save("recording.png", movie); err != nil {
		return err
	}
	p, err := j.browser.open(j.site.url, phone, true)
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err := p.start(startWait); err != nil {
		return err
	}
	if err := p.frames(20, true); err != nil {
		return err
	}
	touch, err := p.shoot(1)
	if err != nil {
		return err
	}
	j.report.Touch, err = j.save("touch.png", touch)
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
func (j *judge) soak() error {
	t, err := j.browser.open(j.site.url, desktop, false)
	if err != nil {
		return err
	}
	defer t.Close()
	if _, err := t.start(startWait); err != nil {
		return err
	}
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
		if err := t.frames(framesPerChunk, false); err != nil {
			return err
		}
		if i%6 != 5 {
			continue
		}
		s, err := t.look(1)
		if err != nil {
			return err
		}
		if s.Bad || (s.Probe != nil && s.Probe.Bad) {
			j.findOnce("not_a_number", dreamcore.Fail)
		}
		if over(s.Probe) {
			if err := t.keys(false, held...); err != nil {
				return err
			}
			if err := j.retry(t, s); err != nil {
				return err
			}
			break
		}
	}
	f, err := t.facts()
	if err != nil {
		return err
	}
	j.pageErrors(f)
	return nil
}

// retry tries what a person would to play again: the button, Enter, Space, a
// click into the middle. The game's own state says whether it worked.
func (j *judge) retry(t *tab, ended sample) error {
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
	if err := t.frames(90, false); err != nil {
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
	j.find("retry_dead", dreamcore.Fail, "state", quote(ended.Probe.State))
	return nil
}

func press(t *tab, k key) error {
	if err := t.keys(true, k); err != nil {
		return err
	}
	if err := t.frames(2, false); err != nil {
		return err
	}
	return t.keys(false, k)
}
