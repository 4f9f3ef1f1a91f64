package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy"
)

// The descriptors that a proxy's process begins with, beside its log on 2.
const (
	controlFD = 3
	folderFD  = 4
)

// closeTimeout is how long the proxy waits for calls in flight when its host
// has gone.
const closeTimeout = 10 * time.Second

// BuiltIn makes a stand-in upstream by its name. The key is the one that the
// proxy will present to it.
type BuiltIn func(name string, key dreamcore.Secret, markers bool, log *slog.Logger) (http.Handler, error)

// server is the proxy's half.
type server struct {
	wire    *wire
	builtIn BuiltIn
	log     *slog.Logger
	level   *slog.LevelVar

	proxy   *keyproxy.Proxy
	closers []func() error
	ctx     context.Context // ends all connections
	busy    sync.WaitGroup
}

// serve answers the host until it is gone. The folder for the proxy's files is
// the working directory.
func serve(ctx context.Context, w *wire, builtIn BuiltIn, log *slog.Logger, level *slog.LevelVar) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{wire: w, builtIn: builtIn, log: log, level: level, ctx: ctx}
	stop := context.AfterFunc(ctx, func() { _ = w.close() }) // to end the read below
	defer stop()
	err := s.loop()
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		err = nil // the host has closed its end, or we were told to stop
	}
	if s.proxy != nil {
		// The jobs end first: their calls are settled and audited.
		cctx, done := context.WithTimeout(context.Background(), closeTimeout)
		err = errors.Join(err, s.proxy.Close(cctx))
		done()
	}
	cancel()
	s.busy.Wait()
	for _, c := range s.closers {
		err = errors.Join(err, c())
	}
	return err
}

func (s *server) loop() error {
	for {
		data, files, err := s.wire.read()
		if err != nil {
			return err
		}
		r, err := decodeRequest(data, len(files))
		if err != nil {
			closeAll(files)
			return fmt.Errorf("from the host: %w", err)
		}
		if (s.proxy == nil) != (r.Op == opStart) {
			closeAll(files)
			return fmt.Errorf("from the host: %s at the wrong time", r.Op)
		}
		switch r.Op {
		case opStart:
			ready, err := s.start(r.Start, files)
			if werr := s.answer(r.ID, reply{Ready: ready}, err); err != nil || werr != nil {
				return errors.Join(err, werr)
			}
		case opKeys: // in order with each other
			changed, err := s.rotate(r.Start, files)
			if err := s.answer(r.ID, reply{Changed: changed}, err); err != nil {
				return err
			}
		case opConn:
			s.busy.Go(func() { s.carry(r, files[0]) })
		default:
			s.busy.Go(func() {
				if err := s.do(r); err != nil {
					s.log.Error("the host cannot be answered", "op", r.Op, "err", err)
				}
			})
		}
	}
}

// do answers one request.
func (s *server) do(r request) error {
	switch r.Op {
	case opOpen:
		return s.answer(r.ID, reply{}, s.proxy.OpenJob(s.ctx, *r.Terms))
	case opClose:
		u, err := s.proxy.CloseJob(s.ctx, r.Job, r.Attempt)
		seal := s.proxy.Seal()
		return s.answer(r.ID, reply{Usage: &u, Seal: &seal}, err)
	case opUsage:
		u, err := s.proxy.Usage(r.Job)
		return s.answer(r.ID, reply{Usage: &u}, err)
	case opHealth:
		h := s.proxy.Health()
		return s.answer(r.ID, reply{Health: &h}, nil)
	}
	return fmt.Errorf("operation %q has no answer", r.Op)
}

// answer sends what was found, or the error in its place.
func (s *server) answer(id int64, r reply, err error) error {
	if err != nil {
		r = reply{Fault: faultOf(err)}
	}
	r.ID = id
	return s.wire.write(r)
}

// carry serves a connection and says when it has ended.
func (s *server) carry(r request, f *os.File) {
	conn, err := net.FileConn(f)
	_ = f.Close() // conn has a copy
	if err == nil {
		if _, unix := conn.(*net.UnixConn); unix == r.Remote {
			err = fmt.Errorf("a connection of %T", conn)
			_ = conn.Close() // it is not what was announced
		}
	}
	switch {
	case err != nil:
		s.log.Error("a connection cannot be served", "sandbox_id", r.Channel, "err", err)
	case r.Remote:
		s.proxy.ServeRemote(s.ctx, conn)
	default:
		s.proxy.ServeConn(s.ctx, r.Channel, conn)
	}
	if conn != nil {
		_ = conn.Close() // it may be closed already
	}
	if err := s.wire.write(reply{Done: r.ID}); err != nil && s.ctx.Err() == nil {
		s.log.Error("the host cannot be told of a connection's end", "err", err)
	}
}

// start builds the proxy.
func (s *server) start(set *Settings, files []*os.File) (*Ready, error) {
	defer closeAll(files)
	if set.Verbose {
		s.level.Set(slog.LevelDebug)
	}
	verifier, err := grant.ParseVerifier(set.Verifier)
	if err != nil {
		return nil, err
	}
	upstreams := map[dreamcore.Feature][]keyproxy.Upstream{}
	for f, list := range set.Sources {
		for _, src := range list {
			u, err := s.source(set, src, files)
			if err != nil {
				return nil, fmt.Errorf("the upstream of %s: %w", f, err)
			}
			upstreams[f] = append(upstreams[f], u)
		}
	}
	s.proxy, err = keyproxy.New(keyproxy.Config{
		Verifier: verifier, Upstreams: upstreams, Dir: ".", Log: s.log, RemoteName: set.RemoteName,
	})
	if err != nil {
		s.proxy = nil
		return nil, err
	}
	return &Ready{CA: s.proxy.RemoteCA(), Lost: s.proxy.Lost()}, nil
}

// rotate takes the upstreams' keys anew.
func (s *server) rotate(set *Settings, files []*os.File) (changed int, err error) {
	defer closeAll(files)
	for f, list := range set.Sources {
		for i, src := range list {
			if src.KeyFile == 0 || src.BuiltIn != "" {
				continue // it has none, or one that its other end was made with
			}
			key, kerr := readKey(files[src.KeyFile-1], set.opening(files))
			if kerr == nil {
				var did bool
				if did, kerr = s.proxy.SetKey(f, i, key); did {
					changed++
				}
			}
			err = errors.Join(err, kerr)
		}
	}
	return changed, err
}

// source reads an upstream's key, and starts it where it is built in.
func (s *server) source(set *Settings, src Source, files []*os.File) (u keyproxy.Upstream, err error) {
	u = src.Upstream
	if src.KeyFile > 0 {
		if u.Key, err = readKey(files[src.KeyFile-1], set.opening(files)); err != nil {
			return u, err
		}
	}
	if src.BuiltIn == "" {
		return u, nil
	}
	if u.Key.IsZero() {
		// A key like an operator's, so that what is promised of keys is true here too.
		u.Key = dreamcore.NewSecret("sk-builtin-" + dreamcore.NewToken(40))
	}
	h, err := s.builtIn(src.BuiltIn, u.Key, src.Markers, s.log)
	if err != nil {
		return u, fmt.Errorf("start the built-in %s: %w", src.BuiltIn, err)
	}
	dial, end := keyproxy.InProcess(h)
	u.Dial = dial
	s.closers = append(s.closers, end)
	return u, nil
}

// faultOf makes an error fit for the way to the host.
func faultOf(err error) *fault {
	f := &fault{Code: dreamcore.CodeOf(err), Op: "keyproxy", Msg: keyproxy.Clip(err.Error(), maxSaid)}
	var e *dreamcore.Error
	if errors.As(err, &e) {
		bare := *e
		bare.Op, bare.Hint = "", ""
		f.Op, f.Hint, f.Msg = keyproxy.Clip(e.Op, 80), keyproxy.Clip(e.Hint, maxSaid), keyproxy.Clip(bare.Error(), maxSaid)
	}
	return f
}

// error is what the host makes of a fault.
func (f *fault) error() error {
	return &dreamcore.Error{Code: f.Code, Op: keyproxy.Clip(f.Op, 80), Msg: keyproxy.Clip(f.Msg, maxSaid), Hint: keyproxy.Clip(f.Hint, maxSaid)}
}

func knownCode(c dreamcore.Code) bool {
	switch c {
	case dreamcore.Invalid, dreamcore.NotFound, dreamcore.Conflict, dreamcore.Refused, dreamcore.Unavailable, dreamcore.Lost, dreamcore.Missing, dreamcore.Internal:
		return true
	}
	return false
}
