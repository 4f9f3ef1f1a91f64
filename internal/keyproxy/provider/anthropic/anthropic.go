// Package anthropic describes the Anthropic Messages protocol.
package anthropic

import (
	"slices"
	"strconv"
	"strings"

	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/strictjson"
)

// Version is the protocol version that all requests are sent as.
const Version = "2023-06-01"

// betas are the values of the header anthropic-beta that are sent on when the
// client asks for them. They change how a response is formed; none opens a way
// to another server.
var betas = []string{
	"claude-code-20250219",
	"interleaved-thinking-2025-05-14",
	"fine-grained-tool-streaming-2025-05-14",
	"context-management-2025-06-27",
	"prompt-caching-scope-2026-01-05",
	"effort-2025-11-24",
	"structured-outputs-2025-12-15",
	"structured-outputs-2025-11-13",
	"advanced-tool-use-2025-11-20",
	"token-counting-2024-11-01",
	"per-turn-control-2026-07-01",
	"mid-conversation-tool-changes-2026-07-01",
	"thinking-token-count-2026-05-13",
	"thinking-display-updates-2026-08-18",
}

// Operations are what this protocol answers, by the names in the declarations.
func Operations() map[string]*provider.Operation {
	return map[string]*provider.Operation{
		"anthropic.messages": {
			Kind: provider.Generate, Upstream: "/v1/messages", Protocol: Protocol{},
			Rule: messagesRule, OutputFields: []string{"max_tokens"}, Meter: newMeter,
		},
		"anthropic.count_tokens": {
			Kind: provider.Count, Upstream: "/v1/messages/count_tokens", Protocol: Protocol{},
			Rule: countRule, Meter: newMeter,
		},
		"anthropic.models": {Kind: provider.List, Protocol: Protocol{}},
	}
}

// Protocol implements provider.Protocol.
type Protocol struct{}

// Name is "anthropic".
func (Protocol) Name() string { return "anthropic" }

// Authorize carries the key in x-api-key.
func (Protocol) Authorize(key string, beta []string) map[string]string {
	h := map[string]string{"Anthropic-Version": Version}
	if key != "" {
		h["X-Api-Key"] = key
	}
	var allowed []string
	for _, list := range beta {
		for b := range strings.SplitSeq(list, ",") {
			if b = strings.TrimSpace(b); slices.Contains(betas, b) && !slices.Contains(allowed, b) {
				allowed = append(allowed, b)
			}
		}
	}
	if len(allowed) > 0 {
		h["Anthropic-Beta"] = strings.Join(allowed, ",")
	}
	return h
}

// ErrorType is the word of the API for a status.
func (Protocol) ErrorType(status int) string {
	switch status {
	case 400, 405, 415, 421:
		return "invalid_request_error"
	case 401:
		return "authentication_error"
	case 403:
		return "permission_error"
	case 404:
		return "not_found_error"
	case 413:
		return "request_too_large"
	case 429:
		return "rate_limit_error"
	case 504:
		return "timeout_error"
	case 503, 529:
		return "overloaded_error"
	}
	return "api_error"
}

// ErrorBody has the API's shape and beside it our reason code.
func (p Protocol) ErrorBody(status int, reason, message string) []byte {
	e := strictjson.Obj("type", strictjson.Str(p.ErrorType(status)))
	e.Set("message", strictjson.Str(message))
	e.Set("reason", strictjson.Str(reason))
	v := strictjson.Obj("type", strictjson.Str("error"))
	v.Set("error", e)
	return v.Append(nil)
}

// Models lists names in the API's shape, as one page.
func (Protocol) Models(names []string) []byte {
	v := strictjson.Obj("data", strictjson.List(models(names)...))
	v.Set("has_more", strictjson.Flag(false))
	if len(names) > 0 {
		v.Set("first_id", strictjson.Str(names[0]))
		v.Set("last_id", strictjson.Str(names[len(names)-1]))
	}
	return v.Append(nil)
}

func models(names []string) []strictjson.Value {
	var out []strictjson.Value
	for _, n := range names {
		m := strictjson.Obj("type", strictjson.Str("model"))
		m.Set("id", strictjson.Str(n))
		m.Set("display_name", strictjson.Str(n))
		m.Set("created_at", strictjson.Str("2026-01-01T00:00:00Z"))
		out = append(out, m)
	}
	return out
}

func newMeter(*strictjson.Value) provider.Meter { return &meter{sane: true} }

// meter reads usage: message_start carries the input, message_delta the output
// so far, a whole body both.
type meter struct {
	tokens     provider.Tokens
	said, sane bool
	done       bool
}

func (m *meter) Event(v *strictjson.Value) bool {
	switch v.Get("type").Text() {
	case "message_start":
		m.usage(v.Get("message").Get("usage"), false)
	case "message_delta":
		m.usage(v.Get("usage"), true)
	case "message":
		m.usage(v.Get("usage"), true)
		m.done = true
	case "message_stop":
		m.done = true
	}
	return true
}

func (m *meter) usage(u *strictjson.Value, final bool) {
	if u == nil || u.Kind != strictjson.Object {
		return
	}
	take := func(to *int64, name string) {
		// The numbers of a stream are totals so far, never increments.
		*to = max(*to, provider.Number(u.Get(name), &m.sane))
	}
	take(&m.tokens.Input, "input_tokens")
	take(&m.tokens.CacheRead, "cache_read_input_tokens")
	take(&m.tokens.CacheWrite, "cache_creation_input_tokens")
	take(&m.tokens.Output, "output_tokens")
	m.said = m.said || final && u.Get("output_tokens") != nil
}

func (m *meter) Tokens() (provider.Tokens, bool, bool) { return m.tokens, m.said, m.sane }

func (m *meter) Done() bool { return m.done }

func (m *meter) Overloaded(v *strictjson.Value) bool {
	if v.Get("type").Text() != "error" {
		return false
	}
	t := v.Get("error").Get("type").Text()
	return t == "overloaded_error" || t == "rate_limit_error" || t == "api_error"
}

func (m *meter) Deltas(v *strictjson.Value) []provider.Delta {
	d := v.Get("delta")
	if d == nil || v.Get("type").Text() != "content_block_delta" {
		return nil
	}
	block, _ := v.Get("index").Int()
	var out []provider.Delta
	for _, field := range []string{"text", "thinking", "partial_json", "signature"} {
		if s := d.Get(field); s != nil && s.Kind == strictjson.String {
			out = append(out, provider.Delta{Key: strconv.FormatInt(block, 10) + field, Piece: s})
		}
	}
	return out
}
