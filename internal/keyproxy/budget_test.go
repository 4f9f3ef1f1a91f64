package keyproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
)

func limited(change func(*dreamcore.Budget)) option {
	return func(_ *Config, terms *JobTerms) { change(&terms.Budget) }
}

func TestB01SpendToTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*dreamcore.Budget)
		spent  func(dreamcore.Usage) int64
		limit  int64
	}{
		"requests": {func(b *dreamcore.Budget) { b.Requests = 5 }, func(u dreamcore.Usage) int64 { return u.Requests }, 5},
		"input":    {func(b *dreamcore.Budget) { b.InputTokens = 3000 }, func(u dreamcore.Usage) int64 { return u.InputTokens }, 3000},
		"output":   {func(b *dreamcore.Budget) { b.OutputTokens = 300 }, func(u dreamcore.Usage) int64 { return u.OutputTokens }, 300},
		"money":    {func(b *dreamcore.Budget) { b.CostMicros = 12_000 }, func(u dreamcore.Usage) int64 { return u.CostMicros }, 12_000},
		"bytes":    {func(b *dreamcore.Budget) { b.Bytes = 130_000 }, func(u dreamcore.Usage) int64 { return u.Bytes }, 130_000},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limited(c.change))
			passed := 0
			for range 400 {
				r := w.post(messagesPath, minimal(messagesPath, true))
				if r.status == 200 {
					passed++
					continue
				}
				if r.status != 403 || !strings.Contains(r.body, string(BudgetSpent)) {
					t.Fatalf("%d %s", r.status, r.body)
				}
				break
			}
			if passed == 0 || passed == 400 {
				t.Fatalf("%d passed", passed)
			}
			calls := w.up.calls.Load()
			w.settled(int(w.sent.Load()))
			for range 3 { // it stays refused, without a packet
				if r := w.post(messagesPath, minimal(messagesPath, true)); r.status == 200 {
					t.Error("passed after the budget was spent")
				}
			}
			if w.up.calls.Load() != calls || calls != int64(passed) {
				t.Errorf("%d calls for %d passed", w.up.calls.Load(), passed)
			}
			if got := c.spent(w.usage()); got > c.limit {
				t.Errorf("spent %d of %d", got, c.limit)
			}
		})
	}
}

func TestB02FiftyAtOnceBudgetForOne(t *testing.T) {
	w := newWorld(t, limited(func(b *dreamcore.Budget) { b.Requests = 1 }))
	release := make(chan struct{})
	w.up.set(func(rw http.ResponseWriter, r *http.Request) { <-release; standard(rw, r) })
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for range 50 {
		wg.Go(func() {
			r, err := w.try("POST", messagesPath, minimal(messagesPath, true), nil)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if got[r.status]++; r.status == 403 && got[403] == 49 {
				close(release)
			}
		})
	}
	wg.Wait()
	if got[200] != 1 || got[403] != 49 || w.up.calls.Load() != 1 {
		t.Errorf("%v, %d calls", got, w.up.calls.Load())
	}
}

func TestConcurrencyAndRate(t *testing.T) {
	w := newWorld(t, func(_ *Config, terms *JobTerms) { terms.Concurrency = 2 })
	hold, entered := make(chan struct{}), make(chan struct{}, 10)
	w.up.set(func(rw http.ResponseWriter, r *http.Request) { entered <- struct{}{}; <-hold; standard(rw, r) })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if r, err := w.try("POST", messagesPath, minimal(messagesPath, false), nil); err != nil || r.status != 200 {
				t.Errorf("%d %v", r.status, err)
			}
		})
	}
	<-entered
	<-entered
	r := w.post(messagesPath, minimal(messagesPath, false))
	if r.status != 429 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, string(TooManyAtOnce)) {
		t.Errorf("%d %s", r.status, r.body)
	}
	close(hold)
	wg.Wait()

	w = newWorld(t, func(_ *Config, terms *JobTerms) { terms.PerMinute = 3 })
	for range 3 {
		w.passes()
	}
	if r := w.post(chatPath, minimal(chatPath, false)); r.status != 429 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, string(TooFast)) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestLargeBodiesAtOnce(t *testing.T) {
	w := newWorld(t)
	hold, entered := make(chan struct{}), make(chan struct{}, 10)
	w.up.set(func(rw http.ResponseWriter, r *http.Request) { entered <- struct{}{}; <-hold; standard(rw, r) })
	big := strings.Replace(minimal(messagesPath, false), "hi", strings.Repeat("a", 3<<20), 1)
	var wg sync.WaitGroup
	for range largeAtOnce {
		wg.Go(func() {
			if r, err := w.try("POST", messagesPath, big, nil); err != nil || r.status != 200 {
				t.Errorf("%d %v %s", r.status, err, r.body)
			}
		})
		<-entered
	}
	if r, err := w.try("POST", messagesPath, big, nil); err == nil && (r.status != 429 || r.header.Get("Retry-After") == "") {
		t.Errorf("%d %s", r.status, r.body) // or the connection was closed on the rest of the body
	}
	if n := w.up.calls.Load(); n != largeAtOnce {
		t.Errorf("%d calls", n)
	}
	close(hold)
	wg.Wait()
	if r := w.post(messagesPath, big); r.status != 200 {
		t.Errorf("afterwards: %d %s", r.status, r.body)
	}
	if _, m := w.up.seen(); len(fmt.Sprint(m)) < 3<<20 {
		t.Error("the body did not arrive whole")
	}
}

func TestB03AndB04OutputLimits(t *testing.T) {
	w := newWorld(t)
	field := map[string]string{messagesPath: "max_tokens", chatPath: "max_completion_tokens", responsesPath: "max_output_tokens"}
	for _, path := range modelPaths {
		v := field[path]
		// B03: absent means the model's own cap.
		body := strings.Replace(minimal(path, false), `"max_tokens":1000,`, "", 1)
		if r := w.post(path, body); r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		if _, m := w.up.seen(); m[v] != 16384.0 {
			t.Errorf("%s: %s is %v", path, v, m[v])
		}
		for number, status := range map[string]int{
			"-1": 400, "0": 400, "1.5": 400, `"100"`: 400, "1e3": 400, "true": 400, "[]": 400, "99999999999999999999999": 400, "100000001": 400,
			"1": 200, "100": 200, "16384": 200, "9000000": 200,
		} {
			r := w.post(path, strings.Replace(body, "{", fmt.Sprintf(`{"%s":%s,`, v, number), 1))
			if r.status != status {
				t.Errorf("%s %s: %d %s", path, number, r.status, r.body)
			}
			if _, m := w.up.seen(); status == 200 && m[v].(float64) > 16384 {
				t.Errorf("%s %s: %v went upstream", path, number, m[v])
			}
		}
	}
	// An older name of the field is kept, and bounded too.
	w.post(chatPath, strings.Replace(minimal(chatPath, false), "{", `{"max_tokens":9000000,`, 1))
	if _, m := w.up.seen(); m["max_tokens"] != 16384.0 || m["max_completion_tokens"] != nil {
		t.Errorf("%v", m)
	}
	// With little left, the answer is made shorter instead of refused.
	w = newWorld(t, limited(func(b *dreamcore.Budget) { b.OutputTokens = 700 }))
	w.post(chatPath, minimal(chatPath, false))
	if _, m := w.up.seen(); m["max_completion_tokens"] != 700.0 {
		t.Errorf("%v", m)
	}
}

// slow streams text for ever, and reports when it is cancelled.
func slow(started, cancelled chan<- struct{}) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		all := events3(r.URL.Path, strings.Repeat("cat ", 50))
		for _, e := range all[:3] {
			io.WriteString(rw, e)
		}
		rw.(http.Flusher).Flush()
		if started != nil {
			close(started)
		}
		for {
			select {
			case <-r.Context().Done():
				close(cancelled)
				return
			case <-time.After(5 * time.Millisecond):
				io.WriteString(rw, all[2])
				rw.(http.Flusher).Flush()
			}
		}
	}
}

func TestB05AndR10ClientGone(t *testing.T) {
	w := newWorld(t)
	cancelled := make(chan struct{})
	w.up.set(slow(nil, cancelled))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", w.url+messagesPath, strings.NewReader(minimal(messagesPath, true)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Api-Key", w.token)
	resp, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	if _, err := io.ReadAtLeast(resp.Body, buf, 2000); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = resp.Body.Close()
	select {
	case <-cancelled:
	case <-time.After(30 * time.Second):
		t.Fatal("the upstream was not cancelled")
	}
	a := w.settled(1)[0]
	if a.Reason != ClientGone || a.Decision != "allow" {
		t.Errorf("%+v", a)
	}
	u := w.usage()
	if u.InputTokens != 100 || u.OutputTokens < 100 || u.OutputTokens > 16384 {
		t.Errorf("charged %+v", u)
	}
}

func TestR12KillDuringAStream(t *testing.T) {
	for _, path := range modelPaths {
		w := newWorld(t)
		started, cancelled := make(chan struct{}), make(chan struct{})
		w.up.set(slow(started, cancelled))
		got := make(chan reply, 1)
		go func() {
			r, err := w.try("POST", path, minimal(path, true), nil)
			if err != nil {
				r.err = err // cut before the first byte
			}
			got <- r
		}()
		<-started
		u, err := w.p.CloseJob(t.Context(), w.job, 1)
		if err != nil {
			t.Fatal(err)
		}
		// Closed means: settled and audited.
		if u.OutputTokens < 1 || u.Requests != 1 {
			t.Errorf("%s: settled %+v", path, u)
		}
		if a := w.audits(); len(a) != 1 || a[0].Reason != Killed {
			t.Errorf("%s: audit %+v", path, a)
		}
		select {
		case <-cancelled:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the upstream was not cancelled", path)
		}
		if r := <-got; r.err == nil && r.status == 200 {
			t.Errorf("%s: the stream ended as if it were whole: %s", path, r.body)
		}
	}
}

func TestR12KillWhileTheClientTakesNothing(t *testing.T) {
	w := newWorld(t)
	w.up.set(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		e := events3(r.URL.Path, strings.Repeat("x", 100_000))[2]
		for r.Context().Err() == nil {
			if _, err := io.WriteString(rw, e); err != nil {
				return
			}
		}
	})
	conn := w.dial()
	defer conn.Close()
	if _, err := io.WriteString(conn, w.request("POST "+messagesPath, "", minimal(messagesPath, true))); err != nil {
		t.Fatal(err)
	}
	for w.up.calls.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // until all buffers are full, most likely
	if _, err := w.p.CloseJob(t.Context(), w.job, 1); err != nil {
		t.Fatal(err)
	}
}

func TestB06UsageMissing(t *testing.T) {
	for _, stream := range []bool{false, true} {
		w := newWorld(t)
		w.up.set(func(rw http.ResponseWriter, r *http.Request) {
			if !stream {
				rw.Header().Set("Content-Type", "application/json")
				io.WriteString(rw, `{"object":"chat.completion","choices":[]}`)
				return
			}
			rw.Header().Set("Content-Type", "text/event-stream")
			for _, e := range events3(r.URL.Path, "x")[:2] {
				io.WriteString(rw, e)
			}
			io.WriteString(rw, "data: [DONE]\n\n")
		})
		if r := w.post(chatPath, minimal(chatPath, stream)); r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		w.settled(1)
		if u := w.usage(); u.OutputTokens != 16384 || u.InputTokens < 2000 || u.CostMicros < 200_000 {
			t.Errorf("stream %t: charged %+v", stream, u)
		}
	}
}

func TestB07ImpossibleUsage(t *testing.T) {
	for _, n := range []string{"-5", "1e400", "1.5", `"7"`, "99999999999999999999", "9223372036854775807", "true", "{}"} {
		w := newWorld(t)
		w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(rw, `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":%s}}`, n)
		})
		if r := w.post(chatPath, minimal(chatPath, false)); r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		w.settled(1)
		if u := w.usage(); u.OutputTokens != 16384 || w.p.Alerts() != 1 {
			t.Errorf("%s: charged %+v, %d alerts", n, u, w.p.Alerts())
		}
	}
}

func TestB09NoPrice(t *testing.T) {
	w := newWorld(t)
	for _, path := range modelPaths {
		w.refused(w.post(path, strings.Replace(minimal(path, true), "fake-model", "unpriced", 1)), deniedStatus(path), NoPrice)
	}
	w.refused(w.post(imagesPath, strings.Replace(minimal(imagesPath, true), "fake-image", "fake-model", 1)), 400, NoPrice)
	w.passes()
}

func TestB13LedgerUnavailable(t *testing.T) {
	w := newWorld(t)
	w.passes()
	before := w.up.dials.Load()
	w.settled(1)
	if err := w.p.ledger.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{imagesPath}, modelPaths...) {
		r := w.post(path, minimal(path, true))
		if r.status != 503 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, string(LedgerDown)) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	w.dials(before)
	w.reopen()
	w.passes()
}

// reopen puts a working ledger back, so that the world can be closed.
func (w *world) reopen() {
	w.t.Helper()
	l, _, err := openLedger(filepath.Join(w.dir, "ledger.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.p.ledger = l
}

func TestB14CrashBetweenReserveAndSettle(t *testing.T) {
	w := newWorld(t)
	started, cancelled := make(chan struct{}), make(chan struct{})
	w.up.set(slow(started, cancelled))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.try("POST", messagesPath, minimal(messagesPath, true), nil)
	}()
	<-started
	// What a crash leaves is the ledger as it is at this moment.
	data, err := os.ReadFile(filepath.Join(w.dir, "ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ledger.jsonl"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p, err := New(Config{Verifier: w.minter.Verifier(), Upstreams: upstreams(w.up), Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		u, err := p.Usage(w.job)
		if err != nil || u.Requests != 1 || u.OutputTokens != 1000 {
			t.Errorf("after the crash: %+v %v", u, err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.p.CloseJob(t.Context(), w.job, 1); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestCreatorsBudgetSpansJobs(t *testing.T) {
	w := newWorld(t, func(_ *Config, terms *JobTerms) {
		terms.Creator = "creator1"
		terms.CreatorBudget = plenty
		terms.CreatorBudget.Requests = 2
	})
	w.passes()
	terms := w.terms
	terms.Job = dreamcore.NewJobID()
	if err := w.p.OpenJob(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	w.job, w.token = terms.Job, ""
	w.token = w.mint(nil)
	w.passes()
	if r := w.post(chatPath, minimal(chatPath, true)); r.status != 400 || !strings.Contains(r.body, string(BudgetSpent)) {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestTermsOfAJob(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*JobTerms){
		"no job":     func(x *JobTerms) { x.Job = "" },
		"no channel": func(x *JobTerms) { x.Channel = "" },
		"attempt 0":  func(x *JobTerms) { x.Attempt = 0 },
		"negative":   func(x *JobTerms) { x.Concurrency = -1 },
	} {
		terms := w.terms
		change(&terms)
		var e *dreamcore.Error
		if err := w.p.OpenJob(t.Context(), terms); !errors.As(err, &e) || e.Code != dreamcore.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Renewed: the same attempt under a larger budget goes on.
	terms := w.terms
	terms.Models = []string{"gpt-5.5"}
	if err := w.p.OpenJob(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	if r := w.post(chatPath, minimal(chatPath, false)); !strings.Contains(r.body, string(ModelRefused)) {
		t.Errorf("the old terms still hold: %s", r.body)
	}
	if r := w.post(chatPath, strings.Replace(minimal(chatPath, false), "fake-model", "gpt-5.5", 1)); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}
