package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/envd"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
)

// Warmup is what is done once per image, so that boxes of it have it done when
// they start: a box is booted, the command runs in it as its user, and when it
// says that it is ready the box is saved. Boxes are then restored from there,
// with the command's process alive, found by its tag and waiting on its standard
// input. Whenever that is not possible a box is booted as always.
//
// All boxes of an image begin with the same memory of that process. It must hold
// no secret, and nothing random that matters: what a program has drawn into its
// own generators before (OpenSSL's and V8's in Node, Mersenne's in Python) is the
// same in every box, and only what it asks the kernel for afterwards is not.
type Warmup struct {
	Args  []string
	Env   map[string]string
	Tag   string // of the process, for those who want to talk to it
	Ready string // a line that it prints when it is ready
	// Found: a warm state that is there is used, but none is made by itself.
	Found bool `json:"-"`
}

const (
	warmPatience = 2 * time.Minute
	// warmAgain is how long a warm-up that failed is not tried again.
	warmAgain = 5 * time.Minute
	// restorePatience leaves time for a boot where a restore leads nowhere.
	restorePatience = bootPatience / 3
	maxWarm         = 3 // of images; the oldest goes
)

// warmth says what a warm snapshot was made with, and so whether it still fits.
type warmth struct {
	Sandboxd string `json:"sandboxd"` // digests
	Runsc    string `json:"runsc"`
	Command  string `json:"command"`
}

// warmer makes warm snapshots, one at a time.
type warmer struct {
	ctx    context.Context // ends with the engine
	cancel context.CancelFunc
	digest func() (warmth, error)
	turn   chan struct{} // one at a time

	mu     sync.Mutex
	making bool
	failed map[dreamcore.SandboxID]time.Time
}

func newWarmer(cfg Config) *warmer {
	w := &warmer{turn: make(chan struct{}, 1), failed: map[dreamcore.SandboxID]time.Time{}}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.digest = sync.OnceValues(func() (d warmth, err error) {
		command, err := json.Marshal(cfg.Warmup)
		if err != nil {
			return d, err
		}
		d.Command = digestOf(command)
		if d.Sandboxd, err = digestOfFile(cfg.Sandboxd); err != nil {
			return d, err
		}
		d.Runsc, err = digestOfFile(cfg.Runsc)
		return d, err
	})
	return w
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func digestOfFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// warmKey names the warm snapshot for an image as everything is now: with any
// other image, program, limit, profile or command it is another.
func (e *Engine) warmKey(image Image) (dreamcore.SandboxID, warmth, error) {
	d, err := e.warm.digest()
	if err != nil {
		return "", d, fmt.Errorf("find the warm state: %w", err)
	}
	data, err := json.Marshal([]any{image.Digest, d, e.cfg.Limits, e.cfg.Profile})
	if err != nil {
		return "", d, err
	}
	return dreamcore.SandboxID("warm" + digestOf(data)[:20]), d, nil
}

// startWarm makes a computer that is warm; false when it has to be booted. Each
// way to false says so.
func (e *Engine) startWarm(ctx context.Context, id dreamcore.SandboxID, image Image) (blank, bool) {
	if e.cfg.Warmup == nil || !image.Warm {
		return blank{}, false
	}
	if e.cfg.Warmup.Found && e.newestWarm(image) == nil {
		e.log.Info("a sandbox starts cold", "sandbox_id", id, "image", image.Digest, "reason", "there is nothing warm, and none is made")
		return blank{}, false
	}
	key, _, err := e.warmKey(image)
	if err != nil {
		e.log.Warn("a sandbox starts cold", "sandbox_id", id, "image", image.Digest, "reason", err.Error())
		return blank{}, false
	}
	snap, ok := e.shelf.get(key, kindWarm)
	if !ok {
		e.log.Info("a sandbox starts cold", "sandbox_id", id, "image", image.Digest, "reason", "nothing warm fits")
		e.warmSoon(image, key)
		return blank{}, false
	}
	rctx, cancel := context.WithTimeout(ctx, restorePatience)
	defer cancel()
	c, err := e.restore(rctx, id, snap)
	if err == nil {
		c.image, c.warm = image, true
		return c, true
	}
	if ctx.Err() != nil {
		return blank{}, false // nobody waits any more; the boot will say so
	}
	e.log.Warn("a sandbox starts cold", "sandbox_id", id, "image", image.Digest, "decision", "throw the warm state away", "reason", err.Error())
	if err := e.shelf.drop(snap); err != nil {
		e.log.Error("something of a warm state is left", "snapshot", snap.ID, "reason", err.Error())
	}
	return blank{}, false
}

// warmSoon makes the warm snapshot for an image in the background, unless that
// is under way or has failed a moment ago.
func (e *Engine) warmSoon(image Image, key dreamcore.SandboxID) {
	e.warm.mu.Lock()
	defer e.warm.mu.Unlock()
	if e.cfg.Warmup.Found || e.warm.making || time.Since(e.warm.failed[key]) < warmAgain || !e.enter() {
		return
	}
	e.warm.making = true
	go func() {
		defer e.busy.Done()
		err := e.Warm(e.warm.ctx, image)
		e.warm.mu.Lock()
		defer e.warm.mu.Unlock()
		e.warm.making = false
		if err != nil && e.warm.ctx.Err() == nil {
			e.warm.failed[key] = time.Now()
			e.log.Error("cannot make a warm state", "image", image.Digest, "retry_ms", warmAgain.Milliseconds(), "reason", err.Error())
		}
	}()
}

// Warm makes the warm snapshot for an image, unless there is one that fits.
// It is made in the background by itself when a box of the image is first asked
// for; this is for those who want to wait for it.
func (e *Engine) Warm(ctx context.Context, image Image) error {
	if e.cfg.Warmup == nil {
		return errors.New("warm an image: the engine has no warm-up")
	}
	if !e.enter() {
		return e.closed()
	}
	defer e.busy.Done()
	key, made, err := e.warmKey(image)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, warmPatience)
	defer cancel()
	defer context.AfterFunc(e.warm.ctx, cancel)()
	select {
	case e.warm.turn <- struct{}{}:
		defer func() { <-e.warm.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, ok := e.shelf.get(key, kindWarm); ok {
		return nil // somebody was faster
	}
	begun := time.Now()
	room, err := e.admit(e.takes(image, nil))
	if err != nil {
		return fmt.Errorf("warm an image: %w", err)
	}
	defer e.giveBack(room)
	id := dreamcore.NewSandboxID()
	e.run.Aside(id) // it gets the processor time that no box of anybody's wants
	c, err := e.startCold(ctx, id, image)
	if err != nil {
		return fmt.Errorf("warm an image: %w", err)
	}
	snap := &snapshot{
		Format: snapshotFormat, ID: key, Kind: kindWarm, Created: time.Now(), Warm: &made,
		Box: record{Format: recordFormat, Protocol: envd.Protocol, ID: c.id, State: string(kindWarm), Image: image.Digest, Limits: c.limits, Profile: c.profile},
	}
	err = c.warmUp(ctx, *e.cfg.Warmup)
	if err == nil {
		b := &box{blank: c}
		var give func()
		if give, err = e.room(b); err == nil {
			defer give()
			err = e.checkpoint(ctx, b, snap)
		}
	}
	if err = errors.Join(err, e.discard(ctx, c)); err != nil {
		return fmt.Errorf("warm an image: %w", err)
	}
	e.log.Info("made a warm state", "image", image.Digest, "snapshot", key, "bytes", snap.Bytes, "dur_ms", time.Since(begun).Milliseconds())
	e.shed()
	e.pool.renew(image)
	return nil
}

// WarmSoon makes the warm snapshot for an image in the background, unless there
// is one that fits.
func (e *Engine) WarmSoon(image Image) {
	if e.cfg.Warmup == nil || !image.Warm || !e.enter() {
		return
	}
	go func() { // reading all that the key stands for takes a while
		defer e.busy.Done()
		if key, _, err := e.warmKey(image); err != nil {
			e.log.Error("cannot make a warm state", "image", image.Digest, "reason", err.Error())
		} else if _, ok := e.shelf.get(key, kindWarm); !ok {
			e.warmSoon(image, key)
		}
	}()
}

// newestWarm returns the newest warm snapshot of an image, whether or not it
// fits; nil when there is none.
func (e *Engine) newestWarm(image Image) *snapshot {
	var newest *snapshot
	for _, snap := range e.shelf.list(kindWarm) {
		if snap.Box.Image == image.Digest && (newest == nil || snap.Created.After(newest.Created)) {
			newest = snap
		}
	}
	return newest
}

const staleReason = "it is cold, and warm ones can be made now"

// renew gives up the boxes that wait cold now that they can be warm.
func (p *pool) renew(image Image) {
	var drop []blank
	p.mu.Lock()
	if p.fill != nil && p.fill.image.kind() == image.kind() {
		p.fill.stale = true
	}
	p.idle = slices.DeleteFunc(p.idle, func(w *waiting) bool {
		if w.warm || w.image.kind() != image.kind() {
			return false
		}
		close(w.taken)
		drop = append(drop, w.blank)
		return true
	})
	p.mu.Unlock()
	for _, c := range drop {
		p.drop(c, staleReason)
	}
	p.poke()
}

// warmUp runs the command and returns when it is ready.
func (c *blank) warmUp(ctx context.Context, w Warmup) error {
	if err := c.tell(ctx, c.init(order{})); err != nil {
		return fmt.Errorf("set up sandbox: %w", err)
	}
	// Without the deadline, which would be told to PID 1 as the process's own.
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // the process goes on without a reader
	defer context.AfterFunc(ctx, cancel)()
	req := connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: w.Args[0], Args: w.Args[1:], Envs: w.Env}, Tag: &w.Tag,
	})
	client := processconnect.NewProcessClient(&http.Client{Transport: c.daemon}, "http://"+daemonHost)
	stream, err := client.Start(sctx, req)
	if err != nil {
		return fmt.Errorf("start the warm-up: %w", err)
	}
	var said, cried string
	for stream.Receive() {
		ev := stream.Msg().GetEvent()
		if end := ev.GetEnd(); end != nil {
			return fmt.Errorf("the warm-up ended before it was ready: %s: %q", end.GetStatus(), clip(said+cried, 1000))
		}
		said, cried = last(said+string(ev.GetData().GetStdout())), last(cried+string(ev.GetData().GetStderr()))
		if slices.Contains(strings.Split(said, "\n"), w.Ready) && strings.HasSuffix(said, "\n") {
			return lives(ctx, client, w.Tag)
		}
	}
	return fmt.Errorf("the warm-up was not ready in time: %w: %q", stream.Err(), clip(said+cried, 1000))
}

// lives makes sure that the process did not end with its last word.
func lives(ctx context.Context, client processconnect.ProcessClient, tag string) error {
	all, err := client.List(ctx, connect.NewRequest(&process.ListRequest{}))
	if err != nil {
		return fmt.Errorf("look for the warm process: %w", err)
	}
	if !slices.ContainsFunc(all.Msg.GetProcesses(), func(p *process.ProcessInfo) bool { return p.GetTag() == tag }) {
		return errors.New("the warm-up ended when it was ready")
	}
	return nil
}

// last bounds what is kept of a process's output.
func last(s string) string {
	const most = 8 << 10
	return s[max(len(s)-most, 0):]
}

// shed removes warm snapshots that fit nothing any more, and the oldest of too
// many.
func (e *Engine) shed() {
	now, err := e.warm.digest()
	all := e.shelf.list(kindWarm)
	slices.SortFunc(all, func(a, b *snapshot) int { return b.Created.Compare(a.Created) })
	for i, snap := range all {
		if i < maxWarm && e.cfg.Warmup != nil && err == nil && *snap.Warm == now {
			continue
		}
		e.log.Info("threw a warm state away", "snapshot", snap.ID, "image", snap.Box.Image)
		if err := e.shelf.drop(snap); err != nil {
			e.log.Error("something of a warm state is left", "snapshot", snap.ID, "reason", err.Error())
		}
	}
}
