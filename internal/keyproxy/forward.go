package keyproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"dreamcore"
	"dreamcore/internal/budget"
	"dreamcore/internal/egress"
	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/keyproxy/provider/openai"
	"dreamcore/internal/strictjson"
)

// maxAnswerBytes bounds an answer that is read whole.
const maxAnswerBytes = 64 << 20

// retries is how often an overloaded upstream is asked again, as long as the
// client has not seen a byte.
const retries = 2

// errSilence is the cause of cutting an upstream that says nothing.
var errSilence = errors.New("the upstream is silent")

// charge is what a call turned out to use.
type charge struct {
	known  bool // the upstream took the request, so it costs
	meter  provider.Meter
	text   int64 // bytes of text that were streamed
	images int64
	whole  bool // the answer came to its end
}

// forward reserves, sends the request on and passes the answer back.
func (c *call) forward() (s *stop) {
	res, s := c.reserve()
	if s != nil {
		return s
	}
	ch := &charge{}
	defer func() { c.settle(res, ch) }()

	stream := c.op.Streams || c.op.Kind == provider.Generate && c.body.Get("stream").True()
	var asked strictjson.Value // what Finish overwrites and the meter wants to know
	if options := c.body.Get("stream_options"); options != nil {
		asked = strictjson.Obj("stream_options", *options)
	}
	if c.op.Finish != nil {
		c.op.Finish(&c.body, stream)
	}
	if c.up.Compatible {
		openai.Adapt(&c.body)
	}
	for i := range c.up.set.Len() {
		c.body.Set(c.up.set.Name(i), *c.up.set.At(i))
	}
	body := c.body.Append(make([]byte, 0, c.rec.BytesIn+ownBytes))
	limit := res.Amount.Bytes - int64(len(body))
	ctx, watch, done := c.watch(stream)
	defer done()

	for try := 0; ; try++ {
		ch.meter = c.op.Meter(&asked)
		resp, s := c.request(ctx, body, stream, ch)
		if s != nil {
			return s
		}
		ch.known = false // an upstream that refuses charges nothing
		if resp.StatusCode != http.StatusOK {
			s, again := c.failed(resp, try)
			if !again {
				return s
			}
		} else if stream {
			ch.known = true
			s, again := c.relay(ctx, resp, watch, ch, limit, try)
			if !again {
				return s
			}
			ch.known = false
		} else {
			ch.known = true
			return c.whole(ctx, resp, watch, ch, limit)
		}
		// Overloaded, and the client has seen nothing of it.
		select {
		case <-time.After(time.Duration(try+1) * c.p.timeouts.Retry):
		case <-ctx.Done():
			return c.ended(ctx, ctx.Err())
		}
	}
}

// watch returns the context of the call to the upstream: it ends with the
// client's connection, with the job, and when the upstream is silent for too
// long. The watchdog is set anew with watch(d).
func (c *call) watch(stream bool) (ctx context.Context, watch func(time.Duration), done func()) {
	ctx, cancel := context.WithCancelCause(c.r.Context())
	unhook := context.AfterFunc(c.job.ctx, func() {
		cancel(context.Cause(c.job.ctx))
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now()) // free a write that blocks
	})
	first := c.p.timeouts.Whole
	if stream {
		first = c.p.timeouts.Headers
	}
	dog := time.AfterFunc(first, func() { cancel(errSilence) })
	return ctx, func(d time.Duration) { dog.Reset(d) }, func() {
		dog.Stop()
		unhook()
		cancel(nil)
	}
}

// ended translates the end of a call by its context, or by err, into a reason.
func (c *call) ended(ctx context.Context, err error) *stop {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errClosed), c.job.ctx.Err() != nil:
		return no(Killed)
	case errors.Is(cause, errSilence):
		return no(UpstreamSilent)
	case c.r.Context().Err() != nil:
		return no(ClientGone)
	case errors.Is(err, egress.ErrDenied):
		return no(GuardDenied)
	}
	return nof(UpstreamDown, "%s", c.up.base.Hostname())
}

// request makes a fresh request; nothing of the client's is in it but the body
// that was checked and written anew.
func (c *call) request(ctx context.Context, body []byte, stream bool, ch *charge) (*http.Response, *stop) {
	u := *c.up.base
	u.Path += strings.ReplaceAll(c.op.Upstream, "{model}", c.price.known())
	u.RawQuery = c.op.Query
	if u.Scheme == "https" || c.up.Dial == nil {
		u.Host = c.up.base.Host
	}
	// Once it has the request it may work on it, even if we never hear of it.
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, nof(Panicked, "the upstream's address")
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("Accept-Encoding", "identity")
	h.Set("User-Agent", "dreamcore")
	h.Set("Accept", "application/json")
	if stream {
		h.Set("Accept", "text/event-stream")
	}
	for k, v := range c.op.Protocol.Authorize(c.up.ring.Load().key.Reveal(), c.r.Header.Values("Anthropic-Beta")) {
		h.Set(k, v)
	}
	c.rec.Dialled = true
	resp, err := c.up.client.RoundTrip(req)
	ch.known = sent.Load()
	if err != nil {
		s := c.ended(ctx, err)
		if s.reason == UpstreamDown {
			ch.known = false // it broke the connection without an answer
		}
		if s.reason == UpstreamDown || s.reason == GuardDenied {
			// The cause may hold untrusted text and is for the log only.
			c.p.log.Warn("upstream", "job_id", c.rec.Job, "reason", s.reason, "error", clip(c.up.secrets().Text(err.Error()), 300))
		}
		if s.reason == GuardDenied {
			c.rec.Dialled = false
		}
		return nil, s
	}
	return resp, nil
}

// failed passes an upstream's error on in our shape, or asks to try again.
func (c *call) failed(resp *http.Response, try int) (s *stop, again bool) {
	defer func() { _ = resp.Body.Close() }() // nothing more is wanted of it
	status := resp.StatusCode
	wait := retryAfter(resp.Header, time.Now())
	switch {
	case status >= 300 && status < 400:
		return no(UpstreamMoved), false
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusPaymentRequired:
		c.p.log.Error("the upstream does not accept the operator's key", "upstream", c.up.String(), "status", status)
		return no(UpstreamKey), false
	case (status == 503 || status == 529 || status == 500) && wait == 0 && try < retries:
		return nil, true
	case status < 400:
		return nof(UpstreamBroken, "status %d", status), false
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 256<<10)) // a message that breaks off is still a message
	v, err := strictjson.Parse(data)
	if err != nil {
		v = strictjson.Value{}
	}
	if status == http.StatusBadRequest && hasReason(&v, "API_KEY_INVALID") {
		c.p.log.Error("the upstream does not accept the operator's key", "upstream", c.up.String(), "status", status)
		return no(UpstreamKey), false
	}
	if wait == 0 {
		wait = retryDelay(&v)
	}
	c.answerError(status, wait, c.message(&v, status))
	return nil, false
}

// retryAfter reads the header of that name, in seconds or as a date; 0 is none.
func retryAfter(h http.Header, now time.Time) int {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.Atoi(v); err == nil {
		return max(0, n)
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, int((at.Sub(now)+time.Second-1)/time.Second))
	}
	return 0
}

// retryDelay reads when to come again from the details of a Google error; 0 is
// that it does not say.
func retryDelay(v *strictjson.Value) int {
	details := v.Get("error").Get("details")
	for i := range details.Len() {
		if d, err := time.ParseDuration(details.At(i).Get("retryDelay").Text()); err == nil && d > 0 {
			return int((d + time.Second - 1) / time.Second)
		}
	}
	return 0
}

// hasReason looks for a reason among the details of a Google error.
func hasReason(v *strictjson.Value, reason string) bool {
	details := v.Get("error").Get("details")
	for i := range details.Len() {
		if details.At(i).Get("reason").Text() == reason {
			return true
		}
	}
	return false
}

// message takes the text out of an upstream's error, which the agents read
// ("prompt is too long" makes them compact their history).
func (c *call) message(v *strictjson.Value, status int) string {
	for _, text := range []string{v.Get("error").Get("message").Text(), v.Get("message").Text(), v.Get("error").Text()} {
		if text != "" {
			return clip(c.up.secrets().Text(text), 2000)
		}
	}
	return "the model's server answered with status " + strconv.Itoa(status)
}

// answerError writes an error that the upstream gave.
func (c *call) answerError(status, wait int, message string) {
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusTooManyRequests || status >= 500 {
		if wait <= 0 || wait > 3600 {
			wait = 5
		}
		h.Set("Retry-After", strconv.Itoa(wait))
	}
	c.began = true
	c.rec.Reason, c.rec.Status, c.rec.Detail = UpstreamError, status, clip(message, 200)
	c.w.WriteHeader(status)
	_ = c.send(c.op.Protocol.ErrorBody(status, string(UpstreamError), message)) // a client that is gone misses it
}

// acceptable checks the headers of an answer before any of its body is passed on.
func (c *call) acceptable(resp *http.Response, want string) *stop {
	if enc := resp.Header.Values("Content-Encoding"); len(enc) > 1 || len(enc) == 1 && !strings.EqualFold(enc[0], "identity") {
		return nof(UpstreamBroken, "it is compressed although identity was asked for")
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != want {
		return nof(UpstreamBroken, "its content type is %s, not %s", clip(kind, 40), want)
	}
	return nil
}

// headers are those of an answer that are passed on.
var headers = []string{"Request-Id", "X-Request-Id"}

func (c *call) copyHeaders(resp *http.Response, contentType string) {
	h := c.w.Header()
	for _, name := range headers {
		if v := resp.Header.Get(name); v != "" {
			h.Set(name, clip(c.up.secrets().Text(v), 100))
		}
	}
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
}

// answer reads an answer that does not stream.
func (c *call) answer(ctx context.Context, resp *http.Response, watch func(time.Duration), limit int64) ([]byte, *stop) {
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is not wanted
	if s := c.acceptable(resp, "application/json"); s != nil {
		return nil, s
	}
	limit = min(limit, maxAnswerBytes)
	data, err := io.ReadAll(&watched{io.LimitReader(resp.Body, limit+1), watch, c.p.timeouts.Silence})
	if err != nil {
		if s := c.ended(ctx, err); s.reason != UpstreamDown {
			return nil, s
		}
		return nil, nof(UpstreamBroken, "it broke off")
	}
	if int64(len(data)) > limit {
		return nil, nof(UpstreamBroken, "it is longer than %d bytes", limit)
	}
	return data, nil
}

// watched sets the watchdog anew with every piece.
type watched struct {
	r     io.Reader
	watch func(time.Duration)
	d     time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.watch(w.d)
	return n, err
}

// whole passes on an answer that does not stream.
func (c *call) whole(ctx context.Context, resp *http.Response, watch func(time.Duration), ch *charge, limit int64) *stop {
	data, s := c.answer(ctx, resp, watch, limit)
	if s != nil {
		return s
	}
	v, err := strictjson.Parse(data)
	if err != nil {
		return nof(UpstreamBroken, "its body is not JSON")
	}
	ch.meter.Event(&v)
	ch.whole = true
	out := c.up.secrets().Bytes(data)
	if len(out) != len(data) || !bytes.Equal(out, data) {
		if _, err := strictjson.Parse(out); err != nil {
			return nof(UpstreamBroken, "it echoes a secret in a form that cannot be cut out")
		}
	}
	c.copyHeaders(resp, "application/json")
	c.began, c.rec.Status = true, http.StatusOK
	return c.send(out)
}

// settle charges what a call used.
func (c *call) settle(res budget.Reservation, ch *charge) {
	u := dreamcore.Usage{Requests: 1, Bytes: c.rec.BytesIn + c.rec.BytesOut}
	if ch.known {
		switch c.op.Kind {
		case provider.Generate:
			c.settleTokens(&u, res.Amount, ch)
		case provider.Image:
			u.Images = ch.images
			u.CostMicros = ch.images * c.price.ImageMicros
		case provider.Count, provider.List, provider.Package, provider.Asset:
		}
	}
	c.rec.InputTokens, c.rec.OutputTokens, c.rec.Images, c.rec.CostMicros = u.InputTokens, u.OutputTokens, u.Images, u.CostMicros
	if err := c.p.ledger.Settle(res, u); err != nil {
		// The reservation stays held, and is charged whole after a restart.
		c.p.log.Error("a call could not be settled", "job_id", c.rec.Job, "reason", LedgerDown, "error", err)
	}
}

func (c *call) settleTokens(u *dreamcore.Usage, held dreamcore.Usage, ch *charge) {
	t, said, sane := ch.meter.Tokens()
	switch {
	case !sane:
		c.p.alerts.Add(1)
		c.p.log.Warn("the upstream reports impossible usage; the reservation is charged", "job_id", c.rec.Job, "upstream", c.up.String())
		u.InputTokens, u.OutputTokens, u.CostMicros = held.InputTokens, held.OutputTokens, held.CostMicros
	case said:
		u.InputTokens, u.OutputTokens, u.CostMicros = t.Sum(), t.Output, c.price.cost(t)
	case ch.whole:
		u.InputTokens, u.OutputTokens, u.CostMicros = held.InputTokens, held.OutputTokens, held.CostMicros
	default:
		// Cut in the middle: what was streamed counts, at two bytes a token,
		// which is more than any tokenizer makes of ordinary text.
		if t.Sum() == 0 {
			t.Input = held.InputTokens
		}
		t.Output = max(t.Output, min(held.OutputTokens, 1+ch.text/2))
		u.InputTokens, u.OutputTokens, u.CostMicros = t.Sum(), t.Output, c.price.cost(t)
	}
}
