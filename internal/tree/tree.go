// Package tree owns the grammar and the limits of a collected project/ folder:
// it turns a hostile tar stream into a validated tree in memory, or refuses it
// whole. It touches no file system: a name that it refuses was never opened.
//
// A tree holds regular files only, under clean relative names. Refused are: a
// name that leaves the folder, links of either kind, devices, pipes, sparse
// files, names that differ in case only, hidden names (any part that begins
// with a dot: configuration, hooks and secrets live there, and no game needs
// one), control and invisible formatting characters, and everything beyond the
// Limits. The first violation refuses the whole tree; nothing is skipped.
package tree

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"dreamcore"
)

// Limits bound a tree. A zero field allows nothing of its kind.
type Limits struct {
	Files      int   // regular files; folders are bounded by the same number
	TotalBytes int64 // sum over all files
	FileBytes  int64 // one file
	Depth      int   // parts of a path, the file's own name included
	PathBytes  int   // one path, in bytes of UTF-8
}

// DefaultLimits are what a published game may be.
func DefaultLimits() Limits {
	return Limits{Files: 2000, TotalBytes: 60 << 20, FileBytes: 15 << 20, Depth: 12, PathBytes: 200}
}

// File is one regular file. Path is relative, with slashes.
type File struct {
	Path string
	Data []byte
}

// Tree is a validated folder. Its files are sorted by path, and neither they
// nor their bytes may be changed.
type Tree struct {
	Files []File
	index map[string]int
}

// New validates files by the same rules as Read. It keeps their bytes.
func New(files []File, limits Limits) (*Tree, error) {
	b := newBuilder(limits)
	for _, f := range files {
		if err := b.admit(f.Path, int64(len(f.Data))); err != nil {
			return nil, err
		}
		b.add(f.Path, f.Data)
	}
	return b.tree(), nil
}

// Lookup returns the bytes of the file at path.
func (t *Tree) Lookup(path string) ([]byte, bool) {
	i, ok := t.index[path]
	if !ok {
		return nil, false
	}
	return t.Files[i].Data, true
}

// SizeBytes is the sum over all files.
func (t *Tree) SizeBytes() int64 {
	var n int64
	for _, f := range t.Files {
		n += int64(len(f.Data))
	}
	return n
}

// Digest is the hex SHA-256 over the sorted list of paths, sizes and hashes:
// equal trees, and only they, have equal digests.
func (t *Tree) Digest() string {
	list := make([]dreamcore.VersionFile, len(t.Files))
	for i, f := range t.Files {
		list[i] = dreamcore.VersionFile{Path: f.Path, Hash: Hash(f.Data), SizeBytes: int64(len(f.Data))}
	}
	return ListDigest(list)
}

// Hash is the name under which a blob store keeps data.
func Hash(data []byte) dreamcore.BlobHash {
	sum := sha256.Sum256(data)
	return dreamcore.BlobHash(hex.EncodeToString(sum[:]))
}

// ListDigest is Digest for a tree of which only the list is at hand. The list
// must be sorted by path.
func ListDigest(list []dreamcore.VersionFile) string {
	var b bytes.Buffer
	for _, f := range list {
		// A path holds no line feed (the grammar), so the lines are unambiguous.
		fmt.Fprintf(&b, "%s %d %s\n", f.Hash, f.SizeBytes, f.Path)
	}
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}

// builder collects files that were admitted one by one.
type builder struct {
	limits  Limits
	total   int64
	folders int
	files   []File
	// names maps every path and every parent of one, case folded, to how it is
	// spelled and whether it is a file.
	names map[string]name
}

type name struct {
	path string
	file bool
}

func newBuilder(limits Limits) *builder {
	return &builder{limits: limits, names: map[string]name{}}
}

// admit decides about a file before a byte of it is read.
func (b *builder) admit(path string, sizeBytes int64) error {
	if err := CheckPath(path, b.limits); err != nil {
		return err
	}
	if len(b.files) >= b.limits.Files {
		return refuse(TooManyFiles, path, fmt.Sprint(b.limits.Files))
	}
	if sizeBytes < 0 || sizeBytes > b.limits.FileBytes {
		return refuse(FileTooLarge, path, fmt.Sprint(b.limits.FileBytes))
	}
	if sizeBytes > b.limits.TotalBytes-b.total {
		return refuse(TreeTooLarge, path, fmt.Sprint(b.limits.TotalBytes))
	}
	if err := b.claim(path, true); err != nil {
		return err
	}
	b.total += sizeBytes
	return nil
}

// folder decides about an entry that is a folder.
func (b *builder) folder(path string) error {
	if err := CheckPath(path, b.limits); err != nil {
		return err
	}
	if b.folders++; b.folders > b.limits.Files {
		return refuse(TooManyFiles, path, fmt.Sprint(b.limits.Files))
	}
	return b.claim(path, false)
}

// claim takes path and its parents, each of which must be new or a folder that
// is spelled the same way.
func (b *builder) claim(path string, file bool) error {
	for i := 0; i < len(path); i++ {
		if path[i] == '/' {
			if err := b.claimOne(path[:i], false); err != nil {
				return err
			}
		}
	}
	return b.claimOne(path, file)
}

func (b *builder) claimOne(path string, file bool) error {
	key := fold(path)
	old, taken := b.names[key]
	if !taken {
		b.names[key] = name{path, file}
		return nil
	}
	if file || old.file || old.path != path {
		return refuse(Duplicate, path, old.path)
	}
	return nil
}

func (b *builder) add(path string, data []byte) {
	b.files = append(b.files, File{Path: path, Data: data})
}

func (b *builder) tree() *Tree {
	sort.Slice(b.files, func(i, j int) bool { return b.files[i].Path < b.files[j].Path })
	t := &Tree{Files: b.files, index: make(map[string]int, len(b.files))}
	for i, f := range b.files {
		t.index[f.Path] = i
	}
	return t
}

// CheckPath holds path against the grammar of names in a tree.
func CheckPath(path string, limits Limits) error {
	switch {
	case path == "":
		return refuse(BadName, path, "")
	case len(path) > limits.PathBytes:
		return refuse(PathTooLong, path, fmt.Sprint(limits.PathBytes))
	case !utf8.ValidString(path):
		return refuse(BadName, path, "")
	case path[0] == '/':
		return refuse(Escape, path, "")
	}
	for _, r := range path {
		// Cf hides or turns text round (U+202E); a backslash and a colon mean a
		// folder or a drive elsewhere.
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\\' || r == ':' ||
			r == unicode.ReplacementChar || r == '\u2028' || r == '\u2029' {
			return refuse(BadName, path, "")
		}
	}
	parts := strings.Split(path, "/")
	for _, p := range parts {
		switch {
		case p == "..":
			return refuse(Escape, path, "")
		case p == "" || p == ".":
			return refuse(BadName, path, "")
		case p[0] == '.':
			return refuse(Hidden, path, "")
		case strings.TrimSpace(p) != p || strings.HasSuffix(p, "."):
			return refuse(BadName, path, "")
		}
	}
	if len(parts) > limits.Depth {
		return refuse(TooDeep, path, fmt.Sprint(limits.Depth))
	}
	return nil
}

// fold maps names that a file system without case would confuse to one string.
// Each rune becomes the smallest of its simple-folding orbit, which also joins
// the long s with s and the Kelvin sign with k.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, s)
}
