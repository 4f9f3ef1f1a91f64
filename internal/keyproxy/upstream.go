package keyproxy

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"dreamcore"
	"dreamcore/internal/egress"
	"dreamcore/internal/strictjson"
)

// upstream is a checked Upstream.
type upstream struct {
	Upstream
	feature dreamcore.Feature
	base    *url.URL
	ring    atomic.Pointer[ring]
	guard   *egress.Guard // nil when Dial is set
	client  *http.Transport
	pulse   *pulse
	set     strictjson.Value // an object of the fields to set
	// throttle is nil when there is no limit.
	throttle *throttle
	mirror   *mirror // of a package mirror
}

// newUpstreams checks all of them, and that each model leads to one.
func newUpstreams(cfg Config) (map[dreamcore.Feature][]*upstream, error) {
	out := map[dreamcore.Feature][]*upstream{}
	for f, list := range cfg.Upstreams {
		seen := map[string]bool{}
		for _, u := range list {
			up, err := newUpstream(f, u)
			if err != nil {
				return nil, err
			}
			for _, m := range u.Models {
				if seen[m.Name] {
					return nil, dreamcore.Errorf(dreamcore.Invalid, "keyproxy.new", "two upstreams of %s have a model %q", f, m.Name).
						WithHint("give one of them another name; what the upstream calls it stays as it is")
				}
				seen[m.Name] = true
			}
			if f == dreamcore.PackageMirror {
				if up.mirror, err = newMirror(u, cfg.Dir); err != nil {
					return nil, dreamcore.Errorf(dreamcore.Invalid, "keyproxy.new", "the package mirror: %v", err)
				}
			}
			if up.guard != nil {
				up.guard.Resolver = cfg.Resolver
			}
			out[f] = append(out[f], up)
		}
	}
	return out, nil
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
	out := &upstream{Upstream: u, feature: f, base: base, pulse: &pulse{now: UpstreamHealth{Feature: f, Host: base.Host, State: Untried}}}
	if u.Dial == nil {
		if plain && len(u.Private) == 0 {
			return nil, bad("plain http is only for upstreams in a private address range that is declared")
		}
		out.guard = &egress.Guard{Host: host, Port: uint16(port), Private: u.Private, Plain: plain, Roots: u.Roots}
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	keys, err := newRing(u.Key, nil)
	if err != nil {
		return nil, bad("the key: %v", err)
	}
	out.ring.Store(keys)
	out.Key = dreamcore.Secret{} // it is in the ring only
	seen := map[string]bool{}
	for _, m := range u.Models {
		if m.Name == "" || seen[m.Name] {
			return nil, bad("a model has no name or stands there twice: %q", m.Name)
		}
		if m.InputMicros < 0 || m.OutputMicros < 0 || m.CacheReadMicros < 0 || m.CacheWriteMicros < 0 || m.ImageMicros < 0 || m.MaxOutputTokens < 0 {
			return nil, bad("the model %q has a negative number", m.Name)
		}
		if f == dreamcore.GoogleGemini && !pathName.MatchString(m.known()) {
			return nil, bad("the model name %q cannot stand in a path", m.known())
		}
		seen[m.Name] = true
	}
	if why := out.Assets.check(); f == dreamcore.AssetFetch && why != "" {
		return nil, bad("%s", why)
	}
	if u.Limit.Concurrency < 0 || u.Limit.PerMinute < 0 {
		return nil, bad("a limit is negative")
	}
	if u.Limit != (Limit{}) {
		out.throttle = newThrottle(u.Limit, time.Now())
	}
	for _, name := range slices.Sorted(maps.Keys(u.Set)) {
		v, err := strictjson.Parse(u.Set[name])
		if err != nil || name == "" || slices.Contains(unsettable, name) {
			return nil, bad("the field %q cannot be set", name)
		}
		out.set.Set(name, v)
	}
	out.client = out.transport()
	return out, nil
}

// unsettable are fields whose meaning the proxy's own decisions rest on.
var unsettable = []string{"model", "stream", "stream_options", "store", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "generationConfig", "tools"}

// pathName is a model's name that may stand in the upstream's path.
var pathName = regexp.MustCompile("^" + holes["{model}"] + "$")

// transport makes the client of one upstream. No redirect is followed because
// a Transport never does; no environment is asked for a proxy because Proxy
// is nil; there is no automatic decompression.
func (u *upstream) transport() *http.Transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		if u.Dial != nil {
			return u.Dial(ctx)
		}
		return u.guard.Dial(ctx)
	}
	return &http.Transport{
		DialContext: dial, DialTLSContext: dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        64 << 10,
		ReadBufferSize:         32 << 10,
	}
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

// route finds the upstream of a feature that has a model; without one it is the
// first, and no price.
func (p *Proxy) route(f dreamcore.Feature, model string) (*upstream, *ModelPrice) {
	for _, u := range p.upstreams[f] {
		if m := u.model(model); m != nil {
			return u, m
		}
	}
	return p.upstreams[f][0], nil
}

func (u *upstream) String() string { return fmt.Sprintf("%s (%s)", u.feature, u.base.Host) }
