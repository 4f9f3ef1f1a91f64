package gvisor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/engine/gvisor"
	"dreamcore/internal/envd"
)

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.CleanUp()
	os.Exit(code)
}

func runtimeIn(t *testing.T, dir string) (*gvisor.Runtime, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	p := enginetest.Programs(t)
	r := gvisor.New(gvisor.Config{
		Dir: dir, Runsc: p.Runsc, Sandboxd: p.Sandboxd, Profile: gvisor.Job,
		Limits: gvisor.Limits{MemoryBytes: 1 << 30, CPUs: 2, Processes: 256, DiskBytes: 256 << 20},
	})
	if _, err := r.Open(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r, ctx
}

// knock calls at a box's control socket with a secret and reports whether the
// host let the caller in: it does not hang up then.
func knock(t *testing.T, dir, key string) bool {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var conn net.Conn
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if conn, err = net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), envd.ControlSocket)); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(key + "\n")); err != nil {
		return false
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	return !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET)
}

// A copy of a box proves itself with a secret of its own; the secret of the box
// that it is a copy of opens nothing there, and its own opens nothing else.
func TestRestoredBoxHasItsOwnSecret(t *testing.T) {
	dir := t.TempDir()
	r, ctx := runtimeIn(t, dir)
	root := enginetest.Image(t)
	parent, err := r.Boot(ctx, dreamcore.NewSandboxID(), root)
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	if err := parent.Checkpoint(ctx, state); err != nil {
		t.Fatal(err)
	}
	if err := parent.Checkpoint(ctx, state); err == nil {
		t.Fatal("a checkpoint was written over another")
	}
	if _, err := os.Stat(filepath.Join(state, "files.json")); err != nil {
		t.Errorf("the first checkpoint is gone: %v", err)
	}
	if err := parent.Reopen(ctx); err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	key := func(id string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(r.BoxDir(dreamcore.SandboxID(id)), "key"))
		if err != nil {
			t.Fatal(err)
		}
		keys[string(data)] = true
		return string(data)
	}
	former := key(parent.ID)
	var copies []*gvisor.Box
	for range 2 {
		c, err := r.Restore(ctx, dreamcore.NewSandboxID(), root, state)
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, c)
		key(c.ID)
		control := filepath.Join(r.BoxDir(dreamcore.SandboxID(c.ID)), "control")
		if _, err := os.Stat(filepath.Join(control, envd.BootFile)); err == nil {
			t.Error("the boot file is still there")
		}
	}
	if len(keys) != 3 {
		t.Fatalf("%d secrets of three boxes", len(keys))
	}
	for _, x := range []struct {
		box *gvisor.Box
		key string
	}{{copies[0], former}, {copies[0], key(copies[1].ID)}, {parent, key(copies[0].ID)}} {
		// The box itself calls as soon as its connection breaks, and the door is
		// shut behind it: whoever knocks has to be first, so the box is held.
		who, err := x.box.Identity()
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(who.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		control := filepath.Join(r.BoxDir(dreamcore.SandboxID(x.box.ID)), "control")
		x.box.Control.Close()
		if err := os.Remove(filepath.Join(control, envd.ControlSocket)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- x.box.Reopen(ctx) }()
		if knock(t, control, x.key) {
			t.Error("a box was opened with another's secret")
		}
		if err := syscall.Kill(who.PID, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	// What came of the secrets is the boxes themselves: each speaks.
	for _, b := range append(copies, parent) {
		if _, err := b.Control.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 9)
		if err := b.Control.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b.Control, head); err != nil || head[3] != 4 {
			t.Errorf("%s says %x (%v)", b.ID, head, err)
		}
		if err := b.Kill(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// The next secret follows from the former and the nonce, and from nothing less.
func TestNextSecret(t *testing.T) {
	a := envd.NextSecret([]byte("former"), []byte("nonce"))
	for name, b := range map[string][]byte{
		"another nonce":  envd.NextSecret([]byte("former"), []byte("nonce2")),
		"another former": envd.NextSecret([]byte("former2"), []byte("nonce")),
		"nothing":        envd.NextSecret(nil, []byte("nonce")),
	} {
		if bytes.Equal(a, b) {
			t.Errorf("%s makes the same secret", name)
		}
	}
	if !bytes.Equal(a, envd.NextSecret([]byte("former"), []byte("nonce"))) || len(a) != 64 {
		t.Errorf("%s", a)
	}
}
