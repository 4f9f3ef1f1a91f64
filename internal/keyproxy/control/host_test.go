package control

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dreamcore"
	"dreamcore/internal/keyproxy"
)

// The whole way: a sandbox's connection, the job's terms, the operator's key,
// usage, and a job that is closed.
func TestCallThroughTheProcess(t *testing.T) {
	w := newWorld(t)
	w.passes()
	if got := w.keys.Load(); got != canary {
		t.Errorf("the upstream got the key %q", got)
	}
	if code, body := w.ask("/openai/v1/chat/completions", "echo-model", w.token); code == 400 || code == 404 {
		t.Errorf("the built-in upstream: %d %s", code, body)
	}
	w.until("the built-in upstream's word in our log", func() bool {
		return strings.Contains(w.log.String(), `msg="the built-in upstream was asked" with_key=`)
	})
	u, err := w.h.Usage(t.Context(), w.terms.Job)
	if err != nil || u.Requests != 2 || u.InputTokens < 100 {
		t.Errorf("%+v %v", u, err)
	}
	h, err := w.h.Health(t.Context())
	if up := h.Upstreams[0]; err != nil || up.Feature != dreamcore.AnthropicMessages || h.Jobs != 1 || up.Good != 1 || up.State != keyproxy.Up {
		t.Errorf("%+v %v", h, err)
	}
	if u, err = w.h.CloseJob(t.Context(), w.terms.Job, 1); err != nil || u.Requests != 2 {
		t.Errorf("%+v %v", u, err)
	}
	if code, body := w.ask(path, "fake-model", w.token); code != 403 || !strings.Contains(body, string(keyproxy.JobUnknown)) && !strings.Contains(body, string(keyproxy.JobEnded)) {
		t.Errorf("%d %s", code, body)
	}
	if err := w.h.OpenJob(t.Context(), w.terms); dreamcore.CodeOf(err) != dreamcore.Conflict {
		t.Errorf("a closed attempt opens again: %v", err)
	}
	if _, err := w.h.Usage(t.Context(), "nobody"); dreamcore.CodeOf(err) != dreamcore.NotFound {
		t.Errorf("usage of nobody: %v", err)
	}
}

// A process that dies is started again, with the same jobs; what was in flight
// is charged whole, once; a stream that was cut is seen as cut.
func TestB14TheProcessDies(t *testing.T) {
	w := newWorld(t)
	w.passes()
	before, err := w.h.Usage(t.Context(), w.terms.Job)
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{})
	w.answer.Store(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(rw, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n")
		rw.(http.Flusher).Flush()
		close(began)
		<-r.Context().Done()
	}))
	resp, err := w.begin(path, "fake-model", w.token, true)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	<-began
	pid := w.h.PID()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("the stream that was cut looks whole")
	}
	w.answer.Store(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"type":"message","content":[],"usage":{"input_tokens":100,"output_tokens":7}}`)
	}))
	w.passes() // it waits for the new one
	if now := w.h.PID(); now == pid || now == 0 {
		t.Errorf("the process is %d still", now)
	}
	after, err := w.h.Usage(t.Context(), w.terms.Job)
	if err != nil || after.Requests != 3 || after.OutputTokens != before.OutputTokens+100+7 {
		t.Errorf("before %+v, after %+v, %v", before, after, err)
	}
	log := w.log.String()
	for said, times := range map[string]int{
		"the key proxy ended": 1, `msg="the key proxy runs"`: 2, "lost_calls=1": 1, "jobs=1": 1,
	} {
		if n := strings.Count(log, said); n != times {
			t.Errorf("%q stands %d times in the log, not %d", said, n, times)
		}
	}
	// A job that is closed while none runs stays closed.
	if err := unix.Kill(w.h.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if u, err := w.h.CloseJob(t.Context(), w.terms.Job, 1); err != nil || u.Requests != 3 {
		t.Errorf("%+v %v", u, err)
	}
	if code, body := w.ask(path, "fake-model", w.token); code != 403 {
		t.Errorf("%d %s", code, body)
	}
	if err := w.h.OpenJob(t.Context(), w.terms); dreamcore.CodeOf(err) != dreamcore.Conflict {
		t.Errorf("a closed attempt opens again: %v", err)
	}
}

// While no process can be started, sandboxes are told to come back, and the
// host says why, once for each try.
func TestNoProcess(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Wait = 500 * time.Millisecond })
	if err := os.Remove(w.key); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(w.h.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.until("a failed start", func() bool { return strings.Contains(w.log.String(), "the key proxy does not start") })
	resp, err := w.begin(path, "fake-model", w.token, true)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "[proxy_unavailable]") {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := w.h.Usage(ctx, w.terms.Job); dreamcore.CodeOf(err) != dreamcore.Unavailable {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(w.key, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	w.until("another process", func() bool { return w.h.PID() != 0 })
	w.passes()
}

// A box that has lost its way out is cut, whatever the process does.
func TestTheHostCuts(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("unix", filepath.Join(filepath.Dir(w.socket), "c"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	// The process sleeps: it cannot help.
	if err := unix.Kill(w.h.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.h.ServeConn(ctx, box, conn)
	}()
	cancel()
	_ = client.SetDeadline(time.Now().Add(patience))
	if n, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%d %v", n, err)
	}
	<-ended
	if err := unix.Kill(w.h.PID(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.passes()
}

// A process that does not answer is replaced.
func TestAHungProcessIsReplaced(t *testing.T) {
	w := newWorld(t)
	pid := w.h.PID()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.h.mu.Lock()
	l := w.h.life
	w.h.mu.Unlock()
	l.alive(time.Millisecond, 50*time.Millisecond, nil) // the same, in a hurry
	w.until("another process", func() bool { now := w.h.PID(); return now != 0 && now != pid })
	w.passes()
	if !strings.Contains(w.log.String(), "it does not answer") {
		t.Error("the log does not say why")
	}
}

// Close leaves no process, and the files whole.
func TestCloseLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.passes()
	pid := w.h.PID()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.h.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the process is there: %v", err)
	}
	if n, err := keyproxy.VerifyAuditFiles(filepath.Join(w.dir, "audit.jsonl")); err != nil || n < 1 {
		t.Errorf("%d records, %v", n, err)
	}
	if err := w.h.OpenJob(t.Context(), w.terms); dreamcore.CodeOf(err) != dreamcore.Unavailable {
		t.Errorf("%v", err)
	}
}
