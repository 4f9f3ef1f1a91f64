package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"dreamcore/internal/text"
)

// parts are what a long-running command has started: servers, an engine, locks.
// They end together, the last one first.
type parts struct {
	log     *slog.Logger
	closers []closer
	fatal   chan error
	once    *sync.Once
	err     error
}

type closer struct {
	name string
	f    func(context.Context) error
}

func newParts(log *slog.Logger) parts {
	return parts{log: log, fatal: make(chan error, 4), once: &sync.Once{}}
}

// Fatal delivers an error after which it cannot go on.
func (p *parts) Fatal() <-chan error { return p.fatal }

func (p *parts) onClose(name string, f func(context.Context) error) {
	p.closers = append(p.closers, closer{name, f})
}

// Close stops everything and leaves nothing behind: no sandbox, process, mount
// or socket. Closing twice is harmless.
func (p *parts) Close() error {
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		for i := len(p.closers) - 1; i >= 0; i-- {
			c := p.closers[i]
			if err := c.f(ctx); err != nil {
				p.log.Error("could not be closed", "part", c.name, "err", err)
				p.err = errors.Join(p.err, fmt.Errorf("close %s: %w", c.name, err))
			}
		}
	})
	return p.err
}

// wait serves until ctx ends or something fails, then closes everything.
func (p *parts) wait(ctx context.Context, t Terminal) error {
	var err error
	select {
	case <-ctx.Done():
		fmt.Fprintln(t.Err, text.T(t.Lang, "cli.stopping"))
	case err = <-p.fatal:
	}
	return errors.Join(err, p.Close())
}

// serve runs an HTTP server until Close. write bounds one answer; 0 is for
// streams, which bound themselves.
func (p *parts) serve(name string, l net.Listener, h http.Handler, write time.Duration) {
	p.serveTLS(name, l, h, write, nil)
}

// serveTLS is serve with certificates; nil means without.
func (p *parts) serveTLS(name string, l net.Listener, h http.Handler, write time.Duration, certs *tls.Config) {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, WriteTimeout: write,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), TLSConfig: certs,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run := srv.Serve
		if certs != nil {
			run = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
		}
		if err := run(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			p.fatal <- fmt.Errorf("%s: %w", name, err)
		}
	}()
	p.onClose(name, func(ctx context.Context) error {
		// Streams never end by themselves: give answers a moment, then cut.
		sctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if srv.Shutdown(sctx) != nil {
			srv.Close()
		}
		<-done
		return nil
	})
}
