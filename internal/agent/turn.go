package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// maxLineBytes bounds one line of an agent's output; its last event repeats the
// whole conversation, so lines are long. A longer one is skipped.
const maxLineBytes = 16 << 20

// hostPatience is how much longer than the box the host waits for a turn's end.
const hostPatience = 30 * time.Second

var errOverdue = errors.New("the turn is overdue")

// RunTurn runs one turn to its end and hands each event to emit. The error has
// code Lost when the sandbox died, else it says how the agent failed.
func RunTurn(ctx context.Context, sb sandbox.Sandbox, a Adapter, s Session, prompt string, log *slog.Logger, emit func(Event)) error {
	p, warm, err := begin(ctx, sb, a, s, a.Command(s, prompt), log)
	if err != nil {
		return fmt.Errorf("run %s: %w", a.Name(), err)
	}
	// The daemon in the box ends the turn at s.Timeout; the host keeps a clock of
	// its own, for a box that does not. What waited there has no such end.
	limit := s.Timeout + hostPatience
	if warm {
		limit = s.Timeout
	}
	tctx, cancel := context.WithTimeoutCause(ctx, limit, errOverdue)
	defer cancel()
	parser := a.NewParser()
	var lines lineBuffer
	var tail []byte // the end of standard error, for the log
	exit, err := sandbox.Follow(tctx, p, func(o sandbox.Output) error {
		if o.Stderr {
			tail = append(tail, o.Data...)
			if len(tail) > 2000 {
				tail = tail[len(tail)-2000:]
			}
			return nil
		}
		lines.write(o.Data, func(line []byte) {
			for _, e := range parser.Line(line) {
				emit(e)
			}
		})
		return nil
	})
	switch {
	case ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(context.Cause(tctx), errOverdue)):
		return dreamcore.Errorf(dreamcore.Unavailable, Op+a.Name(), "the agent did not end within %s and was stopped", s.Timeout)
	case err != nil:
		return fmt.Errorf("run %s: %w", a.Name(), err)
	}
	if exit.Signal != "" || exit.Code != 0 {
		return dreamcore.Errorf(dreamcore.Unavailable, Op+a.Name(), "the agent stopped (exit code %d, signal %q)", exit.Code, exit.Signal).
			Because(errors.New(clip(string(tail), 500)))
	}
	return parser.Err()
}

// lineBuffer cuts a stream into lines.
type lineBuffer struct {
	buf  []byte
	skip bool // inside a line that is too long
}

func (l *lineBuffer) write(p []byte, line func([]byte)) {
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			if !l.skip {
				l.buf = append(l.buf, p...)
			}
			if len(l.buf) > maxLineBytes {
				l.buf, l.skip = nil, true
			}
			return
		}
		if !l.skip {
			l.buf = append(l.buf, p[:i]...)
			if len(l.buf) <= maxLineBytes {
				line(l.buf)
			}
		}
		l.buf, l.skip = l.buf[:0], false
		p = p[i+1:]
	}
}
