package keyproxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"dreamcore"
)

// strangers is the channel of remote requests that no grant of ours came with.
const strangers = "remote"

// remote is the channel of sandboxes that run elsewhere: TLS under one name, and
// the grant says which sandbox it is. The private key is in the proxy's folder.
type remote struct {
	name string
	tls  *tls.Config
	ca   string
	mu   sync.Mutex
	of   map[dreamcore.JobID]string // the address from which a job's grant came first
}

func newRemote(dir, name string) (*remote, error) {
	certs, ca, err := remoteTLS(filepath.Join(dir, "remote.pem"), name)
	if err != nil {
		return nil, err
	}
	return &remote{name: name, tls: certs, ca: string(ca), of: map[dreamcore.JobID]string{}}, nil
}

// RemoteCA is the certificate, in PEM, by which remote sandboxes know the proxy;
// "" when it was not told to serve any.
func (p *Proxy) RemoteCA() string {
	if p.remote == nil {
		return ""
	}
	return p.remote.ca
}

// ServeRemote serves one connection, by TLS, of a sandbox that runs elsewhere,
// until it ends or ctx does.
func (p *Proxy) ServeRemote(ctx context.Context, conn net.Conn) {
	if p.remote == nil {
		_ = conn.Close() // nobody was told of this way
		return
	}
	p.serveConn(ctx, tls.Server(conn, p.remote.tls), p.RemoteHandler())
}

// RemoteHandler serves sandboxes whose connection does not say which of them it
// is: the grant does. A grant that comes from two addresses has been carried
// away, and its job is closed.
func (p *Proxy) RemoteHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		channel := strangers
		token := r.Header.Get("X-Api-Key")
		if scheme, t, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
			token = strings.TrimSpace(t)
		}
		// A grant that is ours names its channel; everything else is checked below.
		if claims, err := p.verifier.Verify(token, Audience, p.now()); err == nil {
			channel = claims.Channel
			p.watchAddress(r, claims.Job, claims.Attempt, channel)
		}
		// The proxy knows itself by the name that sandboxes of this machine use.
		if name, _, _ := strings.Cut(r.Host, ":"); name == p.remote.name {
			r.Host = p.hosts[0]
		}
		p.Handler(channel).ServeHTTP(w, r)
	})
}

// watchAddress closes a job whose grant comes from a second address.
func (p *Proxy) watchAddress(r *http.Request, id dreamcore.JobID, attempt int, channel string) {
	if p.job(id) == nil {
		return // its grant opens nothing, from wherever
	}
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	first := p.remote.first(id, from)
	if first == from {
		return
	}
	p.alerts.Add(1)
	p.log.Error("ALERT: a grant came from two addresses", "job_id", id, "sandbox_id", channel, "decision", "close",
		"reason", "two_addresses", "first", clip(first, 80), "second", clip(from, 80))
	if _, err := p.CloseJob(r.Context(), id, attempt); err != nil {
		p.log.Error("a grant could not be closed", "job_id", id, "err", err)
	}
}

// first returns the address from which a job's grant came first.
func (r *remote) first(id dreamcore.JobID, from string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.of[id]; !ok {
		r.of[id] = from
	}
	return r.of[id]
}

// forget drops the address of a job that has ended.
func (r *remote) forget(id dreamcore.JobID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, id)
}
