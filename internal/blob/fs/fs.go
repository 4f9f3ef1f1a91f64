// Package fs keeps blobs as files in one folder: DIR/ab/abcdef…, written to
// DIR/new first and renamed once they are on the disk. So a file under its final
// name is always whole, also after a power cut.
package fs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"dreamcore"
	"dreamcore/internal/blob"
)

const (
	fresh = "new" // where files are written before they get their name
	// staleAfter is how old a file in fresh must be to be the litter of a crash.
	// Another process may be writing a younger one.
	staleAfter = time.Hour
)

// Store implements blob.Store.
type Store struct {
	root *os.Root
}

var _ blob.Store = (*Store)(nil)

// Open opens or makes the store in dir and clears what a crash left in it.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open blobs: %w", err)
	}
	s := &Store{root: root}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("open blobs: %w", err), root.Close())
	}
	return s, nil
}

func (s *Store) prepare() error {
	if err := s.root.Mkdir(fresh, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	left, err := fs.ReadDir(s.root.FS(), fresh)
	if err != nil {
		return err
	}
	for _, e := range left {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) < staleAfter {
			continue
		}
		if err := s.root.Remove(path.Join(fresh, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close releases the folder.
func (s *Store) Close() error { return s.root.Close() }

func place(hash dreamcore.BlobHash) (dir, name string) {
	return string(hash[:2]), path.Join(string(hash[:2]), string(hash))
}

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, data []byte) (dreamcore.BlobHash, error) {
	sum := sha256.Sum256(data)
	hash := dreamcore.BlobHash(hex.EncodeToString(sum[:]))
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	// What is there already is read, not believed: a damaged file is mended by
	// writing it again.
	if _, err := s.Get(ctx, hash, int64(len(data))); err == nil {
		return hash, nil
	}
	if err := s.write(hash, data); err != nil {
		return "", fmt.Errorf("put blob: %w", err)
	}
	return hash, nil
}

func (s *Store) write(hash dreamcore.BlobHash, data []byte) error {
	dir, name := place(hash)
	temp := path.Join(fresh, dreamcore.NewToken(20))
	f, err := s.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.root.Mkdir(dir, 0o700)
		switch {
		case err == nil:
			err = s.sync(".") // the new folder's own name must survive too
		case errors.Is(err, fs.ErrExist):
			err = nil
		}
	}
	if err == nil {
		err = s.root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, s.root.Remove(temp))
	}
	return s.sync(dir)
}

// sync makes the names in a folder durable.
func (s *Store) sync(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open implements blob.Store.
func (s *Store) Open(_ context.Context, hash dreamcore.BlobHash) (blob.File, error) {
	if !blob.Valid(hash) {
		return nil, dreamcore.Errorf(dreamcore.Invalid, "blob.open", "%.80q is no hash", string(hash))
	}
	_, name := place(hash)
	f, err := s.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, dreamcore.Errorf(dreamcore.NotFound, "blob.open", "there is no blob %s", hash)
	}
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open blob: %w", err), f.Close())
	}
	return &file{File: f, size: info.Size()}, nil
}

type file struct {
	*os.File
	size int64
}

func (f *file) SizeBytes() int64 { return f.size }

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, hash dreamcore.BlobHash, limitBytes int64) (data []byte, err error) {
	f, err := s.Open(ctx, hash)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.SizeBytes() > limitBytes {
		return nil, dreamcore.Errorf(dreamcore.Refused, "blob.get", "blob %s has %d bytes, more than %d", hash, f.SizeBytes(), limitBytes)
	}
	data, err = io.ReadAll(io.LimitReader(f, limitBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read blob: %w", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != string(hash) {
		return nil, dreamcore.Errorf(dreamcore.Internal, "blob.get", "blob %s is damaged on the disk", hash).
			WithHint("restore it from a backup, or publish the game again")
	}
	return data, nil
}
