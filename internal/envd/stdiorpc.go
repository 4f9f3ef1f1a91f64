package envd

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"dreamcore/internal/envd/spec/process"
)

func (s *processService) Update(_ context.Context, req *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	p, err := s.selected(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if size := req.Msg.GetPty().GetSize(); size != nil {
		if err := p.resize(size); err != nil {
			return nil, rpcError(err)
		}
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

func (s *processService) SendInput(ctx context.Context, req *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	p, err := s.selected(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if err := p.feed(ctx, req.Msg.GetInput()); err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

// StreamInput writes what a client sends for as long as it sends. The end of
// the stream does not close the process's input: others may send more.
func (s *processService) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	var p *running
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			if p != nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the stream has selected a process already"))
			}
			var err error
			if p, err = s.selected(e.Start.GetProcess(), false); err != nil {
				return nil, err
			}
		case *process.StreamInputRequest_Data:
			if p == nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the stream must select a process first"))
			}
			if err := p.feed(ctx, e.Data.GetInput()); err != nil {
				return nil, rpcError(err)
			}
		case *process.StreamInputRequest_Keepalive:
		default:
			return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the stream carries an event that is not known"))
		}
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

// feed writes to the process's standard input or terminal, whichever it has.
func (p *running) feed(ctx context.Context, in *process.ProcessInput) error {
	switch x := in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		if p.tty != nil {
			return errIsTerminal
		}
		return p.in.write(ctx, x.Stdin)
	case *process.ProcessInput_Pty:
		if p.tty == nil {
			return errNoTerminal
		}
		return p.in.write(ctx, x.Pty)
	}
	return fmt.Errorf("the request has no input: %w", unix.EINVAL)
}

func (s *processService) CloseStdin(_ context.Context, req *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	p, err := s.selected(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	if p.tty != nil {
		return nil, rpcError(errIsTerminal)
	}
	if err := p.in.close(); err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}
