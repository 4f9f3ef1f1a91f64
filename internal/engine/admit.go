package engine

import (
	"errors"
	"strconv"

	"dreamcore"
	"dreamcore/internal/text"
)

// ticket is the right to make one box. It counts as a box until that is
// registered, so that no two creates share the last room.
type ticket struct{ spent bool }

// errFull is the cause of an error that says that there is no room for a box.
var errFull = errors.New("the engine is full")

// admit reserves room for one more box, or says that there is none. Whoever
// makes a box asks first, puts the ticket into its order, and gives it back at
// the end however that went.
func (e *Engine) admit() (*ticket, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	most := e.cfg.MaxBoxes
	if most > 0 && len(e.boxes)+e.coming >= most {
		e.log.Warn("a sandbox was refused", "decision", "refused", "reason", "too_many", "alive", len(e.boxes), "coming", e.coming, "most", most)
		return nil, &dreamcore.Error{
			Code: dreamcore.Refused, Op: "engine.create",
			Msg:  text.T(e.cfg.Lang, "engine.full", "most", strconv.Itoa(most)),
			Hint: text.T(e.cfg.Lang, "engine.full_hint"), Err: errFull,
		}
	}
	e.coming++
	return &ticket{}, nil
}

// spend turns a ticket into the box that was registered. The caller holds mu;
// an order without a ticket was not counted.
func (e *Engine) spend(t *ticket) {
	if t != nil && !t.spent {
		t.spent = true
		e.coming--
	}
}

// giveBack frees the room of a ticket that no box came of.
func (e *Engine) giveBack(t *ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spend(t)
}

// domain is Config.Domain as the protocol has it: absent when there is none.
func (e *Engine) domain() *string {
	if e.cfg.Domain == "" {
		return nil
	}
	return &e.cfg.Domain
}
