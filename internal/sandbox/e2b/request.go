package e2b

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"dreamcore"
)

// Retry says how often and when a request is made again that may be made
// again: it did not arrive, or making it twice does what making it once does.
type Retry struct {
	// Tries is how often in all; 0 means 5, 1 means never again.
	Tries int
	// First is the pause before the second try, doubled for each further one up
	// to Most, and varied by half so that many clients do not come at once. 0
	// means 200 ms and 5 s.
	First, Most time.Duration
	// Patience is how long an engine may put one request off by answering 429
	// in all; 0 means 5 minutes.
	Patience time.Duration
	// Settle is when sandboxes are looked for once more that a broken request
	// may have created after all; 0 means 20 s.
	Settle time.Duration
}

func (r Retry) complete() Retry {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	if r.Tries == 0 {
		r.Tries = 5
	}
	set(&r.First, 200*time.Millisecond)
	set(&r.Most, 5*time.Second)
	set(&r.Patience, 5*time.Minute)
	set(&r.Settle, 20*time.Second)
	return r
}

// pause is how long to wait after the given try, which counts from 0.
func (r Retry) pause(try int) time.Duration {
	d := r.First
	for range try {
		d = min(2*d, r.Most)
	}
	return d/2 + rand.N(d/2+1)
}

// request is one request of the control plane.
type request struct {
	method, path string
	in, out      any
	// once: it must not be made again unless it surely did not arrive.
	once bool
	// late is told how long the engine wants everybody to wait; may be nil.
	late func(time.Duration)
}

// name is what the log calls it: without the query, which holds metadata.
func (r request) name() string {
	path, _, _ := strings.Cut(r.path, "?")
	return r.method + " " + path
}

// unsureError is a request that may or may not have been carried out.
type unsureError struct{ error }

func (e *unsureError) Unwrap() error { return e.error }

// either calls version 2 of an operation and, where the engine has none,
// version 1.
func (p *Provider) either(ctx context.Context, r request) error {
	two := r
	two.path = "/v2" + r.path
	if !p.v1.Load() {
		_, err := p.call(ctx, two)
		var s *statusError
		if !errors.As(err, &s) || s.status != http.StatusMethodNotAllowed && (s.status != http.StatusNotFound || s.spoken) {
			return err
		}
		p.log.Info("the engine lacks version 2 of the protocol", "request", two.name(), "decision", "version 1", "status", s.status)
	}
	if in, ok := r.in.(createBody); ok {
		in.Secure = true // what version 2 always is
		r.in = in
	}
	_, err := p.call(ctx, r)
	if err == nil {
		p.v1.Store(true)
	}
	return err
}

// call makes one request of the control plane, again where that is safe.
func (p *Provider) call(ctx context.Context, r request) (http.Header, error) {
	var body []byte
	if r.in != nil {
		var err error
		if body, err = json.Marshal(r.in); err != nil {
			return nil, err
		}
	}
	var putOff time.Duration
	for try := 0; ; {
		res, data, err := p.once(ctx, r, body)
		switch {
		case ctx.Err() != nil:
			return nil, p.unanswered(r, errors.Join(ctx.Err(), err))
		case err != nil:
			err = p.unanswered(r, err)
		case res.StatusCode == http.StatusTooManyRequests:
			d := retryAfter(res.Header.Get("Retry-After"), time.Now())
			if r.late != nil {
				r.late(d)
			}
			if putOff += d; putOff > p.cfg.Retry.Patience || !before(ctx, d) {
				p.log.Warn("the engine is rate-limited", "request", r.name(), "decision", "give up", "reason", "too_long", "wait_ms", d.Milliseconds())
				return nil, p.busyUntil(d, newStatusError(res.StatusCode, data))
			}
			p.log.Info("the engine is rate-limited", "request", r.name(), "decision", "wait", "wait_ms", d.Milliseconds())
			if err := sleep(ctx, d); err != nil {
				return nil, err
			}
			continue
		case res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented:
			err = newStatusError(res.StatusCode, data)
			if r.once {
				err = &unsureError{err}
			}
		case res.StatusCode >= 300:
			return nil, newStatusError(res.StatusCode, data)
		default:
			if r.out != nil {
				if err := json.Unmarshal(data, r.out); err != nil {
					return nil, fail(p.cfg.Lang, dreamcore.Unavailable, "sandbox.engine", "nonsense").Because(err)
				}
			}
			return res.Header, nil
		}
		var unsure *unsureError
		if try++; errors.As(err, &unsure) || hopeless(err) || try >= p.cfg.Retry.Tries {
			return nil, err
		}
		d := p.cfg.Retry.pause(try - 1)
		p.log.Warn("a request to the engine failed", "request", r.name(), "decision", "try again", "reason", clip(err.Error()), "try", try, "wait_ms", d.Milliseconds())
		if sleep(ctx, d) != nil {
			return nil, err
		}
	}
}

// once makes the request one time and reads its answer whole.
func (p *Provider) once(ctx context.Context, r request, body []byte) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, p.cfg.APIURL+r.path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("X-Api-Key", p.cfg.APIKey.Reveal())
	if r.in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := p.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes+1))
	if err == nil && len(data) > maxAnswerBytes {
		err = fmt.Errorf("the answer is longer than %d bytes", maxAnswerBytes)
	}
	return res, data, err
}

// unanswered is the error of a request without a whole answer.
func (p *Provider) unanswered(r request, err error) error {
	var e error = fail(p.cfg.Lang, dreamcore.Unavailable, "sandbox.engine", "no_answer").Because(err)
	if r.once && !neverSent(err) {
		e = &unsureError{e}
	}
	return e
}

func (p *Provider) busyUntil(d time.Duration, err error) error {
	return fail(p.cfg.Lang, dreamcore.Unavailable, "sandbox.engine", "rate", "seconds", strconv.FormatInt(seconds(d), 10)).Because(err)
}

// neverSent reports whether the connection failed before the request was on it.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || hopeless(err)
}

// hopeless reports whether an error is the same at every try.
func hopeless(err error) bool {
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	return errors.As(err, &cert) || errors.As(err, &dns) && dns.IsNotFound
}

const maxPutOff = time.Hour

// retryAfter reads how long an engine wants to be left alone: seconds or a
// date. Nonsense means a second.
func retryAfter(s string, now time.Time) time.Duration {
	d := time.Second
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		d = time.Duration(min(max(n, 0), int64(maxPutOff/time.Second))) * time.Second
	} else if at, err := http.ParseTime(s); err == nil {
		d = at.Sub(now)
	}
	// At least a little, or an engine that says 0 is asked in a tight loop.
	return min(max(d, 100*time.Millisecond), maxPutOff)
}

// before reports whether d passes before ctx ends.
func before(ctx context.Context, d time.Duration) bool {
	end, ok := ctx.Deadline()
	return !ok || time.Until(end) > d
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
