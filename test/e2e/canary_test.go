package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/offline"
	"dreamcore/internal/redact"
	"dreamcore/internal/sandbox"
)

const (
	keyCanary = "sk-operator/+canary%Q2xkP0vJm5rTz8wABC"
	// jobCanary is a word of one creator's wish.
	jobCanary = "zanzibarcanary7q2x"
)

// echoing is a provider: the stand-in model behind a listener, which says the
// operator's key in every form at the begin of each text, and in a header.
type echoing struct {
	model  http.Handler
	asked  atomic.Int64
	echoed atomic.Int64
}

func (e *echoing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Api-Key") == keyCanary {
		e.asked.Add(1)
	}
	w.Header().Set("X-Request-Id", keyCanary)
	e.model.ServeHTTP(&echoWriter{ResponseWriter: w, e: e}, r)
}

type echoWriter struct {
	http.ResponseWriter
	e    *echoing
	done bool
}

func (w *echoWriter) Write(p []byte) (int, error) {
	out := p
	const mark = `"text":"`
	if i := bytes.Index(p, []byte(mark)); i >= 0 && !w.done && bytes.Contains(p, []byte("text_delta")) {
		w.done = true
		w.e.echoed.Add(1)
		said, err := json.Marshal(strings.Join(everyForm(keyCanary), " ") + " ")
		if err != nil {
			return 0, err
		}
		i += len(mark)
		out = append(append(append([]byte{}, p[:i]...), said[1:len(said)-1]...), p[i:]...)
	}
	if _, err := w.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *echoWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *echoWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a client that is gone
}

// everyForm writes a secret down in each way that is searched for.
func everyForm(s string) []string {
	all := []string{s, hex.EncodeToString([]byte(s)), url.QueryEscape(s)}
	var percent, unicode strings.Builder
	for _, b := range []byte(s) {
		fmt.Fprintf(&percent, "%%%02x", b)
		fmt.Fprintf(&unicode, `\u%04x`, b)
	}
	all = append(all, percent.String(), unicode.String())
	for _, before := range []string{"", "x", "xy"} {
		all = append(all, base64.StdEncoding.EncodeToString([]byte(before+s)), base64.RawURLEncoding.EncodeToString([]byte(before+s)))
	}
	return all
}

// A secret that is really sent to the provider and said back by it, and a word
// of another creator's job, are searched in everything that two whole jobs
// leave: logs, databases, ledger, audit, artefacts, streams, sandboxes.
func TestS05L02CanariesAreFoundNowhere(t *testing.T) {
	model, err := offline.New(offline.Config{Key: dreamcore.NewSecret(keyCanary), Log: slog.New(slog.DiscardHandler), AllowMarkers: true})
	if err != nil {
		t.Fatal(err)
	}
	provider := &echoing{model: model}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: provider}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()

	cfg := settings(t)
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(keyCanary), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Model.Name, cfg.Model.BaseURL, cfg.Model.KeyFile, cfg.Model.Private = offline.ModelName, "http://"+l.Addr().String(), keyFile, []string{"127.0.0.0/8"}
	h := open(t, cfg)
	_, other, err := h.Studio.Make(t.Context(), "somebody-else", "a dog called "+jobCanary+" that collects bones", dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	mine := h.wish("a game where a cat flies through the sky")
	key, word := search(t, keyCanary), search(t, jobCanary)

	// While it runs: the sandbox, as root, as often as it is there.
	arrived := false
	looked := h.lookInside(t, mine.ID, key, word, func(_ string, data []byte) {
		arrived = arrived || bytes.Contains(data, []byte(redact.Placeholder))
	})
	version := h.published(mine.ID)
	h.published(other.ID)
	if looked == 0 {
		t.Error("no sandbox of the job was looked into")
	}
	if provider.asked.Load() == 0 || provider.echoed.Load() == 0 {
		t.Fatalf("the provider got the key %d times and said it %d times: nothing was shown", provider.asked.Load(), provider.echoed.Load())
	}

	events := h.stream(t, mine.ID)
	key("the stream of events", events)
	word("the stream of another's events", events)
	// What was said did arrive, with the key taken out.
	if !arrived {
		t.Error("no placeholder is in the sandbox: what the provider said did not get there")
	}
	for _, f := range version.Files {
		data, err := os.ReadFile(blobFile(t, cfg.Data, f.Hash))
		if err != nil {
			t.Fatal(err)
		}
		key("the game's "+f.Path, data)
		word("the game's "+f.Path, data)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	key("the log", []byte(h.log.String()))
	word("the log", []byte(h.log.String()))
	files := 0
	if err := filepath.WalkDir(cfg.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		key(path, data)
		if strings.Contains(path, "keyproxy") { // the wish itself is in the store and in its own game
			word(path, data)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Errorf("only %d files were searched", files)
	}
	t.Logf("searched %d files, %d bytes of events, a sandbox %d times; the key was sent %d times and said %d times",
		files, len(events), looked, provider.asked.Load(), provider.echoed.Load())
}

// search returns a search for a secret in every form, which was tried out.
func search(t *testing.T, secret string) func(where string, data []byte) {
	t.Helper()
	set, err := redact.New(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range everyForm(secret) {
		if set.Clean("xx " + form + " yy") {
			t.Fatalf("the search does not find %q", form)
		}
	}
	return func(where string, data []byte) {
		t.Helper()
		if !set.Clean(string(data)) {
			t.Errorf("%.8s… is in %s", secret, where)
		}
	}
}

// lookInside searches what the job's sandbox writes until it ends.
func (h *house) lookInside(t *testing.T, id dreamcore.JobID, searches ...func(string, []byte)) int {
	t.Helper()
	looked := 0
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		job, err := h.Store.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if job.State.Ended() {
			break
		}
		boxes, err := h.Sandboxes.List(t.Context(), map[string]string{"job": string(id), "role": "agent"})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range boxes {
			sb, err := h.Sandboxes.Connect(t.Context(), b.ID)
			if err != nil {
				continue // it has ended meanwhile
			}
			res, err := sandbox.Run(t.Context(), sb, sandbox.Command{Args: []string{"sh", "-c", "tar -cf - --exclude=toolkit /home /workspace /tmp /root /etc /var/tmp 2>/dev/null; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null"}, User: sandbox.Root, Dir: "/"}, 64<<20)
			if err != nil || len(res.Stdout) < 10_000 {
				continue
			}
			for _, s := range searches {
				s("the sandbox", res.Stdout)
			}
			looked++
		}
		time.Sleep(time.Second)
	}
	return looked
}

// stream reads the events of a job as they were stored for the pages.
func (h *house) stream(t *testing.T, id dreamcore.JobID) []byte {
	t.Helper()
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for after := int64(0); ; {
		events, err := h.Store.Events(context.WithoutCancel(t.Context()), id, after, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			after = e.Seq
			if err := enc.Encode(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return b.Bytes()
}

// blobFile finds a blob's file by its hash.
func blobFile(t *testing.T, data string, hash dreamcore.BlobHash) string {
	t.Helper()
	_, hexa, ok := strings.Cut(string(hash), ":")
	if !ok {
		hexa = string(hash)
	}
	found := ""
	if err := filepath.WalkDir(filepath.Join(data, "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(strings.ReplaceAll(path, "/", ""), hexa) {
			found = path
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if found == "" {
		t.Fatalf("there is no blob %s", hash)
	}
	return found
}
