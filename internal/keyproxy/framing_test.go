package keyproxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestH01UnknownRouteOrMethod(t *testing.T) {
	w := newWorld(t)
	for path, status := range map[string]int{"/anthropic/v1/complete": 404, "/openai/v1/embeddings": 404, "/": 404, "/anthropic": 404, "/ANTHROPIC/v1/messages": 404, "/anthropic/v1/messages/": 404} {
		reason := NoRoute
		w.refused(w.send("POST", path, "{}", nil), status, reason)
	}
	for _, m := range []string{"GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"} {
		r := w.send(m, messagesPath, "", nil)
		w.refused(r, 405, BadMethod)
		if r.header.Get("Allow") != "POST" {
			t.Errorf("Allow: %q", r.header.Get("Allow"))
		}
	}
	w.passes()
}

func TestHeadOfTheRootAnswersWithoutADial(t *testing.T) {
	w := newWorld(t)
	if r := w.send("HEAD", "/", "", with("", "")); r.status != 200 {
		t.Errorf("%d", r.status)
	}
	w.dials(0)
}

// request is a raw request with a good token.
func (w *world) request(line, extra, body string) string {
	return fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		line, w.addr, w.token, extra, len(body), body)
}

func status(answer string) string {
	first, _, _ := strings.Cut(answer, "\r\n")
	f := strings.Fields(first)
	if len(f) < 2 {
		return "none"
	}
	return f[1]
}

func TestH02AndH04Paths(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{
		"/v1/%2e%2e/admin", "/anthropic/v1/../v1/messages", "/anthropic/./v1/messages", "//anthropic/v1/messages", "/anthropic//v1/messages",
		"/anthropic%2fv1/messages", "/anthropic/v1%2Fmessages", `/anthropic\v1\messages`, "/anthropic/v1/messages;x=1", "/anthropic/v1/messages%00",
		"/anthropic/v1/%252e%252e/messages", "/anthropic/v1/messages%c0%ae", "/anthropic/v1/messages\xc0\xae", "/anthropic/v1/m%65ssages", "/anthropic/v1/messages#x",
		"/anthropic/v1/messages%20", "/openai/v1/\u202emessages",
	} {
		answer := w.raw(w.request("POST "+path, "Connection: close\r\n", minimal(messagesPath, true)), 0)
		if status(answer) != "400" {
			t.Errorf("%q: %s", path, answer)
		}
	}
	for _, query := range []string{"?x=1", "?beta=true&x=1", "?beta=true&beta=true", "?BETA=true", "?beta=%74rue", "?"} {
		w.sent.Store(int64(len(w.audits())))
		w.refused(w.post(messagesPath+query, minimal(messagesPath, true)), 400, BadQuery)
	}
	if r := w.post(messagesPath+"?beta=true", minimal(messagesPath, true)); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	w.refusedQueryOnOpenAI()
}

func (w *world) refusedQueryOnOpenAI() {
	w.t.Helper()
	if r := w.post(chatPath+"?beta=true", minimal(chatPath, true)); r.status != 400 {
		w.t.Errorf("%d %s", r.status, r.body)
	}
}

func TestH06TargetAndHost(t *testing.T) {
	w := newWorld(t)
	body := minimal(messagesPath, true)
	for name, raw := range map[string]string{
		"absolute form":     w.request("POST http://api.anthropic.com/v1/messages", "Connection: close\r\n", body),
		"absolute, us":      w.request("POST http://"+w.addr+messagesPath, "Connection: close\r\n", body),
		"connect":           "CONNECT api.anthropic.com:443 HTTP/1.1\r\nHost: api.anthropic.com:443\r\nConnection: close\r\n\r\n",
		"asterisk":          "OPTIONS * HTTP/1.1\r\nHost: " + w.addr + "\r\nConnection: close\r\n\r\n",
		"another host":      strings.Replace(w.request("POST "+messagesPath, "Connection: close\r\n", body), "Host: "+w.addr, "Host: evil.example", 1),
		"another port":      strings.Replace(w.request("POST "+messagesPath, "Connection: close\r\n", body), "Host: "+w.addr, "Host: 127.0.0.1:1", 1),
		"host with user":    strings.Replace(w.request("POST "+messagesPath, "Connection: close\r\n", body), "Host: ", "Host: x@", 1),
		"E16 trailing dot":  strings.Replace(w.request("POST "+messagesPath, "Connection: close\r\n", body), "Host: 127.0.0.1:", "Host: 127.0.0.1.:", 1),
		"E16 percent":       strings.Replace(w.request("POST "+messagesPath, "Connection: close\r\n", body), "Host: 127", "Host: %3127", 1),
		"two hosts, other":  strings.Replace(w.request("POST "+messagesPath, "Connection: close\r\n", body), "\r\nAuth", "\r\nHost: evil.example\r\nAuth", 1),
		"HTTP/1.0, no host": "POST " + messagesPath + " HTTP/1.0\r\nAuthorization: Bearer " + w.token + "\r\nContent-Length: 0\r\n\r\n",
	} {
		got := status(w.raw(raw, 0))
		if got != "421" && !(got == "400" && strings.Contains(name, "host") || got == "400" && strings.Contains(name, "E16 percent")) {
			t.Errorf("%s: %s", name, got)
		}
	}
	w.dials(0)
	w.passes()
}

func TestH08LengthAndChunks(t *testing.T) {
	w := newWorld(t)
	body := minimal(messagesPath, false)
	head := "POST " + messagesPath + " HTTP/1.1\r\nHost: " + w.addr + "\r\nContent-Type: application/json\r\n"
	auth := "Authorization: Bearer " + w.token + "\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	// The length says less than the chunks: what a front that believes the
	// length would take for a second request never becomes one.
	answer := w.raw(head+auth+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"+chunked, 0)
	if s := status(answer); s != "200" && s != "400" {
		t.Errorf("%s", answer)
	}
	if n := w.up.calls.Load(); n > 1 {
		t.Errorf("%d calls", n)
	}
	if w.up.calls.Load() == 1 {
		if req, m := w.up.seen(); req.ContentLength <= 0 || len(req.TransferEncoding) > 0 || m["model"] != "fake-model" {
			t.Errorf("not framed anew: %d %v", req.ContentLength, req.TransferEncoding)
		}
	}
	// A pipelined second request needs a token of its own.
	before := w.up.calls.Load()
	answer = w.raw(head+auth+fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)+
		head+fmt.Sprintf("Connection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body), 2)
	if !strings.HasPrefix(answer, "HTTP/1.1 200") || !strings.Contains(answer, "HTTP/1.1 403") || !strings.Contains(answer, string(NoToken)) {
		t.Errorf("%s", answer)
	}
	if n := w.up.calls.Load() - before; n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestH11Chunks(t *testing.T) {
	w := newWorld(t)
	body := minimal(messagesPath, false)
	head := "POST " + messagesPath + " HTTP/1.1\r\nHost: " + w.addr + "\r\nContent-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " + w.token + "\r\n\r\n"
	for name, chunks := range map[string]string{
		"0x":            fmt.Sprintf("0x%x\r\n%s\r\n0\r\n\r\n", len(body), body),
		"bare LF":       fmt.Sprintf("%x\n%s\n0\n\n", len(body), body),
		"negative":      "-1\r\n" + body + "\r\n0\r\n\r\n",
		"huge":          "ffffffffffffffff1\r\n" + body,
		"cut":           fmt.Sprintf("%x\r\n%s", len(body)+10, body),
		"bare LF later": fmt.Sprintf("%x\r\n%s\r\n0\n\n", len(body), body),
	} {
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.WriteString(conn, head+chunks); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		data, _ := io.ReadAll(conn)
		_ = conn.Close()
		if s := status(string(data)); s != "400" && s != "none" {
			t.Errorf("%s: %s", name, data)
		}
	}
	w.dials(0)
	good := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	if s := status(w.raw(head+good, 0)); s != "200" {
		t.Errorf("the positive control: %s", s)
	}
}

func TestH13TrailersAndH14Connection(t *testing.T) {
	w := newWorld(t)
	body := minimal(messagesPath, false)
	head := "POST " + messagesPath + " HTTP/1.1\r\nHost: " + w.addr + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n" +
		"Trailer: Authorization, X-Api-Key\r\nConnection: close, X-Api-Key, Authorization, Anthropic-Version\r\nX-Forwarded-For: 1.2.3.4\r\nForwarded: for=x\r\n" +
		"Anthropic-Version: 1999-01-01\r\nX-Custom: leak\r\nUser-Agent: agent\r\nAuthorization: Bearer " + w.token + "\r\n\r\n"
	trailer := fmt.Sprintf("%x\r\n%s\r\n0\r\nAuthorization: Bearer attacker\r\nX-Api-Key: attacker\r\n\r\n", len(body), body)
	if s := status(w.raw(head+trailer, 1)); s != "200" {
		t.Fatalf("%s", s)
	}
	req, _ := w.up.seen()
	if req.Header.Get("X-Api-Key") != canary || req.Header.Get("Anthropic-Version") != "2023-06-01" {
		t.Errorf("H14: %v", req.Header)
	}
	if len(req.Trailer) > 0 || req.Header.Get("Authorization") != "" {
		t.Errorf("H13: %v %v", req.Trailer, req.Header)
	}
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Custom", "Trailer", "Connection", "Cookie"} {
		if v := req.Header.Get(name); v != "" {
			t.Errorf("%s went upstream: %q", name, v)
		}
	}
	if req.Header.Get("User-Agent") != "dreamcore" || req.Header.Get("Accept-Encoding") != "identity" {
		t.Errorf("%v", req.Header)
	}
}

func TestH18SlowClients(t *testing.T) {
	before := runtime.NumGoroutine()
	w := newWorld(t, func(c *Config, _ *JobTerms) {
		c.Timeouts.ReadHeader, c.Timeouts.ReadBody, c.Timeouts.Idle = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	})
	for name, part := range map[string]string{
		"headers": "POST " + messagesPath + " HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"body":    strings.Replace(w.request("POST "+messagesPath, "", `{"model":`), "Content-Length: 9", "Content-Length: 99", 1),
		"nothing": "",
	} {
		conn, err := net.Dial("tcp", w.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, part); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		data, err := io.ReadAll(conn) // ends only when the proxy closes
		if os.IsTimeout(err) {
			t.Errorf("%s: the connection was kept", name)
		}
		if s := status(string(data)); s != "none" && s != "400" && s != "408" {
			t.Errorf("%s: %s", name, data)
		}
		_ = conn.Close()
	}
	w.dials(0)
	w.passes()
	http.DefaultClient.CloseIdleConnections()
	deadline := time.Now().Add(30 * time.Second)
	for runtime.NumGoroutine() > before+12 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before+12 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

func TestH21AndH22Upgrade(t *testing.T) {
	w := newWorld(t)
	up := "GET " + messagesPath + " HTTP/1.1\r\nHost: " + w.addr + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer " + w.token + "\r\n\r\n"
	second := "POST " + messagesPath + " HTTP/1.1\r\nHost: " + w.addr + "\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	answer := w.raw(up+second, 2)
	if !strings.HasPrefix(answer, "HTTP/1.1 400") || !strings.Contains(answer, string(BadUpgrade)) {
		t.Errorf("H21: %s", answer)
	}
	if !strings.Contains(answer, "HTTP/1.1 403") || !strings.Contains(answer, string(NoToken)) {
		t.Errorf("H22: %s", answer)
	}
	h2c := w.request("POST "+messagesPath, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", minimal(messagesPath, true))
	if s := status(w.raw(h2c+second, 2)); s != "400" {
		t.Errorf("h2c: %s", s)
	}
	if s := status(w.raw("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0)); s == "200" {
		t.Errorf("HTTP/2 preface: %s", s)
	}
	w.dials(0)
	w.passes()
}

func TestH24Encodings(t *testing.T) {
	w := newWorld(t)
	set := func(k, v string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(k, v) } }
	body := minimal(messagesPath, true)
	for _, enc := range []string{"gzip", "deflate", "br", "zstd", "gzip, identity", "x"} {
		w.refused(w.send("POST", messagesPath, body, set("Content-Encoding", enc)), 415, BadEncoding)
	}
	for _, ct := range []string{"multipart/form-data; boundary=x", "text/plain", "application/x-www-form-urlencoded", "", "application/json; charset=utf-16", "application/jsonx", "application/json, text/plain"} {
		w.refused(w.send("POST", messagesPath, body, set("Content-Type", ct)), 415, BadType)
	}
	if r := w.send("POST", messagesPath, body, set("Content-Type", "Application/JSON; charset=UTF-8")); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestH26Redirects(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308, 304} {
		w := newWorld(t)
		other := newFake(t)
		w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "http://"+other.addr+"/steal")
			rw.WriteHeader(status)
		})
		r := w.post(messagesPath, minimal(messagesPath, true))
		if r.status != 502 || r.header.Get("Location") != "" || strings.Contains(r.body, other.addr) || !strings.Contains(r.body, string(UpstreamMoved)) {
			t.Errorf("%d: %d %v %s", status, r.status, r.header, r.body)
		}
		if other.dials.Load() != 0 {
			t.Errorf("%d was followed", status)
		}
		w.dials(1)
	}
}

func TestTooLargeABody(t *testing.T) {
	w := newWorld(t)
	big := `{"model":"fake-model","messages":[{"role":"user","content":"` + strings.Repeat("a", MaxBodyBytes) + `"}]}`
	r, err := w.try("POST", chatPath, big, nil)
	if err == nil && r.status != 413 {
		t.Errorf("%d %s", r.status, r.body)
	}
	w.dials(0)
	w.passes()
}

// E19: nothing in the service's environment moves its calls. The test runs
// itself again in a process with such an environment.
func TestE19Environment(t *testing.T) {
	if os.Getenv("KEYPROXY_E19") == "1" {
		w := newWorld(t)
		w.passes()
		return
	}
	trap := newFake(t)
	keylog := t.TempDir() + "/keys"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestE19Environment$", "-test.v")
	cmd.Env = append(os.Environ(), "KEYPROXY_E19=1", "SSLKEYLOGFILE="+keylog)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		cmd.Env = append(cmd.Env, name+"=http://"+trap.addr)
	}
	cmd.Env = append(cmd.Env, "NO_PROXY=", "no_proxy=")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestE19Environment") {
		t.Fatalf("%v\n%s", err, out)
	}
	if trap.dials.Load() != 0 {
		t.Errorf("the environment's proxy was asked %d times", trap.dials.Load())
	}
	if _, err := os.Stat(keylog); err == nil {
		t.Error("TLS keys were logged")
	}
}

// L07 and the package's own promise: it builds with the pure packages alone.
func TestBuildsAlone(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	allowed := map[string]bool{"dreamcore": true}
	for _, p := range []string{"grant", "strictjson", "redact", "budget", "egress", "keyproxy", "keyproxy/provider", "keyproxy/provider/anthropic", "keyproxy/provider/openai", "keyproxy/provider/gemini", "keyproxy/provider/npm", "keyproxy/provider/asset"} {
		allowed["dreamcore/internal/"+p] = true
	}
	for _, p := range strings.Fields(string(out)) {
		if !allowed[p] && !strings.HasPrefix(p, "golang.org/x/image/") {
			t.Errorf("the key proxy needs %s", p)
		}
	}
	std, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, p := range []string{"net/http/pprof", "expvar", "database/sql", "os/exec", "net/http/httputil"} {
		if strings.Contains("\n"+string(std), "\n"+p+"\n") {
			t.Errorf("L07: the key proxy links %s", p)
		}
	}
}
