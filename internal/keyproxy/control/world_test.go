package control

import (
	"bufio"
	"bytes"
	"context"
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
	"dreamcore/internal/keyproxy"
)

// TestMain lets the test binary be the proxy's process.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Command {
		err := Main(context.Background(), func(name string, key dreamcore.Secret, _ bool, log *slog.Logger) (http.Handler, error) {
			if name != "echo" {
				return nil, fmt.Errorf("there is no built-in %q", name)
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				log.Info("the built-in upstream was asked", "with_key", r.Header.Get("X-Api-Key") == key.Reveal())
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"type":"message","content":[],"usage":{"input_tokens":1,"output_tokens":1}}`)
			}), nil
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	box      = "sbx0001"
	path     = "/anthropic/v1/messages"
	canary   = "sk-canary-Operator-Key-0123456789"
	patience = 90 * time.Second
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// world is a host with a real process, one open job, an upstream, and the
// socket on which the job's sandbox comes in.
type world struct {
	t      *testing.T
	h      *Host
	log    *lines
	dir    string
	minter *grant.Minter
	terms  keyproxy.JobTerms
	token  string
	socket string
	key    string // the file
	keys   atomic.Value
	answer atomic.Value // http.HandlerFunc of the upstream
}

// trialUser is the proxy's in tests: another one where there is more than one.
func trialUser() *User {
	if os.Geteuid() != 0 {
		return nil
	}
	return &User{UID: 59417, GID: 59417}
}

func newWorld(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	m, err := grant.NewMinter()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, log: &lines{}, minter: m, dir: filepath.Join(t.TempDir(), "keyproxy")}
	w.key = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(w.key, []byte(canary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.answer.Store(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.keys.Store(r.Header.Get("X-Api-Key"))
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"type":"message","content":[],"usage":{"input_tokens":100,"output_tokens":7}}`)
	}))
	up, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.answer.Load().(http.HandlerFunc)(rw, r)
	})}
	go func() { _ = srv.Serve(up) }()
	t.Cleanup(func() { _ = srv.Close() })

	cfg := Config{
		Dir: w.dir, User: trialUser(), Log: slog.New(slog.NewTextHandler(w.log, nil)), Wait: time.Millisecond,
		Settings: func() (Settings, []*os.File, error) {
			f, err := os.Open(w.key)
			if err != nil {
				return Settings{}, nil, err
			}
			return Settings{Verifier: m.Verifier().String(), RemoteName: "proxy.example", Sources: map[dreamcore.Feature][]Source{
				dreamcore.AnthropicMessages: {{KeyFile: 1, Upstream: keyproxy.Upstream{
					BaseURL: "http://" + up.Addr().String(), Private: loopback,
					Models: []keyproxy.ModelPrice{{Name: "fake-model", Free: true}},
				}}},
				dreamcore.OpenAIChat: {{BuiltIn: "echo", Upstream: keyproxy.Upstream{
					BaseURL: "http://echo.invalid/v1", Models: []keyproxy.ModelPrice{{Name: "echo-model", Free: true}},
				}}},
			}}, []*os.File{f}, nil
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if w.h, err = Start(ctx, cfg); err != nil {
		t.Fatalf("%v\n%s", err, w.log)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := w.h.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("%.8000s", w.log)
		}
	})
	w.listen()
	w.terms = keyproxy.JobTerms{
		Job: dreamcore.NewJobID(), Attempt: 1, Channel: box, Features: []dreamcore.Feature{dreamcore.AnthropicMessages, dreamcore.OpenAIChat},
		Models: []string{"fake-model", "echo-model"},
		Budget: dreamcore.Budget{Requests: 1e6, InputTokens: 1e9, OutputTokens: 1e9, Bytes: 1 << 40, CostMicros: 1e9},
	}
	if err := w.h.OpenJob(ctx, w.terms); err != nil {
		t.Fatal(err)
	}
	w.token = w.mint(w.terms.Job)
	return w
}

func (w *world) mint(job dreamcore.JobID) string {
	w.t.Helper()
	now := time.Now()
	token, err := w.minter.Mint(grant.Claims{
		Job: job, Attempt: 1, Channel: box, Audience: keyproxy.Audience, Features: w.terms.Features, NotBefore: now, Expires: now.Add(10 * time.Minute),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// listen is the engine's part: one socket for the sandbox, of which each
// connection is handed over.
func (w *world) listen() {
	dir, err := os.MkdirTemp("", "cp")
	if err != nil {
		w.t.Fatal(err)
	}
	w.socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var busy sync.WaitGroup
	busy.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			busy.Go(func() { w.h.ServeConn(ctx, box, conn) })
		}
	})
	w.t.Cleanup(func() {
		_ = l.Close()
		cancel()
		busy.Wait()
		_ = os.RemoveAll(dir)
	})
}

func (w *world) dial() net.Conn {
	w.t.Helper()
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// begin sends a request and returns the answer, of which the body is not read.
func (w *world) begin(path, model, token string, stream bool) (*http.Response, error) {
	w.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"max_tokens":100,"stream":%t,"messages":[{"role":"user","content":"hi"}]}`, model, stream)
	req, err := http.NewRequest("POST", "http://127.0.0.1:4000"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	conn := w.dial()
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(conn), req)
}

// ask is one whole call.
func (w *world) ask(path, model, token string) (int, string) {
	w.t.Helper()
	resp, err := w.begin(path, model, token, false)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func (w *world) passes() {
	w.t.Helper()
	if code, body := w.ask(path, "fake-model", w.token); code != 200 {
		w.t.Fatalf("%d %s", code, body)
	}
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never: %s", what)
		}
	}
}
