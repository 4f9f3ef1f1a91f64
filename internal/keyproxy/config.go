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
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"dreamcore"
	"dreamcore/internal/egress"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy/provider/npm"
)

// Audience is what grants for this proxy are minted for.
const Audience = "dreamcore/keyproxy"

// Config is what a proxy is built from.
type Config struct {
	// Verifier is the public half of the host's Minter. Required.
	Verifier *grant.Verifier
	// Upstreams says where each enabled feature leads. A feature that is not in
	// it is off, whatever a job's terms say. Several upstreams of one feature are
	// told apart by the names of their models, of which none may stand there twice.
	Upstreams map[dreamcore.Feature][]Upstream
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
	// Resolver looks up the names of upstreams; nil means the machine's.
	Resolver egress.Resolver
	// RemoteName is the host name by which sandboxes of a remote engine call the
	// proxy, see ServeRemote; "" when there are none.
	RemoteName string
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
	Key dreamcore.Secret `json:"-"`
	// Models is the exact list of models and what they cost. A model without
	// a price is refused unless it is Free.
	Models []ModelPrice
	// Private are address ranges off the public internet in which the
	// operator says this upstream lives. Only there plain http is allowed.
	Private []netip.Prefix `json:",omitempty"`
	// Roots verifies the upstream's certificate; nil means the system's.
	Roots *x509.CertPool `json:"-"`
	// ExtraFields are top-level request fields that the operator allows
	// beyond the list.
	ExtraFields []string
	// Set are top-level request fields with which the operator overrides what
	// clients send, such as the context length of a local server.
	Set map[string]json.RawMessage
	// Compatible says that the upstream is not OpenAI itself but speaks its
	// protocol (Ollama, llama.cpp, vLLM): it gets no field that only OpenAI has.
	Compatible bool
	// Packages is the pinned list of a package mirror, and BoxURL the proxy's own
	// address as boxes see it, which their tarballs get.
	Packages []npm.Pin
	BoxURL   string
	// Assets bounds an asset host, whose BaseURL may narrow it to a folder.
	Assets Assets
	// Limit bounds the calls to this upstream, of all jobs.
	Limit Limit
	// PictureMaker says that an image upstream understands style, effects,
	// seed and any size itself, as the built-in one does.
	PictureMaker bool
	// Dial replaces the guarded dial. Only for the stand-in upstream that
	// lives in this process; see InProcess.
	Dial func(ctx context.Context) (net.Conn, error) `json:"-"`
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

// known is the name by which the upstream knows the model.
func (m *ModelPrice) known() string {
	if m.Upstream != "" {
		return m.Upstream
	}
	return m.Name
}

func (m *ModelPrice) priced(image bool) bool {
	if m.Free {
		return true
	}
	if image {
		return m.ImageMicros > 0
	}
	return m.InputMicros > 0 && m.OutputMicros > 0
}
