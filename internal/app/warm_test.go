package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	"dreamcore/internal/agent"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/workspace"
)

// upstream is a model that has the agent run commands, one after the other, and
// then says that it is done. What they print comes with the requests.
type upstream struct {
	commands []string

	mu     sync.Mutex
	bodies [][]byte
	hang   bool
	first  time.Time // of the latest turn
	asked  chan struct{}
	conns  chan net.Conn
}

func newUpstream(tb testing.TB, commands ...string) *upstream {
	u := &upstream{commands: commands, asked: make(chan struct{}, 100), conns: make(chan net.Conn)}
	server := &http.Server{Handler: u}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(u) // ends with Close
	}()
	tb.Cleanup(func() { server.Close(); <-done })
	return u
}

// Accept implements net.Listener for the connections that boxes send out.
func (u *upstream) Accept() (net.Conn, error) {
	conn, ok := <-u.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (u *upstream) Close() error   { close(u.conns); return nil }
func (u *upstream) Addr() net.Addr { return &net.UnixAddr{Name: "boxes", Net: "unix"} }

// egress is where an engine sends what its boxes send.
func (u *upstream) egress(ctx context.Context, _ dreamcore.SandboxID, conn net.Conn) {
	gone := make(chan struct{})
	select {
	case u.conns <- &watched{Conn: conn, closed: gone}:
		<-gone
	case <-ctx.Done():
		conn.Close()
	}
}

type watched struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (w *watched) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	u.mu.Lock()
	if u.first.IsZero() {
		u.first = time.Now()
	}
	u.bodies = append(u.bodies, body)
	hang := u.hang
	u.mu.Unlock()
	select {
	case u.asked <- struct{}{}:
	default:
	}
	if hang {
		<-r.Context().Done()
		return
	}
	var in struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	done := 0 // commands since the latest prompt
	for _, m := range in.Messages {
		switch {
		case m.Role == "user" && bytes.Contains(m.Content, []byte("tool_result")):
			done++
		case m.Role == "user":
			done = 0
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind string, v map[string]any) {
		v["type"] = kind
		data, _ := json.Marshal(v) // of strings and numbers
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
	}
	send("message_start", map[string]any{"message": map[string]any{
		"id": fmt.Sprintf("msg_%d", len(body)), "type": "message", "role": "assistant", "model": "m", "content": []any{},
		"usage": map[string]any{"input_tokens": 1, "output_tokens": 1},
	}})
	stop := "end_turn"
	if done < len(u.commands) {
		stop = "tool_use"
		args, _ := json.Marshal(map[string]string{"command": u.commands[done]})
		send("content_block_start", map[string]any{"index": 0, "content_block": map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", len(in.Messages), done), "name": "bash", "input": map[string]any{}}})
		send("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "input_json_delta", "partial_json": string(args)}})
	} else {
		send("content_block_start", map[string]any{"index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
		send("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "text_delta", "text": "Done."}})
	}
	send("content_block_stop", map[string]any{"index": 0})
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop}, "usage": map[string]any{"output_tokens": 2}})
	send("message_stop", map[string]any{})
}

// requests are the bodies so far.
func (u *upstream) requests() [][]byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.bodies)
}

// printed is what the latest command of the latest request has printed.
func (u *upstream) printed(tb testing.TB) string {
	tb.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	var in struct {
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if len(u.bodies) == 0 {
		tb.Fatal("the agent asked nothing")
	}
	if err := json.Unmarshal(u.bodies[len(u.bodies)-1], &in); err != nil {
		tb.Fatal(err)
	}
	last := in.Messages[len(in.Messages)-1].Content
	var parts []struct {
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(last, &parts); err != nil || len(parts) == 0 {
		tb.Fatalf("%v in %.300s", err, last)
	}
	var texts []struct{ Text string }
	if err := json.Unmarshal(parts[0].Content, &texts); err != nil {
		var one string
		if err := json.Unmarshal(parts[0].Content, &one); err != nil {
			tb.Fatalf("%v in %.300s", err, parts[0].Content)
		}
		return one
	}
	return texts[0].Text
}

var theAgent = agent.Pi{}

// warmEngine is an engine with the real agent's warm-up.
func warmEngine(tb testing.TB, u *upstream, change ...func(*engine.Config)) *enginetest.Engine {
	tb.Helper()
	w := theAgent.Warmup()
	return enginetest.Start(tb, append([]func(*engine.Config){func(c *engine.Config) {
		c.Limits = engine.DefaultLimits
		c.Egress = u.egress

		c.Warmup = &engine.Warmup{Args: w.Args, Env: w.Env, Tag: w.Tag, Ready: w.Ready}
	}}, change...)...)
}

// made is one box with all that a turn needs.
func made(tb testing.TB, e *enginetest.Engine, s agent.Session) sandbox.Sandbox {
	tb.Helper()
	sb, err := e.Provider.Create(tb.Context(), sandbox.Spec{Image: e.Image, Egress: true, Timeout: 10 * time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	files, err := theAgent.Files(s)
	if err != nil {
		tb.Fatal(err)
	}
	files = append(files, sandbox.File{Path: workspace.GrantFile, Data: []byte("grant"), Mode: 0o600, Owner: sandbox.User})
	if err := sb.WriteFiles(tb.Context(), files); err != nil {
		tb.Fatal(err)
	}
	return sb
}

func session(warm bool) agent.Session {
	return agent.Session{
		ID: dreamcore.NewJobID(), API: agent.Anthropic, Model: "m", ProxyURL: proxyURL, GrantFile: workspace.GrantFile, Dir: workspace.Root,
		Env: workspace.Env(dreamcore.English, workspace.Offer{ProxyURL: proxyURL, ImageModel: "pictures"}), Timeout: 2 * time.Minute, Warm: warm,
	}
}

// take runs one turn and returns what is logged of it.
func take(tb testing.TB, sb sandbox.Sandbox, s agent.Session, prompt string) (string, error) {
	var log bytes.Buffer
	err := agent.RunTurn(tb.Context(), sb, theAgent, s, prompt, slog.New(slog.NewTextHandler(&log, nil)), func(agent.Event) {})
	return log.String(), err
}

// facts is a command that tells what a command of the agent's begins with.
const facts = `env | sort; id; pwd; umask; ulimit -a; readlink /proc/$PPID/fd/0 /proc/$PPID/cwd; cat /proc/$PPID/comm; grep -E '^(Uid|Gid|Groups|Sig|Cap|NoNew)' /proc/$PPID/status; ls /proc/self/fd; awk '{print ($5 == $1), ($6 == $1)}' /proc/$PPID/stat`

// own are the parts of facts that are a session's own.
var own = regexp.MustCompile(`PI_SESSION_(FILE|ID)=.*`)

func warmed(tb testing.TB, e *enginetest.Engine) {
	tb.Helper()
	if err := e.Warm(tb.Context(), engine.Image{Digest: e.Image, Root: e.Root, Warm: true}); err != nil {
		tb.Fatal(err)
	}
}

// A turn of the agent that waited in its box is the turn that its command would
// have been: the same user, group, environment, limits and open files, the same
// request to the model. Its session goes on with a turn that is started anew.
func TestAWarmTurnIsTheColdTurn(t *testing.T) {
	u := newUpstream(t, facts)
	e := warmEngine(t, u)
	warmed(t, e)
	var said [2]string
	var asked [2]string
	for i, warm := range []bool{false, true} {
		s := session(warm)
		sb := made(t, e, s)
		from := len(u.requests())
		log, err := take(t, sb, s, "first prompt")
		if err != nil {
			t.Fatal(err, log)
		}
		if warm != strings.Contains(log, "decision=warm") || strings.Contains(log, "decision=cold") {
			t.Errorf("warm %v: it was logged %q", warm, log)
		}
		said[i] = own.ReplaceAllString(u.printed(t), "")
		asked[i] = strings.ReplaceAll(string(u.requests()[from]), string(s.ID), "ID")

		s.Warm = false // as every turn but the first of a box
		from = len(u.requests())
		if _, err := take(t, sb, s, "second prompt"); err != nil {
			t.Fatal(err)
		}
		if body := string(u.requests()[from]); !strings.Contains(body, "first prompt") || !strings.Contains(body, "second prompt") {
			t.Errorf("warm %v: the next turn does not go on with the session: %.2000s", warm, body)
		}
	}
	if d := cmp.Diff(said[0], said[1]); d != "" {
		t.Errorf("cold and warm (-, +) differ:\n%s", d)
	}
	if d := cmp.Diff(asked[0], asked[1]); d != "" {
		t.Errorf("what is asked of the model differs:\n%s", d)
	}
}

// moody is an agent whose warm-up behaves as a file in the box says.
type moody struct{ agent.Pi }

func (moody) Warmup() agent.Warmup {
	return agent.Warmup{Args: []string{"/bin/sh", "-c", "echo ready; read -r x; export x; exec sh /tmp/behave"}, Tag: "agent", Ready: "ready"}
}

// Whatever is wrong with the agent that waits, before it was told to go: nothing
// of it runs any more, the command does, and one line says why.
func TestWhateverIsWrongWithAWarmAgent(t *testing.T) {
	t.Parallel() // it waits most of the time
	const accept = `t=${x#*\"token\":\"}; t=${t%%\"*}; printf '{"accepted":"%s"}\n' "$t"; `
	u := newUpstream(t)
	w := moody{}.Warmup()
	e := warmEngine(t, u, func(c *engine.Config) { c.Warmup = &engine.Warmup{Args: w.Args, Tag: w.Tag, Ready: w.Ready} })
	warmed(t, e)
	saved := time.Now()
	paused := made(t, e, session(false))
	call(t, e, "/sandboxes/"+string(paused.ID())+"/pause", http.StatusNoContent)
	for _, c := range []struct{ name, behaves, reason string }{
		{"it dies", `echo no; exit 3`, "it has ended"},
		{"it babbles", `printf '{\n\000\377[]\n{"accepted":7}\n'; exit 0`, "it has ended"},
		{"it floods", `exec yes`, "talks of something else"},
		{"it floods on stderr", `exec yes >&2`, "talks of something else"},
		{"it takes others' orders", `echo '{"accepted":"other"}'; exit 0`, "it has ended"},
		{"it does not wait to go", accept + `echo more; exec sleep 1234`, "did not wait"},
		{"it cannot be told to go", `exec <&-; ` + accept + `exec sleep 1234`, "may not have heard"},
		{"it says nothing and ignores to be ended", `trap '' TERM INT HUP; sleep 1234`, "does not answer"},
		{"it was ended in the box", "", "no such process"},
		{"it is not for such a caller", "", "another user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := session(true)
			sb := made(t, e, s)
			if err := sb.WriteFiles(t.Context(), []sandbox.File{{Path: "/tmp/behave", Data: []byte(c.behaves), Owner: sandbox.User}}); err != nil {
				t.Fatal(err)
			}
			var a agent.Adapter = moody{}
			switch c.name {
			case "it was ended in the box":
				if _, err := sandbox.Run(t.Context(), sb, sandbox.Command{Args: []string{"pkill", "-9", "-x", "sh"}}, 1000); err != nil {
					t.Fatal(err)
				}
			case "it is not for such a caller":
				a = asRoot{}
			}
			var log bytes.Buffer
			from := len(u.requests())
			if err := agent.RunTurn(t.Context(), sb, a, s, "do it", slog.New(slog.NewTextHandler(&log, nil)), func(agent.Event) {}); err != nil {
				t.Error(err)
			}
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "decision=cold") || !strings.Contains(got, c.reason) {
				t.Errorf("it was logged %q", got)
			}
			if n := len(u.requests()) - from; n != 1 {
				t.Errorf("the model was asked %d times", n)
			}
			if c.behaves == "" {
				return
			}
			if res, err := sandbox.Run(t.Context(), sb, sandbox.Command{Args: []string{"sh", "-c", "pgrep -a 'sleep|yes' || echo none"}}, 1000); err != nil || string(res.Stdout) != "none\n" {
				t.Errorf("left: %q, %v", res.Stdout, err)
			}
			if err := e.Provider.Kill(t.Context(), sb.ID()); err != nil {
				t.Error(err)
			}
		})
	}
	// What was saved is older by now than PID 1 waits for a host: that must not
	// count, neither above nor for a box that was paused.
	time.Sleep(time.Until(saved.Add(35 * time.Second)))
	call(t, e, "/v2/sandboxes/"+string(paused.ID())+"/connect", http.StatusCreated)
	if res, err := sandbox.Run(t.Context(), paused, sandbox.Command{Args: []string{"echo", "on"}}, 100); err != nil || string(res.Stdout) != "on\n" {
		t.Errorf("the paused box: %q, %v", res.Stdout, err)
	}
}

// call asks the engine's control plane.
func call(tb testing.TB, e *enginetest.Engine, path string, want int) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, e.URL+path, strings.NewReader(`{"timeout":300}`))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("X-Api-Key", enginetest.APIKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
		tb.Fatalf("%s: %s: %s", path, resp.Status, body)
	}
}

// asRoot is an agent that runs as root.
type asRoot struct{ moody }

func (asRoot) Command(s agent.Session, prompt string) sandbox.Command {
	c := theAgent.Command(s, prompt)
	c.User = sandbox.Root
	return c
}

// A warm turn that takes too long ends with everything that it has started, as a
// cold one does, and the session goes on.
func TestAWarmTurnEndsInTime(t *testing.T) {
	u := newUpstream(t, "sleep 1234")
	e := warmEngine(t, u)
	warmed(t, e)
	s := session(true)
	sb := made(t, e, s)
	s.Timeout = 8 * time.Second
	log, err := take(t, sb, s, "first prompt")
	if err == nil || !strings.Contains(err.Error(), "did not end within 8s") || !strings.Contains(log, "decision=warm") {
		t.Errorf("%v, %q", err, log)
	}
	if len(u.requests()) != 1 {
		t.Errorf("the model was asked %d times", len(u.requests()))
	}
	res, err := sandbox.Run(t.Context(), sb, sandbox.Command{Args: []string{"sh", "-c", "pgrep -a 'sleep|node|pi' || echo none"}}, 1000)
	if err != nil || string(res.Stdout) != "none\n" {
		t.Errorf("left: %q, %v", res.Stdout, err)
	}
	s.Warm, s.Timeout, u.commands = false, 2*time.Minute, nil
	if log, err := take(t, sb, s, "second prompt"); err != nil {
		t.Error(err, log)
	}
	if body := string(u.requests()[1]); !strings.Contains(body, "first prompt") || !strings.Contains(body, "second prompt") {
		t.Errorf("the session does not go on: %.2000s", body)
	}
}

// copied prints what a copy of the warm process draws. The first number comes
// from V8 itself, which nobody has seeded anew: by it one sees that two processes
// are copies.
const copied = `const c = require('node:crypto'), vm = require('node:vm');
const refused = (f) => { try { f(); return 'done'; } catch (err) { return err.message.includes('other sandboxes') ? 'refused' : String(err); } };
console.log(JSON.stringify({
  shared: vm.runInNewContext('Math.random()'),
  own: [
    Math.random(), c.randomUUID(), crypto.randomUUID(), c.randomBytes(8).toString('hex'), c.randomInt(2 ** 47),
    String(c.randomFillSync(new Uint8Array(8))), String(c.getRandomValues(new Uint32Array(2))), String(crypto.getRandomValues(new Uint8Array(8))),
    require('node:child_process').execFileSync(process.execPath, ['-p', 'crypto.randomUUID() + Math.random()']).toString(),
    require('node:child_process').execFileSync('sh', ['-c', 'cat /proc/sys/kernel/random/uuid; head -c 8 /dev/urandom | od -An -tx1']).toString(),
  ],
  refused: [
    refused(() => c.generateKeyPairSync('ed25519')), refused(() => c.generateKeySync('aes', { length: 128 })), refused(() => c.createECDH('prime256v1')),
    refused(() => c.sign(null, '', '')), refused(() => require('node:tls').connect(1)), refused(() => require('node:https').get('https://127.0.0.1:1').on('error', () => {})),
    refused(() => crypto.subtle.generateKey({ name: 'AES-GCM', length: 128 }, true, ['encrypt'])),
  ],
  boot: require('node:fs').readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'),
}));`

// Two boxes that were restored from one state differ in all that they draw at
// random, and what could not differ is refused. Only the kernel's boot_id, and
// what V8 gives nobody in pi, are the same.
func TestCopiesDrawTheirOwnNumbers(t *testing.T) {
	u := newUpstream(t)
	warm := theAgent.Warmup()
	e := warmEngine(t, u, func(c *engine.Config) {
		// The same that pi gets, ahead of another program.
		c.Warmup.Args = []string{"/bin/sh", "-c", `mkdir -p /tmp/p/chunks; echo 'import"./chunks/a.js"' >/tmp/p/cli-runtime.js; : >/tmp/p/chunks/a.js; printf %s "$1" >/tmp/p/p.cjs
exec 3<&0 </dev/null; exec node --import "$0" /tmp/p/p.cjs`, warm.Args[len(warm.Args)-1], copied}
	})
	warmed(t, e)
	type draws struct {
		Shared       float64
		Own, Refused []string
		Boot         string
	}
	var all [2]draws
	for i := range all {
		sb, err := e.Provider.Create(t.Context(), sandbox.Spec{Image: e.Image, Timeout: 5 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		p, err := sb.(sandbox.Joiner).Join(t.Context(), warm.Tag)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{`{"token":"x","args":["p"],"env":{},"dir":"/"}`, "go"} {
			if err := p.Send(t.Context(), []byte(line+"\n")); err != nil {
				t.Fatal(err)
			}
			if line != "go" {
				for out := ""; !strings.Contains(out, `{"accepted":"x"}`); {
					o, ok := <-p.Events()
					if out += string(o.Data); !ok {
						t.Fatalf("it ended: %q", out)
					}
				}
			}
		}
		var out string
		for o := range p.Events() {
			out += string(o.Data)
		}
		var raw struct {
			Shared  float64
			Own     []any
			Refused []string
			Boot    string
		}
		if err := json.Unmarshal([]byte(out), &raw); err != nil {
			t.Fatalf("%v in %q", err, out)
		}
		all[i] = draws{Shared: raw.Shared, Refused: raw.Refused, Boot: raw.Boot}
		for _, v := range raw.Own {
			all[i].Own = append(all[i].Own, fmt.Sprint(v))
		}
	}
	if all[0].Shared != all[1].Shared || all[0].Boot != all[1].Boot {
		t.Errorf("these are no copies of one state: %+v", all)
	}
	for i, v := range all[0].Own {
		if v == all[1].Own[i] || v == "" {
			t.Errorf("both drew %q", v)
		}
	}
	for i, v := range slices.Concat(all[0].Refused, all[1].Refused) {
		if v != "refused" {
			t.Errorf("what must be refused, %d: %s", i, v)
		}
	}
	if len(all[0].Own) != 10 || len(all[0].Refused) != 7 {
		t.Errorf("%+v", all)
	}
}
