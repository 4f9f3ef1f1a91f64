// Package e2btest makes any engine look like E2B's cloud: TLS by a private
// authority, a control plane and boxes on names of their own, one version of
// the protocol only, rate limits, latency and connections that break. What is
// behind it stays the real thing.
package e2btest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox/e2b"
)

// The names under which a cloud is reached; nothing resolves them.
const (
	APIHost   = "api.cloud.test"
	BoxDomain = "boxes.test"
)

// Mode is how a cloud behaves. The zero value is a healthy one of both versions
// over HTTP/2.
type Mode struct {
	V1Only, V2Only bool // creation and connection in one version only
	HTTP1          bool // no HTTP/2
	// TooMany answers every n-th request of the control plane with 429; 0: none.
	TooMany int
	// Limits are enforced as the cloud does it: with 429. Life is not.
	Limits e2b.Limits
	// Latency is added to every request, half of it by chance.
	Latency time.Duration
	// Drop breaks one request in n, before it arrives, before the answer, or
	// within the answer; 0: none. Seed decides which.
	Drop int
	Seed uint64
	// Network tells a sandbox's network when asked for the sandbox, and takes
	// updates: what an engine without a network device may not do itself.
	Network bool
	// Forget makes the cloud take a network and keep an open one.
	Forget bool
}

// Cloud is a front before an engine.
type Cloud struct {
	mode    Mode
	key     string
	server  *httptest.Server
	roots   *x509.CertPool
	backend *url.URL
	direct  *http.Transport

	mu       sync.Mutex
	rng      *rand.Rand
	asked    int
	next     time.Time
	alive    map[string]bool
	creating int
	networks map[string]network
	seen     []Exchange
	counts   Counts
}

// Counts are what happened at a cloud.
type Counts struct {
	Created, TooMany, Dropped int
	// Most is how many sandboxes lived at once.
	Most int
}

// Exchange is one request of the control plane and its answer.
type Exchange struct {
	Method, Path string
	Query        url.Values
	Body         []byte
	Status       int
	Answer       []byte
}

type network struct {
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
}

// Start starts a cloud before the engine at backend, a plain HTTP address whose
// API key is key. It ends with the test.
func Start(tb testing.TB, backend, key string, mode Mode) *Cloud {
	tb.Helper()
	to, err := url.Parse(backend)
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cloud{
		mode: mode, key: key, backend: to, direct: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
		rng: rand.New(rand.NewPCG(mode.Seed, 1)), alive: map[string]bool{}, networks: map[string]network{},
	}
	c.server = httptest.NewUnstartedServer(c)
	c.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	cert, pool := authority(tb, APIHost, "*."+BoxDomain)
	c.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	c.server.EnableHTTP2 = !mode.HTTP1
	c.server.StartTLS()
	c.roots = pool
	tb.Cleanup(func() {
		c.server.CloseClientConnections()
		c.server.Close()
		c.direct.CloseIdleConnections()
	})
	return c
}

// Transport dials the cloud whatever the name, and trusts its authority only.
func (c *Cloud) Transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, c.server.Listener.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: c.roots}, ForceAttemptHTTP2: !c.mode.HTTP1,
		MaxIdleConnsPerHost: 64, DisableCompression: true,
	}
}

// Provider is a client of the cloud, closed when the test ends.
func (c *Cloud) Provider(tb testing.TB, change ...func(*e2b.Config)) *e2b.Provider {
	tb.Helper()
	t := c.Transport()
	cfg := e2b.Config{
		APIURL: "https://" + APIHost, APIKey: dreamcore.NewSecret(c.key), Transport: t,
		Retry: e2b.Retry{Tries: 20, First: 5 * time.Millisecond, Most: 100 * time.Millisecond, Settle: time.Second},
	}
	for _, f := range change {
		f(&cfg)
	}
	p := e2b.New(cfg)
	tb.Cleanup(func() { p.Close(); t.CloseIdleConnections() })
	return p
}

// Seen returns every exchange of the control plane so far.
func (c *Cloud) Seen() []Exchange {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Exchange(nil), c.seen...)
}

// Counts returns what happened so far.
func (c *Cloud) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

var boxHost = regexp.MustCompile(`^[0-9]{1,5}-[a-z0-9]+\.` + regexp.QuoteMeta(BoxDomain) + `$`)

// ServeHTTP implements http.Handler.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The name alone says who is meant, as before E2B's own routers.
	r.Header.Del("E2b-Sandbox-Id")
	r.Header.Del("E2b-Sandbox-Port")
	host, _, _ := strings.Cut(r.Host, ":")
	if r.TLS == nil || r.TLS.ServerName != host {
		refuse(w, http.StatusMisdirectedRequest, "the name in TLS is another")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client went away
	}
	c.mu.Lock()
	pause := c.mode.Latency/2 + time.Duration(c.rng.Int64N(int64(c.mode.Latency/2)+1))
	drop := -1
	if c.mode.Drop > 0 && c.rng.IntN(c.mode.Drop) == 0 {
		drop = c.rng.IntN(3)
		c.counts.Dropped++
	}
	cut := c.rng.IntN(400)
	c.mu.Unlock()
	time.Sleep(pause)
	if drop == 0 {
		panic(http.ErrAbortHandler)
	}
	if drop > 0 {
		w = &breaking{ResponseWriter: w, after: cut * (drop - 1), early: drop == 1}
	}
	switch {
	case host == APIHost:
		c.control(w, r, body)
	case boxHost.MatchString(host):
		c.forward(w, r, body, nil)
	default:
		refuse(w, http.StatusMisdirectedRequest, "nobody has this name")
	}
}

// forward carries a request to the engine; change may alter the answer.
func (c *Cloud) forward(w http.ResponseWriter, r *http.Request, body []byte, change func(*http.Response) error) {
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1, Transport: c.direct, ModifyResponse: change,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(c.backend)
			p.Out.Host = r.Host
			p.Out.Body, p.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
	}
	proxy.ServeHTTP(w, r)
}

var versioned = regexp.MustCompile(`^(/v2)?/sandboxes(/[^/]+/connect)?$`)

// control is the control plane: the rules of the cloud, then the engine.
func (c *Cloud) control(w http.ResponseWriter, r *http.Request, body []byte) {
	ex := Exchange{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Body: body}
	rec := &recording{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		ex.Status, ex.Answer = rec.status, rec.data.Bytes()
		c.mu.Lock()
		c.seen = append(c.seen, ex)
		c.mu.Unlock()
	}()
	create := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/sandboxes")
	if !c.allow(rec, create) {
		return
	}
	if m := versioned.FindStringSubmatch(r.URL.Path); m != nil && r.Method == http.MethodPost && (c.mode.V1Only && m[1] != "" || c.mode.V2Only && m[1] == "") {
		c.done(create, "")
		http.NotFound(rec, r) // what a router says that knows no such path
		return
	}
	if c.mode.Network && r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/network") {
		c.update(rec, r, body)
		return
	}
	// The engine is to see a name that means no box.
	r.Host = "engine"
	c.forward(rec, r, body, func(res *http.Response) error {
		if res.StatusCode >= 300 {
			c.done(create, "")
			return nil
		}
		return c.answered(r, res, body, create)
	})
}

// answered alters what the engine says as the cloud would say it.
func (c *Cloud) answered(r *http.Request, res *http.Response, body []byte, create bool) error {
	if r.Method == http.MethodDelete {
		c.mu.Lock()
		delete(c.alive, r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
		c.mu.Unlock()
		return nil
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	res.Body.Close()
	var m map[string]any
	if json.Unmarshal(data, &m) == nil && m["sandboxID"] != nil {
		id := m["sandboxID"].(string)
		if m["envdVersion"] != nil {
			m["domain"] = BoxDomain
		}
		c.mu.Lock()
		if n, ok := c.networks[id]; ok && c.mode.Network && r.Method == http.MethodGet {
			m["network"] = n
		}
		c.mu.Unlock()
		if create {
			c.done(true, id)
			c.remember(id, body)
		}
		if data, err = json.Marshal(m); err != nil {
			return err
		}
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	res.Header.Set("Content-Length", strconv.Itoa(len(data)))
	return nil
}

// remember keeps the network that a creation asked for.
func (c *Cloud) remember(id string, body []byte) {
	var in struct {
		Network network `json:"network"`
	}
	_ = json.Unmarshal(body, &in) // the engine has read it
	if c.mode.Forget {
		in.Network = network{AllowPublicTraffic: true}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.networks[id] = in.Network
}

// update replaces a sandbox's network.
func (c *Cloud) update(w http.ResponseWriter, r *http.Request, body []byte) {
	id := strings.Split(r.URL.Path, "/")[2]
	var n network
	if err := json.Unmarshal(body, &n); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	c.mu.Lock()
	old, ok := c.networks[id]
	n.AllowPublicTraffic = old.AllowPublicTraffic
	if ok && !c.mode.Forget {
		c.networks[id] = n
	}
	c.mu.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, "there is no such sandbox")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// allow enforces the rate and the number of sandboxes.
func (c *Cloud) allow(w http.ResponseWriter, create bool) bool {
	c.mu.Lock()
	c.asked++
	now := time.Now()
	var wait time.Duration
	switch l := c.mode.Limits; {
	case c.mode.TooMany > 0 && c.asked%c.mode.TooMany == 0:
		wait = time.Second
	case create && l.Concurrent > 0 && len(c.alive)+c.creating >= l.Concurrent:
		wait = time.Second
	case create && now.Before(c.next):
		wait = c.next.Sub(now)
	default:
		if create {
			c.next = now.Add(l.CreateEvery)
			c.creating++
		}
	}
	asDate := c.asked%2 == 0
	if wait > 0 {
		c.counts.TooMany++
	}
	c.mu.Unlock()
	if wait == 0 {
		return true
	}
	s := strconv.Itoa(int((wait + time.Second - 1) / time.Second))
	if asDate {
		s = now.Add(wait + time.Second).UTC().Format(http.TimeFormat)
	}
	w.Header().Set("Retry-After", s)
	refuse(w, http.StatusTooManyRequests, "too many requests")
	return false
}

// done ends a creation; id is "" when none came of it.
func (c *Cloud) done(create bool, id string) {
	if !create {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creating--
	if id != "" {
		c.alive[id] = true
		c.counts.Created++
		c.counts.Most = max(c.counts.Most, len(c.alive))
	}
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": status, "message": message}) // the client may be gone
}
