package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// create asks for one sandbox and gets exactly one, however often the
// connection breaks: one that was created unheard is found by its attempt, and
// one too many is killed.
func (p *Provider) create(ctx context.Context, in createBody) (sandboxBody, error) {
	attempt := in.Metadata[AttemptKey]
	doubt := false
	for try := 0; ; try++ {
		var out sandboxBody
		err := p.either(ctx, request{method: http.MethodPost, path: "/sandboxes", in: in, out: &out, once: true, late: p.gate.hold})
		if err == nil && out.SandboxID == "" {
			err = dreamcore.Errorf(dreamcore.Unavailable, "sandbox.create", "the engine's answer names no sandbox")
		}
		if err == nil {
			if doubt {
				p.sweep(attempt, dreamcore.SandboxID(out.SandboxID), p.cfg.Retry.Settle)
			}
			return out, nil
		}
		var unsure *unsureError
		switch {
		case errors.As(err, &unsure):
			doubt = true
		case !doubt:
			return out, err
		}
		if ctx.Err() != nil || unsure == nil || try+1 >= p.cfg.Retry.Tries {
			p.log.Warn("a creation failed in doubt", "attempt", attempt, "decision", "give up", "reason", clip(err.Error()))
			p.sweep(attempt, "", 0)
			p.sweep(attempt, "", p.cfg.Retry.Settle)
			return out, err
		}
		d := p.cfg.Retry.pause(try)
		p.log.Warn("a creation broke off", "attempt", attempt, "decision", "look for it", "reason", clip(err.Error()), "try", try+1, "wait_ms", d.Milliseconds())
		if sleep(ctx, d) != nil {
			p.sweep(attempt, "", 0)
			return out, err
		}
		found, ferr := p.find(ctx, attempt)
		if ferr != nil {
			p.log.Warn("a creation broke off", "attempt", attempt, "decision", "give up", "reason", clip(ferr.Error()))
			p.sweep(attempt, "", p.cfg.Retry.Settle)
			return out, errors.Join(err, ferr)
		}
		if found != nil {
			p.log.Info("a creation broke off", "attempt", attempt, "decision", "take it", "sandbox_id", found.SandboxID)
			p.sweep(attempt, dreamcore.SandboxID(found.SandboxID), p.cfg.Retry.Settle)
			return *found, nil
		}
		p.log.Info("a creation broke off", "attempt", attempt, "decision", "create again", "reason", "not_found")
	}
}

// find looks for the sandbox of an attempt; nil when there is none.
func (p *Provider) find(ctx context.Context, attempt string) (*sandboxBody, error) {
	infos, err := p.List(ctx, map[string]string{AttemptKey: attempt})
	if err != nil || len(infos) == 0 {
		return nil, err
	}
	var out sandboxBody
	err = p.either(ctx, request{method: http.MethodPost, path: pathOf(infos[0].ID, "connect"), in: map[string]int64{"timeout": 1}, out: &out})
	if isStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err == nil && out.SandboxID != string(infos[0].ID) {
		err = errors.New("the engine's answer is about another sandbox")
	}
	if err != nil {
		return nil, fmt.Errorf("connect to what was created: %w", err)
	}
	return &out, nil
}

// sweep kills, after a while and in the background, the sandboxes of an attempt
// but the one that is kept. What it misses ends with its time to live.
func (p *Provider) sweep(attempt string, keep dreamcore.SandboxID, after time.Duration) {
	p.busy.Add(1)
	go func() {
		defer p.busy.Done()
		_ = sleep(p.closing, after) // when the client closes it is done at once
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		infos, err := p.List(ctx, map[string]string{AttemptKey: attempt})
		if err != nil {
			p.log.Warn("sandboxes in doubt could not be listed", "attempt", attempt, "decision", "leave them", "reason", clip(err.Error()))
			return
		}
		for _, i := range infos {
			if i.ID == keep || i.Metadata[AttemptKey] != attempt {
				continue
			}
			if err := p.Kill(ctx, i.ID); err != nil {
				p.log.Warn("a sandbox too many could not be killed", "sandbox_id", i.ID, "decision", "leave it", "reason", clip(err.Error()))
				continue
			}
			p.log.Info("a sandbox too many", "sandbox_id", i.ID, "attempt", attempt, "decision", "killed")
		}
	}()
}

// Reap kills the sandboxes, running or paused, that carry the Provider's
// metadata, unless spare says otherwise (nil: none), and says how many. A host
// that starts anew ends with it what its former life left behind.
func (p *Provider) Reap(ctx context.Context, spare func(sandbox.Info) bool) (int, error) {
	if len(p.cfg.Metadata) == 0 {
		return 0, dreamcore.Errorf(dreamcore.Internal, "sandbox.reap", "without metadata of its own a client would kill everybody's sandboxes")
	}
	infos, err := p.list(ctx, nil, "running,paused")
	if err != nil {
		return 0, fmt.Errorf("reap sandboxes: %w", err)
	}
	n := 0
	var errs []error
	for _, i := range infos {
		// The engine filtered already; what it is wrong about must not die.
		if !p.owns(i) || spare != nil && spare(i) {
			p.log.Info("found a sandbox", "sandbox_id", i.ID, "decision", "spare")
			continue
		}
		if err := p.Kill(ctx, i.ID); err != nil {
			errs = append(errs, fmt.Errorf("reap %s: %w", i.ID, err))
			continue
		}
		n++
		p.log.Info("found a sandbox of a former life", "sandbox_id", i.ID, "job_id", clip(i.Metadata["job"]), "decision", "killed")
	}
	return n, errors.Join(errs...)
}

// owns reports whether a sandbox carries all metadata of the Provider.
func (p *Provider) owns(i sandbox.Info) bool {
	for k, v := range p.cfg.Metadata {
		if i.Metadata[k] != v {
			return false
		}
	}
	return true
}

// lifeAllowed refuses a time to live that the engine's owner does not give.
func (p *Provider) lifeAllowed(d time.Duration) error {
	if most := p.cfg.Limits.Life; most > 0 && d > most {
		return fail(p.cfg.Lang, dreamcore.Refused, "sandbox.life", "life", "asked", d.Round(time.Second).String(), "most", most.String())
	}
	return nil
}
