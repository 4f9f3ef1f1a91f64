package job_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dreamcore"
	"dreamcore/internal/agent"
	blobfs "dreamcore/internal/blob/fs"
	"dreamcore/internal/job"
	"dreamcore/internal/publish"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/sandboxfake"
	"dreamcore/internal/store/sqlite"
	"dreamcore/internal/template"
	"dreamcore/internal/text"
	"dreamcore/internal/tree"
	"dreamcore/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The library and the publisher as a job sees them; the same as in the app.
type library struct{ *template.Library }

func (l library) Match(firstLine string) (job.Template, string, bool) {
	t, reason := l.Library.Match(firstLine)
	return job.Template{Tag: t.Tag, Title: t.Title, Controls: string(t.Controls)}, string(reason), t.Tag != ""
}

func (l library) Files(tag dreamcore.TemplateTag) ([]tree.File, error) {
	var out []tree.File
	for _, f := range l.Library.Files(tag) {
		out = append(out, tree.File{Path: f.Path, Data: f.Data})
	}
	return out, nil
}

var theLibrary = sync.OnceValues(template.Open)

// scripted is a CLI whose every line of output is something that it says.
type scripted struct{}

func (scripted) Name() string { return "scripted" }
func (scripted) Files(agent.Session) ([]sandbox.File, error) {
	return []sandbox.File{{Path: "/home/user/.scripted", Data: []byte("x")}}, nil
}
func (scripted) Command(s agent.Session, prompt string) sandbox.Command {
	return sandbox.Command{Args: []string{"agent", prompt}, Dir: s.Dir, Env: s.Env, Timeout: s.Timeout}
}
func (scripted) NewParser() agent.Parser { return parser{} }

type parser struct{}

func (parser) Line(line []byte) []agent.Event {
	if name, ok := strings.CutPrefix(string(line), "tool "); ok {
		return []agent.Event{{Kind: agent.Tool, Name: name, Text: "x"}}
	}
	return []agent.Event{{Kind: agent.Say, Text: string(line)}}
}
func (parser) Err() error { return nil }

const png = "\x89PNG\r\n\x1a\nnot much of a picture"

// world is one installation: real store, blobs, publisher, templates and
// verifier around boxes in memory.
type world struct {
	t       *testing.T
	store   *sqlite.Store
	blobs   *blobfs.Store
	boxes   *sandboxfake.Provider
	lib     library
	limits  job.Limits
	log     *syncBuffer
	game    dreamcore.Game
	jobID   dreamcore.JobID
	journal *journal
	runner  *job.Runner // of the host that runs now

	// What the scripted parts do; a test changes them before it runs the job.
	agent    func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer
	tool     func(b *sandboxfake.Box, tool string) (sandboxfake.Answer, bool)
	fail     func(op string) error // every operation of every part
	repaired int
	warm     string // job.Image.Warm
}

// journal is what happened to the world outside, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) count(line string) int {
	n := 0
	for _, l := range j.all() {
		if l == line {
			n++
		}
	}
	return n
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newWorld opens everything and submits one job for a new game.
func newWorld(t *testing.T) *world {
	t.Helper()
	lib, err := theLibrary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{t: t, lib: library{lib}, log: &syncBuffer{}, journal: &journal{}, limits: job.DefaultLimits()}
	if w.store, err = sqlite.Open(t.Context(), filepath.Join(dir, "s.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.blobs, err = blobfs.Open(filepath.Join(dir, "blobs")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.blobs.Close(); err != nil {
			t.Error(err)
		}
	})
	w.agent = w.goodAgent
	w.boxes = &sandboxfake.Provider{Script: w.script}
	w.game = dreamcore.Game{ID: dreamcore.NewGameID(), Creator: "ann", Wish: "a cat game", Lang: dreamcore.English}
	w.jobID = w.submit(&w.game, "")
	w.runner = w.host(&host{})
	return w
}

func (w *world) submit(g *dreamcore.Game, base dreamcore.VersionID) dreamcore.JobID {
	w.t.Helper()
	j := dreamcore.Job{ID: dreamcore.NewJobID(), Game: w.game.ID, Creator: "ann", Wish: "a cat game", Lang: dreamcore.English, Base: base, State: dreamcore.Queued}
	if base != "" {
		j.Wish = "make it blue"
	}
	if err := w.store.Submit(w.t.Context(), g, j, dreamcore.Message{Game: w.game.ID, Job: j.ID, Role: "creator", Text: j.Wish}); err != nil {
		w.t.Fatal(err)
	}
	return j.ID
}

// host is one life of the program. Once it is dead, nothing that it does has
// any effect: what a kill -9 looks like from outside.
type host struct {
	mu   sync.Mutex
	dead bool
}

var errKilled = errors.New("the host was killed")

func (h *host) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead = true
}

func (h *host) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return errKilled
	}
	return nil
}

// host returns the Runner of a program that has just started.
func (w *world) host(h *host) *job.Runner {
	log := slog.New(slog.NewTextHandler(w.log, nil))
	boxes := gate{w, h}
	meta := map[string]string{"installation": "here"}
	publisher := &publish.Publisher{Blobs: w.blobs, Versions: w.store, Log: log}
	return job.New(job.Config{
		Store: stores{w.store, boxes}, Publisher: publishers{publisher, boxes}, Sandboxes: boxes, Proxy: proxy{boxes},
		Verifier: verify.New(verify.Config{Sandboxes: boxes, Toolkit: []byte("toolkit"), Metadata: meta, Timeout: 10 * time.Minute, Log: log}),
		Library:  w.lib, Agent: scripted{}, API: agent.Anthropic, Model: "m", ProxyURL: "http://proxy",
		Image:   func() (job.Image, error) { return job.Image{Digest: "sha256:1", AgentVersion: "9", Warm: w.warm}, nil },
		Toolkit: []byte("toolkit"), Metadata: meta, Limits: w.limits, Log: log,
	})
}

func turnOf(prompt string) dreamcore.Turn {
	turn, _, _ := strings.Cut(strings.TrimPrefix(prompt, "[dreamcore turn: "), "]")
	return dreamcore.Turn(turn)
}

// script answers the agent's command and the toolkit's.
func (w *world) script(_ context.Context, b *sandboxfake.Box, cmd sandbox.Command) (sandboxfake.Answer, bool) {
	switch {
	case cmd.Args[0] == "agent":
		turn := turnOf(cmd.Args[1])
		w.journal.note("turn %s", turn)
		return w.agent(b, turn), true
	case strings.HasSuffix(cmd.Args[0], "/toolkit"):
		tool := cmd.Args[1]
		w.journal.note("tool %s", tool)
		if w.tool != nil {
			if a, ok := w.tool(b, tool); ok {
				return a, true
			}
		}
		return report(b, tool, nil), true
	}
	return sandboxfake.Answer{}, false
}

// report is what an honest tool prints.
func report(b *sandboxfake.Box, tool string, findings []dreamcore.Finding) sandboxfake.Answer {
	r := dreamcore.Report{Tool: tool, Version: "v", Findings: findings}
	r.Judge()
	var out any = r
	if tool == "playtest" {
		for _, name := range []string{"poster.png", "idle.png", "touch.png", "recording.png"} {
			b.Put("/workspace/out/"+name, png)
		}
		out = dreamcore.PlayReport{Report: r, Motion: dreamcore.ControlsOK, Poster: "poster.png", Idle: "idle.png", Touch: "touch.png", Recording: "recording.png"}
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	a := sandboxfake.Answer{Stdout: string(data)}
	if r.Verdict == dreamcore.Failed {
		a.Exit.Code = 1
	}
	return a
}

var finding = dreamcore.Finding{Code: "no_goal", Severity: dreamcore.Fail, File: "index.html", Line: 3, Message: "There is no goal.", Fix: "Add one."}

const (
	spec      = "/workspace/project/spec.md"
	indexHTML = "/workspace/project/index.html"
)

// goodAgent chooses no template and writes a small game.
func (w *world) goodAgent(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
	switch turn {
	case dreamcore.Design:
		b.Put(spec, "template: none\ncontrols: jump-x\nA cat jumps.\n")
	case dreamcore.Build:
		b.Put(indexHTML, "<title>Cat</title>")
	case dreamcore.Edit, dreamcore.Repair:
		w.repaired++
		b.Put(indexHTML, fmt.Sprintf("<title>Cat</title>%s %d", turn, w.repaired))
	}
	return sandboxfake.Answer{Stdout: "I am at the " + string(turn) + ".\ntool bash\n"}
}

// plain remembers nothing: a host that is never interrupted.
type plain struct{}

func (plain) Do(_ context.Context, _ string, f func() ([]byte, error)) ([]byte, error) { return f() }

// run runs the job to its end.
func (w *world) run() dreamcore.Job {
	w.t.Helper()
	if err := w.runner.Run(w.t.Context(), plain{}, w.jobID); err != nil {
		w.t.Fatalf("run: %v", err)
	}
	return w.job()
}

func (w *world) job() dreamcore.Job {
	w.t.Helper()
	j, err := w.store.Job(w.t.Context(), w.jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// events are one word each: state, the key of a step, or the kind and text.
func (w *world) events() []string {
	w.t.Helper()
	all, err := w.store.Events(w.t.Context(), w.jobID, 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		switch e.Kind {
		case dreamcore.EventState:
			out = append(out, "= "+e.Text)
		case dreamcore.EventStep:
			out = append(out, e.Key)
		case dreamcore.EventTool:
			out = append(out, "tool "+e.Args["name"])
		case dreamcore.EventSay:
			out = append(out, "say")
		default:
			word, _, _ := strings.Cut(e.Text, ":")
			out = append(out, string(e.Kind)+" "+word)
		}
	}
	return out
}

// ended checks what holds for every job that ended, however it did.
func (w *world) ended(state dreamcore.JobState, key string) dreamcore.Job {
	w.t.Helper()
	j := w.job()
	if j.State != state {
		w.t.Fatalf("the job is %s (%q), want %s; log:\n%s", j.State, j.Error, state, w.log)
	}
	want := ""
	if key != "" {
		want = text.T(dreamcore.English, key)
	}
	if j.Error != want {
		w.t.Errorf("the creator reads %q, want %q", j.Error, want)
	}
	if j.Ended.IsZero() {
		w.t.Error("the job has no end in time")
	}
	for _, b := range w.boxes.Living() {
		w.t.Errorf("the %s sandbox still lives", b.Role())
	}
	var states int
	events := w.events()
	for _, e := range events {
		if strings.HasPrefix(e, "= ") {
			states++
		}
	}
	if states != 1 || events[len(events)-1] != "= "+string(state) {
		w.t.Errorf("the watchers were not told once and last that it is %s: %q", state, events)
	}
	versions, err := w.store.Versions(w.t.Context(), j.Game)
	if err != nil {
		w.t.Fatal(err)
	}
	published := slices.ContainsFunc(versions, func(v dreamcore.Version) bool { return v.Job == j.ID })
	if published != (state == dreamcore.Published) {
		w.t.Errorf("published is %v for a job that is %s", published, state)
	}
	return j
}
