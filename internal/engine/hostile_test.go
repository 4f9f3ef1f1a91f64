package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"dreamcore"
	"dreamcore/internal/engine/gvisor"
	"dreamcore/internal/envd"
)

// The host is the client of a connection whose other end is in the box. Here
// that end is whatever a test makes of it; that the same holds for a real box
// whose PID 1 is hostile is tested in flood_test.go.

// hostilePatience is how long a request may hang after its box has hung up.
const hostilePatience = time.Minute

// peer is the end of a control connection that is in the box.
type peer struct {
	net.Conn
	*http2.Framer
}

// besiege gives an engine a box whose PID 1 is speak; the connection is closed
// when speak returns. The box ends as the engine would end it.
func besiege(tb testing.TB, speak func(peer)) (*Engine, *box) {
	tb.Helper()
	e := New(Config{APIKey: dreamcore.NewSecret("key")})
	host, inside := net.Pipe()
	c := blank{id: dreamcore.NewSandboxID(), machine: &gvisor.Box{Control: host}}
	b := &box{started: time.Now(), token: "token", over: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer inside.Close()
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(inside, preface); err == nil {
			fr := http2.NewFramer(inside, inside)
			fr.SetMaxReadFrameSize(1<<24 - 1)
			speak(peer{inside, fr})
		}
	}()
	if err := c.connect(); err != nil {
		tb.Fatal(err)
	}
	b.blank = c
	e.boxes[b.id] = b
	go func() {
		<-c.broken
		e.mu.Lock()
		delete(e.boxes, b.id)
		e.deaths.add(b.id, reasonDied)
		e.mu.Unlock()
		b.cancel()
		close(b.over)
		host.Close()
	}()
	tb.Cleanup(func() {
		host.Close()
		<-ended
		<-b.over
	})
	return e, b
}

// request reads frames until a request has begun and returns its stream.
func (p peer) request() (uint32, error) {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return 0, err
		}
		if h, ok := f.(*http2.HeadersFrame); ok {
			return h.StreamID, nil
		}
	}
}

// rest writes raw bytes and hangs up once the host has taken them, or will not.
func (p peer) rest(raw []byte) {
	go func() { _, _ = io.Copy(io.Discard, p.Conn) }() // whatever the host says to it
	_ = p.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = p.Conn.Write(raw)
}

// ask makes one request of each kind that the host makes of a box.
func ask(e *Engine, b *box, kind byte) (*httptest.ResponseRecorder, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hostilePatience)
	defer cancel()
	w := httptest.NewRecorder()
	to := func(method, path, port string) *http.Request {
		r := httptest.NewRequest(method, path, strings.NewReader("the body")).WithContext(ctx)
		r.Header.Set("E2b-Sandbox-Id", string(b.id))
		r.Header.Set("E2b-Sandbox-Port", port)
		r.Header.Set("X-Access-Token", b.token)
		return r
	}
	daemon := fmt.Sprint(envd.Port)
	var err error
	switch kind % 5 {
	case 0:
		err = b.tell(ctx, envd.Init{Env: map[string]string{"A": "1"}, MemoryBytes: 1 << 30})
		w = nil
	case 1:
		e.Handler().ServeHTTP(w, to("GET", "/files?path=/x&username=user", daemon))
	case 2:
		e.Handler().ServeHTTP(w, to("POST", "/process.Process/Start", daemon))
	case 3:
		r := to("GET", "/health", daemon)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "websocket")
		e.Handler().ServeHTTP(w, r)
	case 4:
		e.Handler().ServeHTTP(w, to("POST", "/any", "8080"))
	}
	if ctx.Err() != nil {
		return w, fmt.Errorf("a request hangs although its box has hung up: %w", ctx.Err())
	}
	return w, err
}

// answered fails when what a client gets is nothing that a server may send.
func answered(t *testing.T, w *httptest.ResponseRecorder, sent int) {
	t.Helper()
	if w == nil {
		return
	}
	res := w.Result()
	if res.StatusCode < 200 || res.StatusCode > 999 {
		t.Errorf("a client gets the status %d", res.StatusCode)
	}
	if n := w.Body.Len(); n > sent+4096 {
		t.Errorf("%d bytes came out of %d", n, sent)
	}
	for _, h := range []string{"X-Api-Key", "X-Access-Token"} {
		if res.Header.Get(h) == "key" || res.Header.Get(h) == "token" {
			t.Errorf("the box was told %s", h)
		}
	}
}

// frames writes what seeds are made of.
func frames(write func(*http2.Framer)) []byte {
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	fr.AllowIllegalWrites = true
	write(fr)
	return b.Bytes()
}

func fields(pairs ...string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i+1 < len(pairs); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}) // to memory
	}
	return b.Bytes()
}

func head(end bool, pairs ...string) []byte {
	return frames(func(fr *http2.Framer) {
		_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: end, BlockFragment: fields(pairs...)})
	})
}

func data(end bool, s string) []byte {
	return frames(func(fr *http2.Framer) { _ = fr.WriteData(1, end, []byte(s)) })
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// strange are answers of a hostile server that are worth a name.
func strange() map[string][]byte {
	many := make([]string, 0, 4000)
	for i := range 2000 {
		many = append(many, fmt.Sprintf("x-%d", i), strings.Repeat("v", 40))
	}
	s := map[string][]byte{
		"an answer":             join(head(false, ":status", "200", "content-type", "text/plain"), data(true, "hello")),
		"no content":            head(true, ":status", "204"),
		"trailers":              join(head(false, ":status", "200", "trailer", "x-t"), data(false, "x"), head(true, "x-t", "1")),
		"huge header":           join(head(false, ":status", "200", "x", strings.Repeat("v", 16000)), data(true, "")),
		"many headers":          head(false, append([]string{":status", "200"}, many...)...)[:16000],
		"length too small":      join(head(false, ":status", "200", "content-length", "1"), data(true, "more than one")),
		"length too large":      join(head(false, ":status", "200", "content-length", "1000"), data(true, "x")),
		"length negative":       join(head(false, ":status", "200", "content-length", "-1"), data(true, "x")),
		"gzip that is none":     join(head(false, ":status", "200", "content-encoding", "gzip"), data(true, "not gzip")),
		"two statuses":          head(true, ":status", "200", ":status", "500"),
		"status after field":    head(true, "x", "y", ":status", "200"),
		"no status":             head(true, "x", "y"),
		"early hints":           join(head(false, ":status", "103", "link", "x"), head(false, ":status", "103"), head(true, ":status", "200")),
		"hints for ever":        bytes.Repeat(head(false, ":status", "103", "link", strings.Repeat("x", 200)), 50),
		"data before headers":   data(true, "x"),
		"switching":             head(false, ":status", "101", "upgrade", "websocket", "connection", "upgrade"),
		"location":              head(true, ":status", "302", "location", "http://127.0.0.1:1/"),
		"transfer encoding":     head(true, ":status", "200", "transfer-encoding", "chunked"),
		"upper case and breaks": head(true, ":status", "200", "X-Up", "a\r\nb: c"),
		"empty":                 nil,
		"noise":                 []byte("HTTP/1.1 200 OK\r\n\r\n"),
		"truncated":             head(true, ":status", "200")[:7],
		"bad hpack": frames(func(fr *http2.Framer) {
			_ = fr.WriteRawFrame(http2.FrameHeaders, 5, 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		}),
		"table size": frames(func(fr *http2.Framer) {
			_ = fr.WriteRawFrame(http2.FrameHeaders, 5, 1, append([]byte{0x3f, 0xff, 0xff, 0xff, 0x7f}, fields(":status", "200")...))
		}),
		"continuations": join(frames(func(fr *http2.Framer) {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields(":status", "200")})
			for range 100 {
				_ = fr.WriteContinuation(1, false, fields("x", strings.Repeat("y", 100)))
			}
		})),
		"push": frames(func(fr *http2.Framer) {
			_ = fr.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true, BlockFragment: fields(":method", "GET", ":path", "/")})
		}),
		"pings": bytes.Repeat(frames(func(fr *http2.Framer) { _ = fr.WritePing(false, [8]byte{1}) }), 200),
		"no window": join(frames(func(fr *http2.Framer) {
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		}), head(true, ":status", "204")),
		"all settings": frames(func(fr *http2.Framer) {
			_ = fr.WriteSettings(http2.Setting{ID: 1, Val: 1 << 31}, http2.Setting{ID: 3}, http2.Setting{ID: 4, Val: 1 << 30}, http2.Setting{ID: 5, Val: 1<<24 - 1}, http2.Setting{ID: 6, Val: 1})
		}),
		"bad settings": frames(func(fr *http2.Framer) {
			_ = fr.WriteSettings(http2.Setting{ID: 4, Val: 1 << 31}, http2.Setting{ID: 5, Val: 1})
		}),
		"window floods": bytes.Repeat(frames(func(fr *http2.Framer) { _ = fr.WriteWindowUpdate(0, 1<<31-1) }), 3),
		"go away": frames(func(fr *http2.Framer) {
			_ = fr.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, bytes.Repeat([]byte("x"), 5000))
		}),
		"reset":         frames(func(fr *http2.Framer) { _ = fr.WriteRSTStream(1, http2.ErrCodeNo) }),
		"reset refused": bytes.Repeat(frames(func(fr *http2.Framer) { _ = fr.WriteRSTStream(1, http2.ErrCodeRefusedStream) }), 3),
		"other streams": frames(func(fr *http2.Framer) { _ = fr.WriteData(99, false, []byte("x")); _ = fr.WriteRSTStream(101, 2) }),
		"oversized":     frames(func(fr *http2.Framer) { _ = fr.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20+1)) }),
		"unknown frames": frames(func(fr *http2.Framer) {
			_ = fr.WriteRawFrame(0xbe, 0xff, 1, []byte("x"))
			_ = fr.WriteRawFrame(0x0c, 0, 0, nil)
		}),
	}
	for _, status := range []string{"0", "000", "1", "99", "099", "100", "199", "600", "999", "1000", "-1", "+200", "2e2", "", "99999999999999999999"} {
		s["status "+status] = head(true, ":status", status)
	}
	return s
}

// passable are the statuses of those of the strange answers that a client of
// the daemon may get as they are, or as far as they go. Of all others it learns
// that the box did not answer.
var passable = map[string]int{
	"an answer": 200, "no content": 204, "no window": 204, "trailers": 200, "huge header": 200, "early hints": 200, "location": 302,
	"length too small": 200, "length too large": 200, "length negative": 200, "gzip that is none": 200, "transfer encoding": 200,
	"status +200": 200, "status 600": 600, "status 999": 999,
}

// Whatever a box answers, the client gets an answer, and the engine goes on.
func TestStrangeAnswers(t *testing.T) {
	all := strange()
	for name := range passable {
		if all[name] == nil {
			t.Errorf("there is no answer %q", name)
		}
	}
	for name, raw := range all {
		for kind := range byte(5) {
			t.Run(fmt.Sprintf("%s/%d", name, kind), func(t *testing.T) {
				want, ok := passable[name]
				if !ok || kind == 0 && want != http.StatusNoContent || kind > 2 {
					// What the host tells is done when there is no content; the last two
					// want a stream.
					want = http.StatusBadGateway
				}
				// A box that hangs up at once may overtake its own answer, though not
				// every time.
				for try := 0; ; try++ {
					got := besieged(t, raw, kind)
					if got == want {
						return
					}
					if got != http.StatusBadGateway || try == 100 {
						t.Fatalf("try %d: the status is %d, want %d", try, got, want)
					}
				}
			})
		}
	}
}

// besieged makes a request that is answered with raw and returns the status that
// its client gets; of what the host itself tells a box, 204 for done.
func besieged(t *testing.T, raw []byte, kind byte) int {
	t.Helper()
	e, b := besiege(t, func(p peer) { speakFrames(p, raw) })
	w, err := ask(e, b, kind)
	answered(t, w, len(raw))
	switch {
	case err != nil && strings.Contains(err.Error(), "hangs"), w != nil && err != nil:
		t.Fatal(err)
	case err != nil:
		return http.StatusBadGateway
	case w == nil:
		return http.StatusNoContent
	}
	return w.Code
}

// speakFrames greets, waits for a request and answers it with raw.
func speakFrames(p peer, raw []byte) {
	go func() { _ = p.WriteSettings() }()
	if _, err := p.request(); err != nil {
		return
	}
	p.rest(raw)
}

// FuzzControl: what a hostile PID 1 answers to each request that the host makes.
func FuzzControl(f *testing.F) {
	for _, raw := range strange() {
		for kind := range byte(5) {
			f.Add(kind, raw)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, raw []byte) {
		e, b := besiege(t, func(p peer) { speakFrames(p, raw) })
		w, err := ask(e, b, kind)
		if err != nil && strings.Contains(err.Error(), "hangs") {
			t.Error(err)
		}
		answered(t, w, len(raw))
	})
}

// FuzzGreeting: what it sends before anybody asked it anything.
func FuzzGreeting(f *testing.F) {
	for _, raw := range strange() {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, b := besiege(t, func(p peer) { p.rest(raw) })
		w, err := ask(e, b, 1)
		if err != nil {
			t.Error(err)
		}
		answered(t, w, len(raw))
	})
}

// ports are what a program in the box answers at its own port.
func ports() []string {
	return []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.1 000 No\r\n\r\n", "HTTP/1.1 099 No\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 199 X\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 999 X\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "HTTP/1.0 200\r\n\r\n", "HTTP/9.9 200 OK\r\n\r\n", "\r\n\r\n", "",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 1<<16) + "\r\n\r\n", strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 40) + "HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nno", "HTTP/1.1 200 OK\r\nConnection: X-Access-Token, close\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	}
}

// speakPort answers a dial with a stream that holds raw.
func speakPort(p peer, raw []byte) {
	go func() { _ = p.WriteSettings() }()
	if _, err := p.request(); err != nil {
		return
	}
	all := head(false, ":status", "200")
	for len(raw) > 0 {
		n := min(len(raw), 16<<10)
		all, raw = append(all, data(false, string(raw[:n]))...), raw[n:]
	}
	p.rest(append(all, data(true, "")...))
}

// FuzzPort: what a hostile program answers at a port of the box.
func FuzzPort(f *testing.F) {
	for _, s := range ports() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, b := besiege(t, func(p peer) { speakPort(p, raw) })
		w, err := ask(e, b, 4)
		if err != nil {
			t.Error(err)
		}
		answered(t, w, len(raw))
	})
}
