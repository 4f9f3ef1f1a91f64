// Package engine is the embedded sandbox engine: it boots disposable computers
// on this machine and serves E2B's protocol for them, so that E2B's own clients
// and ours drive it without knowing the difference. Two planes share one
// handler: the control plane (create, list, kill, time to live) and the router,
// which carries a client's request to the daemon inside the right box.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/gvisor"
)

// Limits bound one sandbox.
type Limits = gvisor.Limits

// DefaultLimits suit one agent with a headless browser.
var DefaultLimits = gvisor.DefaultLimits

// Profile says what the users of a box may become.
type Profile = gvisor.Profile

// The profiles: Job for our own jobs and by default, E2B for serving others.
const (
	Job = gvisor.Job
	E2B = gvisor.E2B
)

// Image is a root file system that boxes boot from. It is never written.
type Image struct {
	Digest string // "sha256:…"
	Root   string // folder on this machine
	Warm   bool   // a box of it begins with Config.Warmup done, where that is possible
}

// kind names what a box is of; boxes of one image that are warm are another kind.
func (i Image) kind() string {
	if i.Warm {
		return i.Digest + " warm"
	}
	return i.Digest
}

// Config is what an Engine is made of.
type Config struct {
	Dir      string // a folder of its own for sockets and the like; not on a network disk
	Runsc    string // the runsc program
	Sandboxd string // the static sandboxd program
	// Images finds an image by the name that a client gives as the template:
	// a digest, or whatever else it understands. Unknown: code NotFound.
	Images func(ref string) (Image, error)
	// Egress is handed every connection that a box with egress sends out. It
	// owns conn; ctx ends with the box. nil: no box has a way out.
	Egress func(ctx context.Context, id dreamcore.SandboxID, conn net.Conn)
	Limits Limits // zero: DefaultLimits
	// Profile of every box; the zero value is Job.
	Profile Profile
	// MaxBoxes is how many boxes may live at once; 0 means as many as fit.
	MaxBoxes int
	// Overcommit is how many times the machine's memory the limits of all boxes
	// together may be; 0: DefaultOvercommit. Boxes rarely use what they may. Apart
	// from that no box is made when the machine's memory is nearly used up.
	Overcommit float64
	// Domain is told to clients: a port of a box is at PORT-ID.Domain, which must
	// lead here. "": clients reach boxes by headers. The router understands both
	// anyhow.
	Domain string
	// IdleTimeout ends a box, or pauses it where its order says so, in which
	// nothing has run and of which nobody has asked anything for so long. 0: none.
	IdleTimeout time.Duration
	// APIKey guards the control plane; required.
	APIKey dreamcore.Secret
	// Keep leaves boxes running when the engine closes or is killed, and Open
	// takes them back: same ids, same tokens, what runs in them goes on. A box
	// that nobody takes back ends by itself after half a minute. Without it Close
	// ends all boxes and Open removes those of an engine that was killed.
	Keep bool
	// Warmup is done in a box of each image once, so that others start with it
	// done; see Image.Warm. nil: all boxes are booted.
	Warmup *Warmup
	// Storage bounds paused boxes and snapshots. Zero: DefaultStorage.
	Storage Storage
	Pool    Pool
	Log     *slog.Logger
	// AllowNoLimits goes on where the machine cannot enforce limits.
	AllowNoLimits bool
	// Lang is the language of the errors that people see; English when empty.
	Lang dreamcore.Lang
}

// Engine boots boxes and serves their clients.
type Engine struct {
	cfg Config
	log *slog.Logger
	run *gvisor.Runtime

	mu     sync.Mutex
	boxes  map[dreamcore.SandboxID]*box
	dying  map[dreamcore.SandboxID]*box // no longer found, not yet gone
	deaths deaths
	shelf  *shelf
	warm   *warmer
	pool   *pool
	host   machine
	stop   context.CancelFunc // ends tend
	tended sync.WaitGroup
	found  map[dreamcore.SandboxID]record // of boxes that Open is about to take back
	coming int                            // admitted and not yet among boxes
	open   bool
	busy   sync.WaitGroup // boots, endings and watchers that run
}

// New builds an Engine; Open makes it work.
func New(cfg Config) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Storage == (Storage{}) {
		cfg.Storage = DefaultStorage
	}
	if cfg.Overcommit <= 0 {
		cfg.Overcommit = DefaultOvercommit
	}
	if cfg.Limits == (Limits{}) {
		cfg.Limits = DefaultLimits
	}
	if cfg.Profile == "" {
		cfg.Profile = gvisor.Job
	}
	e := &Engine{
		cfg:   cfg,
		log:   cfg.Log,
		boxes: map[dreamcore.SandboxID]*box{},
		dying: map[dreamcore.SandboxID]*box{},
		warm:  newWarmer(cfg),
		shelf: &shelf{dir: filepath.Join(cfg.Dir, "snapshot"), limits: cfg.Storage},
		found: map[dreamcore.SandboxID]record{},
	}
	e.run = gvisor.New(gvisor.Config{
		Dir: cfg.Dir, Runsc: cfg.Runsc, Sandboxd: cfg.Sandboxd, Spare: e.spare,
		Limits: cfg.Limits, Profile: cfg.Profile, AllowNoLimits: cfg.AllowNoLimits, Log: cfg.Log, Lang: cfg.Lang,
	})
	e.pool = newPool(e, cfg.Pool)
	e.host = machine{"/proc"}
	return e
}

// Open checks that this machine can boot boxes and removes those that an
// engine which died left in the same folder, or takes them back (see Keep).
func (e *Engine) Open(ctx context.Context) error {
	if e.cfg.APIKey.IsZero() {
		return e.fail(dreamcore.Invalid, "open", "no_key")
	}
	if err := e.shelf.load(); err != nil {
		e.log.Error("some saved sandboxes cannot be used", "decision", "leave them", "reason", err.Error())
	}
	reaped, err := e.run.Open(ctx)
	if err != nil {
		return fmt.Errorf("open engine: %w", err)
	}
	if err := e.shelf.sweep(); err != nil {
		e.log.Error("something of a snapshot is left that was never complete", "reason", err.Error())
	}
	e.mu.Lock()
	for _, id := range reaped {
		if e.deaths.why[dreamcore.SandboxID(id)] == "" {
			e.deaths.add(dreamcore.SandboxID(id), reasonEngine)
		}
	}
	e.open = true
	e.mu.Unlock()
	e.takeBack(ctx)
	if len(e.shelf.list(kindWarm)) > 0 {
		e.shed()
	}
	for _, snap := range e.shelf.list(kindPaused) {
		e.expireLater(snap)
	}
	e.pool.open()
	tctx, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	e.tended.Add(1)
	go func() { defer e.tended.Done(); e.tend(tctx) }()
	return nil
}

// Close kills every box, or with Keep leaves it for the next engine, and waits
// until that is done. It may be called twice.
func (e *Engine) Close() error {
	e.warm.cancel()
	e.mu.Lock()
	e.open = false
	all := make([]*box, 0, len(e.boxes))
	for _, b := range e.boxes {
		all = append(all, b)
	}
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if e.stop != nil {
		e.stop()
	}
	e.tended.Wait()
	e.pool.close()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, b := range all {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if e.cfg.Keep {
				errs[i] = e.leave(b)
			} else {
				errs[i] = e.end(b, reasonEngine)
			}
		}()
	}
	wg.Wait()
	e.busy.Wait()
	e.shelf.close()
	if err := errors.Join(append(errs, e.run.Close(ctx))...); err != nil {
		return fmt.Errorf("close engine: %w", err)
	}
	return nil
}

// Limited reports whether this machine enforces the limits; after Open.
func (e *Engine) Limited() bool { return e.run.Limited() }

// TryRootless reports whether an ordinary user can boot boxes on this machine;
// the error says what the kernel refused. It is nil for root.
func TryRootless(ctx context.Context) error { return gvisor.TryRootless(ctx) }

// CanSave reports whether boxes can be paused and saved here: not by an ordinary
// user, whatever the machine.
func CanSave() bool { return !gvisor.Rootless() }

// Waiting is how many boxes wait for whoever asks next; see Pool.
func (e *Engine) Waiting() int { return e.pool.waits() }

// Handler serves both planes. It decides by the request which one is meant: a
// request that names a box belongs to the router.
func (e *Engine) Handler() http.Handler {
	control := e.controlPlane()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to, ok := e.addressed(r); ok {
			e.route(w, r, to)
			return
		}
		control.ServeHTTP(w, r)
	})
}

// find returns a living box.
func (e *Engine) find(id dreamcore.SandboxID) (*box, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.boxes[id]
	return b, ok
}

// reason says why a box ended.
type reason string

const (
	reasonKilled  reason = "killed"        // a client asked for it
	reasonTimeout reason = "timeout"       // its time to live was over
	reasonMemory  reason = "out_of_memory" // it hit the memory wall
	reasonDied    reason = "died"          // PID 1 or gVisor ended by itself
	reasonIdle    reason = "idle"          // nobody used it for too long
	reasonEngine  reason = "engine_ended"  // the engine closed, or was killed and started anew
)

// deaths remembers how the latest boxes ended, so that whoever still asks for
// one learns it.
type deaths struct {
	why   map[dreamcore.SandboxID]reason
	order []dreamcore.SandboxID
}

const maxDeaths = 4096

func (d *deaths) add(id dreamcore.SandboxID, why reason) {
	if d.why == nil {
		d.why = map[dreamcore.SandboxID]reason{}
	}
	if _, ok := d.why[id]; !ok {
		d.order = append(d.order, id)
	}
	d.why[id] = why
	if len(d.order) > maxDeaths {
		delete(d.why, d.order[0])
		d.order = d.order[1:]
	}
}
