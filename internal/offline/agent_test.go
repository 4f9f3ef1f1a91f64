package offline_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/check"
	"dreamcore/internal/level"
	"dreamcore/internal/offline/picture"
	"dreamcore/internal/template"
	"dreamcore/internal/workspace"
)

// TestMain lets the test binary also be the commands that a box has in its
// PATH: the real checker, level validator and picture maker. The playtest needs
// a browser and is proven with the whole program, in the box.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "check":
		os.Exit(report(check.Run(context.Background(), os.DirFS(os.Args[1]), check.Options{})))
	case "level":
		os.Exit(report(level.Run(context.Background(), os.DirFS(os.Args[1]), level.Options{})))
	case "playtest":
		if os.Getenv("PLAYTEST_CANNOT") != "" {
			fmt.Println("there is no browser")
			os.Exit(2)
		}
		fmt.Println("PASS")
		os.Exit(0)
	case "image":
		os.Exit(imageCommand(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func report(r dreamcore.Report) int {
	for _, f := range r.Findings {
		fmt.Println(f)
	}
	fmt.Println(r.Verdict)
	if r.Verdict == dreamcore.Pass {
		return 0
	}
	return 1
}

func imageCommand(args []string) int {
	// Tests make it fail so many times by a file.
	if tries := os.Getenv("IMAGE_FAILURES"); tries != "" && args[0] == "wait" {
		left, err := os.ReadFile(tries)
		if err == nil && len(left) > 0 {
			if err := os.WriteFile(tries, left[1:], 0o644); err != nil {
				fmt.Println(err)
			}
			fmt.Println("one picture failed")
			return 1
		}
	}
	if args[0] != "order" {
		return 0
	}
	var w, h int
	out := args[3]
	if _, err := fmt.Sscanf(args[5], "%dx%d", &w, &h); err != nil {
		fmt.Println(err)
		return 2
	}
	png, _, err := picture.Make(context.Background(), picture.Request{Prompt: args[1], W: w, H: h, Transparent: true})
	if err == nil {
		err = os.WriteFile(out, png, 0o644)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// box is a folder that stands for a sandbox: commands run for real, with the
// box's fixed paths mapped into it.
type box struct {
	t    *testing.T
	root string
	bin  string
	log  []string // commands and tools, in order
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, root: t.TempDir()}
	b.bin = filepath.Join(b.root, "bin")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "project"} {
		if err := os.Mkdir(filepath.Join(b.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"check", "level", "playtest", "image"} {
		if err := os.Symlink(self, filepath.Join(b.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *box) project() string { return filepath.Join(b.root, "project") }

func (b *box) inside(s string) string {
	return strings.NewReplacer("/workspace/project", b.project(), "/tmp/dreamcore-skeleton", filepath.Join(b.root, "skeleton")).Replace(s)
}

func (b *box) file(name string) string {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.project(), name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

func (b *box) deliver(t template.Template) {
	b.t.Helper()
	for _, f := range t.Files() {
		name := filepath.Join(b.project(), f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *box) judge() []dreamcore.Finding {
	b.t.Helper()
	var fails []dreamcore.Finding
	for _, r := range []dreamcore.Report{
		check.Run(b.t.Context(), os.DirFS(b.project()), check.Options{}),
		level.Run(b.t.Context(), os.DirFS(b.project()), level.Options{}),
	} {
		for _, f := range r.Findings {
			if f.Severity == dreamcore.Fail {
				fails = append(fails, f)
			}
		}
	}
	return fails
}

// run does one tool call as agents do and returns what the model sees of it.
func (b *box) run(tool string, args map[string]any) string {
	text := func(names ...string) string {
		for _, n := range names {
			switch v := args[n].(type) {
			case string:
				return b.inside(v)
			case []any:
				return b.inside(v[len(v)-1].(string))
			}
		}
		return ""
	}
	file := text("path", "file_path")
	b.log = append(b.log, tool+" "+text("command", "cmd")+file)
	switch tool {
	case "read", "Read":
		data, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		if tool == "Read" { // one agent numbers the lines
			var out strings.Builder
			for i, line := range strings.SplitAfter(string(data), "\n") {
				fmt.Fprintf(&out, "%6d\t%s", i+1, line)
			}
			return out.String()
		}
		return string(data)
	case "write", "Write":
		if err := os.WriteFile(file, []byte(b.content(args)), 0o644); err != nil {
			return err.Error()
		}
		return "ok"
	case "edit", "Edit":
		return b.edit(file, args)
	case "bash", "Bash", "shell", "exec_command":
		ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-c", text("command", "cmd"))
		cmd.Env = append(os.Environ(), "PATH="+b.bin+":"+os.Getenv("PATH"), "IMAGE_FAILURES="+filepath.Join(b.root, "image-failures"))
		cmd.Dir = b.root
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = fmt.Appendf(out, "\n%v", err)
		}
		return strings.ReplaceAll(string(out), b.project(), "/workspace/project")
	}
	b.t.Errorf("the model called the tool %q, which was not offered", tool)
	return ""
}

func (b *box) content(args map[string]any) string {
	s, _ := args["content"].(string)
	return s
}

func (b *box) edit(file string, args map[string]any) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	s := string(data)
	edits, _ := args["edits"].([]any)
	if edits == nil {
		edits = []any{map[string]any{"oldText": args["old_string"], "newText": args["new_string"]}}
	}
	for _, e := range edits {
		old := e.(map[string]any)["oldText"].(string)
		if strings.Count(s, old) != 1 {
			b.t.Errorf("an edit's old text stands in %s %d times: %q", file, strings.Count(s, old), old)
		}
		s = strings.Replace(s, old, e.(map[string]any)["newText"].(string), 1)
	}
	if err := os.WriteFile(file, []byte(s), 0o644); err != nil {
		return err.Error()
	}
	return "ok"
}

// agent is a client that keeps a conversation, as the CLIs do.
type agent struct {
	t       *testing.T
	url     string
	dialect dialect
	box     *box
	ids     map[string]bool
	history []any
}

// reply is what a client made of an answer.
type reply struct {
	text, id, tool, args string
}

// dialect is one protocol from the client's side.
type dialect interface {
	path() string
	body(history []any) map[string]any
	user(text string) any
	called(r reply) any
	result(r reply, output string) any
	read(t *testing.T, body io.Reader) reply
}

// say sends a prompt and does what the model asks until it is done; it returns
// the last words.
func (a *agent) say(prompt string) string {
	a.t.Helper()
	a.history = append(a.history, a.dialect.user(prompt))
	for range 60 {
		r := a.ask()
		if r.tool == "" {
			a.history = append(a.history, a.dialect.called(r))
			return r.text
		}
		if a.ids[r.id] {
			a.t.Fatalf("the call id %q came twice in a session", r.id)
		}
		a.ids[r.id] = true
		var args map[string]any
		if err := json.Unmarshal([]byte(r.args), &args); err != nil {
			a.t.Fatalf("arguments of %s: %v\n%s", r.tool, err, r.args)
		}
		out := a.box.run(r.tool, args)
		a.history = append(a.history, a.dialect.called(r), a.dialect.result(r, out))
	}
	a.t.Fatal("the turn does not end")
	return ""
}

func (a *agent) ask() reply {
	a.t.Helper()
	data, err := json.Marshal(a.dialect.body(a.history))
	if err != nil {
		a.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(a.t.Context(), "POST", a.url+a.dialect.path(), bytes.NewReader(data))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		a.t.Fatalf("status %d: %s", res.StatusCode, body)
	}
	return a.dialect.read(a.t, res.Body)
}

// events calls f with the data of every event of a stream, and fails on a
// stream that is not one.
func events(t *testing.T, body io.Reader, f func(name string, data map[string]any)) {
	t.Helper()
	name := ""
	s := bufio.NewScanner(body)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := s.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		} else if d, ok := strings.CutPrefix(line, "data: "); ok && d != "[DONE]" {
			var m map[string]any
			if err := json.Unmarshal([]byte(d), &m); err != nil {
				t.Fatalf("event %s: %v: %s", name, err, d)
			}
			f(name, m)
		} else if line != "" && !ok {
			t.Fatalf("not a line of an event stream: %q", line)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

// job drives a whole new game: design, delivery by the library's own match,
// build.
func (a *agent) job(wish string) (dreamcore.TemplateTag, string) {
	a.t.Helper()
	lang := dreamcore.DetectLang(wish)
	lib := library(a.t)
	a.say(workspace.DesignPrompt(lang, wish, lib.Catalogue(lang)))
	line, _, _ := strings.Cut(a.box.file("spec.md"), "\n")
	tmpl, reason := lib.Match(line)
	if reason != template.Matched {
		a.t.Fatalf("the spec's first line %q is %s", line, reason)
	}
	a.box.deliver(tmpl)
	return tmpl.Tag, a.say(workspace.BuildPrompt(lang, wish, tmpl.Tag, tmpl.Controls))
}

func library(t *testing.T) *template.Library {
	t.Helper()
	l, err := template.Open()
	if err != nil {
		t.Fatal(err)
	}
	return l
}
