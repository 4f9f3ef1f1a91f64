package openai

import (
	"strconv"

	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/strictjson"
)

func newChatMeter(body *strictjson.Value) provider.Meter {
	return &chatMeter{sane: true, quiet: !body.Get("stream_options").Get("include_usage").True()}
}

func newResponsesMeter(*strictjson.Value) provider.Meter { return &responsesMeter{sane: true} }

// chatMeter reads the last chunk of a stream, or the body.
type chatMeter struct {
	quiet      bool // the client did not ask for the chunk that holds nothing but usage
	tokens     provider.Tokens
	said, sane bool
	done       bool
}

func (m *chatMeter) Event(v *strictjson.Value) bool {
	choices := v.Get("choices")
	for i := range choices.Len() {
		if choices.At(i).Get("finish_reason").Text() != "" {
			m.done = true
		}
	}
	if u := v.Get("usage"); u != nil && u.Kind == strictjson.Object {
		cached := provider.Number(u.Get("prompt_tokens_details").Get("cached_tokens"), &m.sane)
		m.tokens.Input = provider.Number(u.Get("prompt_tokens"), &m.sane)
		m.tokens.CacheRead = min(cached, m.tokens.Input)
		m.tokens.Input -= m.tokens.CacheRead
		m.tokens.Output = provider.Number(u.Get("completion_tokens"), &m.sane)
		m.said = u.Get("completion_tokens") != nil
		return !m.quiet || choices.Len() > 0 || v.Get("object").Text() != "chat.completion.chunk"
	}
	return true
}

func (m *chatMeter) Tokens() (provider.Tokens, bool, bool) { return m.tokens, m.said, m.sane }

func (m *chatMeter) Done() bool { return m.done }

func (m *chatMeter) Overloaded(v *strictjson.Value) bool { return overloaded(v.Get("error")) }

func (m *chatMeter) Deltas(v *strictjson.Value) []provider.Delta {
	var out []provider.Delta
	add := func(key string, s *strictjson.Value) {
		if s != nil && s.Kind == strictjson.String {
			out = append(out, provider.Delta{Key: key, Piece: s})
		}
	}
	choices := v.Get("choices")
	for i := range choices.Len() {
		d := choices.At(i).Get("delta")
		n, _ := choices.At(i).Get("index").Int()
		at := strconv.FormatInt(n, 10)
		for _, field := range []string{"content", "reasoning", "reasoning_content", "reasoning_text", "refusal"} {
			add(at+field, d.Get(field))
		}
		calls := d.Get("tool_calls")
		for k := range calls.Len() {
			c, _ := calls.At(k).Get("index").Int()
			add(at+"call"+strconv.FormatInt(c, 10), calls.At(k).Get("function").Get("arguments"))
		}
	}
	return out
}

// responsesMeter reads the last event of a stream, or the body.
type responsesMeter struct {
	tokens     provider.Tokens
	said, sane bool
	done       bool
}

func (m *responsesMeter) Event(v *strictjson.Value) bool {
	r := v
	switch v.Get("type").Text() {
	case "response.completed", "response.incomplete", "response.failed":
		r = v.Get("response")
		m.done = true
	case "":
		m.done = v.Get("object").Text() == "response"
	default:
		return true
	}
	if u := r.Get("usage"); u != nil && u.Kind == strictjson.Object {
		cached := provider.Number(u.Get("input_tokens_details").Get("cached_tokens"), &m.sane)
		m.tokens.Input = provider.Number(u.Get("input_tokens"), &m.sane)
		m.tokens.CacheRead = min(cached, m.tokens.Input)
		m.tokens.Input -= m.tokens.CacheRead
		m.tokens.Output = provider.Number(u.Get("output_tokens"), &m.sane)
		m.said = u.Get("output_tokens") != nil
	}
	return true
}

func (m *responsesMeter) Tokens() (provider.Tokens, bool, bool) { return m.tokens, m.said, m.sane }

func (m *responsesMeter) Done() bool { return m.done }

func (m *responsesMeter) Overloaded(v *strictjson.Value) bool {
	switch v.Get("type").Text() {
	case "response.failed":
		return overloaded(v.Get("response").Get("error"))
	case "error":
		return overloaded(v) || overloaded(v.Get("error"))
	}
	return false
}

func (m *responsesMeter) Deltas(v *strictjson.Value) []provider.Delta {
	d := v.Get("delta")
	if d == nil || d.Kind != strictjson.String {
		return nil
	}
	out, _ := v.Get("output_index").Int()
	part, _ := v.Get("content_index").Int()
	return []provider.Delta{{
		Key:   v.Get("type").Text() + strconv.FormatInt(out, 10) + "." + strconv.FormatInt(part, 10),
		Piece: d,
	}}
}
