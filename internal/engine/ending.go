package engine

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"
)

// ending is the answer to a streaming call. When the stream breaks because its box
// is paused, it ends with an error in the protocol's form that says so: broken off
// it looks to a client as if the box had been killed. The code is the one by which
// E2B's clients know that a box does not run.
//
// Only between two messages can anything be said.
type ending struct {
	io.ReadCloser
	paused func() bool // waits until it is known what becomes of the box

	head [envelopeBytes]byte // of the message that passes
	have int                 // bytes of head
	left uint32              // bytes of the message
	last bool                // it is the stream's end
	tail []byte              // what is added
	over error               // what Read returns when tail is empty
}

const (
	envelopeBytes = 5    // a message's flags and length
	flagEnd       = 0x02 // it is the last, and says how the stream ended
)

// streams reports whether an answer is a stream of messages.
func streams(res *http.Response) bool {
	return res.StatusCode == http.StatusOK && strings.HasPrefix(res.Header.Get("Content-Type"), "application/connect+")
}

// Read passes the stream on.
func (s *ending) Read(p []byte) (int, error) {
	if s.over == nil {
		n, err := s.ReadCloser.Read(p)
		s.pass(p[:n])
		if err == nil {
			return n, nil
		}
		s.over = err
		if !s.last && s.have == 0 && !errors.Is(err, io.EOF) && s.paused() {
			s.tail, s.over = pausedEnd(), io.EOF
		}
		if n > 0 {
			return n, nil
		}
	}
	if len(s.tail) > 0 {
		n := copy(p, s.tail)
		s.tail = s.tail[n:]
		return n, nil
	}
	return 0, s.over
}

// pass notes where in a message the stream is.
func (s *ending) pass(p []byte) {
	for len(p) > 0 {
		if s.have < envelopeBytes {
			n := copy(s.head[s.have:], p)
			s.have, p = s.have+n, p[n:]
			if s.have < envelopeBytes {
				return
			}
			s.last = s.head[0]&flagEnd != 0
			s.left = binary.BigEndian.Uint32(s.head[1:])
		}
		n := min(uint32(min(len(p), 1<<30)), s.left)
		s.left, p = s.left-n, p[n:]
		if s.left == 0 {
			s.have = 0
		}
	}
}

// pausedEnd is the last message of a stream to a box that was paused.
func pausedEnd() []byte {
	body, err := json.Marshal(map[string]any{"error": map[string]string{
		"code": connect.CodeUnavailable.String(), "message": "The sandbox was paused; connect to it and it goes on",
	}})
	if err != nil {
		panic(err) // strings can be encoded
	}
	return append(binary.BigEndian.AppendUint32([]byte{flagEnd}, uint32(len(body))), body...)
}
