package playtest

import (
	"fmt"

	"github.com/chromedp/cdproto/input"
)

// How an arm runs: so many samples, so many frames apart (60 frames a second).
const (
	samples      = 8
	framesApart  = 6
	startWait    = 30  // frames between the start and the first sample
	patientWait  = 270 // the same for games that count down or tell a story first
	startRounds  = 3
	framesToTell = 10
)

// sample is what one moment of the game looks like; see inject/watch.js.
type sample struct {
	Scroll   [2]float64           `json:"scroll"`
	Entities map[string][]float64 `json:"entities"`
	Texts    string               `json:"texts"`
	Layout   string               `json:"layout"`
	Picture  int64                `json:"picture"`
	Colours  int                  `json:"colours"`
	Bad      bool                 `json:"bad"`
	Ended    int                  `json:"ended"`
	Answered bool                 `json:"answered"`
	Probe    *probe               `json:"probe"`
}

// probe is what the game says about itself through the SDK.
type probe struct {
	Place []float64 `json:"place"`
	Bad   bool      `json:"bad"`
	State string    `json:"state"`
	Score float64   `json:"score"`
}

// facts is what went wrong in a page.
type facts struct {
	Errors     []string `json:"errors"`
	ErrorCount int      `json:"errorCount"`
	Violations []string `json:"violations"`
	Dialogs    int      `json:"dialogs"`
	Frames     int      `json:"frames"`
	Waiting    int      `json:"waiting"`
}

// arm is one way to play: what is held, or what is done before each sample.
type arm struct {
	name   string
	screen screen
	hold   []key
	act    func(t *tab, i int) error
	shoot  func(t *tab) error // takes a picture in the middle; nil: none is taken
}

// run is what an arm saw.
type run struct {
	arm     string
	samples []sample
	end     ending
	started string // the label of the button that started the game
}

// ending is what a page looks like after an arm.
type ending struct {
	Facts      facts          `json:"facts"`
	Handlers   map[string]int `json:"handlers"`
	Scrollable bool           `json:"scrollable"` // the page is larger than the screen
}

func keyArm(name string, keys ...key) arm { return arm{name: name, screen: desktop, hold: keys} }

// clickAct clicks the i-th place.
func clickAct(t *tab, i int) error {
	var at point
	if err := t.eval(fmt.Sprintf("return watch.clickPoint(%d)", i), &at); err != nil {
		return err
	}
	return t.click(at)
}

// glideAct moves the pointer to a fixed place and stays there.
func glideAct(u, v float64) func(*tab, int) error {
	return func(t *tab, i int) error {
		at, err := t.onCanvas(u, v)
		if err != nil {
			return err
		}
		at.X += float64(i % 2) // a resting hand trembles; some games only look at moves
		return t.mouse(input.DispatchMouseEventTypeMouseMoved, at, false)
	}
}

// dragAct presses in the middle, draws a slanting line, and lets go.
func dragAct(t *tab, i int) error {
	at, err := t.onCanvas(0.4+0.05*float64(i), 0.6-0.04*float64(i))
	if err != nil {
		return err
	}
	if t.screen.touch {
		switch i {
		case 0:
			return t.touch(input.DispatchTouchEventTypeTouchStart, at)
		case samples - 2:
			return t.touch(input.DispatchTouchEventTypeTouchEnd)
		case samples - 1:
			return nil
		}
		return t.touch(input.DispatchTouchEventTypeTouchMove, at)
	}
	if i == 0 {
		if err := t.mouse(input.DispatchMouseEventTypeMouseMoved, at, false); err != nil {
			return err
		}
		return t.mouse(input.DispatchMouseEventTypeMousePressed, at, true)
	}
	if i == samples-2 {
		return t.mouse(input.DispatchMouseEventTypeMouseReleased, at, false)
	}
	return t.mouse(input.DispatchMouseEventTypeMouseMoved, at, i < samples-2)
}

// touchAct taps in turn what has handlers and places on the screen, and holds
// each for the frames between two samples, as a thumb does on a pad.
func touchAct(t *tab, i int) error {
	if i > 0 {
		if err := t.touch(input.DispatchTouchEventTypeTouchEnd); err != nil {
			return err
		}
	}
	if i == samples-1 {
		return nil
	}
	var at point
	if err := t.eval(fmt.Sprintf("return watch.clickPoint(%d)", i), &at); err != nil {
		return err
	}
	return t.touch(input.DispatchTouchEventTypeTouchStart, at)
}

func (t *tab) onCanvas(u, v float64) (point, error) {
	var at point
	err := t.eval(fmt.Sprintf("return watch.canvasPoint(%g, %g)", u, v), &at)
	return at, err
}

// start brings the game from its title into play, the same way in every arm:
// the button that looks like it, else a click into the middle, then Enter.
func (t *tab) start(wait int) (string, error) {
	label := ""
	for round := range startRounds {
		var at *point
		if err := t.eval(fmt.Sprintf("return watch.startPoint(%t)", round > 0), &at); err != nil {
			return label, err
		}
		if at == nil && round > 0 {
			break
		}
		if at == nil {
			middle, err := t.onCanvas(0.5, 0.5)
			if err != nil {
				return label, err
			}
			at = &middle
		} else if label == "" {
			label = at.Label
		}
		if err := t.click(*at); err != nil {
			return label, err
		}
		if err := t.frames(framesToTell); err != nil {
			return label, err
		}
	}
	if !t.screen.touch {
		if err := t.keys(true, keyEnter); err != nil {
			return label, err
		}
		if err := t.frames(1); err != nil {
			return label, err
		}
		if err := t.keys(false, keyEnter); err != nil {
			return label, err
		}
	}
	return label, t.frames(wait)
}

// frames plays n frames; none of them is drawn.
func (t *tab) frames(n int) error {
	return t.eval(fmt.Sprintf("await watch.run(%d, false)", n), nil)
}

// draw plays n frames and draws the last for a picture.
func (t *tab) draw(n int) error {
	return t.eval(fmt.Sprintf("await watch.run(%d, 'show')", n), nil)
}

// look plays n frames and samples the last.
func (t *tab) look(n int) (sample, error) {
	var s sample
	err := t.eval(fmt.Sprintf("await watch.run(%d, true); return watch.sample()", n), &s)
	return s, err
}

func (t *tab) facts() (facts, error) {
	var f facts
	err := t.eval("return clock.facts()", &f)
	return f, err
}

// play runs one arm in a fresh page.
func (b *browser) play(site *site, a arm, wait int) (run, error) {
	t, err := b.open(site, a.screen, a.shoot != nil)
	if err != nil {
		return run{}, err
	}
	defer t.Close()
	r, err := t.play(a, wait)
	t.lost = t.lost || err != nil // its keys may be held
	return r, err
}

// between plays the frame between the two times that a key is held; a picture
// may be taken of it.
func (t *tab) between(a arm) error {
	if a.shoot == nil {
		return t.frames(1)
	}
	if err := t.draw(1); err != nil {
		return err
	}
	return a.shoot(t)
}

// play runs one arm in the page: hold, release, hold, release.
func (t *tab) play(a arm, wait int) (run, error) {
	r := run{arm: a.name}
	var err error
	if r.started, err = t.start(wait); err != nil {
		return r, err
	}
	first, err := t.look(1)
	if err != nil {
		return r, err
	}
	r.samples = append(r.samples, first)
	if err := t.keys(true, a.hold...); err != nil {
		return r, err
	}
	for i := range samples {
		if a.act != nil {
			if err := a.act(t, i); err != nil {
				return r, err
			}
		}
		s, err := t.look(framesApart)
		if err != nil {
			return r, err
		}
		r.samples = append(r.samples, s)
		if len(a.hold) > 0 && (i == 3 || i == 6) {
			if err := t.keys(false, a.hold...); err != nil {
				return r, err
			}
		}
		if i != 3 {
			continue
		}
		// Every arm plays the same number of frames.
		if err := t.between(a); err != nil {
			return r, err
		}
		if len(a.hold) > 0 {
			if err := t.keys(true, a.hold...); err != nil {
				return r, err
			}
		}
	}
	return r, t.eval("return {facts: clock.facts(), handlers: watch.handlers(), scrollable: watch.scrollable()}", &r.end)
}
