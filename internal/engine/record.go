package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/gvisor"
	"dreamcore/internal/envd"
)

// record is what the next engine needs to take a box back. It lies in the box's
// folder, which the box does not see and only root may read: it holds tokens.
type record struct {
	Format   int                 `json:"format"`
	Protocol int                 `json:"protocol"` // envd.Protocol of its PID 1
	ID       dreamcore.SandboxID `json:"id"`
	State    string              `json:"state"`
	Image    string              `json:"image"` // digest
	Machine  gvisor.Identity     `json:"machine"`
	Limits   Limits              `json:"limits"`
	Profile  Profile             `json:"profile"`
	Started  time.Time           `json:"started"`
	Ends     time.Time           `json:"ends"`
	Token    string              `json:"token"`
	Traffic  string              `json:"traffic,omitempty"`
	Metadata map[string]string   `json:"metadata,omitempty"`
	Env      map[string]string   `json:"env,omitempty"`
	Egress   bool                `json:"egress"`
	Private  bool                `json:"private"`
	Face     face                `json:"face"`

	Template   string        `json:"template,omitempty"` // the snapshot that it was made of
	AutoPause  bool          `json:"autoPause,omitempty"`
	AutoResume bool          `json:"autoResume,omitempty"`
	Life       time.Duration `json:"life,omitempty"` // what it was ordered for
}

const (
	recordFile   = "record.json"
	recordFormat = 1
	// maxRecordBytes is more than a create request's body can make of it.
	maxRecordBytes = 4 << 20
	stateRunning   = "running"
)

// record describes the box as it is now, but for its process.
func (b *box) record(state string) record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return record{
		Format: recordFormat, Protocol: envd.Protocol, ID: b.id, State: state,
		Image: b.image.Digest, Limits: b.limits, Profile: b.profile,
		Started: b.started, Ends: b.ends, Token: b.token, Traffic: b.traffic,
		Metadata: b.order.metadata, Env: b.order.env, Egress: b.order.egress, Private: b.order.private, Face: b.order.face,
		Template: b.order.template, AutoPause: b.order.autoPause, AutoResume: b.order.autoResume, Life: b.order.life,
	}
}

// order is that of the box which a record describes.
func (r record) order() order {
	return order{
		template: r.Template, metadata: r.Metadata, env: r.Env, egress: r.Egress, private: r.Private, face: r.Face,
		autoPause: r.AutoPause, autoResume: r.AutoResume, life: r.Life,
	}
}

// save writes down what the next engine needs, whenever that has changed. It
// does nothing where no box outlives its engine.
func (e *Engine) save(b *box) error {
	if !e.cfg.Keep {
		return nil
	}
	b.saving.Lock()
	defer b.saving.Unlock()
	rec := b.record(stateRunning)
	var err error
	if rec.Machine, err = b.machine.Identity(); err != nil {
		return fmt.Errorf("record sandbox: %w", err)
	}
	if err := rec.write(b.machine.Dir()); err != nil {
		return fmt.Errorf("record sandbox: %w", err)
	}
	return nil
}

// note saves what a client has changed, who thereby uses the box. A box whose record is old goes on; only
// the next engine would have it as it was.
func (e *Engine) note(b *box) {
	b.touch()
	if err := e.save(b); err != nil {
		e.log.Error("the record of a sandbox is not up to date", "sandbox_id", b.id, "reason", err.Error())
	}
}

// write replaces the record in dir: whoever is killed meanwhile leaves the old
// one or the new one.
func (r record) write(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, recordFile+".new")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, recordFile))
}

func readRecord(dir string) (record, error) {
	var r record
	path := filepath.Join(dir, recordFile)
	fi, err := os.Lstat(path)
	if err != nil {
		return r, err
	}
	if !fi.Mode().IsRegular() || fi.Size() > maxRecordBytes {
		return r, errors.New("the record is no file, or too large")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	return parseRecord(data)
}

// parseRecord reads a record and refuses one that cannot have been written whole.
func parseRecord(data []byte) (record, error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("the record is damaged: %w", err)
	}
	switch {
	case r.Format != recordFormat:
		return r, fmt.Errorf("the record has format %d, not %d", r.Format, recordFormat)
	case r.ID == "" || r.Token == "" || r.Image == "" || r.State == "" || r.Started.IsZero() || r.Ends.IsZero() ||
		r.Limits == (Limits{}) || r.Private != (r.Traffic != ""):
		return r, errors.New("the record lacks something")
	}
	return r, nil
}

// spare decides for one box that an engine which died left whether it is to be
// taken back; everything else is removed.
func (e *Engine) spare(id string) bool {
	if !e.cfg.Keep {
		return false
	}
	if _, paused := e.shelf.get(dreamcore.SandboxID(id), kindPaused); paused {
		e.log.Info("a sandbox is not taken back", "sandbox_id", id, "decision", "remove", "reason", "it is paused")
		return false
	}
	rec, err := readRecord(e.run.BoxDir(dreamcore.SandboxID(id)))
	if errors.Is(err, fs.ErrNotExist) {
		e.log.Info("a sandbox is not taken back", "sandbox_id", id, "decision", "remove", "reason", "it has no record: nobody had it, or its engine kept none")
		return false
	}
	if err == nil {
		err = e.fits(id, rec)
	}
	if err != nil {
		e.log.Warn("a sandbox is not taken back", "sandbox_id", id, "decision", "remove", "reason", err.Error())
		return false
	}
	e.found[rec.ID] = rec
	return true
}

// fits says why a recorded box cannot go on.
func (e *Engine) fits(id string, rec record) error {
	if string(rec.ID) != id {
		return fmt.Errorf("the record is of another sandbox, %q", clip(string(rec.ID), 64))
	}
	if rec.State != stateRunning {
		return fmt.Errorf("it is %q", clip(rec.State, 64))
	}
	if rec.Protocol != envd.Protocol {
		return fmt.Errorf("its PID 1 speaks version %d of the protocol, not %d", rec.Protocol, envd.Protocol)
	}
	if rec.Profile != e.cfg.Profile {
		return errors.New("it has other privileges than this engine gives")
	}
	if !time.Now().Before(rec.Ends) {
		e.mu.Lock()
		e.deaths.add(rec.ID, reasonTimeout)
		e.mu.Unlock()
		return errors.New("its time is over")
	}
	image, err := e.cfg.Images(rec.Image)
	if err != nil {
		return fmt.Errorf("its image is gone: %w", err)
	}
	if image.Digest != rec.Image {
		return fmt.Errorf("its image is now another, %s", image.Digest)
	}
	return nil
}

const (
	backPatience = 15 * time.Second // PID 1 calls several times a second
	backAtOnce   = 16
)

// takeBack takes the boxes back that spare found. One that cannot be is removed
// and remembered as lost.
func (e *Engine) takeBack(ctx context.Context) {
	slots := make(chan struct{}, backAtOnce)
	var wg sync.WaitGroup
	for id, rec := range e.found {
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-slots; wg.Done() }()
			if err := e.adopt(ctx, rec); err != nil {
				e.mu.Lock()
				e.deaths.add(id, reasonEngine)
				e.mu.Unlock()
				e.log.Warn("a sandbox is not taken back", "sandbox_id", id, "decision", "remove", "reason", err.Error())
				return
			}
			e.log.Info("took a sandbox back", "sandbox_id", id, "image", rec.Image, "left_ms", time.Until(rec.Ends).Milliseconds())
		}()
	}
	wg.Wait()
	clear(e.found)
}

// adopt makes a recorded box found again. On failure nothing of it is left.
func (e *Engine) adopt(ctx context.Context, rec record) error {
	ctx, cancel := context.WithTimeout(ctx, backPatience)
	defer cancel()
	image, err := e.cfg.Images(rec.Image)
	if err != nil {
		return err
	}
	c := blank{id: rec.ID, image: image, limits: rec.Limits, profile: rec.Profile}
	if c.machine, err = e.run.Adopt(ctx, rec.ID, rec.Machine); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return errors.Join(err, e.discard(ctx, c))
	}
	o := rec.order()
	o.image = image
	if err := c.tell(ctx, c.init(o)); err != nil {
		return errors.Join(err, e.discard(ctx, c))
	}
	b := newBox(c, o)
	b.started, b.token, b.traffic = rec.Started, rec.Token, rec.Traffic
	if !e.register(b) {
		return errors.Join(e.closed(), e.end(b, reasonEngine))
	}
	b.live(time.Until(rec.Ends), true, func() { e.expire(b, 1) })
	return nil
}

// leave lets go of a box without ending it, so that the next engine finds it.
func (e *Engine) leave(b *box) error {
	b.once.Do(func() {
		e.mu.Lock()
		delete(e.boxes, b.id)
		e.mu.Unlock()
		b.mu.Lock()
		if b.timer != nil {
			b.timer.Stop()
		}
		b.mu.Unlock()
		saved := e.save(b)
		b.cancel()
		b.ended = errors.Join(saved, b.machine.Leave())
		close(b.over)
		e.log.Info("left a sandbox for the next engine", "sandbox_id", b.id)
	})
	return b.ended
}
