package e2b

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/envd/spec/filesystem"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/sandbox"
)

// Remote is a living sandbox in the hands of a person at a terminal: what the
// five operations leave out because no job needs it.
type Remote struct{ *box }

// Open finds a living sandbox; code Lost when there is none of that id.
func (p *Provider) Open(ctx context.Context, id dreamcore.SandboxID) (*Remote, error) {
	sb, err := p.Connect(ctx, id)
	if err != nil {
		return nil, err
	}
	return &Remote{sb.(*box)}, nil
}

// Size is that of a terminal, in characters.
type Size struct{ Columns, Rows int }

func (z Size) pty() *process.PTY {
	return &process.PTY{Size: &process.PTY_Size{Cols: uint32(max(z.Columns, 1)), Rows: uint32(max(z.Rows, 1))}}
}

// Session is a command with a hand on its input.
type Session struct {
	*command
	terminal bool
}

// Exec starts a command; it outlives ctx. With a terminal of that size its
// output is one stream; nil means pipes.
func (r *Remote) Exec(ctx context.Context, cmd sandbox.Command, terminal *Size) (*Session, error) {
	var pty *process.PTY
	if terminal != nil {
		pty = terminal.pty()
	}
	c, err := r.start(ctx, cmd, pty)
	if err != nil {
		return nil, err
	}
	return &Session{command: c, terminal: terminal != nil}, nil
}

func (s *Session) selector() *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: uint32(s.pid)}}
}

// Send writes to the command's input and returns once the command's side has
// taken it. A command that has ended is code NotFound, one that closed its input
// code Conflict.
func (s *Session) Send(ctx context.Context, data []byte) error {
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: data}}
	if s.terminal {
		in.Input = &process.ProcessInput_Pty{Pty: data}
	}
	_, err := s.s.processes.SendInput(ctx, connect.NewRequest(&process.SendInputRequest{Process: s.selector(), Input: in}))
	if err != nil {
		return fmt.Errorf("send input: %w", s.s.explain(ctx, err))
	}
	return nil
}

// CloseInput lets the command read end of file; a terminal has none.
func (s *Session) CloseInput(ctx context.Context) error {
	_, err := s.s.processes.CloseStdin(ctx, connect.NewRequest(&process.CloseStdinRequest{Process: s.selector()}))
	if err != nil {
		return fmt.Errorf("close input: %w", s.s.explain(ctx, err))
	}
	return nil
}

// Resize tells the command's terminal its new size.
func (s *Session) Resize(ctx context.Context, to Size) error {
	_, err := s.s.processes.Update(ctx, connect.NewRequest(&process.UpdateRequest{Process: s.selector(), Pty: to.pty()}))
	if err != nil {
		return fmt.Errorf("resize terminal: %w", s.s.explain(ctx, err))
	}
	return nil
}

// CannotRun reports whether a command was not started because its file may not
// be executed, rather than because there is no such file.
func CannotRun(err error) bool {
	var ce *connect.Error
	return errors.As(err, &ce) && ce.Code() == connect.CodePermissionDenied
}

// IsDir reports whether path is a folder, for the eyes of user; a path that does
// not exist is none.
func (r *Remote) IsDir(ctx context.Context, user, path string) (bool, error) {
	req := connect.NewRequest(&filesystem.StatRequest{Path: path})
	actAs(req.Header(), user)
	res, err := r.files.Stat(ctx, req)
	if err != nil {
		if err = r.explain(ctx, err); dreamcore.CodeOf(err) == dreamcore.NotFound {
			return false, nil
		}
		return false, fmt.Errorf("look at %q: %w", clip(path), err)
	}
	return res.Msg.GetEntry().GetType() == filesystem.FileType_FILE_TYPE_DIRECTORY, nil
}

// MakeDir makes a folder with those above it; one that exists is left alone.
func (r *Remote) MakeDir(ctx context.Context, user, path string) error {
	req := connect.NewRequest(&filesystem.MakeDirRequest{Path: path})
	actAs(req.Header(), user)
	_, err := r.files.MakeDir(ctx, req)
	if err != nil {
		if err = r.explain(ctx, err); dreamcore.CodeOf(err) != dreamcore.Conflict {
			return fmt.Errorf("make folder %q: %w", clip(path), err)
		}
	}
	return nil
}

// Detail is what there is to say of a sandbox. Image and Metadata are the words
// of whoever made it: untrusted.
type Detail struct {
	sandbox.Info
	State       string // "running" or "paused"
	CPUs        int
	MemoryBytes int64 // what it may use
	DiskBytes   int64
	// UsedBytes is the memory that it takes now; 0 when nobody can tell.
	UsedBytes int64
}

// usageAtOnce is how many sandboxes are asked for their use at one time.
const usageAtOnce = 8

// Details lists the sandboxes, those that are paused too, with their use.
func (p *Provider) Details(ctx context.Context) ([]Detail, error) {
	bodies, err := p.listed(ctx, nil, "running,paused")
	if err != nil {
		return nil, err
	}
	all := make([]Detail, len(bodies))
	slots := make(chan struct{}, usageAtOnce)
	for i, b := range bodies {
		all[i] = Detail{Info: b.info(), State: b.State, CPUs: b.CPUCount, MemoryBytes: b.MemoryMB << 20, DiskBytes: b.DiskSizeMB << 20}
		if b.State != "running" {
			continue
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			// One that has ended meanwhile has no use, which is what 0 says.
			all[i].UsedBytes = p.usage(ctx, all[i].ID)
		}()
	}
	for range usageAtOnce {
		slots <- struct{}{} // all have come back
	}
	return all, nil
}

func (p *Provider) usage(ctx context.Context, id dreamcore.SandboxID) int64 {
	var samples []struct {
		MemUsed int64 `json:"memUsed"`
	}
	if _, err := p.call(ctx, request{method: http.MethodGet, path: pathOf(id, "metrics"), out: &samples}); err != nil || len(samples) == 0 {
		return 0
	}
	return samples[len(samples)-1].MemUsed
}

// End kills a sandbox; unlike Kill it says by code Lost that there is none.
func (p *Provider) End(ctx context.Context, id dreamcore.SandboxID) error {
	_, err := p.call(ctx, request{method: http.MethodDelete, path: pathOf(id, "")})
	if err != nil {
		return fmt.Errorf("kill sandbox: %w", p.lostWhenMissing(err, id))
	}
	p.gate.leave(id)
	return nil
}

// LogLine is one line of what a sandbox's machinery said. Untrusted.
type LogLine struct {
	Time    time.Time `json:"timestamp"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
}

// Logs returns at most limit lines from the given time on, oldest first; with
// the zero time the newest ones.
func (p *Provider) Logs(ctx context.Context, id dreamcore.SandboxID, from time.Time, limit int) ([]LogLine, error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}, "direction": {"forward"}}
	if from.IsZero() {
		q.Set("direction", "backward")
	} else {
		q.Set("cursor", strconv.FormatInt(from.UnixMilli(), 10))
	}
	var out struct {
		Logs []LogLine `json:"logs"`
	}
	if _, err := p.call(ctx, request{method: http.MethodGet, path: "/v2" + pathOf(id, "logs") + "?" + q.Encode(), out: &out}); err != nil {
		return nil, fmt.Errorf("read the log: %w", p.lostWhenMissing(err, id))
	}
	if from.IsZero() { // newest first
		slices.Reverse(out.Logs)
	}
	return out.Logs, nil
}
