package keyproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"
)

func TestL01HostileValuesStayOnOneLine(t *testing.T) {
	w := newWorld(t)
	hostile := "a\u202eb\u200b\u0000c"
	w.post(chatPath, strings.Replace(minimal(chatPath, true), `"fake-model"`, `"x\n\r\u001b[31m\u0000\u202e`+strings.Repeat("y", 1<<20)+`"`, 1))
	w.post(chatPath, strings.Replace(minimal(chatPath, true), "{", `{"`+strings.Repeat("\\u202e", 5000)+`":1,`, 1))
	w.send("POST", "/openai/"+strings.Repeat("z", 20_000), "{}", nil)
	w.send("POST", chatPath, minimal(chatPath, true), func(r *http.Request) {
		r.Header.Set("Content-Type", "text/"+strings.Repeat("q", 10_000))
	})
	w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
		rw.WriteHeader(400)
		b, _ := json.Marshal(map[string]any{"error": map[string]any{"message": hostile + "\n\x1b[2J" + strings.Repeat("m", 1<<18)}})
		rw.Write(b[:min(len(b), 200<<10)])
	})
	w.post(chatPath, minimal(chatPath, true))
	w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/\u202e"+strings.Repeat("h", 5000))
		io.WriteString(rw, "x")
	})
	w.post(chatPath, minimal(chatPath, true))
	w.settled(int(w.sent.Load()))
	raw, err := os.ReadFile(filepath.Join(w.dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(raw, []byte("\n")); n != int(w.sent.Load()) {
		t.Errorf("%d lines for %d requests", n, w.sent.Load())
	}
	for _, text := range []string{string(raw), w.log.String()} {
		for line := range strings.SplitSeq(text, "\n") {
			if len(line) > 2000 && !strings.Contains(line, `"stack"`) {
				t.Errorf("a line of %d bytes: %.200s", len(line), line)
			}
			for _, r := range line {
				if !unicode.IsPrint(r) || r == '\u202e' || r == '\u200b' {
					t.Errorf("%U in %.200q", r, line)
					break
				}
			}
		}
	}
}

func TestClip(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "日本語 ネコ": "日本語 ネコ", "a\nb": `a\nb`, "\x1b[31m": `\x1b[31m`, "\x00": `\x00`, "\u202e": `\u202e`, "\xff": `\ufffd`,
		"e\u0301": `e\u0301`, strings.Repeat("x", 300): strings.Repeat("x", 200) + "...",
	} {
		if got := clip(in, 200); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestL02NoSecretInErrors(t *testing.T) {
	w := newWorld(t, func(cfg *Config, _ *JobTerms) {})
	for _, v := range []any{w.p.upstreams, fmt.Sprintf("%+v %#v", w.p.upstreams, w.p.upstreams), upstreams(w.up)} {
		s := fmt.Sprintf("%v %+v %#v", v, v, v)
		if strings.Contains(s, canary) {
			t.Error("the key prints")
		}
		b, _ := json.Marshal(v)
		if bytes.Contains(b, []byte(canary)) {
			t.Error("the key marshals")
		}
	}
}

// failing is an auditor whose disk is full as long as full says so.
type failing struct {
	full    atomic.Bool
	records atomic.Int64
}

func (f *failing) Record(AuditRecord) error {
	if f.full.Load() {
		return errors.New("no space left on device")
	}
	f.records.Add(1)
	return nil
}

func TestL04AuditUnavailable(t *testing.T) {
	f := &failing{}
	w := newWorld(t, func(cfg *Config, _ *JobTerms) { cfg.Audit = f })
	w.passes()
	f.full.Store(true)
	w.post(chatPath, minimal(chatPath, false)) // this one finds out
	for range 2 {
		w.p.deaf.Store(true)
		before := w.up.calls.Load()
		for _, path := range append([]string{imagesPath}, modelPaths...) {
			if r := w.post(path, minimal(path, true)); r.status != 503 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, string(AuditDown)) {
				t.Errorf("%s: %d %s", path, r.status, r.body)
			}
		}
		if w.up.calls.Load() != before {
			t.Error("something was spent")
		}
	}
	f.full.Store(false)
	// The refusal itself is the record that shows that it works again.
	if r := w.post(chatPath, minimal(chatPath, false)); r.status != 503 {
		t.Errorf("%d", r.status)
	}
	for w.p.deaf.Load() {
	}
	w.passes()
}

func TestL03OneRecordEachAlsoOnPanic(t *testing.T) {
	w := newWorld(t)
	w.passes()
	w.post(messagesPath, "{")
	w.send("GET", "/nothing", "", nil)
	w.send("HEAD", "/", "", nil)
	w.send("GET", "/openai/v1/models", "", nil)
	up := w.p.upstreams["model/openai-chat"][0]
	base := up.base
	up.base = nil // a fault of ours
	r := w.post(chatPath, minimal(chatPath, false))
	if r.status != 500 || !strings.Contains(r.body, string(Panicked)) {
		t.Errorf("%d %s", r.status, r.body)
	}
	up.base = base
	w.passes()
	a := w.settled(int(w.sent.Load()))
	if len(a) != int(w.sent.Load()) {
		t.Errorf("%d records for %d requests", len(a), w.sent.Load())
	}
	var reasons []string
	for i, rec := range a {
		reasons = append(reasons, string(rec.Reason))
		if rec.Seq != int64(i+1) || rec.Channel != sandbox || rec.Time.IsZero() {
			t.Errorf("%+v", rec)
		}
	}
	if got := strings.Join(reasons, ","); got != ",bad_json,no_route,,,internal," {
		t.Errorf("reasons %q", got)
	}
	// The job is not stuck by what panicked.
	if _, err := w.p.CloseJob(t.Context(), w.job, 1); err != nil {
		t.Error(err)
	}
}

func TestAuditChain(t *testing.T) {
	w := newWorld(t)
	for range 4 {
		w.passes()
	}
	w.settled(4)
	path := filepath.Join(w.dir, "audit.jsonl")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := VerifyAudit(bytes.NewReader(good)); n != 4 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	lines := strings.SplitAfter(string(good), "\n")
	for name, bad := range map[string]string{
		"changed": strings.Replace(string(good), `"status":200`, `"status":201`, 1),
		"removed": lines[0] + lines[2] + lines[3],
		"swapped": lines[1] + lines[0] + lines[2] + lines[3],
		"begun":   lines[1] + lines[2],
		"torn":    string(good[:len(good)-5]),
		"doubled": lines[0] + lines[0],
	} {
		if _, err := VerifyAudit(strings.NewReader(bad)); err == nil {
			t.Errorf("%s was not found", name)
		}
	}
	// After a crash in the middle of a record the log goes on behind the last
	// whole one.
	dir := t.TempDir()
	torn := filepath.Join(dir, "a")
	if err := os.WriteFile(torn, good[:len(good)-5], 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := OpenAudit(torn)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Record(AuditRecord{Route: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(torn)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := VerifyAudit(f); n != 4 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if err := os.WriteFile(torn, []byte(lines[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenAudit(torn); err == nil {
		t.Error("a log that was tampered with was opened")
	}
}
