package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
)

// Pool says how many boxes wait, booted and untouched, for whoever asks next.
// How many really do follows what was asked for lately and what the machine has
// to spare. A box that was handed out never comes back.
type Pool struct {
	Max int // boxes that wait at once; 0: none
	// Next is the image that the next box is likely to have; it is asked now and
	// then. nil, or an error: only images that were asked for lately.
	Next func() (Image, error)
}

const (
	poolTick   = time.Second
	recentAsks = 2 * time.Minute  // each create within it makes one more box wait
	staleAsk   = 15 * time.Minute // an image that nobody asked for so long has none
	// quietTime must have passed since the last boot before a box is booted ahead:
	// whoever has just got one uses the processor now.
	quietTime   = 300 * time.Millisecond
	promoteTick = 10 * time.Millisecond
	// A box in which nothing runs takes so much of the machine's memory, generously.
	blankBytes = 128 << 20
	// Boxes are booted ahead while more than a share of the memory is free and
	// nobody waits for it; with less, those that wait are given up.
	fillShare, shedShare = 0.15, 0.08
	fillStall, shedStall = 5, 15 // percent of time that somebody waited for memory
	// Percent of time that somebody waited for the processor. A boot ahead takes only
	// what no other box wants, so this matters where there are no control groups.
	cpuStallMax        = 60
	retryMin, retryMax = time.Second, time.Minute
)

// pool keeps boxes that wait. A goroutine of its own tends it.
type pool struct {
	e    *Engine
	max  int
	next func() (Image, error)

	wake     chan struct{}
	stop     context.CancelFunc
	work     sync.WaitGroup // the tending and the boot ahead
	watchers sync.WaitGroup // of boxes that wait

	mu      sync.Mutex
	idle    []*waiting
	fill    *filling
	asks    map[string]*demand // by kind of image
	cold    int                // boots for somebody who waits, at this moment
	lastUse time.Time          // when somebody last got a box
	retry   time.Duration      // how long the latest failure made us wait
	retryAt time.Time
	closed  bool
}

// waiting is a box that waits.
type waiting struct {
	blank
	taken chan struct{}
}

// filling is a box that is booted ahead. Somebody may claim it meanwhile.
type filling struct {
	image   Image
	id      dreamcore.SandboxID
	claimed bool
	stale   bool          // a cold one is not wanted any more
	done    chan struct{} // closed when the rest is known
	blank   blank
	err     error
}

// demand is what was asked for of one image.
type demand struct {
	image Image
	at    []time.Time // the latest creates, oldest first
	next  bool        // it is Pool.Next's
}

func newPool(e *Engine, c Pool) *pool {
	return &pool{
		e: e, max: c.Max, next: c.Next,
		wake: make(chan struct{}, 1), asks: map[string]*demand{},
	}
}

// open starts to tend the pool.
func (p *pool) open() {
	if p.max <= 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.work.Add(1)
	go func() {
		defer p.work.Done()
		t := time.NewTicker(poolTick)
		defer t.Stop()
		for {
			p.tend(ctx)
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
			case <-t.C:
			}
		}
	}()
}

// close ends what waits and what is being booted. It may be called twice.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
	p.work.Wait()
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, w := range idle {
		close(w.taken)
		p.drop(w.blank, "the engine closes")
	}
	p.watchers.Wait()
}

func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take hands out a box of image that waits, or one that boots already: nobody
// else gets it. false: there is none, and the caller boots one itself between
// coldBegins and coldEnds.
func (p *pool) take(ctx context.Context, image Image) (blank, bool) {
	if p.max <= 0 {
		return blank{}, false
	}
	defer p.poke()
	p.mu.Lock()
	d := p.asks[image.kind()]
	if d == nil {
		d = &demand{}
		p.asks[image.kind()] = d
	}
	d.image = image
	if d.at = append(d.at, time.Now()); len(d.at) > p.max {
		d.at = d.at[len(d.at)-p.max:]
	}
	for i, w := range p.idle {
		if w.image == image && !w.isBroken() {
			p.idle = slices.Delete(p.idle, i, i+1)
			p.lastUse = time.Now()
			p.mu.Unlock()
			close(w.taken)
			p.promote(w.id)
			return w.blank, true
		}
	}
	f := p.fill
	if f == nil || f.claimed || f.image != image {
		p.mu.Unlock()
		return blank{}, false
	}
	f.claimed = true
	p.mu.Unlock()
	t := time.NewTicker(promoteTick)
	defer t.Stop()
	for {
		p.promote(f.id)
		select {
		case <-f.done:
			if f.err == nil {
				p.promote(f.id)
			}
			return f.blank, f.err == nil
		case <-ctx.Done():
			p.unclaim(f)
			return blank{}, false
		case <-t.C: // its group may not have been there yet
		}
	}
}

// unclaim gives back what somebody waited for who has gone.
func (p *pool) unclaim(f *filling) {
	p.mu.Lock()
	ready := false
	select {
	case <-f.done:
		ready = f.err == nil
	default:
		f.claimed = false
	}
	closed := p.closed
	if ready && !closed {
		p.keep(f.blank)
	}
	p.mu.Unlock()
	if ready && closed {
		p.drop(f.blank, "the engine closes")
	}
}

func (p *pool) promote(id dreamcore.SandboxID) {
	if err := p.e.run.Promote(id); err != nil {
		p.e.log.Warn("a sandbox may get little processor time", "sandbox_id", id, "reason", err.Error())
	}
}

// coldBegins and coldEnds enclose a boot for somebody who waits: no box is booted
// ahead meanwhile.
func (p *pool) coldBegins() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cold++
}

func (p *pool) coldEnds() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cold--
	p.lastUse = time.Now()
}

// waits is how many boxes wait.
func (p *pool) waits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle)
}

// tend brings the pool one step nearer to what it should be: it gives up what
// should not wait, and boots at most one box at a time.
func (p *pool) tend(ctx context.Context) {
	l, err := p.e.host.load()
	if err != nil {
		p.e.log.Warn("no sandbox is booted ahead", "decision", "give up those that wait", "reason", err.Error())
		l.memoryStall = 100
	}
	if p.next != nil {
		// Without one the pool knows what was asked for.
		if image, err := p.next(); err == nil {
			p.expect(image)
		}
	}
	p.mu.Lock()
	want := p.want(time.Now(), l)
	var drop []blank
	have := map[string]int{}
	p.idle = slices.DeleteFunc(p.idle, func(w *waiting) bool {
		have[w.image.kind()]++
		if have[w.image.kind()] <= want[w.image] {
			return false
		}
		have[w.image.kind()]--
		close(w.taken)
		drop = append(drop, w.blank)
		return true
	})
	var f *filling
	for image, n := range want {
		if have[image.kind()] < n && p.holds(time.Now(), l, p.e.takes(image, nil)) == "" {
			f = &filling{image: image, id: dreamcore.NewSandboxID(), done: make(chan struct{})}
			p.fill = f
			break
		}
	}
	p.mu.Unlock()
	for _, c := range drop {
		p.drop(c, "it is not wanted any more")
	}
	if f != nil {
		p.work.Add(1)
		go func() { defer p.work.Done(); p.boot(ctx, f) }()
	}
}

// expect notes that image is likely to be asked for, without anybody having.
func (p *pool) expect(image Image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for kind, d := range p.asks {
		d.next = kind == image.kind()
	}
	if d := p.asks[image.kind()]; d != nil {
		d.image = image
		return
	}
	p.asks[image.kind()] = &demand{image: image, next: true}
}

// want is how many boxes of each image should wait. p.mu is held.
func (p *pool) want(now time.Time, l load) map[Image]int {
	var all []*demand
	for kind, d := range p.asks {
		if !d.next && now.Sub(d.last()) > staleAsk {
			delete(p.asks, kind)
			continue
		}
		all = append(all, d)
	}
	want := map[Image]int{}
	if float64(l.freeBytes) < shedShare*float64(l.totalBytes) || l.memoryStall > shedStall {
		return want
	}
	// Who was asked for last comes first when there is not room for all.
	slices.SortFunc(all, func(a, b *demand) int { return b.last().Compare(a.last()) })
	room := p.max
	for _, d := range all {
		n := 0
		for _, at := range d.at {
			if now.Sub(at) < recentAsks {
				n++
			}
		}
		n = min(max(n, 1), room)
		room -= n
		if n > 0 {
			want[d.image] = n
		}
	}
	return want
}

// holds says why no box that takes so many bytes is to be booted ahead now; ""
// when one may. p.mu is held.
func (p *pool) holds(now time.Time, l load, bytes int64) string {
	switch {
	case p.closed:
		return "closed"
	case !p.e.roomFor(len(p.idle)):
		return "no more boxes may live"
	case p.fill != nil:
		return "one boots already"
	case p.cold > 0 || now.Sub(p.lastUse) < quietTime:
		return "somebody's own boots, or has just booted"
	case now.Before(p.retryAt):
		return "the last one failed"
	case l.freeBytes-bytes < int64(fillShare*float64(l.totalBytes)) || l.memoryStall > fillStall:
		return "little memory is free"
	case l.cpuStall > cpuStallMax && !p.e.run.Limited():
		return "the processor is busy"
	}
	return ""
}

// boot boots a box ahead and keeps it, unless somebody waits for it already.
func (p *pool) boot(ctx context.Context, f *filling) {
	begun := time.Now()
	bctx, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	p.e.run.Aside(f.id)
	c, err := p.e.start(bctx, f.id, f.image)
	if err == nil {
		err = c.prepare(bctx)
		if err != nil {
			err = errors.Join(err, p.e.discard(bctx, c))
		}
	}
	if err == nil {
		if rerr := c.rehearse(bctx); rerr != nil {
			// Its first command will only be slower; if it is broken that will show.
			p.e.log.Warn("a sandbox that was booted ahead ran nothing yet", "sandbox_id", c.id, "reason", rerr.Error())
		}
	}
	p.mu.Lock()
	defer p.poke()
	defer p.mu.Unlock()
	f.blank, f.err = c, err
	p.fill = nil
	close(f.done)
	switch {
	case err != nil && ctx.Err() != nil: // the engine closes
	case err != nil:
		p.retry = min(max(2*p.retry, retryMin), retryMax)
		p.retryAt = time.Now().Add(p.retry)
		p.e.log.Warn("cannot boot a sandbox ahead", "image", f.image.Digest, "retry_ms", p.retry.Milliseconds(), "reason", err.Error())
	case f.claimed:
		p.retry = 0
	case f.stale && !c.warm:
		p.work.Add(1)
		go func() { defer p.work.Done(); p.drop(c, staleReason) }()
	default:
		p.retry = 0
		p.keep(c)
		p.e.log.Debug("booted a sandbox ahead", "sandbox_id", c.id, "image", c.image.Digest, "waits", len(p.idle), "dur_ms", time.Since(begun).Milliseconds())
	}
}

// prepare tells PID 1 what it would be told for an order without wishes.
func (c *blank) prepare(ctx context.Context) error {
	in := c.init(order{})
	if err := c.tell(ctx, in); err != nil {
		return fmt.Errorf("set up sandbox: %w", err)
	}
	c.told = &in
	return nil
}

// rehearsal loads what nearly every command needs.
var rehearsal = [][]string{{"/bin/sh", "-c", "exec /bin/true"}, {"/bin/bash", "-c", "true"}, {"/bin/true"}}

// rehearse runs commands that do nothing, so that the first one of whoever gets
// the box finds its way paved: the loader, the C library and the shell are read,
// and PID 1 has started a process before.
func (c *blank) rehearse(ctx context.Context) error {
	client := processconnect.NewProcessClient(&http.Client{Transport: c.daemon}, "http://"+daemonHost)
	root := "/"
	for _, args := range rehearsal {
		stream, err := client.Start(ctx, connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: args[0], Args: args[1:], Cwd: &root}}))
		if err != nil {
			return err
		}
		for stream.Receive() {
		}
		err = stream.Err()
		stream.Close()
		if err != nil && connect.CodeOf(err) != connect.CodeNotFound && connect.CodeOf(err) != connect.CodeInvalidArgument {
			return err
		}
	}
	return nil
}

// keep lets a box wait, and watches it. p.mu is held.
func (p *pool) keep(c blank) {
	w := &waiting{blank: c, taken: make(chan struct{})}
	p.idle = append(p.idle, w)
	p.watchers.Add(1)
	go func() {
		defer p.watchers.Done()
		select {
		case <-w.taken:
			return
		case <-w.broken:
		}
		p.mu.Lock()
		i := slices.Index(p.idle, w)
		if i >= 0 {
			p.idle = slices.Delete(p.idle, i, i+1)
		}
		p.mu.Unlock()
		if i >= 0 {
			p.drop(w.blank, "it died")
			p.poke()
		}
	}()
}

func (w *waiting) isBroken() bool {
	select {
	case <-w.broken:
		return true
	default:
		return false
	}
}

// drop ends a box that waited.
func (p *pool) drop(c blank, why string) {
	p.e.log.Info("ended a sandbox that waited", "sandbox_id", c.id, "image", c.image.Digest, "reason", why)
	if err := p.e.discard(context.Background(), c); err != nil {
		p.e.log.Error("something of a sandbox is left", "sandbox_id", c.id, "reason", err.Error())
	}
}

func (d *demand) last() time.Time {
	if len(d.at) == 0 {
		return time.Time{}
	}
	return d.at[len(d.at)-1]
}
