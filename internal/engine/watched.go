package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
)

// watched is the connection that a box's PID 1 opened, as the HTTP/2 client sees
// it. It tells when it is over: when it breaks, or when the client gives it up
// because the box breaks the protocol's rules. And it breaks at a frame of a kind
// that ours never sends: the client would print a line for each of them.
type watched struct {
	net.Conn
	frames *bufio.Reader
	left   int // of the frame that is being read
	broken func()
}

const frameHeaderBytes = 9

// errGoAway says that PID 1 takes no more requests on its connection.
var errGoAway = errors.New("the sandbox sent GOAWAY")

func watch(conn net.Conn, broken func()) *watched {
	return &watched{Conn: conn, frames: bufio.NewReaderSize(conn, 32<<10), broken: broken}
}

// Read reads of one frame at a time.
func (c *watched) Read(p []byte) (int, error) {
	if c.left == 0 {
		if err := c.next(); err != nil {
			c.broken()
			return 0, err
		}
	}
	n, err := c.frames.Read(p[:min(len(p), c.left)])
	c.left -= n
	if err != nil {
		c.broken()
	}
	return n, err
}

// next looks at the header of the next frame and leaves it to be read.
func (c *watched) next() error {
	h, err := c.frames.Peek(frameHeaderBytes)
	if err != nil {
		return err
	}
	switch kind := http2.FrameType(h[3]); {
	case kind > http2.FrameContinuation:
		return fmt.Errorf("the sandbox sent a frame of the unknown kind %d", kind)
	case kind == http2.FrameGoAway:
		// The client would keep the connection and make no request on it any more.
		return errGoAway
	}
	c.left = frameHeaderBytes + int(h[0])<<16 + int(h[1])<<8 + int(h[2])
	return nil
}

// Close ends it.
func (c *watched) Close() error {
	defer c.broken()
	return c.Conn.Close()
}

const (
	// PID 1 calls within a tenth of a second when its connection has broken.
	reconnectPatience = 10 * time.Second
	// A box whose connection breaks again so soon breaks the rules.
	reconnectApart = 30 * time.Second
)

// watch looks after b's connection to its PID 1. When that breaks and nobody meant
// it to, b goes on over a new one if it lives and calls, and is ended if not.
func (e *Engine) watch(b *box) {
	var last time.Time // a connection was made anew
	for {
		c, thawed := b.line()
		select {
		case <-c.broken:
		case <-b.ctx.Done():
			return
		}
		if thawed == nil {
			// Perhaps it was frozen since.
			var now blank
			if now, thawed = b.line(); thawed == nil && now.broken == c.broken {
				if !e.reconnect(b, time.Since(last) < reconnectApart) {
					return
				}
				last = time.Now()
				continue
			}
		}
		if thawed == nil {
			continue
		}
		select {
		case <-thawed:
		case <-b.ctx.Done():
			return
		}
	}
}

// reconnect lets b go on over a new connection, or ends it: then it is false.
func (e *Engine) reconnect(b *box, again bool) bool {
	begun := time.Now()
	if b.ctx.Err() != nil {
		return false // that is how it was ended, or left
	}
	if !b.machine.Alive() {
		e.finish(b, reasonDied) // which says so
		return false
	}
	if again {
		e.log.Warn("the connection to a sandbox broke", "sandbox_id", b.id, "decision", "end it", "reason", "it broke twice within "+reconnectApart.String())
		e.finish(b, reasonDied)
		return false
	}
	if b.freeze(e.cfg.Lang) != nil {
		return true // whoever has frozen it meanwhile lets it go on or ends it
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	go b.expectEnd(ctx, cancel)
	if err := e.reopenWithin(ctx, b, reconnectPatience); err != nil {
		if b.reason() != reasonKilled && b.reason() != reasonEngine {
			e.log.Warn("the connection to a sandbox broke", "sandbox_id", b.id, "decision", "end it", "reason", clip(err.Error(), 300))
		}
		return false
	}
	e.log.Warn("the connection to a sandbox broke", "sandbox_id", b.id, "decision", "go on over a new one", "dur_ms", time.Since(begun).Milliseconds())
	return true
}

// expectEnd calls ended when b's process ends, until ctx ends: what does not run
// does not call.
func (b *box) expectEnd(ctx context.Context, ended func()) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !b.machine.Alive() {
			ended()
			return
		}
	}
}
