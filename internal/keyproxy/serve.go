package keyproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"dreamcore/internal/egress"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/keyproxy/provider/anthropic"
	"dreamcore/internal/keyproxy/provider/gemini"
	"dreamcore/internal/keyproxy/provider/npm"
	"dreamcore/internal/keyproxy/provider/openai"
	"dreamcore/internal/strictjson"
)

// call is one request on its way through the checks.
type call struct {
	p       *Proxy
	w       http.ResponseWriter
	r       *http.Request
	channel string
	start   time.Time

	op      *provider.Operation
	parts   map[string]string // of the path, by the names in its pattern
	job     *job
	terms   *openTerms
	up      *upstream
	price   *ModelPrice
	body    strictjson.Value
	rec     AuditRecord
	began   bool     // the status line is out
	inside  bool     // counted as one of the job's requests
	large   bool     // holds one of the job's places for large bodies
	release []func() // gives back its places with the creator and the upstream
	unhook  func() bool
}

// lastWords is how long a client of a job that has ended may take over its
// refusal.
const lastWords = time.Second

// hurry frees a call that waits for its client, because its job has ended: a box
// must not hold up its own end by what it does not send or does not take.
func (c *call) hurry() {
	rc, now := http.NewResponseController(c.w), time.Now()
	_ = rc.SetReadDeadline(now) // recorders in tests have none
	_ = rc.SetWriteDeadline(now.Add(lastWords))
}

// overdue does hurry's work again after a deadline was set, which may have
// undone it. Whichever comes last, hurry wins.
func (c *call) overdue() bool {
	if !c.inside || c.job.ctx.Err() == nil {
		return false
	}
	c.hurry()
	return true
}

// stop is how a check ends a call: with a reason and a detail for people that
// is safe to print.
type stop struct {
	reason Reason
	detail string
	wait   int // seconds until it makes sense to come again; 0: as the table says
}

func no(r Reason) *stop { return &stop{reason: r} }

func nof(r Reason, format string, args ...any) *stop {
	return &stop{reason: r, detail: fmt.Sprintf(format, args...)}
}

// Handler serves the requests of one channel.
func (p *Proxy) Handler(channel string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.gates.pass(channel, time.Now(), p.flooded) {
			p.turnAway(w, r)
			return
		}
		c := &call{p: p, w: w, r: r, channel: channel, start: p.now()}
		c.rec = AuditRecord{Channel: channel, Route: clip(r.Method, 16) + " " + clip(r.URL.Path, 100), Decision: "allow"}
		defer c.finish()
		if s := c.run(); s != nil {
			c.refuse(s)
		}
	})
}

// finish writes the one audit record, whatever happened.
func (c *call) finish() {
	caught := recover()
	if caught != nil && caught != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
		c.p.alerts.Add(1)
		c.p.log.Error("panic in the key proxy", "reason", Panicked, "job_id", c.rec.Job,
			"panic", clip(fmt.Sprint(caught), 200), "stack", string(debug.Stack()))
		if c.rec.Reason = Panicked; !c.began {
			c.refuse(no(Panicked))
			caught = nil
		}
	}
	if c.unhook != nil {
		c.unhook()
	}
	c.rec.Time = c.start.UTC()
	c.rec.DurMS = c.p.now().Sub(c.start).Milliseconds()
	c.feel()
	c.p.record(c.rec)
	c.p.log.Info("proxy call", "job_id", c.rec.Job, "sandbox_id", c.channel, "route", c.rec.Route, "decision", c.rec.Decision,
		"reason", c.rec.Reason, "detail", c.rec.Detail, "status", c.rec.Status, "dur_ms", c.rec.DurMS)
	if c.large {
		<-c.job.large
	}
	for _, f := range c.release {
		f()
	}
	if c.inside {
		c.job.leave() // last, so that a closed job has its audit complete
	}
	if caught != nil {
		panic(http.ErrAbortHandler) // a response that has begun can only be cut
	}
}

// record writes to the audit; whether that worked decides what may be spent.
func (p *Proxy) record(r AuditRecord) {
	err := p.audit.Record(r)
	p.deaf.Store(err != nil)
	if err != nil {
		p.log.Error("the audit log cannot be written", "decision", r.Decision, "reason", r.Reason, "error", err)
	}
}

// family is whose habits and error shape a path has.
func family(path string) string {
	switch {
	case strings.HasPrefix(path, "/anthropic/"):
		return "anthropic"
	case strings.HasPrefix(path, "/openai/"):
		return "openai"
	case strings.HasPrefix(path, "/gemini/"):
		return "gemini"
	case strings.HasPrefix(path, "/npm/"):
		return "npm"
	case strings.HasPrefix(path, "/asset/"):
		return "asset"
	}
	return ""
}

// refuse answers with the row of the table.
func (c *call) refuse(s *stop) {
	row, ok := refusals[s.reason]
	if !ok {
		row = refusals[Panicked]
	}
	fam := family(c.r.URL.Path)
	status := row.status(fam)
	c.rec.Reason, c.rec.Detail = s.reason, clip(s.detail, 200)
	if s.reason == ChannelMismatch {
		c.p.alerts.Add(1)
		c.p.log.Warn("a token was used on a foreign channel", "job_id", c.rec.Job, "sandbox_id", c.channel, "reason", s.reason)
	}
	if c.began {
		return
	}
	c.rec.Decision, c.rec.Status = "refuse", status
	message := row.message
	if s.detail != "" {
		message += " (" + s.detail + ")"
	}
	message += " [" + string(s.reason) + "]"
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	if s.wait > 0 {
		h.Set("Retry-After", strconv.Itoa(s.wait))
	} else if row.retryAfter != "" {
		h.Set("Retry-After", row.retryAfter)
	}
	if status == http.StatusMethodNotAllowed {
		h.Set("Allow", strings.Join(c.p.methods(c.r.URL.Path), ", "))
	}
	// The server reads what is left of the body before it answers.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(c.p.timeouts.ReadBody))
	c.began = true
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return
	}
	_ = c.send(shape(fam).ErrorBody(status, string(s.reason), message)) // a client that is gone misses it
}

// send writes to the client, and flushes. A client that takes nothing holds a call
// only so long, and a job that ends not at all.
func (c *call) send(data []byte) *stop {
	rc := http.NewResponseController(c.w)
	_ = rc.SetWriteDeadline(time.Now().Add(c.p.timeouts.Write)) // recorders in tests have none
	if c.overdue() && c.rec.Decision == "allow" {
		return no(Killed)
	}
	n, err := c.w.Write(data)
	c.rec.BytesOut += int64(n)
	if err == nil {
		err = rc.Flush()
	}
	if err != nil {
		return no(ClientGone)
	}
	// The connection may live on for longer than this.
	_ = rc.SetWriteDeadline(time.Time{})
	return nil
}

// run takes the call through the checks, in their order.
func (c *call) run() *stop {
	if s := c.target(); s != nil {
		return s
	}
	if c.r.Method == http.MethodHead && c.r.URL.Path == "/" {
		c.w.WriteHeader(http.StatusOK) // some clients look whether anybody is there
		c.rec.Status = http.StatusOK
		return nil
	}
	methods, parts := c.p.ops.find(c.r.URL.Path)
	if methods == nil {
		return no(NoRoute)
	}
	c.parts = parts
	if c.op = methods[c.r.Method]; c.op == nil {
		return no(BadMethod)
	}
	c.rec.Route = c.op.Route()
	if _, query, _ := strings.Cut(c.r.RequestURI, "?"); query != c.op.Query && family(c.r.URL.Path) != "anthropic" {
		return nof(BadQuery, "the query must be %q", c.op.Query)
	}
	if s := c.identity(); s != nil {
		return s
	}
	if !slices.Contains(c.terms.routes, c.op.Route()) {
		return nof(FeatureOff, "route %s", c.op.Route())
	}
	if c.op.Kind == provider.List {
		return c.list()
	}
	if len(c.p.upstreams[c.op.Feature]) == 0 {
		return nof(FeatureOff, "feature %s has no upstream", c.op.Feature)
	}
	if c.p.deaf.Load() {
		return no(AuditDown)
	}
	if reason := c.job.enter(c.p.now()); reason != "" {
		return no(reason)
	}
	c.inside = true
	c.unhook = context.AfterFunc(c.job.ctx, c.hurry)
	switch c.op.Kind {
	case provider.Package:
		return c.mirror()
	case provider.Asset:
		return c.asset()
	case provider.Generate, provider.Count, provider.Image, provider.List:
	}
	if s := c.read(); s != nil {
		return s
	}
	if s := c.admit(); s != nil {
		return s
	}
	if s := c.throttled(); s != nil {
		return s
	}
	if c.op.Kind == provider.Image {
		return c.image()
	}
	return c.forward()
}

// target checks the request line and what belongs to it, as the client wrote
// it: the standard library has already decoded URL.Path.
func (c *call) target() *stop {
	raw := c.r.RequestURI
	if !strings.HasPrefix(raw, "/") {
		return no(BadHost) // absolute form, authority form of CONNECT, or *
	}
	path, query, asked := strings.Cut(raw, "?")
	path = scoped.ReplaceAllString(path, "$1/$2")
	for i := range len(path) {
		b := path[i]
		if strings.IndexByte(letters[family(path)], b) >= 0 {
			continue
		}
		if b != '/' && b != '_' && b != '-' && b != '.' && (b < '0' || b > '9') && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') {
			return no(BadTarget)
		}
	}
	if strings.Contains(path, "//") || strings.Contains(path, "/.") || path != c.r.URL.Path {
		return no(BadTarget)
	}
	if !slices.Contains(c.p.hosts, strings.ToLower(c.r.Host)) {
		return no(BadHost)
	}
	if c.r.Header.Get("Upgrade") != "" || hasToken(c.r.Header.Values("Connection"), "upgrade") || c.r.Method == http.MethodConnect {
		return no(BadUpgrade)
	}
	if asked && !(query == "beta=true" && family(path) == "anthropic") && !(query == "alt=sse" && family(path) == "gemini") && family(path) != "npm" {
		return no(BadQuery)
	}
	return nil
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// credential returns the one token of the request.
func (c *call) credential() (string, *stop) {
	google := c.r.Header.Values("X-Goog-Api-Key")
	if family(c.r.URL.Path) != "gemini" && len(google) > 0 {
		return "", nof(ForeignKey, "header X-Goog-Api-Key")
	}
	for _, name := range []string{"Api-Key", "Proxy-Authorization", "Cookie", "Openai-Organization", "Openai-Project"} {
		if len(c.r.Header.Values(name)) > 0 {
			return "", nof(ForeignKey, "header %s", name)
		}
	}
	var tokens []string
	for _, v := range c.r.Header.Values("Authorization") {
		scheme, t, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "Bearer") && v != "" {
			return "", nof(ForeignKey, "the header Authorization is not a bearer token")
		}
		tokens = append(tokens, strings.TrimSpace(t))
	}
	bearers, keys := len(tokens), c.r.Header.Values("X-Api-Key")
	tokens = append(append(tokens, keys...), google...)
	if bearers > 1 || len(keys) > 1 || len(google) > 1 {
		return "", no(TwoCredentials)
	}
	for _, t := range tokens {
		if t != tokens[0] {
			return "", no(TwoCredentials)
		}
	}
	if len(tokens) == 0 || tokens[0] == "" {
		return "", no(NoToken)
	}
	if !strings.HasPrefix(tokens[0], grant.Prefix) {
		return "", no(ForeignKey)
	}
	return tokens[0], nil
}

// identity checks the grant, then that its job lives and is the channel's.
func (c *call) identity() *stop {
	token, s := c.credential()
	if s != nil {
		return s
	}
	claims, err := c.p.verifier.Verify(token, Audience, c.p.now())
	if claims.Job != "" {
		// Signed by us, so it may name the job in the audit.
		c.rec.Job, c.rec.Attempt, c.rec.Grant = claims.Job, claims.Attempt, claims.ID
	}
	switch {
	case errors.Is(err, grant.ErrExpired):
		return no(TokenExpired)
	case errors.Is(err, grant.ErrNotYet):
		return no(TokenNotYet)
	case err != nil:
		return nof(BadToken, "%v", err)
	case claims.Channel != c.channel:
		return no(ChannelMismatch)
	}
	if c.job = c.p.job(claims.Job); c.job == nil {
		if strings.HasPrefix(c.p.ledger.State(jobAccount(claims.Job)), "shut") {
			return no(JobEnded)
		}
		return no(JobUnknown)
	}
	c.terms = c.job.terms.Load()
	switch {
	case c.terms.Attempt != claims.Attempt:
		return no(AttemptMismatch)
	case c.terms.Channel != c.channel:
		return no(ChannelMismatch)
	case c.job.ctx.Err() != nil:
		return no(JobEnded)
	}
	for _, f := range egress.Opens(c.op.Route()) {
		if slices.Contains(claims.Features, f) {
			return nil
		}
	}
	return nof(FeatureOff, "the token does not open %s", c.op.Route())
}

// read takes the whole body before anything is dialled.
func (c *call) read() *stop {
	h := c.r.Header
	if enc := h.Values("Content-Encoding"); len(enc) > 1 || len(enc) == 1 && !strings.EqualFold(enc[0], "identity") {
		return no(BadEncoding)
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if cs := params["charset"]; err != nil || kind != "application/json" || cs != "" && !strings.EqualFold(cs, "utf-8") {
		return no(BadType)
	}
	rc := http.NewResponseController(c.w)
	deadline := time.Now().Add(c.p.timeouts.ReadBody)
	if err := rc.SetReadDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nof(BadBody, "no deadline could be set")
	}
	// A request that asks to go on gets its answer to that on the first read.
	_ = rc.SetWriteDeadline(time.Now().Add(c.p.timeouts.Write))
	if c.overdue() {
		return no(Killed)
	}
	body := http.MaxBytesReader(c.w, c.r.Body, MaxBodyBytes)
	data, err := io.ReadAll(io.LimitReader(body, largeBytes))
	if err == nil && len(data) == largeBytes {
		select {
		case c.job.large <- struct{}{}:
			c.large = true
		default:
			return nof(TooManyAtOnce, "large requests")
		}
		buf := bytes.NewBuffer(data)
		_, err = buf.ReadFrom(body)
		data = buf.Bytes()
	}
	c.rec.BytesIn = int64(len(data))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nof(TooLarge, "at most %d bytes", MaxBodyBytes)
	} else if c.job.ctx.Err() != nil {
		return no(Killed)
	} else if err != nil {
		return no(BadBody)
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nof(BadBody, "no deadline could be set")
	}
	if c.body, err = strictjson.Parse(data); err != nil {
		return nof(BadJSON, "%v", err)
	}
	return nil
}

// list answers the model list from the terms, without a dial.
func (c *call) list() *stop {
	var names []string
	for _, f := range egress.Opens(c.op.Route()) {
		if !slices.Contains(c.terms.Features, f) {
			continue
		}
		for _, up := range c.p.upstreams[f] {
			for _, m := range up.Models {
				if slices.Contains(c.terms.Models, m.Name) && !slices.Contains(names, m.Name) {
					names = append(names, m.Name)
				}
			}
		}
	}
	slices.Sort(names)
	c.w.Header().Set("Content-Type", "application/json")
	c.began, c.rec.Status = true, http.StatusOK
	return c.send(c.op.Protocol.Models(names))
}

func (p *Proxy) methods(path string) []string {
	var out []string
	methods, _ := p.ops.find(path)
	for m := range methods {
		out = append(out, m)
	}
	slices.Sort(out)
	return out
}

// shape is the error shape of a family; paths that belong to none get OpenAI's.
func shape(fam string) provider.Protocol {
	switch fam {
	case "anthropic":
		return anthropic.Protocol{}
	case "gemini":
		return gemini.Protocol{}
	case "npm", "asset":
		return npm.Protocol{}
	}
	return openai.Protocol{}
}
