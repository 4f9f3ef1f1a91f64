package wire

// Chat is the Chat Completions protocol.
type Chat struct{}

// Decode implements Protocol.
func (Chat) Decode(body []byte) (Request, error) {
	doc, req, err := open(body)
	if err != nil {
		return Request{}, err
	}
	for _, t := range list(doc["tools"]) {
		f := fields(fields(t)["function"])
		if f == nil {
			continue
		}
		req.Tools = append(req.Tools, Tool{Name: text(f["name"]), Schema: fields(f["parameters"])})
	}
	req.usage, _ = fields(doc["stream_options"])["include_usage"].(bool)
	for _, m := range list(doc["messages"]) {
		o := fields(m)
		role := Role(text(o["role"]))
		switch role {
		case "tool":
			req.Items = append(req.Items, Item{Role: Result, ID: text(o["tool_call_id"]), Text: join(o["content"])})
			continue
		case "developer":
			role = System
		}
		for _, s := range parts(o["content"]) {
			req.Items = append(req.Items, Item{Role: role, Text: s})
		}
		for _, c := range list(o["tool_calls"]) {
			call := fields(c)
			req.Items = append(req.Items, Item{Role: Caller, ID: text(call["id"]), Tool: text(fields(call["function"])["name"])})
		}
	}
	return req, nil
}

// Whole implements Protocol.
func (Chat) Whole(r Request, a Answer) any {
	message := object{"role": "assistant", "content": a.Text, "refusal": nil}
	if a.Call != nil {
		message["tool_calls"] = []any{object{
			"id": r.id("call"), "type": "function",
			"function": object{"name": a.Call.Tool, "arguments": a.Call.arguments()},
		}}
	}
	return object{
		"id": r.id("chatcmpl"), "object": "chat.completion", "created": epoch, "model": r.Model,
		"choices": []any{object{"index": 0, "message": message, "finish_reason": chatFinish(a)}},
		"usage":   chatUsage(r, a),
	}
}

// Stream implements Protocol.
func (Chat) Stream(e *Events, r Request, a Answer) error {
	send := func(choices []any, more object) {
		o := object{"id": r.id("chatcmpl"), "object": "chat.completion.chunk", "created": epoch, "model": r.Model, "choices": choices}
		for k, v := range more {
			o[k] = v
		}
		e.send("", o)
	}
	delta := func(d object, finish any) {
		send([]any{object{"index": 0, "delta": d, "finish_reason": finish}}, nil)
	}
	delta(object{"role": "assistant", "content": ""}, nil)
	for _, p := range pieces(a.Text, textPieceBytes) {
		delta(object{"content": p}, nil)
	}
	if a.Call != nil {
		delta(object{"tool_calls": []any{object{
			"index": 0, "id": r.id("call"), "type": "function",
			"function": object{"name": a.Call.Tool, "arguments": ""},
		}}}, nil)
		for _, p := range pieces(a.Call.arguments(), argsPieceBytes) {
			delta(object{"tool_calls": []any{object{"index": 0, "function": object{"arguments": p}}}}, nil)
		}
	}
	delta(object{}, chatFinish(a))
	if r.usage {
		send([]any{}, object{"usage": chatUsage(r, a)})
	}
	e.raw("data: [DONE]\n\n")
	return e.err
}

// Fault implements Protocol.
func (Chat) Fault(_ int, kind, message string) any { return openAIFault(kind, message) }

// epoch stands where the protocols want a time of creation: an answer follows
// from its request alone, also in that.
const epoch = 1700000000

func chatFinish(a Answer) string {
	if a.Call != nil {
		return "tool_calls"
	}
	return "stop"
}

func chatUsage(r Request, a Answer) object {
	return object{"prompt_tokens": r.input, "completion_tokens": a.output(), "total_tokens": r.input + a.output()}
}

func openAIFault(kind, message string) any {
	return object{"error": object{"message": message, "type": kind, "code": kind, "param": nil}}
}
