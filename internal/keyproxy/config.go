// Package keyproxy is the sandboxes' one way out: a handful of fixed routes to
// the upstreams that an operator has switched on. The operator's key exists on
// the far side only. Every request passes, in this order: listener identity,
// grant, job state, route, strict body, budget, dial guard, forward, redact,
// settle, audit. A failure before "forward" means that no packet left.
//
// The package builds with nothing but the pure packages, so that it can run
// alone as a process of its own.
package keyproxy

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/egress"
	"dreamcore/internal/grant"
	"dreamcore/internal/redact"
)

// Audience is what grants for this proxy are minted for.
const Audience = "dreamcore/keyproxy"

// Config is what a proxy is built from.
type Config struct {
	// Verifier is the public half of the host's Minter. Required.
	Verifier *grant.Verifier
	// Upstreams says where each enabled feature leads. A feature that is not in
	// it is off, whatever a job's terms say.
	Upstreams map[dreamcore.Feature]Upstream
	// Dir is the proxy's own folder: ledger.jsonl and audit.jsonl. Required.
	Dir string
	// Audit takes one record per request; nil means Dir/audit.jsonl, which is
	// bounded: full files stand beside it, the oldest are removed.
	Audit Auditor
	Log   *slog.Logger
	// Now is the clock of grants and audit; nil means time.Now.
	Now func() time.Time
	// Hosts are the values of the Host header that are ours. Empty means
	// 127.0.0.1:4000 and localhost:4000.
	Hosts []string
	// Timeouts bounds what a client or an upstream may keep waiting for.
	Timeouts Timeouts
}

// Timeouts has the durations after which the proxy gives up. Zero means the
// default.
type Timeouts struct {
	ReadHeader time.Duration // client: until the request's headers are here, 20 s
	ReadBody   time.Duration // client: until its body is here, 60 s
	Idle       time.Duration // client: between requests of a connection, 5 min
	Write      time.Duration // client: that takes no data, 60 s
	Headers    time.Duration // upstream: until a stream begins, 2 min
	Whole      time.Duration // upstream: until an answer that does not stream begins, 10 min
	Silence    time.Duration // upstream: between two pieces of an answer, 2 min
	Retry      time.Duration // before an overloaded upstream is asked again, 500 ms
}

func (t *Timeouts) defaults() {
	for _, d := range []struct {
		to  *time.Duration
		def time.Duration
	}{
		{&t.ReadHeader, 20 * time.Second},
		{&t.ReadBody, time.Minute},
		{&t.Idle, 5 * time.Minute},
		{&t.Write, time.Minute},
		{&t.Headers, 2 * time.Minute},
		{&t.Whole, 10 * time.Minute},
		{&t.Silence, 2 * time.Minute},
		{&t.Retry, 500 * time.Millisecond},
	} {
		if *d.to == 0 {
			*d.to = d.def
		}
	}
}

// Upstream is where a feature leads.
type Upstream struct {
	// BaseURL is what the provider's own SDK would be given:
	// https://api.anthropic.com, https://api.openai.com/v1, http://10.0.0.5:11434/v1.
	BaseURL string
	// Key is the operator's; none for servers that want none. At least eight
	// bytes, since echoes of it are searched for.
	Key dreamcore.Secret
	// Models is the exact list of models and what they cost. A model without
	// a price is refused unless it is Free.
	Models []ModelPrice
	// Private are address ranges off the public internet in which the
	// operator says this upstream lives. Only there plain http is allowed.
	Private []netip.Prefix
	// Roots verifies the upstream's certificate; nil means the system's.
	Roots *x509.CertPool
	// ExtraFields are top-level request fields that the operator allows
	// beyond the list.
	ExtraFields []string
	// PictureMaker says that an image upstream understands style, effects,
	// seed and any size itself, as the built-in one does.
	PictureMaker bool
	// Dial replaces the guarded dial. Only for the stand-in upstream that
	// lives in this process; see InProcess.
	Dial func(ctx context.Context) (net.Conn, error)
}

// ModelPrice is a model that clients may ask for, and its price in micro-units
// of the operator's currency per million tokens.
type ModelPrice struct {
	Name             string // as clients ask for it, exactly
	Upstream         string // as the upstream knows it; "" means Name
	InputMicros      int64
	OutputMicros     int64
	CacheReadMicros  int64 // 0 means InputMicros
	CacheWriteMicros int64 // 0 means InputMicros
	ImageMicros      int64 // per picture
	Free             bool  // costs nothing, on purpose
	// MaxOutputTokens caps one answer; 0 means 32,000.
	MaxOutputTokens int64
}

const defaultMaxOutput = 32_000

func (m *ModelPrice) priced(image bool) bool {
	if m.Free {
		return true
	}
	if image {
		return m.ImageMicros > 0
	}
	return m.InputMicros > 0 && m.OutputMicros > 0
}

// upstream is a checked Upstream.
type upstream struct {
	Upstream
	feature dreamcore.Feature
	base    *url.URL
	redact  *redact.Set
	guard   *egress.Guard // nil when Dial is set
}

func newUpstream(f dreamcore.Feature, u Upstream) (*upstream, error) {
	const op = "keyproxy.new"
	bad := func(format string, args ...any) *dreamcore.Error {
		return dreamcore.Errorf(dreamcore.Invalid, op, "upstream of %s: "+format, append([]any{f}, args...)...)
	}
	if !slices.Contains(egress.Features(), f) {
		return nil, bad("there is no such feature").WithHint("the features are %v", egress.Features())
	}
	base, err := url.Parse(u.BaseURL)
	if err != nil || base.User != nil || base.RawQuery != "" || base.Fragment != "" || base.Opaque != "" || strings.Contains(u.BaseURL, "%") {
		return nil, bad("the base URL is not a plain https URL")
	}
	host, err := egress.Host(base.Hostname())
	if err != nil {
		return nil, bad("the base URL has no usable host name: %v", err)
	}
	plain := base.Scheme == "http"
	if !plain && base.Scheme != "https" {
		return nil, bad("the base URL begins with %q, not with https", base.Scheme)
	}
	port := uint64(443)
	if plain {
		port = 80
	}
	if base.Port() != "" {
		if port, err = strconv.ParseUint(base.Port(), 10, 16); err != nil || port == 0 {
			return nil, bad("the base URL has no usable port")
		}
	}
	out := &upstream{Upstream: u, feature: f, base: base}
	if u.Dial == nil {
		if plain && len(u.Private) == 0 {
			return nil, bad("plain http is only for upstreams in a private address range that is declared")
		}
		out.guard = &egress.Guard{Host: host, Port: uint16(port), Private: u.Private, Plain: plain, Roots: u.Roots}
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	if !u.Key.IsZero() {
		if out.redact, err = redact.New(u.Key.Reveal()); err != nil {
			return nil, bad("the key: %v", err)
		}
	}
	seen := map[string]bool{}
	for _, m := range u.Models {
		if m.Name == "" || seen[m.Name] {
			return nil, bad("a model has no name or stands there twice: %q", m.Name)
		}
		if m.InputMicros < 0 || m.OutputMicros < 0 || m.CacheReadMicros < 0 || m.CacheWriteMicros < 0 || m.ImageMicros < 0 || m.MaxOutputTokens < 0 {
			return nil, bad("the model %q has a negative number", m.Name)
		}
		seen[m.Name] = true
	}
	return out, nil
}

// model finds a model by its exact name.
func (u *upstream) model(name string) *ModelPrice {
	for i := range u.Models {
		if u.Models[i].Name == name {
			return &u.Models[i]
		}
	}
	return nil
}

func (u *upstream) String() string { return fmt.Sprintf("%s (%s)", u.feature, u.base.Host) }
