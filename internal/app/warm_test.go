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
