// Package e2b is the client of every sandbox engine: E2B's cloud, a self-hosted
// E2B, and our embedded engine speak one protocol, and nothing above this
// package knows which of them answers.
package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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
	maxAnswerBytes  = 16 << 20
	maxMessageBytes = 64 << 20
	maxRateRetries  = 8
)

// Config says which engine to use and how.
type Config struct {
	// APIURL is the control plane: "https://api.e2b.app", or any name for an
	// engine that Transport dials by itself.
	APIURL string
	// SandboxURL is where all boxes are reached, told apart by headers; "" means
	// one host name for each box, as E2B's cloud has it.
	SandboxURL string
	APIKey     dreamcore.Secret
	// Transport carries everything; nil means http.DefaultTransport. It must not
	// limit how long an answer takes: commands stream for as long as they run.
	Transport http.RoundTripper
	// Metadata is put on every sandbox, below the spec's own, and every List is
	// restricted to it: what tells this installation's from others'.
	Metadata map[string]string
	// Proxy is the only network that a sandbox with egress may reach, as one
	// "ADDRESS/32"; never a name (see design: one name opens DNS). "" means
	// LocalProxy.
	Proxy string
	// Lang is the language of the errors that people see; English when empty.
	Lang dreamcore.Lang
}

// Provider is a client of one engine. It is safe for concurrent use.
type Provider struct {
	cfg  Config
	http *http.Client
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
	cfg.APIURL = strings.TrimRight(cfg.APIURL, "/")
	cfg.SandboxURL = strings.TrimRight(cfg.SandboxURL, "/")
	return &Provider{cfg: cfg, http: &http.Client{
		Transport: cfg.Transport,
		// The API key must not follow a redirect to anywhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
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
		Secure        bool              `json:"secure"`
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
	}
)

// Create boots a sandbox that is denied all network but, with spec.Egress, the
// one proxy.
func (p *Provider) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	meta := maps.Clone(p.cfg.Metadata)
	if meta == nil {
		meta = map[string]string{}
	}
	maps.Copy(meta, spec.Metadata)
	in := createBody{
		TemplateID: spec.Image, Timeout: seconds(spec.Timeout), Metadata: meta, EnvVars: spec.Env, Secure: true,
		// Everything is said, nothing left to a default: E2B's is the whole internet.
		Network: networkBody{DenyOut: []string{"0.0.0.0/0"}},
	}
	if spec.Egress {
		in.Network.AllowOut = []string{p.cfg.Proxy}
	}
	var out sandboxBody
	if err := p.either(ctx, http.MethodPost, "/sandboxes", in, &out); err != nil {
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	sb, err := p.sandbox(out)
	if err != nil {
		return nil, fmt.Errorf("create sandbox: %w", err)
	}
	return sb, nil
}

// Connect finds a living sandbox; code Lost when it is gone.
func (p *Provider) Connect(ctx context.Context, id dreamcore.SandboxID) (sandbox.Sandbox, error) {
	var out sandboxBody
	// A short time: connecting may only ever extend, and must not extend here.
	err := p.either(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(string(id))+"/connect", map[string]int64{"timeout": 1}, &out)
	if err != nil {
		return nil, fmt.Errorf("connect to sandbox: %w", p.lostWhenMissing(err, id))
	}
	sb, err := p.sandbox(out)
	if err != nil {
		return nil, fmt.Errorf("connect to sandbox: %w", err)
	}
	return sb, nil
}

// List returns the living sandboxes whose metadata holds every pair of filter
// and of the Provider's own metadata.
func (p *Provider) List(ctx context.Context, filter map[string]string) ([]sandbox.Info, error) {
	want := maps.Clone(p.cfg.Metadata)
	if want == nil {
		want = map[string]string{}
	}
	maps.Copy(want, filter)
	pairs := url.Values{}
	for k, v := range want {
		pairs.Set(url.QueryEscape(k), url.QueryEscape(v))
	}
	var all []sandbox.Info
	for next := ""; ; {
		q := url.Values{"limit": {"100"}, "state": {"running"}}
		if len(pairs) > 0 {
			q.Set("metadata", pairs.Encode())
		}
		if next != "" {
			q.Set("nextToken", next)
		}
		var page []listedBody
		h, err := p.call(ctx, http.MethodGet, "/v2/sandboxes?"+q.Encode(), nil, &page)
		if err != nil {
			return nil, fmt.Errorf("list sandboxes: %w", err)
		}
		for _, s := range page {
			all = append(all, sandbox.Info{
				ID: dreamcore.SandboxID(s.SandboxID), Image: s.TemplateID, Metadata: s.Metadata, Started: s.StartedAt, Ends: s.EndAt,
			})
		}
		if next = h.Get("X-Next-Token"); next == "" || len(page) == 0 {
			return all, nil
		}
	}
}

// Kill ends a sandbox and everything in it. Killing a dead one succeeds.
func (p *Provider) Kill(ctx context.Context, id dreamcore.SandboxID) error {
	_, err := p.call(ctx, http.MethodDelete, "/sandboxes/"+url.PathEscape(string(id)), nil, nil)
	if err != nil && !isStatus(err, http.StatusNotFound) {
		return fmt.Errorf("kill sandbox: %w", err)
	}
	return nil
}

// sandbox makes a client of one box out of the control plane's answer.
func (p *Provider) sandbox(b sandboxBody) (*box, error) {
	if b.SandboxID == "" {
		return nil, dreamcore.Errorf(dreamcore.Unavailable, "sandbox.create", "the engine's answer names no sandbox")
	}
	base := p.cfg.SandboxURL
	if base == "" {
		domain := "e2b.app"
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
	opts := []connect.ClientOption{connect.WithReadMaxBytes(maxMessageBytes)}
	s.processes = processconnect.NewProcessClient(s.http, base, opts...)
	s.files = filesystemconnect.NewFilesystemClient(s.http, base, opts...)
	return s, nil
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

// either calls version 2 of an operation and, where the engine has none,
// version 1.
func (p *Provider) either(ctx context.Context, method, path string, in, out any) error {
	_, err := p.call(ctx, method, "/v2"+path, in, out)
	var s *statusError
	if errors.As(err, &s) && (s.status == http.StatusMethodNotAllowed || s.status == http.StatusNotFound && !s.spoken) {
		_, err = p.call(ctx, method, path, in, out)
	}
	return err
}

// call makes one request of the control plane.
func (p *Provider) call(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, method, p.cfg.APIURL+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("X-Api-Key", p.cfg.APIKey.Reveal())
		if in != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := p.http.Do(req)
		if err != nil {
			return nil, fail(p.cfg.Lang, dreamcore.Unavailable, "sandbox.engine", "no_answer").Because(err)
		}
		data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes+1))
		res.Body.Close()
		switch {
		case err != nil || len(data) > maxAnswerBytes:
			return nil, dreamcore.Errorf(dreamcore.Unavailable, "sandbox.engine", "the sandbox engine's answer broke off or is too long").Because(err)
		case res.StatusCode == http.StatusTooManyRequests && try < maxRateRetries:
			if err := pause(ctx, res.Header.Get("Retry-After")); err != nil {
				return nil, err
			}
			continue
		case res.StatusCode >= 300:
			return nil, newStatusError(res.StatusCode, data)
		case out != nil:
			if err := json.Unmarshal(data, out); err != nil {
				return nil, dreamcore.Errorf(dreamcore.Unavailable, "sandbox.engine", "the sandbox engine's answer makes no sense").Because(err)
			}
		}
		return res.Header, nil
	}
}

// pause waits as long as a rate-limited engine asks, within reason.
func pause(ctx context.Context, retryAfter string) error {
	n, err := strconv.Atoi(retryAfter)
	if err != nil || n < 1 {
		n = 1
	}
	t := time.NewTimer(time.Duration(min(n, 60)) * time.Second)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func seconds(d time.Duration) int64 { return max(int64((d+time.Second-1)/time.Second), 1) }
