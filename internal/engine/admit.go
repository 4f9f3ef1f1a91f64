package engine

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"dreamcore"
)

// ticket is the right to make one box. It counts as a box until that is
// registered, so that no two creates share the last room.
type ticket struct{ spent bool }

// errFull is the cause of an error that says that there is no room for a box.
var errFull = errors.New("the engine is full")

// takes is how much of the machine's memory a box takes from the start, generously:
// one that is restored also what was in the memory that was saved.
func (e *Engine) takes(image Image, from *snapshot) int64 {
	if from == nil && image.Warm {
		from = e.newestWarm(image)
	}
	if from == nil {
		return blankBytes
	}
	return blankBytes + from.Bytes
}

// admit reserves room for one more box that takes so many bytes, or says that
// there is none. Whoever makes a box asks first, puts the ticket into its order,
// and gives it back at the end however that went.
func (e *Engine) admit(bytes int64) (*ticket, error) {
	l, err := e.host.load()
	if err != nil {
		// Whoever cannot see the machine's memory cannot judge by it.
		e.log.Warn("a sandbox is made unseen", "decision", "go on", "reason", err.Error())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		if err := e.affords(l, bytes); err != nil {
			return nil, err
		}
	}
	most := e.cfg.MaxBoxes
	if most > 0 && len(e.boxes)+e.coming >= most {
		e.log.Warn("a sandbox was refused", "decision", "refused", "reason", "too_many", "alive", len(e.boxes), "coming", e.coming, "most", most)
		return nil, e.fail(dreamcore.Refused, "create", "full", "most", strconv.Itoa(most)).Because(errFull)
	}
	e.coming++
	return &ticket{}, nil
}

// DefaultOvercommit lets a hundred boxes of 3 GiB live on a machine of 24.
const DefaultOvercommit = 16

// scarceShare of the machine's memory must stay free beside one more box, so
// that the kernel need not end something of the host's.
const scarceShare = 0.04

// affords says why the machine's memory is not enough for one more box that takes
// so many bytes. The caller holds mu.
func (e *Engine) affords(l load, bytes int64) error {
	promised := e.cfg.Limits.MemoryBytes * int64(e.coming+1)
	for _, b := range e.boxes {
		promised += b.limits.MemoryBytes
	}
	if float64(promised) > e.cfg.Overcommit*float64(l.totalBytes) {
		e.log.Warn("a sandbox was refused", "decision", "refused", "reason", "memory_promised", "alive", len(e.boxes), "promised_bytes", promised, "total_bytes", l.totalBytes)
		return e.fail(dreamcore.Refused, "create", "memory_promised", "promised", strconv.FormatInt((promised-e.cfg.Limits.MemoryBytes)>>30, 10)).Because(errFull)
	}
	if float64(l.freeBytes-bytes) < scarceShare*float64(l.totalBytes) {
		e.log.Warn("a sandbox was refused", "decision", "refused", "reason", "memory_short", "alive", len(e.boxes), "free_bytes", l.freeBytes, "total_bytes", l.totalBytes)
		return e.fail(dreamcore.Refused, "create", "memory_short", "free", strconv.FormatInt(l.freeBytes>>20, 10)).Because(errFull)
	}
	return nil
}

// roomFor reports whether one more box may be booted ahead beside waiting ones.
func (e *Engine) roomFor(waiting int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cfg.MaxBoxes <= 0 || len(e.boxes)+e.coming+waiting < e.cfg.MaxBoxes
}

// Bounds of what a client is told to wait for room.
const askAgainMin, askAgainMax = time.Second, 20 * time.Second

// askAgain is how long a client had better wait for room: until the next box
// ends by itself, within bounds, since others may be ended before.
func (e *Engine) askAgain() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	wait := askAgainMax
	for _, b := range e.boxes {
		wait = min(wait, time.Until(b.endsAt()))
	}
	return max(wait, askAgainMin)
}

// refuseFull answers that there is no room now, and when to ask again.
func (e *Engine) refuseFull(w http.ResponseWriter, message string) {
	w.Header().Set("Retry-After", strconv.Itoa(int((e.askAgain()+time.Second-1)/time.Second)))
	refuse(w, http.StatusTooManyRequests, message)
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
