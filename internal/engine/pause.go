package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"dreamcore"
	"dreamcore/internal/envd"
	"dreamcore/internal/text"
)

const (
	freezePatience = 2 * time.Minute
	// An automatic pause that fails is tried again; then the box ends.
	pauseAgain    = 20 * time.Second
	pauseAttempts = 4
)

// reasonPaused is how a box ends that goes on later.
const reasonPaused reason = "paused"

// freeze cuts b off from its clients: their streams break, and what they ask
// meanwhile waits for thaw. Only one may freeze a box at a time.
func (b *box) freeze(lang dreamcore.Lang) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.thawed != nil {
		return text.Error(lang, dreamcore.Conflict, "engine.freeze", "engine.frozen")
	}
	b.thawed = make(chan struct{})
	if b.timer != nil {
		b.timer.Stop()
	}
	return nil
}

// thaw lets b's clients in again, over the connection that c now has.
func (b *box) thaw(c blank) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.daemon, b.broken = c.daemon, c.broken
	if b.timer != nil {
		b.timer.Reset(time.Until(b.ends))
	}
	close(b.thawed)
	b.thawed = nil
}

// line is the connection to b's PID 1, and what is closed when b is thawed; nil
// when it is not frozen.
func (b *box) line() (blank, chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.blank, b.thawed
}

// dead reports whether the box ends or has ended. A connection that has broken
// is noticed here before whoever looks after it has decided what becomes of the box.
func (b *box) dead() bool {
	for {
		c, thawed := b.line()
		select {
		case <-b.ctx.Done():
			return true
		case <-c.broken:
		default:
			return false
		}
		if thawed == nil {
			// In a moment it is ended, or frozen to be connected anew.
			select {
			case <-b.ctx.Done():
				return true
			case <-time.After(5 * time.Millisecond):
			}
			continue
		}
		select {
		case <-b.ctx.Done():
			return true
		case <-thawed:
		}
	}
}

// reopen lets a frozen box go on here. If it does not call back it is ended.
func (e *Engine) reopen(ctx context.Context, b *box) error {
	return e.reopenWithin(context.WithoutCancel(ctx), b, bootPatience)
}

// reopenWithin is reopen, for so long and until ctx ends.
func (e *Engine) reopenWithin(ctx context.Context, b *box, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	c, _ := b.line()
	b.machine.Control.Close() // if nothing else has: PID 1 calls when it is broken
	err := b.machine.Reopen(ctx)
	if err == nil {
		err = c.connect()
	}
	if b.ctx.Err() != nil {
		<-b.over // whoever ended it came first
		return e.endedMeanwhile()
	}
	if err != nil {
		err = fmt.Errorf("let the sandbox go on: %w", err)
		return errors.Join(err, e.end(b, reasonDied))
	}
	b.thaw(c)
	return nil
}

// takeSnapshot saves a living box, which goes on.
func (e *Engine) takeSnapshot(ctx context.Context, b *box, snap *snapshot) error {
	if !e.enter() {
		return e.closed()
	}
	defer e.busy.Done()
	ctx, cancel := context.WithTimeout(ctx, freezePatience)
	defer cancel()
	begun := time.Now()
	give, err := e.room(b)
	if err != nil {
		return err
	}
	defer give()
	if err := b.freeze(e.cfg.Lang); err != nil {
		return err
	}
	snap.Box = b.record(string(kindPaused))
	snap.Box.Token, snap.Box.Traffic = "", "" // each box of it gets its own
	err = e.checkpoint(ctx, b, snap)
	if rerr := e.reopen(ctx, b); rerr != nil {
		if err == nil {
			err = e.shelf.drop(snap)
		}
		return errors.Join(rerr, err)
	}
	if err == nil {
		e.log.Info("made a snapshot", "sandbox_id", b.id, "snapshot", snap.ID, "kind", string(snap.Kind), "bytes", snap.Bytes, "dur_ms", time.Since(begun).Milliseconds())
	}
	return err
}

// pause ends a box so that it can go on later: on failure it goes on at once.
func (e *Engine) pause(ctx context.Context, b *box) error {
	if !e.enter() {
		return e.closed()
	}
	defer e.busy.Done()
	// A client that goes away has asked for it all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezePatience)
	defer cancel()
	begun := time.Now()
	give, err := e.room(b)
	if err != nil {
		return err
	}
	defer give()
	if err := b.freeze(e.cfg.Lang); err != nil {
		return err
	}
	snap := &snapshot{Format: snapshotFormat, ID: b.id, Kind: kindPaused, Box: b.record(string(kindPaused)), Created: time.Now()}
	snap.busy.Lock() // nobody resumes it before the former box is gone
	defer snap.busy.Unlock()
	if err := e.checkpoint(ctx, b, snap); err != nil {
		if rerr := e.reopen(ctx, b); rerr != nil {
			return errors.Join(rerr, err)
		}
		return err
	}
	// From here on the snapshot is the box, and what still runs is to go.
	ended := false
	b.once.Do(func() {
		ended = true
		e.bury(b, reasonPaused)
	})
	if !ended {
		// A kill came first.
		<-b.over
		return errors.Join(e.endedMeanwhile(), e.shelf.drop(snap))
	}
	e.expireLater(snap)
	e.log.Info("paused a sandbox", "sandbox_id", b.id, "bytes", snap.Bytes, "dur_ms", time.Since(begun).Milliseconds())
	return b.ended
}

func (e *Engine) endedMeanwhile() error {
	return e.fail(dreamcore.NotFound, "pause", "ended_meanwhile")
}

// expireLater removes a paused box when nobody has wanted it for too long.
func (e *Engine) expireLater(snap *snapshot) {
	e.shelf.mu.Lock()
	defer e.shelf.mu.Unlock()
	snap.timer = time.AfterFunc(time.Until(snap.Created.Add(e.shelf.limits.Life)), func() {
		if err := e.forget(snap, reasonTimeout); err != nil {
			e.log.Error("something of a paused sandbox is left", "sandbox_id", snap.ID, "reason", err.Error())
		}
	})
}

// forget ends a paused box.
func (e *Engine) forget(snap *snapshot, why reason) error {
	snap.busy.Lock()
	defer snap.busy.Unlock()
	if _, ok := e.shelf.get(snap.ID, kindPaused); !ok {
		return nil // it was resumed meanwhile, or is gone already
	}
	e.mu.Lock()
	e.deaths.add(snap.ID, why)
	e.mu.Unlock()
	err := e.shelf.drop(snap)
	e.log.Info("ended a paused sandbox", "sandbox_id", snap.ID, "reason", string(why))
	return err
}

// expire is what happens when a box's time is over.
func (e *Engine) expire(b *box, attempt int) {
	if !b.order.autoPause {
		e.finish(b, reasonTimeout)
		return
	}
	err := e.pause(context.Background(), b)
	switch {
	case err == nil || b.ctx.Err() != nil || dreamcore.CodeOf(err) == dreamcore.Conflict:
	case attempt < pauseAttempts:
		e.log.Warn("cannot pause a sandbox whose time is over", "sandbox_id", b.id, "decision", "try again", "reason", err.Error())
		time.AfterFunc(pauseAgain, func() {
			if b.ctx.Err() == nil && !time.Now().Before(b.endsAt()) {
				e.expire(b, attempt+1)
			}
		})
	default:
		e.log.Error("cannot pause a sandbox whose time is over", "sandbox_id", b.id, "decision", "end it", "reason", err.Error())
		e.finish(b, reasonTimeout)
	}
}

// wake lets a paused box go on, under its own id and with its own tokens. Of
// several that ask at once one does it. It reports whether it was paused.
func (e *Engine) wake(ctx context.Context, snap *snapshot, life time.Duration) (b *box, woken bool, err error) {
	snap.busy.Lock()
	defer snap.busy.Unlock()
	if b, ok := e.find(snap.ID); ok {
		b.live(life, false, nil)
		return b, false, nil
	}
	if _, ok := e.shelf.get(snap.ID, kindPaused); !ok {
		return nil, false, e.endedMeanwhile()
	}
	if !e.enter() {
		return nil, false, e.closed()
	}
	defer e.busy.Done()
	room, err := e.admit(e.takes(Image{}, snap))
	if err != nil {
		return nil, false, err
	}
	defer e.giveBack(room)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bootPatience)
	defer cancel()
	begun := time.Now()
	c, err := e.restore(ctx, snap.ID, snap)
	if err != nil {
		return nil, false, err
	}
	o := snap.Box.order()
	o.image, o.ticket = c.image, room
	if err := c.tell(ctx, c.init(o)); err != nil {
		return nil, false, errors.Join(fmt.Errorf("set up sandbox: %w", err), e.discard(ctx, c))
	}
	b = newBox(c, o)
	b.started, b.token, b.traffic, b.ends = snap.Box.Started, snap.Box.Token, snap.Box.Traffic, time.Now().Add(life)
	// Whoever is killed between the two leaves both, and then the snapshot counts.
	if err := e.save(b); err != nil {
		return nil, false, errors.Join(err, e.discard(ctx, c))
	}
	if err := e.shelf.drop(snap); err != nil {
		return nil, false, errors.Join(err, e.discard(ctx, c))
	}
	if !e.register(b) {
		return nil, false, errors.Join(e.closed(), e.end(b, reasonEngine))
	}
	b.live(life, true, func() { e.expire(b, 1) })
	e.log.Info("resumed a sandbox", "sandbox_id", b.id, "dur_ms", time.Since(begun).Milliseconds())
	return b, true, nil
}

// awake finds the box that a request is for and may be answered by: it waits
// for one that is frozen, and resumes one that is paused and wants that, if the
// request could open it.
func (e *Engine) awake(r *http.Request, to address) (*box, bool) {
	for {
		b, ok := e.find(to.id)
		if !ok {
			snap, paused := e.shelf.get(to.id, kindPaused)
			if !paused || !snap.Box.AutoResume || !opens(r, to, snap.Box) {
				return nil, false
			}
			e.log.Info("a request resumes a sandbox", "sandbox_id", to.id)
			b, _, err := e.wake(r.Context(), snap, snap.Box.Life)
			if err != nil {
				e.log.Error("cannot resume a sandbox", "sandbox_id", to.id, "reason", err.Error())
			}
			return b, err == nil
		}
		_, thawed := b.line()
		if thawed == nil {
			return b, true
		}
		select {
		case <-thawed:
		case <-b.ctx.Done():
		case <-r.Context().Done():
			return nil, false
		}
	}
}

// opens reports whether a request has what opens the port that it is for.
// Traffic that nobody vouches for wakes nobody up.
func opens(r *http.Request, to address, box record) bool {
	if to.port == envd.Port {
		ok, late := signed(r, r.URL.Query().Get("signature"), box.Token)
		return to.signed || same(r.Header.Get("X-Access-Token"), box.Token) || ok && !late
	}
	return box.Traffic == "" || same(r.Header.Get("E2b-Traffic-Access-Token"), box.Traffic)
}

// merged are the variables below and those above, which win.
func merged(below, above map[string]string) map[string]string {
	all := maps.Clone(below)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, above)
	return all
}
