package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/sandboxfake"
)

// try runs f with a world in a bubble, where time passes only when nothing else
// can happen: deadlines of an hour cost nothing.
func try(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func TestAWishBecomesAVersion(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		tag := w.lib.Tags()[0]
		want, _ := w.lib.Get(tag)
		w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
			a := w.goodAgent(b, turn)
			if turn == dreamcore.Design {
				b.Put(spec, "template: "+string(tag)+"\nA cat.\n")
			}
			return a
		}
		w.run()
		j := w.ended(dreamcore.Published, "")
		if diff := cmp.Diff([]string{
			"job.booting", "job.turn_design", "say", "tool bash", "job.delivered", "job.turn_build", "say", "tool bash",
			"job.verifying", "job.destroying", "job.publishing", "= published",
		}, w.events()); diff != "" {
			t.Errorf("events: %s", diff)
		}
		// The grant dies before the box, and the box before anything is public.
		if diff := cmp.Diff([]string{
			"boot agent", "open", "turn design", "turn build",
			"boot verifier", "tool check", "tool level", "tool playtest", "kill verifier",
			"close 1", "kill agent", "publish",
		}, w.journal.all()); diff != "" {
			t.Errorf("order: %s", diff)
		}
		v, err := w.store.Version(t.Context(), j.Version)
		if err != nil {
			t.Fatal(err)
		}
		ev := v.Evidence
		if ev.Template != tag || ev.Play.Controls != string(want.Controls) || ev.ImageDigest != "sha256:1" || ev.AgentName != "scripted" ||
			ev.AgentVersion != "9" || ev.Model != "m" || ev.ToolVersion != "v" || ev.Usage.Requests != 7 || ev.Repairs != 0 || len(ev.PictureHashes) != 4 {
			t.Errorf("evidence: %+v", ev)
		}
		var paths []string
		for _, f := range v.Files {
			paths = append(paths, f.Path)
		}
		for _, f := range want.Files() {
			if !slices.Contains(paths, f.Path) {
				t.Errorf("%s was delivered and is not in the version", f.Path)
			}
		}
		g, err := w.store.Game(t.Context(), w.game.ID)
		if err != nil {
			t.Fatal(err)
		}
		if g.Current != v.ID || g.Title != "Cat" {
			t.Errorf("the game is at %q with title %q", g.Current, g.Title)
		}
		if n := strings.Count(w.log.String(), "msg=delivery"); n != 1 {
			t.Errorf("%d lines of log about the delivery, want 1", n)
		}
	})
}

func TestAnEditStartsFromTheCurrentVersion(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		w.run()
		first := w.ended(dreamcore.Published, "")
		before := len(w.journal.all())
		w.jobID = w.submit(nil, first.Version)
		var prompt, found string
		w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
			prompt, found = b.Text("/workspace/prompt/edit.md"), b.Text(indexHTML)
			return w.goodAgent(b, turn)
		}
		w.run()
		j := w.ended(dreamcore.Published, "")
		if want := "<title>Cat</title>"; found != want {
			t.Errorf("the agent found %q, want %q", found, want)
		}
		if !strings.Contains(prompt, "creator: a cat game") || strings.Contains(prompt, "creator: make it blue") {
			t.Errorf("the chat in the prompt is not what was said before: %s", prompt)
		}
		if turns := strings.Join(w.journal.all()[before:], ","); strings.Contains(turns, "design") || strings.Contains(turns, "build") {
			t.Errorf("an edit is one turn: %s", turns)
		}
		v, err := w.store.Version(t.Context(), j.Version)
		if err != nil {
			t.Fatal(err)
		}
		if v.Number != 2 || v.Evidence.Play.Controls != "jump-x" {
			t.Errorf("version %d under %q, want 2 under the gate of the first, jump-x", v.Number, v.Evidence.Play.Controls)
		}
	})
}

func TestDelivery(t *testing.T) {
	for name, c := range map[string]struct{ spec, reason, controls string }{
		"unknown tag":          {"template: 2d/no-such-game\ncontrols: tap\n", "unknown", "tap"},
		"nearly a tag":         {"Template: 2d/snake\ncontrols: board\r\n", "malformed", "board"},
		"none, no controls":    {"template: none\n", "malformed", "pointer"},
		"controls of his own":  {"template: none\ncontrols: telepathy\n", "malformed", "pointer"},
		"an empty spec":        {"", "malformed", "pointer"},
		"a tag with a path":    {"template: 2d/../../etc\ncontrols: tap", "malformed", "tap"},
		"the tag on line two":  {"hello\ntemplate: 2d/x\n", "malformed", "pointer"},
		"controls on line two": {"x\ncontrols: steer-3d\ny", "malformed", "steer-3d"},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, func(t *testing.T, w *world) {
				var files []string
				w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
					switch turn {
					case dreamcore.Build:
						for _, f := range b.Files() {
							if strings.HasPrefix(f, "/workspace/project/") {
								files = append(files, f)
							}
						}
						b.Put(indexHTML, "x")
					default:
						b.Put(spec, c.spec)
					}
					return sandboxfake.Answer{}
				}
				w.run()
				j := w.ended(dreamcore.Published, "")
				if !slices.Equal(files, []string{spec}) {
					t.Errorf("something was delivered: %q", files)
				}
				var lines []string
				for line := range strings.Lines(w.log.String()) {
					if strings.Contains(line, "msg=delivery") {
						lines = append(lines, line)
					}
				}
				if len(lines) != 1 || !strings.Contains(lines[0], "decision=nothing reason="+c.reason) || !strings.Contains(lines[0], "controls="+c.controls) {
					t.Errorf("log lines about the delivery: %q", lines)
				}
				v, err := w.store.Version(t.Context(), j.Version)
				if err != nil {
					t.Fatal(err)
				}
				if v.Evidence.Play.Controls != c.controls || v.Evidence.Template != "" {
					t.Errorf("the gate is %q, want %q", v.Evidence.Play.Controls, c.controls)
				}
			})
		})
	}
}

func TestAgentsThatFail(t *testing.T) {
	crash := sandboxfake.Answer{Stderr: "out of tokens", Exit: sandbox.Exit{Code: 1}}
	hang := sandboxfake.Answer{Stdout: "thinking\n", Hang: true}
	for name, c := range map[string]struct {
		agent func(w *world, b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer
		state dreamcore.JobState
		key   string
	}{
		"a design without a spec": {func(*world, *sandboxfake.Box, dreamcore.Turn) sandboxfake.Answer { return sandboxfake.Answer{} },
			dreamcore.FailedJob, "job.agent_failed"},
		"a design that crashes": {func(*world, *sandboxfake.Box, dreamcore.Turn) sandboxfake.Answer { return crash },
			dreamcore.FailedJob, "job.agent_failed"},
		"a design that hangs": {func(*world, *sandboxfake.Box, dreamcore.Turn) sandboxfake.Answer { return hang },
			dreamcore.FailedJob, "job.agent_failed"},
		"a spec and then a crash": {func(w *world, b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
			a := w.goodAgent(b, turn)
			if turn == dreamcore.Design {
				return crash
			}
			return a
		}, dreamcore.Published, ""},
		"a build that crashes when all is done": {func(w *world, b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
			w.goodAgent(b, turn)
			if turn == dreamcore.Build {
				return crash
			}
			return sandboxfake.Answer{}
		}, dreamcore.Published, ""},
		"a build that never ends": {func(w *world, b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
			w.goodAgent(b, turn)
			if turn == dreamcore.Build {
				return hang
			}
			return sandboxfake.Answer{}
		}, dreamcore.Published, ""},
		"a spec beyond the limit": {func(_ *world, b *sandboxfake.Box, _ dreamcore.Turn) sandboxfake.Answer {
			b.Put(spec, strings.Repeat("x", 1<<20))
			return sandboxfake.Answer{}
		}, dreamcore.FailedJob, "job.agent_failed"},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, func(t *testing.T, w *world) {
				w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer { return c.agent(w, b, turn) }
				w.run()
				j := w.ended(c.state, c.key)
				if c.state == dreamcore.FailedJob && j.Usage.Requests != 7 {
					t.Errorf("a failed job has used nothing: %+v", j.Usage)
				}
				if j.Attempt != 1 {
					t.Errorf("attempt %d: what the agent does wrong starts nothing afresh", j.Attempt)
				}
			})
		})
	}
}

func TestRepair(t *testing.T) {
	for _, fails := range []int{0, 1, 2, 3} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			try(t, func(t *testing.T, w *world) {
				checks := 0
				var prompts []string
				w.tool = func(b *sandboxfake.Box, tool string) (sandboxfake.Answer, bool) {
					if tool != "check" {
						return sandboxfake.Answer{}, false
					}
					if checks++; checks <= fails {
						return report(b, tool, []dreamcore.Finding{finding}), true
					}
					return sandboxfake.Answer{}, false
				}
				w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
					if turn == dreamcore.Repair {
						prompts = append(prompts, b.Text("/workspace/prompt/repair.md"))
					}
					return w.goodAgent(b, turn)
				}
				w.run()
				repairs := min(fails, w.limits.Repairs)
				if got := w.journal.count("turn repair"); got != repairs {
					t.Errorf("%d repair turns, want %d", got, repairs)
				}
				for _, p := range prompts {
					if !strings.Contains(p, finding.Message) {
						t.Errorf("the agent is not told what is wrong: %s", p)
					}
				}
				if got, want := w.journal.count("kill verifier"), min(fails, 2)+1; got != want {
					t.Errorf("%d verifiers were killed, want %d", got, want)
				}
				if fails > w.limits.Repairs {
					j := w.ended(dreamcore.FailedJob, "job.refused")
					if diff := cmp.Diff([]dreamcore.Finding{finding}, j.Findings); diff != "" {
						t.Errorf("findings: %s", diff)
					}
					if w.journal.count("publish") != 0 {
						t.Error("something was published")
					}
					return
				}
				j := w.ended(dreamcore.Published, "")
				v, err := w.store.Version(t.Context(), j.Version)
				if err != nil {
					t.Fatal(err)
				}
				if v.Evidence.Repairs != fails || len(j.Findings) != 0 {
					t.Errorf("%d repairs and %d findings are on record, want %d and 0", v.Evidence.Repairs, len(j.Findings), fails)
				}
			})
		})
	}
}

func TestARefusedTreeIsTheGamesFault(t *testing.T) {
	for name, c := range map[string]struct {
		spoil, undo func(b *sandboxfake.Box)
		code        string
	}{
		"a link": {func(b *sandboxfake.Box) { b.Link("/workspace/project/x", "/etc/passwd") },
			func(b *sandboxfake.Box) { b.Remove("/workspace/project/x") }, "tree_link"},
		"a hidden file": {func(b *sandboxfake.Box) { b.Put("/workspace/project/.env", "x") },
			func(b *sandboxfake.Box) { b.Remove("/workspace/project/.env") }, "tree_hidden"},
		"a private key": {func(b *sandboxfake.Box) { b.Put("/workspace/project/a.txt", "-----BEGIN RSA PRIVATE KEY-----") },
			func(b *sandboxfake.Box) { b.Remove("/workspace/project/a.txt") }, "secret_private_key"},
	} {
		for _, repaired := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", repaired ", repaired), func(t *testing.T) {
				try(t, func(t *testing.T, w *world) {
					w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
						switch turn {
						case dreamcore.Build:
							c.spoil(b)
						case dreamcore.Repair:
							if repaired {
								c.undo(b)
							}
						}
						return w.goodAgent(b, turn)
					}
					w.run()
					if repaired {
						w.ended(dreamcore.Published, "")
						return
					}
					j := w.ended(dreamcore.FailedJob, "job.refused")
					if len(j.Findings) == 0 || j.Findings[0].Code != c.code {
						t.Errorf("findings: %+v, want %s", j.Findings, c.code)
					}
				})
			})
		}
	}
}
