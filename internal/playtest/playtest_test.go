package playtest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
)

// corpus says what each small game of testdata must be judged as.
var corpus = []struct {
	dir      string
	controls string
	verdict  dreamcore.Verdict
	motion   dreamcore.Motion // "" when any will do
	finding  string           // a FAIL that must be among the findings
}{
	{"good/flyer", "move-2d", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/platform", "jump-x", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/flap", "tap", dreamcore.Pass, "", ""},
	{"good/paddle", "pointer", dreamcore.Pass, "", ""},
	{"good/dom-walker", "move-2d", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/tictactoe", "board", dreamcore.Pass, dreamcore.DOMResponds, ""},
	{"good/memory", "board", dreamcore.Pass, "", ""},
	{"good/snake-grid", "move-2d", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/slingshot", "pointer", dreamcore.Pass, "", ""},
	{"good/camera-follow", "move-x", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/svg-ship", "move-2d", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/countdown", "move-2d", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/car", "steer-3d", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/retry", "move-2d", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"good/reload", "move-2d", dreamcore.Pass, dreamcore.ControlsOK, ""},
	{"broken/leaves", "move-2d", dreamcore.Failed, dreamcore.ControlsOK, "left"},
	{"broken/retry-dead", "move-2d", dreamcore.Failed, dreamcore.ControlsOK, "retry_dead"},
	{"broken/animated-background", "move-2d", dreamcore.Failed, dreamcore.NoResponse, "no_control"},
	{"broken/vanishing-overlay", "board", dreamcore.Failed, "", "no_control"},
	{"broken/pause-only", "pointer", dreamcore.Failed, dreamcore.NoResponse, "no_control"},
	{"broken/hud-counter", "tap", dreamcore.Failed, dreamcore.HUDOnly, "no_control"},
	{"broken/scripted-hero", "move-x", dreamcore.Failed, dreamcore.NoResponse, "no_control"},
	{"broken/page-scroll", "move-2d", dreamcore.Failed, "", "no_control"},
	{"broken/menu-highlight", "move-2d", dreamcore.Failed, dreamcore.DOMResponds, "no_control"},
	{"broken/text-reflow", "tap", dreamcore.Failed, dreamcore.HUDOnly, "no_control"},
	{"broken/repeating-error", "move-x", dreamcore.Failed, "", "page_error"},
	{"broken/frozen", "tap", dreamcore.Failed, dreamcore.Frozen, "no_control"},
	{"broken/blank", "tap", dreamcore.Failed, dreamcore.Frozen, "blank"},
	{"broken/boot-error", "tap", dreamcore.Failed, "", "page_error"},
	{"broken/one-axis", "move-2d", dreamcore.Failed, dreamcore.ControlsOK, "no_control"},
	{"broken/dialog", "move-2d", dreamcore.Failed, dreamcore.ControlsOK, "dialog"},
	{"broken/keyboard-only", "move-2d", dreamcore.Failed, dreamcore.ControlsOK, "touch_dead"},
	{"broken/missing-picture", "move-2d", dreamcore.Failed, dreamcore.ControlsOK, "file_missing"},
	{"broken/nan", "move-2d", dreamcore.Failed, dreamcore.ControlsOK, "not_a_number"},
	{"broken/external", "move-2d", dreamcore.Failed, dreamcore.ControlsOK, "blocked"},
	{"broken/endless-loop", "tap", dreamcore.Failed, "", "endless_loop"},
	{"broken/endless-on-key", "move-x", dreamcore.Failed, "", "endless_loop"},
}

func TestCorpus(t *testing.T) {
	for _, c := range corpus {
		t.Run(c.dir, func(t *testing.T) {
			report := playGame(t, filepath.Join("testdata", c.dir), c.controls)
			if report.Verdict != c.verdict {
				t.Errorf("verdict %s, want %s", report.Verdict, c.verdict)
			}
			if c.motion != "" && report.Motion != c.motion {
				t.Errorf("motion %s, want %s", report.Motion, c.motion)
			}
			if c.finding != "" && !slices.ContainsFunc(report.Findings, func(f dreamcore.Finding) bool {
				return f.Code == c.finding && f.Severity == dreamcore.Fail
			}) {
				t.Errorf("no finding %s", c.finding)
			}
			if t.Failed() {
				for _, f := range report.Findings {
					t.Log(f)
				}
				t.Logf("%+v", report)
			}
		})
	}
}

// The same game gives the same evidence, run for run.
func TestDeterminism(t *testing.T) {
	first := playGame(t, "testdata/good/flyer", "move-2d")
	again := playGame(t, "testdata/good/flyer", "move-2d")
	first.Seconds, again.Seconds = 0, 0
	if diff := cmp.Diff(first, again); diff != "" {
		t.Error(diff)
	}
}

// What cannot be judged is an error, not a verdict.
func TestCannotJudge(t *testing.T) {
	for name, opt := range map[string]Options{
		"no folder":  {Dir: filepath.Join(t.TempDir(), "nowhere")},
		"no scheme":  {Dir: "testdata/good/flyer", Controls: "telepathy"},
		"no browser": {Dir: "testdata/good/flyer", Browser: "/nowhere/chromium"},
	} {
		if _, err := Run(context.Background(), opt); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	report, err := Run(context.Background(), Options{Dir: t.TempDir()})
	if err != nil || report.Verdict != dreamcore.Failed || len(report.Findings) != 1 || report.Findings[0].Code != "no_index" {
		t.Errorf("an empty folder: %v, %v", report.Findings, err)
	}
}

func playGame(t *testing.T, dir, controls string) dreamcore.PlayReport {
	t.Helper()
	if _, err := FindBrowser(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	report, err := Run(ctx, Options{
		Dir: dir, Controls: controls,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f s, %s", report.Seconds, report.Motion)
	return report
}
