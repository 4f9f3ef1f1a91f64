package check

import (
	"bytes"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Limits of a game: what loads at once on a phone, and what is absurd.
const (
	softBytes     = 15 << 20
	hardBytes     = 60 << 20
	hardFiles     = 2000
	maxTextBytes  = 4 << 20 // a longer text file is not read as code
	maxReadBytes  = 24 << 20
	vendoredBytes = 120 << 10 // a library; nobody writes so much by hand here
)

// project is the game's folder in memory: names of all files, bytes of those
// that matter.
type project struct {
	fsys   fs.FS
	files  map[string]*file
	names  []string          // sorted
	lower  map[string]string // lower-case name to the real one
	bytes  int64
	deep   bool // the walk was ended at hardFiles
	judged bool // the template is known, so that trusted tells
}

type file struct {
	name    string
	size    int64
	data    []byte // nil until read
	trusted bool   // byte for byte as the template was delivered
}

// load walks the folder; false when it cannot be read at all.
func (c *checker) load(fsys fs.FS) bool {
	p := &project{fsys: fsys, files: map[string]*file{}, lower: map[string]string{}}
	c.project = p
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if d.IsDir() {
			if d.Name() == "node_modules" || d.Name() == ".git" {
				c.warn("folder_odd", name, 0)
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			c.fail("file_odd", name, 0)
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		p.files[name] = &file{name: name, size: info.Size()}
		p.names = append(p.names, name)
		p.lower[strings.ToLower(name)] = name
		p.bytes += info.Size()
		if len(p.names) > hardFiles {
			p.deep = true
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) || len(p.names) > 0 {
			c.fail("folder_unreadable", "", 0)
			return false
		}
		c.fail("index_missing", "", 0)
		return false
	}
	if c.opt.Template != nil {
		p.judged = true
		for _, name := range p.names {
			f := p.get(name)
			if was, err := fs.ReadFile(c.opt.Template, name); err == nil && bytes.Equal(was, f.data) {
				f.trusted = true
			}
		}
	}
	return true
}

// get returns a file with its bytes, or nil when there is none. Files beyond
// maxReadBytes have no bytes.
func (p *project) get(name string) *file {
	f := p.files[name]
	if f == nil {
		return nil
	}
	if f.data == nil && f.size <= maxReadBytes {
		data, err := fs.ReadFile(p.fsys, name)
		if err != nil {
			data = []byte{} // gone or unreadable since the walk: as good as empty
		}
		f.data = data
	}
	return f
}

func (p *project) has(name string) bool { return p.files[name] != nil }

func (p *project) oversize(c *checker) {
	if p.deep {
		c.fail("files_too_many", "", 0, "limit", strconv.Itoa(hardFiles))
	}
	mega := func(n int64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) }
	switch {
	case p.bytes > hardBytes:
		c.fail("size_too_large", "", 0, "size", mega(p.bytes), "limit", mega(hardBytes))
	case p.bytes > softBytes:
		c.warn("size_large", "", 0, "size", mega(p.bytes), "limit", mega(softBytes))
	}
}

// isVendored reports whether a file is a library that the game brings along:
// its code is parsed for names, but style rules do not apply to it.
func (p *project) isVendored(name string) bool {
	f := p.files[name]
	if f == nil {
		return false
	}
	base := strings.ToLower(path.Base(name))
	if base == "dreamcore-sdk.js" || f.size > vendoredBytes {
		return true
	}
	for _, lib := range []string{"three", "phaser", "pixi", "cannon", "matter", "zzfx", "howler", "babylon", "planck", "p5"} {
		if base == lib+".js" || strings.HasPrefix(base, lib+".") || strings.HasPrefix(base, lib+"-") {
			return true
		}
	}
	return strings.HasPrefix(name, "kit/") && (f.trusted || !p.judged)
}

// resolve finds what a reference in the file from means. ok is false when it
// does not name a file of the game by a plain relative path.
func resolve(from, reference string) (string, bool) {
	reference, _, _ = strings.Cut(reference, "#")
	reference, _, _ = strings.Cut(reference, "?")
	if reference == "" || strings.HasPrefix(reference, "/") || strings.Contains(reference, ":") {
		return "", false
	}
	name := path.Join(path.Dir(from), reference)
	if name == ".." || strings.HasPrefix(name, "../") {
		return "", false
	}
	return name, true
}

// lineAt is the line of an offset, from 1.
func lineAt(data []byte, offset int) int {
	if offset < 0 || offset > len(data) {
		return 0
	}
	return 1 + bytes.Count(data[:offset], []byte{'\n'})
}
