package gvisor

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"
)

// FuzzDoor: nobody but whoever has the secret comes in, in however many pieces
// it is sent, and nobody keeps the door shut for others by being slow.
func FuzzDoor(f *testing.F) {
	key := bytes.Repeat([]byte("0123456789abcdef"), 4)
	for _, s := range []string{"", "\n", string(key), string(key) + "\n", string(key) + "\nPRI * HTTP/2.0", string(key[1:]) + "\n", "\x00", string(bytes.Repeat([]byte("x"), 1000))} {
		f.Add([]byte(s), byte(7))
	}
	f.Fuzz(func(t *testing.T, sent []byte, piece byte) {
		host, box := net.Pipe()
		defer host.Close()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if len(sent) <= len(key) {
				defer box.Close() // else it stays, as one does that was let in
			}
			_ = box.SetWriteDeadline(time.Now().Add(10 * time.Second))
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), int(piece)+1)
				if _, err := box.Write(rest[:n]); err != nil {
					return // the host has heard enough
				}
				rest = rest[n:]
			}
		}()
		err := prove(context.Background(), host, key)
		if want := bytes.HasPrefix(sent, append(bytes.Clone(key), '\n')); (err == nil) != want {
			t.Errorf("%q: %v", sent, err)
		}
		host.Close()
		<-gone
		box.Close()
	})
}

// Whoever only stands there is sent away when the boot is given up.
func TestDoorIsNotKept(t *testing.T) {
	host, box := net.Pipe()
	defer box.Close()
	ctx, cancel := context.WithCancel(t.Context())
	proved := make(chan error, 1)
	go func() { proved <- prove(ctx, host, []byte("secret")) }()
	if _, err := box.Write([]byte("sec")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-proved; err == nil {
		t.Error("half a secret opened the door")
	}
}
