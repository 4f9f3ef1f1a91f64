package gemini

import (
	"dreamcore/internal/keyproxy/provider"
	is "dreamcore/internal/strictjson"
)

var (
	name = is.Text(256)
	text = is.Text(provider.MaxTextBytes)

	blob = is.Record(is.Fields{
		"mimeType": is.Need(is.Enum("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf")),
		"data":     is.Need(text), "displayName": is.Drop(name),
	})
	call = is.Record(is.Fields{"id": is.Opt(name), "name": is.Need(name), "args": is.Opt(is.Maybe(is.AnyObject))})
	// A function may answer with pictures beside its object.
	answer = is.Record(is.Fields{
		"id": is.Opt(name), "name": is.Need(name), "response": is.Need(is.AnyObject),
		"parts": is.Opt(is.Each(64, is.Record(is.Fields{"inlineData": is.Opt(blob), "fileData": is.Never(provider.WhyURL)}))),
	})
	part = is.Record(is.Fields{
		"text": is.Opt(text), "thought": is.Opt(is.YesNo), "thoughtSignature": is.Opt(text),
		"inlineData": is.Opt(blob), "functionCall": is.Opt(call), "functionResponse": is.Opt(answer),
		"fileData": is.Never(provider.WhyURL), "videoMetadata": is.Never("video is not offered"),
		"executableCode": is.Never(provider.WhyServer), "codeExecutionResult": is.Never(provider.WhyServer),
		"toolCall": is.Never(provider.WhyServer), "toolResponse": is.Never(provider.WhyServer),
	})
	content = is.Record(is.Fields{
		"role": is.Opt(is.Enum("user", "model", "function", "system")), "parts": is.Need(is.Each(provider.MaxParts, part)),
	})
	contents = is.Each(provider.MaxMessages, content)

	function = is.Record(is.Fields{
		"name": is.Need(name), "description": is.Opt(text),
		"parameters": is.Opt(is.AnyObject), "parametersJsonSchema": is.Opt(is.AnyObject),
		"response": is.Opt(is.AnyObject), "responseJsonSchema": is.Opt(is.AnyObject),
		"behavior": is.Opt(is.Enum("BLOCKING")),
	})
	tool = is.Record(is.Fields{
		"functionDeclarations": is.Opt(is.Each(provider.MaxTools, function)),

		"googleSearch": is.Never(provider.WhyServer), "googleSearchRetrieval": is.Never(provider.WhyServer), "googleMaps": is.Never(provider.WhyServer),
		"enterpriseWebSearch": is.Never(provider.WhyServer), "urlContext": is.Never(provider.WhyServer), "codeExecution": is.Never(provider.WhyServer),
		"computerUse": is.Never(provider.WhyServer), "fileSearch": is.Never(provider.WhyStored), "retrieval": is.Never(provider.WhyStored),
		"mcpServers": is.Never(provider.WhyMCP), "parallelAiSearch": is.Never(provider.WhyServer),
	})
	toolConfig = is.Record(is.Fields{
		"functionCallingConfig": is.Opt(is.Record(is.Fields{
			"mode":                 is.Opt(is.Enum("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")),
			"allowedFunctionNames": is.Opt(is.Each(provider.MaxTools, name)),
		})),
		"retrievalConfig":                  is.Never(provider.WhyServer),
		"includeServerSideToolInvocations": is.Opt(is.No(provider.WhyServer)),
	})

	safety = is.Record(is.Fields{"category": is.Need(name), "threshold": is.Need(name), "method": is.Drop(name)})

	generation = is.Record(is.Fields{
		"maxOutputTokens": is.Opt(is.Whole(1, 10_000_000)), "candidateCount": is.Opt(is.Whole(1, 1)),
		"temperature": is.Opt(is.Range(0, 2)), "topP": is.Opt(is.Range(0, 1)), "topK": is.Opt(is.Range(0, 1_000_000)),
		"seed": is.Opt(is.Whole(-1<<31, 1<<31)), "presencePenalty": is.Opt(is.Range(-2, 2)), "frequencyPenalty": is.Opt(is.Range(-2, 2)),
		"stopSequences": is.Opt(is.Each(16, name)), "responseMimeType": is.Opt(is.Enum("text/plain", "application/json", "text/x.enum")),
		"responseSchema": is.Opt(is.AnyObject), "responseJsonSchema": is.Opt(is.AnyObject), "_responseJsonSchema": is.Opt(is.AnyObject),
		"responseModalities": is.Opt(is.Each(1, is.Enum("TEXT", "MODALITY_UNSPECIFIED"))),
		"mediaResolution":    is.Opt(name),
		"thinkingConfig": is.Opt(is.Record(is.Fields{
			"includeThoughts": is.Opt(is.YesNo), "thinkingBudget": is.Opt(is.Whole(-1, 1_000_000)),
			"thinkingLevel": is.Opt(is.Enum("THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH", "minimal", "low", "medium", "high")),
		})),
	})

	fields = is.Fields{
		"contents": is.Need(contents), "systemInstruction": is.Opt(content),
		"tools": is.Opt(is.Each(64, tool)), "toolConfig": is.Opt(toolConfig),
		"safetySettings": is.Opt(is.Each(32, safety)), "generationConfig": is.Opt(generation),

		// The path says which model; labels name the box or its owner; nobody
		// buys a faster service.
		"model": is.Drop(name), "labels": is.Drop(is.AnyObject), "serviceTier": is.Drop(is.Enum("standard", "unspecified")),

		"cachedContent": is.Never(provider.WhyStored), "store": is.Opt(is.No(provider.WhyStore)),
		"api_base": is.Never(provider.WhyEndpoint), "base_url": is.Never(provider.WhyEndpoint),
	}
	generateRule = is.Record(fields)

	countRule = is.Record(is.Fields{"contents": is.Need(contents), "model": is.Drop(name)})
)
