package openai

import (
	"regexp"
	"strings"

	"dreamcore/internal/keyproxy/provider"
	is "dreamcore/internal/strictjson"
)

var (
	name = is.Text(256)
	text = is.Text(provider.MaxTextBytes)

	// dataURL is a picture inside the request; any other address would be
	// fetched by the provider.
	dataURL = func(v *is.Value, at is.Path) error {
		if err := text(v, at); err != nil {
			return err
		}
		if !imageData.MatchString(v.Text()[:min(len(v.Text()), 64)]) {
			return &is.Violation{Field: at.String(), Problem: "is not a data: URL with a picture in base64: " + provider.WhyURL}
		}
		return nil
	}
	imageData = regexp.MustCompile(`^data:image/(png|jpeg|jpg|gif|webp);base64,`)

	serverTools = map[string]string{
		"web_search": provider.WhyServer, "file_search": provider.WhyServer, "code_interpreter": provider.WhyServer,
		"computer": provider.WhyServer, "image_generation": "use the image tool in the sandbox instead",
		"mcp": provider.WhyMCP, "local_shell": "name it as a tool of your own", "shell": "name it as a tool of your own",
		"item_reference": provider.WhyStored, "compaction": provider.WhyStored, "apply_patch": "name it as a tool of your own",
	}
	effort  = is.Maybe(is.Enum("none", "minimal", "low", "medium", "high", "xhigh", "max"))
	control = is.Fields{
		"model":  is.Need(name),
		"stream": is.Opt(is.Maybe(is.YesNo)), "store": is.Opt(is.No(provider.WhyStore)),
		"temperature": is.Opt(is.Maybe(is.Range(0, 2))), "top_p": is.Opt(is.Maybe(is.Range(0, 1))),
		"parallel_tool_calls": is.Opt(is.Maybe(is.YesNo)),
		"prompt_cache_key":    is.Opt(is.Maybe(name)), "prompt_cache_retention": is.Drop(is.Maybe(name)),

		// Accepted from clients that always send it; nothing that names a
		// person or the box leaves, and nobody buys a faster service.
		"metadata": is.Drop(is.Maybe(is.AnyObject)), "client_metadata": is.Drop(is.Maybe(is.AnyObject)), "user": is.Drop(name),
		"safety_identifier": is.Drop(name), "service_tier": is.Drop(is.Maybe(is.Enum("auto", "default"))),

		"api_base": is.Never(provider.WhyEndpoint), "base_url": is.Never(provider.WhyEndpoint),
	}
)

func with(more is.Fields) is.Rule {
	f := is.Fields{}
	for _, m := range []is.Fields{control, more} {
		for k, v := range m {
			f[k] = v
		}
	}
	return is.Record(f)
}

// Chat Completions.

var (
	chatPart = is.Tagged("", map[string]is.Rule{
		"text":    is.Record(is.Fields{"type": is.Need(name), "text": is.Need(text), "cache_control": is.Drop(is.Any)}),
		"refusal": is.Record(is.Fields{"type": is.Need(name), "refusal": is.Need(text)}),
		"image_url": is.Record(is.Fields{
			"type": is.Need(name), "image_url": is.Need(is.Record(is.Fields{"url": is.Need(dataURL), "detail": is.Opt(is.Enum("auto", "low", "high"))})),
		}),
	}, map[string]string{"file": provider.WhyStored, "input_audio": "audio is not offered"})
	chatContent = is.Maybe(is.ByKind(map[is.Kind]is.Rule{is.String: text, is.Array: is.Each(provider.MaxParts, chatPart)}))

	chatCall = is.Tagged("function", map[string]is.Rule{
		"function": is.Record(is.Fields{
			"id": is.Need(name), "type": is.Opt(name), "index": is.Drop(is.Any),
			"function": is.Need(is.Record(is.Fields{"name": is.Need(name), "arguments": is.Need(text)})),
		}),
		"custom": is.Record(is.Fields{
			"id": is.Need(name), "type": is.Need(name), "custom": is.Need(is.Record(is.Fields{"name": is.Need(name), "input": is.Need(text)})),
		}),
	}, serverTools)

	chatMessage = is.Record(is.Fields{
		"role":    is.Need(is.Enum("system", "developer", "user", "assistant", "tool")),
		"content": is.Opt(chatContent), "name": is.Opt(name), "refusal": is.Opt(is.Maybe(text)),
		"tool_calls": is.Opt(is.Maybe(is.Each(provider.MaxTools, chatCall))), "tool_call_id": is.Opt(name),
		// What OpenAI-compatible servers return and want back.
		"reasoning": is.Opt(is.Maybe(text)), "reasoning_content": is.Opt(is.Maybe(text)), "reasoning_text": is.Opt(is.Maybe(text)),
		"reasoning_details": is.Opt(is.Maybe(is.Each(provider.MaxParts, is.AnyObject))),
	})

	function = is.Record(is.Fields{
		"name": is.Need(name), "description": is.Opt(text), "parameters": is.Opt(is.AnyObject), "strict": is.Opt(is.Maybe(is.YesNo)),
	})
	chatTool = is.Tagged("", map[string]is.Rule{
		"function": is.Record(is.Fields{"type": is.Need(name), "function": is.Need(function), "cache_control": is.Drop(is.Any)}),
	}, serverTools)
	chatChoice = is.ByKind(map[is.Kind]is.Rule{
		is.String: is.Enum("none", "auto", "required"),
		is.Object: is.Record(is.Fields{"type": is.Need(is.Enum("function")), "function": is.Need(is.Record(is.Fields{"name": is.Need(name)}))}),
	})
	schemaFormat = is.Record(is.Fields{
		"name": is.Need(name), "description": is.Opt(text), "schema": is.Opt(is.AnyObject), "strict": is.Opt(is.Maybe(is.YesNo)),
	})

	chatRule = with(is.Fields{
		"messages":   is.Need(is.Each(provider.MaxMessages, chatMessage)),
		"max_tokens": is.Opt(is.Maybe(is.Whole(1, 10_000_000))), "max_completion_tokens": is.Opt(is.Maybe(is.Whole(1, 10_000_000))),
		"tools": is.Opt(is.Each(provider.MaxTools, chatTool)), "tool_choice": is.Opt(chatChoice),
		"stream_options":   is.Opt(is.Maybe(is.Record(is.Fields{"include_usage": is.Opt(is.YesNo), "include_obfuscation": is.Drop(is.YesNo)}))),
		"reasoning_effort": is.Opt(effort), "verbosity": is.Opt(is.Maybe(is.Enum("low", "medium", "high"))),
		"stop":              is.Opt(is.Maybe(is.ByKind(map[is.Kind]is.Rule{is.String: name, is.Array: is.Each(16, name)}))),
		"presence_penalty":  is.Opt(is.Maybe(is.Range(-2, 2))),
		"frequency_penalty": is.Opt(is.Maybe(is.Range(-2, 2))),
		"seed":              is.Opt(is.Maybe(is.Whole(-1<<62, 1<<62))),
		"n":                 is.Opt(is.Maybe(is.Whole(1, 1))),
		"response_format": is.Opt(is.Tagged("", map[string]is.Rule{
			"text":        is.Record(is.Fields{"type": is.Need(name)}),
			"json_object": is.Record(is.Fields{"type": is.Need(name)}),
			"json_schema": is.Record(is.Fields{"type": is.Need(name), "json_schema": is.Need(schemaFormat)}),
		}, nil)),
		"web_search_options": is.Never(provider.WhyServer),
	})
)

// Responses.

var (
	annotations = is.Drop(is.Maybe(is.Each(provider.MaxParts, is.AnyObject)))

	inputPart = is.Tagged("", map[string]is.Rule{
		"input_text":  is.Record(is.Fields{"type": is.Need(name), "text": is.Need(text)}),
		"output_text": is.Record(is.Fields{"type": is.Need(name), "text": is.Need(text), "annotations": annotations, "logprobs": annotations}),
		"refusal":     is.Record(is.Fields{"type": is.Need(name), "refusal": is.Need(text)}),
		"input_image": is.Record(is.Fields{
			"type": is.Need(name), "image_url": is.Need(dataURL), "detail": is.Opt(is.Enum("auto", "low", "high", "original")),
			"file_id": is.Never(provider.WhyStored),
		}),
	}, map[string]string{"input_file": provider.WhyStored, "input_audio": "audio is not offered"})
	inputContent = is.ByKind(map[is.Kind]is.Rule{is.String: text, is.Array: is.Each(provider.MaxParts, inputPart)})

	status = is.Opt(is.Maybe(is.Enum("completed", "in_progress", "incomplete", "failed")))
	id     = is.Opt(is.Maybe(name))
	inputs = is.Each(provider.MaxMessages, is.Tagged("message", map[string]is.Rule{
		"message": is.Record(is.Fields{
			"type": is.Opt(name), "id": id, "status": status, "role": is.Need(is.Enum("system", "developer", "user", "assistant")),
			"content": is.Need(inputContent), "phase": is.Opt(is.Maybe(name)),
		}),
		"function_call": is.Record(is.Fields{
			"type": is.Need(name), "id": id, "status": status, "call_id": is.Need(name), "name": is.Need(name),
			"namespace": is.Opt(is.Maybe(name)), "arguments": is.Need(text),
		}),
		"function_call_output": is.Record(is.Fields{
			"type": is.Need(name), "id": id, "status": status, "call_id": is.Need(name), "output": is.Need(inputContent),
		}),
		"custom_tool_call": is.Record(is.Fields{
			"type": is.Need(name), "id": id, "status": status, "call_id": is.Need(name), "name": is.Need(name),
			"namespace": is.Opt(is.Maybe(name)), "input": is.Need(text),
		}),
		"custom_tool_call_output": is.Record(is.Fields{
			"type": is.Need(name), "id": id, "status": status, "call_id": is.Need(name), "name": is.Opt(name), "output": is.Need(inputContent),
		}),
		"reasoning": is.Record(is.Fields{
			"type": is.Need(name), "id": id, "status": status, "encrypted_content": is.Opt(is.Maybe(text)),
			"summary": is.Opt(is.Each(provider.MaxParts, is.Record(is.Fields{"type": is.Need(is.Enum("summary_text")), "text": is.Need(text)}))),
			"content": is.Opt(is.Maybe(is.Each(provider.MaxParts, is.Record(is.Fields{
				"type": is.Need(is.Enum("reasoning_text", "text")), "text": is.Need(text),
			})))),
		}),
		"additional_tools": is.Record(is.Fields{
			"type": is.Need(name), "id": id, "role": is.Opt(is.Enum("developer", "system")), "tools": is.Need(is.Each(provider.MaxTools, tool)),
		}),
		"tool_search_call": is.Record(is.Fields{
			"type": is.Need(name), "id": id, "status": status, "call_id": is.Opt(is.Maybe(name)), "execution": is.Need(is.Enum("client")), "arguments": is.Need(is.Any),
		}),
		"tool_search_output": is.Record(is.Fields{
			"type": is.Need(name), "id": id, "status": status, "call_id": is.Opt(is.Maybe(name)), "execution": is.Need(is.Enum("client")),
			"tools": is.Need(is.Each(provider.MaxTools, tool)),
		}),
	}, serverTools))

	functionTool = is.Record(is.Fields{
		"type": is.Need(name), "name": is.Need(name), "description": is.Opt(is.Maybe(text)), "parameters": is.Opt(is.Maybe(is.AnyObject)),
		"strict": is.Opt(is.Maybe(is.YesNo)), "defer_loading": is.Opt(is.Maybe(is.YesNo)), "output_schema": is.Drop(is.Any),
	})
	customTool = is.Record(is.Fields{
		"type": is.Need(name), "name": is.Need(name), "description": is.Opt(text), "defer_loading": is.Opt(is.Maybe(is.YesNo)),
		"format": is.Opt(is.Tagged("", map[string]is.Rule{
			"text": is.Record(is.Fields{"type": is.Need(name)}),
			"grammar": is.Record(is.Fields{
				"type": is.Need(name), "syntax": is.Need(is.Enum("lark", "regex")), "definition": is.Need(text),
			}),
		}, nil)),
	})
	tool = is.Tagged("", map[string]is.Rule{
		"function": functionTool,
		"custom":   customTool,
		"namespace": is.Record(is.Fields{
			"type": is.Need(name), "name": is.Need(name), "description": is.Opt(text),
			"tools": is.Need(is.Each(provider.MaxTools, is.Tagged("", map[string]is.Rule{"function": functionTool, "custom": customTool}, serverTools))),
		}),
		"tool_search": is.Record(is.Fields{
			"type": is.Need(name), "execution": is.Need(is.Enum("client")), "description": is.Opt(text), "parameters": is.Opt(is.AnyObject),
		}),
	}, serverTools)

	choice = is.Maybe(is.ByKind(map[is.Kind]is.Rule{
		is.String: is.Enum("none", "auto", "required"),
		is.Object: is.Record(is.Fields{"type": is.Need(is.Enum("function", "custom")), "name": is.Need(name)}),
	}))

	responsesRule = with(is.Fields{
		"input": is.Need(is.ByKind(map[is.Kind]is.Rule{is.String: text, is.Array: inputs})), "instructions": is.Opt(is.Maybe(text)),
		"max_output_tokens": is.Opt(is.Maybe(is.Whole(1, 10_000_000))), "tools": is.Opt(is.Each(provider.MaxTools, tool)), "tool_choice": is.Opt(choice),
		"include": is.Opt(is.Maybe(is.Each(8, is.Enum("reasoning.encrypted_content")))),
		"reasoning": is.Opt(is.Maybe(is.Record(is.Fields{
			"effort": is.Opt(effort), "summary": is.Opt(is.Maybe(is.Enum("auto", "concise", "detailed", "none"))), "context": is.Opt(is.Maybe(name)),
		}))),
		"text": is.Opt(is.Maybe(is.Record(is.Fields{
			"verbosity": is.Opt(is.Maybe(is.Enum("low", "medium", "high"))),
			"format": is.Opt(is.Tagged("", map[string]is.Rule{
				"text":        is.Record(is.Fields{"type": is.Need(name)}),
				"json_object": is.Record(is.Fields{"type": is.Need(name)}),
				"json_schema": is.Record(is.Fields{
					"type": is.Need(name), "name": is.Need(name), "description": is.Opt(text), "schema": is.Need(is.AnyObject), "strict": is.Opt(is.Maybe(is.YesNo)),
				}),
			}, nil)),
		}))),
		"truncation":     is.Opt(is.Maybe(is.Enum("auto", "disabled"))),
		"stream_options": is.Drop(is.Maybe(is.AnyObject)),
		"max_tool_calls": is.Opt(is.Maybe(is.Whole(1, 1000))),

		"previous_response_id": is.Never(provider.WhyStored), "conversation": is.Never(provider.WhyStored),
		"background": is.Opt(is.No(provider.WhyStored)), "prompt": is.Never(provider.WhyStored),
	})
)

// Images. style and effects are DreamCore's own: the built-in picture maker
// takes them as they are, for others style becomes part of the prompt.

var imageSize = regexp.MustCompile(`^(auto|[1-9][0-9]{1,3}x[1-9][0-9]{1,3})$`)

var imageRule = is.Record(is.Fields{
	"model": is.Need(name), "prompt": is.Need(is.Text(4000)), "n": is.Opt(is.Whole(1, 4)),
	"size": is.Opt(func(v *is.Value, at is.Path) error {
		if !imageSize.MatchString(v.Text()) {
			return &is.Violation{Field: at.String(), Problem: `must be "WIDTHxHEIGHT" in pixels, or "auto"`}
		}
		return nil
	}),
	"background":      is.Opt(is.Enum("transparent", "opaque", "auto")),
	"quality":         is.Opt(is.Enum("low", "medium", "high", "auto", "standard", "hd")),
	"output_format":   is.Drop(is.Enum("png", "webp", "jpeg")), // PNG comes out here in any case
	"response_format": is.Drop(is.Enum("b64_json")),
	"moderation":      is.Drop(is.Enum("auto")),
	"user":            is.Drop(name),
	"style":           is.Opt(is.Text(200)),
	"effects": is.Opt(is.Each(16, func(v *is.Value, at is.Path) error {
		if err := is.Text(60)(v, at); err != nil {
			return err
		}
		if strings.Trim(strings.ToLower(v.Text()), "abcdefghijklmnopqrstuvwxyz0123456789#:=.,+-_% ") != "" {
			return &is.Violation{Field: at.String(), Problem: "is not a plain word"}
		}
		return nil
	})),
	"seed": is.Opt(is.Whole(0, 1<<53)),
})
