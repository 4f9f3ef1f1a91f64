package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/image"
	"dreamcore/internal/job"
	"dreamcore/internal/keyproxy"
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
	// strangers is the channel of requests that no grant of ours came with.
	strangers = "remote"
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
	certs, ca, err := privateTLS(remoteProxyName)
	if err != nil {
		return fmt.Errorf("make a certificate for the key proxy: %w", err)
	}
	l, err := net.Listen("tcp", s.cfg.E2B.ProxyListen)
	if err != nil {
		return dreamcore.Errorf(dreamcore.Invalid, "app", "cannot listen on %s for the sandboxes", s.cfg.E2B.ProxyListen).Because(err).
			WithHint("choose another address with e2b.proxy_listen in the settings")
	}
	s.serveTLS("remote key proxy", l, s.Proxy.remote(s.log), 0, certs)
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
			Files:     []sandbox.File{{Path: remoteCAFile, Data: ca, Owner: sandbox.Root}},
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

// remote serves boxes whose connection does not say which of them it is: the
// grant does. A grant that comes from two addresses has been carried away, and
// its job's grant is closed.
func (p *Proxy) remote(log *slog.Logger) http.Handler {
	p.grantLife = remoteGrantLife
	p.seen = &addresses{of: map[dreamcore.JobID]string{}}
	verifier := p.minter.Verifier()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		channel := strangers
		token := r.Header.Get("X-Api-Key")
		if scheme, t, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
			token = strings.TrimSpace(t)
		}
		// A grant that is ours names its channel; the proxy checks everything else.
		if claims, err := verifier.Verify(token, keyproxy.Audience, time.Now()); err == nil {
			channel = claims.Channel
			from, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				from = r.RemoteAddr
			}
			if first := p.seen.first(claims.Job, from); first != from {
				log.Error("ALERT: a grant came from two addresses", "job_id", claims.Job, "sandbox_id", channel, "decision", "close", "reason", "two_addresses", "first", first, "second", from)
				if _, err := p.CloseJob(r.Context(), claims.Job, claims.Attempt); err != nil {
					log.Error("a grant could not be closed", "job_id", claims.Job, "err", err)
				}
			}
		}
		// The proxy knows itself by the name that boxes of this machine use.
		if name, _, _ := strings.Cut(r.Host, ":"); name == remoteProxyName {
			r.Host = strings.TrimPrefix(proxyURL, "http://")
		}
		p.Handler(channel).ServeHTTP(w, r)
	})
}

// addresses remembers from where each job's grant came first.
type addresses struct {
	mu sync.Mutex
	of map[dreamcore.JobID]string
}

func (a *addresses) first(id dreamcore.JobID, from string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.of[id]; !ok {
		a.of[id] = from
	}
	return a.of[id]
}

func (a *addresses) forget(id dreamcore.JobID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, id)
}
