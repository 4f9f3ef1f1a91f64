package engine

//lint:file-ignore SA1019 x/net's http2 speaks over a connection that the box
// opened and bounds frames and headers; net/http's own client connection is to
// replace it once it was tried in that role.

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"dreamcore"
	"dreamcore/internal/engine/gvisor"
	"dreamcore/internal/envd"
	"dreamcore/internal/text"
)

const (
	bootPatience = 60 * time.Second
	killPatience = 60 * time.Second
	// maxWaysOut bounds the connections that one box has open to the outside.
	maxWaysOut = 256
)

// order is what a client wants booted.
type order struct {
	image    Image
	life     time.Duration
	metadata map[string]string
	env      map[string]string
	egress   bool
	private  bool // ports of the box need the traffic token
	face     face

	template   string    // what the client named, when that is a snapshot
	from       *snapshot // what it is made of; nil: of the image
	autoPause  bool      // when its time is over it is paused, not ended
	autoResume bool      // traffic resumes it when it is paused
	ticket     *ticket
}

// blank is a computer that has booted and that nobody uses yet.
type blank struct {
	id      dreamcore.SandboxID
	image   Image
	limits  Limits
	profile Profile
	machine *gvisor.Box
	daemon  *http2.ClientConn
	broken  chan struct{} // closed when the control connection has broken
	told    *envd.Init    // what PID 1 knows; nil: nothing that need be known here
	warm    bool          // it was restored with the warm-up done
}

// box is a living sandbox: a computer with an order. What a client may change
// is guarded by mu.
type box struct {
	blank
	order   order
	started time.Time
	token   string          // lets a client at the daemon inside
	traffic string          // lets a client at the box's own ports; "" when they are open
	domain  *string         // where its host names are; nil: it has none
	ctx     context.Context // ends with the box
	cancel  context.CancelFunc

	saving sync.Mutex // one writer of its record at a time

	mu     sync.Mutex
	ends   time.Time
	timer  *time.Timer
	thawed chan struct{}      // closed when the box is no longer frozen; nil when it is not
	out    context.Context    // ends when the box may not use its way out any more
	shut   context.CancelFunc // ends out

	history  history
	ownBytes atomic.Int64 // what gVisor itself last took of much; see guard
	using    atomic.Int64 // requests that are being answered
	used     atomic.Int64 // when somebody last used it, in Unix nanoseconds

	once  sync.Once
	ended error
	over  chan struct{} // closed when nothing of it is left and it is known why
	why   reason        // set when over is closed
}

// boot makes a box and returns once a command can run in it.
func (e *Engine) boot(ctx context.Context, o order) (*box, error) {
	if !e.enter() {
		return nil, e.closed()
	}
	defer e.busy.Done()
	var err error
	if o.ticket, err = e.admit(e.takes(o.image, o.from)); err != nil {
		return nil, err
	}
	defer e.giveBack(o.ticket)
	ctx, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	begun := time.Now()
	b, ahead, err := e.obtain(ctx, o)
	if err != nil {
		return nil, err
	}
	e.log.Info("booted a sandbox", "sandbox_id", b.id, "image", b.image.Digest, "egress", o.egress, "ahead", ahead, "dur_ms", time.Since(begun).Milliseconds())
	return b, nil
}

// obtain restores a box, takes one that was booted ahead, or boots one.
func (e *Engine) obtain(ctx context.Context, o order) (b *box, ahead bool, err error) {
	if o.from == nil {
		if c, ok := e.pool.take(ctx, o.image); ok {
			b, err := e.assign(ctx, c, o)
			if err == nil || ctx.Err() != nil {
				return b, true, err
			}
			e.log.Warn("a sandbox that was booted ahead is of no use", "sandbox_id", c.id, "decision", "boot another", "reason", err.Error())
		}
	}
	e.pool.coldBegins()
	defer e.pool.coldEnds()
	var c blank
	if o.from != nil {
		c, err = e.restore(ctx, dreamcore.NewSandboxID(), o.from)
		o.image = c.image
	} else {
		c, err = e.start(ctx, dreamcore.NewSandboxID(), o.image)
	}
	if err != nil {
		return nil, false, err
	}
	b, err = e.assign(ctx, c, o)
	return b, false, err
}

// enter counts somebody in whom Close waits for; false when the engine is closed.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open {
		e.busy.Add(1)
	}
	return e.open
}

// start makes a computer, a warm one where that is possible. On failure nothing
// is left.
func (e *Engine) start(ctx context.Context, id dreamcore.SandboxID, image Image) (blank, error) {
	if c, ok := e.startWarm(ctx, id, image); ok {
		return c, nil
	}
	return e.startCold(ctx, id, image)
}

// startCold boots a computer. On failure nothing is left.
func (e *Engine) startCold(ctx context.Context, id dreamcore.SandboxID, image Image) (blank, error) {
	c := blank{id: id, image: image, limits: e.cfg.Limits, profile: e.cfg.Profile}
	var err error
	if c.machine, err = e.run.Boot(ctx, c.id, image.Root); err != nil {
		return c, err
	}
	if err := c.connect(); err != nil {
		return c, errors.Join(fmt.Errorf("connect to sandbox: %w", err), e.discard(ctx, c))
	}
	return c, nil
}

// connect speaks HTTP/2 on the connection that PID 1 opened.
func (c *blank) connect() error {
	broken := make(chan struct{})
	daemon, err := (&http2.Transport{
		AllowHTTP:                  true,
		DisableCompression:         true, // bytes go through as they are
		StrictMaxConcurrentStreams: true,
		MaxHeaderListSize:          maxHeaderBytes,
		MaxReadFrameSize:           1 << 20,
	}).NewClientConn(watch(c.machine.Control, sync.OnceFunc(func() { close(broken) })))
	c.daemon, c.broken = daemon, broken
	return err
}

// discard destroys a computer that nobody got. ctx may be what ended its use.
func (e *Engine) discard(ctx context.Context, c blank) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	return c.machine.Kill(ctx)
}

// assign gives a computer to whoever ordered it: from here on it is found,
// watched, and ends when its time is over. On failure nothing is left.
func (e *Engine) assign(ctx context.Context, c blank, o order) (*box, error) {
	if in := c.init(o); c.told == nil || !reflect.DeepEqual(*c.told, in) {
		if err := c.tell(ctx, in); err != nil {
			return nil, errors.Join(fmt.Errorf("set up sandbox: %w", err), e.discard(ctx, c))
		}
	}
	b := newBox(c, o)
	if !e.register(b) {
		_ = e.end(b, reasonEngine) // Close reports what it cannot remove
		return nil, e.closed()
	}
	b.live(o.life, true, func() { e.expire(b, 1) })
	if err := e.save(b); err != nil {
		return nil, errors.Join(err, e.end(b, reasonEngine))
	}
	return b, nil
}

// newBox gives a computer its order, and tokens that nobody else has.
func newBox(c blank, o order) *box {
	b := &box{blank: c, order: o, started: time.Now(), token: dreamcore.NewToken(40), over: make(chan struct{})}
	if o.private {
		b.traffic = dreamcore.NewToken(40)
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.letOut(o.egress)
	b.touch()
	return b
}

// init is what PID 1 is told of an order.
func (c *blank) init(o order) envd.Init {
	return envd.Init{Env: c.environ(o), Egress: o.egress, MemoryBytes: c.limits.MemoryBytes, Sudo: c.profile == E2B}
}

// environ is what every process in the box gets. To others a box says about
// itself what E2B's do; what the client chose wins.
func (c *blank) environ(o order) map[string]string {
	if c.profile != E2B {
		if len(o.env) == 0 {
			return nil
		}
		return o.env
	}
	template := o.template
	if template == "" {
		template = c.image.Digest
	}
	return merged(map[string]string{envd.MarkSandbox: "true", envd.MarkID: string(c.id), envd.MarkTemplate: template}, o.env)
}

// register makes b found and watched; false when the engine is closed.
func (e *Engine) register(b *box) bool {
	b.domain = e.domain()
	e.mu.Lock()
	open := e.open
	if open {
		e.boxes[b.id] = b
		e.spend(b.order.ticket)
		e.busy.Add(3)
	}
	e.mu.Unlock()
	if !open {
		return false
	}
	go func() {
		defer e.busy.Done()
		e.carry(b)
	}()
	go func() {
		defer e.busy.Done()
		e.watch(b)
	}()
	go func() {
		defer e.busy.Done()
		e.guard(b)
	}()
	return true
}

// fail makes the error that people see out of the texts engine.KEY and, where
// there is one, engine.KEY_hint.
func (e *Engine) fail(code dreamcore.Code, op, key string, args ...string) *dreamcore.Error {
	return text.Error(e.cfg.Lang, code, "engine."+op, "engine."+key, args...)
}

func (e *Engine) closed() error {
	return e.fail(dreamcore.Unavailable, "create", "closed")
}

// carry hands what the box sends out to the one way out, until the box ends.
func (e *Engine) carry(b *box) {
	slots := make(chan struct{}, maxWaysOut)
	refusals := 0
	// A box may try without end: it is said at the first, the second, the fourth.
	refused := func(what, reason string) {
		if refusals++; refusals&(refusals-1) == 0 {
			e.log.Warn(what, "sandbox_id", b.id, "decision", "refused", "reason", reason, "times", refusals)
		}
	}
	for {
		conn, err := b.machine.Egress.Accept()
		if err != nil {
			return // closed with the box
		}
		out := b.wayOut()
		if out.Err() != nil || e.cfg.Egress == nil {
			refused("a sandbox without egress tried its way out", "no_egress")
			conn.Close()
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			refused("a sandbox has too many connections open", "too_many")
			conn.Close()
			continue
		}
		stop := context.AfterFunc(out, func() { conn.Close() })
		e.busy.Add(1)
		go func() {
			defer e.busy.Done()
			defer func() { stop(); <-slots }()
			e.cfg.Egress(out, b.id, conn)
		}()
	}
}

// live sets when the box ends by itself. Unless exact it only ever extends.
func (b *box) live(d time.Duration, exact bool, over func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ends := time.Now().Add(d)
	if !exact && ends.Before(b.ends) {
		return
	}
	b.ends = ends
	if b.timer == nil {
		b.timer = time.AfterFunc(d, over)
		return
	}
	b.timer.Reset(d)
}

func (b *box) endsAt() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends
}

// finish ends a box that nobody is waiting for.
func (e *Engine) finish(b *box, why reason) {
	if err := e.end(b, why); err != nil {
		e.log.Error("something of a sandbox is left", "sandbox_id", b.id, "reason", err.Error())
	}
}

// end ends a box and returns once nothing of it is left. First it is no longer
// found, then its ways out and its streams break, then it is destroyed.
func (e *Engine) end(b *box, why reason) error {
	b.once.Do(func() { e.bury(b, why) })
	return b.ended
}

// reason is why b ended; "" while it has not, wholly.
func (b *box) reason() reason {
	select {
	case <-b.over:
		return b.why
	default:
		return ""
	}
}

// bury is end, once.
func (e *Engine) bury(b *box, why reason) {
	begun := time.Now()
	e.mu.Lock()
	delete(e.boxes, b.id)
	e.dying[b.id] = b
	e.mu.Unlock()
	b.mu.Lock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	b.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), killPatience)
	defer cancel()
	b.ended = b.machine.Kill(ctx)
	if why == reasonDied {
		outOfMemory, last := b.machine.Death()
		if outOfMemory {
			why = reasonMemory
		}
		attrs := []any{"sandbox_id", b.id, "reason", string(why), "said", last}
		if own := b.ownBytes.Load(); outOfMemory && own > b.limits.MemoryBytes/2 {
			attrs = append(attrs, "because", "too many files, sockets or descriptors", "own_bytes", own)
		}
		e.log.Warn("a sandbox died", attrs...)
	}
	e.mu.Lock()
	if why != reasonPaused {
		e.deaths.add(b.id, why)
	}
	delete(e.dying, b.id)
	e.mu.Unlock()
	b.why = why
	close(b.over)
	e.log.Info("ended a sandbox", "sandbox_id", b.id, "reason", string(why), "lived_ms", begun.Sub(b.started).Milliseconds(), "dur_ms", time.Since(begun).Milliseconds())
}
