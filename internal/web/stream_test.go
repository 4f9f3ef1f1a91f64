package web

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// sse is one event as a browser reads it.
type sse struct{ id, name, data string }

// events opens a stream; next blocks until an event comes, or fails the test
// after a minute. It returns false at the end of the stream.
func (p *person) events(path string, headers ...string) (next func() (sse, bool), leave func()) {
	p.s.t.Helper()
	res := p.do("GET", path, nil, headers...)
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		p.s.t.Fatalf("%d %v", res.StatusCode, res.Header)
	}
	ch := make(chan sse)
	done := make(chan struct{})
	go func() {
		defer close(ch)
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		var e sse
		for lines.Scan() {
			line := lines.Text()
			switch {
			case line == "" && e.name != "":
				select {
				case ch <- e:
				case <-done:
					return
				}
				e = sse{}
			case strings.HasPrefix(line, "id: "):
				e.id = line[4:]
			case strings.HasPrefix(line, "event: "):
				e.name = line[7:]
			case strings.HasPrefix(line, "data: "):
				e.data = line[6:]
			}
		}
	}()
	next = func() (sse, bool) {
		p.s.t.Helper()
		select {
		case e, ok := <-ch:
			return e, ok
		case <-time.After(time.Minute):
			p.s.t.Fatal("no event came")
			return sse{}, false
		}
	}
	return next, func() { close(done); _ = res.Body.Close() }
}

func (s *testStage) wantEvent(next func() (sse, bool), name, part string) sse {
	s.t.Helper()
	e, ok := next()
	if !ok || e.name != name || !strings.Contains(e.data, part) {
		s.t.Fatalf("got %+v (%v), want %s with %q", e, ok, name, part)
	}
	return e
}

func TestEventsFromQueueToEnd(t *testing.T) {
	s := newStage(t)
	_, other := s.person().wish("before")
	ann := s.person()
	_, j := ann.wish("a cat")
	path := "/api/jobs/" + string(j.ID) + "/events"
	next, leave := ann.events(path, "Accept-Language", "ja")
	defer leave()
	s.wantEvent(next, "state", "queued") // stored by the studio
	s.wantEvent(next, "queue", text.T("ja", "web.queue_ahead", "ahead", "1"))
	s.update(other.ID, func(j *dreamcore.Job) { j.State = dreamcore.Cancelled })
	s.event(j.ID, dreamcore.EventStep, "job.booting", "")
	s.wantEvent(next, "step", text.T("ja", "job.booting"))
	s.wantEvent(next, "queue", text.T("ja", "web.queue_next"))
	s.run(j.ID)
	s.event(j.ID, dreamcore.EventSay, "", "hello\n\nevent: end\ndata: {}\n\n<b>")
	e := s.wantEvent(next, "say", `hello\n\nevent: end\ndata: {}\n\n`)
	if e.id != string(j.ID)+"-3" {
		t.Errorf("id %q", e.id)
	}
	s.event(j.ID, dreamcore.EventKind("evil\ndata: x"), "", "y")
	s.wantEvent(next, "other", "evil")
	s.update(j.ID, func(j *dreamcore.Job) { j.State, j.Error = dreamcore.FailedJob, "job.deadline" })
	s.wantEvent(next, "end", text.T("ja", "job.deadline"))
	if e, more := next(); more {
		t.Errorf("%+v after the end", e)
	}
}

func TestEventsAreReplayedBehindTheLastOneSeen(t *testing.T) {
	s := newStage(t)
	ann := s.person()
	_, j := ann.wish("a cat")
	s.run(j.ID)
	for i := range 3 * streamBatch {
		s.event(j.ID, dreamcore.EventSay, "", fmt.Sprintf("say %d.", i))
	}
	s.update(j.ID, func(j *dreamcore.Job) { j.State = dreamcore.Cancelled })
	path := "/api/jobs/" + string(j.ID) + "/events"
	for _, after := range []int64{0, 1, 5, 100, 101, 300, 301, 9999} {
		for name, open := range map[string]func() (func() (sse, bool), func()){
			"Last-Event-ID": func() (func() (sse, bool), func()) {
				return ann.events(path, "Last-Event-ID", fmt.Sprintf("%s-%d", j.ID, after))
			},
			"?after": func() (func() (sse, bool), func()) { return ann.events(fmt.Sprintf("%s?after=%d", path, after)) },
		} {
			next, leave := open()
			seq := after
			for {
				e, ok := next()
				if !ok {
					t.Fatalf("%s %d: no end", name, after)
				}
				if e.name == "end" {
					break
				}
				var d EventJSON
				if err := json.Unmarshal([]byte(e.data), &d); err != nil || d.Seq != seq+1 || e.id != fmt.Sprintf("%s-%d", j.ID, d.Seq) {
					t.Fatalf("%s %d: %+v follows %d, %v", name, after, e, seq, err)
				}
				seq = d.Seq
			}
			leave()
			if want := max(after, 3*streamBatch+1); seq != want {
				t.Errorf("%s %d: ended at %d, want %d", name, after, seq, want)
			}
		}
	}
}

func TestW03AnotherJobsEventsAreNotFound(t *testing.T) {
	s := newStage(t)
	ann, bob := s.person(), s.person()
	_, mine := ann.wish("a cat")
	_, his := bob.wish("a dog")
	path := "/api/jobs/" + string(mine.ID) + "/events"
	for _, last := range []string{string(his.ID) + "-1", "1", "-1", string(mine.ID), string(mine.ID) + "-", string(mine.ID) + "-x", string(mine.ID) + "--1", "x"} {
		if res, body := ann.get(path, "Last-Event-ID", last); res.StatusCode != 404 {
			t.Errorf("Last-Event-ID %q: %d %s", last, res.StatusCode, body)
		}
	}
	for _, p := range []*person{bob, s.person()} {
		if res, _ := p.get(path); res.StatusCode != 404 {
			t.Errorf("%d", res.StatusCode)
		}
	}
	if res, _ := ann.get("/api/jobs/" + strings.Repeat("z", 20) + "/events"); res.StatusCode != 404 {
		t.Errorf("%d", res.StatusCode)
	}
	if status := s.streamed(ann, path); status != 200 {
		t.Errorf("the twin: %d", status)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	s := newStage(t, func(c *Config) { c.StreamsPerAddress = 2 })
	ann := s.person()
	_, j := ann.wish("a cat")
	path := "/api/jobs/" + string(j.ID) + "/events"
	next, leave := ann.events(path)
	s.wantEvent(next, "state", "")
	_, leave2 := ann.events(path)
	defer leave2()
	if res, _ := ann.get(path); res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		t.Errorf("a third stream: %d", res.StatusCode)
	}
	leave()
	for deadline := time.Now().Add(time.Minute); ; {
		if s.streamed(ann, path) == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a stream that was left keeps its place")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestStopEndsStreams(t *testing.T) {
	s := newStage(t)
	ann := s.person()
	_, j := ann.wish("a cat")
	next, leave := ann.events("/api/jobs/" + string(j.ID) + "/events")
	defer leave()
	s.wantEvent(next, "state", "")
	s.wantEvent(next, "queue", "")
	s.Stop()
	s.Stop()
	if e, more := next(); more {
		t.Errorf("%+v after the stop", e)
	}
}

// TestASlowReaderCostsNothing opens a stream and never reads it, while the job
// says more than any buffer holds: the writers are not held up, and other
// readers get everything.
func TestASlowReaderCostsNothing(t *testing.T) {
	s := newStage(t)
	ann := s.person()
	_, j := ann.wish("a cat")
	s.run(j.ID)
	path := "/api/jobs/" + string(j.ID) + "/events"
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.app, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	u, err := http.NewRequest("GET", s.app+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range ann.client.Jar.Cookies(u.URL) {
		u.AddCookie(c)
	}
	if err := u.Write(conn); err != nil {
		t.Fatal(err)
	}
	const says = 1500
	big := strings.Repeat("x", 8000)
	for range says {
		s.event(j.ID, dreamcore.EventSay, "", big)
	}
	s.update(j.ID, func(j *dreamcore.Job) { j.State = dreamcore.Cancelled })
	next, leave := ann.events(path)
	defer leave()
	n := 0
	for {
		e, ok := next()
		if !ok {
			t.Fatal("cut off")
		}
		if e.name == "end" {
			break
		}
		n++
	}
	if n != says+1 {
		t.Errorf("%d events", n)
	}
}

func FuzzResumeAfter(f *testing.F) {
	job := dreamcore.JobID(strings.Repeat("a", 20))
	f.Add(string(job)+"-1", "")
	f.Add("", "5")
	f.Add("-", "-1")
	f.Fuzz(func(t *testing.T, last, after string) {
		r := &http.Request{Header: http.Header{"Last-Event-Id": {last}}, URL: &url.URL{RawQuery: url.Values{"after": {after}}.Encode()}}
		seq, ok := resumeAfter(r, job)
		if ok && seq < 0 {
			t.Fatalf("%d", seq)
		}
		if ok && last != "" && !strings.HasPrefix(last, string(job)+"-") {
			t.Fatalf("%q is taken for an event of the job", last)
		}
	})
}
