package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// sendTimeout bounds how long the other side may leave a message lying.
const sendTimeout = 20 * time.Second

// wire is one end of the socket pair. Messages are packets: whole or not at all.
type wire struct {
	conn *net.UnixConn
	send sync.Mutex
	data [maxMessageBytes + 1]byte
	oob  []byte
}

// pair makes both ends: the host's, and the file that the proxy inherits.
func pair() (host *wire, proxy *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	proxy = os.NewFile(uintptr(fds[1]), "control")
	near := os.NewFile(uintptr(fds[0]), "control")
	defer func() { _ = near.Close() }() // the wire has a copy
	if host, err = newWire(near); err != nil {
		_ = proxy.Close() // the first error is the one that matters
		return nil, nil, err
	}
	return host, proxy, nil
}

// newWire takes a socket as a wire; f stays the caller's.
func newWire(f *os.File) (*wire, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("use the control socket: %w", err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok || conn.LocalAddr().Network() != "unixpacket" {
		_ = c.Close() // it is not what was asked for
		return nil, errors.New("the control socket is not a packet socket")
	}
	return &wire{conn: conn, oob: make([]byte, unix.CmsgSpace(4*maxFiles))}, nil
}

// write sends a message with copies of the descriptors.
func (w *wire) write(v any, fds ...int) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	w.send.Lock()
	defer w.send.Unlock()
	if err := w.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, _, err = w.conn.WriteMsgUnix(data, oob, nil)
	return err
}

// read receives a message; its bytes are valid until the next call, its files
// are the caller's to close.
func (w *wire) read() (data []byte, files []*os.File, err error) {
	n, on, flags, _, err := w.conn.ReadMsgUnix(w.data[:], w.oob)
	if err != nil {
		return nil, nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(w.oob[:on])
	if err == nil {
		for _, m := range msgs {
			fds, ferr := unix.ParseUnixRights(&m)
			for _, fd := range fds {
				files = append(files, os.NewFile(uintptr(fd), "handed over"))
			}
			err = errors.Join(err, ferr)
		}
	}
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = fmt.Errorf("%w: it is cut", errForm)
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return w.data[:n], files, nil
}

func (w *wire) close() error { return w.conn.Close() }

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // a copy of a descriptor
	}
}

// peer returns who made the socket pair.
func (w *wire) peer() (*unix.Ucred, error) {
	raw, err := w.conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return nil, cerr
	}
	return cred, err
}

// handle is our own copy of a connection's descriptor.
type handle struct {
	mu sync.RWMutex // held for reading while fd is used
	fd int          // -1: closed
}

// copyOf makes a handle of a connection, which may be closed afterwards.
func copyOf(conn net.Conn) (*handle, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a connection of %T has no descriptor", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if cerr := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 3) }); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	return &handle{fd: fd}, nil
}

// cut ends the connection for everybody who has its descriptor.
func (h *handle) cut() {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.fd >= 0 {
		_ = unix.Shutdown(h.fd, unix.SHUT_RDWR) // it may be over already
	}
}

func (h *handle) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fd >= 0 {
		_ = unix.Close(h.fd) // others have copies
		h.fd = -1
	}
}

// use calls f with the descriptor while it is ours.
func (h *handle) use(f func(fd int) error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.fd < 0 {
		return net.ErrClosed
	}
	return f(h.fd)
}
