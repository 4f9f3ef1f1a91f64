// Package e2b is the client of every sandbox engine: E2B's cloud, a self-hosted
// E2B, and our embedded engine speak one protocol, and nothing above this
// package knows which of them answers.
package e2b

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/envd"
	"dreamcore/internal/envd/spec/filesystem/filesystemconnect"
	"dreamcore/internal/envd/spec/process/processconnect"
	"dreamcore/internal/sandbox"
)

// LocalProxy is the one address that a box of the embedded engine may reach:
// the relay on its own loopback.
const LocalProxy = "127.0.0.1/32"

const (
	maxAnswerBytes = 16 << 20
	// AttemptKey is the metadata by which a sandbox is found again whose creation
	// was never answered.
	AttemptKey = "dreamcore_attempt"
	// ImageKey is the metadata that keeps the image's digest beside the template.
	ImageKey = "dreamcore_image"
	// DefaultDomain is that of E2B's own cloud.
	DefaultDomain = "e2b.app"
	allNetworks   = "0.0.0.0/0"
)

// Config says which engine to use and how.
type Config struct {
	// APIURL is the control plane: "https://api.e2b.app", or any name for an
	// engine that Transport dials by itself. "" means api.DOMAIN over TLS.
	APIURL string
	// SandboxURL is where all boxes are reached, told apart by headers; "" means
	// one host name for each box, as E2B's cloud has it.
	SandboxURL string
	// Domain is where boxes have their host names when the engine's answer does
	// not say; "" means DefaultDomain.
	Domain string
	APIKey dreamcore.Secret
	// Transport carries everything; nil means http.DefaultTransport. It must not
	// limit how long an answer takes: commands stream for as long as they run.
	Transport http.RoundTripper
	// Metadata is put on every sandbox, below the spec's own, and every List is
	// restricted to it: what tells this installation's from others'.
	Metadata map[string]string
	// Template is created whatever image a spec names, which then stands in the
	// metadata; "" means that the engine knows images by their digests.
	Template string
	// Proxy is the only network that a sandbox with egress may reach, as one
	// "ADDRESS/32"; never a name (see design: one name opens DNS). "" means
	// LocalProxy.
	Proxy string
	// Env is given to every command of a sandbox with egress, below the spec's.
	Env map[string]string
	// Guard sets, reads back and probes the network of every fresh sandbox; nil
	// is only for an engine whose sandboxes have no network device.
	Guard *Guard
	// Limits are what the engine's owner allows; zero: none.
	Limits Limits
	Retry  Retry
	// Log gets one line for every decision; nil discards them.
	Log *slog.Logger
	// Lang is the language of the errors that people see; English when empty.
	Lang dreamcore.Lang
}

// Provider is a client of one engine. It is safe for concurrent use.
type Provider struct {
	cfg  Config
	log  *slog.Logger
	http *http.Client
	gate *gate
	v1   atomic.Bool // the engine has no version 2

	closing context.Context // ends with Close
	close   context.CancelFunc
	busy    sync.WaitGroup // sweeps that run
}

var _ sandbox.Provider = (*Provider)(nil)

// New builds a Provider; nothing is dialled until it is used.
func New(cfg Config) *Provider {
	if cfg.Transport == nil {
		cfg.Transport = http.DefaultTransport
	}
	if cfg.Proxy == "" {
		cfg.Proxy = LocalProxy
	}
	if cfg.Domain == "" {
		cfg.Domain = DefaultDomain
	}
	if cfg.APIURL == "" {
		cfg.APIURL = "https://api." + cfg.Domain
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Retry = cfg.Retry.complete()
	cfg.APIURL = strings.TrimRight(cfg.APIURL, "/")
	cfg.SandboxURL = strings.TrimRight(cfg.SandboxURL, "/")
	p := &Provider{cfg: cfg, log: cfg.Log, gate: newGate(cfg.Limits), http: &http.Client{
		Transport: cfg.Transport,
		// The API key must not follow a redirect to anywhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	p.closing, p.close = context.WithCancel(context.Background())
	return p
}

// Close waits until nothing runs in the background any more. Sandboxes live on.
func (p *Provider) Close() {
	p.close()
	p.busy.Wait()
}

// UnixTransport dials the Unix socket at path for every request, for an engine
// in the same machine or process.
func UnixTransport(path string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
}

type (
	createBody struct {
		TemplateID    string            `json:"templateID"`
		Timeout       int64             `json:"timeout"`
		Metadata      map[string]string `json:"metadata,omitempty"`
		EnvVars       map[string]string `json:"envVars,omitempty"`
		Secure        bool              `json:"secure,omitempty"` // version 1 only: version 2 always is
		AllowInternet bool              `json:"allow_internet_access"`
		Network       networkBody       `json:"network"`
	}
	networkBody struct {
		AllowOut           []string `json:"allowOut,omitempty"`
		DenyOut            []string `json:"denyOut"`
		AllowPublicTraffic bool     `json:"allowPublicTraffic"`
	}
	sandboxBody struct {
		SandboxID       string  `json:"sandboxID"`
		EnvdAccessToken string  `json:"envdAccessToken"`
		Domain          *string `json:"domain"`
	}
	listedBody struct {
		SandboxID  string            `json:"sandboxID"`
		TemplateID string            `json:"templateID"`
		Metadata   map[string]string `json:"metadata"`
		StartedAt  time.Time         `json:"startedAt"`
		EndAt      time.Time         `json:"endAt"`
		State      string            `json:"state"`
		CPUCount   int               `json:"cpuCount"`
		MemoryMB   int64             `json:"memoryMB"`
		DiskSizeMB int64             `json:"diskSizeMB"`
	}
)

// Create boots a sandbox that is denied all network but, with spec.Egress, the
// one proxy. It waits for its turn where the engine's owner has limits, and
// gives up with ctx.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := p.lifeAllowed(spec.Timeout); err != nil {
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	begun := time.Now()
	if err := p.gate.enter(ctx); err != nil {
		return nil, fmt.Errorf("create sandbox: wait for a turn: %w", err)
	}
	if waited := time.Since(begun); waited > time.Second {
		p.log.Info("waited for the engine's limits", "decision", "create", "dur_ms", waited.Milliseconds())
	}
	started := time.Now()
	out, err := p.create(ctx, p.order(spec))
	if err != nil {
		p.gate.leave("")
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	p.gate.admit(dreamcore.SandboxID(out.SandboxID), started.Add(spec.Timeout))
	sb := p.sandbox(out)
	sb.started = started
	if err := p.check(ctx, sb, spec.Egress); err != nil {
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	return sb, nil
}

// order is the request for a sandbox. Everything is said, nothing left to a
// default: E2B's is the whole internet.
func (p *Provider) order(spec sandbox.Spec) createBody {
	meta := map[string]string{}
	maps.Copy(meta, p.cfg.Metadata)
	maps.Copy(meta, spec.Metadata)
	meta[AttemptKey] = dreamcore.NewToken(20)
	in := createBody{
		TemplateID: spec.Image, Timeout: seconds(spec.Timeout), Metadata: meta, EnvVars: spec.Env,
		Network: networkBody{DenyOut: []string{allNetworks}, AllowOut: p.allowed(spec.Egress)},
	}
	if spec.Egress && len(p.cfg.Env) > 0 {
		in.EnvVars = maps.Clone(p.cfg.Env)
		maps.Copy(in.EnvVars, spec.Env)
	}
	if p.cfg.Template != "" {
		meta[ImageKey] = spec.Image
		in.TemplateID = p.cfg.Template
	}
	return in
}

// allowed is all that a sandbox may reach.
func (p *Provider) allowed(egress bool) []string {
	if egress {
		return []string{p.cfg.Proxy}
	}
	return nil
}

// Connect finds a living sandbox; code Lost when it is gone.
func (p *Provider) Connect(ctx context.Context, id dreamcore.SandboxID) (sandbox.Sandbox, error) {
	var out sandboxBody
	// A short time: connecting may only ever extend, and must not extend here.
	err := p.either(ctx, request{method: http.MethodPost, path: pathOf(id, "connect"), in: map[string]int64{"timeout": 1}, out: &out})
	if err == nil && out.SandboxID != string(id) {
		err = dreamcore.Errorf(dreamcore.Unavailable, "sandbox.connect", "the engine's answer is about another sandbox")
	}
	if err != nil {
		return nil, fmt.Errorf("connect to sandbox: %w", p.lostWhenMissing(err, id))
	}
	return p.sandbox(out), nil
}

// List returns the living sandboxes whose metadata holds every pair of filter
// and of the Provider's own metadata.
func (p *Provider) List(ctx context.Context, filter map[string]string) ([]sandbox.Info, error) {
	return p.list(ctx, filter, "running")
}

func (p *Provider) list(ctx context.Context, filter map[string]string, states string) ([]sandbox.Info, error) {
	bodies, err := p.listed(ctx, filter, states)
	var all []sandbox.Info
	for _, s := range bodies {
		all = append(all, s.info())
	}
	return all, err
}

func (s listedBody) info() sandbox.Info {
	return sandbox.Info{ID: dreamcore.SandboxID(s.SandboxID), Image: s.TemplateID, Metadata: s.Metadata, Started: s.StartedAt, Ends: s.EndAt}
}

// listed asks for page after page.
func (p *Provider) listed(ctx context.Context, filter map[string]string, states string) ([]listedBody, error) {
	want := maps.Clone(p.cfg.Metadata)
	if want == nil {
		want = map[string]string{}
	}
	maps.Copy(want, filter)
	pairs := url.Values{}
	for k, v := range want {
		pairs.Set(url.QueryEscape(k), url.QueryEscape(v))
	}
	var all []listedBody
	for next := ""; ; {
		q := url.Values{"limit": {"100"}, "state": {states}}
		if len(pairs) > 0 {
			q.Set("metadata", pairs.Encode())
		}
		if next != "" {
			q.Set("nextToken", next)
		}
		var page []listedBody
		h, err := p.call(ctx, request{method: http.MethodGet, path: "/v2/sandboxes?" + q.Encode(), out: &page})
		if err != nil {
			return nil, fmt.Errorf("list sandboxes: %w", err)
		}
		all = append(all, page...)
		if next = h.Get("X-Next-Token"); next == "" || len(page) == 0 {
			return all, nil
		}
	}
}

// Kill ends a sandbox and everything in it. Killing a dead one succeeds.
func (p *Provider) Kill(ctx context.Context, id dreamcore.SandboxID) error {
	if err := p.End(ctx, id); dreamcore.CodeOf(err) != dreamcore.Lost {
		return err
	}
	return nil
}

// sandbox makes a client of one box out of the control plane's answer.
func (p *Provider) sandbox(b sandboxBody) *box {
	base := p.cfg.SandboxURL
	if base == "" {
		domain := p.cfg.Domain
		if b.Domain != nil && *b.Domain != "" {
			domain = *b.Domain
		}
		base = fmt.Sprintf("https://%d-%s.%s", envd.Port, b.SandboxID, domain)
	}
	s := &box{id: dreamcore.SandboxID(b.SandboxID), p: p, base: base}
	s.http = &http.Client{
		CheckRedirect: p.http.CheckRedirect,
		Transport: headers{p.cfg.Transport, map[string]string{
			"X-Access-Token":   b.EnvdAccessToken,
			"E2b-Sandbox-Id":   b.SandboxID,
			"E2b-Sandbox-Port": strconv.Itoa(envd.Port),
		}},
	}
	s.processes = processconnect.NewProcessClient(s.http, base, connect.WithCodec(frugal{}), connect.WithReadMaxBytes(maxEventBytes))
	s.files = filesystemconnect.NewFilesystemClient(s.http, base, connect.WithCodec(frugal{}), connect.WithReadMaxBytes(maxMessageBytes))
	return s
}

// headers adds fixed headers to every request.
type headers struct {
	next http.RoundTripper
	set  map[string]string
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range h.set {
		if v != "" {
			r.Header.Set(k, v)
		}
	}
	return h.next.RoundTrip(r)
}

// pathOf is the path of an operation on one sandbox; "" is the sandbox itself.
func pathOf(id dreamcore.SandboxID, op string) string {
	p := "/sandboxes/" + url.PathEscape(string(id))
	if op != "" {
		p += "/" + op
	}
	return p
}

func seconds(d time.Duration) int64 { return max(int64((d+time.Second-1)/time.Second), 1) }
