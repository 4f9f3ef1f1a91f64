package engine

import (
	"context"
	"errors"
	"net/http"
	"time"

	"dreamcore/internal/envd"
)

// The engine counts what memory each box takes, which costs one small file's
// reading, so that PID 1 need not wake up for it. When a box takes more than
// nearShare of its limit PID 1 is told to watch closely, and goes on to do so
// while it is told again each second; it alone knows whom to end.
//
// The engine looks as often as a box that takes memory at fillPerSecond could come
// near, within bounds.
const (
	nearShare     = 0.5
	fillPerSecond = 8 << 30
	countOften    = 10 * time.Millisecond
	countSeldom   = 200 * time.Millisecond
	countNear     = 50 * time.Millisecond // while a box takes much
	nearAgain     = time.Second
	// A box is used most when it has just been handed out: until then it watches
	// itself.
	guardAfter = 2 * time.Second
)

// guard counts what b takes until b ends. Where the machine does not count, the
// box watches itself, as before the first call.
func (e *Engine) guard(b *box) {
	if !e.run.Limited() {
		return
	}
	near := int64(float64(b.limits.MemoryBytes) * nearShare)
	var told chan struct{}              // broken of the connection that knows that it is guarded
	again := time.Now().Add(guardAfter) // not before; then while b takes much
	failed := false
	t := time.NewTimer(countOften)
	defer t.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-t.C:
		}
		c, thawed := b.line()
		used := b.machine.MemoryBytes()
		if used > near {
			if u, err := b.machine.Usage(); err == nil { // else it ends now
				used = u.MemoryBytes
				b.ownBytes.Store(u.OwnBytes)
			}
		}
		if used > near {
			t.Reset(countNear)
		} else {
			t.Reset(min(max(time.Duration(float64(near-used)/fillPerSecond*float64(time.Second)), countOften), countSeldom))
		}
		if thawed != nil || time.Now().Before(again) || told == c.broken && used <= near {
			continue
		}
		again = time.Now().Add(nearAgain)
		if err := c.watchClosely(b.ctx); err == nil {
			told, failed = c.broken, false
		} else if _, thawed := b.line(); thawed == nil && !failed && b.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			failed = true // said once: it is tried again each second
			e.log.Warn("a sandbox cannot be told to watch its memory", "sandbox_id", b.id, "decision", "try again", "reason", err.Error())
		}
	}
}

// watchClosely tells PID 1 that the box is counted and takes much, or did so.
func (c *blank) watchClosely(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	return c.privately(ctx, http.MethodPost, envd.WatchPath, nil, http.StatusNoContent, nil)
}
