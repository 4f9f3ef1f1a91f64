package keyproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"dreamcore"
	"dreamcore/internal/budget"
	"dreamcore/internal/grant"
)

// MaxBodyBytes bounds a request body: a long conversation with some pictures.
const MaxBodyBytes = 32 << 20

// Proxy is the key proxy. It is safe for concurrent use.
type Proxy struct {
	verifier  *grant.Verifier
	upstreams map[dreamcore.Feature][]*upstream
	ops       *table
	hosts     []string
	timeouts  Timeouts
	ledger    *budget.Ledger
	audit     Auditor
	ownAudit  io.Closer
	log       *slog.Logger
	now       func() time.Time
	remote    *remote // nil when there are no remote sandboxes
	lost      int

	ctx      context.Context // ends all calls
	cancel   context.CancelCauseFunc
	gates    gates
	creators creators
	alerts   atomic.Int64
	deaf     atomic.Bool // the audit failed last time
	opening  sync.Mutex
	mu       sync.Mutex
	jobs     map[dreamcore.JobID]*job
}

// New opens the ledger and the audit log in cfg.Dir and builds a proxy, in
// which no job is open.
func New(cfg Config) (p *Proxy, err error) {
	const op = "keyproxy.new"
	if cfg.Verifier == nil || cfg.Dir == "" {
		return nil, dreamcore.Errorf(dreamcore.Invalid, op, "a key proxy needs a verifier and a folder")
	}
	p = &Proxy{
		verifier: cfg.Verifier, upstreams: map[dreamcore.Feature][]*upstream{},
		ops: newTable(operations()), hosts: cfg.Hosts, timeouts: cfg.Timeouts,
		audit: cfg.Audit, log: cfg.Log, now: cfg.Now, jobs: map[dreamcore.JobID]*job{},
		gates: gates{of: map[string]*gate{}},
	}
	p.timeouts.defaults()
	if len(p.hosts) == 0 {
		p.hosts = []string{"127.0.0.1:4000", "localhost:4000"}
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.upstreams, err = newUpstreams(cfg); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the key proxy's folder: %w", err)
	}
	if cfg.RemoteName != "" {
		if p.remote, err = newRemote(cfg.Dir, cfg.RemoteName); err != nil {
			return nil, fmt.Errorf("make a certificate for the key proxy: %w", err)
		}
	}
	if p.audit == nil {
		log, err := OpenAudit(filepath.Join(cfg.Dir, "audit.jsonl"))
		if err != nil {
			return nil, err
		}
		p.audit, p.ownAudit = log, log
	}
	if p.ledger, p.lost, err = budget.Open(filepath.Join(cfg.Dir, "ledger.jsonl")); err != nil {
		if p.ownAudit != nil {
			_ = p.ownAudit.Close() // the first error is the one that matters
		}
		return nil, err
	}
	if p.lost > 0 {
		p.log.Warn("calls were cut by a crash and are charged whole", "calls", p.lost)
		p.record(AuditRecord{Time: p.now().UTC(), Decision: "allow", Detail: "calls that a crash cut; they are charged whole", Requests: int64(p.lost)})
	}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p, nil
}

// Close ends every job, waits for calls in flight (as long as ctx lets it) and
// closes the files.
func (p *Proxy) Close(ctx context.Context) error {
	p.opening.Lock()
	defer p.opening.Unlock()
	p.mu.Lock()
	jobs := make([]*job, 0, len(p.jobs))
	for _, j := range p.jobs {
		jobs = append(jobs, j)
	}
	p.mu.Unlock()
	var errs []error
	for _, j := range jobs {
		j.stop()
	}
	for _, j := range jobs {
		select {
		case <-j.idle:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("close key proxy: %w", context.Cause(ctx)))
		}
	}
	p.cancel(errClosed)
	for _, ups := range p.upstreams {
		for _, u := range ups {
			u.client.CloseIdleConnections()
		}
	}
	p.closeGates()
	errs = append(errs, p.ledger.Close())
	if p.ownAudit != nil {
		errs = append(errs, p.ownAudit.Close())
	}
	return errors.Join(errs...)
}

// Lost is how many calls a former life of the ledger was cut in; they are
// charged whole.
func (p *Proxy) Lost() int { return p.lost }

// Alerts counts what should never happen in honest use: a token on a foreign
// channel, impossible usage numbers.
func (p *Proxy) Alerts() int64 { return p.alerts.Load() }

// ServeConn serves one connection that came in on a channel's listener, until
// it ends or ctx does.
func (p *Proxy) ServeConn(ctx context.Context, channel string, conn net.Conn) {
	p.serveConn(ctx, conn, p.Handler(channel))
}

func (p *Proxy) serveConn(ctx context.Context, conn net.Conn, h http.Handler) {
	l := &single{conn: conn, done: make(chan struct{})}
	srv := p.server(h)
	srv.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed || s == http.StateHijacked {
			l.end()
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // the connection is going anyway
	defer stop()
	_ = srv.Serve(l) // always net.ErrClosed or http.ErrServerClosed, as single is done
}

// Serve serves all connections of one channel's listener, until ctx ends.
func (p *Proxy) Serve(ctx context.Context, channel string, l net.Listener) error {
	srv := p.server(p.Handler(channel))
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // the connections are going anyway
	defer stop()
	if err := srv.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("serve channel %s: %w", channel, err)
	}
	return nil
}

func (p *Proxy) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: p.timeouts.ReadHeader,
		IdleTimeout:       p.timeouts.Idle,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		// A call outlives nothing: the job's context and the client's both end it.
		DisableGeneralOptionsHandler: true,
	}
}

// single is a listener of one connection.
type single struct {
	conn  net.Conn
	once  sync.Once
	given bool
	done  chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return l.conn, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *single) end()           { l.once.Do(func() { close(l.done) }) }
func (l *single) Close() error   { l.end(); return nil }
func (l *single) Addr() net.Addr { return l.conn.LocalAddr() }

// InProcess returns the Dial of an upstream that is a handler of this process:
// the stand-in model and the picture maker. Close ends its server.
func InProcess(h http.Handler) (dial func(ctx context.Context) (net.Conn, error), closeServer func() error) {
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }() // always net.ErrClosed or http.ErrServerClosed
	dial = func(ctx context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case l.conns <- far:
			return near, nil
		case <-l.done:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return dial, srv.Close
}

// pipes is a listener of in-memory connections.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipes) Addr() net.Addr { return inProcess{} }

type inProcess struct{}

func (inProcess) Network() string { return "in-process" }
func (inProcess) String() string  { return "in-process" }
