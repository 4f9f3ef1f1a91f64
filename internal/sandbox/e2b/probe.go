package e2b

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"dreamcore"
)

// Probe is one way out that must not be there.
type Probe struct {
	Net  string // "tcp" or "udp"
	Host string // an address or a name
	Port int
	// Say is sent; whoever is there must answer it with a byte that is not 0.
	Say string
}

func (p Probe) String() string {
	return p.Net + " " + net.JoinHostPort(p.Host, strconv.Itoa(p.Port))
}

const (
	// dnsQuestion asks for the address of example.com; its answer begins with
	// the same two letters.
	dnsQuestion = "AA\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01"
	// tlsHello is the shortest greeting that a TLS server answers, if only with
	// an alert.
	tlsHello = "\x16\x03\x01\x00\x35\x01\x00\x00\x31\x03\x03" + "0123456789abcdef0123456789abcdef" +
		"\x00\x00\x0a\xc0\x2f\xc0\x30\xc0\x2b\x00\x9c\x00\x2f\x01\x00"
	httpHello = "GET / HTTP/1.0\r\nHost: example.com\r\n\r\n"
)

// DefaultProbes are the ways out that an open network has: a name server, which
// is a way out by itself, the same machine by TCP and by IPv6, another one, and
// one by its name.
func DefaultProbes() []Probe {
	return []Probe{
		{"udp", "8.8.8.8", 53, dnsQuestion},
		{"tcp", "8.8.8.8", 53, "\x00\x1d" + dnsQuestion},
		{"tcp", "8.8.8.8", 443, tlsHello},
		{"tcp", "2001:4860:4860::8888", 443, tlsHello},
		{"udp", "2001:4860:4860::8888", 53, dnsQuestion},
		{"tcp", "1.1.1.1", 443, tlsHello},
		{"tcp", "example.com", 80, httpHello},
	}
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,62}\.)*[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// probeEnd is the last line of a probe that came to its end.
const probeEnd = "end\n"

// probeScript is a bash script that tries all probes side by side and prints
// "answer N" or "silent N" for those that were let out. It needs nothing but
// bash, sleep and chmod. hosts is a line for the hosts file, "" for none. Unless
// sudo, the ways to become root lose their set-id bit first.
func probeScript(probes []Probe, hosts string, sudo bool, wait time.Duration) (string, error) {
	var b strings.Builder
	b.WriteString("export LC_ALL=C; trap '' PIPE\n")
	if !sudo {
		b.WriteString("for f in sudo su doas pkexec; do f=$(type -P $f) && { chmod a-s \"$f\" || exit 8; }; done\n")
	}
	if hosts != "" {
		fmt.Fprintf(&b, "{ read -r -d '' have </etc/hosts; case $have in *'%[1]s'*) ;; *) printf '\\n%%s\\n' '%[1]s' >>/etc/hosts || exit 7;; esac; }\n", hosts)
	}
	// Bash drops zero bytes, so an answer is known by another one.
	fmt.Fprintf(&b, `ask() { { printf "$5" >&3; if IFS= read -r -N 1 -t %.3[1]f x <&3; then echo "answer $1"; else echo "silent $1"; fi; } 3<>"/dev/$2/$3/$4"; }
p=
`, wait.Seconds())
	for i, pr := range probes {
		_, err := netip.ParseAddr(pr.Host)
		if err != nil && !hostName.MatchString(pr.Host) || pr.Port < 1 || pr.Port > 65535 || pr.Net != "tcp" && pr.Net != "udp" || pr.Say == "" {
			return "", dreamcore.Errorf(dreamcore.Invalid, "sandbox.network", "the probe %q makes no sense", clip(pr.String()))
		}
		fmt.Fprintf(&b, "ask %d %s %s %d '%s' 2>/dev/null & p=\"$p $!\"\n", i, pr.Net, pr.Host, pr.Port, escaped(pr.Say))
	}
	// A connection that nobody answers takes minutes to fail.
	fmt.Fprintf(&b, `( trap 'kill $s' TERM; sleep %.3f & s=$!; wait $s && kill $p ) >/dev/null 2>&1 & k=$!
wait $p 2>/dev/null
kill $k 2>/dev/null
wait 2>/dev/null
printf '%s'
exit 0
`, (wait + time.Second).Seconds(), strings.ReplaceAll(probeEnd, "\n", `\n`))
	return b.String(), nil
}

// escaped writes bytes for printf's format, all of them by number.
func escaped(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\x%02x`, s[i])
	}
	return b.String()
}
