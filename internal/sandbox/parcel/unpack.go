// Package parcel carries files and folders between this machine and a sandbox
// as tar archives: those that it packs are plain, those that it unpacks are
// hostile.
package parcel

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// Why something was left out of a parcel.
type Why string

// The reasons; each is the end of a text's key in the catalogue.
const (
	BadName Why = "left_out_name"    // it would lead out of the target
	BadLink Why = "left_out_link"    // the same, of a link
	Special Why = "left_out_special" // neither file nor folder nor link
)

// Order says what to unpack where.
type Order struct {
	// Base is what the names in the archive begin with; "." when they have no
	// common beginning. Target is what it becomes here: made if need be, as what
	// Base is, below a folder that exists.
	Base, Target string
	// MaxBytes and MaxFiles bound what is unpacked; more is code Refused.
	MaxBytes int64
	MaxFiles int
	// LeftOut hears what was left out; its name is the archive's: untrusted.
	LeftOut func(why Why, name string)
	Lang    dreamcore.Lang
}

// Unpack writes the archive in r and returns how many files, folders and links
// it made. The archive is hostile: whatever its names, links and order, nothing
// outside of the target is made, changed or read, and no link that is left leads
// out of it.
func Unpack(r io.Reader, o Order) (files int, err error) {
	u := &unpacker{Order: o}
	err = u.run(r)
	return u.files, err
}

// unpacker is one parcel being unpacked.
type unpacker struct {
	Order
	root    *os.Root // target, once it is a folder
	made    bool     // the folder was made for this
	folders []folder // whose modes and times are set at the end
	files   int      // everything that was made
}

type folder struct {
	name string
	mode fs.FileMode
	time time.Time
}

func (u *unpacker) fail(key string, args ...string) error {
	return text.Error(u.Lang, dreamcore.Refused, "sandbox.copy", "sandbox_cmd."+key, args...)
}

// run unpacks the archive in r to its end.
func (u *unpacker) run(r io.Reader) (err error) {
	defer func() {
		if u.root != nil {
			err = errors.Join(err, u.root.Close())
		}
	}()
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read what the sandbox sent: %w", err)
		}
		if u.MaxFiles--; u.MaxFiles < 0 {
			return u.fail("too_many_files")
		}
		name, ok := u.name(h.Name)
		if !ok {
			u.LeftOut(BadName, h.Name)
			continue
		}
		if err := u.entry(in, h, name); err != nil {
			return fmt.Errorf("write %q: %w", clip(filepath.Join(u.Target, name)), err)
		}
	}
	return u.finish()
}

// name is an entry's place below the target: "." is the target itself.
func (u *unpacker) name(s string) (string, bool) {
	if s == "" || strings.HasPrefix(s, "/") || strings.ContainsRune(s, 0) || slices.Contains(strings.Split(s, "/"), "..") {
		return "", false
	}
	s = path.Clean(s)
	if u.Base != "." {
		if s == u.Base {
			return ".", true
		}
		rest, ok := strings.CutPrefix(s, u.Base+"/")
		if !ok {
			return "", false
		}
		s = rest
	}
	return s, filepath.IsLocal(s)
}

func (u *unpacker) entry(in io.Reader, h *tar.Header, name string) error {
	mode := fs.FileMode(h.Mode) & fs.ModePerm // never a set-id bit
	if name == "." && h.Typeflag != tar.TypeDir {
		return u.single(in, h, mode)
	}
	if err := u.open(); err != nil {
		return err
	}
	if dir := path.Dir(name); dir != "." {
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if u.files++; name == "." && !u.made {
			return nil // a folder that was there keeps its mode
		}
		if err := u.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		// Until all is in it we must be able to write to it.
		if err := u.root.Chmod(name, mode|0o700); err != nil {
			return err
		}
		u.folders = append(u.folders, folder{name, mode, h.ModTime})
		return nil
	case tar.TypeReg:
		return u.file(u.root, name, in, h, mode)
	case tar.TypeSymlink:
		if !u.linkStays(name, h.Linkname) {
			u.LeftOut(BadLink, h.Name)
			return nil
		}
		if err := u.clear(u.root, name); err != nil {
			return err
		}
		u.files++
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeLink:
		old, ok := u.name(h.Linkname)
		// A symbolic link under another name would lead elsewhere.
		if info, err := u.root.Lstat(old); !ok || old == name || err != nil || !info.Mode().IsRegular() {
			u.LeftOut(BadLink, h.Name)
			return nil
		}
		if err := u.clear(u.root, name); err != nil {
			return err
		}
		u.files++
		return u.root.Link(old, name)
	}
	u.LeftOut(Special, h.Name)
	return nil
}

// open makes the target a folder.
func (u *unpacker) open() error {
	if u.root != nil {
		return nil
	}
	_, err := os.Lstat(u.Target)
	u.made = errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(u.Target, 0o755); err != nil {
		return err
	}
	u.root, err = os.OpenRoot(u.Target)
	return err
}

// single writes an archive of one file: the target itself.
func (u *unpacker) single(in io.Reader, h *tar.Header, mode fs.FileMode) error {
	if h.Typeflag != tar.TypeReg || u.root != nil {
		u.LeftOut(Special, h.Name)
		return nil
	}
	root, err := os.OpenRoot(filepath.Dir(u.Target))
	if err != nil {
		return err
	}
	defer root.Close()
	return u.file(root, filepath.Base(u.Target), in, h, mode)
}

// clear makes room for a link.
func (u *unpacker) clear(root *os.Root, name string) error {
	there, err := u.mayReplace(root, name)
	if err != nil || !there {
		return err
	}
	return root.Remove(name) // also a link: what it points to is not ours to write
}

// mayReplace reports whether something has the name that what is no folder shall
// have. Only a file or a link makes way.
func (u *unpacker) mayReplace(root *os.Root, name string) (there bool, err error) {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.IsDir():
		return true, u.fail("is_folder", "name", clip(filepath.Join(root.Name(), name)))
	case info.Mode().Type()&^fs.ModeSymlink != 0:
		return true, u.fail("is_special", "name", clip(filepath.Join(root.Name(), name)))
	}
	return true, nil
}

// file writes a file under a name of its own beside the one that it gets: until
// it is whole, what was there stays, and half a file never has its name.
func (u *unpacker) file(root *os.Root, name string, in io.Reader, h *tar.Header, mode fs.FileMode) error {
	if _, err := u.mayReplace(root, name); err != nil {
		return err
	}
	// Nobody who made the archive can name it.
	part := path.Join(path.Dir(name), ".dreamcore-"+dreamcore.NewToken(16))
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(in, min(u.MaxBytes, math.MaxInt64-1)+1))
	if u.MaxBytes -= n; err == nil && u.MaxBytes < 0 {
		err = u.fail("too_many_bytes")
	}
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = root.Chtimes(part, h.ModTime, h.ModTime)
	}
	if err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(part))
	}
	u.files++
	return nil
}

// linkStays reports whether a symbolic link cannot lead out of the target, now
// or with whatever comes later: its own folders are no links, and its target
// climbs at most as far as they are deep, and only at its beginning. Each name
// behind that is a folder, which stays one, or a link of which the same is true.
func (u *unpacker) linkStays(name, to string) bool {
	if to == "" || path.IsAbs(to) {
		return false
	}
	depth := 0
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if info, err := u.root.Lstat(dir); err != nil || !info.IsDir() {
			return false
		}
		depth++
	}
	down := false
	for _, part := range strings.Split(to, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; down || depth < 0 {
				return false
			}
		default:
			down = true
		}
	}
	return true
}

// finish gives the folders their modes and times, the innermost first.
func (u *unpacker) finish() error {
	slices.SortStableFunc(u.folders, func(a, b folder) int { return strings.Count(b.name, "/") - strings.Count(a.name, "/") })
	for _, d := range u.folders {
		if d.name == "." {
			continue
		}
		if info, err := u.root.Lstat(d.name); err != nil || !info.IsDir() {
			continue // a later entry has taken its place
		}
		if err := errors.Join(u.root.Chtimes(d.name, d.time, d.time), u.root.Chmod(d.name, d.mode)); err != nil {
			return err
		}
	}
	for _, d := range u.folders {
		if d.name == "." {
			return u.root.Chmod(".", d.mode)
		}
	}
	return nil
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "..."
	}
	return s
}
