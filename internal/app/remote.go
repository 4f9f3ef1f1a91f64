package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/image"
	"dreamcore/internal/job"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
)

const (
	// remoteProxyName is what boxes of a remote engine call the key proxy. It is
	// in their hosts file and in our certificate, and nowhere else.
	remoteProxyName = "proxy.dreamcore.internal"
	remoteCAFile    = "/etc/dreamcore/proxy-ca.pem"
	// remoteGrantLife is shorter than on this machine, where a socket names the
	// box; it outlives the job's interval of renewal.
	remoteGrantLife = 8 * time.Minute
	// maxRemote bounds the connections of all remote boxes at once.
	maxRemote = 512
)

// openRemote opens the client of an engine that somebody else runs, and the key
// proxy's listener for it. What a former life of this installation left there
// is killed first: its jobs start afresh, as after a restart of our own engine.
func (s *Service) openRemote(ctx context.Context) error {
	key, err := s.cfg.RemoteKey()
	if err != nil {
		return err
	}
	name, err := s.installation()
	if err != nil {
		return err
	}
	own, err := image.OwnRecipe()
	if err != nil {
		return err
	}
	template := s.cfg.E2B.Template
	s.image = func() (job.Image, error) {
		return job.Image{Digest: "e2b:" + template + "@" + own.Inputs, AgentVersion: own.AgentVersion}, nil
	}
	l, err := net.Listen("tcp", s.cfg.E2B.ProxyListen)
	if err != nil {
		return dreamcore.Errorf(dreamcore.Invalid, "app", "cannot listen on %s for the sandboxes", s.cfg.E2B.ProxyListen).Because(err).
			WithHint("choose another address with e2b.proxy_listen in the settings")
	}
	s.acceptRemote(l)
	address := s.cfg.E2B.Proxy()
	s.proxyURL = "https://" + net.JoinHostPort(remoteProxyName, strconv.Itoa(int(address.Port())))

	transport := s.transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64
		s.onClose("engine client", func(context.Context) error { t.CloseIdleConnections(); return nil })
		transport = t
	}
	limits := e2b.FreePlan
	if s.cfg.E2B.Plan == "paid" {
		limits = e2b.PaidPlan
	}
	p := e2b.New(e2b.Config{
		APIURL: s.cfg.E2B.APIURL, Domain: s.cfg.E2B.Domain, APIKey: key, Transport: transport, Template: template,
		Metadata: map[string]string{"installation": name}, Proxy: address.Addr().String() + "/32", Limits: limits,
		Env: map[string]string{"NODE_EXTRA_CA_CERTS": remoteCAFile, "SSL_CERT_FILE": remoteCAFile},
		Guard: &e2b.Guard{
			ProxyName: remoteProxyName,
			Files:     []sandbox.File{{Path: remoteCAFile, Data: []byte(s.Proxy.CA()), Owner: sandbox.Root}},
			Holds:     []sandbox.File{{Path: own.File, Data: own.Data}},
		},
		Log: s.log, Lang: s.cfg.Lang,
	})
	s.onClose("remote engine", func(ctx context.Context) error {
		_, err := p.Reap(ctx, nil)
		p.Close()
		return err
	})
	n, err := p.Reap(ctx, nil)
	if err != nil {
		return fmt.Errorf("reap what a former life left at the engine: %w", err)
	}
	s.log.Info("remote engine", "template", template, "plan", s.cfg.E2B.Plan, "reaped", n, "proxy", s.cfg.E2B.ProxyAddress)
	s.Sandboxes = p
	return nil
}

// acceptRemote hands the key proxy what comes in on its listener. The host
// reads none of it: TLS begins and ends in the proxy's process.
func (s *Service) acceptRemote(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	slots := make(chan struct{}, maxRemote)
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			conn, err := l.Accept()
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err != nil:
				s.log.Error("a connection cannot be accepted", "part", "remote key proxy", "err", err)
				select {
				case <-time.After(time.Second): // out of descriptors, mostly
				case <-ctx.Done():
				}
				continue
			}
			select {
			case slots <- struct{}{}:
			default:
				s.log.Warn("too many connections", "part", "remote key proxy", "decision", "refused", "reason", "too_many")
				conn.Close()
				continue
			}
			busy.Go(func() {
				defer func() { <-slots }()
				s.Proxy.ServeRemote(ctx, conn)
			})
		}
	})
	s.onClose("remote key proxy", func(context.Context) error {
		cancel()
		err := ignoreClosed(l.Close())
		busy.Wait()
		return err
	})
}
