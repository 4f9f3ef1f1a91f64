package anthropic

import (
	"dreamcore/internal/keyproxy/provider"
	is "dreamcore/internal/strictjson"
)

var (
	name = is.Text(256)
	text = is.Text(provider.MaxTextBytes)

	cache = is.Maybe(is.Record(is.Fields{
		"type":  is.Need(is.Enum("ephemeral")),
		"ttl":   is.Opt(is.Enum("5m", "1h")),
		"scope": is.Opt(is.Enum("global", "org")),
	}))

	media = is.Record(is.Fields{
		"type":       is.Need(is.Enum("base64")),
		"media_type": is.Need(is.Enum("image/png", "image/jpeg", "image/gif", "image/webp")),
		"data":       is.Need(text),
	})
	paper = is.Record(is.Fields{
		"type":       is.Need(is.Enum("base64", "text")),
		"media_type": is.Need(is.Enum("application/pdf", "text/plain")),
		"data":       is.Need(text),
	})
	bySource = map[string]string{"url": provider.WhyURL, "file": provider.WhyStored}

	textBlock = is.Record(is.Fields{
		"type": is.Need(is.Enum("text")), "text": is.Need(text), "cache_control": is.Opt(cache),
		"citations": is.Drop(is.Maybe(is.Each(0, is.Any))),
	})
	imageBlock = is.Record(is.Fields{
		"type": is.Need(is.Enum("image")), "cache_control": is.Opt(cache),
		"source": is.Need(is.Tagged("", map[string]is.Rule{"base64": media}, bySource)),
	})
	documentBlock = is.Record(is.Fields{
		"type": is.Need(is.Enum("document")), "cache_control": is.Opt(cache), "title": is.Opt(is.Maybe(name)), "context": is.Opt(is.Maybe(text)),
		"source":    is.Need(is.Tagged("", map[string]is.Rule{"base64": paper, "text": paper}, bySource)),
		"citations": is.Opt(is.Maybe(is.Record(is.Fields{"enabled": is.Opt(is.YesNo)}))),
	})
	toolReference = is.Record(is.Fields{"type": is.Need(is.Enum("tool_reference")), "tool_name": is.Need(name)})

	resultContent = is.Tagged("", map[string]is.Rule{
		"text": textBlock, "image": imageBlock, "document": documentBlock, "tool_reference": toolReference,
	}, serverBlocks)

	// serverBlocks are answers of tools that run at the provider.
	serverBlocks = map[string]string{
		"server_tool_use": provider.WhyServer, "web_search": provider.WhyServer, "web_fetch": provider.WhyServer,
		"code_execution": provider.WhyServer, "bash_code_execution": provider.WhyServer,
		"mcp_tool": provider.WhyMCP, "container_upload": provider.WhyStored, "search_result": provider.WhyURL,
	}

	block = is.Tagged("", map[string]is.Rule{
		"text": textBlock, "image": imageBlock, "document": documentBlock,
		"tool_use": is.Record(is.Fields{
			"type": is.Need(is.Enum("tool_use")), "id": is.Need(name), "name": is.Need(name), "input": is.Need(is.AnyObject),
			"cache_control": is.Opt(cache),
			"caller":        is.Drop(is.Record(is.Fields{"type": is.Need(is.Enum("direct"))})),
		}),
		"tool_result": is.Record(is.Fields{
			"type": is.Need(is.Enum("tool_result")), "tool_use_id": is.Need(name), "is_error": is.Opt(is.Maybe(is.YesNo)), "cache_control": is.Opt(cache),
			"content": is.Opt(is.ByKind(map[is.Kind]is.Rule{is.String: text, is.Array: is.Each(provider.MaxParts, resultContent)})),
		}),
		"thinking":          is.Record(is.Fields{"type": is.Need(is.Enum("thinking")), "thinking": is.Need(text), "signature": is.Need(text)}),
		"redacted_thinking": is.Record(is.Fields{"type": is.Need(is.Enum("redacted_thinking")), "data": is.Need(text)}),
	}, serverBlocks)

	message = is.Record(is.Fields{
		"role":          is.Need(is.Enum("user", "assistant", "system")),
		"content":       is.Need(is.ByKind(map[is.Kind]is.Rule{is.String: text, is.Array: is.Each(provider.MaxParts, block)})),
		"output_config": is.Opt(effort),
	})

	clientTool = is.Record(is.Fields{
		"type": is.Opt(is.Maybe(is.Enum("custom"))), "name": is.Need(name), "description": is.Opt(text), "input_schema": is.Need(is.AnyObject),
		"cache_control": is.Opt(cache), "strict": is.Opt(is.YesNo), "eager_input_streaming": is.Opt(is.Maybe(is.YesNo)),
		"defer_loading": is.Opt(is.YesNo), "input_examples": is.Opt(is.Each(64, is.AnyObject)),
		"allowed_callers": is.Opt(is.Each(1, is.Enum("direct"))),
	})
	tool = is.Tagged("custom", map[string]is.Rule{"custom": clientTool}, map[string]string{
		"web_search": provider.WhyServer, "web_fetch": provider.WhyServer, "code_execution": provider.WhyServer,
		"computer": provider.WhyServer, "mcp": provider.WhyMCP, "tool_search": provider.WhyServer,
		"text_editor": "name it as a tool of your own", "bash": "name it as a tool of your own", "memory": "name it as a tool of your own",
	})

	choice = func() is.Rule {
		plain := is.Record(is.Fields{"type": is.Need(name), "disable_parallel_tool_use": is.Opt(is.YesNo)})
		return is.Tagged("", map[string]is.Rule{
			"auto": plain, "any": plain, "none": plain,
			"tool": is.Record(is.Fields{"type": is.Need(name), "name": is.Need(name), "disable_parallel_tool_use": is.Opt(is.YesNo)}),
		}, nil)
	}()

	thinking = is.Tagged("", map[string]is.Rule{
		"enabled": is.Record(is.Fields{
			"type": is.Need(name), "budget_tokens": is.Need(is.Whole(1024, 1_000_000)), "display": is.Opt(display),
		}),
		"adaptive": is.Record(is.Fields{"type": is.Need(name), "display": is.Opt(display)}),
		"disabled": is.Record(is.Fields{"type": is.Need(name)}),
	}, nil)

	display = is.Enum("summarized", "omitted", "updates")
	effort  = is.Record(is.Fields{
		"effort": is.Opt(is.Maybe(is.Enum("low", "medium", "high", "xhigh", "max"))), "format": is.Opt(outputFormat),
	})
	outputFormat = is.Maybe(is.Record(is.Fields{"type": is.Need(is.Enum("json_schema")), "schema": is.Need(is.AnyObject)}))

	amount = is.Record(is.Fields{"type": is.Need(name), "value": is.Need(is.Whole(0, 10_000_000))})
	edit   = is.Tagged("", map[string]is.Rule{
		"clear_thinking_20251015": is.Record(is.Fields{"type": is.Need(name), "keep": is.Opt(is.ByKind(map[is.Kind]is.Rule{is.String: is.Enum("all"), is.Object: amount}))}),
		"clear_tool_uses_20250919": is.Record(is.Fields{
			"type": is.Need(name), "trigger": is.Opt(amount), "keep": is.Opt(amount), "clear_at_least": is.Opt(is.Maybe(amount)),
			"exclude_tools":     is.Opt(is.Maybe(is.Each(provider.MaxTools, name))),
			"clear_tool_inputs": is.Opt(is.Maybe(is.ByKind(map[is.Kind]is.Rule{is.Bool: is.YesNo, is.Array: is.Each(provider.MaxTools, name)}))),
		}),
	}, nil)
)

// common is what both operations accept.
func common(more is.Fields) is.Rule {
	f := is.Fields{
		"model":    is.Need(name),
		"messages": is.Need(is.Each(provider.MaxMessages, message)),
		"system":   is.Opt(is.ByKind(map[is.Kind]is.Rule{is.String: text, is.Array: is.Each(256, textBlock)})),
		"tools":    is.Opt(is.Each(provider.MaxTools, tool)), "tool_choice": is.Opt(choice), "thinking": is.Opt(thinking),
		"output_config":      is.Opt(effort),
		"context_management": is.Opt(is.Maybe(is.Record(is.Fields{"edits": is.Opt(is.Each(8, edit))}))),
		"cache_control":      is.Opt(cache),

		// Accepted from clients that always send it; nothing that names a
		// person or the box leaves.
		"metadata":     is.Drop(is.Maybe(is.AnyObject)),
		"service_tier": is.Drop(is.Enum("auto", "standard_only")),

		"mcp_servers": is.Never(provider.WhyMCP),
		"container":   is.Never(provider.WhyStored),
		"api_base":    is.Never(provider.WhyEndpoint),
		"base_url":    is.Never(provider.WhyEndpoint),
	}
	for k, v := range more {
		f[k] = v
	}
	return is.Record(f)
}

var messagesRule = common(is.Fields{
	"max_tokens":     is.Opt(is.Whole(1, 10_000_000)),
	"stream":         is.Opt(is.YesNo),
	"temperature":    is.Opt(is.Range(0, 1)),
	"top_p":          is.Opt(is.Range(0, 1)),
	"top_k":          is.Opt(is.Whole(0, 1_000_000)),
	"stop_sequences": is.Opt(is.Each(64, name)),
})

var countRule = common(nil)
