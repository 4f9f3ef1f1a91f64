package keyproxy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dreamcore"
	"dreamcore/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every declared route has an operation and every operation a declaration.
func TestOperationsAndPolicyAgree(t *testing.T) {
	want := egress.PolicyOf(egress.Features()).Routes
	got := []string{"HEAD /"}
	for _, o := range operations() {
		got = append(got, o.Route())
		if !slices.Contains(egress.Opens(o.Route()), o.Feature) {
			t.Errorf("%s leads to %s, which does not open it", o.Route(), o.Feature)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("operations %v, policy %v", got, want)
	}
}

// A connection of a sandbox is a Unix socket in real life.
func TestServeConnOverAUnixSocket(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "egress.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.p.ServeConn(ctx, sandbox, server) }()
	br := bufio.NewReader(client)
	for range 3 { // kept alive
		if _, err := client.Write([]byte(w.request("POST "+messagesPath, "", minimal(messagesPath, true)))); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		var body strings.Builder
		if _, err := bufio.NewReader(resp.Body).WriteTo(&body); err != nil || resp.StatusCode != 200 || !strings.Contains(body.String(), "message_stop") {
			t.Fatalf("%d %v %s", resp.StatusCode, err, body.String())
		}
	}
	// Ended from our side by the context ...
	cancel()
	<-done
	if _, err := br.ReadByte(); err == nil {
		t.Error("the connection is still open")
	}
	// ... and from the other side by closing.
	client2, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server2, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done2 := make(chan struct{})
	go func() { defer close(done2); w.p.ServeConn(context.Background(), sandbox, server2) }()
	_ = client2.Close()
	<-done2
}

func TestInProcessUpstream(t *testing.T) {
	dial, stop := InProcess(http.HandlerFunc(standard))
	w := newWorld(t, func(cfg *Config, _ *JobTerms) {
		for f, us := range cfg.Upstreams {
			u := us[0]
			u.BaseURL, u.Dial, u.Private, u.Key = "http://stand-in", dial, nil, dreamcore.Secret{}
			cfg.Upstreams[f] = []Upstream{u}
		}
	})
	for _, path := range append([]string{imagesPath}, modelPaths...) {
		if r := w.post(path, minimal(path, true)); r.status != 200 {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.p.upstreams[dreamcore.OpenAIChat][0].client.CloseIdleConnections()
	if r := w.post(chatPath, minimal(chatPath, true)); r.status != 502 {
		t.Errorf("after its end: %d %s", r.status, r.body)
	}
}

func TestE05PrivateUpstreamWithoutDeclaration(t *testing.T) {
	f := newFake(t)
	_, port, _ := net.SplitHostPort(f.addr)
	for _, host := range []string{"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "localhost"} {
		w := newWorld(t, func(cfg *Config, _ *JobTerms) {
			for feature, us := range cfg.Upstreams {
				u := us[0]
				u.BaseURL, u.Private = "https://"+host+":"+port, nil
				cfg.Upstreams[feature] = []Upstream{u}
			}
		})
		r := w.post(messagesPath, minimal(messagesPath, true))
		if r.status != 502 || !strings.Contains(r.body, string(GuardDenied)) {
			t.Errorf("%s: %d %s", host, r.status, r.body)
		}
		if a := w.lastAudit(); a.Dialled {
			t.Errorf("%s: the audit says it was dialled: %+v", host, a)
		}
	}
	if f.dials.Load() != 0 {
		t.Errorf("%d dials", f.dials.Load())
	}
}

func TestE18CertificateOfTheUpstream(t *testing.T) {
	cert := func(name string, end time.Time) (tls.Certificate, *x509.CertPool) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: end.Add(-time.Hour * 24), NotAfter: end, IsCA: true,
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		}
		der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(leaf)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
	}
	for name, c := range map[string]struct {
		host   string
		end    time.Time
		trust  bool
		status int
	}{
		"good":       {"localhost", time.Now().Add(time.Hour), true, 200},
		"expired":    {"localhost", time.Now().Add(-time.Hour), true, 502},
		"wrong name": {"other.example", time.Now().Add(time.Hour), true, 502},
		"unknown":    {"localhost", time.Now().Add(time.Hour), false, 502},
	} {
		pair, roots := cert(c.host, c.end)
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		up := newFake(t)
		go func() { _ = http.Serve(l, up) }()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		w := newWorld(t, func(cfg *Config, _ *JobTerms) {
			for feature, us := range cfg.Upstreams {
				u := us[0]
				u.BaseURL, u.Private = "https://localhost:"+port, []netip.Prefix{loopback[0], netip.MustParsePrefix("::1/128")}
				if c.trust {
					u.Roots = roots
				}
				cfg.Upstreams[feature] = []Upstream{u}
			}
		})
		r := w.post(messagesPath, minimal(messagesPath, false))
		if r.status != c.status {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if calls := up.calls.Load(); (calls == 1) != (c.status == 200) {
			t.Errorf("%s: %d calls", name, calls)
		}
		w.p.upstreams[dreamcore.AnthropicMessages][0].client.CloseIdleConnections()
		_ = l.Close()
	}
}

func TestBadConfigurations(t *testing.T) {
	f := newFake(t)
	good := upstreams(f)[dreamcore.OpenAIChat]
	for name, change := range map[string]func(*Upstream){
		"no URL":           func(u *Upstream) { u.BaseURL = "" },
		"ftp":              func(u *Upstream) { u.BaseURL = "ftp://example.com" },
		"plain and public": func(u *Upstream) { u.BaseURL, u.Private = "http://example.com", nil },
		"user":             func(u *Upstream) { u.BaseURL = "https://user:pw@example.com" },
		"query":            func(u *Upstream) { u.BaseURL = "https://example.com/v1?key=x" },
		"E16 percent":      func(u *Upstream) { u.BaseURL = "https://exa%6dple.com" },
		"E16 unicode":      func(u *Upstream) { u.BaseURL = "https://ex\u0430mple.com" },
		"E16 number":       func(u *Upstream) { u.BaseURL = "https://2130706433/" },
		"port 0":           func(u *Upstream) { u.BaseURL = "https://example.com:0" },
		"short key":        func(u *Upstream) { u.Key = dreamcore.NewSecret("short") },
		"model twice":      func(u *Upstream) { u.Models = []ModelPrice{{Name: "a"}, {Name: "a"}} },
		"negative price":   func(u *Upstream) { u.Models = []ModelPrice{{Name: "a", InputMicros: -1}} },
	} {
		u := slices.Clone(good)
		change(&u[0])
		w := newVerifier(t)
		_, err := New(Config{Verifier: w, Dir: t.TempDir(), Upstreams: map[dreamcore.Feature][]Upstream{dreamcore.OpenAIChat: u}})
		if dreamcore.CodeOf(err) != dreamcore.Invalid || strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "short key") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Verifier: newVerifier(t), Dir: t.TempDir(), Upstreams: map[dreamcore.Feature][]Upstream{"no/such": good}}); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("an unknown feature: %v", err)
	}
	if _, err := New(Config{}); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("nothing: %v", err)
	}
}

// counting answers every name with the loopback address and notes what was asked.
type counting struct {
	mu    sync.Mutex
	names []string
}

func (c *counting) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = append(c.names, host)
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// asked returns the names so far, sorted, each once, and how many questions there were.
func (c *counting) asked() ([]string, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := slices.Sorted(slices.Values(c.names))
	return slices.Compact(names), len(c.names)
}

// The proxy asks for the names of its upstreams and for no other, whatever a
// sandbox writes into hosts, paths, headers and bodies.
func TestD05OnlyPinnedNamesAreResolved(t *testing.T) {
	resolver := &counting{}
	w := newWorld(t, func(cfg *Config, _ *JobTerms) {
		cfg.Resolver = resolver
		for f, us := range cfg.Upstreams {
			u := us[0]
			u.BaseURL = strings.Replace(u.BaseURL, "127.0.0.1", "pinned.example", 1)
			cfg.Upstreams[f] = []Upstream{u}
		}
	})
	const evil = "evil.example"
	for path, list := range attacks {
		for _, field := range list {
			w.post(path, "{"+field+"}")
			w.post(path, strings.Replace(minimal(path, false), "{", "{"+field+",", 1))
		}
	}
	for _, header := range []string{"X-Forwarded-Host", "Forwarded", "X-Original-Url", "Referer", "Origin", "X-Upstream"} {
		w.send("POST", chatPath, minimal(chatPath, false), func(r *http.Request) { r.Header.Set(header, "https://"+evil) })
	}
	w.send("POST", chatPath, minimal(chatPath, false), func(r *http.Request) { r.Host = evil })
	w.raw("POST http://"+evil+chatPath+" HTTP/1.1\r\nHost: "+evil+"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 1)
	w.raw("CONNECT "+evil+":443 HTTP/1.1\r\nHost: "+evil+":443\r\nConnection: close\r\n\r\n", 1)
	for _, path := range []string{"/asset/" + evil + "/x.png", "/npm/" + evil, "/" + evil, "//" + evil + "/v1", "/gemini/v1beta/models/" + evil + ":generateContent"} {
		w.post(path, geminiBody)
		w.send("GET", path, "", nil)
	}
	w.passes()
	names, n := resolver.asked()
	if !slices.Equal(names, []string{"pinned.example"}) || n == 0 {
		t.Errorf("asked %d times, for %q", n, names)
	}
}
