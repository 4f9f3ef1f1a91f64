package e2b

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"dreamcore"
	"dreamcore/internal/envd/spec/filesystem"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/sandbox"
)

// canned answers every request to a box alike.
type canned struct {
	status int
	header http.Header
	body   []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body) // what we say does not matter to it
		r.Body.Close()
	}
	status, body, header := c.status, c.body, c.header.Clone()
	if r.URL.Path == "/health" {
		status, body, header = http.StatusNoContent, nil, http.Header{}
	}
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Trailer: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: -1, Request: r,
	}, nil
}

// hear makes one call of each kind to a box that answers so.
func hear(kind byte, c canned) error {
	p := New(Config{
		APIURL: "http://engine", SandboxURL: "http://engine", APIKey: dreamcore.NewSecret("k"), Transport: c,
		Retry: Retry{Tries: 1, First: time.Millisecond, Most: time.Millisecond, Patience: time.Millisecond, Settle: time.Millisecond},
	})
	defer p.Close()
	s := p.sandbox(sandboxBody{SandboxID: "abc", EnvdAccessToken: "t"})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	switch kind % 5 {
	case 0:
		_, err = sandbox.Run(ctx, s, sandbox.Command{Args: []string{"x"}}, 1<<20)
	case 1:
		_, err = s.List(ctx, "/", 1)
	case 2:
		_, err = s.ReadFile(ctx, "/x", 1<<20)
	case 3:
		err = s.WriteFiles(ctx, []sandbox.File{{Path: "/x", Data: []byte("x")}, {Path: "/y", Mode: 0o600}})
	case 4:
		_, err = (&Remote{s}).IsDir(ctx, "user", "/x")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the answer kept us: %w", ctx.Err())
	}
	if err != nil && dreamcore.CodeOf(err) == "" {
		return fmt.Errorf("an error without a code: %w", err)
	}
	return nil
}

func envelope(flags byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

func wire(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func packed(tb testing.TB, data []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func started(pid uint32) *process.StartResponse {
	return &process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: pid}}}}
}

// FuzzAnswer: whatever a box answers to whatever the client asks.
func FuzzAnswer(f *testing.F) {
	end := &process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{ExitCode: 1, Exited: true, Status: "exit status 1"}}}}
	killed := &process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_End{End: &process.ProcessEvent_EndEvent{Status: "signal: killed (core dumped)"}}}}
	out := &process.StartResponse{Event: &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: &process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: []byte("hello")}}}}}
	list := &filesystem.ListDirResponse{Entries: []*filesystem.EntryInfo{{Name: "x", Path: "/x", Size: -1}, {}}}
	stream := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	const connectProto, plain, text = "application/connect+proto", "application/proto", "application/json"
	for _, s := range []struct {
		kind     byte
		status   uint16
		typ, enc string
		body     []byte
	}{
		{0, 200, connectProto, "", stream(envelope(0, wire(f, started(7))), envelope(0, wire(f, out)), envelope(0, wire(f, end)), envelope(2, []byte(`{}`)))},
		{0, 200, connectProto, "", stream(envelope(0, wire(f, started(1<<31))), envelope(0, wire(f, killed)), envelope(2, []byte(`{"error":{"code":"deadline_exceeded"}}`)))},
		{0, 200, connectProto, "", stream(envelope(0, wire(f, started(7))), envelope(2, []byte(`{"error":{"code":"unavailable","message":"x","details":[{"type":"a","value":"!!"}]},"metadata":{"a":["b"]}}`)))},
		{0, 200, connectProto, "gzip", stream(envelope(1, packed(f, wire(f, started(7)))), envelope(1, []byte("no gzip")))},
		{0, 200, connectProto, "", envelope(0, wire(f, end))}, {0, 200, connectProto, "", []byte{0, 0xff, 0xff, 0xff, 0xff}}, {0, 200, connectProto, "", []byte{0}}, {0, 200, connectProto, "", nil},
		{0, 200, "application/connect+json", "", envelope(0, []byte(`{}`))}, {0, 200, "text/html", "", []byte("<html>")}, {0, 502, text, "", []byte(`{"sandboxId":"abc","message":"The sandbox was not found","code":502}`)},
		{1, 200, plain, "", wire(f, list)}, {1, 200, plain, "gzip", packed(f, wire(f, list))}, {1, 200, plain, "", bytes.Repeat([]byte{0x0a, 0}, 1000)}, {1, 200, plain, "br", []byte("x")},
		{1, 404, text, "", []byte(`{"code":"not_found","message":"no"}`)}, {1, 200, text, "", []byte(`{}`)}, {1, 500, text, "", []byte(`{"code":5,"message":{}}`)},
		{2, 200, "application/octet-stream", "", []byte("data")}, {2, 200, "", "gzip", packed(f, []byte("x"))}, {2, 400, text, "", []byte(`{"code":400,"message":"\u0000"}`)},
		{3, 200, text, "", []byte(`[{"name":"x","type":"file","path":"/x"}]`)}, {3, 507, text, "", []byte(`{"code":507}`)}, {3, 302, "", "", nil},
		{4, 200, plain, "", wire(f, &filesystem.StatResponse{Entry: &filesystem.EntryInfo{Name: "x"}})}, {4, 200, plain, "", nil},
	} {
		f.Add(s.kind, s.status, s.typ, s.enc, s.body)
	}
	f.Fuzz(func(t *testing.T, kind byte, status uint16, typ, enc string, body []byte) {
		h := http.Header{"Content-Type": {typ}, "Content-Encoding": {enc}, "Connect-Content-Encoding": {enc}}
		if err := hear(kind, canned{100 + int(status)%900, h, body}); err != nil {
			t.Error(err)
		}
	})
}

// A short answer of a box that unfolds into a large one does not.
func TestAnswersThatUnfold(t *testing.T) {
	entries := bytes.Repeat([]byte{0x0a, 0}, 8<<20)
	zeros := packed(t, make([]byte, 512<<20))
	gz := http.Header{"Content-Encoding": {"gzip"}, "Connect-Content-Encoding": {"gzip"}}
	with := func(h http.Header, typ string) http.Header {
		h = h.Clone()
		h.Set("Content-Type", typ)
		return h
	}
	const plain, stream = "application/proto", "application/connect+proto"
	for name, c := range map[string]struct {
		kind   byte
		answer canned
	}{
		"empty entries":        {1, canned{200, with(http.Header{}, plain), entries}},
		"empty entries packed": {1, canned{200, with(gz, plain), packed(t, entries)}},
		"a packed list":        {1, canned{200, with(gz, plain), zeros}},
		"a packed refusal":     {1, canned{404, with(gz, "application/json"), zeros}},
		"a packed event":       {0, canned{200, with(gz, stream), envelope(1, zeros)}},
		"a packed end":         {0, canned{200, with(gz, stream), append(envelope(0, wire(t, started(7))), envelope(3, zeros)...)}},
		"a packed file":        {2, canned{200, gz, zeros}},
		"a packed receipt":     {3, canned{200, gz, zeros}},
		"a large event":        {0, canned{200, with(http.Header{}, stream), envelope(0, make([]byte, 64<<20))}},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := hear(c.kind, c.answer); err != nil {
				t.Error(err)
			}
			runtime.ReadMemStats(&after)
			// The sum of all that was made, whatever was collected since.
			if n := after.TotalAlloc - before.TotalAlloc; n > 128<<20 {
				t.Errorf("an answer of %d bytes made the host take %d MiB", len(c.answer.body), n>>20)
			}
		})
	}
}
