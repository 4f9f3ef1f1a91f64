// Package control puts the key proxy into a process of its own: the host's half
// starts it, watches it and tells it which jobs are open; the proxy's half
// confines itself and serves what it is handed. Between them is one socket pair
// on which a message is a packet. Connections of sandboxes go over it as
// descriptors, so that no byte of a sandbox is ever read in the host, and keys
// as the descriptors of their files, so that none is in the host's memory.
package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"dreamcore"
	"dreamcore/internal/keyproxy"
)

// Bounds of a message. Terms and settings are a few KB.
const (
	maxMessageBytes = 96 << 10
	maxFiles        = 64
)

// The operations that the host asks for.
const (
	opStart  = "start"  // first and once: Start
	opKeys   = "keys"   // Start again, of which only the keys count
	opOpen   = "open"   // Terms
	opClose  = "close"  // Job, Attempt
	opUsage  = "usage"  // Job
	opHealth = "health" // also asked to see whether it lives
	opConn   = "conn"   // Conn, and Channel unless it is Remote; one descriptor, no reply but Done
)

// request is a message of the host.
type request struct {
	ID      int64              `json:"id"`
	Op      string             `json:"op"`
	Start   *Settings          `json:"start,omitempty"`
	Terms   *keyproxy.JobTerms `json:"terms,omitempty"`
	Job     dreamcore.JobID    `json:"job,omitempty"`
	Attempt int                `json:"attempt,omitempty"`
	Channel string             `json:"channel,omitempty"`
	Remote  bool               `json:"remote,omitempty"`
}

// reply is a message of the proxy: to the request ID, or that the connection
// Done has ended.
type reply struct {
	ID     int64            `json:"id,omitempty"`
	Done   int64            `json:"done,omitempty"`
	Fault  *fault           `json:"fault,omitempty"`
	Ready  *Ready           `json:"ready,omitempty"`
	Usage  *dreamcore.Usage `json:"usage,omitempty"`
	Health *keyproxy.Health `json:"health,omitempty"`
	// Seal is the audit's last record, beside Usage in answer to opClose.
	Seal *keyproxy.Seal `json:"seal,omitempty"`
	// Changed is how many keys are others than before, in answer to opKeys.
	Changed int `json:"changed,omitempty"`
}

// fault is an error on its way to the host.
type fault struct {
	Code dreamcore.Code `json:"code"`
	Op   string         `json:"op"`
	Msg  string         `json:"msg"`
	Hint string         `json:"hint,omitempty"`
}

// Ready is what a proxy that has started says of itself.
type Ready struct {
	// CA is the certificate, in PEM, by which clients of remote connections
	// know the proxy; "" when it serves none.
	CA string `json:"ca,omitempty"`
	// Lost is how many calls a former life was cut in; they are charged whole.
	Lost int `json:"lost,omitempty"`
}

// Settings is what a proxy is started with. There is no key in it.
type Settings struct {
	// Verifier is the public half of the host's minter.
	Verifier string `json:"verifier"`
	// Verbose lets it log what is for developers.
	Verbose bool `json:"verbose,omitempty"`
	// RemoteName is the host name under which sandboxes of a remote engine reach
	// the proxy by TLS; "" when there are none.
	RemoteName string `json:"remote_name,omitempty"`
	// Opening says which of the message's descriptors has the key that opens
	// sealed keys, counted from 1; 0 means that there is none.
	Opening int                            `json:"opening,omitempty"`
	Sources map[dreamcore.Feature][]Source `json:"sources"`
}

// Source is an upstream and where its key is.
type Source struct {
	Upstream keyproxy.Upstream `json:"upstream"`
	// BuiltIn names a stand-in that runs in the proxy's own process.
	BuiltIn string `json:"built_in,omitempty"`
	// Markers lets a wish make the stand-in model misbehave; for tests.
	Markers bool `json:"markers,omitempty"`
	// KeyFile says which of the message's descriptors the key is read from,
	// counted from 1; 0 means that there is none.
	KeyFile int `json:"key_file,omitempty"`
}

var (
	errForm    = errors.New("a message is not in its one form")
	errTooLong = errors.New("a message is too long")
)

// encode writes a message in its one form.
func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(data) > maxMessageBytes {
		return nil, fmt.Errorf("%w: %d bytes of at most %d", errTooLong, len(data), maxMessageBytes)
	}
	return data, nil
}

// decode reads a message. Both ends are the same program, so a message has one
// form only: what encode does not write back byte for byte (a field twice or
// unknown, another case, a second document, a space) is refused.
func decode(data []byte, v any) error {
	if len(data) == 0 || len(data) > maxMessageBytes {
		return fmt.Errorf("%w: %d bytes", errForm, len(data))
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", errForm, err)
	}
	again, err := json.Marshal(v)
	if err != nil || !bytes.Equal(again, data) {
		return errForm
	}
	return nil
}

// decodeRequest reads a message of the host and checks that it has what its
// operation needs, and the descriptors, and nothing else.
func decodeRequest(data []byte, files int) (request, error) {
	var r request
	if err := decode(data, &r); err != nil {
		return r, err
	}
	want := request{ID: r.ID, Op: r.Op}
	fits, needs := false, 0
	switch r.Op {
	case opStart, opKeys:
		want.Start = r.Start
		if fits = r.Start != nil; fits {
			needs = r.Start.Opening
			fits = needs >= 0 && needs <= maxFiles
			for _, list := range r.Start.Sources {
				for _, s := range list {
					needs = max(needs, s.KeyFile)
					fits = fits && s.KeyFile >= 0 && s.KeyFile <= maxFiles
				}
			}
		}
	case opOpen:
		want.Terms, fits = r.Terms, r.Terms != nil
	case opClose:
		want.Job, want.Attempt, fits = r.Job, r.Attempt, r.Job != "" && r.Attempt > 0
	case opUsage:
		want.Job, fits = r.Job, r.Job != ""
	case opHealth:
		fits = true
	case opConn:
		want.Channel, want.Remote, needs = r.Channel, r.Remote, 1
		fits = (r.Channel == "") == r.Remote
	}
	if !fits || r.ID < 1 || files != needs || want != r {
		return r, fmt.Errorf("%w: operation %.20q", errForm, r.Op)
	}
	return r, nil
}

// Bounds of what a proxy says.
const (
	maxTextBytes = 4 << 10
	maxCABytes   = 16 << 10
	maxSaid      = 300 // letters of a text, each at most 10 bytes when it is escaped
)

// decodeReply reads a message of the proxy. Nothing in it is believed that
// could not be true.
func decodeReply(data []byte) (reply, error) {
	var r reply
	if err := decode(data, &r); err != nil {
		return r, err
	}
	fits := (r.ID > 0) != (r.Done > 0) && r.ID >= 0 && r.Done >= 0 && r.Changed >= 0
	said := 0
	if r.Fault != nil {
		said++
		f := r.Fault
		fits = fits && knownCode(f.Code) && len(f.Op) <= 100 && len(f.Msg) <= maxTextBytes && len(f.Hint) <= maxTextBytes
	}
	if r.Ready != nil {
		said++
		fits = fits && len(r.Ready.CA) <= maxCABytes && r.Ready.Lost >= 0
	}
	if u := r.Usage; u != nil {
		said++
		fits = fits && min(u.Requests, u.InputTokens, u.OutputTokens, u.Images, u.Bytes, u.CostMicros) >= 0
	}
	if s := r.Seal; s != nil {
		fits = fits && r.Usage != nil && s.Seq >= 0 && len(s.Hash) <= 64
	}
	if r.Health != nil {
		said++
		fits = fits && r.Health.Plausible()
	}
	if !fits || said > 1 || r.Done > 0 && said > 0 {
		return r, errForm
	}
	return r, nil
}
