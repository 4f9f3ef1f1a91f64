package sandboxfake

import (
	"archive/tar"
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"dreamcore/internal/sandbox"
)

// Start implements sandbox.Sandbox.
func (b *Box) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if err := b.alive(ctx, "start"); err != nil {
		return nil, err
	}
	var a Answer
	known := false
	if b.p.Script != nil {
		a, known = b.p.Script(ctx, b, cmd)
	}
	if !known {
		a = b.builtin(cmd)
	}
	p := &process{b: b, events: make(chan sandbox.Output, 2), done: make(chan struct{})}
	if a.Stdout != "" {
		p.events <- sandbox.Output{Data: []byte(a.Stdout)}
	}
	if a.Stderr != "" {
		p.events <- sandbox.Output{Stderr: true, Data: []byte(a.Stderr)}
	}
	b.mu.Lock()
	dead := b.dead // the script may have ended its own box
	if !dead {
		b.procs[p] = true
		if a.Hang && cmd.Timeout > 0 {
			p.timer = time.AfterFunc(cmd.Timeout, func() { p.end(sandbox.Exit{Code: -1, Signal: "SIGKILL"}, nil) })
		}
	}
	b.mu.Unlock()
	switch {
	case dead:
		p.end(sandbox.Exit{Code: -1}, lost(b.id))
	case !a.Hang:
		p.end(a.Exit, a.Err)
	}
	return p, nil
}

// builtin answers the commands with which a project is collected.
func (b *Box) builtin(cmd sandbox.Command) Answer {
	line := strings.Join(cmd.Args, " ")
	switch {
	case cmd.Args[0] == "mkdir", strings.Contains(line, "kill"):
		return Answer{}
	case strings.Contains(line, "exec tar"):
		return b.tar(cmd.Args[len(cmd.Args)-1])
	}
	return Answer{Stderr: "not found: " + line, Exit: sandbox.Exit{Code: 127}}
}

// tar packs the files and links below dir, sorted by name.
func (b *Box) tar(dir string) Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	var failed error
	entry := func(h *tar.Header, data []byte) {
		if err := w.WriteHeader(h); err != nil && failed == nil {
			failed = err
		}
		if _, err := w.Write(data); err != nil && failed == nil {
			failed = err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(b.files)) {
		if name, ok := strings.CutPrefix(path, dir+"/"); ok {
			entry(&tar.Header{Name: "./" + name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(b.files[path]))}, b.files[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(b.links)) {
		if name, ok := strings.CutPrefix(path, dir+"/"); ok {
			entry(&tar.Header{Name: "./" + name, Typeflag: tar.TypeSymlink, Linkname: b.links[path]}, nil)
		}
	}
	if err := w.Close(); err != nil && failed == nil {
		failed = err
	}
	return Answer{Stdout: buf.String(), Err: failed}
}

type process struct {
	b      *Box
	events chan sandbox.Output
	timer  *time.Timer
	once   sync.Once
	done   chan struct{}
	exit   sandbox.Exit
	err    error
}

// end ends the process; only the first end counts.
func (p *process) end(exit sandbox.Exit, err error) {
	p.once.Do(func() {
		p.b.mu.Lock()
		delete(p.b.procs, p)
		if p.timer != nil {
			p.timer.Stop()
		}
		p.b.mu.Unlock()
		p.exit, p.err = exit, err
		close(p.events)
		close(p.done)
	})
}

func (p *process) PID() int                      { return 1 }
func (p *process) Events() <-chan sandbox.Output { return p.events }

func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.done:
		return p.exit, p.err
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

func (p *process) Signal(_ context.Context, sig string) error {
	p.end(sandbox.Exit{Code: -1, Signal: sig}, nil)
	return nil
}
