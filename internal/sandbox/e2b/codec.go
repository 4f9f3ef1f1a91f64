package e2b

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// What one message of a box may make the host hold. Messages come from the box,
// and two bytes of one may say "one more entry", which takes a hundred times as
// many here; packed, they are a thousandth.
const (
	maxMessageBytes = 16 << 20 // of any message: the longest is the list of a folder
	maxEventBytes   = 2 << 20  // of one event of a process: a daemon sends some KiB at a time
	maxFields       = 250_000  // of one message's own level
)

// frugal is the binary encoding, decoding nothing that would take much more
// memory than it has bytes.
type frugal struct{}

// Name is the encoding's in the content type.
func (frugal) Name() string { return "proto" }

// Marshal encodes a message of our own.
func (frugal) Marshal(m any) ([]byte, error) {
	p, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", m)
	}
	return proto.Marshal(p)
}

// Unmarshal decodes a message of a box.
func (frugal) Unmarshal(data []byte, m any) error {
	p, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", m)
	}
	n := 0
	for rest := data; len(rest) > 0; n++ {
		_, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if n == maxFields {
			return fmt.Errorf("the message has more than %d fields", maxFields)
		}
		rest = rest[size:]
	}
	return proto.Unmarshal(data, p)
}
