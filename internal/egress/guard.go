package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrDenied is what every refusal of the guard is; test with errors.Is.
var ErrDenied = errors.New("the dial guard denies it")

// closed lists what is not the public internet although it looks like it. For
// IPv6 it only matters inside 2000::/3, everything else is closed anyway.
var closed = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
	"192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32",                                                          // a cloud's internal endpoint on a public address
	"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", // Teredo, ORCHID, documentation, 6to4, AS112
)

var public6 = netip.MustParsePrefix("2000::/3")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// Check reports whether the guard lets a socket connect to a. Forms that hide
// another address (mapped, compatible, NAT64, 6to4, Teredo) and zones are
// denied as they stand.
func Check(a netip.Addr) error {
	switch {
	case !a.IsValid(), a.Zone() != "", a.Is4In6():
		return fmt.Errorf("%w: %s is no plain address", ErrDenied, a)
	case a.Is6() && !public6.Contains(a):
		return fmt.Errorf("%w: %s is not on the public internet", ErrDenied, a)
	}
	for _, p := range closed {
		if p.Contains(a) {
			return fmt.Errorf("%w: %s is in %s", ErrDenied, a, p)
		}
	}
	return nil
}

// Host brings a host name or address to its one normal form: lower case, no
// final dot, no brackets. Anything else than letters, digits, hyphens and dots
// (or an address) is refused; there is no decoding of any kind.
func Host(s string) (string, error) {
	if in, ok := strings.CutPrefix(s, "["); ok {
		in, ok = strings.CutSuffix(in, "]")
		a, err := netip.ParseAddr(in)
		if !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return "", fmt.Errorf("host %q is not a plain IPv6 address in brackets", s)
		}
		return a.String(), nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return "", fmt.Errorf("host %q has a zone", s)
		}
		return a.String(), nil
	}
	h := strings.TrimSuffix(strings.ToLower(s), ".")
	if h == "" || len(h) > 253 {
		return "", fmt.Errorf("host %q is empty or too long", s)
	}
	labels := strings.Split(h, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", fmt.Errorf("host %q has a bad label", s)
		}
		for _, c := range []byte(label) {
			if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return "", fmt.Errorf("host %q has a letter that host names do not have", s)
			}
		}
	}
	// 0x7f.1, 2130706433, 127.1: C libraries read numbers as addresses.
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' {
		return "", fmt.Errorf("host %q ends in a number", s)
	}
	return h, nil
}

// Resolver looks names up; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Guard dials one pinned upstream and nothing else.
type Guard struct {
	Host string // normal form, see Host
	Port uint16
	// Private lists the address ranges off the public internet in which an
	// operator has said that this upstream lives (a model server in their own
	// network). Empty: none.
	Private []netip.Prefix
	// Resolver is net.DefaultResolver when nil.
	Resolver Resolver
	// Plain dials without TLS; only ever for an upstream inside Private.
	Plain bool
	// Roots verifies the upstream's certificate; nil means the system's.
	Roots *x509.CertPool
}

// Dial connects to the upstream. The name is resolved here, every address is
// checked, and the address that the kernel is really asked to connect to is
// checked once more.
func (g *Guard) Dial(ctx context.Context) (net.Conn, error) {
	addrs, err := g.resolve(ctx)
	if err != nil {
		return nil, err
	}
	var last error
	for _, a := range addrs {
		if err := g.check(a); err != nil {
			last = err
			continue
		}
		conn, err := g.connect(ctx, netip.AddrPortFrom(a, g.Port))
		if err == nil {
			return conn, nil
		}
		last = err
	}
	if last == nil {
		last = fmt.Errorf("resolve %s: no address", g.Host)
	}
	return nil, last
}

func (g *Guard) resolve(ctx context.Context) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(g.Host); err == nil {
		return []netip.Addr{a}, nil
	}
	r := g.Resolver
	if r == nil {
		r = net.DefaultResolver
	}
	addrs, err := r.LookupNetIP(ctx, "ip", g.Host)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", g.Host, err)
	}
	for i, a := range addrs {
		addrs[i] = a.Unmap() // the resolver itself returns A records in mapped form
	}
	return addrs, nil
}

func (g *Guard) check(a netip.Addr) error {
	err := Check(a)
	if err == nil && !g.Plain {
		return nil
	}
	if !a.Is4In6() && a.Zone() == "" {
		for _, p := range g.Private {
			if p.Contains(a) {
				return nil
			}
		}
	}
	if err == nil {
		return fmt.Errorf("%w: plain http to %s, which is not in a declared private range", ErrDenied, a)
	}
	return err
}

func (g *Guard) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{
		Timeout:   15 * time.Second,
		KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			ap, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("%w: %q is no address: %w", ErrDenied, address, err)
			}
			if ap.Port() != g.Port {
				return fmt.Errorf("%w: port %d is not %d", ErrDenied, ap.Port(), g.Port)
			}
			return g.check(ap.Addr())
		},
	}
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", net.JoinHostPort(g.Host, strconv.Itoa(int(g.Port))), err)
	}
	if g.Plain {
		return conn, nil
	}
	tc := tls.Client(conn, &tls.Config{
		ServerName: g.Host, RootCAs: g.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	})
	hctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := tc.HandshakeContext(hctx); err != nil {
		_ = conn.Close() // the handshake's error is the one that matters
		return nil, fmt.Errorf("verify %s: %w", g.Host, err)
	}
	return tc, nil
}
