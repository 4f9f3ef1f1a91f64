// Package sandboxfake is sandboxes in memory, whose commands are answered by a
// script. It is for tests of what drives sandboxes, beside the same paths on the
// real engine; it isolates nothing.
package sandboxfake

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// Answer is what a scripted command does.
type Answer struct {
	Stdout, Stderr string
	Exit           sandbox.Exit
	// Hang lets the command print and then run until it is signalled, its own
	// timeout ends it, or its box dies.
	Hang bool
	// Err breaks the stream instead of an end.
	Err error
}

// Provider boots boxes in memory. Set its fields before the first box boots.
type Provider struct {
	// Script answers a command; ok false leaves it to the few that every box
	// knows (mkdir, kill, pkill, tar), and to exit code 127.
	Script func(ctx context.Context, b *Box, cmd sandbox.Command) (a Answer, ok bool)
	// Before is asked before each operation ("create", "connect", "list", "kill",
	// "write", "read", "start"); an error is the operation's. box is nil for
	// create, list, and a box that is not there.
	Before func(ctx context.Context, op string, b *Box) error

	mu    sync.Mutex
	boxes map[dreamcore.SandboxID]*Box
	order []*Box
}

var _ sandbox.Provider = (*Provider)(nil)

// Box is one sandbox.
type Box struct {
	Spec sandbox.Spec
	p    *Provider
	id   dreamcore.SandboxID

	mu    sync.Mutex
	files map[string][]byte
	links map[string]string
	procs map[*process]bool
	dead  bool
}

var _ sandbox.Sandbox = (*Box)(nil)

func (p *Provider) before(ctx context.Context, op string, b *Box) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.Before != nil {
		return p.Before(ctx, op, b)
	}
	return nil
}

func lost(id dreamcore.SandboxID) error {
	return dreamcore.Errorf(dreamcore.Lost, "sandboxfake", "sandbox %s is gone", id)
}

// Create implements sandbox.Provider.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := p.before(ctx, "create", nil); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	spec.Metadata = maps.Clone(spec.Metadata)
	b := &Box{
		Spec: spec, p: p, id: dreamcore.SandboxID(fmt.Sprintf("box%d", len(p.order)+1)),
		files: map[string][]byte{}, links: map[string]string{}, procs: map[*process]bool{},
	}
	if p.boxes == nil {
		p.boxes = map[dreamcore.SandboxID]*Box{}
	}
	p.boxes[b.id] = b
	p.order = append(p.order, b)
	return b, nil
}

// Connect implements sandbox.Provider.
func (p *Provider) Connect(ctx context.Context, id dreamcore.SandboxID) (sandbox.Sandbox, error) {
	b := p.find(id)
	if err := p.before(ctx, "connect", b); err != nil {
		return nil, err
	}
	if b == nil {
		return nil, lost(id)
	}
	return b, nil
}

// List implements sandbox.Provider.
func (p *Provider) List(ctx context.Context, filter map[string]string) ([]sandbox.Info, error) {
	if err := p.before(ctx, "list", nil); err != nil {
		return nil, err
	}
	var infos []sandbox.Info
next:
	for _, b := range p.Living() {
		for k, v := range filter {
			if b.Spec.Metadata[k] != v {
				continue next
			}
		}
		infos = append(infos, sandbox.Info{ID: b.id, Image: b.Spec.Image, Metadata: maps.Clone(b.Spec.Metadata)})
	}
	return infos, nil
}

// Kill implements sandbox.Provider.
func (p *Provider) Kill(ctx context.Context, id dreamcore.SandboxID) error {
	b := p.find(id)
	if err := p.before(ctx, "kill", b); err != nil {
		return err
	}
	if b != nil {
		b.Die()
	}
	return nil
}

// find returns a living box, nil when there is none.
func (p *Provider) find(id dreamcore.SandboxID) *Box {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boxes[id]
}

// Living returns the boxes that live, oldest first.
func (p *Provider) Living() []*Box {
	p.mu.Lock()
	defer p.mu.Unlock()
	var living []*Box
	for _, b := range p.order {
		if p.boxes[b.id] == b {
			living = append(living, b)
		}
	}
	return living
}

// Booted returns every box that was ever booted, oldest first.
func (p *Provider) Booted() []*Box {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.order)
}

// ID implements sandbox.Sandbox.
func (b *Box) ID() dreamcore.SandboxID { return b.id }

// Role is the box's metadata "role".
func (b *Box) Role() string { return b.Spec.Metadata["role"] }

// Die ends the box and everything in it, as a kill or a crash does.
func (b *Box) Die() {
	b.p.mu.Lock()
	delete(b.p.boxes, b.id)
	b.p.mu.Unlock()
	b.mu.Lock()
	b.dead = true
	procs := slices.Collect(maps.Keys(b.procs))
	b.mu.Unlock()
	for _, p := range procs {
		p.end(sandbox.Exit{Code: -1}, lost(b.id))
	}
}

// Put writes one file, as a process in the box would.
func (b *Box) Put(path, data string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[path] = []byte(data)
}

// Link makes a symbolic link.
func (b *Box) Link(path, target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.links[path] = target
}

// Remove deletes a file or link.
func (b *Box) Remove(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.files, path)
	delete(b.links, path)
}

// Files returns the paths of all files, sorted.
func (b *Box) Files() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.files))
}

// Text returns a file's content, "" when there is none.
func (b *Box) Text(path string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.files[path])
}

func (b *Box) alive(ctx context.Context, op string) error {
	if err := b.p.before(ctx, op, b); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return lost(b.id)
	}
	return nil
}

// WriteFiles implements sandbox.Sandbox.
func (b *Box) WriteFiles(ctx context.Context, files []sandbox.File) error {
	if err := b.alive(ctx, "write"); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range files {
		b.files[f.Path] = bytes.Clone(f.Data)
	}
	return nil
}

// ReadFile implements sandbox.Sandbox.
func (b *Box) ReadFile(ctx context.Context, path string, limitBytes int64) ([]byte, error) {
	if err := b.alive(ctx, "read"); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.files[path]
	switch {
	case !ok:
		return nil, dreamcore.Errorf(dreamcore.NotFound, "sandboxfake", "there is no %s", path)
	case int64(len(data)) > limitBytes:
		return nil, dreamcore.Errorf(dreamcore.Refused, "sandboxfake", "%s is longer than %d bytes", path, limitBytes)
	}
	return bytes.Clone(data), nil
}

// List implements sandbox.Sandbox for the files directly in a folder.
func (b *Box) List(ctx context.Context, dir string, _ int) ([]sandbox.Entry, error) {
	if err := b.alive(ctx, "read"); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var entries []sandbox.Entry
	for _, path := range slices.Sorted(maps.Keys(b.files)) {
		if rest, ok := strings.CutPrefix(path, dir+"/"); ok && !strings.Contains(rest, "/") {
			entries = append(entries, sandbox.Entry{Path: path, SizeBytes: int64(len(b.files[path])), Mode: 0o644})
		}
	}
	return entries, nil
}

// SetTimeout implements sandbox.Sandbox.
func (b *Box) SetTimeout(ctx context.Context, _ time.Duration) error { return b.alive(ctx, "timeout") }
