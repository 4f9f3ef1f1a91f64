package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy"
	"dreamcore/internal/probe"
	"dreamcore/internal/redact"
	"dreamcore/internal/sandbox"
)

// model paths by API.
var modelPath = map[string]string{
	"anthropic-messages": "/anthropic/v1/messages",
	"openai-chat":        "/openai/v1/chat/completions",
	"openai-responses":   "/openai/v1/responses",
}

// call is one request over the sandbox's real channel.
type call struct {
	line, name string
	raw        string
	status     string // of the last answer; several by spaces
	reason     keyproxy.Reason
	cut        bool // the request ends before its end: no answer is one too
	shown      bool // it may reach the upstream; what is judged is done by the caller
}

func (f *field) path() string { return modelPath[f.API] }

// denied is the status of a refused grant on the model's path.
func (f *field) denied() string {
	if strings.HasPrefix(f.path(), "/openai") {
		return "400"
	}
	return "403"
}

// good is the smallest good body, with word in it and fields put before.
func (f *field) good(word string, fields ...string) string {
	more := ""
	for _, x := range fields {
		more += x + ","
	}
	if f.API == "openai-responses" {
		return fmt.Sprintf(`{%s"model":%q,"input":%q}`, more, f.Model, word)
	}
	return fmt.Sprintf(`{%s"model":%q,"max_tokens":50,"messages":[{"role":"user","content":%q}]}`, more, f.Model, word)
}

// request is a whole request. head replaces the credential when not empty.
func (f *field) request(start, token, extra, body string) string {
	cred := ""
	if token != "" {
		cred = "Authorization: Bearer " + token + "\r\n"
	}
	return fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\n%s%sContent-Length: %d\r\n\r\n%s", start, f.ProxyAddress, cred, extra, len(body), body)
}

func (f *field) post(token, extra, body string) string {
	return f.request("POST "+f.path(), token, extra, body)
}

// send sends calls from a sandbox and judges their lines. Each that names no
// other result must be refused without a word of it reaching the upstream.
func (f *field) send(ctx context.Context, sb sandbox.Sandbox, calls []call) (map[string][]byte, error) {
	var attempts []probe.Attempt
	for i, c := range calls {
		a := probe.Attempt{ID: fmt.Sprint(i), Kind: probe.Raw, Target: f.ProxyAddress, Data: []byte(c.raw)}
		if c.cut {
			a.Most = 1
		}
		attempts = append(attempts, a)
	}
	got, err := f.probe(ctx, sb, sandbox.User, attempts)
	if err != nil {
		return nil, err
	}
	for _, c := range calls {
		if c.line != "E11" || c.name != "socks" { // which is no request
			f.requests++
		}
	}
	answers := map[string][]byte{}
	byLine := map[string][]try{}
	var order []string
	for i, c := range calls {
		o := got[fmt.Sprint(i)]
		answers[c.name] = o.Answer
		if c.shown {
			continue
		}
		if byLine[c.line] == nil {
			order = append(order, c.line)
		}
		byLine[c.line] = append(byLine[c.line], f.refused(c, o))
	}
	for _, line := range order {
		stopped := map[string]string{"T": "grant", "H": "framing", "M": "body", "E": "framing", "L": "framing"}[line[:1]]
		f.judge(line, stopped, byLine[line]...)
	}
	return answers, nil
}

// refused judges one answer.
func (f *field) refused(c call, o probe.Outcome) try {
	t := try{name: c.name, control: o.Control || c.cut, says: fmt.Sprintf("%.200q %s", o.Answer, o.Says)}
	word := c.line + "-" + c.name
	if f.Upstream.said(word) {
		t.reached, t.says = true, "it reached the provider: "+t.says
		return t
	}
	if c.cut && len(o.Answer) == 0 {
		return t
	}
	got := ""
	for _, part := range strings.Split("\r\n"+string(o.Answer), "\r\nHTTP/1.1 ")[1:] {
		got, _, _ = strings.Cut(part, " ")
	}
	if strings.HasPrefix(string(o.Answer), "HTTP/1.1 ") && got == "" {
		got = string(o.Answer[9:min(12, len(o.Answer))])
	}
	if t.control && (!strings.Contains(c.status, got) || got == "" || !strings.Contains(string(o.Answer), string(c.reason))) {
		t.reached = true
		t.says = fmt.Sprintf("wanted %s %s: %s", c.status, c.reason, t.says)
	}
	return t
}

// twin sends what is allowed and says whether exactly one call arrived.
func (f *field) twin(ctx context.Context, sb sandbox.Sandbox, token string) (bool, string, error) {
	before := f.Upstream.calls.Load()
	answers, err := f.send(ctx, sb, []call{{name: "twin", raw: f.post(token, "", f.good("twin")), shown: true}})
	if err != nil {
		return false, "", err
	}
	n := f.Upstream.calls.Load() - before
	return n == 1 && strings.HasPrefix(string(answers["twin"]), "HTTP/1.1 200"), fmt.Sprintf("%d calls, %.200q", n, answers["twin"]), nil
}

func (f *field) mint(i int, change func(*grant.Claims)) (string, error) {
	sb := f.a
	if i == 1 {
		sb = f.b
	}
	now := time.Now()
	c := grant.Claims{
		Job: f.jobs[i].ID, Attempt: 1, Channel: string(sb.ID()), Audience: keyproxy.Audience, Features: f.Features,
		NotBefore: now.Add(-grant.Skew), Expires: now.Add(5 * time.Minute),
	}
	change(&c)
	return f.Proxy.Mint(c)
}

// channel attacks the key proxy over the sandbox's own socket.
func (f *field) channel(ctx context.Context) error {
	first, says, err := f.twin(ctx, f.a, f.tokens[0])
	if err != nil {
		return err
	}
	dials := f.Upstream.dials.Load()
	calls, err := f.tokenCalls()
	if err != nil {
		return err
	}
	calls = append(append(calls, f.framingCalls()...), f.bodyCalls()...)
	if _, err := f.send(ctx, f.a, calls); err != nil {
		return err
	}
	came := f.Upstream.dials.Load() - dials
	second, more, err := f.twin(ctx, f.a, f.tokens[0])
	if err != nil {
		return err
	}
	// One call of H08 is allowed: the first of two in a pipeline.
	f.judge("twins", "counted", try{"allowed before", first, false, says}, try{"allowed after", second, false, more},
		try{"no other dial", true, came > 1, fmt.Sprintf("%d dials", came)})
	return f.echoes(ctx)
}

func (f *field) tokenCalls() ([]call, error) {
	token, denied := f.tokens[0], f.denied()
	other, err := grant.NewMinter()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	foreign, err := other.Mint(grant.Claims{Job: f.jobs[0].ID, Attempt: 1, Channel: string(f.a.ID()), Audience: keyproxy.Audience, Features: f.Features, NotBefore: now, Expires: now.Add(time.Minute)})
	if err != nil {
		return nil, err
	}
	minted := map[string]string{}
	for name, change := range map[string]func(*grant.Claims){
		"expired": func(c *grant.Claims) {
			c.NotBefore, c.Expires = now.Add(-5*time.Minute), now.Add(-grant.Skew-2*time.Second)
		},
		"not yet":          func(c *grant.Claims) { c.NotBefore, c.Expires = now.Add(time.Minute), now.Add(2*time.Minute) },
		"no feature":       func(c *grant.Claims) { c.Features = nil },
		"another audience": func(c *grant.Claims) { c.Audience = "another" },
		"second":           func(*grant.Claims) {},
	} {
		if minted[name], err = f.mint(0, change); err != nil {
			return nil, err
		}
	}
	var calls []call
	add := func(line, name, token, extra, status string, reason keyproxy.Reason) {
		calls = append(calls, call{line: line, name: name, raw: f.post(token, extra, f.good(line+"-"+name)), status: status, reason: reason})
	}
	add("T01", "no token", "", "", denied, keyproxy.NoToken)
	add("T03", "another signer", foreign, "", denied, keyproxy.BadToken)
	add("T03", "another version", strings.Replace(token, "public", "local", 1), "", "400", keyproxy.ForeignKey)
	add("T03", "none", "eyJhbGciOiJub25lIn0.e30.", "", "400", keyproxy.ForeignKey)
	add("T03", "another audience", minted["another audience"], "", denied, keyproxy.BadToken)
	for i := range 24 { // bits all over payload and signature
		b := []byte(token)
		pos := len(grant.Prefix) + i*(len(b)-len(grant.Prefix)-1)/24
		if b[pos] == 'A' {
			b[pos] = 'B'
		} else {
			b[pos] = 'A'
		}
		add("T04", fmt.Sprintf("letter %d", pos), string(b), "", denied, keyproxy.BadToken)
	}
	add("T06", "expired", minted["expired"], "", denied, keyproxy.TokenExpired)
	add("T06", "not yet", minted["not yet"], "", denied, keyproxy.TokenNotYet)
	add("T07", "the other job's", f.tokens[1], "", denied, keyproxy.ChannelMismatch)
	add("T12", "no feature", minted["no feature"], "", denied, keyproxy.FeatureOff)
	add("T13", "two headers", token, "X-Api-Key: "+minted["second"]+"\r\n", "400", keyproxy.TwoCredentials)
	add("T13", "one header twice", token, "Authorization: Bearer "+minted["second"]+"\r\n", "400", keyproxy.TwoCredentials)
	const attacker = "sk-attacker-0123456789abcdef"
	for _, h := range []string{"X-Api-Key", "Api-Key", "X-Goog-Api-Key", "OpenAI-Organization"} {
		add("T14", h, token, h+": "+attacker+"\r\n", "400", "") // one of two credentials, or a foreign one
	}
	add("T14", "authorization", attacker, "", "400", keyproxy.ForeignKey)
	add("T14", "cookie", token, "Cookie: key="+attacker+"\r\n", "400", keyproxy.ForeignKey)
	calls = append(calls, call{line: "T14", name: "query", raw: f.request("POST "+f.path()+"?key="+attacker, token, "", f.good("T14-query")), status: "400"})
	for _, p := range []string{"/mint", "/admin", "/jobs", "/control", "/open", "/close", "/health"} {
		calls = append(calls, call{line: "T19", name: p, raw: f.request("POST "+p, token, "", "{}"), status: "404", reason: keyproxy.NoRoute})
	}
	for _, p := range []string{"/debug/pprof/", "/debug/vars", "/metrics"} {
		calls = append(calls, call{line: "L07", name: p, raw: f.request("GET "+p, token, "", ""), status: "404", reason: keyproxy.NoRoute})
	}
	return calls, nil
}

func (f *field) framingCalls() []call {
	token, path := f.tokens[0], f.path()
	var calls []call
	add := func(line, name, raw, status string, reason keyproxy.Reason) {
		calls = append(calls, call{line: line, name: name, raw: raw, status: status, reason: reason})
	}
	body := func(line, name string) string { return f.good(line + "-" + name) }
	line := func(l, name, start, status string, reason keyproxy.Reason) {
		add(l, name, f.request(start, token, "", body(l, name)), status, reason)
	}
	line("H01", "unknown route", "POST /anthropic/v1/complete", "404", keyproxy.NoRoute)
	line("H01", "unknown method", "DELETE "+path, "405", keyproxy.BadMethod)
	line("H02", "dots", "POST /v1/%2e%2e/admin", "400", keyproxy.BadTarget)
	for _, p := range []string{strings.Replace(path, "/v1", "%2fv1", 1), strings.ReplaceAll(path, "/", `\`), path + ";x", path + "%00", path + "%c0%ae", "/x/%252e%252e" + path, "/" + path} {
		line("H04", p, "POST "+p, "400", "")
	}
	line("H06", "absolute form", "POST http://api.example.com"+path, "421", keyproxy.BadHost)
	add("H06", "another host", strings.Replace(f.request("POST "+path, token, "", body("H06", "another host")), "Host: "+f.ProxyAddress, "Host: evil.example", 1), "421", keyproxy.BadHost)
	second := f.request("POST "+path, "", "", body("H08", "second"))
	firstOf := strings.Replace(f.request("POST "+path, token, "", f.good("allowed")), "Connection: close\r\n", "", 1)
	add("H08", "second", firstOf+second, f.denied(), keyproxy.NoToken)
	head := "POST " + path + " HTTP/1.1\r\nHost: " + f.ProxyAddress + "\r\nContent-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " + token + "\r\n\r\n"
	for name, form := range map[string]string{"0x chunk": "0x%x\r\n%s\r\n0\r\n\r\n", "bare LF": "%x\n%s\n0\n\n"} {
		b := body("H11", name)
		calls = append(calls, call{line: "H11", name: name, raw: head + fmt.Sprintf(form, len(b), b), status: "400", cut: true})
	}
	add("H21", "websocket", f.request("POST "+path, token, "Upgrade: websocket\r\n", body("H21", "websocket")), "400", "")
	for _, enc := range []string{"gzip", "br"} {
		add("H24", enc, f.request("POST "+path, token, "Content-Encoding: "+enc+"\r\n", body("H24", enc)), "415", keyproxy.BadEncoding)
	}
	add("H24", "multipart", strings.Replace(f.request("POST "+path, token, "", body("H24", "multipart")), "application/json", "multipart/form-data; boundary=x", 1), "415", keyproxy.BadType)
	// E11: the key proxy is no way to anywhere else, however it is asked.
	add("E11", "connect", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n", "421 405 400 404", "")
	up := strings.TrimPrefix(f.Upstream.URL, "http://")
	add("E11", "connect to the provider", "CONNECT "+up+" HTTP/1.1\r\nHost: "+up+"\r\nConnection: close\r\n\r\n", "421 405 400 404", "")
	add("E11", "absolute", f.request("GET "+f.Upstream.URL+"/E11-absolute", token, "", ""), "421 405 400 404", "")
	calls = append(calls, call{line: "E11", name: "socks", raw: "\x05\x01\x00E11-socks", status: "400", cut: true})
	return calls
}

func (f *field) bodyCalls() []call {
	var calls []call
	put := func(line, name, body string, reason keyproxy.Reason) {
		calls = append(calls, call{line: line, name: name, raw: f.post(f.tokens[0], "", body), status: "400", reason: reason})
	}
	field := func(line, name, field string) {
		put(line, name, f.good(line+"-"+name, field), keyproxy.BadField)
	}
	put("M01", "duplicate", f.good("M01-duplicate", `"model":"evil"`), keyproxy.BadJSON)
	put("M01", "escaped", f.good("M01-escaped", `"mod\u0065l":"evil"`), keyproxy.BadJSON)
	field("M02", "upper", `"MODEL":"evil"`)
	field("M02", "title", `"Model":"evil"`)
	field("M02", "long s", `"me\u017f\u017fages":"evil"`)
	put("M04", "second", f.good("M04-second")+f.good("M04-second"), keyproxy.BadJSON)
	put("M04", "trailing", f.good("M04-trailing")+"x", keyproxy.BadJSON)
	field("M07", "unknown", `"brand_new":1`)
	field("M08", "servers", `"mcp_servers":[{"type":"url","url":"https://evil.example","name":"x"}]`)
	field("M08", "tool", `"tools":[{"type":"mcp","server_label":"x","server_url":"https://evil.example"}]`)
	for _, t := range []string{"web_search", "web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "computer_20250124", "file_search"} {
		field("M09", t, `"tools":[{"type":"`+t+`","name":"x"}]`)
	}
	whole := map[string]map[string]string{
		"anthropic-messages": {
			"M10": `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://evil.example/M10-url"}}]}]`,
			"M11": `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"M11-file"}}]}]`,
			"M16": `"messages":[{"role":"user","content":"M16-nested","base_url":"https://evil.example"}]`,
		},
		"openai-chat": {
			"M10": `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://evil.example/M10-url"}}]}]`,
			"M11": `"messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"M11-file"}}]}]`,
			"M16": `"messages":[{"role":"assistant","tool_calls":[{"id":"M16-nested","type":"function","api_base":"x","function":{"name":"f","arguments":"{}"}}]}]`,
		},
		"openai-responses": {
			"M10": `"input":[{"role":"user","content":[{"type":"input_image","image_url":"https://evil.example/M10-url"}]}]`,
			"M11": `"input":[{"role":"user","content":[{"type":"input_image","file_id":"M11-file"}]}]`,
			"M16": `"input":"M16-nested","reasoning":{"effort":"low","base_url":"x"}`,
		},
	}[f.API]
	for _, x := range [][2]string{{"M10", "url"}, {"M11", "file"}, {"M16", "nested"}} {
		put(x[0], x[1], fmt.Sprintf(`{"model":%q,%s}`, f.Model, whole[x[0]]), keyproxy.BadField)
	}
	for _, x := range []string{`"container":"c1"`, `"previous_response_id":"r"`, `"conversation":"c"`, `"background":true`, `"store":true`} {
		field("M11", x, x)
	}
	field("M16", "base_url", `"base_url":"https://evil.example"`)
	field("M16", "api_base", `"api_base":"https://evil.example"`)
	root := "/" + strings.Split(f.path(), "/")[1]
	for _, p := range []string{"/v1/files", "/v1/batches", "/v1/messages/batches", "/v1/fine_tuning/jobs", "/v1/organizations/me"} {
		calls = append(calls, call{line: "M12", name: p, raw: f.request("POST "+root+p, f.tokens[0], "", "{}"), status: "404", reason: keyproxy.NoRoute})
	}
	for _, m := range []string{f.Model + " ", f.Model[:len(f.Model)-1], f.Model + "-latest", strings.ToUpper(f.Model), "\u0430" + f.Model} {
		raw := strings.Replace(f.good("M15-"+m), fmt.Sprintf("%q", f.Model), fmt.Sprintf("%q", m), 1)
		calls = append(calls, call{line: "M15", name: m, raw: f.post(f.tokens[0], "", raw), status: f.denied(), reason: keyproxy.ModelRefused})
	}
	return calls
}

// echoes has the provider send its key back.
func (f *field) echoes(ctx context.Context) error {
	answers, err := f.send(ctx, f.a, []call{{name: "echo", raw: f.post(f.tokens[0], "", f.good(echo)), shown: true}})
	if err != nil {
		return err
	}
	set, err := redact.New(f.Upstream.Key)
	if err != nil {
		return err
	}
	got := string(answers["echo"])
	control := f.Upstream.said(echo) && strings.Contains(got, "HTTP/1.1 200") && !set.Clean("x "+f.Upstream.Key)
	f.judge("R01", "redaction", try{"the key as it is", control, strings.Contains(got, f.Upstream.Key), "it came through"})
	f.judge("R03", "redaction", try{"the key in every form", control, !set.Clean(got), "it came through"})
	f.judge("R04", "redaction", try{"asked for plain text", control, strings.Contains(strings.ToLower(got), "content-encoding"), got[:min(200, len(got))]})
	return nil
}

// endings uses grants whose time is over.
func (f *field) endings(ctx context.Context) error {
	ok, says, err := f.twin(ctx, f.b, f.tokens[1])
	if err != nil {
		return err
	}
	// T10: the job begins anew, in the same sandbox; the former grant is void.
	old := f.tokens[1]
	f.jobs[1].Attempt = 2
	if f.tokens[1], err = f.Proxy.Open(ctx, f.jobs[1], f.b.ID()); err != nil {
		return fmt.Errorf("open a second attempt: %w", err)
	}
	denied := func(line, name, token string, reason keyproxy.Reason) (try, error) {
		c := call{line: line, name: name, raw: f.post(token, "", f.good(line+"-"+name)), status: f.denied(), reason: reason, shown: true}
		answers, err := f.send(ctx, f.b, []call{c})
		if err != nil {
			return try{}, err
		}
		return f.refused(c, probe.Outcome{Control: ok && len(answers[name]) > 0, Answer: answers[name], Says: says}), nil
	}
	t10, err := denied("T10", "attempt 1", old, keyproxy.AttemptMismatch)
	if err != nil {
		return err
	}
	f.judge("T10", "grant", t10)
	if ok, says, err = f.twin(ctx, f.b, f.tokens[1]); err != nil {
		return err
	}
	if _, err := f.Proxy.Close(ctx, f.jobs[1].ID, 2); err != nil {
		return fmt.Errorf("close the job: %w", err)
	}
	t08, err := denied("T08", "the job is over", f.tokens[1], keyproxy.JobEnded)
	if err != nil {
		return err
	}
	f.judge("T08", "grant", t08)
	// T09: the first sandbox is gone; its grant, still good, in another's hands.
	id := f.jobs[0]
	if err := f.end(ctx); err != nil {
		return err
	}
	before, err := denied("T09", "taken along", f.tokens[0], keyproxy.ChannelMismatch)
	if err != nil {
		return err
	}
	if _, err := f.Proxy.Close(ctx, id.ID, id.Attempt); err != nil {
		return fmt.Errorf("close the job: %w", err)
	}
	f.jobs[0] = dreamcore.Job{}
	after, err := denied("T09", "after its job", f.tokens[0], "")
	if err != nil {
		return err
	}
	f.judge("T09", "grant", before, after)
	return nil
}
