package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
)

// The golden policies: the empty set reaches nothing, each feature adds exactly
// its own rows.
func TestPolicyOfFeatures(t *testing.T) {
	for _, c := range []struct {
		features []dreamcore.Feature
		want     []string
	}{
		{nil, nil},
		{[]dreamcore.Feature{"no/such"}, nil},
		{[]dreamcore.Feature{dreamcore.AnthropicMessages}, []string{
			"GET /anthropic/v1/models", "HEAD /", "POST /anthropic/v1/messages", "POST /anthropic/v1/messages/count_tokens",
		}},
		{[]dreamcore.Feature{dreamcore.OpenAIChat}, []string{"GET /openai/v1/models", "HEAD /", "POST /openai/v1/chat/completions"}},
		{[]dreamcore.Feature{dreamcore.OpenAIResponses}, []string{"GET /openai/v1/models", "HEAD /", "POST /openai/v1/responses"}},
		{[]dreamcore.Feature{dreamcore.GoogleGemini}, []string{
			"GET /gemini/v1beta/models", "HEAD /", "POST /gemini/v1beta/models/{model}:countTokens",
			"POST /gemini/v1beta/models/{model}:generateContent", "POST /gemini/v1beta/models/{model}:streamGenerateContent",
		}},
		{[]dreamcore.Feature{dreamcore.PackageMirror}, []string{"GET /npm/{package}", "GET /npm/{package}/-/{file}"}},
		{[]dreamcore.Feature{dreamcore.AssetFetch}, []string{"GET /asset/{host}/{path...}"}},
		{[]dreamcore.Feature{dreamcore.ImageGeneration}, []string{"HEAD /", "POST /openai/v1/images/generations"}},
		{[]dreamcore.Feature{dreamcore.OpenAIResponses, dreamcore.OpenAIChat, dreamcore.OpenAIChat}, []string{
			"GET /openai/v1/models", "HEAD /", "POST /openai/v1/chat/completions", "POST /openai/v1/responses",
		}},
	} {
		if got := PolicyOf(c.features).Routes; !slices.Equal(got, c.want) {
			t.Errorf("%v: %v", c.features, cmp.Diff(c.want, got))
		}
	}
	for _, f := range Features() {
		for _, route := range PolicyOf([]dreamcore.Feature{f}).Routes {
			if !slices.Contains(Opens(route), f) {
				t.Errorf("Opens(%q) does not name %s", route, f)
			}
		}
	}
}

func TestE05AddressForms(t *testing.T) {
	for _, s := range []string{
		"127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
		"100.64.0.1", "100.100.100.200", "100.127.255.255", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.19.255.255", "198.51.100.7",
		"203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.88.99.1", "168.63.129.16",
		"::", "::1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "::127.0.0.1", "::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b::808:808",
		"64:ff9b:1::1", "2002:7f00:1::", "2002:808:808::1", "2001::1", "2001:0:53aa:64c:0:fbff:d2d6:a9a3", "2001:10::1", "2001:20::1", "2001:db8::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "2606:4700::1111%eth0", "fec0::1", "ff02::1", "3fff::1", "5f00::1", "100::1", "2620:4f:8000::1",
	} {
		if err := Check(netip.MustParseAddr(s)); !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if err := Check(netip.Addr{}); !errors.Is(err, ErrDenied) {
		t.Errorf("the zero address: %v", err)
	}
	for _, s := range []string{"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "198.17.0.1", "198.20.0.1", "2606:4700::1111", "2001:4860:4860::8888", "2a00:1450::1"} {
		if err := Check(netip.MustParseAddr(s)); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestE16HostForms(t *testing.T) {
	for in, want := range map[string]string{
		"API.Example.COM": "api.example.com", "api.example.com.": "api.example.com", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"[2001:DB8::1]": "2001:db8::1", "8.8.8.8": "8.8.8.8", "a": "a", "localhost": "localhost",
	} {
		if got, err := Host(in); err != nil || got != want {
			t.Errorf("%q: %q %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ".", "a..b", "a.b..", "bücher.example", "a\x00.example", "a%00.example", "a%2eexample", "user@example.com", "user:pw@example.com", "a b", "a_b.example",
		"-a.example", "a-.example", "[::1", "::1]", "[::1%25eth0]", "[fe80::1%eth0]", "fe80::1%eth0", "[8.8.8.8]", "0x7f.1", "127.1", "2130706433", "0177.0.0.1", "1.2.3.4.5",
		"example.com/", "example.com#", "ex\u0430mple.com", "example。com", strings.Repeat("a", 64) + ".b", strings.Repeat("a.", 127) + "b",
	} {
		if got, err := Host(in); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}

// FuzzHost: what is accepted is normal already, and stays.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"a.b", "A.B.", "[::1]", "1.2.3.4", "0x1.2", "a%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := Host(s)
		if err != nil {
			return
		}
		again, err := Host(h)
		if a, perr := netip.ParseAddr(h); perr == nil && a.Is6() {
			again, err = Host("[" + h + "]")
			if a.Is4In6() {
				return
			}
		}
		if err != nil || again != h {
			t.Fatalf("%q became %q, that %q %v", s, h, again, err)
		}
		if strings.ContainsAny(h, "%@/\\ \x00#?") {
			t.Fatalf("%q became %q", s, h)
		}
	})
}

// answers is a resolver that gives one list after the other.
type answers struct {
	lists [][]netip.Addr
	asked atomic.Int64
	names []string
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n := int(a.asked.Add(1)) - 1
	a.names = append(a.names, host)
	return slices.Clone(a.lists[min(n, len(a.lists)-1)]), nil
}

// target is a listener that counts.
func target(t *testing.T) (port uint16, dials *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	dials = &atomic.Int64{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dials.Add(1)
			_ = c.Close()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port), dials
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestE12Rebinding(t *testing.T) {
	port, dials := target(t)
	loop := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	// The allowed name resolves to what is allowed, then to what is not.
	r := &answers{lists: [][]netip.Addr{addrs("127.0.0.1"), addrs("127.0.0.2"), addrs("::ffff:127.0.0.2"), addrs("169.254.169.254", "10.0.0.1")}}
	g := &Guard{Host: "api.example", Port: port, Resolver: r, Private: loop, Plain: true}
	c, err := g.Dial(t.Context())
	if err != nil {
		t.Fatalf("the positive control: %v", err)
	}
	_ = c.Close()
	for range 3 {
		if _, err := g.Dial(t.Context()); !errors.Is(err, ErrDenied) {
			t.Errorf("got %v", err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); dials.Load() < 1 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if dials.Load() != 1 {
		t.Errorf("%d dials", dials.Load())
	}
	for _, n := range r.names {
		if n != "api.example" {
			t.Errorf("D05: asked for %q", n)
		}
	}
	// One good address among bad ones: only that one is dialled.
	g.Resolver = &answers{lists: [][]netip.Addr{addrs("10.0.0.1", "127.0.0.1")}}
	c, err = g.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	// Without a declared range the loopback is closed.
	g.Private = nil
	if _, err := g.Dial(t.Context()); !errors.Is(err, ErrDenied) {
		t.Errorf("got %v", err)
	}
	// Plain http to the public internet is closed too.
	g.Resolver = &answers{lists: [][]netip.Addr{addrs("8.8.8.8")}}
	if _, err := g.Dial(t.Context()); !errors.Is(err, ErrDenied) {
		t.Errorf("got %v", err)
	}
}

func TestE14OtherPort(t *testing.T) {
	port, dials := target(t)
	g := &Guard{Host: "api.example", Port: port + 1, Plain: true, Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}
	if _, err := g.connect(t.Context(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)); !errors.Is(err, ErrDenied) {
		t.Errorf("got %v", err)
	}
	if dials.Load() != 0 {
		t.Errorf("%d dials", dials.Load())
	}
	g.Port = port
	c, err := g.connect(t.Context(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
	if err != nil {
		t.Fatalf("the positive control: %v", err)
	}
	_ = c.Close()
}

// certificate signs one for name, valid until end, by an authority that roots
// trusts.
func certificate(t *testing.T, name string, end time.Time) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: end.Add(-48 * time.Hour), NotAfter: end, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
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

func TestE18Certificates(t *testing.T) {
	good, goodRoots := certificate(t, "api.example", time.Now().Add(time.Hour))
	expired, expiredRoots := certificate(t, "api.example", time.Now().Add(-time.Hour))
	other, otherRoots := certificate(t, "other.example", time.Now().Add(time.Hour))
	for name, c := range map[string]struct {
		cert  tls.Certificate
		roots *x509.CertPool
		fails bool
	}{
		"good":              {good, goodRoots, false},
		"expired":           {expired, expiredRoots, true},
		"wrong name":        {other, otherRoots, true},
		"unknown authority": {good, otherRoots, true},
		"system roots":      {good, nil, true},
	} {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{c.cert}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_ = conn.(*tls.Conn).Handshake()
				_ = conn.Close()
			}
		}()
		g := &Guard{
			Host: "api.example", Port: uint16(l.Addr().(*net.TCPAddr).Port), Roots: c.roots,
			Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolver: &answers{lists: [][]netip.Addr{addrs("127.0.0.1")}},
		}
		conn, err := g.Dial(t.Context())
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = conn.Close()
		}
		_ = l.Close()
	}
}
