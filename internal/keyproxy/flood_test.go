package keyproxy

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Refusals that come before a job's own limit must not fill the host's disk.
func TestL05FloodOfRefusals(t *testing.T) {
	w := newWorld(t, func(_ *Config, terms *JobTerms) { terms.PerMinute = 0 }) // the default
	const total = 20_000
	inTurn, away := 0, 0
	h := w.p.Handler(sandbox)
	for i := range total {
		method, path := "GET", "/nothing"
		switch i % 4 {
		case 1:
			method, path = "HEAD", "/"
		case 2:
			path = "/openai/v1/models"
		case 3:
			method, path = "POST", messagesPath // without a token
		}
		r := httptest.NewRequest(method, path, nil)
		r.Host = w.addr
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		if rec.Code != 429 {
			inTurn++
			continue
		}
		away++
		if rec.Header().Get("Retry-After") == "" || rec.Header().Get("Connection") != "close" ||
			method != "HEAD" && !strings.Contains(rec.Body.String(), string(Flood)) {
			t.Fatalf("%v %s", rec.Header(), rec.Body)
		}
	}
	if inTurn < floodFactor*DefaultPerMinute || away == 0 {
		t.Fatalf("%d answered, %d turned away", inTurn, away)
	}
	// On a connection it ends it. The bucket may have filled a little.
	for range 100 {
		raw := w.raw("GET /nothing HTTP/1.1\r\nHost: "+w.addr+"\r\n\r\nGET /nothing HTTP/1.1\r\nHost: "+w.addr+"\r\nConnection: close\r\n\r\n", 0)
		inTurn += strings.Count(raw, "HTTP/1.1 404")
		away += strings.Count(raw, "HTTP/1.1 429")
		if before, _, ok := strings.Cut(raw, "HTTP/1.1 429"); ok && !strings.Contains(raw[len(before):], "Connection: close") {
			t.Fatal(raw)
		}
	}
	// Others are not in it.
	r := httptest.NewRequest("GET", "/nothing", nil)
	r.Host = w.addr
	rec := httptest.NewRecorder()
	w.p.Handler("another").ServeHTTP(rec, r)
	if inTurn++; rec.Code != 404 {
		t.Errorf("another channel got %d", rec.Code)
	}

	var single, shared, floods int64
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		single, shared, floods = 0, 0, 0
		for _, a := range w.audits() {
			if a.Reason != Flood {
				single++
				continue
			}
			if shared, floods = shared+a.Requests, floods+1; a.Requests < 1 || a.Job != w.job || a.Channel != sandbox || a.Decision != "refuse" || a.Status != 429 {
				t.Fatalf("%+v", a)
			}
		}
		if shared == int64(away) && single == int64(inTurn) || time.Now().After(deadline) {
			break
		}
	}
	if shared != int64(away) || single != int64(inTurn) {
		t.Errorf("%d records for %d requests, %d shared by %d that were turned away", single, inTurn, shared, away)
	}
	if lines := strings.Count(w.log.String(), "flood of proxy calls"); int64(lines) != floods {
		t.Errorf("%d lines for %d records", lines, floods)
	}
	if floods*20 > shared {
		t.Errorf("%d records of %d requests", floods, shared)
	}
}

// The limit of a channel is never tighter than that of its job.
func TestGates(t *testing.T) {
	now := time.Now()
	g := gates{of: map[string]*gate{}}
	count := func(channel string) (n int) {
		for g.pass(channel, now, func(string) {}) {
			n++
		}
		return n
	}
	if n := count("a"); n != floodFactor*DefaultPerMinute {
		t.Errorf("%d without a job", n)
	}
	now = now.Add(time.Second)
	if n := count("a"); n != floodFactor*DefaultPerMinute/60 {
		t.Errorf("%d in a second", n)
	}
	g.allow("b", 6000, now)
	if n := count("b"); n != floodFactor*6000 {
		t.Errorf("%d of a job of 6000", n)
	}
	g.allow("b", 6000, now) // renewed terms are no new bucket
	g.allow("b", 3, now)
	if n := count("b"); n != 0 {
		t.Errorf("%d after the terms were renewed", n)
	}
	now = now.Add(time.Hour)
	if n := count("b"); n != floodFactor*DefaultPerMinute {
		t.Errorf("%d of a job of 3", n)
	}
	if n := g.take("a"); n != 2 {
		t.Errorf("%d refused", n)
	}
	now = now.Add(time.Hour)
	for i := range 10 * gatesKept {
		g.pass(string(rune('A'+i)), now.Add(time.Duration(i)*time.Second), func(string) {})
	}
	if len(g.of) > gatesKept+1 {
		t.Errorf("%d gates are kept", len(g.of))
	}
}

// What a flood has left to say is said when the proxy closes.
func TestL05CloseRecordsTheFlood(t *testing.T) {
	w := newWorld(t, func(_ *Config, terms *JobTerms) { terms.PerMinute = 0 })
	h, away := w.p.Handler(sandbox), int64(0)
	for range 2000 {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", "/nothing", nil))
		if rec.Code == 429 {
			away++
		}
	}
	w.p.closeGates()
	var shared int64
	for _, a := range w.audits() {
		shared += a.Requests
	}
	if away == 0 || shared != away {
		t.Errorf("%d recorded of %d", shared, away)
	}
}

func TestL05AuditRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	open := func() *AuditLog {
		t.Helper()
		a, err := OpenAudit(path)
		if err != nil {
			t.Fatal(err)
		}
		a.max = 4000
		return a
	}
	check := func(files int) (records int64) {
		t.Helper()
		full, err := archives(path)
		if err != nil || len(full) != files {
			t.Fatalf("%v %v, want %d files", full, err, files)
		}
		for _, f := range append(full, path) {
			if info, err := os.Stat(f); err != nil || info.Size() > 4000 || info.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", info, err)
			}
		}
		n, err := VerifyAuditFiles(path)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	write := func(a *AuditLog, n int) {
		t.Helper()
		for range n {
			if err := a.Record(AuditRecord{Route: "x"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	shut := func(a *AuditLog) {
		t.Helper()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	a := open()
	write(a, 10)
	for full, _ := archives(path); len(full) < 2; full, _ = archives(path) {
		write(a, 1)
	}
	shut(a)
	if n := check(2); n != a.seq {
		t.Errorf("%d records of %d", n, a.seq)
	}
	a = open() // goes on where it was
	write(a, 1)
	shut(a)
	if n := check(2); n != a.seq {
		t.Errorf("%d records of %d", n, a.seq)
	}

	// A crash between the two steps of a rotation loses nothing.
	if err := os.Rename(path, archive(path, a.seq)); err != nil {
		t.Fatal(err)
	}
	was := a.seq
	a = open()
	write(a, 1)
	shut(a)
	if n := check(3); n != was+1 {
		t.Errorf("%d records of %d", n, was+1)
	}

	// What is gone or changed is found, when it is opened or checked.
	full, _ := archives(path)
	for i, name := range full {
		aside := filepath.Join(t.TempDir(), "aside")
		if err := os.Rename(name, aside); err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyAuditFiles(path); err == nil {
			t.Errorf("file %d is gone and nobody noticed", i)
		}
		if i == len(full)-1 {
			if _, err := OpenAudit(path); err == nil {
				t.Error("the chain has a gap and was opened")
			}
		}
		data, err := os.ReadFile(aside)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(data), `"route":"x"`, `"route":"y"`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyAuditFiles(path); err == nil {
			t.Errorf("file %d is changed and nobody noticed", i)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// However much is written, the disk does not fill.
	a = open()
	write(a, 200)
	shut(a)
	if n := check(auditKept); n >= a.seq {
		t.Errorf("%d records of %d are kept", n, a.seq)
	}
	full, _ = archives(path)
	if err := os.Remove(full[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyAuditFiles(path); err == nil {
		t.Error("more is gone than goes by itself")
	}

	// A rotation that fails is an error, and works when its cause is gone.
	a = open()
	if err := os.Mkdir(path+".away", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, filepath.Join(path+".away", "x")); err != nil {
		t.Fatal(err)
	}
	a.size = a.max
	if err := a.Record(AuditRecord{}); err == nil {
		t.Error("nothing was rotated and nothing was said")
	}
	if err := os.Rename(filepath.Join(path+".away", "x"), path); err != nil {
		t.Fatal(err)
	}
	write(a, 1)
	shut(a)
}
