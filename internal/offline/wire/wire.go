// Package wire speaks the three model protocols that coding agents use:
// Anthropic Messages, OpenAI Chat Completions and OpenAI Responses, whole and
// streamed, with tool calls. It owns the shapes on the wire and nothing of what
// a model says: a Protocol decodes a request into one form and encodes an
// Answer back.
//
// Decoding is lenient: an unknown field, block or role is passed over, because
// a stand-in must not break when an agent learns a new one. Only a body that is
// no JSON object, or names no model, is refused.
package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Role says whose an Item is.
type Role string

// The roles, whatever a protocol calls them.
const (
	System    Role = "system" // also "developer"
	User      Role = "user"
	Assistant Role = "assistant"
	Caller    Role = "call"   // the assistant called a tool
	Result    Role = "result" // what the tool answered
)

// Item is one piece of the conversation, in order. A message of several content
// blocks becomes several items.
type Item struct {
	Role   Role
	Text   string // for Result: what the tool printed
	ID     string // for Caller and Result: the call's id
	Tool   string // for Caller: the tool's name
	Failed bool   // for Result: the protocol marked it as an error
}

// Request is one call of the model.
type Request struct {
	Model  string
	Stream bool
	Tools  []Tool
	Items  []Item

	key   string // hex of the body's hash: ids derive from it
	usage bool   // chat: the client asked for a usage chunk
	input int64  // tokens, estimated
}

// Answer is what the model says: text, then at most one tool call.
type Answer struct {
	Text string
	Call *Call
}

// Call is one tool call. Free is set instead of Args for a tool that takes free
// text rather than JSON.
type Call struct {
	Tool string
	Args map[string]any
	Free string
}

// Protocol is one wire form of the same conversation.
type Protocol interface {
	// Decode reads a request's body. It fails only on a body that a real
	// upstream would refuse with 400.
	Decode(body []byte) (Request, error)
	// Whole is the JSON document that answers a request without streaming.
	Whole(Request, Answer) any
	// Stream writes the answer as server-sent events and returns the first
	// error of the connection.
	Stream(*Events, Request, Answer) error
	// Fault is the JSON document of a refusal.
	Fault(status int, kind, message string) any
}

// object is one JSON object, read or to be written.
type object = map[string]any

var errNoModel = errors.New("the request names no model")

// open reads what all protocols share.
func open(body []byte) (object, Request, error) {
	var doc object
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, Request{}, fmt.Errorf("the body is not a JSON object: %w", err)
	}
	sum := sha256.Sum256(body)
	req := Request{
		Model: text(doc["model"]),
		key:   hex.EncodeToString(sum[:8]),
		input: Tokens(len(body)),
	}
	req.Stream, _ = doc["stream"].(bool)
	if req.Model == "" {
		return nil, Request{}, errNoModel
	}
	return doc, req, nil
}

// id names a message or call of this answer. It follows from the request alone,
// so that a retried request gets the same answer, and is unique in a session,
// because each request of a session is longer than the last (one CLI drops a
// call whose id it has seen).
func (r Request) id(prefix string) string { return prefix + "_" + r.key }

// Tokens estimates the tokens in n bytes of text; four bytes a token is the
// usual rule of thumb. It is at least 1.
func Tokens(n int) int64 { return int64(n/4 + 1) }

// output estimates the tokens of an answer.
func (a Answer) output() int64 {
	n := len(a.Text)
	if a.Call != nil {
		n += len(a.Call.Tool) + len(a.Call.arguments())
	}
	return Tokens(n)
}

// arguments is the call's input as the JSON text that two of the protocols send.
func (c *Call) arguments() string {
	if c.Args == nil {
		return "{}"
	}
	return encode(c.Args)
}

// encode is JSON without the escaping of HTML: what goes out is read by agents,
// and a game's markup stays readable in their logs.
func encode(v any) string {
	b, err := marshal(v)
	if err != nil {
		// Every value here is built from strings, numbers, maps and slices.
		panic(fmt.Sprintf("wire: encode: %v", err))
	}
	return string(b)
}

func text(v any) string   { s, _ := v.(string); return s }
func list(v any) []any    { a, _ := v.([]any); return a }
func fields(v any) object { m, _ := v.(object); return m }

// parts splits any shape of content into its texts: a string, or blocks with a
// text in one of the places where protocols put it.
func parts(v any) []string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
		return []string{v}
	case []any:
		var all []string
		for _, x := range v {
			all = append(all, parts(x)...)
		}
		return all
	case object:
		for _, k := range []string{"text", "output", "content"} {
			if x, ok := v[k]; ok {
				return parts(x)
			}
		}
	}
	return nil
}

// Models is the answer of the models route; it suits all three protocols.
func Models(names []string) any {
	all := make([]any, len(names))
	for i, n := range names {
		all[i] = object{"id": n, "object": "model", "type": "model", "display_name": n, "created": epoch, "owned_by": "dreamcore"}
	}
	return object{"object": "list", "data": all, "has_more": false}
}
