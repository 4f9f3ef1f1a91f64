package probe

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// connect tries an address; its control is a listener of the probe's own.
func connect(a Attempt) Outcome {
	network := string(a.Kind)
	own, stop, err := twin(network, a.Target)
	if err != nil {
		return Outcome{Says: "no control: " + err.Error()}
	}
	defer stop()
	o := Outcome{Control: knock(network, own) == nil}
	if err := knock(network, a.Target); err != nil {
		o.Says = err.Error()
	} else {
		o.Reached = true
	}
	return o
}

// knock connects; by UDP an answer must come.
func knock(network, address string) error {
	conn, err := net.DialTimeout(network, address, wait)
	if err != nil {
		return err
	}
	defer conn.Close()
	if network != "udp" {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(wait))
	if _, err := conn.Write(question("example.com")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 512))
	return err
}

// twin listens on something like target that is the probe's own.
func twin(network, target string) (string, func(), error) {
	host := "127.0.0.1"
	if strings.HasPrefix(target, "[") && !strings.Contains(target, "::ffff:") {
		host = "::1"
	}
	switch network {
	case "udp":
		c, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
		if err != nil {
			return "", nil, err
		}
		go serveDNS(c)
		return c.LocalAddr().String(), func() { c.Close() }, nil
	case "unix":
		name := "@probe-" + time.Now().Format("150405.000000000")
		if !strings.HasPrefix(target, "@") {
			dir, err := os.MkdirTemp(scratch, "")
			if err != nil {
				return "", nil, err
			}
			name = filepath.Join(dir, "s")
		}
		l, err := net.Listen("unix", name)
		if err != nil {
			return "", nil, err
		}
		return name, func() {
			l.Close()
			if !strings.HasPrefix(name, "@") {
				_ = os.RemoveAll(filepath.Dir(name)) // the sandbox ends soon
			}
		}, nil
	}
	l, err := net.Listen(network, net.JoinHostPort(host, "0"))
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() { l.Close() }, nil
}

// question is a DNS message that asks for a name's address.
func question(name string) []byte {
	msg := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, part := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		msg = append(append(msg, byte(len(part))), part...)
	}
	return append(msg, 0, 0, 1, 0, 1)
}

// serveDNS answers every question with 127.0.0.1.
func serveDNS(c net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		end := 12
		for end < n && buf[end] != 0 {
			end += 1 + int(buf[end])
		}
		if end += 5; end > n {
			continue
		}
		kind := binary.BigEndian.Uint16(buf[end-4:])
		answer := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, buf[12:end]...)
		if kind == 1 {
			answer[7] = 1
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
		}
		_, _ = c.WriteTo(answer, from) // whoever asks asks again
	}
}

// lookUp resolves a name; its control asks a server of the probe's own.
func lookUp(ctx context.Context, a Attempt) Outcome {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return Outcome{Says: "no control: " + err.Error()}
	}
	defer c.Close()
	go serveDNS(c)
	ask := func(server string) error {
		r := net.Resolver{PreferGo: true}
		if server != "" {
			r.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "udp", server)
			}
		}
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := r.LookupHost(ctx, string(a.Data))
		return err
	}
	o := Outcome{Control: ask(c.LocalAddr().String()) == nil}
	if err := ask(a.Target); err != nil {
		o.Says = err.Error()
	} else {
		o.Reached = true
	}
	return o
}

// rights sends a descriptor over a socket and looks whether one comes back. Its
// control is a pair of its own.
func rights(a Attempt) Outcome {
	pass := func(fd int) error {
		return syscall.Sendmsg(fd, []byte("GET / HTTP/1.1\r\nHost: 127.0.0.1:4000\r\nConnection: close\r\n\r\n"), syscall.UnixRights(0), nil, 0)
	}
	got := func(fd int) bool {
		_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: 3})
		data, control := make([]byte, 512), make([]byte, 256)
		_, n, _, _, err := syscall.Recvmsg(fd, data, control, 0)
		return err == nil && n > 0
	}
	var o Outcome
	if pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); err == nil {
		o.Control = pass(pair[0]) == nil && got(pair[1])
		_ = syscall.Close(pair[0])
		_ = syscall.Close(pair[1])
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		o.Says = err.Error()
		return o
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: a.Target}); err != nil {
		o.Says = err.Error()
		return o
	}
	if err := pass(fd); err != nil {
		o.Says = err.Error()
		return o
	}
	o.Reached = got(fd)
	o.Says = "taken, and nothing came back"
	return o
}

// links lists interfaces that are not the loopback.
func links() Outcome {
	all, err := net.Interfaces()
	if err != nil {
		return Outcome{Says: err.Error()}
	}
	var o Outcome
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			o.Control = true
			continue
		}
		o.Reached = true
		o.Says += i.Name + " "
	}
	return o
}

// sockets lists sockets in the file system; its control is one of its own.
func sockets() Outcome {
	own, stop, err := twin("unix", "/x")
	if err != nil {
		return Outcome{Says: "no control: " + err.Error()}
	}
	defer stop()
	var o Outcome
	var found []string
	_ = filepath.WalkDir("/", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.IsDir() && (path == "/proc" || path == "/sys" || path == "/usr"):
			return filepath.SkipDir
		case d.Type()&os.ModeSocket == 0:
		case path == own:
			o.Control = true
		default:
			found = append(found, path)
		}
		return nil
	})
	o.Answer = []byte(strings.Join(found, "\n"))
	o.Reached = len(found) > 0
	return o
}
