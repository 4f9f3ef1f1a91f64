// Package provider is what the key proxy knows about wire protocols: which
// operations there are, what a request may hold, where a response counts its
// tokens, and how an error must look for the clients to understand it. It moves
// no bytes.
package provider

import (
	"dreamcore"
	"dreamcore/internal/strictjson"
)

// Kind says how the proxy treats an operation.
type Kind uint8

// The kinds of operation.
const (
	Generate Kind = iota // a model call: streams, costs tokens
	Count                // counts tokens: forwarded, costs a request only
	Image                // makes pictures: costs pictures
	List                 // the model list: answered here, no dial
	Package              // a file of the package mirror: costs bytes
	Asset                // a file of an asset host: costs bytes
)

// Operation is what answers on one route of the proxy. Where the route is, and
// which feature opens it, is the declaration's to say.
type Operation struct {
	Method, Path string // as the box sees them, from the declaration
	Kind         Kind
	Feature      dreamcore.Feature // whose upstream answers, from the declaration
	// Upstream is the path below the upstream's base URL, where {model} stands for
	// the model's name, and Query what follows it. A client must send the same
	// query, and no other.
	Upstream, Query string
	Streams         bool // the answer streams always, not when the body asks
	Protocol        Protocol
	// Rule checks the body and prunes what is accepted but not sent on.
	Rule strictjson.Rule
	// OutputFields are the fields that bound the output tokens, the one that
	// is set when the client sent none first; a dot leads into an object.
	OutputFields []string
	// Finish sets the fields that are ours to set.
	Finish func(body *strictjson.Value, stream bool)
	// Meter makes what reads the usage of one response to body.
	Meter func(body *strictjson.Value) Meter
}

// Route is the operation's row in a policy.
func (o *Operation) Route() string { return o.Method + " " + o.Path }

// Protocol is what all operations of one provider share.
type Protocol interface {
	// Name begins the setting names that messages mention.
	Name() string
	// Authorize returns the headers that carry the operator's key, and those
	// that the protocol demands. beta is what the client asked for.
	Authorize(key string, beta []string) map[string]string
	// ErrorType is the provider's word for an HTTP status.
	ErrorType(status int) string
	// ErrorBody is a whole error response.
	ErrorBody(status int, reason, message string) []byte
	// Models is the body of a model list.
	Models(names []string) []byte
}

// Tokens is what a provider says a call used. Input does not include what was
// read from or written to its prompt cache.
type Tokens struct{ Input, CacheRead, CacheWrite, Output int64 }

// Sum is all input.
func (t Tokens) Sum() int64 { return t.Input + t.CacheRead + t.CacheWrite }

// Meter collects usage from the events of a stream, or from one whole body.
type Meter interface {
	// Event looks at one event's data or at the body. It returns false when
	// the client has not asked for this event and should not get it.
	Event(v *strictjson.Value) bool
	// Tokens returns what was said, and whether it was said at all, in numbers
	// that can be true. Sane is false when something impossible was said.
	Tokens() (t Tokens, said, sane bool)
	// Done reports whether the response came to its proper end.
	Done() bool
	// Overloaded reports an event that says "try again later".
	Overloaded(v *strictjson.Value) bool
	// Deltas returns the pieces of text in an event that continue each other
	// from event to event.
	Deltas(v *strictjson.Value) []Delta
}

// Delta is a piece of a text that comes in many events. Pieces with the same
// key are one text.
type Delta struct {
	Key   string
	Piece *strictjson.Value // a string, which may be replaced in place
}

// MaxTokens is the largest usage number that is believed.
const MaxTokens = 100_000_000

// Number reads a usage number; absent is zero.
func Number(v *strictjson.Value, sane *bool) int64 {
	if v == nil || v.Kind == strictjson.Null {
		return 0
	}
	n, ok := v.Int()
	if !ok || n < 0 || n > MaxTokens {
		*sane = false
		return 0
	}
	return n
}

// MaxTextBytes bounds one text of a request; the body as a whole has its own cap.
const MaxTextBytes = 24 << 20

// Limits of lists in requests.
const (
	MaxMessages = 20_000
	MaxParts    = 5_000
	MaxTools    = 512
)

// Refused texts, shared so that every protocol says the same.
const (
	WhyURL      = "the provider would fetch it over the network; send the data itself (base64) instead"
	WhyStored   = "it refers to something stored at the provider; send the content itself instead"
	WhyServer   = "it lets the provider's servers use the network or run code; use your own tools in the sandbox instead"
	WhyMCP      = "it would connect the provider to another server; use your own tools in the sandbox instead"
	WhyStore    = "nothing may be stored at the provider"
	WhyEndpoint = "the address of the model is fixed by the operator"
)
