package gvisor

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"dreamcore"
	"dreamcore/internal/envd"
)

// Box is one computer, from its boot to its end.
type Box struct {
	ID string
	// Control is the connection that PID 1 opened; the host is the HTTP/2 client
	// on it. It breaks when the box ends.
	Control net.Conn
	// Egress accepts what the box sends out: its one way, and so the name of
	// whoever comes through it.
	Egress net.Listener

	r      *Runtime
	key    []byte        // what PID 1 proves itself with
	booted chan struct{} // closed when `runsc run` has returned
	kill   sync.Once
	killed error
	gone   chan struct{} // closed when nothing of it is left
	oom    bool
	last   string // the end of its log
}

// Boot starts a box whose root is the folder root and returns once its PID 1
// has proved itself. On failure nothing is left.
func (r *Runtime) Boot(ctx context.Context, id dreamcore.SandboxID, root string) (*Box, error) {
	return r.begin(ctx, id, func(ctx context.Context, b *Box) error { return b.boot(ctx, root) })
}

// begin makes the box id by the function boot. On failure nothing is left.
func (r *Runtime) begin(ctx context.Context, id dreamcore.SandboxID, boot func(context.Context, *Box) error) (*Box, error) {
	b := &Box{ID: string(id), r: r, booted: make(chan struct{}), gone: make(chan struct{})}
	r.mu.Lock()
	if r.lock == nil {
		r.mu.Unlock()
		return nil, fail(r.cfg.Lang, dreamcore.Unavailable, "engine.boot", "closed")
	}
	r.boxes[b.ID] = b
	r.mu.Unlock()
	err := r.spacious()
	if err == nil {
		err = boot(ctx, b)
	} else {
		err = b.unstarted(err)
	}
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) || full(r.cfg.Dir) || strings.Contains(err.Error(), "no space left") {
			err = fail(r.cfg.Lang, dreamcore.Refused, "engine.boot", "host_full").Because(errors.Join(err, syscall.ENOSPC))
		}
		// The caller's context may be what ended the boot.
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
		defer cancel()
		if kerr := b.Kill(kctx); kerr != nil {
			err = errors.Join(err, kerr)
		}
		return nil, fmt.Errorf("boot sandbox: %w", err)
	}
	return b, nil
}

func (b *Box) boot(ctx context.Context, root string) error {
	secret, err := newSecret()
	if err != nil {
		return b.unstarted(err)
	}
	spec, err := b.r.spec(b.ID, root, b.r.controlDir(b.ID)).encode()
	if err != nil {
		return b.unstarted(err)
	}
	return b.launch(ctx, launch{spec: spec, sandboxd: b.r.sandboxd(), key: secret, told: secret, verb: []string{"run"}})
}

// launch is what a box starts from.
type launch struct {
	spec     []byte   // the bundle's config.json
	sandboxd string   // the program that is PID 1
	key      []byte   // what PID 1 proves itself with
	told     []byte   // what it finds in its boot file to know the key
	flags    []string // runsc's, for this launch alone
	verb     []string // runsc's subcommand and what only it takes
}

func newSecret() ([]byte, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	return []byte(hex.EncodeToString(secret)), nil
}

// unstarted passes on why runsc was never started, so that nobody waits for it.
func (b *Box) unstarted(err error) error {
	close(b.booted)
	return err
}

func (b *Box) launch(ctx context.Context, l launch) error {
	started := false
	defer func() {
		if !started {
			close(b.booted)
		}
	}()
	dir, control := b.r.boxDir(b.ID), b.r.controlDir(b.ID)
	overlay := b.r.overlayDir(b.ID)
	for _, d := range []string{dir, control, overlay} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	if err := linkOrCopy(l.sandboxd, filepath.Join(control, sandboxdName)); err != nil {
		return err
	}
	b.key = l.key
	bootFile := filepath.Join(control, envd.BootFile)
	// The box sees the one, until it has called; the other is for us, should it
	// call again.
	if err := os.WriteFile(bootFile, l.told, 0o400); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, keyFile), b.key, 0o400); err != nil {
		return err
	}
	door, err := listen(control, envd.ControlSocket)
	if err != nil {
		return err
	}
	defer door.Close()
	if b.Egress, err = listen(control, envd.EgressSocket); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, specFile), l.spec, 0o600); err != nil {
		return err
	}
	logFile, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()

	args := slices.Concat(b.r.bootFlags(overlay), l.flags, l.verb)
	// Not bound to ctx: half a boot is ended by Kill, which knows what it made.
	cmd := b.r.command(context.WithoutCancel(ctx), append(args, "-detach", "-bundle", dir, "-pid-file", filepath.Join(dir, "pid"), b.ID)...)
	// Files, not pipes: a pipe would stay open in the box and hold Wait for ever.
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return err
	}
	started = true
	failed := make(chan error, 1)
	waiting, called := context.WithCancel(ctx)
	defer called()
	go func() {
		err := cmd.Wait()
		close(b.booted)
		if err == nil {
			err = b.dies(waiting)
		}
		if err != nil {
			failed <- err
		}
	}()

	if b.Control, err = b.accept(ctx, door, failed); err != nil {
		if ctx.Err() != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may not have left its group yet
		}
		return err
	}
	if err := b.boundDescriptors(); err != nil {
		return err
	}
	// The way in is used and its key is spent before any command can run.
	return errors.Join(os.Remove(bootFile), os.Remove(filepath.Join(control, envd.ControlSocket)))
}

// dies returns an error when the box's process has ended, and nil when ctx has.
// What runsc has detached from tells nobody of its end, and a PID 1 that ends at
// once would be waited for as long as one that is slow.
func (b *Box) dies(ctx context.Context) error {
	t := time.NewTicker(deathTick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if pid := b.sandboxPID(); pid != 0 && !b.r.owns(pid, string(b.ID)) {
			return errors.New("the sandbox ended before its PID 1 called")
		}
	}
}

const deathTick = 50 * time.Millisecond

// specFile in a box's folder is what runsc was told of it.
const specFile = "config.json"

// Reopen waits for PID 1 to call again, as it does for some seconds after its
// connection broke: when it was restored, or when the host is a new process.
// The way in exists only meanwhile. Control is the new connection then.
func (b *Box) Reopen(ctx context.Context) error {
	control := b.r.controlDir(b.ID)
	path := filepath.Join(control, envd.ControlSocket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	door, err := listen(control, envd.ControlSocket)
	if err != nil {
		return err
	}
	defer door.Close()
	defer os.Remove(path) // with the box's folder at the latest
	b.Control, err = b.accept(ctx, door, nil)
	return err
}

// accept waits for PID 1 at door. Whoever calls without the secret is hung up
// on: in a box that serves others there may be other programs of root.
func (b *Box) accept(ctx context.Context, door net.Listener, failed <-chan error) (net.Conn, error) {
	type call struct {
		conn net.Conn
		err  error
	}
	calls := make(chan call, 1)
	go func() {
		for {
			conn, err := door.Accept()
			if err == nil {
				if err = prove(ctx, conn, b.key); err != nil && ctx.Err() == nil {
					b.r.log.Warn("somebody called without the secret", "sandbox_id", b.ID, "decision", "hang up", "reason", err.Error())
					conn.Close()
					continue
				}
			}
			calls <- call{conn, err}
			return
		}
	}()
	var ended error
	select {
	case c := <-calls:
		if c.err != nil && c.conn != nil {
			c.conn.Close()
			c.conn = nil
		}
		return c.conn, c.err
	case <-ctx.Done():
		ended = ctx.Err()
	case err := <-failed:
		ended = fmt.Errorf("runsc run: %w: %s", err, b.logTail())
	}
	door.Close()
	if c := <-calls; c.conn != nil {
		c.conn.Close()
	}
	return nil, ended
}

// keyFile in a box's folder, which the box does not see, holds its secret.
const keyFile = "key"

// provePatience is how long a caller may take to prove itself.
const provePatience = 10 * time.Second

// prove reads the secret that only PID 1 can have.
func prove(ctx context.Context, conn net.Conn, key []byte) error {
	if err := conn.SetReadDeadline(time.Now().Add(provePatience)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	got := make([]byte, len(key)+1)
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("read the boot secret: %w", err)
	}
	if subtle.ConstantTimeCompare(got, append(key[:len(key):len(key)], '\n')) != 1 {
		return errors.New("whoever called has not the boot secret")
	}
	return conn.SetReadDeadline(time.Time{})
}

// logTail is the end of what runsc and PID 1 printed: untrusted, for logs.
func (b *Box) logTail() string {
	data, err := os.ReadFile(filepath.Join(b.r.boxDir(b.ID), "log"))
	if err != nil {
		return err.Error()
	}
	if len(data) > 1000 {
		data = data[len(data)-1000:]
	}
	return strings.TrimSpace(string(data))
}

// Death reports, after Kill, whether the memory wall ended the box, and the last
// that gVisor and PID 1 printed: untrusted, for logs.
func (b *Box) Death() (outOfMemory bool, last string) {
	<-b.gone
	return b.oom, b.last
}

// MemoryBytes is what the box takes of the host now, gVisor included; 0 when
// the machine cannot tell.
func (b *Box) MemoryBytes() int64 {
	if b.r.cgroups == nil {
		return 0
	}
	n, err := b.r.cgroups.memoryBytes(b.ID)
	if err != nil {
		return 0 // it has ended
	}
	return n
}

// Kill ends the box and removes everything of it: processes, control groups,
// sockets, folders. It may be called twice and returns once all is gone.
func (b *Box) Kill(ctx context.Context) error {
	b.kill.Do(func() {
		b.killed = b.destroy(ctx)
		b.r.mu.Lock()
		delete(b.r.boxes, b.ID)
		delete(b.r.aside, b.ID)
		b.r.mu.Unlock()
		close(b.gone)
	})
	return b.killed
}

func (b *Box) destroy(ctx context.Context) error {
	if b.Control != nil {
		b.Control.Close()
	}
	if b.Egress != nil {
		b.Egress.Close()
	}
	// The number may be another's by now, if the box died while nobody looked.
	if pid := b.sandboxPID(); pid > 0 && b.r.owns(pid, b.ID) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone already is fine
	}
	select {
	case <-b.booted: // runsc has written its state, so it can be told to delete it
	case <-ctx.Done():
	}
	if b.r.cgroups != nil {
		b.oom = b.r.cgroups.outOfMemory(b.ID)
	}
	b.last = b.logTail()
	return b.r.remove(ctx, b.ID)
}

// Alive reports whether the box's process on the host lives.
func (b *Box) Alive() bool {
	pid := b.sandboxPID()
	return pid > 0 && b.r.owns(pid, b.ID)
}

// sandboxPID is the box's process on the host, 0 while it is not known.
func (b *Box) sandboxPID() int {
	data, err := os.ReadFile(filepath.Join(b.r.boxDir(b.ID), "pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

// listen makes a Unix socket in dir. A socket's address holds 107 bytes and
// folders are longer, so it goes through the folder's descriptor.
func listen(dir, name string) (net.Listener, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	// Removed with the box's folder; by this name it would be another file.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(filepath.Join(dir, name), 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
