package attack

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// echo in a request makes the upstream send its key back in every form.
const echo = "echo-the-key"

// Upstream is a provider that listens on this machine's loopback: it counts who
// comes, keeps what they say, and sends its key back when it is asked to.
type Upstream struct {
	URL string
	Key string // what the proxy must send and must never let through

	dials  atomic.Int64
	calls  atomic.Int64
	mu     sync.Mutex
	bodies []string // what came, headers included
	keyed  bool     // the key came
	server *http.Server
}

// OpenUpstream listens on a free port of the loopback.
func OpenUpstream(key string) (*Upstream, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen as a provider: %w", err)
	}
	u := &Upstream{URL: "http://" + l.Addr().String(), Key: key}
	u.server = &http.Server{Handler: u, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			u.dials.Add(1)
		}
	}}
	go func() { _ = u.server.Serve(l) }() // ends with Close
	return u, nil
}

// Close stops listening.
func (u *Upstream) Close() error { return u.server.Close() }

// said reports whether anything that came holds word.
func (u *Upstream) said(word string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, b := range u.bodies {
		if strings.Contains(b, word) {
			return true
		}
	}
	return false
}

// forms are ways to write a key down.
func forms(key string) []string {
	quoted, _ := json.Marshal(key) // a string
	var unicode strings.Builder
	for _, r := range key {
		fmt.Fprintf(&unicode, `\u%04x`, r)
	}
	var percent strings.Builder
	for _, b := range []byte(key) {
		fmt.Fprintf(&percent, "%%%02X", b)
	}
	all := []string{key, hex.EncodeToString([]byte(key)), strings.ToUpper(hex.EncodeToString([]byte(key))), url.QueryEscape(key), percent.String(), string(quoted), unicode.String()}
	for _, before := range []string{"", "x", "xy", "user:"} {
		all = append(all, base64.StdEncoding.EncodeToString([]byte(before+key)), base64.RawURLEncoding.EncodeToString([]byte(before+key)))
	}
	return all
}

// ServeHTTP answers as the model APIs do.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.calls.Add(1)
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20)) // a client that goes away is none of ours
	text := "hello"
	if strings.Contains(string(body), echo) {
		text = strings.Join(forms(u.Key), " | ")
		w.Header().Set("X-Request-Id", u.Key)
	}
	u.mu.Lock()
	head, _ := json.Marshal(r.Header)
	u.bodies = append(u.bodies, r.URL.String()+string(head)+string(body))
	u.keyed = u.keyed || strings.Contains(string(head), u.Key)
	u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	said, _ := json.Marshal(text) // a string
	switch {
	case strings.HasSuffix(r.URL.Path, "/messages"):
		fmt.Fprintf(w, `{"id":"m","type":"message","role":"assistant","model":"m","stop_reason":"end_turn","content":[{"type":"text","text":%s}],"usage":{"input_tokens":1,"output_tokens":1}}`, said)
	case strings.HasSuffix(r.URL.Path, "/responses"):
		fmt.Fprintf(w, `{"object":"response","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":%s}]}],"usage":{"input_tokens":1,"output_tokens":1}}`, said)
	default:
		fmt.Fprintf(w, `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`, said)
	}
}
