package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/sandboxfake"
	"dreamcore/internal/text"
	"dreamcore/internal/tree"
	"dreamcore/internal/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	png     = "\x89PNG\r\n\x1a\nnot much of a picture"
	timeout = 4 * time.Minute
)

// bench is a verifier around boxes in memory.
type bench struct {
	boxes    *sandboxfake.Provider
	verifier *verify.Verifier
	answers  map[string]func(b *sandboxfake.Box) sandboxfake.Answer // by tool; else honest
	argv     [][]string
	log      bytes.Buffer
}

var request = verify.Request{
	Job: "job1", Attempt: 2, Image: "sha256:1", Lang: dreamcore.English, Controls: "tap",
	Project: []tree.File{{Path: "index.html", Data: []byte("<title>x</title>")}, {Path: "js/a.js", Data: []byte("1")}},
}

func newBench() *bench {
	b := &bench{answers: map[string]func(*sandboxfake.Box) sandboxfake.Answer{}}
	b.boxes = &sandboxfake.Provider{Script: func(_ context.Context, box *sandboxfake.Box, cmd sandbox.Command) (sandboxfake.Answer, bool) {
		b.argv = append(b.argv, cmd.Args)
		if f := b.answers[cmd.Args[1]]; f != nil {
			return f(box), true
		}
		return honest(box, cmd.Args[1]), true
	}}
	b.verifier = verify.New(verify.Config{
		Sandboxes: b.boxes, Toolkit: []byte("toolkit"), Metadata: map[string]string{"installation": "here"}, Timeout: timeout,
		Log: slog.New(slog.NewTextHandler(&b.log, nil)),
	})
	return b
}

var pictures = []string{"poster.png", "idle.png", "touch.png", "recording.png"}

func honest(b *sandboxfake.Box, tool string) sandboxfake.Answer {
	r := dreamcore.Report{Tool: tool, Version: "v1", Verdict: dreamcore.Pass}
	if tool != "playtest" {
		return prints(r)
	}
	for _, name := range pictures {
		b.Put("/workspace/out/"+name, png+name)
	}
	return prints(dreamcore.PlayReport{Report: r, Motion: dreamcore.ControlsOK, Poster: pictures[0], Idle: pictures[1], Touch: pictures[2], Recording: pictures[3]})
}

func prints(report any) sandboxfake.Answer {
	data, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	return sandboxfake.Answer{Stdout: string(data) + "\n"}
}

func says(out string, code int) func(*sandboxfake.Box) sandboxfake.Answer {
	return func(*sandboxfake.Box) sandboxfake.Answer {
		return sandboxfake.Answer{Stdout: out, Stderr: "why", Exit: sandbox.Exit{Code: code}}
	}
}

// try runs f in a bubble, where a tool that hangs costs no time, and checks that
// the verifier is gone afterwards, however it went.
func try(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench()
		f(t, b)
		if n := len(b.boxes.Living()); n != 0 {
			t.Errorf("%d verifiers still live", n)
		}
	})
}

func (b *bench) run(t *testing.T) dreamcore.Evidence {
	t.Helper()
	ev, err := b.verifier.Run(t.Context(), request)
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return ev
}

func gaveUp(tool string) dreamcore.Finding {
	return dreamcore.Finding{
		Code: tool + "_gave_up", Severity: dreamcore.Fail,
		Message: text.T(dreamcore.English, "verify.gave_up", "tool", tool), Fix: text.T(dreamcore.English, "verify.gave_up_fix"),
	}
}

func TestAGameThatPasses(t *testing.T) {
	try(t, func(t *testing.T, b *bench) {
		ev := b.run(t)
		if ev.Verdict() != dreamcore.Pass || ev.ToolVersion != "v1" || ev.Play.Motion != dreamcore.ControlsOK {
			t.Errorf("evidence: %+v", ev)
		}
		for _, name := range pictures {
			if string(ev.Pictures[name]) != png+name {
				t.Errorf("%s is %q", name, ev.Pictures[name])
			}
		}
		booted := b.boxes.Booted()
		if len(booted) != 1 {
			t.Fatalf("%d sandboxes", len(booted))
		}
		box := booted[0]
		if box.Spec.Egress || box.Spec.Image != "sha256:1" || box.Spec.Timeout <= timeout {
			t.Errorf("the verifier was booted as %+v", box.Spec)
		}
		if diff := cmp.Diff(map[string]string{"job": "job1", "attempt": "2", "role": "verifier", "installation": "here"}, box.Spec.Metadata); diff != "" {
			t.Errorf("metadata: %s", diff)
		}
		if box.Text("/workspace/project/js/a.js") != "1" || box.Text("/workspace/tools/toolkit") != "toolkit" {
			t.Errorf("the verifier holds %q", box.Files())
		}
		if diff := cmp.Diff([][]string{
			{"/workspace/tools/toolkit", "check", "--json", "--lang", "en", "/workspace/project"},
			{"/workspace/tools/toolkit", "level", "--json", "--lang", "en", "/workspace/project"},
			{"/workspace/tools/toolkit", "playtest", "--json", "--lang", "en", "--controls", "tap", "--out", "/workspace/out", "/workspace/project"},
		}, b.argv); diff != "" {
			t.Errorf("commands: %s", diff)
		}
	})
}

func TestTheTemplateIsCompared(t *testing.T) {
	try(t, func(t *testing.T, b *bench) {
		req := request
		req.Template = []tree.File{{Path: "index.html", Data: []byte("original")}}
		if _, err := b.verifier.Run(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if got := b.boxes.Booted()[0].Text("/workspace/template/index.html"); got != "original" {
			t.Errorf("the original is %q", got)
		}
		for _, argv := range b.argv {
			if i := slices.Index(argv, "--template"); i < 0 || argv[i+1] != "/workspace/template" {
				t.Errorf("%q does not compare", argv)
			}
		}
	})
}

// TestS10ReportsThatAreNone: whatever is not exactly one report of the tool that
// was asked is a FAIL, in each of the three places.
func TestS10ReportsThatAreNone(t *testing.T) {
	good := func(tool string) string {
		return `{"tool":"` + tool + `","version":"v","verdict":"PASS","findings":[]}`
	}
	for name, f := range map[string]func(tool string) (out string, code int){
		"nothing":                     func(string) (string, int) { return "", 0 },
		"null":                        func(string) (string, int) { return "null", 0 },
		"an empty object":             func(string) (string, int) { return "{}", 0 },
		"a list":                      func(string) (string, int) { return "[]", 0 },
		"prose":                       func(string) (string, int) { return "PASS", 0 },
		"half of one":                 func(tool string) (string, int) { return good(tool)[:40], 0 },
		"an unknown field":            func(tool string) (string, int) { return strings.Replace(good(tool), "{", `{"trust":"me",`, 1), 0 },
		"a wrong type":                func(tool string) (string, int) { return strings.Replace(good(tool), "[]", `"none"`, 1), 0 },
		"findings of an unknown kind": func(tool string) (string, int) { return strings.Replace(good(tool), "[]", `[{"x":1}]`, 1), 0 },
		"another tool's":              func(string) (string, int) { return good("image"), 0 },
		"two of them":                 func(tool string) (string, int) { return good(tool) + good(tool), 0 },
		"something behind it":         func(tool string) (string, int) { return good(tool) + "\nPASS", 0 },
		"FAIL without a finding":      func(tool string) (string, int) { return good(tool), 1 },
		"PASS, but exit code 2":       func(tool string) (string, int) { return good(tool), 2 },
		"PASS, but exit code 137":     func(tool string) (string, int) { return good(tool), 137 },
		"more than anyone reads":      func(tool string) (string, int) { return good(tool) + strings.Repeat(" ", 5<<20), 0 },
		"deep nesting":                func(string) (string, int) { return strings.Repeat("[", 1<<20), 0 },
	} {
		for _, tool := range []string{"check", "level", "playtest"} {
			t.Run(name+" as "+tool, func(t *testing.T) {
				try(t, func(t *testing.T, b *bench) {
					out, code := f(tool)
					b.answers[tool] = says(out, code)
					ev := b.run(t)
					if ev.Verdict() != dreamcore.Failed {
						t.Error("the game passed")
					}
					if diff := cmp.Diff([]dreamcore.Finding{gaveUp(tool)}, ev.Findings()); diff != "" {
						t.Errorf("findings: %s", diff)
					}
					if !strings.Contains(b.log.String(), "a judgement gave no report") {
						t.Errorf("it is not in the log: %s", b.log.String())
					}
				})
			})
		}
	}
}

func TestS10TheFindingsDecide(t *testing.T) {
	fail := dreamcore.Finding{Code: "f", Severity: dreamcore.Fail, Message: "m"}
	warn := dreamcore.Finding{Code: "w", Severity: dreamcore.Warn, Message: "m"}
	for name, c := range map[string]struct {
		verdict  dreamcore.Verdict
		findings []dreamcore.Finding
		code     int
		want     dreamcore.Verdict
	}{
		"PASS and exit 0 with a FAIL":     {dreamcore.Pass, []dreamcore.Finding{warn, fail}, 0, dreamcore.Failed},
		"no verdict with a FAIL":          {"", []dreamcore.Finding{fail}, 1, dreamcore.Failed},
		"PASS with WARNs":                 {dreamcore.Pass, []dreamcore.Finding{warn, warn}, 0, dreamcore.Pass},
		"a severity that nobody knows":    {dreamcore.Pass, []dreamcore.Finding{{Code: "x", Severity: "fail"}}, 0, dreamcore.Failed},
		"no severity":                     {dreamcore.Pass, []dreamcore.Finding{{Code: "x"}}, 0, dreamcore.Failed},
		"a FAIL behind very many WARNs":   {dreamcore.Failed, append(slices.Repeat([]dreamcore.Finding{warn}, 5000), fail), 1, dreamcore.Failed},
		"the same, and it claims to pass": {dreamcore.Pass, append(slices.Repeat([]dreamcore.Finding{warn}, 5000), fail), 0, dreamcore.Failed},
	} {
		for _, tool := range []string{"check", "level", "playtest"} {
			t.Run(name+" in "+tool, func(t *testing.T) {
				try(t, func(t *testing.T, b *bench) {
					r := dreamcore.Report{Tool: tool, Verdict: c.verdict, Findings: c.findings}
					b.answers[tool] = func(*sandboxfake.Box) sandboxfake.Answer {
						a := prints(r)
						if tool == "playtest" {
							a = prints(dreamcore.PlayReport{Report: r})
						}
						a.Exit.Code = c.code
						return a
					}
					ev := b.run(t)
					if ev.Verdict() != c.want {
						t.Errorf("verdict %s, want %s", ev.Verdict(), c.want)
					}
					fs := ev.Findings()
					if len(fs) > 200 {
						t.Errorf("%d findings came across", len(fs))
					}
					if c.want == dreamcore.Failed && fs[0].Severity != dreamcore.Fail {
						t.Errorf("what fails the game is not first: %+v", fs[0])
					}
				})
			})
		}
	}
}

func TestWhatComesAcrossIsBounded(t *testing.T) {
	try(t, func(t *testing.T, b *bench) {
		long := strings.Repeat("あ", 20000)
		b.answers["playtest"] = func(*sandboxfake.Box) sandboxfake.Answer {
			a := prints(dreamcore.PlayReport{
				Report: dreamcore.Report{Tool: "playtest", Version: long, Findings: []dreamcore.Finding{
					{Code: long, Severity: dreamcore.Fail, File: long, Message: long, Fix: long}}},
				Motion: dreamcore.Motion(long), Controls: "pointer",
				Moved:  slices.Repeat([]dreamcore.Moved{{Arm: long, Entity: long}}, 10),
				Errors: slices.Repeat([]string{long}, 25),
			})
			a.Exit.Code = 1
			return a
		}
		ev := b.run(t)
		if ev.Findings()[0].Code == "playtest_gave_up" {
			t.Fatal("the report was too long to be read: the test tries nothing")
		}
		data, err := json.Marshal(ev)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 40<<10 {
			t.Errorf("%d bytes came across", len(data))
		}
		if strings.Contains(string(data), "\ufffd") {
			t.Error("a letter was cut in two")
		}
	})
}

// TestToolsThatDoNotEnd: a game that hangs the tools or kills the verifier has
// failed; it is no fault of ours, and the other judgements still count.
func TestToolsThatDoNotEnd(t *testing.T) {
	hang := func(*sandboxfake.Box) sandboxfake.Answer { return sandboxfake.Answer{Stdout: "{", Hang: true} }
	die := func(b *sandboxfake.Box) sandboxfake.Answer { b.Die(); return sandboxfake.Answer{} }
	dieLater := func(b *sandboxfake.Box) sandboxfake.Answer {
		time.AfterFunc(time.Second, b.Die)
		return sandboxfake.Answer{Hang: true}
	}
	killed := func(*sandboxfake.Box) sandboxfake.Answer {
		return sandboxfake.Answer{Exit: sandbox.Exit{Code: -1, Signal: "SIGKILL", OutOfMemory: true}}
	}
	for name, c := range map[string]struct {
		answers map[string]func(*sandboxfake.Box) sandboxfake.Answer
		want    []string
	}{
		"the checker hangs":        {map[string]func(*sandboxfake.Box) sandboxfake.Answer{"check": hang}, []string{"check"}},
		"the playtest hangs":       {map[string]func(*sandboxfake.Box) sandboxfake.Answer{"playtest": hang}, []string{"playtest"}},
		"two hang":                 {map[string]func(*sandboxfake.Box) sandboxfake.Answer{"check": hang, "playtest": hang}, []string{"check", "playtest"}},
		"all hang":                 {map[string]func(*sandboxfake.Box) sandboxfake.Answer{"check": hang, "level": hang, "playtest": hang}, []string{"check", "level", "playtest"}},
		"out of memory":            {map[string]func(*sandboxfake.Box) sandboxfake.Answer{"playtest": killed}, []string{"playtest"}},
		"the box dies at once":     {map[string]func(*sandboxfake.Box) sandboxfake.Answer{"check": die}, []string{"check", "level", "playtest"}},
		"the box dies at the end":  {map[string]func(*sandboxfake.Box) sandboxfake.Answer{"playtest": die}, []string{"playtest"}},
		"the box dies in the game": {map[string]func(*sandboxfake.Box) sandboxfake.Answer{"playtest": dieLater}, []string{"playtest"}},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, func(t *testing.T, b *bench) {
				b.answers = c.answers
				ev := b.run(t)
				var want []dreamcore.Finding
				for _, tool := range c.want {
					want = append(want, gaveUp(tool))
				}
				if diff := cmp.Diff(want, ev.Findings()); diff != "" {
					t.Errorf("findings: %s", diff)
				}
				if ev.Verdict() != dreamcore.Failed {
					t.Error("the game passed")
				}
			})
		})
	}
}

func TestPictures(t *testing.T) {
	for name, c := range map[string]struct {
		named string // what the report calls the poster
		put   func(b *sandboxfake.Box)
		want  string // the poster of the evidence
	}{
		"none":                  {"", nil, ""},
		"missing":               {"gone.png", nil, ""},
		"with a path":           {"/workspace/out/a.png", func(b *sandboxfake.Box) { b.Put("/workspace/out/a.png", png) }, "a.png"},
		"a way out":             {"../../etc/passwd", func(b *sandboxfake.Box) { b.Put("/etc/passwd", png) }, ""},
		"the folder":            {"..", nil, ""},
		"a script":              {"a.png", func(b *sandboxfake.Box) { b.Put("/workspace/out/a.png", "<script>") }, ""},
		"huge":                  {"a.png", func(b *sandboxfake.Box) { b.Put("/workspace/out/a.png", png+strings.Repeat("x", 9<<20)) }, ""},
		"a name that is a book": {strings.Repeat("a", 300), func(b *sandboxfake.Box) { b.Put("/workspace/out/"+strings.Repeat("a", 300), png) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, func(t *testing.T, b *bench) {
				b.answers["playtest"] = func(box *sandboxfake.Box) sandboxfake.Answer {
					if c.put != nil {
						c.put(box)
					}
					box.Put("/workspace/out/idle.png", png)
					return prints(dreamcore.PlayReport{Report: dreamcore.Report{Tool: "playtest"}, Poster: c.named, Idle: "idle.png"})
				}
				ev := b.run(t)
				if ev.Verdict() != dreamcore.Pass {
					t.Errorf("a game fails for a picture: %+v", ev.Findings())
				}
				if ev.Play.Poster != c.want || (string(ev.Pictures[c.want]) == png) != (c.want != "") {
					t.Errorf("the poster is %q, want %q", ev.Play.Poster, c.want)
				}
				if string(ev.Pictures["idle.png"]) != png {
					t.Error("the other picture is gone")
				}
			})
		})
	}
}

// TestWhatIsNobodysFault: an error, and the verifier is gone all the same.
func TestWhatIsNobodysFault(t *testing.T) {
	broken := errors.New("broken")
	for _, op := range []string{"create", "write", "start"} {
		t.Run(op, func(t *testing.T) {
			try(t, func(t *testing.T, b *bench) {
				b.boxes.Before = func(_ context.Context, o string, _ *sandboxfake.Box) error {
					if o == op {
						return broken
					}
					return nil
				}
				if _, err := b.verifier.Run(t.Context(), request); !errors.Is(err, broken) {
					t.Errorf("run: %v", err)
				}
			})
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		for _, tool := range []string{"check", "level", "playtest"} {
			try(t, func(t *testing.T, b *bench) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				b.answers[tool] = func(*sandboxfake.Box) sandboxfake.Answer {
					time.AfterFunc(time.Second, cancel)
					return sandboxfake.Answer{Hang: true}
				}
				if _, err := b.verifier.Run(ctx, request); !errors.Is(err, context.Canceled) {
					t.Errorf("run: %v", err)
				}
			})
		}
	})
	t.Run("the job's own deadline", func(t *testing.T) {
		try(t, func(t *testing.T, b *bench) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			b.answers["check"] = func(*sandboxfake.Box) sandboxfake.Answer { return sandboxfake.Answer{Hang: true} }
			if _, err := b.verifier.Run(ctx, request); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("run: %v", err)
			}
		})
	})
	t.Run("a kill that fails is said", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBench()
			b.boxes.Before = func(_ context.Context, o string, _ *sandboxfake.Box) error {
				if o == "kill" {
					return broken
				}
				return nil
			}
			if ev := b.run(t); ev.Verdict() != dreamcore.Pass {
				t.Error("the game does not pass")
			}
			if !strings.Contains(b.log.String(), "the verifier could not be destroyed") {
				t.Errorf("log: %s", b.log.String())
			}
		})
	})
}

// FuzzReport: no output of a tool panics the host, brings much across, or
// passes without being a whole report of that tool.
func FuzzReport(f *testing.F) {
	for _, s := range []string{
		`{"tool":"playtest","version":"v","verdict":"PASS","findings":[],"motion":"MOVES","moved":[{"arm":"right"}],"errors":["x"]}`,
		`null`, `{}`, `[]`, `{"tool":"playtest","findings":[{"severity":"FAIL"}]}`, `{"tool":"playtest"}x`, "",
	} {
		f.Add(s, 0)
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, out string, code int) {
		b := newBench()
		b.answers["playtest"] = says(out, code)
		ev, err := b.verifier.Run(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Verdict() == dreamcore.Pass && (code != 0 || !json.Valid([]byte(out)) || ev.Play.Tool != "playtest") {
			t.Errorf("exit code %d with %q passed", code, out)
		}
		if n := len(fmt.Sprint(ev.Play)); n > 1<<20 {
			t.Errorf("%d bytes came across", n)
		}
	})
}
