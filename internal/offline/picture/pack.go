package picture

import (
	"archive/zip"
	"bytes"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"dreamcore/internal/offline/picture/svg"
)

// packZip holds Noto Emoji icons as SVG, named after their code points:
// "1f408.svg". See LICENSE.noto; made by gen.
//
//go:embed pack.zip
var packZip []byte

// drawings are our own, for what the emoji lack.
//
//go:embed drawing/*.svg
var drawings embed.FS

type pack struct {
	files map[string]*zip.File
	own   map[string]bool
}

var openPack = sync.OnceValue(func() *pack {
	z, err := zip.NewReader(bytes.NewReader(packZip), int64(len(packZip)))
	if err != nil {
		// The pack is part of the binary: this is a fault of the build, and the tests see it.
		panic(fmt.Sprintf("picture: open pack: %v", err))
	}
	p := &pack{files: map[string]*zip.File{}, own: map[string]bool{}}
	for _, f := range z.File {
		p.files[strings.TrimSuffix(f.Name, ".svg")] = f
	}
	entries, err := drawings.ReadDir("drawing")
	if err != nil {
		panic(fmt.Sprintf("picture: open drawings: %v", err))
	}
	for _, e := range entries {
		p.own[strings.TrimSuffix(e.Name(), ".svg")] = true
	}
	return p
})

// Has reports whether there is a picture of that name.
func Has(name string) bool {
	p := openPack()
	return p.own[name] || p.files[name] != nil
}

// Names returns the names of all pictures, sorted.
func Names() []string {
	p := openPack()
	var names []string
	for n := range p.files {
		names = append(names, n)
	}
	for n := range p.own {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// open parses one picture of the pack.
func open(name string) (*svg.Drawing, error) {
	data, err := read(name)
	if err != nil {
		return nil, fmt.Errorf("open picture %s: %w", name, err)
	}
	d, err := svg.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("open picture %s: %w", name, err)
	}
	return d, nil
}

func read(name string) ([]byte, error) {
	p := openPack()
	if p.own[name] {
		return drawings.ReadFile("drawing/" + name + ".svg")
	}
	f := p.files[name]
	if f == nil {
		return nil, fmt.Errorf("there is no such picture")
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
