package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"path"
	"strconv"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/envd"
)

// address is the box and port that a request is for.
type address struct {
	id      dreamcore.SandboxID
	port    int
	badPort string // what stands where the port must, when that is none
	signed  bool   // a signature in the URL, checked already, stands for the token
}

// addressed finds which box a request is for: by its headers, by the name of
// the host, or by the signature of a file's URL, which carries neither.
func (e *Engine) addressed(r *http.Request) (address, bool) {
	if id := r.Header.Get("E2b-Sandbox-Id"); id != "" {
		to := address{id: dreamcore.SandboxID(id), port: envd.Port}
		if s := r.Header.Get("E2b-Sandbox-Port"); s != "" {
			to.setPort(s)
		}
		return to, true
	}
	if to, ok := hostAddress(r.Host); ok {
		return to, true
	}
	if sig := r.URL.Query().Get("signature"); sig != "" && r.URL.Path == "/files" {
		return e.signedFor(r, sig)
	}
	return address{}, false
}

// hostAddress reads PORT-ID.DOMAIN. Other names of a host are none of a box's: the
// engine's own may hold a dash too.
func hostAddress(host string) (address, bool) {
	label, _, domain := strings.Cut(host, ".")
	if !domain {
		label, _, _ = strings.Cut(host, ":")
	}
	i := strings.LastIndexByte(label, '-')
	if i < 0 {
		return address{}, false
	}
	port, id := label[:i], label[i+1:]
	number := port != "" && strings.Trim(port, "0123456789") == ""
	// By its form it is an id; else it may be one if a number stands before it.
	if !dreamcore.IsToken(id, idLength) && !(number && domain && id != "") {
		return address{}, false
	}
	to := address{id: dreamcore.SandboxID(id)}
	to.setPort(port)
	return to, true
}

// idLength is how long the ids of boxes are.
const idLength = 20

// setPort reads a port as clients write it: decimal, from 1 to 65535, without
// anything before it.
func (to *address) setPort(s string) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		to.port, to.badPort = 0, strconv.Quote(clip(s, 40))
		return
	}
	to.port = int(n)
}

// signedFor finds the box whose token a file URL was signed with.
func (e *Engine) signedFor(r *http.Request, sig string) (address, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, b := range e.boxes {
		if ok, late := signed(r, sig, b.token); ok {
			return address{id: id, port: envd.Port, signed: !late}, true
		}
	}
	for _, snap := range e.shelf.list(kindPaused) {
		if ok, late := signed(r, sig, snap.Box.Token); ok {
			return address{id: snap.ID, port: envd.Port, signed: !late}, true
		}
	}
	return address{port: envd.Port}, true // the router's business all the same
}

// signed checks E2B's file signature. late: it is right, and its time is over.
func signed(r *http.Request, sig, token string) (ok, late bool) {
	q := r.URL.Query()
	op := "read"
	if r.Method == http.MethodPost {
		op = "write"
	}
	raw := strings.Join([]string{q.Get("path"), op, q.Get("username"), token}, ":")
	if exp := q.Get("signature_expiration"); exp != "" {
		at, err := strconv.ParseInt(exp, 10, 64)
		if err != nil {
			return false, false
		}
		late = time.Now().Unix() > at
		raw += ":" + exp
	}
	sum := sha256.Sum256([]byte(raw))
	want := "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
	ok = subtle.ConstantTimeCompare([]byte(sig), []byte(want)) == 1
	return ok, ok && late
}

// route carries a request into the box that it is for.
func (e *Engine) route(w http.ResponseWriter, r *http.Request, to address) {
	if to.id == "" {
		refuse(w, http.StatusUnauthorized, "the signature of the URL is wrong, or its sandbox is gone")
		return
	}
	if to.badPort != "" {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("%s is no port: a port is a decimal number from 1 to 65535 without leading zeros", to.badPort))
		return
	}
	b, ok := e.awake(r, to)
	if !ok {
		e.refuseDead(w, r, to.id)
		return
	}
	defer b.use()()
	proxy := &httputil.ReverseProxy{
		FlushInterval:  -1,
		ModifyResponse: sensible,
		// It reports streams that broke; here that is how a killed box looks.
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if b.dead() {
				e.refuseDead(w, r, b.id)
				return
			}
			if errors.Is(err, errPortClosed) {
				answer(w, http.StatusBadGateway, map[string]any{"sandboxId": b.id, "message": "The sandbox is running but the port is not open", "port": to.port, "code": http.StatusBadGateway})
				return
			}
			if r.Context().Err() == nil {
				e.log.Warn("a request did not reach its sandbox", "sandbox_id", b.id, "reason", clip(err.Error(), 300))
			}
			answer(w, http.StatusBadGateway, map[string]any{"sandboxId": b.id, "message": "The sandbox did not answer", "code": http.StatusBadGateway})
		},
	}
	scheme, host := "http", r.Host
	if to.port == envd.Port {
		if message := b.refusal(r, to); message != "" {
			refuse(w, http.StatusUnauthorized, message)
			return
		}
		if !protocolPath(r.URL.Path) {
			refuse(w, http.StatusNotFound, "the protocol has no such path")
			return
		}
		if !readCall(w, r) {
			return
		}
		c, _ := b.line()
		proxy.Transport = c.daemon
		proxy.ModifyResponse = func(res *http.Response) error {
			if streams(res) {
				res.Body = &ending{ReadCloser: res.Body, paused: func() bool {
					if !b.dead() {
						return false // it goes on
					}
					select {
					case <-b.over:
						return b.reason() == reasonPaused
					case <-r.Context().Done():
						return false
					}
				}}
			}
			return sensible(res)
		}
	} else {
		if b.traffic != "" && !same(r.Header.Get("E2b-Traffic-Access-Token"), b.traffic) {
			refuse(w, http.StatusForbidden, "the traffic token of the sandbox is missing or wrong")
			return
		}
		t := &http.Transport{
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return b.dial(ctx, to.port) },
			DisableKeepAlives: true, DisableCompression: true,
			MaxResponseHeaderBytes: maxHeaderBytes,
			// The way to the program is the box's own loopback: there is nobody to
			// mistake it for, and its certificate is its own.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}
		defer t.CloseIdleConnections()
		scheme, host = b.order.face.scheme(to.port), b.order.face.host(to.port, host)
		proxy.Transport = t
	}
	proxy.Rewrite = func(p *httputil.ProxyRequest) {
		p.Out.URL.Scheme, p.Out.URL.Host = scheme, daemonHost
		p.Out.Host = host
		// What opens the box or the engine has no business inside.
		for _, h := range []string{"X-Api-Key", "X-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port", "E2b-Traffic-Access-Token"} {
			p.Out.Header.Del(h)
		}
	}
	proxy.ServeHTTP(final{w}, r)
}

// final keeps informational answers of a box from its client: there may be any
// number of them, and the standard server takes one of them, 101, for the answer.
type final struct{ http.ResponseWriter }

func (w final) WriteHeader(code int) {
	if code >= 200 {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap is how the standard library finds the writer's other abilities.
func (w final) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refusal says why a request may not reach the daemon of the box; "" when it may.
func (b *box) refusal(r *http.Request, to address) string {
	if to.signed || public(r.URL.Path) || same(r.Header.Get("X-Access-Token"), b.token) {
		return ""
	}
	ok, late := signed(r, r.URL.Query().Get("signature"), b.token)
	switch {
	case late: // E2B's words, which clients look for
		return "signature is already expired"
	case ok:
		return ""
	}
	return "the access token of the sandbox is missing or wrong"
}

// sensible refuses answers of a box that a server cannot pass on: the standard
// one panics when it is told to.
func sensible(res *http.Response) error {
	if c := res.StatusCode; c != http.StatusSwitchingProtocols && (c < 200 || c > 999) {
		return fmt.Errorf("the sandbox answered with the status %d", c)
	}
	return nil
}

// protocolPath reports whether a client may ask a box's PID 1 for this path: a
// list of what is allowed, so that what only the host may ask is not on it.
func protocolPath(p string) bool {
	if path.Clean(p) != p {
		return false
	}
	switch p {
	case "/files", "/health", "/envs", "/metrics":
		return true
	}
	return strings.HasPrefix(p, "/process.Process/") || strings.HasPrefix(p, "/filesystem.Filesystem/")
}

// readCall reads a call's one message before it is forwarded. A streaming call
// answers at once, and over HTTP/1 the standard server closes a request whose
// answer has begun: forwarding it piece by piece breaks a few calls in a
// hundred, and the full-duplex mode that is meant for this panics when an
// answer ends before its request (invalid concurrent Body.Read call).
func readCall(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path == "/files" || strings.HasSuffix(r.URL.Path, "/StreamInput") {
		return true // the answer comes after the request
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCallBytes))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "the request is too large or broke off")
		return false
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
	return true
}

// maxHeaderBytes bounds the header of an answer of a box.
const maxHeaderBytes = 64 << 10

// maxCallBytes bounds one call; the daemon takes no longer messages.
const maxCallBytes = 17 << 20

func public(p string) bool { return p == "/health" }

func same(got, want string) bool { return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1 }

// refuseDead answers for a box that is not alive, with how it ended where that
// is known.
func (e *Engine) refuseDead(w http.ResponseWriter, r *http.Request, id dreamcore.SandboxID) {
	e.mu.Lock()
	b, open := e.dying[id], e.open
	e.mu.Unlock()
	if !open && e.cfg.Keep {
		// It is not dead: the next engine has it.
		refuse(w, http.StatusServiceUnavailable, publicText(e.closed()))
		return
	}
	if b != nil {
		// Why is known in a moment.
		select {
		case <-b.over:
		case <-r.Context().Done():
			return
		}
	}
	e.mu.Lock()
	why := e.deaths.why[id]
	e.mu.Unlock()
	body := map[string]any{"sandboxId": clip(string(id), 64), "message": "The sandbox was not found", "code": http.StatusBadGateway}
	if _, paused := e.shelf.get(id, kindPaused); paused {
		body["message"], why = "The sandbox is paused", reasonPaused
	}
	if why != "" {
		body["reason"] = why
	}
	answer(w, http.StatusBadGateway, body)
}

var errPortClosed = errors.New("the port is closed")

// dial opens a byte stream to a port of the box's loopback, as a request on the
// control connection.
func (b *box) dial(ctx context.Context, port int) (net.Conn, error) {
	out, in := io.Pipe()
	sctx, cancel := context.WithCancel(b.ctx)
	stop := context.AfterFunc(ctx, cancel)
	req, err := http.NewRequestWithContext(sctx, http.MethodPost, "http://"+daemonHost+envd.DialPath+"?port="+strconv.Itoa(port), out)
	if err != nil {
		cancel()
		return nil, err
	}
	c, _ := b.line()
	res, err := c.daemon.RoundTrip(req)
	// From here on the stream lives until it is closed, not until ctx ends.
	stop()
	if err != nil {
		cancel()
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		cancel()
		return nil, errPortClosed
	}
	return &stream{res.Body, in, cancel}, nil
}

// stream is a byte stream to a box as a connection. It has no deadlines: the
// context of whoever uses it ends it.
type stream struct {
	io.ReadCloser
	w      *io.PipeWriter
	cancel context.CancelFunc
}

func (s *stream) Write(p []byte) (int, error) { return s.w.Write(p) }

func (s *stream) Close() error {
	err := errors.Join(s.w.Close(), s.ReadCloser.Close())
	s.cancel()
	return err
}
func (s *stream) LocalAddr() net.Addr              { return &net.UnixAddr{Name: daemonHost, Net: "unix"} }
func (s *stream) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: daemonHost, Net: "unix"} }
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
