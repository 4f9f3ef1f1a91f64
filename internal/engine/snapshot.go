package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// Storage bounds what paused boxes and snapshots take of the disk.
type Storage struct {
	Count int           // how many there may be
	Bytes int64         // what they may take together
	Life  time.Duration // how long a paused box is kept; a snapshot has no end
}

// DefaultStorage is for one machine with a few users.
var DefaultStorage = Storage{Count: 200, Bytes: 20 << 30, Life: 30 * 24 * time.Hour}

// snapshot is the saved state of a box, on disk: a folder with its own record
// beside the checkpoint. It can be made into boxes again.
type snapshot struct {
	Format  int                 `json:"format"`
	ID      dreamcore.SandboxID `json:"id"` // of the paused box, or its own
	Kind    kind                `json:"kind"`
	Name    string              `json:"name,omitempty"`
	Box     record              `json:"box"` // the box that it was taken of
	Created time.Time           `json:"created"`
	Bytes   int64               `json:"bytes"` // on disk
	Warm    *warmth             `json:"warm,omitempty"`

	dir   string
	timer *time.Timer // removes it when its time is over
	busy  sync.Mutex  // held while a paused box is resumed or killed
}

// kind is what a snapshot is for.
type kind string

const (
	kindPaused kind = "paused" // one box, which goes on from here under its own id
	kindNamed  kind = "named"  // a template for any number of boxes
	kindFork   kind = "fork"   // the same for the moment
	kindWarm   kind = "warm"   // a box of an image that has its programs in memory
)

const (
	snapshotFormat = 1
	snapshotFile   = "snapshot.json"
	checkpointDir  = "checkpoint"
	newPrefix      = ".new-" // folders that are not complete yet
)

// shelf is where snapshots are kept.
type shelf struct {
	dir    string
	limits Storage

	mu       sync.Mutex
	all      map[dreamcore.SandboxID]*snapshot
	doomed   []string
	reserved int64 // of snapshots that are being written
	pending  int
}

// load finds the snapshots of a former engine, and removes nothing: the folder
// may still be another engine's. What cannot be read is left out and returned as
// an error.
func (s *shelf) load() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of snapshots: %w", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("look for snapshots: %w", err)
	}
	var errs []error
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = map[dreamcore.SandboxID]*snapshot{}
	for _, e := range entries {
		dir := filepath.Join(s.dir, e.Name())
		if strings.HasPrefix(e.Name(), newPrefix) {
			continue // sweep's
		}
		snap, err := readSnapshot(dir)
		if err == nil && string(snap.ID) != e.Name() {
			err = fmt.Errorf("it says that it is %q", clip(string(snap.ID), 64))
		}
		if err == nil && snap.Kind == kindFork {
			s.doomed = append(s.doomed, dir) // its forks have ended with their engine
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read snapshot %s: %w", clip(e.Name(), 64), err))
			continue
		}
		s.all[snap.ID] = snap
	}
	return errors.Join(errs...)
}

// sweep removes what a former engine left incomplete, once whatever may still
// have been writing it is gone.
func (s *shelf) sweep() error {
	s.mu.Lock()
	doomed := s.doomed
	s.doomed = nil
	s.mu.Unlock()
	incomplete, err := filepath.Glob(filepath.Join(s.dir, newPrefix+"*"))
	errs := []error{err}
	for _, dir := range append(doomed, incomplete...) {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

func readSnapshot(dir string) (*snapshot, error) {
	data, err := os.ReadFile(filepath.Join(dir, snapshotFile))
	if err != nil {
		return nil, err
	}
	snap, err := parseSnapshot(data)
	if err != nil {
		return nil, err
	}
	snap.dir = dir
	return snap, nil
}

// parseSnapshot refuses what cannot have been written whole.
func parseSnapshot(data []byte) (*snapshot, error) {
	var s snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("the record is damaged: %w", err)
	}
	switch {
	case s.Format != snapshotFormat:
		return nil, fmt.Errorf("the record has format %d, not %d", s.Format, snapshotFormat)
	case s.ID == "" || s.Created.IsZero() || s.Box.Image == "" || s.Bytes <= 0 || (s.Kind == kindWarm) != (s.Warm != nil) ||
		s.Kind == kindPaused && (s.Box.ID != s.ID || s.Box.Token == "" || s.Box.Private != (s.Box.Traffic != "")):
		return nil, errors.New("the record lacks something")
	case !slices.Contains([]kind{kindPaused, kindNamed, kindFork, kindWarm}, s.Kind):
		return nil, fmt.Errorf("the record is of kind %q", clip(string(s.Kind), 32))
	}
	return &s, nil
}

// reserve asks for room for a box of so many bytes. The returned function gives
// the reservation back, once the snapshot is on the shelf or nothing of it is left.
func (s *shelf) reserve(bytes int64, lang dreamcore.Lang) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.reserved
	for _, snap := range s.all {
		used += snap.Bytes
	}
	switch {
	case len(s.all)+s.pending >= s.limits.Count:
		return nil, s.full(lang, fmt.Sprintf("%d", s.limits.Count))
	case used+bytes > s.limits.Bytes:
		return nil, s.full(lang, fmt.Sprintf("%d MiB", s.limits.Bytes>>20))
	}
	s.reserved += bytes
	s.pending++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reserved -= bytes
		s.pending--
	}, nil
}

func (s *shelf) full(lang dreamcore.Lang, limit string) error {
	return text.Error(lang, dreamcore.Refused, "engine.snapshot", "engine.snapshot_quota", "limit", limit)
}

// put makes a folder that is complete a snapshot on the shelf.
func (s *shelf) put(snap *snapshot, from string) error {
	var err error
	if snap.Bytes, err = diskBytes(from); err != nil {
		return err
	}
	data, err := json.Marshal(snap)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(from, snapshotFile), data, 0o600); err != nil {
		return err
	}
	snap.dir = filepath.Join(s.dir, string(snap.ID))
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(from, snap.dir); err != nil {
		return err
	}
	s.all[snap.ID] = snap
	return nil
}

// get returns a snapshot of one of the kinds.
func (s *shelf) get(id dreamcore.SandboxID, kinds ...kind) (*snapshot, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap, ok := s.all[id]
	return snap, ok && slices.Contains(kinds, snap.Kind)
}

// list returns the snapshots of a kind.
func (s *shelf) list(k kind) []*snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*snapshot
	for _, snap := range s.all {
		if snap.Kind == k {
			all = append(all, snap)
		}
	}
	return all
}

// template finds the snapshot that a client names as a template: by its id, by
// its name, either with E2B's tag or without.
func (s *shelf) template(ref string) (*snapshot, bool) {
	ref = strings.TrimSuffix(ref, snapshotTag)
	if snap, ok := s.get(dreamcore.SandboxID(ref), kindNamed); ok {
		return snap, true
	}
	var newest *snapshot
	for _, snap := range s.list(kindNamed) {
		if snap.Name == ref && ref != "" && (newest == nil || snap.Created.After(newest.Created)) {
			newest = snap
		}
	}
	return newest, newest != nil
}

// drop removes a snapshot. From the moment that its record is gone it is no
// snapshot any more, whatever happens to the rest.
func (s *shelf) drop(snap *snapshot) error {
	s.mu.Lock()
	if s.all[snap.ID] == snap {
		delete(s.all, snap.ID)
	}
	if snap.timer != nil {
		snap.timer.Stop()
	}
	s.mu.Unlock()
	doomed := filepath.Join(s.dir, newPrefix+string(snap.ID)+"-"+dreamcore.NewToken(8))
	if err := os.Rename(snap.dir, doomed); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove snapshot %s: %w", snap.ID, err)
	}
	if err := os.RemoveAll(doomed); err != nil {
		return fmt.Errorf("remove snapshot %s: %w", snap.ID, err)
	}
	return nil
}

// close stops what runs on the shelf's behalf; the snapshots stay.
func (s *shelf) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, snap := range s.all {
		if snap.timer != nil {
			snap.timer.Stop()
		}
	}
}

// diskBytes is what a folder's own files take; one that has another name
// elsewhere is not counted.
func diskBytes(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		fi, err := d.Info()
		if err == nil && blocks(fi) > 0 {
			n += blocks(fi)
		}
		return err
	})
	return max(n, 1), err
}

// room reports whether b may and can be saved, and reserves what it will take;
// the returned function gives the reservation back.
func (e *Engine) room(b *box) (func(), error) {
	if err := b.machine.Saveable(e.shelf.dir); err != nil {
		return nil, err
	}
	return e.shelf.reserve(b.machine.MemoryBytes(), e.cfg.Lang)
}

// checkpoint writes b's state to a new snapshot on the shelf. b must be frozen.
// On failure nothing of the snapshot is left.
func (e *Engine) checkpoint(ctx context.Context, b *box, snap *snapshot) (err error) {
	dir := filepath.Join(e.shelf.dir, newPrefix+string(snap.ID)+"-"+dreamcore.NewToken(8))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a snapshot: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	e.hangUp(ctx, b)
	if err := b.machine.Checkpoint(ctx, filepath.Join(dir, checkpointDir)); err != nil {
		return err
	}
	if err := e.shelf.put(snap, dir); err != nil {
		return fmt.Errorf("make a snapshot: %w", err)
	}
	return nil
}

// hangUp ends the connection to b's PID 1 and returns once PID 1 has noticed.
// gVisor takes host connections away when it saves, and an end that PID 1 has
// not read by then it would never read: it would wait for a host that is gone.
func (e *Engine) hangUp(ctx context.Context, b *box) {
	c, _ := b.line()
	half, ok := c.machine.Control.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return // it has broken already
	}
	t := time.NewTimer(hangUpPatience)
	defer t.Stop()
	select {
	case <-c.broken:
	case <-ctx.Done():
	case <-t.C:
		e.log.Warn("PID 1 does not hang up", "sandbox_id", b.id, "decision", "save it all the same")
	}
}

// hangUpPatience is for a PID 1 that has hundreds of streams to end first.
const hangUpPatience = 10 * time.Second

// restore makes a computer of a snapshot. On failure nothing is left but the
// snapshot.
func (e *Engine) restore(ctx context.Context, id dreamcore.SandboxID, snap *snapshot) (blank, error) {
	if snap.Box.Profile != e.cfg.Profile {
		return blank{}, e.fail(dreamcore.Conflict, "restore", "other_profile", "was", string(snap.Box.Profile), "is", string(e.cfg.Profile))
	}
	image, err := e.cfg.Images(snap.Box.Image)
	if err != nil {
		return blank{}, fmt.Errorf("find the image of the snapshot: %w", err)
	}
	c := blank{id: id, image: image, limits: snap.Box.Limits, profile: snap.Box.Profile}
	if c.machine, err = e.run.Restore(ctx, c.id, image.Root, filepath.Join(snap.dir, checkpointDir)); err != nil {
		return c, err
	}
	if err := c.connect(); err != nil {
		return c, errors.Join(fmt.Errorf("connect to sandbox: %w", err), e.discard(ctx, c))
	}
	return c, nil
}

// blocks is what a file takes of the disk.
func blocks(fi fs.FileInfo) int64 {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fi.Size()
	}
	if st.Nlink > 1 {
		return 0
	}
	return st.Blocks * 512
}
