package envd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
)

// processService is the process half of the protocol.
type processService struct {
	processconnect.UnimplementedProcessHandler
	*Server
}

const (
	keepaliveHeader  = "Keepalive-Ping-Interval" // seconds
	defaultKeepalive = 90 * time.Second
)

func (s *processService) List(context.Context, *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	res := &process.ListResponse{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.SortedFunc(maps.Values(s.procs), func(a, b *running) int { return cmp.Compare(a.number, b.number) }) {
		if p.ended() {
			continue
		}
		info := &process.ProcessInfo{Config: p.config, Pid: uint32(p.pid)}
		if p.tag != "" {
			info.Tag = &p.tag
		}
		res.Processes = append(res.Processes, info)
	}
	return connect.NewResponse(res), nil
}

func (p *running) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over
}

func (s *processService) Start(ctx context.Context, req *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	if req.Msg.Process == nil {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("there is no process in the request"))
	}
	u, err := s.userOf(req.Header())
	if err != nil {
		return rpcError(err)
	}
	o := ordered{user: u, config: req.Msg.Process, tag: req.Msg.GetTag(), stdin: req.Msg.Stdin == nil || *req.Msg.Stdin, pty: req.Msg.Pty}
	// The deadline of the request is the life of the process: it holds also
	// when the client goes away.
	if at, ok := ctx.Deadline(); ok {
		o.life = max(time.Until(at), time.Millisecond)
	}
	p, err := s.start(o)
	if err != nil {
		return rpcError(err)
	}
	// The deadline kills the process; its end is what ends this stream then, so
	// that the client still gets the last output.
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	defer stop()
	return s.stream(live, p, req.Header(), func(e *process.ProcessEvent) error {
		return stream.Send(&process.StartResponse{Event: e})
	})
}

// Connect attaches to a process. The deadline of this request ends the stream
// only.
func (s *processService) Connect(ctx context.Context, req *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	p, err := s.selected(req.Msg.GetProcess(), true)
	if err != nil {
		return err
	}
	return s.stream(ctx, p, req.Header(), func(e *process.ProcessEvent) error {
		return stream.Send(&process.ConnectResponse{Event: e})
	})
}

// stream sends a process's events until it ended, ctx ended or the client went
// away.
func (s *processService) stream(ctx context.Context, p *running, h http.Header, send func(*process.ProcessEvent) error) error {
	r := p.out.attach()
	defer r.detach()
	ping := keepalive(h)
	if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: uint32(p.pid)}}}); err != nil {
		return err
	}
	for {
		out, what := r.peek(ctx, ping)
		switch what {
		case more:
			if err := send(dataEvent(out)); err != nil {
				return err
			}
			r.take()
		case idle:
			if err := send(&process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}); err != nil {
				return err
			}
		case tooSlow:
			return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the client took no output for %s", readerStall))
		case stopped:
			return rpcError(ctx.Err())
		case over:
			p.mu.Lock()
			end, timedOut := p.end, p.timedOut
			p.mu.Unlock()
			s.collected(p)
			if timedOut {
				return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the time limit of the command was reached; it was killed"))
			}
			return send(&process.ProcessEvent{Event: &process.ProcessEvent_End{End: end}})
		}
	}
}

func dataEvent(p piece) *process.ProcessEvent {
	d := &process.ProcessEvent_DataEvent{}
	switch p.from {
	case stdout:
		d.Output = &process.ProcessEvent_DataEvent_Stdout{Stdout: p.data}
	case stderr:
		d.Output = &process.ProcessEvent_DataEvent_Stderr{Stderr: p.data}
	case terminal:
		d.Output = &process.ProcessEvent_DataEvent_Pty{Pty: p.data}
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}}
}

// keepalive reads the interval that a client wants; nonsense means the default.
func keepalive(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get(keepaliveHeader))
	if err != nil || n <= 0 || n > 24*3600 {
		return defaultKeepalive
	}
	return time.Duration(n) * time.Second
}

// selected finds a process by number or by tag. Several may carry one tag: the
// newest that runs is meant. An ended one is found only when ended is true.
func (s *processService) selected(sel *process.ProcessSelector, ended bool) (*running, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *running
	switch x := sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		found = s.procs[int(x.Pid)]
	case *process.ProcessSelector_Tag:
		for _, p := range s.procs {
			if p.tag == x.Tag && x.Tag != "" && (ended || !p.ended()) && (found == nil || p.number > found.number) {
				found = p
			}
		}
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the request selects no process"))
	}
	if found == nil || (!ended && found.ended()) {
		return nil, connect.NewError(connect.CodeNotFound, errors.New("there is no such process"))
	}
	return found, nil
}

func (s *processService) SendSignal(_ context.Context, req *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	p, err := s.selected(req.Msg.GetProcess(), false)
	if err != nil {
		return nil, err
	}
	var sig syscall.Signal
	switch req.Msg.GetSignal() {
	case process.Signal_SIGNAL_SIGTERM:
		sig = syscall.SIGTERM
	case process.Signal_SIGNAL_SIGKILL:
		sig = syscall.SIGKILL
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("only SIGTERM and SIGKILL can be sent"))
	}
	if err := p.signal(sig, ""); err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// rpcError gives an error the code that clients decide by.
func rpcError(err error) error {
	var ce *connect.Error
	if errors.As(err, &ce) {
		return err
	}
	code := connect.CodeInternal
	switch {
	case errors.Is(err, errNoUser):
		code = connect.CodeUnauthenticated
	case errors.Is(err, errLost):
		code = connect.CodeDataLoss
	case errors.Is(err, errNoDir):
		code = connect.CodeInvalidArgument
	case errors.Is(err, errNoCommand), errors.Is(err, os.ErrProcessDone), errors.Is(err, os.ErrNotExist):
		code = connect.CodeNotFound
	case errors.Is(err, os.ErrExist), errors.Is(err, unix.ENOTEMPTY):
		code = connect.CodeAlreadyExists
	case errors.Is(err, os.ErrPermission):
		code = connect.CodePermissionDenied
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE),
		errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EAGAIN), errors.Is(err, errTooMany):
		code = connect.CodeResourceExhausted
	case errors.Is(err, unix.EPIPE), errors.Is(err, os.ErrClosed):
		code = connect.CodeFailedPrecondition
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.ELOOP), errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENOEXEC), errors.Is(err, unix.EXDEV):
		code = connect.CodeInvalidArgument
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		code = connect.CodeDeadlineExceeded
	}
	return connect.NewError(code, err)
}
