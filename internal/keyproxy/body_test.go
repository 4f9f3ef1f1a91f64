package keyproxy

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/strictjson"
)

// recorded is one request that a real agent CLI sent; long texts are replaced.
type recorded struct {
	Path    string            `json:"path"`
	Query   string            `json:"query"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
}

func recordings(t *testing.T) map[string]recorded {
	t.Helper()
	files, err := filepath.Glob("testdata/agents/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	out := map[string]recorded{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var r recorded
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[filepath.Base(f)] = r
	}
	return out
}

// allModels lets every model of the recordings pass.
func allModels(t *testing.T) option {
	return func(cfg *Config, terms *JobTerms) {
		names := map[string]bool{}
		for _, r := range recordings(t) {
			var b struct {
				Model string `json:"model"`
			}
			if err := json.Unmarshal(r.Body, &b); err != nil {
				t.Fatal(err)
			}
			names[b.Model] = true
		}
		terms.Models = nil
		var models []ModelPrice
		for n := range names {
			terms.Models = append(terms.Models, n)
			models = append(models, ModelPrice{Name: n, Free: true, MaxOutputTokens: 1_000_000})
		}
		for f, us := range cfg.Upstreams {
			u := us[0]
			u.Models = models
			cfg.Upstreams[f] = []Upstream{u}
		}
	}
}

func TestM07WhatAgentsReallySendPasses(t *testing.T) {
	w := newWorld(t, allModels(t))
	for name, r := range recordings(t) {
		path := r.Path
		if r.Query != "" {
			path += "?" + r.Query
		}
		got := w.send("POST", path, string(r.Body), func(req *http.Request) {
			for k, v := range r.Headers {
				req.Header.Set(k, v)
			}
		})
		if got.status != 200 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
			continue
		}
		// What reaches the upstream is what was sent, less what is dropped on
		// purpose, and more by what is ours to set.
		var sent map[string]any
		if err := json.Unmarshal(r.Body, &sent); err != nil {
			t.Fatal(err)
		}
		_, arrived := w.up.seen()
		for k := range sent {
			if _, ok := arrived[k]; !ok && k != "metadata" && k != "client_metadata" {
				t.Errorf("%s: the field %s did not arrive", name, k)
			}
		}
		for _, k := range []string{"metadata", "client_metadata"} {
			if _, ok := arrived[k]; ok {
				t.Errorf("%s: %s went upstream", name, k)
			}
		}
		if r.Path != messagesPath && arrived["store"] != false && arrived["store"] != nil {
			t.Errorf("%s: store is %v", name, arrived["store"])
		}
	}
}

func TestM07UnknownFieldNamesTheSetting(t *testing.T) {
	w := newWorld(t)
	for _, path := range modelPaths {
		body := strings.Replace(minimal(path, true), "{", `{"brand_new":1,`, 1)
		r := w.post(path, body)
		w.refused(r, 400, BadField)
		if !strings.Contains(r.body, "brand_new") || !strings.Contains(r.body, "extra_fields") {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	w.passes()
	w = newWorld(t, func(cfg *Config, _ *JobTerms) {
		u := cfg.Upstreams[dreamcore.OpenAIChat][0]
		u.ExtraFields = []string{"brand_new"}
		cfg.Upstreams[dreamcore.OpenAIChat] = []Upstream{u}
	})
	if r := w.post(chatPath, strings.Replace(minimal(chatPath, false), "{", `{"brand_new":1,`, 1)); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if _, m := w.up.seen(); m["brand_new"] != 1.0 {
		t.Errorf("the operator's field did not arrive: %v", m)
	}
}

func TestM01M02M04JSON(t *testing.T) {
	w := newWorld(t)
	for _, path := range modelPaths {
		good := minimal(path, true)
		for name, body := range map[string]string{
			"M01 duplicate":         strings.Replace(good, "{", `{"model":"evil",`, 1),
			"M01 escaped duplicate": strings.Replace(good, "{", `{"mod\u0065l":"evil",`, 1),
			"M04 second document":   good + good,
			"M04 trailing bytes":    good + "x",
			"M04 NUL":               good + "\x00",
			"empty":                 "",
			"UTF-16":                "\xff\xfe{\x00}\x00",
			"bad UTF-8":             strings.Replace(good, "hi", "\xc0\xaf", 1),
		} {
			r := w.post(path, body)
			if r.status != 400 || !strings.Contains(r.body, string(BadJSON)) {
				t.Errorf("%s %s: %d %s", path, name, r.status, r.body)
			}
		}
		for name, key := range map[string]string{"M02 upper": "MODEL", "M02 title": "Model", "M02 long s": "me\u017f\u017fages", "M02 Kelvin": "\u212Aey"} {
			r := w.post(path, strings.Replace(good, "{", `{"`+key+`":"evil",`, 1))
			if r.status != 400 || !strings.Contains(r.body, string(BadField)) {
				t.Errorf("%s %s: %d %s", path, name, r.status, r.body)
			}
		}
		for name, body := range map[string]string{"array": "[]", "string": `"x"`, "null": "null", "no model": `{"messages":[],"input":"x"}`} {
			r := w.post(path, body)
			if r.status != 400 || !strings.Contains(r.body, string(BadField)) {
				t.Errorf("%s %s: %d %s", path, name, r.status, r.body)
			}
		}
	}
	w.dials(0)
	w.passes()
}

// attacks are request bodies that would reach beyond the model, by path.
var attacks = map[string]map[string]string{
	messagesPath: {
		"M08 mcp_servers":      `"mcp_servers":[{"type":"url","url":"https://evil.example","name":"x"}]`,
		"M08 mcp toolset":      `"tools":[{"type":"mcp_toolset","mcp_server_name":"x"}]`,
		"M09 web_search":       `"tools":[{"type":"web_search_20250305","name":"web_search"}]`,
		"M09 web_fetch":        `"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]`,
		"M09 code_execution":   `"tools":[{"type":"code_execution_20250825","name":"code_execution"}]`,
		"M09 computer":         `"tools":[{"type":"computer_20250124","name":"computer","display_width_px":1,"display_height_px":1}]`,
		"M09 future tool":      `"tools":[{"type":"something_new","name":"x"}]`,
		"M10 image url":        `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://evil.example/x.png"}}]}]`,
		"M10 document url":     `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://evil.example/x.pdf"}}]}]`,
		"M10 url in result":    `"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","source":{"type":"url","url":"http://169.254.169.254/"}}]}]}]`,
		"M11 file":             `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"file_1"}}]}]`,
		"M11 container":        `"container":"c1"`,
		"M11 container_upload": `"messages":[{"role":"user","content":[{"type":"container_upload","file_id":"f"}]}]`,
		"M16 base_url":         `"base_url":"https://evil.example"`,
		"M16 api_base":         `"api_base":"https://evil.example"`,
		"M16 nested":           `"messages":[{"role":"user","content":"x","base_url":"https://evil.example"}]`,
		"M16 deeper":           `"messages":[{"role":"user","content":[{"type":"text","text":"x","api_base":"y"}]}]`,
		"speed":                `"speed":"fast"`,
		"fallback model":       `"fallbacks":[{"model":"expensive"}]`,
		"programmatic caller":  `"tools":[{"name":"x","input_schema":{},"allowed_callers":["code_execution_20250825"]}]`,
	},
	chatPath: {
		"M08 mcp tool":          `"tools":[{"type":"mcp","server_url":"https://evil.example"}]`,
		"M09 web search":        `"web_search_options":{}`,
		"M09 web_search tool":   `"tools":[{"type":"web_search"}]`,
		"M10 image url":         `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://evil.example/x.png"}}]}]`,
		"M10 data of text":      `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:text/html;base64,aaaa"}}]}]`,
		"M11 file":              `"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"f"}}]}]`,
		"M11 store":             `"store":true`,
		"M16 base_url":          `"base_url":"https://evil.example"`,
		"M16 in the tool call":  `"messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"function","api_base":"x","function":{"name":"f","arguments":"{}"}}]}]`,
		"prediction":            `"prediction":{"type":"content","content":"x"}`,
		"audio":                 `"modalities":["audio"]`,
		"many answers":          `"n":5`,
		"service tier":          `"service_tier":"priority"`,
		"other server's plugin": `"plugins":[{"id":"web"}]`,
		"other server's route":  `"provider":{"order":["x"]}`,
	},
	responsesPath: {
		"M08 mcp tool":             `"tools":[{"type":"mcp","server_label":"x","server_url":"https://evil.example"}]`,
		"M09 web_search":           `"tools":[{"type":"web_search"}]`,
		"M09 web_search_preview":   `"tools":[{"type":"web_search_preview"}]`,
		"M09 file_search":          `"tools":[{"type":"file_search","vector_store_ids":["v"]}]`,
		"M09 code_interpreter":     `"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`,
		"M09 computer":             `"tools":[{"type":"computer_use_preview"}]`,
		"M09 image_generation":     `"tools":[{"type":"image_generation"}]`,
		"M09 in a namespace":       `"tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]`,
		"M09 in an item":           `"input":[{"type":"additional_tools","tools":[{"type":"web_search"}]}]`,
		"M09 server tool search":   `"tools":[{"type":"tool_search","execution":"server"}]`,
		"M10 image url":            `"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://evil.example/x.png"}]}]`,
		"M10 file url":             `"input":[{"role":"user","content":[{"type":"input_file","file_url":"https://evil.example/x.pdf"}]}]`,
		"M10 url in an output":     `"input":[{"type":"function_call_output","call_id":"a","output":[{"type":"input_image","image_url":"http://10.0.0.1/"}]}]`,
		"M11 file_id":              `"input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]`,
		"M11 previous_response_id": `"previous_response_id":"resp_1"`,
		"M11 conversation":         `"conversation":"conv_1"`,
		"M11 background":           `"background":true`,
		"M11 store":                `"store":true`,
		"M11 item_reference":       `"input":[{"type":"item_reference","id":"x"}]`,
		"M11 prompt":               `"prompt":{"id":"pmpt_1"}`,
		"M16 base_url":             `"base_url":"https://evil.example"`,
		"M16 nested":               `"reasoning":{"effort":"low","base_url":"x"}`,
		"include":                  `"include":["file_search_call.results"]`,
		"service tier":             `"service_tier":"priority"`,
	},
	geminiPath: {
		"M08 mcp":              `"tools":[{"mcpServers":[{"name":"x"}]}]`,
		"M09 google search":    `"tools":[{"googleSearch":{}}]`,
		"M09 old search":       `"tools":[{"googleSearchRetrieval":{}}]`,
		"M09 url context":      `"tools":[{"urlContext":{}}]`,
		"M09 code execution":   `"tools":[{"functionDeclarations":[{"name":"f"}]},{"codeExecution":{}}]`,
		"M09 computer":         `"tools":[{"computerUse":{"environment":"ENVIRONMENT_BROWSER"}}]`,
		"M09 maps":             `"tools":[{"googleMaps":{}}]`,
		"M09 file search":      `"tools":[{"fileSearch":{"fileSearchStoreNames":["x"]}}]`,
		"M09 snake case":       `"tools":[{"google_search":{}}]`,
		"M09 executed code":    `"contents":[{"parts":[{"executableCode":{"language":"PYTHON","code":"x"}}]}]`,
		"M10 file":             `"contents":[{"parts":[{"fileData":{"mimeType":"image/png","fileUri":"https://evil.example/x.png"}}]}]`,
		"M10 snake case":       `"contents":[{"parts":[{"file_data":{"file_uri":"https://evil.example/x.png"}}]}]`,
		"M10 in a function":    `"contents":[{"parts":[{"functionResponse":{"name":"f","response":{},"parts":[{"fileData":{"fileUri":"https://evil.example"}}]}}]}]`,
		"M10 in the system":    `"systemInstruction":{"parts":[{"fileData":{"fileUri":"https://evil.example"}}]}`,
		"M11 cached":           `"cachedContent":"cachedContents/x"`,
		"M11 store":            `"store":true`,
		"M16 base_url":         `"base_url":"https://evil.example"`,
		"M16 nested":           `"generationConfig":{"base_url":"https://evil.example"}`,
		"many answers":         `"generationConfig":{"candidateCount":4}`,
		"pictures":             `"generationConfig":{"responseModalities":["IMAGE"]}`,
		"speech":               `"generationConfig":{"speechConfig":{}}`,
		"tokens as a string":   `"generationConfig":{"maxOutputTokens":"100"}`,
		"tokens below zero":    `"generationConfig":{"maxOutputTokens":-1}`,
		"no contents":          `"contents":{}`,
		"audio":                `"contents":[{"parts":[{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}]}]`,
		"place of the request": `"toolConfig":{"retrievalConfig":{"latLng":{"latitude":1,"longitude":1}}}`,
	},
	imagesPath: {
		"M10 image url":    `"image":"https://evil.example/x.png"`,
		"M16 base_url":     `"base_url":"https://evil.example"`,
		"url answer":       `"response_format":"url"`,
		"many":             `"n":100`,
		"size":             `"size":"100000x100000"`,
		"size form":        `"size":"1024"`,
		"webhook":          `"webhook":"https://evil.example"`,
		"partial pictures": `"partial_images":3`,
		"effects":          `"effects":["<script>"]`,
	},
}

func TestM08ToM16Attacks(t *testing.T) {
	w := newWorld(t)
	for path, list := range attacks {
		for name, field := range list {
			// The attack replaces the good field of the same name.
			v, err := strictjson.Parse([]byte(minimal(path, false)))
			if err != nil {
				t.Fatal(err)
			}
			a, err := strictjson.Parse([]byte("{" + field + "}"))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			v.Set(a.Name(0), *a.At(0))
			r := w.post(path, string(v.Append(nil)))
			if r.status != 400 || !strings.Contains(r.body, string(BadField)) {
				t.Errorf("%s %s: %d %s", path, name, r.status, r.body)
			}
		}
	}
	w.dials(0)
	w.passes()
}

// Twins of M16 and M10: the same words inside a tool's schema, its arguments or
// a text are none of our business.
func TestM16WordsInSchemasAndArguments(t *testing.T) {
	w := newWorld(t)
	for path, body := range map[string]string{
		messagesPath: `{"model":"fake-model","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"base_url":"https://x","mcp_servers":[]}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"base_url=https://x"}]}],
			"tools":[{"name":"f","input_schema":{"type":"object","properties":{"base_url":{"type":"string"}}}}]}`,
		chatPath: `{"model":"fake-model","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"api_base\":\"https://x\"}"}}]},{"role":"tool","tool_call_id":"a","content":"api_base"}],
			"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"api_base":{"type":"string"}}}}}]}`,
		responsesPath: `{"model":"fake-model","input":[{"type":"function_call","call_id":"a","name":"f","arguments":"{\"base_url\":1}"},{"type":"function_call_output","call_id":"a","output":"x"}],
			"tools":[{"type":"function","name":"f","parameters":{"properties":{"base_url":{"type":"string"}}}}]}`,
	} {
		if r := w.post(path, body); r.status != 200 {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}

func TestM11StoreIsForbiddenUpstreamToo(t *testing.T) {
	w := newWorld(t)
	w.post(responsesPath, minimal(responsesPath, false))
	if _, m := w.up.seen(); m["store"] != false {
		t.Errorf("store is %v", m["store"])
	}
	if r := w.post(responsesPath, `{"model":"fake-model","input":"x","store":false,"background":false}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestM12OtherEndpointsAndOwnModelList(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{
		"/anthropic/v1/files", "/anthropic/v1/messages/batches", "/anthropic/v1/organizations/me", "/openai/v1/files", "/openai/v1/batches",
		"/openai/v1/fine_tuning/jobs", "/openai/v1/vector_stores", "/openai/v1/assistants", "/openai/v1/images/edits", "/openai/v1/audio/speech", "/openai/v1/responses/resp_1",
		"/gemini/v1beta/files", "/gemini/v1beta/cachedContents", "/gemini/v1beta/models/fake-model:batchGenerateContent", "/gemini/v1beta/models/fake-model:embedContent",
		"/gemini/v1beta/tunedModels", "/gemini/upload/v1beta/files", "/gemini/v1beta/models/fake-model:predict", "/gemini/v1beta/models/fake-model", "/gemini/v1beta/models/a/b:generateContent",
	} {
		for _, m := range []string{"GET", "POST"} {
			w.refused(w.send(m, path, "{}", nil), 404, NoRoute)
		}
	}
	for path, name := range map[string]string{"/anthropic/v1/models": `"id":"gpt-5.5"`, "/openai/v1/models": `"id":"gpt-5.5"`, "/gemini/v1beta/models": `"name":"models/gpt-5.5"`} {
		r := w.send("GET", path, "", nil)
		if r.status != 200 || !strings.Contains(r.body, name) || strings.Contains(r.body, "real-name") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
		w.refused(w.send("GET", path, "", with("", "")), deniedStatus(path), NoToken)
	}
	w.dials(0)
	w.passes()
}

func TestM13Betas(t *testing.T) {
	w := newWorld(t)
	r := w.send("POST", messagesPath, minimal(messagesPath, false), func(r *http.Request) {
		r.Header.Set("Anthropic-Beta", "files-api-2025-04-14, interleaved-thinking-2025-05-14,mcp-client-2025-04-04,INTERLEAVED-thinking-2025-05-14")
		r.Header.Add("Anthropic-Beta", "effort-2025-11-24")
		r.Header.Set("Anthropic-Version", "2099-01-01")
	})
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	req, _ := w.up.seen()
	if got := strings.Join(req.Header.Values("Anthropic-Beta"), "|"); got != "interleaved-thinking-2025-05-14,effort-2025-11-24" {
		t.Errorf("betas %q", got)
	}
	if got := req.Header.Get("Anthropic-Version"); got != "2023-06-01" {
		t.Errorf("version %q", got)
	}
}

func TestM15ModelNamesAreExact(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{
		"fake", "fake-model-latest", "fake-model ", " fake-model", "Fake-Model", "f\u0430ke-model", "fake-model\u200b", "fake-model/../x", "*", "", "claude-opus-5-5", "real-name", "fake-model\\u0000",
	} {
		for _, path := range modelPaths {
			body := strings.Replace(minimal(path, true), `"fake-model"`, `"`+name+`"`, 1)
			w.refused(w.post(path, body), deniedStatus(path), ModelRefused)
		}
	}
	w.passes()
	// An alias of the operator's own is mapped.
	if r := w.post(chatPath, strings.Replace(minimal(chatPath, false), "fake-model", "renamed", 1)); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if _, m := w.up.seen(); m["model"] != "real-name" {
		t.Errorf("model %v", m["model"])
	}
	// A model that the upstream has and the job has not.
	w = newWorld(t, func(_ *Config, terms *JobTerms) { terms.Models = []string{"gpt-5.5"} })
	w.refused(w.post(chatPath, minimal(chatPath, true)), 400, ModelRefused)
	w = newWorld(t, func(_ *Config, terms *JobTerms) { terms.Models = nil })
	w.refused(w.post(chatPath, minimal(chatPath, true)), 400, ModelRefused)
}

// FuzzBody sends any body through the checks of every operation: what passes
// holds none of the words that lead elsewhere, outside schemas and arguments.
func FuzzBody(f *testing.F) {
	for path, list := range attacks {
		for _, field := range list {
			f.Add([]byte(strings.Replace(minimal(path, false), "{", "{"+field+",", 1)))
		}
		f.Add([]byte(minimal(path, true)))
	}
	files, _ := filepath.Glob("testdata/agents/*.json")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		var r recorded
		if err := json.Unmarshal(data, &r); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(r.Body))
	}
	ops := operations()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, op := range ops {
			v, err := strictjson.Parse(data)
			if err != nil {
				return
			}
			if op.Rule == nil || strictjson.Check(&v, op.Rule) != nil {
				continue
			}
			if op.Finish != nil {
				op.Finish(&v, op.Streams || v.Get("stream").True())
			}
			if word := forbidden(&v); word != "" {
				t.Fatalf("%s: %q passed: %s", op.Path, word, v.Append(nil))
			}
			out := v.Append(nil)
			w, err := strictjson.Parse(out)
			if err != nil {
				t.Fatalf("%s: what is sent on is no JSON: %v", op.Path, err)
			}
			if n := inputBound(&w, int64(len(out))); n < 1 {
				t.Fatalf("%s: an input bound of %d", op.Path, n)
			}
		}
	})
}

// forbidden looks for a field that leads elsewhere.
func forbidden(v *strictjson.Value) string {
	for i := range v.Len() {
		if v.Kind == strictjson.Object {
			switch name := v.Name(i); name {
			case "input_schema", "parameters", "parametersJsonSchema", "args", "response", "responseSchema", "responseJsonSchema", "_responseJsonSchema", "schema", "input", "arguments", "input_examples", "reasoning_details", "annotations":
				if name != "input" || v.Get("type").Text() == "tool_use" {
					continue
				}
			case "mcp_servers", "server_url", "file_id", "file_url", "container", "previous_response_id", "conversation", "cachedContent", "fileData", "fileUri", "googleSearch", "urlContext", "codeExecution", "api_base", "base_url", "vector_store_ids":
				return name
			case "store", "background":
				if v.At(i).True() {
					return name
				}
			case "url", "image_url":
				if t := v.At(i).Text(); t != "" && !strings.HasPrefix(t, "data:image/") {
					return name
				}
			}
		}
		if word := forbidden(v.At(i)); word != "" {
			return word
		}
	}
	return ""
}
