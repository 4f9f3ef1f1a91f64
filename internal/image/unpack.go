package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// limits bound what one archive may cost.
type limits struct {
	bytes   int64
	entries int
}

// errArchive marks what is wrong with an archive itself, as against a full disk.
var errArchive = errors.New("bad archive")

func badArchive(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errArchive, fmt.Sprintf(format, args...))
}

// unpacker writes the entries of a hostile tar into a folder. It is contained
// twice over: os.Root refuses to leave the folder, and an entry's parent must
// be a real folder that the same archive made before, so that no symbolic link
// is ever walked through. Nothing is overwritten. Devices, pipes and set-id
// bits are refused.
type unpacker struct {
	root   *os.Root
	limit  limits
	owners bool   // give everything its owner (needs root)
	given  owners // whose it would be; what is not root's

	dirs  map[string]dirEntry
	files map[string]bool // regular files, true; other entries, false
	bytes int64
}

type dirEntry struct {
	mode fs.FileMode
	time time.Time
}

func newUnpacker(root *os.Root, limit limits, restore bool) *unpacker {
	return &unpacker{root: root, limit: limit, owners: restore, given: owners{},
		dirs: map[string]dirEntry{".": {mode: 0o755, time: epoch}}, files: map[string]bool{}}
}

// cleanName returns the entry's path without a trailing slash, or an error when
// it is anything but a plain relative path.
func cleanName(name string) (string, error) {
	p := strings.TrimSuffix(name, "/")
	if p == "." || p == "" && name != "" {
		return "", badArchive("the entry %.80q names no file", name)
	}
	if !fs.ValidPath(p) || strings.ContainsRune(p, 0) || len(p) > 4000 {
		return "", badArchive("the path %.80q is not a plain relative one", name)
	}
	return p, nil
}

// mkdirs makes the missing parents of p (npm's archives do not name them).
func (u *unpacker) mkdirs(p string) error {
	dir := path.Dir(p)
	if _, ok := u.dirs[dir]; ok {
		return nil
	}
	if err := u.mkdirs(dir); err != nil {
		return err
	}
	return u.add(&tar.Header{Typeflag: tar.TypeDir, Mode: 0o755, ModTime: epoch}, dir, nil)
}

// add writes one entry under the clean path p.
func (u *unpacker) add(h *tar.Header, p string, r io.Reader) error {
	if _, ok := u.files[p]; ok {
		return badArchive("%.80q comes twice", p)
	}
	if _, ok := u.dirs[p]; ok {
		return badArchive("%.80q comes twice", p)
	}
	if len(u.files)+len(u.dirs) >= u.limit.entries {
		return badArchive("it holds more than %d entries", u.limit.entries)
	}
	if _, ok := u.dirs[path.Dir(p)]; !ok {
		return badArchive("%.80q lies in a folder that the archive did not make", p)
	}
	mode := fs.FileMode(h.Mode & 0o777)
	if h.Mode&0o6000 != 0 {
		return badArchive("%.80q has a set-id bit", p)
	}
	if h.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	if h.Uid < 0 || h.Gid < 0 || h.Uid > 65535 || h.Gid > 65535 {
		return badArchive("%.80q has the owner %d:%d", p, h.Uid, h.Gid)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		// Writable for us until seal; the real mode comes then.
		if err := u.root.Mkdir(p, 0o700); err != nil {
			return err
		}
		u.dirs[p] = dirEntry{mode, h.ModTime}
	case tar.TypeReg:
		if u.bytes += h.Size; h.Size < 0 || u.bytes > u.limit.bytes {
			return badArchive("it holds more than %d bytes", u.limit.bytes)
		}
		if err := u.file(p, mode, h, r); err != nil {
			return err
		}
		u.files[p] = true
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > 4000 || strings.ContainsRune(h.Linkname, 0) || climbs(p, h.Linkname) {
			return badArchive("the link %.80q points out of the image", p)
		}
		if err := u.root.Symlink(h.Linkname, p); err != nil {
			return err
		}
		u.files[p] = false
	case tar.TypeLink:
		target, err := cleanName(h.Linkname)
		if err != nil {
			return err
		}
		if !u.files[target] {
			return badArchive("the hard link %.80q points at no file of the archive", p)
		}
		if err := u.root.Link(target, p); err != nil {
			return err
		}
		u.files[p] = true
		if who, ok := u.given[target]; ok {
			u.given[p] = who
		}
		return nil // shares owner, mode and time with its target
	default:
		return badArchive("%.80q is neither file, folder nor link", p)
	}
	if h.Uid != 0 || h.Gid != 0 {
		u.given[p] = [2]uint32{uint32(h.Uid), uint32(h.Gid)}
	}
	if u.owners {
		return u.root.Lchown(p, h.Uid, h.Gid)
	}
	return nil
}

func (u *unpacker) file(p string, mode fs.FileMode, h *tar.Header, r io.Reader) error {
	f, err := u.root.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, r); err != nil {
		f.Close()
		return fmt.Errorf("write %.80q: %w", p, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %.80q: %w", p, err)
	}
	if u.owners { // chown clears mode bits, so it goes first
		if err := u.root.Lchown(p, h.Uid, h.Gid); err != nil {
			return err
		}
	}
	if err := u.root.Chmod(p, mode); err != nil {
		return err
	}
	return u.root.Chtimes(p, h.ModTime, h.ModTime)
}

// seal gives folders their modes and times, which could not be set while they
// were being filled.
func (u *unpacker) seal() error {
	// Children first: a folder may become one that its owner cannot enter.
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(u.dirs))) {
		if p == "." {
			continue // the caller's
		}
		d := u.dirs[p]
		if err := u.root.Chtimes(p, d.time, d.time); err != nil {
			return err
		}
		if err := u.root.Chmod(p, d.mode); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for every entry of the archive with its clean path. Headers that
// only carry metadata are passed over by the reader or here.
func each(ctx context.Context, r io.Reader, f func(h *tar.Header, p string, r io.Reader) error) error {
	tr := tar.NewReader(r)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errArchive, err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		p, err := cleanName(h.Name)
		if err != nil {
			return err
		}
		if err := f(h, p, archiveReader{tr}); err != nil {
			return err
		}
	}
}

// archiveReader marks errors of reading as the archive's, as against those of
// writing what was read.
type archiveReader struct{ r io.Reader }

func (a archiveReader) Read(b []byte) (int, error) {
	n, err := a.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errArchive, err)
	}
	return n, err
}
