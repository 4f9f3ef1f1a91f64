package image

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// listingHeader begins every listing, so that a later form can never be taken
// for this one.
const listingHeader = "dreamcore tree 1\n"

// listing is the canonical description of a root file system: one line an
// entry, sorted by path. An image's digest is the SHA-256 of its listing.
//
//	d 0755 0 0 - "etc"
//	f 0644 0 0 9f86d081… "etc/hosts"
//	l 0777 0 0 "usr/bin" "bin"
//
// Times and the order on disk are left out: neither changes what a sandbox
// does, and both differ from one machine to the next.
type listing struct {
	lines     []string
	sizeBytes int64 // of the files' contents
}

// digest returns the image digest that the listing stands for.
func (l listing) digest() string {
	h := sha256.New()
	_, _ = l.WriteTo(h) // a hash accepts every write
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// WriteTo writes the listing in the form that is hashed.
func (l listing) WriteTo(w io.Writer) (int64, error) {
	b := bufio.NewWriterSize(w, 1<<16)
	n, err := b.WriteString(listingHeader)
	total := int64(n)
	for _, line := range l.lines {
		if err != nil {
			break
		}
		n, err = b.WriteString(line)
		total += int64(n)
	}
	return total, errors.Join(err, b.Flush())
}

// readListing reads what WriteTo wrote.
func readListing(r io.Reader) (listing, error) {
	b := bufio.NewReader(r)
	head, err := b.ReadString('\n')
	if err != nil || head != listingHeader {
		return listing{}, errors.New("not a listing of this version")
	}
	var l listing
	for {
		line, err := b.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return l, nil
		}
		if err != nil {
			return listing{}, fmt.Errorf("read listing: %w", err)
		}
		l.lines = append(l.lines, line)
	}
}

// entryPath returns the path that a line is about: its last field.
func entryPath(line string) string {
	line = strings.TrimSuffix(line, "\n")
	// Quoted fields hold no bare quote, so the last one starts after the last ` "`.
	if i := strings.LastIndex(line, ` "`); i >= 0 {
		return strings.Trim(line[i+1:], `"`)
	}
	return line
}

// damage returns the paths in which got differs from want, at most limit.
func (want listing) damage(got listing, limit int) []string {
	in := make(map[string]bool, len(want.lines))
	for _, l := range want.lines {
		in[l] = true
	}
	bad := map[string]bool{}
	for _, l := range got.lines {
		if in[l] {
			delete(in, l)
		} else {
			bad[entryPath(l)] = true
		}
	}
	for l := range in {
		bad[entryPath(l)] = true
	}
	paths := make([]string, 0, len(bad))
	for p := range bad {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths[:min(len(paths), limit)]
}

// list reads the tree under dir. It opens nothing through a symbolic link.
// progress, when it is not nil, hears the bytes hashed so far.
func list(ctx context.Context, dir string, progress func(done int64)) (listing, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return listing{}, fmt.Errorf("open root: %w", err)
	}
	defer root.Close()
	own, err := ownersOf(dir)
	if err != nil {
		return listing{}, err
	}

	type entry struct{ path, line string }
	var entries []entry
	var size int64
	linked := map[uint64]string{} // inode to digest, for files with several names
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
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
		var kind, what string
		switch info.Mode().Type() {
		case fs.ModeDir:
			kind, what = "d", "-"
		case fs.ModeSymlink:
			target, err := root.Readlink(p)
			if err != nil {
				return err
			}
			kind, what = "l", fmt.Sprintf("%q", target)
		case 0:
			kind = "f"
			if what, ok = linked[st.Ino]; !ok || st.Nlink < 2 {
				if what, err = hashFile(root, p); err != nil {
					return err
				}
				linked[st.Ino] = what
			}
			size += info.Size()
			if progress != nil {
				progress(size)
			}
		default:
			return fmt.Errorf("%s is a %s, which an image must not hold", p, info.Mode().Type())
		}
		uid, gid := own.of(p, st)
		entries = append(entries, entry{p, fmt.Sprintf("%s %04o %d %d %s %q\n", kind, st.Mode&0o7777, uid, gid, what, p)})
		return nil
	})
	if err != nil {
		return listing{}, fmt.Errorf("list tree: %w", err)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	l := listing{lines: make([]string, len(entries)), sizeBytes: size}
	for i, e := range entries {
		l.lines[i] = e.line
	}
	return l, nil
}

// owners say who owns what in an image that an ordinary user imported: nobody
// can give files away, so on the disk all of it is that user's. They are kept
// beside the root, for nobody but the digest, and hold what is not root's.
type owners map[string][2]uint32

const ownersFile = "owners.json"

// ownersOf reads the owners of the image with this root: none for root, to whom
// the disk tells the truth.
func ownersOf(root string) (owners, error) {
	if os.Geteuid() == 0 {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(root), ownersFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the owners: %w", err)
	}
	var o owners
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("read the owners: %w", err)
	}
	return o, nil
}

// of is who owns p in the image.
func (o owners) of(p string, st *syscall.Stat_t) (uid, gid uint32) {
	if me := os.Geteuid(); me == 0 || st.Uid != uint32(me) {
		return st.Uid, st.Gid
	}
	who := o[p] // root's, when it is not named
	return who[0], who[1]
}

// hashFile returns the hex SHA-256 of a regular file in root.
func hashFile(root *os.Root, p string) (string, error) {
	f, err := root.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", p, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// climbs reports whether a relative link target, followed from the folder that
// holds the link, leaves the root.
func climbs(link, target string) bool {
	if path.IsAbs(target) {
		return false // absolute means "from the sandbox's root", which is where it ends
	}
	depth := strings.Count(path.Clean(link), "/")
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}
