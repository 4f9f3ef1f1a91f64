package e2b

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/sandbox"
)

// joined is a command that ran before anybody of this host knew of it.
type joined struct{ *command }

var _ sandbox.Joiner = (*box)(nil)

type attached struct {
	*connect.ServerStreamForClient[process.ConnectResponse]
}

func (s attached) event() *process.ProcessEvent { return s.Msg().GetEvent() }

// Join attaches to the process that carries tag; code NotFound when there is none.
func (s *box) Join(ctx context.Context, tag string) (sandbox.Joined, error) {
	req := connect.NewRequest(&process.ConnectRequest{Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}})
	req.Header().Set("Keepalive-Ping-Interval", strconv.Itoa(int(keepalive/time.Second)))
	// The stream outlives ctx, which only bounds the beginning.
	sctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(ctx.Err()) })
	fail := func(err error) (sandbox.Joined, error) {
		stop()
		cancel(nil)
		return nil, fmt.Errorf("join a command: %w", s.explain(ctx, err))
	}
	stream, err := s.processes.Connect(sctx, req)
	if err != nil {
		return fail(err)
	}
	if !stream.Receive() {
		err := stream.Err()
		if err == nil {
			err = errors.New("the stream ended before it began")
		}
		return fail(errors.Join(err, stream.Close()))
	}
	start := stream.Msg().GetEvent().GetStart()
	if start == nil {
		return fail(errors.Join(errors.New("the stream did not begin with the start"), stream.Close()))
	}
	stop()
	c := s.command(start.GetPid())
	c.begin(sctx, cancel, attached{stream}, 0)
	return joined{c}, nil
}

// Send writes to the command's standard input. It is not sent again: what may
// have arrived must not arrive twice.
func (j joined) Send(ctx context.Context, data []byte) error {
	_, err := j.s.processes.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{
		Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: uint32(j.pid)}},
		Input:   &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: data}},
	}))
	if err != nil {
		return fmt.Errorf("send input: %w", j.s.explain(ctx, err))
	}
	return nil
}
