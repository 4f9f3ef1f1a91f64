package job_test

import (
	"context"
	"path/filepath"

	"dreamcore"
	"dreamcore/internal/publish"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/sandboxfake"
	"dreamcore/internal/store/sqlite"
	"dreamcore/internal/tree"
)

// gate stands before everything with an effect: it dies with its host and
// fails when the test says so.
type gate struct {
	w *world
	h *host
}

func (g gate) pass(op string) error {
	if err := g.h.check(); err != nil {
		return err
	}
	if g.w.fail != nil {
		if err := g.w.fail(op); err != nil {
			return err
		}
		return g.h.check() // the hook may have killed it
	}
	return nil
}

func (g gate) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	role := spec.Metadata["role"]
	if err := g.pass("create " + role); err != nil {
		return nil, err
	}
	sb, err := g.w.boxes.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	g.w.journal.note("boot %s", role)
	return box{sb.(*sandboxfake.Box), g}, nil
}

func (g gate) Connect(ctx context.Context, id dreamcore.SandboxID) (sandbox.Sandbox, error) {
	if err := g.pass("connect"); err != nil {
		return nil, err
	}
	sb, err := g.w.boxes.Connect(ctx, id)
	if err != nil {
		return nil, err
	}
	return box{sb.(*sandboxfake.Box), g}, nil
}

func (g gate) List(ctx context.Context, filter map[string]string) ([]sandbox.Info, error) {
	if err := g.pass("list"); err != nil {
		return nil, err
	}
	return g.w.boxes.List(ctx, filter)
}

func (g gate) Kill(ctx context.Context, id dreamcore.SandboxID) error {
	if err := g.pass("kill"); err != nil {
		return err
	}
	for _, b := range g.w.boxes.Living() {
		if b.ID() == id {
			g.w.journal.note("kill %s", b.Role())
		}
	}
	return g.w.boxes.Kill(ctx, id)
}

type box struct {
	*sandboxfake.Box
	g gate
}

func (b box) WriteFiles(ctx context.Context, files []sandbox.File) error {
	if err := b.g.pass("write " + b.Role()); err != nil {
		return err
	}
	return b.Box.WriteFiles(ctx, files)
}

func (b box) ReadFile(ctx context.Context, path string, limit int64) ([]byte, error) {
	if err := b.g.pass("read " + b.Role()); err != nil {
		return nil, err
	}
	return b.Box.ReadFile(ctx, path, limit)
}

func (b box) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Process, error) {
	if err := b.g.pass("start " + filepath.Base(cmd.Args[0]) + " " + b.Role()); err != nil {
		return nil, err
	}
	return b.Box.Start(ctx, cmd)
}

type stores struct {
	*sqlite.Store
	g gate
}

func (s stores) Job(ctx context.Context, id dreamcore.JobID) (dreamcore.Job, error) {
	if err := s.g.pass("store job"); err != nil {
		return dreamcore.Job{}, err
	}
	return s.Store.Job(ctx, id)
}

func (s stores) UpdateJob(ctx context.Context, id dreamcore.JobID, attempt int, change func(*dreamcore.Job) error) (dreamcore.Job, error) {
	var op string
	j, err := s.Store.Job(ctx, id)
	if err == nil {
		err = change(&j)
		op = "store update " + string(j.State)
	}
	if err != nil {
		return j, err
	}
	if err := s.g.pass(op); err != nil {
		return dreamcore.Job{}, err
	}
	return s.Store.UpdateJob(ctx, id, attempt, change)
}

func (s stores) AppendEvent(ctx context.Context, e dreamcore.Event) (dreamcore.Event, error) {
	if err := s.g.pass("store event"); err != nil {
		return e, err
	}
	return s.Store.AppendEvent(ctx, e)
}

func (s stores) Messages(ctx context.Context, game dreamcore.GameID) ([]dreamcore.Message, error) {
	if err := s.g.pass("store messages"); err != nil {
		return nil, err
	}
	return s.Store.Messages(ctx, game)
}

type publishers struct {
	*publish.Publisher
	g gate
}

func (p publishers) Keep(ctx context.Context, t *tree.Tree) ([]dreamcore.VersionFile, error) {
	if err := p.g.pass("keep"); err != nil {
		return nil, err
	}
	return p.Publisher.Keep(ctx, t)
}

func (p publishers) Publish(ctx context.Context, j dreamcore.Job, files []dreamcore.VersionFile, ev dreamcore.Evidence) (dreamcore.Version, error) {
	if err := p.g.pass("publish"); err != nil {
		return dreamcore.Version{}, err
	}
	kept, err := p.Load(ctx, files)
	if err != nil {
		return dreamcore.Version{}, err
	}
	t, err := tree.New(kept, tree.DefaultLimits())
	if err != nil {
		return dreamcore.Version{}, err
	}
	v, err := p.Publisher.Publish(ctx, publish.Request{Job: j, Tree: t, Evidence: ev})
	if err != nil {
		return v, err
	}
	p.g.w.journal.note("publish")
	return v, p.g.pass("published")
}

type proxy struct{ g gate }

func (p proxy) Open(context.Context, dreamcore.Job, dreamcore.SandboxID) (string, error) {
	if err := p.g.pass("open"); err != nil {
		return "", err
	}
	p.g.w.journal.note("open")
	return "grant", nil
}

func (p proxy) Renew(context.Context, dreamcore.Job, dreamcore.SandboxID) (string, error) {
	if err := p.g.pass("renew"); err != nil {
		return "", err
	}
	p.g.w.journal.note("renew")
	return "the next grant", nil
}

func (p proxy) Close(_ context.Context, _ dreamcore.JobID, attempt int) (dreamcore.Usage, error) {
	if err := p.g.pass("close"); err != nil {
		return dreamcore.Usage{}, err
	}
	p.g.w.journal.note("close %d", attempt)
	return dreamcore.Usage{Requests: 7}, nil
}
