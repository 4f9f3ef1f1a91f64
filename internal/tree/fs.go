package tree

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"
	"time"
)

// FS shows the tree as a read-only file system.
func (t *Tree) FS() fs.FS {
	v := &view{tree: t, folders: map[string][]fs.DirEntry{".": nil}}
	for i, f := range t.Files {
		v.link(f.Path, entry{name: path.Base(f.Path), size: int64(len(t.Files[i].Data))})
	}
	for _, list := range v.folders {
		sort.Slice(list, func(i, j int) bool { return list[i].Name() < list[j].Name() })
	}
	return v
}

type view struct {
	tree    *Tree
	folders map[string][]fs.DirEntry
}

// link hangs an entry into its folder, making the folders above it.
func (v *view) link(p string, e entry) {
	dir := path.Dir(p)
	if _, ok := v.folders[dir]; !ok {
		v.link(dir, entry{name: path.Base(dir), dir: true})
	}
	v.folders[dir] = append(v.folders[dir], e)
	if e.dir {
		v.folders[p] = nil
	}
}

// Open implements fs.FS.
func (v *view) Open(p string) (fs.File, error) {
	if !fs.ValidPath(p) {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrInvalid}
	}
	if list, ok := v.folders[p]; ok {
		return &folder{entry: entry{name: path.Base(p), dir: true}, list: list}, nil
	}
	data, ok := v.tree.Lookup(p)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return &file{entry: entry{name: path.Base(p), size: int64(len(data))}, Reader: bytes.NewReader(data)}, nil
}

// ReadFile implements fs.ReadFileFS; the caller gets a copy.
func (v *view) ReadFile(p string) ([]byte, error) {
	data, ok := v.tree.Lookup(p)
	if !ok {
		err := fs.ErrNotExist
		if _, isFolder := v.folders[p]; isFolder || !fs.ValidPath(p) {
			err = fs.ErrInvalid
		}
		return nil, &fs.PathError{Op: "read", Path: p, Err: err}
	}
	return bytes.Clone(data), nil
}

// entry is at once the DirEntry and the FileInfo of a file or folder.
type entry struct {
	name string
	size int64
	dir  bool
}

func (e entry) Name() string               { return e.name }
func (e entry) IsDir() bool                { return e.dir }
func (e entry) Size() int64                { return e.size }
func (e entry) ModTime() time.Time         { return time.Time{} }
func (e entry) Sys() any                   { return nil }
func (e entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e entry) Info() (fs.FileInfo, error) { return e, nil }
func (e entry) String() string             { return strings.TrimSpace(fs.FormatDirEntry(e)) }
func (e entry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type file struct {
	entry
	*bytes.Reader
}

func (f *file) Stat() (fs.FileInfo, error) { return f.entry, nil }
func (f *file) Size() int64                { return f.size }
func (f *file) Close() error               { return nil }

type folder struct {
	entry
	list []fs.DirEntry
	at   int
}

func (d *folder) Stat() (fs.FileInfo, error) { return d.entry, nil }
func (d *folder) Close() error               { return nil }
func (d *folder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: fs.ErrInvalid}
}

// ReadDir implements fs.ReadDirFile.
func (d *folder) ReadDir(n int) ([]fs.DirEntry, error) {
	rest := d.list[d.at:]
	if n > 0 {
		if len(rest) == 0 {
			return nil, io.EOF
		}
		rest = rest[:min(n, len(rest))]
	}
	d.at += len(rest)
	return append([]fs.DirEntry(nil), rest...), nil
}
