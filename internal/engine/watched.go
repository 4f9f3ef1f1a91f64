package engine

import (
	"bufio"
	"fmt"
	"net"

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
	if kind := http2.FrameType(h[3]); kind > http2.FrameContinuation {
		return fmt.Errorf("the sandbox sent a frame of the unknown kind %d", kind)
	}
	c.left = frameHeaderBytes + int(h[0])<<16 + int(h[1])<<8 + int(h[2])
	return nil
}

// Close ends it.
func (c *watched) Close() error {
	defer c.broken()
	return c.Conn.Close()
}
