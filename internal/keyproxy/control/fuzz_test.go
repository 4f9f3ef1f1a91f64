package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"dreamcore"
	"dreamcore/internal/keyproxy"
)

var requests = []request{
	{ID: 1, Op: opStart, Start: &Settings{Verifier: "ab", Opening: 1, Sources: map[dreamcore.Feature][]Source{dreamcore.OpenAIChat: {{KeyFile: 2, Upstream: keyproxy.Upstream{BaseURL: "https://api.example/v1"}}}}}},
	{ID: 2, Op: opOpen, Terms: &keyproxy.JobTerms{Job: "j", Attempt: 1, Channel: "c", Features: []dreamcore.Feature{"f"}}},
	{ID: 3, Op: opClose, Job: "j", Attempt: 1}, {ID: 4, Op: opUsage, Job: "j"}, {ID: 5, Op: opHealth},
	{ID: 6, Op: opConn, Channel: "c"}, {ID: 7, Op: opConn, Remote: true}, {ID: 8, Op: opKeys, Start: &Settings{Sources: map[dreamcore.Feature][]Source{}}},
}

var replies = []reply{
	{ID: 1, Ready: &Ready{CA: "x", Lost: 1}}, {ID: 2}, {ID: 3, Usage: &dreamcore.Usage{Requests: 1}, Seal: &keyproxy.Seal{Seq: 1, Hash: "h"}},
	{ID: 4, Fault: &fault{Code: dreamcore.NotFound, Op: "o", Msg: "m"}}, {Done: 5}, {ID: 6, Health: &keyproxy.Health{Upstreams: []keyproxy.UpstreamHealth{}}}, {ID: 7, Changed: 2},
}

func encoded(t testing.TB, v any) []byte {
	data, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// needs is how many descriptors each of requests comes with.
var needs = []int{2, 0, 0, 0, 0, 1, 1, 0}

// Each message has one form: anything that a decoder would forgive is refused.
func TestMessagesHaveOneForm(t *testing.T) {
	for i, r := range requests {
		data := encoded(t, r)
		if _, err := decodeRequest(data, needs[i]); err != nil {
			t.Errorf("%s: %v", data, err)
		}
		if _, err := decodeRequest(data, needs[i]+1); !errors.Is(err, errForm) {
			t.Errorf("%s with a descriptor too many: %v", data, err)
		}
		for _, bad := range []string{
			" " + string(data), string(data) + "\n", string(data) + "{}", strings.Replace(string(data), `"id"`, `"ID"`, 1),
			strings.Replace(string(data), `{"id"`, `{"x":1,"id"`, 1), strings.Replace(string(data), `{"id"`, `{"id":9,"id"`, 1),
			strings.Replace(string(data), `"op":"`, `"op":"x`, 1), strings.Replace(string(data), `"id":`, `"id":-`, 1), strings.Replace(string(data), `"id":`, `"id":1.0`, 1),
		} {
			if _, err := decodeRequest([]byte(bad), needs[i]); !errors.Is(err, errForm) {
				t.Errorf("%s: %v", bad, err)
			}
		}
	}
	for _, r := range []request{
		{ID: 1, Op: opClose, Job: "j"}, {ID: 1, Op: opUsage}, {ID: 1, Op: opOpen}, {ID: 1, Op: opStart}, {ID: 1, Op: opHealth, Job: "j"},
		{ID: 1, Op: opConn}, {ID: 1, Op: opConn, Channel: "c", Remote: true}, {ID: 1, Op: opUsage, Job: "j", Channel: "c"}, {Op: opHealth},
		{ID: 1, Op: opStart, Start: &Settings{Opening: -1}},
	} {
		files := 0
		if r.Op == opConn {
			files = 1
		}
		if _, err := decodeRequest(encoded(t, r), files); !errors.Is(err, errForm) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range replies {
		if _, err := decodeReply(encoded(t, r)); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []reply{
		{}, {ID: -1}, {ID: 1, Done: 1}, {Done: 1, Usage: &dreamcore.Usage{}}, {ID: 1, Usage: &dreamcore.Usage{CostMicros: -1}},
		{ID: 1, Usage: &dreamcore.Usage{}, Ready: &Ready{}}, {ID: 1, Fault: &fault{Code: "odd"}}, {ID: 1, Fault: &fault{Code: dreamcore.Lost, Msg: strings.Repeat("x", maxTextBytes+1)}},
		{ID: 1, Ready: &Ready{CA: strings.Repeat("x", maxCABytes+1)}}, {ID: 1, Health: &keyproxy.Health{Jobs: -1}}, {ID: 1, Seal: &keyproxy.Seal{}}, {ID: 1, Changed: -1},
	} {
		if _, err := decodeReply(encoded(t, r)); !errors.Is(err, errForm) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// FuzzRequest: what is taken is what encode would write.
func FuzzRequest(f *testing.F) {
	for i, r := range requests {
		f.Add(encoded(f, r), needs[i])
	}
	f.Fuzz(func(t *testing.T, data []byte, files int) {
		r, err := decodeRequest(data, files)
		if err == nil && !bytes.Equal(encoded(t, r), data) {
			t.Fatalf("%q was taken as %+v", data, r)
		}
	})
}

// FuzzReply: what is taken is bounded, and an error of it can be shown.
func FuzzReply(f *testing.F) {
	for _, r := range replies {
		f.Add(encoded(f, r))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeReply(data)
		if err != nil {
			return
		}
		if !bytes.Equal(encoded(t, r), data) {
			t.Fatalf("%q was taken as %+v", data, r)
		}
		if r.Fault != nil {
			if text := r.Fault.error().Error(); strings.ContainsAny(text, "\n\r\x1b\x00") {
				t.Fatalf("%q", text)
			}
		}
	})
}

// FuzzRelay: whatever the proxy logs, each of our lines is one, without tricks.
func FuzzRelay(f *testing.F) {
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","level":"INFO","msg":"proxy call","job_id":"a","dur_ms":3,"ok":true,"x":1.5}` + "\n"))
	f.Add([]byte("panic: boom\n\ngoroutine 1 [running]:\n"))
	f.Add([]byte(`{"level":"ERROR","msg":"a\nb\u001b[2J\u202e","k":"\u0000"}` + "\nno end"))
	f.Add([]byte(strings.Repeat("x", maxLineBytes+10) + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = w.Write(data)
			_ = w.Close()
		}()
		var out bytes.Buffer
		relay(r, slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		for line := range bytes.Lines(out.Bytes()) {
			if !json.Valid(line) || len(line) > 10*maxValues*maxLetters {
				t.Fatalf("%q", line)
			}
			for _, b := range line[:len(line)-1] {
				if b < ' ' || b == 0x7f {
					t.Fatalf("%q", line)
				}
			}
		}
	})
}

// A proxy that is not itself any more: what it says is refused, and it is
// replaced.
func TestAStrangeProxyIsEnded(t *testing.T) {
	for name, say := range map[string]string{
		"no message":         "hello",
		"what was not asked": `{"id":99}`,
		"no such end":        `{"done":99}`,
		"a lie":              `{"id":1,"usage":{"requests":-1,"inputTokens":0,"outputTokens":0,"images":0,"bytes":0,"costMicros":0}}`,
	} {
		near, far, err := pair()
		if err != nil {
			t.Fatal(err)
		}
		killed, ended := make(chan struct{}), make(chan struct{})
		p := &process{wire: near, ended: ended, kill: func() {
			close(killed)
			close(ended)
		}}
		l := newLife(p)
		if _, err := unix.Write(int(far.Fd()), []byte(say)); err != nil {
			t.Fatal(err)
		}
		<-killed
		<-l.gone
		if err := l.cause(); !errors.Is(err, errForm) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := l.call(t.Context(), request{Op: opHealth}); !errors.Is(err, errGone) {
			t.Errorf("%s: %v", name, err)
		}
		_ = far.Close()
	}
}

// Descriptors are for the proxy only; it cannot give us any.
func TestTheProxyHandsNothingBack(t *testing.T) {
	near, far, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	ended := make(chan struct{})
	l := newLife(&process{wire: near, ended: ended, kill: func() { close(ended) }})
	if err := unix.Sendmsg(int(far.Fd()), []byte(`{"id":1}`), unix.UnixRights(0), nil, 0); err != nil {
		t.Fatal(err)
	}
	<-l.gone
	if err := l.cause(); !errors.Is(err, errForm) {
		t.Errorf("%v", err)
	}
}
