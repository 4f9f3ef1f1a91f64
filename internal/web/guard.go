package web

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// MaxBodyBytes bounds what anybody may send. A wish that is far too long still
// arrives, so that its author gets it back with a clear word.
const MaxBodyBytes = 1 << 20

// guard stands before every page: which host, which origin, how much, how often.
func (a *App) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.refuse(r, "cross_origin")
		a.status(w, r, http.StatusForbidden, "web.cross_origin")
	}))
	inner := cross.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if !a.posts.allow(a.config.ClientAddress(r)) {
				a.refuse(r, "rate")
				w.Header().Set("Retry-After", "10")
				a.status(w, r, http.StatusTooManyRequests, "web.too_often")
				return
			}
			r.Body = http.MaxBytesReader(w, r.Body, MaxBodyBytes)
			// A body that trickles in must not hold a connection for ever.
			err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.config.BodyTime))
			if err != nil && !errors.Is(err, http.ErrNotSupported) {
				a.log.Warn("a body has no deadline", "reason", err.Error())
			}
		}
		next.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.headers(w.Header())
		if !a.hosts[strings.ToLower(r.Host)] {
			a.refuse(r, "wrong_host")
			a.status(w, r, http.StatusMisdirectedRequest, "web.wrong_host")
			return
		}
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler { //nolint:errorlint // it is compared like this by net/http
					panic(p)
				}
				a.log.Error("page broke", "path", clip(r.URL.Path), "reason", p)
				a.status(w, r, http.StatusInternalServerError, "web.fault")
			}
		}()
		inner.ServeHTTP(w, r)
	})
}

// headers are on every answer of the app. There is no script, style or picture
// from elsewhere, nothing inline, and only games may be framed.
func (a *App) headers(h http.Header) {
	h.Set("Content-Security-Policy", a.policy("'self'"))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-store")
}

func (a *App) policy(ancestors string) string {
	return strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "connect-src 'self'",
		"frame-src " + a.games.FrameSource(), "form-action 'self'", "base-uri 'none'", "frame-ancestors " + ancestors,
	}, "; ")
}

// isAPI tells a program's request from a person's.
func isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }

// problem answers with an error, in the form and language of whoever asked.
func (a *App) problem(w http.ResponseWriter, r *http.Request, err error) {
	key, status := "web.fault", http.StatusInternalServerError
	switch dreamcore.CodeOf(err) {
	case dreamcore.NotFound:
		key, status = "web.not_found", http.StatusNotFound
	case dreamcore.Invalid:
		key, status = "web.invalid", http.StatusUnprocessableEntity
	case dreamcore.Conflict:
		key, status = "web.conflict", http.StatusConflict
	case dreamcore.Refused:
		key, status = "web.refused", http.StatusForbidden
	case dreamcore.Unavailable, dreamcore.Missing, dreamcore.Lost:
		key, status = "web.unavailable", http.StatusServiceUnavailable
	default:
		if r.Context().Err() != nil {
			// Whoever asked is gone or was too slow. Silence would be a 200.
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusRequestTimeout)
			return
		}
		a.log.Error("page failed", "path", clip(r.URL.Path), "reason", err.Error())
	}
	a.statusWith(w, r, status, key, spoken(err))
}

// status answers with one of our own texts.
func (a *App) status(w http.ResponseWriter, r *http.Request, status int, key string) {
	a.statusWith(w, r, status, key, "")
}

func (a *App) statusWith(w http.ResponseWriter, r *http.Request, status int, key, detail string) {
	lang := langOf(r)
	if isAPI(r) {
		writeJSON(w, a.log, status, apiError{apiErrorBody{Code: codeFor(status), Message: orElse(detail, text.T(lang, key)), Hint: text.T(lang, key+"_body")}})
		return
	}
	p := a.page(r, text.T(lang, key))
	a.render(w, r, status, "notice", noticeView{Page: p, Body: orElse(detail, text.T(lang, key+"_body"))})
}

// spoken is what an error says to people; "" when it is not for them.
func spoken(err error) string {
	e := asError(err)
	if e == nil || e.Code == dreamcore.Internal || e.Code == dreamcore.NotFound {
		return ""
	}
	if e.Hint == "" {
		return e.Msg
	}
	return e.Msg + " " + e.Hint
}

func (a *App) refuse(r *http.Request, reason string) {
	a.log.Info("request refused", "decision", "refused", "reason", reason, "method", r.Method,
		"host", clip(r.Host), "path", clip(r.URL.Path), "origin", clip(r.Header.Get("Origin")))
}

func connectionAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// rates admits so many events in each window, per key.
type rates struct {
	mu     sync.Mutex
	most   int
	window time.Duration
	began  time.Time
	seen   map[string]int
}

func newRates(most int, window time.Duration) *rates {
	return &rates{most: most, window: window, seen: map[string]int{}}
}

func (l *rates) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.began) >= l.window {
		l.began = now
		clear(l.seen)
	}
	l.seen[key]++
	return l.seen[key] <= l.most
}

// places bounds what is open at one time, in all and per key.
type places struct {
	mu        sync.Mutex
	most, per int
	n         int
	by        map[string]int
}

func newPlaces(most, per int) *places { return &places{most: most, per: per, by: map[string]int{}} }

func (p *places) take(key string) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n >= p.most || p.by[key] >= p.per {
		return nil, false
	}
	p.n++
	p.by[key]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.n--
		if p.by[key]--; p.by[key] == 0 {
			delete(p.by, key)
		}
	}, true
}
