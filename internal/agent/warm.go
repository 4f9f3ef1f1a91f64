package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// Warmer is an Adapter whose CLI can be started ahead, in a box that is saved
// while it waits, so that each box made of that begins with it in memory. The
// first turn of a job then takes it; every other turn starts the CLI anew.
type Warmer interface {
	Adapter
	// Warmup starts the CLI as far as it can be without a job.
	Warmup() Warmup
}

// Warmup is a command that loads a CLI and waits on its standard input for
// orders, which make it run exactly the turn that Command would have run.
type Warmup struct {
	Args  []string
	Env   map[string]string
	Tag   string // by which it is found
	Ready string // the line that it prints when it waits
}

// orders are what a CLI that waits is told, as one line of JSON. It answers with
// {"accepted": Token} and does nothing before it is told to go.
type orders struct {
	Token string            `json:"token"`
	Args  []string          `json:"args"` // of Command, its name included
	Env   map[string]string `json:"env"`
	Dir   string            `json:"dir"`
}

const (
	goWord = "go\n"
	// wakePatience is for a box that has just been restored on a busy machine.
	wakePatience = 15 * time.Second
	killPatience = 10 * time.Second
	// maxChatterBytes is what may be printed before the orders are accepted.
	maxChatterBytes = 64 << 10
)

// coldError says why the CLI that waits was not used. Nothing of it runs.
type coldError struct {
	why    error
	normal bool // there was none to use, which is nobody's fault
}

func (e *coldError) Error() string { return e.why.Error() }
func (e *coldError) Unwrap() error { return e.why }

// begin starts the command of a turn: in the CLI that waits in the box, where
// there is one, else anew. Either way one line says which and why.
func begin(ctx context.Context, sb sandbox.Sandbox, a Adapter, s Session, cmd sandbox.Command, log *slog.Logger) (p sandbox.Process, warm bool, err error) {
	if s.Warm {
		p, err := wake(ctx, sb, a, cmd)
		var cold *coldError
		switch {
		case err == nil:
			log.Info("the agent was started ahead", "agent", a.Name(), "decision", "warm", "pid", p.PID())
			return p, true, nil
		case !errors.As(err, &cold):
			return nil, true, fmt.Errorf("wake %s: %w", a.Name(), err)
		}
		level := slog.LevelWarn
		if cold.normal {
			level = slog.LevelInfo
		}
		log.Log(ctx, level, "the agent is started anew", "agent", a.Name(), "decision", "cold", "reason", clip(cold.Error(), 500))
	}
	p, err = sb.Start(ctx, cmd)
	if err != nil {
		return nil, false, fmt.Errorf("start %q: %w", cmd.Args[0], err)
	}
	return p, false, nil
}

// wake gives the CLI that waits its orders. An error is a *coldError when the
// command can be started anew: nobody runs it then.
func wake(ctx context.Context, sb sandbox.Sandbox, a Adapter, cmd sandbox.Command) (sandbox.Process, error) {
	w, ok := a.(Warmer)
	if !ok {
		return nil, &coldError{why: errors.New("this agent cannot be started ahead"), normal: true}
	}
	j, ok := sb.(sandbox.Joiner)
	if !ok {
		return nil, &coldError{why: errors.New("this engine cannot join what runs"), normal: true}
	}
	if cmd.User != sandbox.User || cmd.Stdin {
		return nil, &coldError{why: errors.New("the command is for another user, or wants an input")}
	}
	o := orders{Token: dreamcore.NewToken(20), Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir}
	line, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode the orders: %w", err)
	}
	wctx, cancel := context.WithTimeout(ctx, wakePatience)
	defer cancel()
	p, err := j.Join(wctx, w.Warmup().Tag)
	switch {
	case err == nil:
	case dreamcore.CodeOf(err) == dreamcore.NotFound:
		return nil, &coldError{why: errors.New("it does not wait in this sandbox"), normal: true}
	default:
		return nil, given(ctx, err)
	}
	if err = p.Send(wctx, append(line, '\n')); err == nil {
		err = accepted(wctx, p, o.Token)
	}
	if err != nil {
		return nil, stopped(ctx, p, err)
	}
	if err = p.Send(wctx, []byte(goWord)); err == nil {
		return p, nil
	}
	err = fmt.Errorf("it may not have heard that it is to go: %w", err)
	if code := dreamcore.CodeOf(err); code == dreamcore.NotFound || code == dreamcore.Conflict {
		return nil, stopped(ctx, p, err) // it was gone, or deaf
	}
	// It may be at work already, and a turn runs once or fails.
	var cold *coldError
	if kerr := stopped(ctx, p, err); !errors.As(kerr, &cold) {
		return nil, kerr
	}
	return nil, err
}

// given is err, as a *coldError unless the box is lost or nobody waits any more.
func given(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if dreamcore.CodeOf(err) == dreamcore.Lost {
		return err
	}
	return &coldError{why: err}
}

// stopped makes sure that nothing of p runs any more after the trouble why, and
// returns that.
func stopped(ctx context.Context, p sandbox.Process, why error) error {
	kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	if err := p.Signal(kctx, "SIGKILL"); err != nil && dreamcore.CodeOf(err) != dreamcore.NotFound {
		return errors.Join(why, err)
	}
	for {
		select {
		case _, ok := <-p.Events():
			if !ok {
				return given(ctx, why)
			}
		case <-kctx.Done():
			return fmt.Errorf("it does not end: %w", why)
		}
	}
}

// accepted waits until p has accepted its orders.
func accepted(ctx context.Context, p sandbox.Process, token string) error {
	var said, cried []byte
	read := 0
	for {
		var o sandbox.Output
		var ok bool
		select {
		case <-ctx.Done():
			return errors.New("it does not answer")
		case o, ok = <-p.Events():
		}
		if read += len(o.Data); !ok || read > maxChatterBytes {
			return fmt.Errorf("it has ended, or talks of something else: %q", clip(string(said)+string(cried), 300))
		}
		if o.Stderr {
			cried = append(cried, o.Data...)
			continue
		}
		said = append(said, o.Data...)
		for {
			line, rest, whole := bytes.Cut(said, []byte("\n"))
			if !whole {
				break
			}
			said = rest
			var answer struct {
				Accepted string `json:"accepted"`
			}
			// Whatever else it says was said before, when it was started.
			if json.Unmarshal(line, &answer) != nil || answer.Accepted != token {
				continue
			}
			if len(rest) > 0 {
				return errors.New("it did not wait for the word to go")
			}
			return nil
		}
	}
}
