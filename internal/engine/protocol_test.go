package engine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// client makes plain requests, as a stranger would.
type client struct {
	tb testing.TB
	e  *enginetest.Engine
}

// do returns status and body; header is in pairs.
func (c client) do(method, path, body string, header ...string) (int, http.Header, string) {
	c.tb.Helper()
	req, err := http.NewRequestWithContext(ctxOf(c.tb), method, c.e.URL+path, strings.NewReader(body))
	if err != nil {
		c.tb.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		c.tb.Fatal(err)
	}
	return res.StatusCode, res.Header, string(data)
}

// api makes a request of the control plane.
func (c client) api(method, path, body string) (int, map[string]any) {
	c.tb.Helper()
	status, _, text := c.do(method, path, body, "X-API-KEY", enginetest.APIKey)
	var m map[string]any
	if text != "" && text[0] == '{' {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			c.tb.Fatal(err)
		}
	}
	return status, m
}

func (c client) create(path, body string) (id, token string) {
	c.tb.Helper()
	status, m := c.api("POST", path, body)
	if status != http.StatusCreated {
		c.tb.Fatalf("create: %d %v", status, m)
	}
	id, _ = m["sandboxID"].(string)
	token, _ = m["envdAccessToken"].(string)
	return id, token
}

func TestControlPlane(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	for _, key := range []string{"", "wrong", enginetest.APIKey + "0"} {
		for _, path := range []string{"/v2/sandboxes", "/sandboxes", "/sandboxes/x", "/anything"} {
			if status, _, body := c.do("GET", path, "", "X-API-KEY", key); status != http.StatusUnauthorized || !strings.Contains(body, `"code":401`) {
				t.Errorf("key %q, %s: %d %s", key, path, status, body)
			}
		}
	}
	for _, bad := range []string{
		`{`, `[]`, `{}`, `{"templateID":""}`, `{"templateID":"base","timeout":0}`, `{"templateID":"base","timeout":-5}`, `{"templateID":"base","timeout":86401}`,
		`{"templateID":"base","timeout":"300"}`, `{"templateID":"base","autoResume":{"enabled":true}}`, `{"templateID":"base","volumeMounts":[{"name":"v","path":"/v"}]}`,
		`{"templateID":"base","network":{"allowOut":["8.8.8.8"]}}`, `{"templateID":"base","network":{"allowOut":["127.0.0.1/32","example.com"]}}`,
		`{"templateID":"base","network":{"egressProxy":{"address":"x:1"}}}`,
	} {
		if status, m := c.api("POST", "/v2/sandboxes", bad); status != http.StatusBadRequest || m["code"] != float64(400) {
			t.Errorf("%s: %d %v", bad, status, m)
		}
	}
	if status, m := c.api("POST", "/v2/sandboxes", `{"templateID":"no-such-image"}`); status != http.StatusNotFound {
		t.Errorf("an image that is not there: %d %v", status, m)
	}
	if status, _, _ := c.do("POST", "/v2/sandboxes", strings.Repeat(" ", 2<<20), "X-API-KEY", enginetest.APIKey); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a huge body: %d", status)
	}
	for _, path := range []string{"/templates", "/volumes", "/sandboxes/x/nothing"} {
		if status, m := c.api("GET", path, ""); status != http.StatusNotImplemented || m["code"] != float64(501) {
			t.Errorf("%s: %d %v", path, status, m)
		}
	}

	// What the SDK of either version sends, unknown fields included.
	id, _ := c.create("/v2/sandboxes", `{"templateID":"base","metadata":{"a":"1"},"brand_new":{"x":1}}`)
	old, _ := c.create("/sandboxes", `{"templateID":"base","timeout":60,"metadata":{"a":"2"},"secure":true,"allow_internet_access":true}`)
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		t.Errorf("the id %q is not [a-z0-9]+", id)
	}
	_, m := c.api("GET", "/sandboxes/"+id, "")
	started, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(m["startedAt"]))
	ends, _ := time.Parse(time.RFC3339Nano, fmt.Sprint(m["endAt"]))
	if life := ends.Sub(started); life < 300*time.Second || life > 400*time.Second {
		t.Errorf("version 2 lives for %s without a timeout", life)
	}
	endOf := func(id string) time.Time {
		_, m := c.api("GET", "/sandboxes/"+id, "")
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(m["endAt"]))
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	// connect only extends, timeout sets.
	before := endOf(id)
	if status, m := c.api("POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":1}`); status != http.StatusOK || m["envdAccessToken"] == "" || !endOf(id).Equal(before) {
		t.Errorf("connect shortened: %d %v", status, m)
	}
	if status, _ := c.api("POST", "/sandboxes/"+id+"/connect", `{"timeout":3600}`); status != http.StatusOK || !endOf(id).After(before.Add(time.Hour/2)) {
		t.Errorf("connect did not extend: %d", status)
	}
	if status, _ := c.api("POST", "/sandboxes/"+id+"/timeout", `{"timeout":120}`); status != http.StatusNoContent || !endOf(id).Before(before) {
		t.Errorf("timeout did not shorten: %d", status)
	}
	if status, _ := c.api("POST", "/sandboxes/"+id+"/refreshes", `{"duration":3600}`); status != http.StatusNoContent || !endOf(id).After(before) {
		t.Errorf("refreshes did not extend: %d", status)
	}
	if status, _ := c.api("GET", "/sandboxes/"+id+"/metrics", ""); status != http.StatusOK {
		t.Errorf("metrics: %d", status)
	}
	// Lists: newest first, in pages, filtered.
	seen := []string{}
	for next, n := "", 0; n < 5; n++ {
		_, h, body := c.do("GET", "/v2/sandboxes?limit=1&nextToken="+url.QueryEscape(next), "", "X-API-KEY", enginetest.APIKey)
		var page []map[string]any
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatal(err)
		}
		for _, s := range page {
			seen = append(seen, s["sandboxID"].(string))
		}
		if next = h.Get("X-Next-Token"); next == "" {
			break
		}
	}
	if len(seen) != 2 || seen[0] != old || seen[1] != id {
		t.Errorf("pages give %v, want %v", seen, []string{old, id})
	}
	if _, _, body := c.do("GET", "/sandboxes?metadata=a%3D1", "", "X-API-KEY", enginetest.APIKey); !strings.Contains(body, id) || strings.Contains(body, old) || strings.Contains(body, "envdAccessToken") {
		t.Errorf("filtered: %s", body)
	}
	if status, _ := c.api("GET", "/v2/sandboxes?state=paused", ""); status != http.StatusOK {
		t.Errorf("paused ones: %d", status)
	}
	if status, _ := c.api("DELETE", "/sandboxes/"+id, ""); status != http.StatusNoContent {
		t.Errorf("kill: %d", status)
	}
	for _, r := range [][2]string{{"DELETE", ""}, {"GET", ""}, {"POST", "/connect"}, {"POST", "/timeout"}} {
		if status, m := c.api(r[0], "/sandboxes/"+id+r[1], `{"timeout":10}`); status != http.StatusNotFound || m["code"] != float64(404) {
			t.Errorf("%s of the dead: %d %v", r, status, m)
		}
	}
}

func TestRouter(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	id, token := c.create("/v2/sandboxes", `{"templateID":"base"}`)
	other, otherToken := c.create("/v2/sandboxes", `{"templateID":"base"}`)
	to := func(h ...string) []string {
		return append([]string{"E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "49983"}, h...)
	}

	// Health is open; everything else wants this box's token.
	if status, _, _ := c.do("GET", "/health", "", to()...); status != http.StatusNoContent {
		t.Errorf("health: %d", status)
	}
	for _, bad := range []string{"", "wrong", otherToken, enginetest.APIKey} {
		for _, path := range []string{"/files?path=/etc/passwd&username=user", "/envs", "/dreamcore/init"} {
			if status, _, body := c.do("GET", path, "", to("X-Access-Token", bad)...); status != http.StatusUnauthorized || !strings.Contains(body, `"code":401`) {
				t.Errorf("token %q, %s: %d %s", bad, path, status, body)
			}
		}
		if status, _, _ := c.do("POST", "/process.Process/Start", "{}", to("X-Access-Token", bad, "Content-Type", "application/json")...); status != http.StatusUnauthorized {
			t.Errorf("token %q starts a process: %d", bad, status)
		}
	}
	if status, _, body := c.do("GET", "/files?path=/etc/passwd&username=user", "", to("X-Access-Token", token)...); status != http.StatusOK || !strings.Contains(body, "user:") {
		t.Errorf("with the token: %d %s", status, body)
	}
	// What only the host may ask stays closed, however it is spelt.
	for _, path := range []string{"/dreamcore/init", "/dreamcore/dial?port=4000", "/%64reamcore/init", "//dreamcore/init", "/files/../dreamcore/init", "/process.Process/../dreamcore/init", "/init", "/"} {
		if status, _, body := c.do("POST", path, `{"egress":true}`, to("X-Access-Token", token)...); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}

	// The three ways to say which box.
	if status, _, _ := c.do("GET", "/files?path=/etc/passwd&username=user", "", "Host", "49983-"+id+".sandbox.test", "X-Access-Token", token); status != http.StatusOK {
		t.Errorf("by the host's name: %d", status)
	}
	sign := func(op, path, token string, expires int64) string {
		raw := strings.Join([]string{path, op, "user", token}, ":")
		q := url.Values{"path": {path}, "username": {"user"}}
		if expires != 0 {
			raw += fmt.Sprintf(":%d", expires)
			q.Set("signature_expiration", fmt.Sprint(expires))
		}
		sum := sha256.Sum256([]byte(raw))
		q.Set("signature", "v1_"+strings.TrimRight(base64.StdEncoding.EncodeToString(sum[:]), "="))
		return "/files?" + q.Encode()
	}
	later, past := time.Now().Add(time.Hour).Unix(), time.Now().Add(-time.Hour).Unix()
	if status, _, body := c.do("POST", sign("write", "/tmp/signed", token, later), "by signature", "Content-Type", "application/octet-stream"); status != http.StatusOK {
		t.Errorf("a signed write: %d %s", status, body)
	}
	if status, _, body := c.do("GET", sign("read", "/tmp/signed", token, 0), ""); status != http.StatusOK || body != "by signature" {
		t.Errorf("a signed read: %d %q", status, body)
	}
	for name, path := range map[string]string{
		"expired": sign("read", "/tmp/signed", token, past), "for writing": sign("write", "/tmp/signed", token, 0), "by nobody": sign("read", "/tmp/signed", "x", 0),
		"another path": strings.Replace(sign("read", "/tmp/signed", token, 0), "signed&", "other&", 1),
	} {
		if status, _, body := c.do("GET", path, ""); status != http.StatusUnauthorized {
			t.Errorf("a signature %s: %d %s", name, status, body)
		}
	}

	// E2B's clients are told that it was right once.
	if status, _, body := c.do("GET", sign("read", "/tmp/signed", token, past), ""); status != http.StatusUnauthorized || !strings.Contains(body, "signature is already expired") {
		t.Errorf("an expired signature: %d %s", status, body)
	}

	// A program in the box is reached through its port; tokens stay outside.
	sb, err := e.Provider.Connect(ctxOf(t), dreamcore.SandboxID(id))
	if err != nil {
		t.Fatal(err)
	}
	serve := `import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.end_headers()
        self.wfile.write(body.upper() + str(self.headers).lower().encode())
print("up", flush=True)
http.server.HTTPServer(("127.0.0.1", 8080), H).serve_forever()`
	p, err := sb.Start(ctxOf(t), sandbox.Command{Args: []string{"python3", "-u", "-c", serve}})
	if err != nil {
		t.Fatal(err)
	}
	if o := <-p.Events(); !strings.HasPrefix(string(o.Data), "up") {
		t.Fatalf("the server says %q", o.Data)
	}
	var status int
	var body string
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		status, _, body = c.do("POST", "/x", "hello", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8080", "X-Access-Token", token, "X-Mine", "kept")
		if status == http.StatusOK || time.Now().After(deadline) {
			break // it prints before it listens
		}
	}
	if status != http.StatusOK || !strings.HasPrefix(body, "HELLO") || !strings.Contains(body, "x-mine: kept") || strings.Contains(body, strings.ToLower(token)) || strings.Contains(body, "e2b-sandbox") {
		t.Errorf("the server in the box: %d %s", status, body)
	}
	if status, _, body := c.do("GET", "/x", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "8081"); status != http.StatusBadGateway || !strings.Contains(body, `"port":8081`) {
		t.Errorf("a closed port: %d %s", status, body)
	}

	// Nobody: a box that never was, and one that was killed, with the reason.
	for _, c2 := range []struct{ id, want string }{{"nosuchbox", ""}, {"../../etc", ""}, {strings.Repeat("x", 5000), ""}} {
		if status, _, body := c.do("GET", "/health", "", "E2b-Sandbox-Id", c2.id); status != http.StatusBadGateway || !strings.Contains(body, "The sandbox was not found") || !strings.Contains(body, `"code":502`) || len(body) > 500 {
			t.Errorf("%.20s: %d %s", c2.id, status, body)
		}
	}
	if status, _ := c.api("DELETE", "/sandboxes/"+other, ""); status != http.StatusNoContent {
		t.Errorf("kill: %d", status)
	}
	if status, _, body := c.do("GET", "/health", "", "E2b-Sandbox-Id", other); status != http.StatusBadGateway || !strings.Contains(body, `"reason":"killed"`) {
		t.Errorf("a killed one: %d %s", status, body)
	}
}

// A traffic token, where asked for, guards the box's own ports.
func TestTrafficToken(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	status, m := c.api("POST", "/v2/sandboxes", `{"templateID":"base","network":{"allowPublicTraffic":false}}`)
	traffic, _ := m["trafficAccessToken"].(string)
	id, _ := m["sandboxID"].(string)
	if status != http.StatusCreated || traffic == "" {
		t.Fatalf("%d %v", status, m)
	}
	if status, _, _ := c.do("GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "80"); status != http.StatusForbidden {
		t.Errorf("without it: %d", status)
	}
	if status, _, _ := c.do("GET", "/", "", "E2b-Sandbox-Id", id, "E2b-Sandbox-Port", "80", "E2b-Traffic-Access-Token", traffic); status != http.StatusBadGateway {
		t.Errorf("with it, to a closed port: %d", status)
	}
}

// An engine that cannot work says what is missing instead of half working.
func TestOpenRefuses(t *testing.T) {
	p, root := enginetest.Programs(t), enginetest.Image(t)
	for name, c := range map[string]struct {
		change func(*engine.Config)
		want   dreamcore.Code
	}{
		"no key":      {func(c *engine.Config) { c.APIKey = dreamcore.Secret{} }, dreamcore.Invalid},
		"no runsc":    {func(c *engine.Config) { c.Runsc = "/no/such/runsc" }, dreamcore.Missing},
		"no sandboxd": {func(c *engine.Config) { c.Sandboxd = "/etc/passwd" }, dreamcore.Missing},
		"disk over memory": {func(c *engine.Config) {
			c.Limits = engine.Limits{MemoryBytes: 1 << 30, CPUs: 1, Processes: 100, DiskBytes: 1 << 30}
		}, dreamcore.Invalid},
		"no processes": {func(c *engine.Config) {
			c.Limits = engine.Limits{MemoryBytes: 1 << 30, CPUs: 1, Processes: 0, DiskBytes: 1 << 26}
		}, dreamcore.Invalid},
	} {
		_, err := enginetest.Open(t.TempDir(), p, root, c.change)
		if dreamcore.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want code %s", name, err, c.want)
		}
	}
	// An image that cannot boot: the error comes at once and leaves nothing.
	empty := t.TempDir()
	e, err := enginetest.Open(t.TempDir(), p, empty)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Shut()
	if _, err := e.Provider.Create(context.Background(), sandbox.Spec{Image: e.Image, Timeout: time.Minute}); err != nil {
		nothing(t, e.Dir)
	}
}

// In a long folder too: a socket's address is short, a folder's name need not be.
func TestLongFolder(t *testing.T) {
	p, root := enginetest.Programs(t), enginetest.Image(t)
	dir := t.TempDir() + strings.Repeat("/a-long-name-of-a-folder", 6)
	e, err := enginetest.Open(dir, p, root)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := e.Provider.Create(ctxOf(t), sandbox.Spec{Image: e.Image, Timeout: time.Minute, Egress: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, sb, sandbox.User, "echo here"); got != "here" {
		t.Errorf("got %q", got)
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, dir)
}

// Chromium, which the playtest needs, runs as the user inside the box.
func TestBrowser(t *testing.T) {
	e := enginetest.Start(t, func(c *engine.Config) { c.Limits = engine.DefaultLimits })
	sb := boot(t, e)
	page := `<body><script>document.title = "ran " + (6 * 7); document.body.append("computed " + [1,2,3].map(x => x * x).join())</script>`
	if err := sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/workspace/project/index.html", Data: []byte(page)}}); err != nil {
		t.Fatal(err)
	}
	res := run(t, sb, sandbox.Command{Args: []string{"bash", "-c",
		"exec $(command -v chromium-headless-shell chromium chrome-headless-shell | head -1) --no-sandbox --headless --disable-gpu --dump-dom file:///workspace/project/index.html"}})
	if !bytes.Contains(res.Stdout, []byte("computed 1,4,9")) {
		t.Errorf("exit %+v\n%s\n%s", res.Exit, res.Stdout, res.Stderr)
	}
}
