package keyproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/grant"
)

// canary is the operator's key in all tests. It is really sent upstream; the
// end of the suite looks for it in everything that the suite left behind.
const canary = "sk-canary/7+Operator%Key_0123456789-abcdefXYZ"

const sandbox = "sbx0001"

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

var every = []dreamcore.Feature{
	dreamcore.AnthropicMessages, dreamcore.OpenAIChat, dreamcore.OpenAIResponses, dreamcore.ImageGeneration, dreamcore.GoogleGemini,
}

// fake is an upstream that counts what reaches it.
type fake struct {
	t      *testing.T
	addr   string
	dials  atomic.Int64
	calls  atomic.Int64
	mu     sync.Mutex
	last   *http.Request
	body   []byte
	answer http.HandlerFunc
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, answer: standard}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	srv := &http.Server{
		Handler: f,
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				f.dials.Add(1)
			}
		},
	}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.calls.Add(1)
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.last, f.body = r.Clone(context.Background()), body
	answer := f.answer
	f.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer(w, r)
}

func (f *fake) set(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = h
}

func (f *fake) seen() (*http.Request, map[string]any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := map[string]any{}
	if err := json.Unmarshal(f.body, &m); err != nil {
		f.t.Fatalf("what reached the upstream is no JSON: %v: %q", err, f.body)
	}
	return f.last, m
}

// standard answers as the real APIs do, with 100 tokens in and 7 out.
func standard(w http.ResponseWriter, r *http.Request) {
	var m struct {
		Stream bool   `json:"stream"`
		Model  string `json:"model"`
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	if strings.Contains(r.URL.Path, ":") {
		google(w, r)
		return
	}
	if !m.Stream {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/count_tokens"):
			io.WriteString(w, `{"input_tokens":42}`)
		case strings.HasSuffix(r.URL.Path, "/messages"):
			io.WriteString(w, `{"type":"message","role":"assistant","content":[{"type":"text","text":"hello"}],"usage":{"input_tokens":100,"output_tokens":7}}`)
		case strings.HasSuffix(r.URL.Path, "/responses"):
			io.WriteString(w, `{"object":"response","status":"completed","output":[],"usage":{"input_tokens":100,"output_tokens":7}}`)
		case strings.HasSuffix(r.URL.Path, "/generations"):
			io.WriteString(w, `{"created":1,"data":[{"b64_json":"`+testPicture+`"}]}`)
		default:
			io.WriteString(w, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":7}}`)
		}
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events3(r.URL.Path, "hel", "lo") {
		io.WriteString(w, e)
		w.(http.Flusher).Flush()
	}
}

// events3 is a whole stream of whichever protocol the path is of.
func events3(path string, pieces ...string) []string {
	var out []string
	ev := func(name, format string, args ...any) {
		s := "data: " + fmt.Sprintf(format, args...) + "\n\n"
		if name != "" {
			s = "event: " + name + "\n" + s
		}
		out = append(out, s)
	}
	q := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	switch {
	case strings.HasSuffix(path, "/messages"):
		ev("message_start", `{"type":"message_start","message":{"role":"assistant","content":[],"usage":{"input_tokens":100,"output_tokens":1}}}`)
		ev("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
		for _, p := range pieces {
			ev("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}`, q(p))
		}
		ev("content_block_stop", `{"type":"content_block_stop","index":0}`)
		ev("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}`)
		ev("message_stop", `{"type":"message_stop"}`)
	case strings.HasSuffix(path, "/responses"):
		ev("response.created", `{"type":"response.created","response":{"object":"response"}}`)
		for _, p := range pieces {
			ev("response.output_text.delta", `{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":%s}`, q(p))
		}
		ev("response.output_text.done", `{"type":"response.output_text.done","output_index":0,"content_index":0,"text":%s}`, q(strings.Join(pieces, "")))
		ev("response.completed", `{"type":"response.completed","response":{"object":"response","usage":{"input_tokens":100,"output_tokens":7}}}`)
	default:
		for _, p := range pieces {
			ev("", `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%s},"finish_reason":null}]}`, q(p))
		}
		ev("", `{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`)
		ev("", `{"object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":7}}`)
		out = append(out, "data: [DONE]\n\n")
	}
	return out
}

// world is a proxy with one open job, its upstream, and the sandbox's side of
// the channel.
type world struct {
	t      *testing.T
	p      *Proxy
	up     *fake
	minter *grant.Minter
	dir    string
	url    string
	addr   string
	token  string
	job    dreamcore.JobID
	terms  JobTerms
	log    *lockedBuffer
	sent   atomic.Int64 // requests whose audit record must come
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// plenty is a budget that no test spends.
var plenty = dreamcore.Budget{
	Requests: 10_000, InputTokens: 1e9, OutputTokens: 1e9, Images: 100, Bytes: 1 << 40, CostMicros: 1e12,
}

func prices() []ModelPrice {
	return []ModelPrice{
		{Name: "fake-model", InputMicros: 3_000_000, OutputMicros: 15_000_000, MaxOutputTokens: 16_384},
		{Name: "gpt-5.5", InputMicros: 1_000_000, OutputMicros: 10_000_000},
		{Name: "renamed", Upstream: "real-name", Free: true},
		{Name: "unpriced"},
		{Name: "fake-image", ImageMicros: 40_000},
	}
}

func upstreams(f *fake) map[dreamcore.Feature][]Upstream {
	m := map[dreamcore.Feature][]Upstream{}
	for _, feature := range every {
		u := Upstream{BaseURL: "http://" + f.addr + "/v1", Key: dreamcore.NewSecret(canary), Models: prices(), Private: loopback}
		if feature == dreamcore.AnthropicMessages {
			u.BaseURL = "http://" + f.addr
		}
		if feature == dreamcore.GoogleGemini {
			u.BaseURL = "http://" + f.addr + "/v1beta"
		}
		m[feature] = []Upstream{u}
	}
	return m
}

type option func(*Config, *JobTerms)

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	w := &world{t: t, up: newFake(t), dir: t.TempDir(), job: dreamcore.NewJobID(), log: &lockedBuffer{}}
	var err error
	if w.minter, err = grant.NewMinter(); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Verifier: w.minter.Verifier(), Upstreams: upstreams(w.up), Dir: w.dir,
		Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	w.terms = JobTerms{
		Job: w.job, Attempt: 1, Channel: sandbox, Features: every, Budget: plenty, PerMinute: 100_000, Concurrency: 64,
		Models: []string{"fake-model", "gpt-5.5", "renamed", "unpriced", "fake-image"},
	}
	for _, o := range options {
		o(&cfg, &w.terms)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.addr = l.Addr().String()
	w.url = "http://" + w.addr
	if cfg.Hosts == nil {
		cfg.Hosts = []string{w.addr}
	}
	if w.p, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := w.p.OpenJob(t.Context(), w.terms); err != nil {
		t.Fatal(err)
	}
	w.token = w.mint(nil)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := w.p.Serve(ctx, sandbox, l); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
		defer stop()
		if err := w.p.Close(cctx); err != nil {
			t.Error(err)
		}
		cancel()
		<-served
		w.sweep()
	})
	return w
}

// sweep looks for the operator's key in all that a test left behind.
func (w *world) sweep() {
	if strings.Contains(w.log.String(), canary) {
		w.t.Error("the operator's key is in the log")
	}
	_ = filepath.Walk(w.dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			w.t.Error(err)
		}
		if bytes.Contains(data, []byte(canary)) {
			w.t.Errorf("the operator's key is in %s", path)
		}
		if bytes.Contains(data, []byte(w.token)) {
			w.t.Errorf("the job's token is in %s", path)
		}
		return nil
	})
}

func (w *world) mint(change func(*grant.Claims)) string {
	w.t.Helper()
	now := time.Now()
	c := grant.Claims{
		Job: w.job, Attempt: 1, Channel: sandbox, Audience: Audience, Features: every,
		NotBefore: now.Add(-time.Second), Expires: now.Add(10 * time.Minute),
	}
	if change != nil {
		change(&c)
	}
	token, err := w.minter.Mint(c)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

const (
	messagesPath  = "/anthropic/v1/messages"
	chatPath      = "/openai/v1/chat/completions"
	responsesPath = "/openai/v1/responses"
	imagesPath    = "/openai/v1/images/generations"
)

var modelPaths = []string{messagesPath, chatPath, responsesPath}

// minimal is the smallest good body of a path.
func minimal(path string, stream bool) string {
	switch path {
	case messagesPath:
		return fmt.Sprintf(`{"model":"fake-model","max_tokens":1000,"stream":%t,"messages":[{"role":"user","content":"hi"}]}`, stream)
	case responsesPath:
		return fmt.Sprintf(`{"model":"fake-model","stream":%t,"input":"hi"}`, stream)
	case imagesPath:
		return `{"model":"fake-image","prompt":"a cat"}`
	case geminiPath:
		return geminiBody
	case messagesPath + "/count_tokens":
		return `{"model":"fake-model","messages":[{"role":"user","content":"hi"}]}`
	}
	return fmt.Sprintf(`{"model":"fake-model","stream":%t,"messages":[{"role":"user","content":"hi"}]}`, stream)
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (w *world) send(method, path, body string, change func(*http.Request)) reply {
	w.t.Helper()
	r, err := w.try(method, path, body, change)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) try(method, path, body string, change func(*http.Request)) (reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+w.token)
	if change != nil {
		change(req)
	}
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	w.sent.Add(1)
	data, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(data), err}, nil
}

func (w *world) post(path, body string) reply {
	w.t.Helper()
	return w.send("POST", path, body, nil)
}

// raw writes bytes to the proxy that hold n requests, and returns all that
// comes back until the connection ends.
func (w *world) raw(request string, n int64) string {
	w.t.Helper()
	w.sent.Add(n)
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		w.t.Fatal(err)
	}
	data, _ := io.ReadAll(conn)
	return string(data)
}

// refused checks that a reply is the refusal, and that no packet left.
func (w *world) refused(r reply, status int, reason Reason) {
	w.t.Helper()
	if r.status != status || !strings.Contains(r.body, string(reason)) {
		w.t.Errorf("got %d %s, want %d %s", r.status, r.body, status, reason)
	}
	w.dials(0)
	if rec := w.lastAudit(); rec.Reason != reason || rec.Decision != "refuse" || rec.Status != status {
		w.t.Errorf("the audit says %s %s %d, want refuse %s %d", rec.Decision, rec.Reason, rec.Status, reason, status)
	}
}

func (w *world) dials(want int64) {
	w.t.Helper()
	if got := w.up.dials.Load(); got != want {
		w.t.Errorf("the upstream saw %d dials, want %d", got, want)
	}
}

// passes is the twin of every refusal: the same thing done right reaches the
// upstream by exactly one call.
func (w *world) passes() {
	w.t.Helper()
	before := w.up.calls.Load()
	if r := w.post(chatPath, minimal(chatPath, false)); r.status != 200 {
		w.t.Fatalf("the positive control got %d %s", r.status, r.body)
	}
	if got := w.up.calls.Load() - before; got != 1 {
		w.t.Fatalf("the positive control made %d calls", got)
	}
}

func (w *world) audits() []AuditRecord {
	w.t.Helper()
	f, err := os.Open(filepath.Join(w.dir, "audit.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	var out []AuditRecord
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var r AuditRecord
		if err := json.Unmarshal(sc.Bytes(), &r); err != nil {
			w.t.Fatalf("audit: %v: %q", err, sc.Text())
		}
		if r.Decision == "seal" {
			continue // of a job, not of a request
		}
		out = append(out, r)
	}
	return out
}

// settled waits until n audit records are there: a record is written after the
// last byte of the answer.
func (w *world) settled(n int) []AuditRecord {
	w.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		a := w.audits()
		if len(a) >= n {
			return a
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d audit records, want %d", len(a), n)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *world) lastAudit() AuditRecord {
	w.t.Helper()
	a := w.settled(int(w.sent.Load()))
	return a[len(a)-1]
}

func (w *world) usage() dreamcore.Usage {
	w.t.Helper()
	u, err := w.p.Usage(w.job)
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}
