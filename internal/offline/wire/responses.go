package wire

import "strings"

// Responses is the Responses protocol.
type Responses struct{}

// Decode implements Protocol.
func (Responses) Decode(body []byte) (Request, error) {
	doc, req, err := open(body)
	if err != nil {
		return Request{}, err
	}
	req.Tools = responsesTools(list(doc["tools"]))
	for _, s := range parts(doc["instructions"]) {
		req.Items = append(req.Items, Item{Role: System, Text: s})
	}
	if s, ok := doc["input"].(string); ok {
		req.Items = append(req.Items, Item{Role: User, Text: s})
	}
	for _, x := range list(doc["input"]) {
		o := fields(x)
		switch kind := text(o["type"]); {
		case kind == "message" || kind == "":
			role := Role(text(o["role"]))
			if role == "developer" {
				role = System
			}
			for _, s := range parts(o["content"]) {
				req.Items = append(req.Items, Item{Role: role, Text: s})
			}
		case kind == "additional_tools":
			// Newest models of one CLI carry their tools as an input item.
			req.Tools = append(req.Tools, responsesTools(list(o["tools"]))...)
		case strings.HasSuffix(kind, "_call_output"):
			req.Items = append(req.Items, Item{Role: Result, ID: text(o["call_id"]), Text: join(o["output"])})
		case strings.HasSuffix(kind, "_call"):
			name := text(o["name"])
			if name == "" {
				name = kind
			}
			req.Items = append(req.Items, Item{Role: Caller, ID: text(o["call_id"]), Tool: name})
		}
	}
	return req, nil
}

func responsesTools(offered []any) []Tool {
	var all []Tool
	for _, t := range offered {
		o := fields(t)
		switch text(o["type"]) {
		case "function":
			all = append(all, Tool{Name: text(o["name"]), Schema: fields(o["parameters"])})
		case "custom":
			all = append(all, Tool{Name: text(o["name"]), Free: true})
		case "namespace":
			all = append(all, responsesTools(list(o["tools"]))...)
		}
	}
	return all
}

// Whole implements Protocol.
func (Responses) Whole(r Request, a Answer) any {
	return responsesDocument(r, a, "completed", responsesItems(r, a))
}

// Stream implements Protocol.
func (Responses) Stream(e *Events, r Request, a Answer) error {
	number := 0
	send := func(kind string, o object) {
		o["type"] = kind
		o["sequence_number"] = number
		number++
		e.send(kind, o)
	}
	send("response.created", object{"response": responsesDocument(r, a, "in_progress", nil)})
	send("response.in_progress", object{"response": responsesDocument(r, a, "in_progress", nil)})
	items := responsesItems(r, a)
	for i, it := range items {
		item := fields(it)
		started := object{}
		for k, v := range item {
			started[k] = v
		}
		started["status"] = "in_progress"
		at := func(o object) object {
			o["item_id"], o["output_index"] = item["id"], i
			return o
		}
		switch item["type"] {
		case "message":
			started["content"] = []any{}
			send("response.output_item.added", object{"output_index": i, "item": started})
			send("response.content_part.added", at(object{"content_index": 0, "part": responsesText("")}))
			for _, p := range pieces(a.Text, textPieceBytes) {
				send("response.output_text.delta", at(object{"content_index": 0, "delta": p}))
			}
			send("response.output_text.done", at(object{"content_index": 0, "text": a.Text}))
			send("response.content_part.done", at(object{"content_index": 0, "part": responsesText(a.Text)}))
		case "function_call":
			started["arguments"] = ""
			send("response.output_item.added", object{"output_index": i, "item": started})
			for _, p := range pieces(a.Call.arguments(), argsPieceBytes) {
				send("response.function_call_arguments.delta", at(object{"delta": p}))
			}
			send("response.function_call_arguments.done", at(object{"arguments": a.Call.arguments()}))
		case "custom_tool_call":
			started["input"] = ""
			send("response.output_item.added", object{"output_index": i, "item": started})
			for _, p := range pieces(a.Call.Free, argsPieceBytes) {
				send("response.custom_tool_call_input.delta", at(object{"delta": p}))
			}
			send("response.custom_tool_call_input.done", at(object{"input": a.Call.Free}))
		}
		send("response.output_item.done", object{"output_index": i, "item": item})
	}
	send("response.completed", object{"response": responsesDocument(r, a, "completed", items)})
	return e.err
}

// Fault implements Protocol.
func (Responses) Fault(_ int, kind, message string) any { return openAIFault(kind, message) }

func responsesItems(r Request, a Answer) []any {
	items := []any{}
	if a.Text != "" {
		items = append(items, object{
			"type": "message", "id": r.id("msg"), "status": "completed", "role": "assistant",
			"content": []any{responsesText(a.Text)},
		})
	}
	switch {
	case a.Call == nil:
	case a.Call.Free != "":
		items = append(items, object{
			"type": "custom_tool_call", "id": r.id("ctc"), "status": "completed",
			"call_id": r.id("call"), "name": a.Call.Tool, "input": a.Call.Free,
		})
	default:
		items = append(items, object{
			"type": "function_call", "id": r.id("fc"), "status": "completed",
			"call_id": r.id("call"), "name": a.Call.Tool, "arguments": a.Call.arguments(),
		})
	}
	return items
}

func responsesText(s string) object {
	return object{"type": "output_text", "text": s, "annotations": []any{}}
}

func responsesDocument(r Request, a Answer, status string, items []any) object {
	if items == nil {
		items = []any{}
	}
	doc := object{
		"id": r.id("resp"), "object": "response", "created_at": epoch, "status": status,
		"model": r.Model, "output": items, "error": nil, "incomplete_details": nil,
	}
	if status == "completed" {
		doc["usage"] = object{
			"input_tokens": r.input, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": a.output(), "output_tokens_details": object{"reasoning_tokens": 0},
			"total_tokens": r.input + a.output(),
		}
	}
	return doc
}
