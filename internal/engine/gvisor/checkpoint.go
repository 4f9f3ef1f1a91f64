package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"dreamcore"
	"dreamcore/internal/envd"
)

// A checkpoint is a folder: what gVisor wrote of the box's memory (which holds
// its files too), the specification and the sandboxd that it ran with, the
// secret of its PID 1, and a list of them with their sums, written last.
const (
	listFile   = "files.json"
	spaceSlack = 64 << 20 // must stay free on the disk beside a checkpoint
)

// fileSum is what a file of a checkpoint must be to be trusted. The sum is
// against disks and accidents, not against people: the folder is root's.
type fileSum struct {
	Bytes int64  `json:"bytes"`
	CRC   uint32 `json:"crc"`
}

// Checkpoint writes the whole state of the box to dir, which must not exist,
// and leaves the box running either way: cut off from the host, until Reopen.
// On failure nothing is left at dir. Code Refused: the disk is too full.
func (b *Box) Checkpoint(ctx context.Context, dir string) (err error) {
	// gVisor takes it away when it saves. Whoever speaks over it had better have
	// hung up: what PID 1 has not read by then of its end it never reads.
	b.Control.Close()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("checkpoint sandbox: %w", err)
	}
	defer func() {
		if err == nil {
			return
		}
		if rerr := os.RemoveAll(dir); rerr != nil {
			err = errors.Join(err, fmt.Errorf("remove a failed checkpoint: %w", rerr))
		}
	}()
	if _, err := b.r.run(ctx, "checkpoint", "-image-path", dir, "-leave-running", "-compression", "none", "-exclude-committed-zero-pages", b.ID); err != nil {
		if full(dir) || strings.Contains(err.Error(), "no space left") {
			return fail(b.r.cfg.Lang, dreamcore.Refused, "engine.checkpoint", "disk_full").Because(err)
		}
		return fmt.Errorf("checkpoint sandbox: %w", err)
	}
	if err := b.complete(dir); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return fail(b.r.cfg.Lang, dreamcore.Refused, "engine.checkpoint", "disk_full").Because(err)
		}
		return fmt.Errorf("checkpoint sandbox: %w", err)
	}
	return nil
}

// complete adds to gVisor's files what a restore needs beside them.
func (b *Box) complete(dir string) error {
	// The very file: gVisor maps it anew, and another build would crash PID 1.
	if err := linkOrCopy(filepath.Join(b.r.controlDir(b.ID), sandboxdName), filepath.Join(dir, sandboxdName)); err != nil {
		return err
	}
	spec, err := os.ReadFile(filepath.Join(b.r.boxDir(b.ID), specFile))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, specFile), spec, 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, keyFile), b.key, 0o600); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sums := map[string]fileSum{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Name() != sandboxdName {
			if err := os.Chmod(path, 0o600); err != nil {
				return err
			}
		}
		if sums[e.Name()], err = sum(path); err != nil {
			return err
		}
	}
	data, err := json.Marshal(sums)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, listFile), data, 0o600)
}

// Restore makes the box id out of the checkpoint in the folder from, with the
// image's folder root, and returns once its PID 1 has proved itself with a
// secret that no other box has. On failure nothing is left; the checkpoint
// stays as it is and may be restored many times. Code Invalid: the checkpoint
// is damaged.
func (r *Runtime) Restore(ctx context.Context, id dreamcore.SandboxID, root, from string) (*Box, error) {
	if err := r.verify(from); err != nil {
		return nil, err
	}
	return r.begin(ctx, id, func(ctx context.Context, b *Box) error { return b.restore(ctx, root, from) })
}

func (b *Box) restore(ctx context.Context, root, from string) error {
	spec, err := b.respec(root, from)
	if err != nil {
		return b.unstarted(err)
	}
	former, err := os.ReadFile(filepath.Join(from, keyFile))
	if err != nil {
		return b.unstarted(err)
	}
	nonce, err := newSecret()
	if err != nil {
		return b.unstarted(err)
	}
	return b.launch(ctx, launch{
		spec: spec, sandboxd: filepath.Join(from, sandboxdName),
		key: envd.NextSecret(former, nonce), told: nonce,
		// It is the saved one but for our places and the box's share of the processor,
		// and gVisor refuses the latter.
		flags: []string{"--restore-spec-validation=ignore"},
		verb:  []string{"restore", "-image-path", from},
	})
}

// respec is the specification of the checkpoint with the places of this box, and
// its share of the processor.
func (b *Box) respec(root, from string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(from, specFile))
	if err != nil {
		return nil, err
	}
	var s ociSpec
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read the checkpoint's specification: %w", err)
	}
	s.Root.Path = root
	for i, m := range s.Mounts {
		if m.Destination == envd.ControlDir {
			s.Mounts[i].Source = b.r.controlDir(b.ID)
		}
	}
	if b.r.cgroups != nil {
		if s.Linux.Resources == nil {
			return nil, errors.New("it was saved where limits are not enforced")
		}
		s.Linux.CgroupsPath = b.r.cgroups.path(b.ID)
		s.Linux.Resources.CPU.Shares = 0
		if b.r.isAside(b.ID) {
			s.Linux.Resources.CPU.Shares = asideShares
		}
	}
	return s.encode()
}

// verify checks that a checkpoint is whole.
func (r *Runtime) verify(dir string) error {
	damaged := func(err error) error {
		return fail(r.cfg.Lang, dreamcore.Invalid, "engine.restore", "damaged_snapshot").Because(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, listFile))
	if err != nil {
		return damaged(err)
	}
	var sums map[string]fileSum
	if err := json.Unmarshal(data, &sums); err != nil {
		return damaged(err)
	}
	for _, need := range []string{specFile, keyFile, sandboxdName} {
		if _, ok := sums[need]; !ok {
			return damaged(fmt.Errorf("%s is missing", need))
		}
	}
	for name, want := range sums {
		if name != filepath.Base(name) {
			return damaged(fmt.Errorf("%q is no name of a file", clip(name, 64)))
		}
		got, err := sum(filepath.Join(dir, name))
		if err != nil {
			return damaged(err)
		}
		if got != want {
			return damaged(fmt.Errorf("%s has %d bytes and sum %08x instead of %d and %08x", name, got.Bytes, got.CRC, want.Bytes, want.CRC))
		}
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(path string) (fileSum, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileSum{}, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	n, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return fileSum{n, h.Sum32()}, err
}

// Saveable says, before anything is stopped for it, why the box cannot be saved
// on the disk of dir: nil, or code Missing or Refused.
func (b *Box) Saveable(dir string) error {
	r, bytes := b.r, b.MemoryBytes()
	if rootless() {
		return fail(r.cfg.Lang, dreamcore.Missing, "engine.checkpoint", "save_needs_root")
	}
	free, err := freeBytes(dir)
	if err != nil {
		return fmt.Errorf("look for space on the disk: %w", err)
	}
	if free < bytes+spaceSlack {
		return fail(r.cfg.Lang, dreamcore.Refused, "engine.checkpoint", "disk_full").Because(
			fmt.Errorf("%d MiB are free and %d needed", free>>20, (bytes+spaceSlack)>>20))
	}
	return nil
}

func freeBytes(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// spacious says whether there is room for a box's own files.
func (r *Runtime) spacious() error {
	free, err := freeBytes(r.cfg.Dir)
	if err != nil {
		return fmt.Errorf("look for space on the disk: %w", err)
	}
	if free < bootBytes {
		return fmt.Errorf("%d MiB are free: %w", free>>20, syscall.ENOSPC)
	}
	return nil
}

// bootBytes is what the files of one box take on the host's disk, generously;
// what is written in it comes on top, within its limits.
const bootBytes = 16 << 20

// full reports whether the disk of dir is.
func full(dir string) bool {
	free, err := freeBytes(dir)
	return err == nil && free < 1<<20
}

// linkOrCopy gives a file a second name, or a copy where that is another disk.
func linkOrCopy(from, to string) error {
	err := os.Link(from, to)
	if errors.Is(err, syscall.EXDEV) {
		return copyFile(from, to, 0o500)
	}
	return err
}
