// Package openai describes OpenAI's protocols: Chat Completions, Responses and
// Images. Many servers speak the first, so it is also the way to any
// OpenAI-compatible one.
package openai

import (
	"strings"

	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/strictjson"
)

// Operations are what these protocols answer, by the names in the declarations.
func Operations() map[string]*provider.Operation {
	return map[string]*provider.Operation{
		"openai.chat": {
			Kind: provider.Generate, Upstream: "/chat/completions", Protocol: Protocol{},
			Rule: chatRule, OutputFields: []string{"max_completion_tokens", "max_tokens"},
			Finish: finishChat, Meter: newChatMeter,
		},
		"openai.responses": {
			Kind: provider.Generate, Upstream: "/responses", Protocol: Protocol{},
			Rule: responsesRule, OutputFields: []string{"max_output_tokens"},
			Finish: finishResponses, Meter: newResponsesMeter,
		},
		"openai.images": {Kind: provider.Image, Upstream: "/images/generations", Protocol: Protocol{}, Rule: imageRule},
		"openai.models": {Kind: provider.List, Protocol: Protocol{}},
	}
}

// finishChat asks for the usage of a stream, which is otherwise not told.
func finishChat(v *strictjson.Value, stream bool) {
	if v.Get("store") != nil {
		v.Set("store", strictjson.Flag(false))
	}
	v.Delete("stream_options")
	if stream {
		v.Set("stream_options", strictjson.Obj("include_usage", strictjson.Flag(true)))
	}
}

// finishResponses turns off what is on by default: that a response is stored.
func finishResponses(v *strictjson.Value, _ bool) { v.Set("store", strictjson.Flag(false)) }

// Protocol implements provider.Protocol.
type Protocol struct{}

// Name is "openai".
func (Protocol) Name() string { return "openai" }

// Authorize carries the key as bearer token; there are no betas.
func (Protocol) Authorize(key string, _ []string) map[string]string {
	if key == "" {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + key}
}

// ErrorType is the word of the API for a status.
func (Protocol) ErrorType(status int) string {
	switch {
	case status == 401:
		return "authentication_error"
	case status == 403:
		return "permission_error"
	case status == 429:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// ErrorBody has the API's shape, our reason as its code.
func (p Protocol) ErrorBody(status int, reason, message string) []byte {
	e := strictjson.Obj("message", strictjson.Str(message))
	e.Set("type", strictjson.Str(p.ErrorType(status)))
	e.Set("param", strictjson.Value{})
	e.Set("code", strictjson.Str(reason))
	v := strictjson.Obj("error", e)
	return v.Append(nil)
}

// Models lists names in the API's shape.
func (Protocol) Models(names []string) []byte {
	var items []strictjson.Value
	for _, n := range names {
		m := strictjson.Obj("id", strictjson.Str(n))
		m.Set("object", strictjson.Str("model"))
		m.Set("created", strictjson.Int(1767225600))
		m.Set("owned_by", strictjson.Str("dreamcore"))
		items = append(items, m)
	}
	v := strictjson.Obj("object", strictjson.Str("list"))
	v.Set("data", strictjson.List(items...))
	return v.Append(nil)
}

// overloaded reports an error whose code or type asks to come again.
func overloaded(e *strictjson.Value) bool {
	if e == nil || e.Kind != strictjson.Object {
		return false
	}
	for _, word := range []string{e.Get("code").Text(), e.Get("type").Text()} {
		if strings.Contains(word, "overloaded") || word == "server_error" || word == "rate_limit_exceeded" || word == "slow_down" {
			return true
		}
	}
	return false
}
