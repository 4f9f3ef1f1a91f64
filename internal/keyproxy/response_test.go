package keyproxy

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// echoes are the forms in which the upstream gives the key back.
func echoes() map[string]string {
	unicode, percent := "", ""
	for _, c := range []byte(canary) {
		unicode += fmt.Sprintf(`\u%04x`, c)
		percent += fmt.Sprintf("%%%02x", c)
	}
	m := map[string]string{
		"plain": canary, "hex": hex.EncodeToString([]byte(canary)), "query": url.QueryEscape(canary), "percent": percent,
		"basic": "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+canary)), "unicode": unicode,
		"json slash": strings.ReplaceAll(canary, "/", `\/`),
	}
	for skip := range 3 {
		in := []byte(strings.Repeat("x", skip) + canary + "yz")
		m[fmt.Sprintf("base64 %d", skip)] = base64.StdEncoding.EncodeToString(in)
		m[fmt.Sprintf("base64url %d", skip)] = base64.RawURLEncoding.EncodeToString(in)
	}
	return m
}

// leaks reports whether text holds the key in any form, decoding what it can.
func leaks(text string) bool {
	var plain strings.Builder
	plain.WriteString(text)
	for line := range strings.SplitSeq(text, "\n") {
		var v any
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &v) == nil {
			fmt.Fprint(&plain, v)
		}
	}
	all := plain.String()
	if u, err := url.QueryUnescape(all); err == nil {
		all += u
	}
	for _, form := range echoes() {
		if strings.Contains(all, form) {
			return true
		}
	}
	middle := base64.StdEncoding.EncodeToString([]byte(canary))[8:40]
	return strings.Contains(all, middle)
}

func TestR01AndR03Echoes(t *testing.T) {
	for name, form := range echoes() {
		w := newWorld(t)
		for where, answer := range map[string]http.HandlerFunc{
			"body": func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				fmt.Fprintf(rw, `{"type":"message","content":[{"type":"text","text":"your key is %s!"}],"usage":{"input_tokens":1,"output_tokens":1}}`, form)
			},
			"error": func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				rw.WriteHeader(400)
				fmt.Fprintf(rw, `{"error":{"message":"bad key %s"}}`, form)
			},
			"header": func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Request-Id", form)
				rw.Header().Set("X-Echo", form)
				rw.Header().Set("Set-Cookie", "a="+form)
				standard(rw, r)
			},
		} {
			w.up.set(answer)
			r := w.post(messagesPath, minimal(messagesPath, false))
			if r.status != 200 && r.status != 400 {
				t.Errorf("%s in %s: %d %s", name, where, r.status, r.body)
			}
			if leaks(r.body) || leaks(fmt.Sprint(r.header)) {
				t.Errorf("%s in %s: %v %s", name, where, r.header, r.body)
			}
			if where != "header" && !strings.Contains(r.body, "REDACTED") {
				t.Errorf("%s in %s: no placeholder: %s", name, where, r.body)
			}
			if r.header.Get("X-Echo") != "" || r.header.Get("Set-Cookie") != "" {
				t.Errorf("%s: headers %v", name, r.header)
			}
		}
		w.up.set(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			rw.Header().Set("X-Request-Id", form)
			for _, e := range events3(r.URL.Path, "a", "b") {
				io.WriteString(rw, e)
			}
			fmt.Fprintf(rw, "event: %s\ndata: {\"type\":\"other\",\"x\":\"%s\"}\n\n", form, form)
			fmt.Fprintf(rw, ": %s\nid: %s\nretry: 1\n\ndata: not json %s\n\n", form, form, form)
		})
		for _, path := range modelPaths {
			r := w.post(path, minimal(path, true))
			if leaks(r.body) || leaks(fmt.Sprint(r.header)) || r.status != 200 {
				t.Errorf("%s in %s: %s", name, path, r.body)
			}
			if strings.Contains(r.body, "retry:") || strings.Contains(r.body, "\nid:") {
				t.Errorf("%s: fields that nobody needs: %s", path, r.body)
			}
		}
	}
}

// text puts the pieces of a stream together, as a client does.
func text(t *testing.T, path, body string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.SplitSeq(body, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e struct {
			Type  string          `json:"type"`
			Delta json.RawMessage `json:"delta"`
			Chose []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v: %q", err, data)
		}
		switch {
		case path == messagesPath && e.Type == "content_block_delta":
			var d struct {
				Text string `json:"text"`
			}
			_ = json.Unmarshal(e.Delta, &d)
			out.WriteString(d.Text)
		case path == responsesPath && e.Type == "response.output_text.delta":
			var d string
			_ = json.Unmarshal(e.Delta, &d)
			out.WriteString(d)
		case path == chatPath:
			for _, c := range e.Chose {
				out.WriteString(c.Delta.Content)
			}
		}
	}
	return out.String()
}

func TestR02SplitOverEventsAndSegments(t *testing.T) {
	form := echoes()["base64 1"]
	for _, path := range modelPaths {
		for _, in := range []string{"key: " + canary + " end", "key: " + form + " end", "ends with " + canary[:len(canary)-3], canary, "s", "nothing s\u006b"} {
			for _, size := range []int{1, 2, 7, 1000} {
				w := newWorld(t)
				var pieces []string
				for rest := in; rest != ""; {
					n := min(size, len(rest))
					pieces = append(pieces, rest[:n])
					rest = rest[n:]
				}
				w.up.set(func(rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("Content-Type", "text/event-stream")
					whole := strings.Join(events3(r.URL.Path, pieces...), "")
					for len(whole) > 0 { // TCP segments cut anywhere
						n := min(37, len(whole))
						io.WriteString(rw, whole[:n])
						rw.(http.Flusher).Flush()
						whole = whole[n:]
					}
				})
				r := w.post(path, minimal(path, true))
				if leaks(r.body) {
					t.Fatalf("%s %q by %d: %s", path, in, size, r.body)
				}
				got := text(t, path, r.body)
				if leaks(got) {
					t.Fatalf("%s %q by %d: put together: %q", path, in, size, got)
				}
				if !strings.Contains(in, canary) && !strings.Contains(in, form) && got != in {
					t.Errorf("%s %q by %d: %q", path, in, size, got)
				}
				if strings.Contains(in, " end") && !strings.HasSuffix(got, " end") {
					t.Errorf("%s %q by %d: the end is missing: %q", path, in, size, got)
				}
			}
		}
	}
}

func TestR04CompressedAnswers(t *testing.T) {
	var gz bytes.Buffer
	zw := gzip.NewWriter(&gz)
	io.WriteString(zw, `{"usage":{}}`)
	zw.Close()
	for _, stream := range []bool{true, false} {
		w := newWorld(t)
		w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			rw.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/json"}[stream])
			rw.Write(gz.Bytes())
		})
		r := w.post(messagesPath, minimal(messagesPath, stream))
		if r.status != 502 || !strings.Contains(r.body, string(UpstreamBroken)) {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}

func TestBrokenUpstreams(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		status int
		reason Reason
	}{
		"html": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/html")
			io.WriteString(rw, "<h1>hi</h1>")
		}, 502, UpstreamBroken},
		"no JSON": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			io.WriteString(rw, "{")
		}, 502, UpstreamBroken},
		"breaks off": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.Header().Set("Content-Length", "1000")
			io.WriteString(rw, "{")
		}, 502, UpstreamBroken},
		"closes": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, UpstreamDown},
		"our key": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(401)
			io.WriteString(rw, `{"error":{"message":"invalid x-api-key"}}`)
		}, 502, UpstreamKey},
		"forbidden": {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(403) }, 502, UpstreamKey},
		"too long": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(400)
			io.WriteString(rw, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`)
		}, 400, "prompt is too long: 210000 tokens > 200000 maximum"},
		"rate": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "17")
			rw.WriteHeader(429)
		}, 429, UpstreamError},
		"overloaded": {func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Retry-After", "9")
			rw.WriteHeader(529)
		}, 529, UpstreamError},
	} {
		w := newWorld(t)
		w.up.set(c.answer)
		r := w.post(messagesPath, minimal(messagesPath, false))
		if r.status != c.status || !strings.Contains(r.body, string(c.reason)) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if (r.status == 429 || r.status == 529) && r.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", name)
		}
		if name == "rate" && r.header.Get("Retry-After") != "17" {
			t.Errorf("Retry-After: %v", r.header)
		}
		if strings.Contains(r.body, "x-api-key") {
			t.Errorf("%s: %s", name, r.body)
		}
	}
	// Nobody listens.
	w := newWorld(t, func(cfg *Config, _ *JobTerms) {
		for f, us := range cfg.Upstreams {
			u := us[0]
			u.BaseURL = "http://127.0.0.1:1"
			cfg.Upstreams[f] = []Upstream{u}
		}
	})
	if r := w.post(messagesPath, minimal(messagesPath, true)); r.status != 502 || !strings.Contains(r.body, string(UpstreamDown)) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestOverloadIsAskedAgainUnseen(t *testing.T) {
	overload := map[string]string{
		messagesPath:  "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n",
		chatPath:      "data: {\"error\":{\"message\":\"Overloaded\",\"code\":\"overloaded\"}}\n\n",
		responsesPath: "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_is_overloaded\"}}}\n\n",
	}
	for _, path := range modelPaths {
		w := newWorld(t, func(cfg *Config, _ *JobTerms) { cfg.Timeouts.Retry = 10 * time.Millisecond })
		w.up.set(func(rw http.ResponseWriter, r *http.Request) {
			if w.up.calls.Load() == 1 {
				rw.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(rw, overload[path])
				return
			}
			standard(rw, r)
		})
		r := w.post(path, minimal(path, true))
		if r.status != 200 || strings.Contains(strings.ToLower(r.body), "overloaded") || text(t, path, r.body) != "hello" || w.up.calls.Load() != 2 {
			t.Errorf("%s: %d calls, %d %s", path, w.up.calls.Load(), r.status, r.body)
		}
		// It never gets better: the client is told.
		w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(rw, overload[path])
		})
		if r := w.post(path, minimal(path, true)); !strings.Contains(strings.ToLower(r.body), "overloaded") {
			t.Errorf("%s: %s", path, r.body)
		}
	}
}

// The usage of a chat stream is always asked for, and told only to who asked.
func TestUsageChunkOnlyWhenAsked(t *testing.T) {
	w := newWorld(t)
	for extra, want := range map[string]bool{"": false, `"stream_options":{"include_usage":true},`: true, `"stream_options":{"include_usage":false},`: false, `"stream_options":null,`: false} {
		r := w.post(chatPath, strings.Replace(minimal(chatPath, true), "{", "{"+extra, 1))
		if r.status != 200 || strings.Contains(r.body, `"usage"`) != want || !strings.Contains(r.body, "[DONE]") {
			t.Errorf("%q: %d %s", extra, r.status, r.body)
		}
		if _, m := w.up.seen(); fmt.Sprint(m["stream_options"]) != "map[include_usage:true]" {
			t.Errorf("%q: %v", extra, m["stream_options"])
		}
	}
	w.settled(4)
	if u := w.usage(); u.OutputTokens != 28 {
		t.Errorf("%+v", u)
	}
}

// A stream that ends in the middle of an event is cut, not closed.
func TestStreamThatBreaksOffInAnEvent(t *testing.T) {
	w := newWorld(t)
	for name, tail := range map[string]string{"broken": `data: {"type":"content_block_delta","del`, "whole": `data: {"type":"message_stop"}`} {
		w.up.set(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(rw, events3(r.URL.Path, "x")[0]+tail)
		})
		if r := w.post(messagesPath, minimal(messagesPath, true)); (r.err != nil) != (name == "broken") {
			t.Errorf("%s: %v %s", name, r.err, r.body)
		}
	}
}

func TestSilentUpstreams(t *testing.T) {
	short := func(cfg *Config, _ *JobTerms) {
		cfg.Timeouts.Headers, cfg.Timeouts.Whole, cfg.Timeouts.Silence = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	}
	for _, stream := range []bool{true, false} {
		w := newWorld(t, short)
		w.up.set(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		r := w.post(messagesPath, minimal(messagesPath, stream))
		if r.status != 504 || !strings.Contains(r.body, string(UpstreamSilent)) {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	w := newWorld(t, short)
	w.up.set(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw, events3(r.URL.Path, "x")[0])
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	r := w.post(messagesPath, minimal(messagesPath, true))
	if r.err == nil || !strings.Contains(r.body, "message_start") {
		t.Errorf("a silent stream was not cut: %v %s", r.err, r.body)
	}
	if a := w.lastAudit(); a.Reason != UpstreamSilent {
		t.Errorf("%+v", a)
	}
}

func TestStreamIsPassedOnAtOnce(t *testing.T) {
	w := newWorld(t)
	next := make(chan struct{})
	w.up.set(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events3(r.URL.Path, "one", "two") {
			io.WriteString(rw, e)
			rw.(http.Flusher).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), "POST", w.url+messagesPath, strings.NewReader(minimal(messagesPath, true)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", w.token)
	resp, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	// The upstream sends the next event only once this one has arrived.
	buf := make([]byte, 64<<10)
	for range 7 {
		n, err := resp.Body.Read(buf)
		if err != nil || !bytes.HasSuffix(buf[:n], []byte("\n\n")) {
			t.Fatalf("%v %q", err, buf[:n])
		}
		next <- struct{}{}
	}
}

func TestStreamLongerThanTheBudget(t *testing.T) {
	w := newWorld(t, limited(func(b *budgetOf) { b.Bytes = 400_000 }))
	w.up.set(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		e := events3(r.URL.Path, strings.Repeat("x", 10_000))[2]
		for r.Context().Err() == nil {
			if _, err := io.WriteString(rw, e); err != nil {
				return
			}
		}
	})
	r := w.post(messagesPath, minimal(messagesPath, true))
	if r.err == nil {
		t.Error("it ended as if it were whole")
	}
	if a := w.lastAudit(); a.Reason != BudgetSpent {
		t.Errorf("%+v", a)
	}
	if u := w.usage(); u.Bytes > 400_000 {
		t.Errorf("%+v", u)
	}
}
