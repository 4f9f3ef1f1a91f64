package keyproxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"dreamcore"
)

// local is an OpenAI-compatible server as it is found in the field: what it
// refuses in a request, and how it answers.
type local struct {
	model   string   // as it calls it
	refuses []string // fields that make it answer 400
	stream  []string // the data of its events
	output  int64    // what it says it made
}

const localBase = `"created":1764552000,"model":"m","object":"chat.completion.chunk"`

var locals = map[string]local{
	// Ollama heeds only max_tokens, thinks in "reasoning" and counts in an event of its own.
	"ollama": {
		model: "qwen3-coder:30b-a3b-q4_K_M", output: 12,
		stream: []string{
			`{"id":"chatcmpl-351",` + localBase + `,"system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Okay"},"finish_reason":null}]}`,
			`{"id":"chatcmpl-351",` + localBase + `,"system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}`,
			`{"id":"chatcmpl-351",` + localBase + `,"system_fingerprint":"fp_ollama","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}`,
			`{"id":"chatcmpl-351",` + localBase + `,"system_fingerprint":"fp_ollama","choices":[],"usage":{"prompt_tokens":26,"completion_tokens":12,"total_tokens":38}}`,
		},
	},
	// llama.cpp counts in the event that ends the answer, beside its timings, and
	// begins with a content that is null. Its templates raise on unknown roles.
	"llama.cpp": {
		model: "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M", output: 9,
		stream: []string{
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],` + localBase + `,"id":"chatcmpl-x","system_fingerprint":"b6210-a094f381"}`,
			`{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"hello"}}],` + localBase + `,"id":"chatcmpl-x","system_fingerprint":"b6210-a094f381"}`,
			`{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],` + localBase + `,"id":"chatcmpl-x","usage":{"completion_tokens":9,"prompt_tokens":30,"total_tokens":39},` +
				`"timings":{"prompt_n":30,"prompt_ms":12.5,"prompt_per_second":2400.1,"predicted_n":9,"predicted_ms":100.25,"predicted_per_second":89.7}}`,
		},
	},
	// vLLM refuses what it does not know, writes null for what is not there, and
	// counts in an event of its own whose details may be null.
	"vllm": {
		model: "Qwen/Qwen3-Coder-30B-A3B-Instruct", output: 7, refuses: []string{"store", "prompt_cache_key", "verbosity", "max_completion_tokens"},
		stream: []string{
			`{"id":"chatcmpl-1",` + localBase + `,"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}`,
			`{"id":"chatcmpl-1",` + localBase + `,"choices":[{"index":0,"delta":{"reasoning_content":"Okay"},"logprobs":null,"finish_reason":null,"token_ids":null}],"usage":null}`,
			`{"id":"chatcmpl-1",` + localBase + `,"choices":[{"index":0,"delta":{"content":"hello"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
			`{"id":"chatcmpl-1",` + localBase + `,"choices":[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}]}`,
			`{"id":"chatcmpl-1",` + localBase + `,"choices":[],"usage":{"prompt_tokens":40,"total_tokens":47,"completion_tokens":7,"prompt_tokens_details":null}}`,
		},
	},
}

func (l local) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]json.RawMessage
	data, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(data, &body)
	for _, f := range l.refuses {
		if body[f] != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', '%s')}]","type":"BadRequestError","param":null,"code":400}`, f)
			return
		}
	}
	if strings.Contains(string(data), `"developer"`) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(500)
		io.WriteString(w, `{"error":{"code":500,"message":"Unexpected message role.","type":"server_error"}}`)
		return
	}
	if string(body["stream"]) != "true" {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprintf(w, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello","tool_calls":[]},"finish_reason":"stop"}],"usage":{"prompt_tokens":30,"completion_tokens":%d}}`, l.output)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, e := range l.stream {
		fmt.Fprintf(w, ": keep-alive\n\ndata: %s\n\n", e)
		w.(http.Flusher).Flush()
	}
	io.WriteString(w, "data: [DONE]\n\n")
}

// compatible is a job whose only model is that of a local server, under a short name.
func compatible(l local) option {
	return func(cfg *Config, terms *JobTerms) {
		u := cfg.Upstreams[dreamcore.OpenAIChat][0]
		u.Key, u.Compatible = dreamcore.Secret{}, true
		u.Models = []ModelPrice{{Name: "coder", Upstream: l.model, Free: true, MaxOutputTokens: 8192}}
		u.Set = map[string]json.RawMessage{"chat_template_kwargs": json.RawMessage(`{"enable_thinking":false}`), "top_k": json.RawMessage("20")}
		u.ExtraFields = []string{"top_k", "min_p"}
		cfg.Upstreams = map[dreamcore.Feature][]Upstream{dreamcore.OpenAIChat: {u}}
		terms.Models = []string{"coder"}
	}
}

func TestCompatibleServers(t *testing.T) {
	bodies := map[string]string{
		"small": `{"model":"coder","stream":true,"messages":[{"role":"developer","content":"be brief"},{"role":"user","content":"hi"}],"max_completion_tokens":900,"max_tokens":1000,"store":false,"verbosity":"low","top_k":5,"min_p":0.1}`,
	}
	for name, r := range recordings(t) {
		if r.Path == chatPath {
			var m map[string]json.RawMessage
			if err := json.Unmarshal(r.Body, &m); err != nil {
				t.Fatal(err)
			}
			m["model"] = json.RawMessage(`"coder"`)
			b, _ := json.Marshal(m)
			bodies[name] = string(b)
		}
	}
	for kind, l := range locals {
		w := newWorld(t, compatible(l))
		w.up.set(l.ServeHTTP)
		for name, body := range bodies {
			r := w.post(chatPath, body)
			if r.status != 200 || !strings.Contains(r.body, "hello") || !strings.HasSuffix(r.body, "[DONE]\n\n") {
				t.Errorf("%s, %s: %d %s", kind, name, r.status, r.body)
				continue
			}
			req, m := w.up.seen()
			if m["model"] != l.model {
				t.Errorf("%s, %s: the model is %v", kind, name, m["model"])
			}
			if len(req.Header.Values("Authorization")) != 0 {
				t.Errorf("%s, %s: a header for no key", kind, name)
			}
			if name == "small" && (m["max_tokens"] != 900.0 || m["max_completion_tokens"] != nil || m["top_k"] != 20.0 || m["min_p"] != 0.1 || m["chat_template_kwargs"] == nil) {
				t.Errorf("%s: %v", kind, m)
			}
			if m["max_tokens"] == nil {
				t.Errorf("%s, %s: no limit of the output", kind, name)
			}
			if a := w.lastAudit(); a.OutputTokens != l.output || a.CostMicros != 0 || a.Model != "coder" {
				t.Errorf("%s, %s: %+v", kind, name, a)
			}
		}
		if r := w.post(chatPath, strings.Replace(bodies["small"], `"stream":true`, `"stream":false`, 1)); r.status != 200 || w.lastAudit().OutputTokens != l.output {
			t.Errorf("%s: %d %s", kind, r.status, r.body)
		}
		// What the operator has not allowed stays refused.
		if r := w.post(chatPath, strings.Replace(bodies["small"], `"min_p"`, `"options"`, 1)); r.status != 400 || !strings.Contains(r.body, "options") {
			t.Errorf("%s: %d %s", kind, r.status, r.body)
		}
	}
}

// The same server without the word for it, as a twin: its refusal is passed on
// with the server's own message.
func TestCompatibleServerWithoutTheWord(t *testing.T) {
	l := locals["vllm"]
	w := newWorld(t, compatible(l), func(cfg *Config, _ *JobTerms) { cfg.Upstreams[dreamcore.OpenAIChat][0].Compatible = false })
	w.up.set(l.ServeHTTP)
	r := w.post(chatPath, `{"model":"coder","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	if r.status != 400 || !strings.Contains(r.body, "extra_forbidden") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A server that still loads its model is asked again.
func TestCompatibleServerLoads(t *testing.T) {
	l := locals["llama.cpp"]
	w := newWorld(t, compatible(l), func(cfg *Config, _ *JobTerms) { cfg.Timeouts.Retry = 1 })
	w.up.set(func(rw http.ResponseWriter, r *http.Request) {
		if w.up.calls.Load() < 2 {
			rw.Header().Set("Content-Type", "application/json; charset=utf-8")
			rw.WriteHeader(503)
			io.WriteString(rw, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`)
			return
		}
		l.ServeHTTP(rw, r)
	})
	if r := w.post(chatPath, `{"model":"coder","stream":true,"messages":[{"role":"user","content":"hi"}]}`); r.status != 200 || w.up.calls.Load() != 2 {
		t.Errorf("%d %s after %d calls", r.status, r.body, w.up.calls.Load())
	}
}

// Two servers behind one protocol: each model goes to its own.
func TestSeveralUpstreamsOfOneFeature(t *testing.T) {
	other := newFake(t)
	w := newWorld(t, func(cfg *Config, terms *JobTerms) {
		u := cfg.Upstreams[dreamcore.OpenAIChat][0]
		u.BaseURL, u.Key, u.Models = "http://"+other.addr+"/v1", dreamcore.NewSecret("sk-second-operator-key"), []ModelPrice{{Name: "local/coder:30b", Free: true}}
		u.ExtraFields = []string{"only_here"}
		cfg.Upstreams[dreamcore.OpenAIChat] = append(cfg.Upstreams[dreamcore.OpenAIChat], u)
		terms.Models = append(terms.Models, "local/coder:30b")
	})
	body := strings.Replace(minimal(chatPath, false), "fake-model", "local/coder:30b", 1)
	if r := w.post(chatPath, strings.Replace(body, "{", `{"only_here":1,`, 1)); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	w.dials(0)
	if req, _ := other.seen(); req.Header.Get("Authorization") != "Bearer sk-second-operator-key" {
		t.Errorf("the second server got %v", req.Header)
	}
	w.passes()
	if other.calls.Load() != 1 {
		t.Errorf("the second server saw %d calls", other.calls.Load())
	}
	// The extra field is the second server's alone, and so is its model another protocol's not.
	if r := w.post(chatPath, strings.Replace(minimal(chatPath, false), "{", `{"only_here":1,`, 1)); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.post(messagesPath, strings.Replace(minimal(messagesPath, false), "fake-model", "local/coder:30b", 1)); r.status != 403 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.send("GET", "/openai/v1/models", "", nil); !strings.Contains(r.body, "local/coder:30b") {
		t.Errorf("%s", r.body)
	}
	twice := upstreams(w.up)
	twice[dreamcore.OpenAIChat] = append(slices.Clone(twice[dreamcore.OpenAIChat]), twice[dreamcore.OpenAIChat][0])
	if _, err := New(Config{Verifier: newVerifier(t), Dir: t.TempDir(), Upstreams: twice}); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("a model that stands there twice: %v", err)
	}
}

func TestFieldsThatCannotBeSet(t *testing.T) {
	for field, value := range map[string]string{"model": `"x"`, "stream": "true", "max_tokens": "1", "top_k": "{", "": "1"} {
		u := Upstream{BaseURL: "https://example.com/v1", Set: map[string]json.RawMessage{field: json.RawMessage(value)}}
		if _, err := New(Config{Verifier: newVerifier(t), Dir: t.TempDir(), Upstreams: map[dreamcore.Feature][]Upstream{dreamcore.OpenAIChat: {u}}}); dreamcore.CodeOf(err) != dreamcore.Invalid {
			t.Errorf("%q: %v", field, err)
		}
	}
}
