package openai

import "dreamcore/internal/strictjson"

// onlyOpenAI are fields of Chat Completions that servers of others refuse, or
// read in a way of their own.
var onlyOpenAI = []string{"store", "prompt_cache_key", "verbosity"}

// Adapt turns a checked Chat Completions request into one that every compatible
// server understands: the limit of the output by its older name, which is the
// only one that Ollama heeds; the role developer as system, since chat templates
// of open models know no other; and nothing that only OpenAI has.
func Adapt(body *strictjson.Value) {
	if body.Get("messages") == nil {
		return // the other protocols have no such older form
	}
	if most := body.Get("max_completion_tokens"); most != nil {
		v := *most
		if older, ok := body.Get("max_tokens").Int(); ok {
			if n, _ := v.Int(); older < n {
				v = strictjson.Int(older)
			}
		}
		body.Delete("max_completion_tokens")
		body.Set("max_tokens", v)
	}
	for _, name := range onlyOpenAI {
		body.Delete(name)
	}
	messages := body.Get("messages")
	for i := range messages.Len() {
		if messages.At(i).Get("role").Text() == "developer" {
			messages.At(i).Set("role", strictjson.Str("system"))
		}
	}
}
