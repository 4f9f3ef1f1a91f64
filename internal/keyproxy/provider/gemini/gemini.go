// Package gemini describes Google's Gemini API (v1beta). The model stands in the
// path, and whether an answer streams is a method of its own.
package gemini

import (
	"strconv"

	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/strictjson"
)

// Operations are what this protocol answers, by the names in the declarations.
func Operations() map[string]*provider.Operation {
	return map[string]*provider.Operation{
		"gemini.generate": {
			Kind: provider.Generate, Upstream: "/models/{model}:generateContent", Protocol: Protocol{},
			Rule: generateRule, OutputFields: output, Meter: newMeter,
		},
		"gemini.stream": {
			Kind: provider.Generate, Upstream: "/models/{model}:streamGenerateContent", Query: "alt=sse", Streams: true, Protocol: Protocol{},
			Rule: generateRule, OutputFields: output, Meter: newMeter,
		},
		"gemini.count": {
			Kind: provider.Count, Upstream: "/models/{model}:countTokens", Protocol: Protocol{},
			Rule: countRule, Meter: newMeter,
		},
		"gemini.models": {Kind: provider.List, Protocol: Protocol{}},
	}
}

var output = []string{"generationConfig.maxOutputTokens"}

// Protocol implements provider.Protocol.
type Protocol struct{}

// Name is "gemini".
func (Protocol) Name() string { return "gemini" }

// Authorize carries the key in a header, never in the query, where logs keep it.
func (Protocol) Authorize(key string, _ []string) map[string]string {
	if key == "" {
		return nil
	}
	return map[string]string{"X-Goog-Api-Key": key}
}

// ErrorType is the API's word for a status.
func (Protocol) ErrorType(status int) string {
	switch status {
	case 400, 405, 413, 415, 421:
		return "INVALID_ARGUMENT"
	case 401:
		return "UNAUTHENTICATED"
	case 403:
		return "PERMISSION_DENIED"
	case 404:
		return "NOT_FOUND"
	case 429:
		return "RESOURCE_EXHAUSTED"
	case 499:
		return "CANCELLED"
	case 502, 503:
		return "UNAVAILABLE"
	case 504:
		return "DEADLINE_EXCEEDED"
	}
	return "INTERNAL"
}

// ErrorBody has the API's shape, our reason among its details.
func (p Protocol) ErrorBody(status int, reason, message string) []byte {
	info := strictjson.Obj("@type", strictjson.Str("type.googleapis.com/google.rpc.ErrorInfo"))
	info.Set("reason", strictjson.Str(reason))
	info.Set("domain", strictjson.Str("dreamcore"))
	e := strictjson.Obj("code", strictjson.Int(int64(status)))
	e.Set("message", strictjson.Str(message))
	e.Set("status", strictjson.Str(p.ErrorType(status)))
	e.Set("details", strictjson.List(info))
	v := strictjson.Obj("error", e)
	return v.Append(nil)
}

// Models lists names in the API's shape, as one page.
func (Protocol) Models(names []string) []byte {
	var items []strictjson.Value
	for _, n := range names {
		m := strictjson.Obj("name", strictjson.Str("models/"+n))
		m.Set("displayName", strictjson.Str(n))
		m.Set("supportedGenerationMethods", strictjson.List(strictjson.Str("generateContent"), strictjson.Str("countTokens")))
		items = append(items, m)
	}
	v := strictjson.Obj("models", strictjson.List(items...))
	return v.Append(nil)
}

func newMeter(*strictjson.Value) provider.Meter { return &meter{sane: true} }

// meter reads usageMetadata, which stands in every piece of a stream with the
// totals so far; only the piece that ends the answer has the last word.
type meter struct {
	tokens     provider.Tokens
	counted    bool // the piece that ended the answer, or a later one, told its usage
	sane, done bool
}

func (m *meter) Event(v *strictjson.Value) bool {
	candidates := v.Get("candidates")
	for i := range candidates.Len() {
		if candidates.At(i).Get("finishReason").Text() != "" {
			m.done = true
		}
	}
	if v.Get("promptFeedback").Get("blockReason").Text() != "" {
		m.done = true
	}
	u := v.Get("usageMetadata")
	if u == nil || u.Kind != strictjson.Object {
		return true
	}
	number := func(name string) int64 { return provider.Number(u.Get(name), &m.sane) }
	input := number("promptTokenCount") + number("toolUsePromptTokenCount")
	cached := min(number("cachedContentTokenCount"), input)
	m.tokens.Input = max(m.tokens.Input, input-cached)
	m.tokens.CacheRead = max(m.tokens.CacheRead, cached)
	// What it thought is output that is paid for, shown or not.
	m.tokens.Output = max(m.tokens.Output, number("candidatesTokenCount")+number("thoughtsTokenCount"))
	if m.done && u.Get("promptTokenCount") != nil {
		m.counted = true
	}
	return true
}

func (m *meter) Tokens() (provider.Tokens, bool, bool) { return m.tokens, m.counted, m.sane }

func (m *meter) Done() bool { return m.done }

func (m *meter) Overloaded(v *strictjson.Value) bool {
	return v.Get("error").Get("status").Text() == "UNAVAILABLE"
}

func (m *meter) Deltas(v *strictjson.Value) []provider.Delta {
	var out []provider.Delta
	candidates := v.Get("candidates")
	for i := range candidates.Len() {
		n, _ := candidates.At(i).Get("index").Int()
		parts := candidates.At(i).Get("content").Get("parts")
		for k := range parts.Len() {
			key := strconv.FormatInt(n, 10) + "text"
			if parts.At(k).Get("thought").True() {
				key = strconv.FormatInt(n, 10) + "thought"
			}
			if s := parts.At(k).Get("text"); s != nil && s.Kind == strictjson.String {
				out = append(out, provider.Delta{Key: key, Piece: s})
			}
		}
	}
	return out
}
