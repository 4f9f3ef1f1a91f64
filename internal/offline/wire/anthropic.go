package wire

// Anthropic is the Messages protocol.
type Anthropic struct{}

// Decode implements Protocol.
func (Anthropic) Decode(body []byte) (Request, error) {
	doc, req, err := open(body)
	if err != nil {
		return Request{}, err
	}
	for _, t := range list(doc["tools"]) {
		o := fields(t)
		tool := Tool{Name: text(o["name"]), Schema: fields(o["input_schema"])}
		if tool.Schema == nil {
			continue // a tool that the upstream runs itself: we have none
		}
		req.Tools = append(req.Tools, tool)
	}
	for _, s := range parts(doc["system"]) {
		req.Items = append(req.Items, Item{Role: System, Text: s})
	}
	for _, m := range list(doc["messages"]) {
		o := fields(m)
		role := Role(text(o["role"]))
		if s, ok := o["content"].(string); ok {
			req.Items = append(req.Items, Item{Role: role, Text: s})
			continue
		}
		for _, c := range list(o["content"]) {
			if it, ok := anthropicBlock(role, fields(c)); ok {
				req.Items = append(req.Items, it)
			}
		}
	}
	return req, nil
}

func anthropicBlock(role Role, b object) (Item, bool) {
	switch text(b["type"]) {
	case "text":
		return Item{Role: role, Text: text(b["text"])}, true
	case "tool_use":
		return Item{Role: Caller, ID: text(b["id"]), Tool: text(b["name"])}, true
	case "tool_result":
		failed, _ := b["is_error"].(bool)
		return Item{Role: Result, ID: text(b["tool_use_id"]), Text: join(b["content"]), Failed: failed}, true
	}
	return Item{}, false
}

// Whole implements Protocol.
func (Anthropic) Whole(r Request, a Answer) any {
	content := []any{}
	if a.Text != "" {
		content = append(content, object{"type": "text", "text": a.Text})
	}
	if a.Call != nil {
		content = append(content, object{"type": "tool_use", "id": r.id("toolu"), "name": a.Call.Tool, "input": input(a.Call)})
	}
	m := anthropicMessage(r, content, anthropicStop(a))
	m["usage"] = object{"input_tokens": r.input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": a.output()}
	return m
}

// Stream implements Protocol.
func (Anthropic) Stream(e *Events, r Request, a Answer) error {
	send := func(kind string, o object) {
		o["type"] = kind
		e.send(kind, o)
	}
	head := anthropicMessage(r, []any{}, nil)
	head["usage"] = object{"input_tokens": r.input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
	send("message_start", object{"message": head})
	index := 0
	block := func(start object, piecesOf []string, delta func(string) object) {
		send("content_block_start", object{"index": index, "content_block": start})
		for _, p := range piecesOf {
			send("content_block_delta", object{"index": index, "delta": delta(p)})
		}
		send("content_block_stop", object{"index": index})
		index++
	}
	if a.Text != "" {
		block(object{"type": "text", "text": ""}, pieces(a.Text, textPieceBytes), func(p string) object {
			return object{"type": "text_delta", "text": p}
		})
	}
	send("ping", object{})
	if a.Call != nil {
		start := object{"type": "tool_use", "id": r.id("toolu"), "name": a.Call.Tool, "input": object{}}
		block(start, pieces(a.Call.arguments(), argsPieceBytes), func(p string) object {
			return object{"type": "input_json_delta", "partial_json": p}
		})
	}
	send("message_delta", object{
		"delta": object{"stop_reason": anthropicStop(a), "stop_sequence": nil},
		"usage": object{"output_tokens": a.output()},
	})
	send("message_stop", object{})
	return e.err
}

// Fault implements Protocol.
func (Anthropic) Fault(_ int, kind, message string) any {
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}

// Count is the answer of the count_tokens route for a body of n bytes.
func (Anthropic) Count(n int) any { return object{"input_tokens": Tokens(n)} }

func anthropicMessage(r Request, content []any, stop any) object {
	return object{
		"id": r.id("msg"), "type": "message", "role": "assistant", "model": r.Model,
		"content": content, "stop_reason": stop, "stop_sequence": nil,
	}
}

func anthropicStop(a Answer) string {
	if a.Call != nil {
		return "tool_use"
	}
	return "end_turn"
}

func input(c *Call) object {
	if c.Args == nil {
		return object{}
	}
	return c.Args
}
