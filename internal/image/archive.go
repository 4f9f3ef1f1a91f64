package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"dreamcore"
)

// An export is a zstd-compressed tar: manifest.json first, then root/ and all
// below it, parents before children.
const (
	manifestName = "manifest.json"
	rootName     = "root"
)

// importLimits bound a foreign archive: no image comes near them.
var importLimits = limits{bytes: 16 << 30, entries: 1 << 20}

// zstdMemory bounds what a hostile archive can make the decoder allocate.
const zstdMemory = 64 << 20

// epoch is the time of everything that a build makes itself: late enough for
// formats that know none before 1980.
var epoch = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Export writes the image that ref names to w, after verifying it.
func (s *Store) Export(ctx context.Context, ref string, w io.Writer, progress func(Progress)) (Image, error) {
	img, err := s.Verify(ctx, ref, progress)
	if err != nil {
		return Image{}, err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(8<<20))
	if err != nil {
		return Image{}, fmt.Errorf("export image: %w", err)
	}
	t := tar.NewWriter(z)
	err = s.writeArchive(ctx, t, img, progress)
	if err := errors.Join(err, t.Close(), z.Close()); err != nil {
		return Image{}, s.explain(ctx, "image.export", err)
	}
	return img, nil
}

func (s *Store) writeArchive(ctx context.Context, t *tar.Writer, img Image, progress func(Progress)) error {
	m := img.Manifest
	data, err := encodeIndented(stamp{Format: stampFormat, Digest: m.Digest, SizeBytes: m.SizeBytes, Created: m.Created})
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	if err := t.WriteHeader(&tar.Header{Name: manifestName, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(data)), ModTime: epoch}); err != nil {
		return err
	}
	if _, err := t.Write(data); err != nil {
		return err
	}
	root, err := os.OpenRoot(img.Root)
	if err != nil {
		return fmt.Errorf("open root: %w", err)
	}
	defer root.Close()
	own, err := ownersOf(img.Root)
	if err != nil {
		return err
	}
	var done int64
	linked := map[uint64]string{}
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no owner known", p)
		}
		uid, gid := own.of(p, st)
		h := &tar.Header{
			Name: rootName + "/" + p, Mode: int64(st.Mode & 0o7777), Uid: int(uid), Gid: int(gid),
			ModTime: time.Unix(info.ModTime().Unix(), 0), Format: tar.FormatPAX,
		}
		switch info.Mode().Type() {
		case fs.ModeDir:
			h.Typeflag = tar.TypeDir
			if h.Name += "/"; p == "." {
				h.Name = rootName + "/"
			}
		case fs.ModeSymlink:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = root.Readlink(p); err != nil {
				return err
			}
		case 0:
			if first, ok := linked[st.Ino]; ok && st.Nlink > 1 {
				h.Typeflag, h.Linkname = tar.TypeLink, rootName+"/"+first
				return t.WriteHeader(h)
			}
			linked[st.Ino] = p
			h.Typeflag, h.Size = tar.TypeReg, info.Size()
		default:
			return fmt.Errorf("%s is a %s, which an image must not hold", p, info.Mode().Type())
		}
		if err := t.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
			return err
		}
		f, err := root.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := io.Copy(t, f); err != nil {
			return fmt.Errorf("read %s: %w", p, err)
		}
		done += h.Size
		report(progress, StageArchive, done, max(img.Manifest.SizeBytes, done))
		return nil
	})
}

// ExportFile exports to a file that is there whole or not at all.
func (s *Store) ExportFile(ctx context.Context, ref, name string, progress func(Progress)) (Image, error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".dreamcore-export-")
	if err != nil {
		return Image{}, s.explain(ctx, "image.export", err)
	}
	defer os.Remove(f.Name()) // after the rename there is nothing by that name
	img, err := s.Export(ctx, ref, f, progress)
	if err != nil {
		f.Close()
		return Image{}, err
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return Image{}, s.explain(ctx, "image.export", err)
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return Image{}, s.explain(ctx, "image.export", err)
	}
	return img, nil
}

// Import reads an export. The stream is hostile: what it writes is contained in
// a temporary folder, and the image becomes visible only once the digest of
// what was unpacked is the one that it claims. An image that is there already
// is returned as it is. For an ordinary user, who cannot give files away, all of
// it becomes that user's; the digest is still that of the owners it stands for.
//
// The digest says that the image is the one that somebody exported; who that
// was, the operator must know.
func (s *Store) Import(ctx context.Context, r io.Reader, progress func(Progress)) (Image, error) {
	unlock, err := s.lock(ctx, "image.import", lockPatience)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	tmp, err := s.temp()
	if err != nil {
		return Image{}, s.explain(ctx, "image.import", err)
	}
	img, err := s.importTo(ctx, tmp, r, progress)
	if err := errors.Join(err, removeTree(tmp)); err != nil {
		return Image{}, s.explain(ctx, "image.import", err)
	}
	return img, nil
}

// ImportFile imports from a file.
func (s *Store) ImportFile(ctx context.Context, name string, progress func(Progress)) (Image, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Image{}, s.fail(dreamcore.NotFound, "image.import", "err_file", err, "file", fmt.Sprintf("%.200q", name))
	}
	if err != nil {
		return Image{}, s.explain(ctx, "image.import", err)
	}
	defer f.Close()
	return s.Import(ctx, f, progress)
}

func (s *Store) importTo(ctx context.Context, tmp string, r io.Reader, progress func(Progress)) (Image, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(zstdMemory), zstd.WithDecoderMaxWindow(32<<20))
	if err != nil {
		return Image{}, fmt.Errorf("%w: %w", errArchive, err)
	}
	defer z.Close()
	dir := filepath.Join(tmp, rootName)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return Image{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Image{}, err
	}
	defer root.Close()
	u := newUnpacker(root, importLimits, os.Geteuid() == 0)
	var st *stamp
	rootSeen := false
	err = each(ctx, z, func(h *tar.Header, p string, r io.Reader) error {
		switch {
		case st == nil:
			if p != manifestName || h.Typeflag != tar.TypeReg || h.Size > 1<<16 {
				return badArchive("it does not begin with a manifest")
			}
			st = &stamp{}
			return readStamp(r, st)
		case p == rootName:
			if rootSeen || h.Typeflag != tar.TypeDir || h.Mode&0o7777 != 0o755 || h.Uid != 0 || h.Gid != 0 {
				return badArchive("its root is no plain folder")
			}
			rootSeen = true
			return nil
		case !rootSeen || !strings.HasPrefix(p, rootName+"/"):
			return badArchive("%.80q is not below its root", p)
		}
		if h.Typeflag == tar.TypeLink {
			if !strings.HasPrefix(h.Linkname, rootName+"/") {
				return badArchive("the hard link %.80q points out of the image", p)
			}
			h.Linkname = strings.TrimPrefix(h.Linkname, rootName+"/")
		}
		if err := u.add(h, strings.TrimPrefix(p, rootName+"/"), r); err != nil {
			return err
		}
		report(progress, StageArchive, u.bytes, max(st.SizeBytes, u.bytes))
		return nil
	})
	if err != nil {
		return Image{}, err
	}
	if !rootSeen {
		return Image{}, badArchive("it holds no image")
	}
	// What follows the archive is read to its end, so that a stream cut short
	// or with a bad checksum is noticed.
	if n, err := io.Copy(io.Discard, io.LimitReader(z, 1<<20)); err != nil {
		return Image{}, fmt.Errorf("%w: after its end: %w", errArchive, err)
	} else if n == 1<<20 {
		return Image{}, badArchive("it goes on after its end")
	}
	if err := u.seal(); err != nil {
		return Image{}, err
	}
	if !u.owners {
		data, err := json.Marshal(u.given)
		if err != nil {
			return Image{}, err
		}
		if err := writeFile(filepath.Join(tmp, ownersFile), data, 0o644); err != nil {
			return Image{}, fmt.Errorf("write the owners: %w", err)
		}
	}
	return s.admit(ctx, tmp, st.Digest, st.Created, "", progress, st.SizeBytes)
}

func readStamp(r io.Reader, st *stamp) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("%w: %w", errArchive, err)
	}
	if err := decodeStrict(bytes.TrimSpace(data), st); err != nil {
		return fmt.Errorf("%w: %w", errArchive, err)
	}
	if st.Format != stampFormat || !digestForm.MatchString(st.Digest) {
		return badArchive("its manifest has format %d and digest %.80q", st.Format, st.Digest)
	}
	return nil
}

// explain turns what went wrong inside an operation into what people read. A
// dreamcore.Error and the end of the context pass as they are.
func (s *Store) explain(ctx context.Context, op string, err error) error {
	var known *dreamcore.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &known):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return s.fail(dreamcore.Unavailable, op, "err_disk", err, "dir", s.dir, "need", gib(needBytes), "free", gib(freeBytes(s.dir)))
	case errors.Is(err, errArchive):
		return s.fail(dreamcore.Invalid, op, "err_archive", err)
	}
	return fmt.Errorf("%s: %w", op, err)
}
