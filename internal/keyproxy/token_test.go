package keyproxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/grant"
)

// deniedStatus is the table's column for grants: 403, or 400 on OpenAI's paths.
func deniedStatus(path string) int {
	if family(path) == "openai" {
		return 400
	}
	return 403
}

func with(header, value string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del("Authorization")
		if header != "" {
			r.Header.Set(header, value)
		}
	}
}

func TestT01NoToken(t *testing.T) {
	for _, path := range append([]string{imagesPath, messagesPath + "/count_tokens"}, modelPaths...) {
		w := newWorld(t)
		w.refused(w.send("POST", path, minimal(path, true), with("", "")), deniedStatus(path), NoToken)
		w.refused(w.send("POST", path, minimal(path, true), with("Authorization", "Bearer ")), deniedStatus(path), NoToken)
		w.passes()
	}
}

func TestT03ForeignSigner(t *testing.T) {
	w := newWorld(t)
	other, err := grant.NewMinter()
	if err != nil {
		t.Fatal(err)
	}
	good := w.token
	foreign := &world{t: t, minter: other, job: w.job}
	for name, token := range map[string]string{
		"foreign key": foreign.mint(nil),
		"v4.local":    strings.Replace(good, "public", "local", 1),
		"cut":         good[:len(good)-4],
	} {
		r := w.send("POST", messagesPath, minimal(messagesPath, false), with("X-Api-Key", token))
		if name == "v4.local" {
			w.refused(r, 400, ForeignKey)
			continue
		}
		w.refused(r, 403, BadToken)
	}
	w.refused(w.send("POST", messagesPath, "{}", with("Authorization", "Bearer eyJhbGciOiJub25lIn0.e30.")), 400, ForeignKey)
	w.passes()
}

func TestT06Expired(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	old := w.mint(func(c *grant.Claims) {
		c.NotBefore, c.Expires = now.Add(-10*time.Minute), now.Add(-grant.Skew-time.Second)
	})
	soon := w.mint(func(c *grant.Claims) { c.NotBefore, c.Expires = now.Add(time.Minute), now.Add(2*time.Minute) })
	other := w.mint(func(c *grant.Claims) { c.Audience = "another" })
	for _, path := range modelPaths {
		w.refused(w.send("POST", path, minimal(path, true), with("Authorization", "Bearer "+old)), deniedStatus(path), TokenExpired)
		w.refused(w.send("POST", path, minimal(path, true), with("Authorization", "Bearer "+soon)), deniedStatus(path), TokenNotYet)
		w.refused(w.send("POST", path, minimal(path, true), with("Authorization", "Bearer "+other)), deniedStatus(path), BadToken)
	}
	w.passes()
}

func TestT07TokenOnAnotherSocket(t *testing.T) {
	w := newWorld(t)
	stranger := w.mint(func(c *grant.Claims) { c.Channel = "sbx0002" })
	w.refused(w.send("POST", messagesPath, minimal(messagesPath, true), with("X-Api-Key", stranger)), 403, ChannelMismatch)
	if w.p.Alerts() != 1 {
		t.Errorf("%d alerts", w.p.Alerts())
	}
	// Minted for this socket, but the job lives on another.
	terms := w.terms
	terms.Job, terms.Channel = dreamcore.NewJobID(), "sbx0002"
	if err := w.p.OpenJob(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	moved := w.mint(func(c *grant.Claims) { c.Job = terms.Job })
	w.refused(w.send("POST", messagesPath, minimal(messagesPath, true), with("X-Api-Key", moved)), 403, ChannelMismatch)
	if w.p.Alerts() != 2 {
		t.Errorf("%d alerts", w.p.Alerts())
	}
	w.passes()
}

func TestT08AfterTheJob(t *testing.T) {
	w := newWorld(t)
	w.passes()
	before := w.up.dials.Load()
	u, err := w.p.CloseJob(t.Context(), w.job, 1)
	if err != nil || u.Requests != 1 {
		t.Fatalf("%+v %v", u, err)
	}
	for _, path := range modelPaths {
		r := w.post(path, minimal(path, true))
		if r.status != deniedStatus(path) || !strings.Contains(r.body, string(JobEnded)) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	w.dials(before)
	again, err := w.p.CloseJob(t.Context(), w.job, 1)
	if err != nil || again != u {
		t.Errorf("closed twice: %+v %v", again, err)
	}
	if err := w.p.OpenJob(t.Context(), w.terms); dreamcore.CodeOf(err) != dreamcore.Conflict {
		t.Errorf("an attempt that was closed opened again: %v", err)
	}
	if _, err := w.p.CloseJob(t.Context(), "neverwas", 1); dreamcore.CodeOf(err) != dreamcore.NotFound {
		t.Errorf("a job that never was: %v", err)
	}
}

// T09: from outside there is no channel of the job; whoever has another one has
// a token for nothing.
func TestT09ReplayAfterKill(t *testing.T) {
	w := newWorld(t)
	w.passes()
	before := w.up.dials.Load()
	if _, err := w.p.CloseJob(t.Context(), w.job, 1); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.p.Serve(ctx, "outside", l) }()
	w.url = "http://" + l.Addr().String()
	r := w.send("POST", messagesPath, minimal(messagesPath, true), func(r *http.Request) { r.Host = w.addr })
	if r.status != 403 || !strings.Contains(r.body, string(ChannelMismatch)) {
		t.Errorf("%d %s", r.status, r.body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.dials(before)
}

func TestT10OldAttempt(t *testing.T) {
	w := newWorld(t)
	old := w.token
	w.passes()
	before := w.up.dials.Load()
	terms := w.terms
	terms.Attempt = 2
	if err := w.p.OpenJob(t.Context(), terms); err != nil {
		t.Fatal(err)
	}
	r := w.post(messagesPath, minimal(messagesPath, true))
	if r.status != 403 || !strings.Contains(r.body, string(AttemptMismatch)) {
		t.Errorf("%d %s", r.status, r.body)
	}
	w.dials(before)
	if err := w.p.OpenJob(t.Context(), w.terms); dreamcore.CodeOf(err) != dreamcore.Conflict {
		t.Errorf("attempt 1 opened after attempt 2: %v", err)
	}
	w.token = w.mint(func(c *grant.Claims) { c.Attempt = 2 })
	w.passes()
	if u := w.usage(); u.Requests != 2 {
		t.Errorf("the job's usage is over all attempts: %+v", u)
	}
	// Closing the old attempt does not end the new one.
	if _, err := w.p.CloseJob(t.Context(), w.job, 1); err != nil {
		t.Fatal(err)
	}
	w.passes()
	_ = old
}

func TestT12FeatureNotGranted(t *testing.T) {
	w := newWorld(t, func(_ *Config, terms *JobTerms) { terms.Features = []dreamcore.Feature{dreamcore.OpenAIChat} })
	w.refused(w.post(messagesPath, minimal(messagesPath, true)), 403, FeatureOff)
	w.refused(w.post(responsesPath, minimal(responsesPath, true)), 400, FeatureOff)
	w.refused(w.post(imagesPath, minimal(imagesPath, true)), 400, FeatureOff)
	w.refused(w.send("GET", "/anthropic/v1/models", "", nil), 403, FeatureOff)
	// The job may, the token may not.
	weak := w.mint(func(c *grant.Claims) { c.Features = nil })
	w.refused(w.send("POST", chatPath, minimal(chatPath, true), with("Authorization", "Bearer "+weak)), 400, FeatureOff)
	w.passes()

	// The job may, the operator has no upstream for it.
	w = newWorld(t, func(cfg *Config, _ *JobTerms) { delete(cfg.Upstreams, dreamcore.AnthropicMessages) })
	w.refused(w.post(messagesPath, minimal(messagesPath, true)), 403, FeatureOff)
	w.passes()
}

func TestT13TwoCredentials(t *testing.T) {
	w := newWorld(t)
	second := w.mint(nil)
	w.refused(w.send("POST", messagesPath, minimal(messagesPath, true), func(r *http.Request) {
		r.Header.Set("X-Api-Key", second)
	}), 400, TwoCredentials)
	w.refused(w.send("POST", messagesPath, minimal(messagesPath, true), func(r *http.Request) {
		r.Header["Authorization"] = []string{"Bearer " + w.token, "Bearer " + second}
	}), 400, TwoCredentials)
	w.refused(w.send("POST", messagesPath, minimal(messagesPath, true), func(r *http.Request) {
		r.Header["X-Api-Key"] = []string{w.token, w.token}
		r.Header.Del("Authorization")
	}), 400, TwoCredentials)
	// The same token in both places is one credential.
	if r := w.send("POST", messagesPath, minimal(messagesPath, false), func(r *http.Request) { r.Header.Set("X-Api-Key", w.token) }); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestT14ForeignProviderKey(t *testing.T) {
	const attacker = "sk-ant-attacker-0123456789"
	w := newWorld(t)
	for name, change := range map[string]func(*http.Request){
		"x-api-key":      with("X-Api-Key", attacker),
		"authorization":  with("Authorization", "Bearer "+attacker),
		"basic":          with("Authorization", "Basic c2stYW50"),
		"api-key":        func(r *http.Request) { r.Header.Set("Api-Key", attacker) },
		"x-goog-api-key": func(r *http.Request) { r.Header.Set("X-Goog-Api-Key", attacker) },
		"cookie":         func(r *http.Request) { r.Header.Set("Cookie", "session="+attacker) },
		"proxy":          func(r *http.Request) { r.Header.Set("Proxy-Authorization", "Basic "+attacker) },
		"organization":   func(r *http.Request) { r.Header.Set("OpenAI-Organization", attacker) },
	} {
		for _, path := range modelPaths {
			r := w.send("POST", path, minimal(path, true), change)
			if r.status != 400 || !strings.Contains(r.body, string(ForeignKey)) || strings.Contains(r.body, attacker) {
				t.Errorf("%s: %d %s", name, r.status, r.body)
			}
		}
	}
	w.refused(w.post(messagesPath+"?key="+attacker, minimal(messagesPath, true)), 400, BadQuery)
	w.refused(w.post(chatPath+"?api_key="+attacker, minimal(chatPath, true)), 400, BadQuery)
	w.dials(0)
	w.passes()
	for _, a := range w.audits() {
		if strings.Contains(fmt.Sprint(a), attacker) {
			t.Errorf("the attacker's key is in the audit: %+v", a)
		}
	}
}

func TestT19NoAdminRoutes(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/mint", "/admin", "/jobs", "/open", "/close", "/debug/pprof/", "/debug/vars", "/metrics", "/healthz", "/v1/messages", "/openai/v1/admin", "/anthropic/v1"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			w.refused(w.send(method, path, "{}", nil), 404, NoRoute)
		}
	}
	w.passes()
}
