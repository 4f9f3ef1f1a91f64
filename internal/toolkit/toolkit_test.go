package toolkit

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/text"
)

const page = `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Cat Day</title></head><body><canvas id="c" width="64" height="64"></canvas><script>
const c = document.getElementById("c"), x = c.getContext("2d"), h = { x: 9, y: 9 };
c.addEventListener("pointerdown", (e) => { h.x = e.offsetX; });
addEventListener("keydown", (e) => { e.preventDefault(); if (e.code === "ArrowRight") h.x += 5; if (e.code === "ArrowLeft") h.x -= 5; });
function draw(now) { x.clearRect(0, 0, 64, 64); x.fillStyle = now > 0 ? "red" : "blue"; x.fillRect(h.x, h.y, 9, 9); requestAnimationFrame(draw); }
requestAnimationFrame(draw);
</script></body></html>`

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run calls Main with a runs file of its own and returns what came out.
func run(t *testing.T, argv ...string) (code int, out, errs string, runs []dreamcore.ToolRun) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log.jsonl")
	var stdout, stderr bytes.Buffer
	code = Main(context.Background(), argv, Env{Stdout: &stdout, Stderr: &stderr, Getenv: func(name string) string {
		if name == "DREAMCORE_RUNS" {
			return log
		}
		return ""
	}})
	data, err := os.ReadFile(log)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if line == "" {
			continue
		}
		var r dreamcore.ToolRun
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	return code, stdout.String(), stderr.String(), runs
}

func TestVerdictsAndExitCodes(t *testing.T) {
	sound := folder(t, map[string]string{"index.html": page})
	broken := folder(t, map[string]string{"index.html": strings.Replace(page, "now > 0", "undefinedThing()", 1)})

	code, out, _, runs := run(t, "toolkit", "check", sound)
	if code != ExitPass || !strings.Contains(out, "PASS") || strings.Contains(out, "FAIL") {
		t.Errorf("sound game: exit %d, %s", code, out)
	}
	if len(runs) != 1 || runs[0].Tool != "check" || runs[0].Exit != 0 || runs[0].Version != Version() || len(runs[0].Args) != 1 {
		t.Errorf("the run was recorded as %+v", runs)
	}
	code, out, _, runs = run(t, "/workspace/tools/check", broken)
	if code != ExitFail || !strings.Contains(out, "FAIL helper_call_unresolved:") ||
		!strings.HasSuffix(out, "FAILED: 1 - fix the FAILs above, then re-run this check until it PASSes.\n") {
		t.Errorf("broken game: exit %d, %s", code, out)
	}
	if len(runs) != 1 || runs[0].Exit != 1 {
		t.Errorf("the run was recorded as %+v", runs)
	}
	if code, out, _, _ = run(t, "toolkit", "level", sound); code != ExitPass || out != "PASS\n" {
		t.Errorf("no levels: exit %d, %s", code, out)
	}
	if code, _, errs, _ := run(t, "toolkit", "check", filepath.Join(sound, "nowhere")); code != ExitBroken || errs == "" {
		t.Errorf("no folder: exit %d, %s", code, errs)
	}
	if code, _, errs, _ := run(t, "toolkit", "check", "--nonsense", sound); code != ExitBroken || !strings.Contains(errs, "--nonsense") {
		t.Errorf("unknown option: exit %d, %s", code, errs)
	}
	if code, _, errs, runs := run(t, "toolkit", "bake"); code != ExitBroken || errs == "" || len(runs) != 0 {
		t.Errorf("unknown tool: exit %d, %s", code, errs)
	}
	if code, out, _, _ := run(t, "toolkit", "version"); code != ExitPass || strings.TrimSpace(out) != Version() {
		t.Errorf("version: exit %d, %s", code, out)
	}
}

func TestJSONAndLanguage(t *testing.T) {
	broken := folder(t, map[string]string{"index.html": strings.Replace(page, "now > 0", "undefinedThing()", 1)})
	code, out, _, _ := run(t, "toolkit", "check", broken, "--json", "--lang", "ja")
	var report dreamcore.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if code != ExitFail || report.Verdict != dreamcore.Failed || report.Tool != "check" || report.Version != Version() {
		t.Errorf("exit %d, %+v", code, report)
	}
	want := text.T(dreamcore.Japanese, "check.helper_call_unresolved_fix", "name", "undefinedThing")
	for _, f := range report.Findings {
		if f.Code == "helper_call_unresolved" && f.Fix == want {
			return
		}
	}
	t.Errorf("no Japanese fix in %s", out)
}

// The scheme that the host asks for wins over the game's own word.
func TestControls(t *testing.T) {
	dir := folder(t, map[string]string{"template.json": `{"controls": "tap"}`, "spec.md": "template: none\ncontrols: board\n"})
	for _, c := range []struct {
		r    request
		want string
	}{
		{request{dir: dir, controls: "move-2d"}, "move-2d"},
		{request{dir: dir}, "tap"},
		{request{dir: folder(t, map[string]string{"spec.md": "template: none\ncontrols: board\n"})}, "board"},
		{request{dir: folder(t, map[string]string{"template.json": `{"controls": "anything"}`})}, ""},
	} {
		if got := controls(c.r); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestPlaytest(t *testing.T) {
	dir := folder(t, map[string]string{"index.html": page})
	out := filepath.Join(t.TempDir(), "pictures")
	code, stdout, stderr, _ := run(t, "playtest", "--json", "--controls", "move-x", "--out", out, dir)
	if code != ExitPass {
		t.Fatalf("exit %d: %s %s (needs a browser: apt-get install chromium-headless-shell)", code, stdout, stderr)
	}
	var report dreamcore.PlayReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{report.Idle, report.Poster, report.Touch, report.Recording} {
		info, err := os.Stat(filepath.Join(out, name))
		if err != nil || info.Size() < 200 {
			t.Errorf("picture %q: %v", name, err)
		}
	}
}
