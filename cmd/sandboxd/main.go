// Command sandboxd is PID 1 of a sandbox: it dials the host's control socket,
// serves the in-sandbox protocol on that connection, reaps orphans, relays the
// one way out and ends the biggest process before the box's memory is spent.
// It takes no arguments and is of no use outside a box.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"dreamcore/internal/envd"
)

// hostPatience is about how long a box without its host keeps trying before it ends:
// a host that restarts comes back within it, one that died leaves nothing.
const hostPatience = 30 * time.Second

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(log); err != nil {
		log.Error("sandboxd ends", "reason", err.Error())
		os.Exit(1)
	}
}

func run(log *slog.Logger) error {
	// The secret and the host's connection are in this process's memory: no
	// other may read it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid dumps: %w", err)
	}
	// A write to a program that has ended is an error, not the end of the box.
	// Caught and not ignored: that every command would inherit, and a program
	// whose reader has gone would not end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	syscall.Umask(0o022)

	k := &key{file: filepath.Join(envd.ControlDir, envd.BootFile)}
	if err := k.read(); err != nil {
		return fmt.Errorf("read the boot secret: %w", err)
	}
	// The host has its own to do with the connection, while this side gets ready to
	// serve it. Nothing is served before.
	again := func() (net.Conn, error) { return dialHost(k) }
	first := meanwhile(again)
	if err := boundFiles(envd.MemoryFolders); err != nil {
		return err
	}
	if err := giveUpMounts(); err != nil {
		return err
	}
	if err := ownHome("user"); err != nil {
		return fmt.Errorf("give the user's home away: %w", err)
	}
	d := &daemon{log: log, server: envd.New(envd.Config{Log: log})}
	mux := http.NewServeMux()
	mux.Handle("/", d.server.Handler())
	mux.HandleFunc("POST "+envd.InitPath, d.serveInit)
	mux.HandleFunc("POST "+envd.DialPath, serveDial)
	mux.HandleFunc("GET "+envd.StatePath, d.server.ServeState)
	mux.HandleFunc("POST "+envd.WatchPath, d.server.ServeWatch)

	attend(func() (net.Conn, error) {
		dial := first
		first = again
		return dial()
	}, func(conn net.Conn) {
		serve(conn, mux)
		d.server.HostGone()
	}, time.Sleep)
	return errors.New("the host is gone")
}

// attend serves the host, again and again, until it was away for too long.
//
// That is counted in sleeps and not read from the clock: a box that was saved
// while it waited finds the clock far ahead when it goes on, and its host has
// only begun to wait for it.
func attend(dial func() (net.Conn, error), serve func(net.Conn), sleep func(time.Duration)) {
	for away := time.Duration(0); away < hostPatience; {
		conn, err := dial()
		if err != nil {
			// Often at first: whoever restored or adopted the box waits for it.
			d := min(max(away/50, 5*time.Millisecond), 100*time.Millisecond)
			sleep(d)
			away += d
			continue
		}
		serve(conn)
		away = 0
	}
}

// meanwhile begins f and returns what waits for its end.
func meanwhile(f func() (net.Conn, error)) func() (net.Conn, error) {
	type call struct {
		conn net.Conn
		err  error
	}
	done := make(chan call, 1)
	go func() {
		conn, err := f()
		done <- call{conn, err}
	}()
	return func() (net.Conn, error) {
		c := <-done
		return c.conn, c.err
	}
}

func dialHost(k *key) (net.Conn, error) {
	conn, err := net.Dial("unix", filepath.Join(envd.ControlDir, envd.ControlSocket))
	if err != nil {
		return nil, err
	}
	// In this order: whatever copy of the box wakes up in between, it has a
	// connection that is broken, and not one with another's secret.
	if err := k.renew(); err != nil {
		conn.Close()
		return nil, err
	}
	if _, err := conn.Write(append(k.secret[:len(k.secret):len(k.secret)], '\n')); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// key is what PID 1 proves itself with.
type key struct {
	file   string
	secret []byte
	nonce  []byte // what secret was last renewed with
}

func (k *key) read() (err error) {
	k.secret, err = os.ReadFile(k.file)
	return err
}

// renew makes a new secret when the host has laid down a nonce: then this is a
// copy of the box that the secret was for.
func (k *key) renew() error {
	nonce, err := os.ReadFile(k.file)
	if errors.Is(err, os.ErrNotExist) || err == nil && (bytes.Equal(nonce, k.nonce) || bytes.Equal(nonce, k.secret)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the boot file: %w", err)
	}
	k.secret, k.nonce = envd.NextSecret(k.secret, nonce), nonce
	return nil
}

// serve speaks HTTP/2 on conn until it breaks.
func serve(conn net.Conn, h http.Handler) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Handler:   h,
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          4096,
			MaxReadFrameSize:              1 << 20,
			MaxReceiveBufferPerConnection: 16 << 20,
			MaxReceiveBufferPerStream:     4 << 20,
		},
	}
	l := &single{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conn <- &watched{Conn: conn, closed: sync.OnceFunc(func() { close(l.done) })}
	_ = s.Serve(l) // ends by the listener when the connection is closed
	_ = s.Close()
}

// single is a listener of one connection; it ends with it.
type single struct {
	conn chan net.Conn
	done chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return &net.UnixAddr{Name: envd.ControlSocket, Net: "unix"} }

type watched struct {
	net.Conn
	closed func()
}

func (c *watched) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// daemon is what the host may ask of PID 1 beside the protocol.
type daemon struct {
	log    *slog.Logger
	server *envd.Server

	mu    sync.Mutex
	relay net.Listener
	watch context.CancelFunc
}

func (d *daemon) serveInit(w http.ResponseWriter, r *http.Request) {
	var in envd.Init
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := d.init(in); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (d *daemon) init(in envd.Init) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server.SetEnv(in.Env)
	if err := mark(envd.MarkDir, in.Env); err != nil {
		d.log.Warn("programs cannot read what sandbox this is", "reason", err.Error())
	}
	if in.Sudo {
		if err := allowSudo(); err != nil {
			// The box is sound without it: an image may have no sudo.
			d.log.Warn("the user cannot become root with sudo", "reason", err.Error())
		}
	}
	switch {
	case in.Egress && d.relay == nil:
		l, err := net.Listen("tcp", envd.RelayAddr)
		if err != nil {
			return fmt.Errorf("listen for the relay: %w", err)
		}
		d.relay = l
		go d.relayAll(l)
	case !in.Egress && d.relay != nil:
		d.relay.Close()
		d.relay = nil
	}
	if d.watch != nil {
		d.watch()
		d.watch = nil
	}
	if in.MemoryBytes > 0 {
		ctx, cancel := context.WithCancel(context.Background())
		d.watch = cancel
		go d.server.WatchMemory(ctx, in.MemoryBytes, in.Sudo)
	}
	return nil
}

// Where sudo is, and the line that lets the user use it.
const (
	sudoProgram = "/usr/bin/sudo"
	sudoRule    = "/etc/sudoers.d/dreamcore"
	sudoLine    = "user ALL=(ALL:ALL) NOPASSWD: ALL\n"
)

// allowSudo gives sudo the set-id bit and the line that images lack. Both are
// inside this box only, and mean nothing where the host has not allowed set-id
// programs.
func allowSudo() error {
	if err := os.Chmod(sudoProgram, 0o755|os.ModeSetuid); err != nil {
		return fmt.Errorf("allow sudo: %w", err)
	}
	if err := os.WriteFile(sudoRule, []byte(sudoLine), 0o440); err != nil {
		return fmt.Errorf("allow sudo: %w", err)
	}
	return nil
}

// relayAll carries every connection to the host's socket: the one way out.
func (d *daemon) relayAll(l net.Listener) {
	for {
		in, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.log.Warn("the relay cannot accept", "reason", err.Error())
			time.Sleep(50 * time.Millisecond)
			continue
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("unix", filepath.Join(envd.ControlDir, envd.EgressSocket))
			if err != nil {
				d.log.Warn("the host's egress socket does not answer", "reason", err.Error())
				return
			}
			defer out.Close()
			join(in, out)
		}()
	}
}

// halfCloser is a connection whose two directions end one by one.
type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

// join copies both ways until both have ended.
func join(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, x := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_, _ = io.Copy(x[0], x[1]) // either side may break off; the other learns it by the close
			if c, ok := x[0].(halfCloser); ok {
				_ = c.CloseWrite()
			}
		}()
	}
	wg.Wait()
}

// serveDial turns a request into a byte stream to a port of the box's loopback.
func serveDial(w http.ResponseWriter, r *http.Request) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", r.URL.Query().Get("port")), 5*time.Second)
	if err != nil {
		http.Error(w, "the port is closed", http.StatusBadGateway)
		return
	}
	defer conn.Close()
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	if err := rc.Flush(); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(conn, r.Body)
		if c, ok := conn.(halfCloser); ok {
			_ = c.CloseWrite()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || rc.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
