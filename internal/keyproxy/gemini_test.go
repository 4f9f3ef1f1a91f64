package keyproxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/keyproxy/provider/gemini"
	"dreamcore/internal/strictjson"
)

const (
	geminiPath   = "/gemini/v1beta/models/fake-model:generateContent"
	geminiStream = "/gemini/v1beta/models/fake-model:streamGenerateContent?alt=sse"
	geminiCount  = "/gemini/v1beta/models/fake-model:countTokens"
	geminiBody   = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
)

// google answers as the Gemini API does, with 100 tokens in and 3 + 4 out.
func google(w http.ResponseWriter, r *http.Request) {
	const usage = `"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":3,"thoughtsTokenCount":4,"totalTokenCount":107}`
	switch {
	case strings.HasSuffix(r.URL.Path, ":countTokens"):
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		io.WriteString(w, `{"totalTokens":100,"promptTokensDetails":[{"modality":"TEXT","tokenCount":100}]}`)
	case strings.HasSuffix(r.URL.Path, ":streamGenerateContent"):
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range googleEvents(usage, "hel", "lo") {
			io.WriteString(w, e)
			w.(http.Flusher).Flush()
		}
	default:
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		io.WriteString(w, `{"candidates":[{"content":{"parts":[{"text":"hello"}],"role":"model"},"finishReason":"STOP","index":0}],`+usage+`,"modelVersion":"fake-model"}`)
	}
}

func googleEvents(usage string, pieces ...string) []string {
	var out []string
	for i, p := range pieces {
		text, _ := json.Marshal(p)
		end, told := "", `"usageMetadata":{"promptTokenCount":100,"totalTokenCount":100}`
		if i == len(pieces)-1 {
			end, told = `,"finishReason":"STOP"`, usage
		}
		out = append(out, fmt.Sprintf("data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": %s}],\"role\": \"model\"}%s,\"index\": 0}],%s,\"modelVersion\": \"fake-model\"}\r\n\r\n", text, end, told))
	}
	return out
}

func TestGeminiRoutes(t *testing.T) {
	for path, want := range map[string]string{geminiPath: "hello", geminiStream: "hel", geminiCount: "totalTokens"} {
		w := newWorld(t)
		r := w.post(path, geminiBody)
		if r.status != 200 || r.err != nil || !strings.Contains(r.body, want) {
			t.Fatalf("%s: %d %v %s", path, r.status, r.err, r.body)
		}
		req, body := w.up.seen()
		if got := req.Header.Get("X-Goog-Api-Key"); got != canary {
			t.Errorf("%s: the key is %q", path, got)
		}
		if len(req.Header.Values("Authorization")) > 0 || strings.Contains(req.URL.RawQuery, "key") {
			t.Errorf("%s: %v %s", path, req.Header, req.URL)
		}
		if !strings.HasPrefix(req.URL.Path, "/v1beta/models/fake-model:") || req.URL.RawQuery != map[bool]string{true: "alt=sse"}[path == geminiStream] {
			t.Errorf("%s: went to %s", path, req.URL)
		}
		if path == geminiCount {
			continue
		}
		// B03: without a limit of its own it gets the model's.
		if n := body["generationConfig"].(map[string]any)["maxOutputTokens"]; n != 16_384.0 {
			t.Errorf("%s: maxOutputTokens %v", path, n)
		}
		a := w.settled(1)[0]
		if a.InputTokens != 100 || a.OutputTokens != 7 || a.Model != "fake-model" || a.CostMicros != 405 {
			t.Errorf("%s: audit %+v", path, a)
		}
	}
}

func TestGeminiModelNamesInThePath(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"fake", "fake-model-latest", "Fake-Model", "real-name", "fake-model.", "unknown"} {
		w.refused(w.post("/gemini/v1beta/models/"+name+":generateContent", geminiBody), 403, ModelRefused)
	}
	w.refused(w.post("/gemini/v1beta/models/unpriced:generateContent", geminiBody), 403, NoPrice)
	for _, path := range []string{
		"/gemini/v1beta/models/fake%2Dmodel:generateContent", "/gemini/v1beta/models/..%2fx:generateContent", "/gemini/v1beta/models/fake-model%3AgenerateContent",
		"/gemini/v1beta/models/../models/fake-model:generateContent", "/gemini/v1beta//models/fake-model:generateContent", "/openai/v1/chat:completions",
	} {
		w.refused(w.post(path, geminiBody), 400, BadTarget)
	}
	// The body's word for the model counts for nothing; an alias leads to the real name.
	if r := w.post("/gemini/v1beta/models/renamed:generateContent", strings.Replace(geminiBody, "{", `{"model":"models/expensive",`, 1)); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	req, body := w.up.seen()
	if req.URL.Path != "/v1beta/models/real-name:generateContent" || body["model"] != nil {
		t.Errorf("%s %v", req.URL.Path, body)
	}
	if _, err := New(Config{Verifier: newVerifier(t), Dir: t.TempDir(), Upstreams: map[dreamcore.Feature][]Upstream{dreamcore.GoogleGemini: {
		{BaseURL: "https://example.com/v1beta", Models: []ModelPrice{{Name: "a", Upstream: "../x"}}},
	}}}); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("a name that climbs: %v", err)
	}
}

// On Gemini's paths the grant comes in the header of Google's clients; every
// other key, and every second value, is refused.
func TestT13T14GeminiCredentials(t *testing.T) {
	w := newWorld(t)
	set := func(headers ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Authorization")
			for i := 0; i < len(headers); i += 2 {
				r.Header.Add(headers[i], headers[i+1])
			}
		}
	}
	other := w.mint(nil)
	for name, c := range map[string]struct {
		change func(*http.Request)
		status int
		reason Reason
	}{
		"none":                 {set(), 403, NoToken},
		"T14 own key":          {set("X-Goog-Api-Key", "AIzaAttacker"), 400, ForeignKey},
		"T14 bearer":           {set("Authorization", "Bearer ya29.attacker"), 400, ForeignKey},
		"T14 both":             {set("X-Goog-Api-Key", w.token, "Authorization", "Bearer ya29.attacker"), 400, TwoCredentials},
		"T14 api-key":          {set("X-Goog-Api-Key", w.token, "Api-Key", "x"), 400, ForeignKey},
		"T14 cookie":           {set("X-Goog-Api-Key", w.token, "Cookie", "SID=x"), 400, ForeignKey},
		"T13 repeated":         {set("X-Goog-Api-Key", w.token, "X-Goog-Api-Key", w.token), 400, TwoCredentials},
		"T13 different":        {set("X-Goog-Api-Key", w.token, "Authorization", "Bearer "+other), 400, TwoCredentials},
		"T13 with x-api-key":   {set("X-Goog-Api-Key", w.token, "X-Api-Key", other), 400, TwoCredentials},
		"T13 different repeat": {set("X-Goog-Api-Key", w.token, "X-Goog-Api-Key", other), 400, TwoCredentials},
	} {
		t.Run(name, func(t *testing.T) { w.refused(w.send("POST", geminiPath, geminiBody, c.change), c.status, c.reason) })
	}
	for _, query := range []string{"?key=AIzaAttacker", "?alt=sse&key=AIzaAttacker", "?key=" + w.token, "?alt=json", "?alt=sse"} {
		w.refused(w.send("POST", geminiPath+query, geminiBody, nil), 400, BadQuery)
	}
	w.refused(w.send("POST", strings.TrimSuffix(geminiStream, "?alt=sse"), geminiBody, nil), 400, BadQuery)
	// On the other families' paths the header is a foreign one.
	for _, path := range modelPaths {
		w.refused(w.send("POST", path, minimal(path, false), func(r *http.Request) { r.Header.Set("X-Goog-Api-Key", w.token) }), 400, ForeignKey)
	}
	for _, headers := range [][]string{{"X-Goog-Api-Key", w.token}, {"Authorization", "Bearer " + w.token}, {"X-Goog-Api-Key", w.token, "Authorization", "Bearer " + w.token}} {
		if r := w.send("POST", geminiPath, geminiBody, set(headers...)); r.status != 200 {
			t.Errorf("%v: %d %s", headers, r.status, r.body)
		}
	}
}

func TestGeminiRefusalsHaveGooglesShape(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		body, status, reason string
		code                 int
	}{
		{`{"contents":[],"tools":[{"googleSearch":{}}]}`, "INVALID_ARGUMENT", "field_not_allowed", 400},
		{`{`, "INVALID_ARGUMENT", "bad_json", 400},
	} {
		r := w.post(geminiPath, c.body)
		var e struct {
			Error struct {
				Code            int
				Message, Status string
				Details         []struct {
					Type   string `json:"@type"`
					Reason string
				}
			}
		}
		if err := json.Unmarshal([]byte(r.body), &e); err != nil || r.status != c.code || e.Error.Code != c.code || e.Error.Status != c.status ||
			len(e.Error.Details) != 1 || e.Error.Details[0].Reason != c.reason || e.Error.Message == "" {
			t.Errorf("%v: %d %s", err, r.status, r.body)
		}
	}
	// A quota error of Google's says when to come again in its details.
	w.up.set(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(429)
		io.WriteString(w, `{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"33.2s"}]}}`)
	})
	if r := w.post(geminiStream, geminiBody); r.status != 429 || r.header.Get("Retry-After") != "34" || !strings.Contains(r.body, "RESOURCE_EXHAUSTED") {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
	w.up.set(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}`)
	})
	if r := w.post(geminiPath, geminiBody); r.status != 502 || !strings.Contains(r.body, string(UpstreamKey)) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// R01, R02, R03 on this protocol: the key in one piece, cut by pieces, in an
// object, and in base64.
func TestR02GeminiStreamsAreRedacted(t *testing.T) {
	w := newWorld(t)
	w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for _, e := range googleEvents(`"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}`, "a "+canary[:10], canary[10:20], canary[20:]+" b", "end") {
			io.WriteString(rw, e)
			rw.(http.Flusher).Flush()
		}
		fmt.Fprintf(rw, "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{\"k\":%q}}}]}}]}\n\n", canary)
	})
	r := w.post(geminiStream, geminiBody)
	if r.status != 200 || strings.Contains(r.body, canary) || strings.Contains(r.body, canary[10:20]) || !strings.Contains(r.body, "functionCall") || !strings.Contains(r.body, `end`) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestB05B06B07GeminiUsage(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		output func(int64) bool
		alert  bool
	}{
		"B06 missing":  {`data: {"candidates":[{"content":{"parts":[{"text":"hello"}]},"finishReason":"STOP"}]}`, func(n int64) bool { return n == 16_384 }, false},
		"B07 negative": {`data: {"candidates":[{"content":{"parts":[{"text":"hello"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":-1}}`, func(n int64) bool { return n == 16_384 }, true},
		"blocked":      {`data: {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":9}}`, func(n int64) bool { return n == 0 }, false},
		"cached":       {`data: {"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"cachedContentTokenCount":4,"toolUsePromptTokenCount":1,"candidatesTokenCount":2}}`, func(n int64) bool { return n == 2 }, false},
	} {
		w := newWorld(t)
		w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(rw, c.answer+"\n\n")
		})
		if r := w.post(geminiStream, geminiBody); r.status != 200 {
			t.Fatalf("%s: %d %s", name, r.status, r.body)
		}
		if a := w.lastAudit(); !c.output(a.OutputTokens) || (w.p.Alerts() > 0) != c.alert {
			t.Errorf("%s: %+v, %d alerts", name, a, w.p.Alerts())
		}
	}
}

// FuzzGeminiMeter: whatever an upstream says, the numbers stay within bounds.
func FuzzGeminiMeter(f *testing.F) {
	for _, e := range googleEvents(`"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}`, "a", "b") {
		f.Add([]byte(strings.TrimSpace(strings.TrimPrefix(e, "data: "))))
	}
	f.Add([]byte(`{"usageMetadata":{"promptTokenCount":9e9,"cachedContentTokenCount":-4}}`))
	f.Add([]byte(`{"candidates":[{"content":{"parts":[{"text":"x","thought":true},{"functionCall":{}}]}},null,1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := strictjson.Parse(data)
		if err != nil {
			return
		}
		m := gemini.Operations()["gemini.stream"].Meter(nil)
		m.Event(&v)
		m.Overloaded(&v)
		for _, d := range m.Deltas(&v) {
			if d.Piece == nil || d.Piece.Kind != strictjson.String {
				t.Fatal("a delta that is no text")
			}
		}
		tokens, _, sane := m.Tokens()
		if sane && (tokens.Input < 0 || tokens.Output < 0 || tokens.CacheRead < 0) {
			t.Fatalf("%+v", tokens)
		}
	})
}
