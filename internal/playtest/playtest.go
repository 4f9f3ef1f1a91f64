// Package playtest judges whether a game can be played: it boots the game in a
// headless browser with an injected clock, plays it in several ways from the
// same start, and compares each with a run in which nobody touches anything. A
// game without an error and a game that answers are different things.
//
// What it sees comes from the page's own drawing, not from the page's word: a
// page that notices the playtest can only earn its verdict by moving something.
package playtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dreamcore"
	"dreamcore/internal/text"
)

// Version changes whenever a verdict may change.
const Version = "1"

// Options says what to play and how.
type Options struct {
	// Dir is the game's folder; it holds index.html.
	Dir string
	// Controls is the control scheme that the game must satisfy ("move-2d",
	// "tap" ...). Empty: any clear answer to any input will do.
	Controls string
	// Out is the folder for the pictures; it is made. Empty: no pictures.
	Out string
	// Lang is the language of findings; empty is English.
	Lang dreamcore.Lang
	// Browser is the path of a Chromium; empty looks in PATH.
	Browser string
	// Parallel is how many arms play at once; 0 is two.
	Parallel int
	// Timeout bounds the whole playtest; 0 is eight minutes, far more than a playtest takes: on a busy
	// machine a good game must not fail for want of time.
	Timeout time.Duration
	// Log tells how it goes; nil is silent.
	Log *slog.Logger
}

// Schemes lists the control schemes that have a gate.
var Schemes = []string{"move-2d", "move-x", "jump-x", "steer-3d", "tap", "pointer", "board"}

// Run plays the game and returns the verdict. An error means that the playtest
// could not judge (no browser, no folder), never that the game is bad.
func Run(ctx context.Context, opt Options) (dreamcore.PlayReport, error) {
	begun := time.Now()
	if opt.Lang == "" {
		opt.Lang = dreamcore.English
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Parallel <= 0 {
		opt.Parallel = 2
	}
	if opt.Timeout <= 0 {
		opt.Timeout = 8 * time.Minute
	}
	if opt.Controls != "" && !slices.Contains(Schemes, opt.Controls) {
		return dreamcore.PlayReport{}, dreamcore.Errorf(dreamcore.Invalid, "playtest", "no control scheme is called %q", opt.Controls).
			WithHint("the schemes are %s", strings.Join(Schemes, ", "))
	}
	ctx, cancel := context.WithTimeout(ctx, opt.Timeout)
	defer cancel()

	j := &judge{opt: opt, runs: map[string]run{}}
	j.report.Report = dreamcore.Report{Tool: "playtest", Version: Version, Findings: []dreamcore.Finding{}}
	j.report.Controls = opt.Controls
	j.report.Moved = []dreamcore.Moved{}
	j.report.Motion = dreamcore.Frozen
	if err := j.judge(ctx); err != nil {
		return j.report, err
	}
	j.report.Judge()
	j.report.Seconds = time.Since(begun).Seconds()
	return j.report, nil
}

// judge is one playtest on its way.
type judge struct {
	opt     Options
	site    *site
	browser *browser

	mu     sync.Mutex
	runs   map[string]run
	report dreamcore.PlayReport
}

func (j *judge) judge(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(j.opt.Dir, "index.html")); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(j.opt.Dir); err != nil {
			return dreamcore.Errorf(dreamcore.NotFound, "playtest", "there is no folder %s", j.opt.Dir)
		}
		j.find("no_index", dreamcore.Fail)
		return nil
	}
	path := j.opt.Browser
	if path == "" {
		var err error
		if path, err = FindBrowser(); err != nil {
			return err
		}
	}
	var err error
	if j.site, err = openSite(j.opt.Dir); err != nil {
		return err
	}
	defer j.site.Close()
	if j.browser, err = openBrowser(ctx, path); err != nil {
		return dreamcore.Errorf(dreamcore.Unavailable, "playtest", "the browser did not start").
			WithHint("try it by hand: %s --headless --no-sandbox --dump-dom about:blank", path).Because(err)
	}
	defer j.browser.Close()

	boot, err := j.boot()
	if err != nil || boot == nil {
		return j.couldJudge(ctx, err)
	}
	seen, err := j.arms(ctx, startWait)
	if err != nil {
		return j.couldJudge(ctx, err)
	}
	wait, err := j.worthWaiting(ctx, seen)
	if err != nil {
		return j.couldJudge(ctx, err)
	}
	if wait {
		// The game may count down or tell a story first: once more, with patience.
		j.opt.Log.Info("playtest waits longer", "reason", string(seen.motion()))
		later, err := j.arms(ctx, patientWait)
		if err != nil {
			return j.couldJudge(ctx, err)
		}
		if _, ok := later.gate(j.opt.Controls); ok {
			seen = later
		}
	}
	j.weigh(*boot, seen)
	if err := j.after(seen); err != nil {
		return j.couldJudge(ctx, err)
	}
	return nil
}

// worthWaiting reports whether a game that did not satisfy its gate may do so
// later. One that looks the same after seconds of idling is frozen for good.
func (j *judge) worthWaiting(ctx context.Context, seen evidence) (bool, error) {
	if _, ok := seen.gate(j.opt.Controls); ok {
		return false, nil
	}
	if seen.motion() != dreamcore.Frozen {
		return true, nil
	}
	soon := j.runs["idle"]
	if err := j.playAll(ctx, patientWait, arm{name: "idle", screen: desktop}); err != nil {
		return false, err
	}
	a, b := soon.samples[0], j.runs["idle"].samples[0]
	return a.Picture != b.Picture || a.Layout != b.Layout || a.Texts != b.Texts || !sameEntities(a.Entities, b.Entities), nil
}

// couldJudge turns an endless loop into a finding; other errors stay errors.
func (j *judge) couldJudge(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errStuck) && ctx.Err() == nil {
		j.find("endless_loop", dreamcore.Fail)
		return nil
	}
	if ctx.Err() != nil {
		return dreamcore.Errorf(dreamcore.Unavailable, "playtest", "the playtest was ended before it could judge").Because(ctx.Err())
	}
	return dreamcore.Errorf(dreamcore.Internal, "playtest", "the browser failed").Because(err)
}

// boot is the gate before anything is played: no error, not blank. nil means
// that it is closed.
func (j *judge) boot() (*facts, error) {
	t, err := j.browser.open(j.site.url, desktop, true)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	f, err := t.facts()
	if err != nil {
		return nil, err
	}
	if err := t.eval("return watch.paintsAnew()", &j.browser.paints); err != nil {
		return nil, err
	}
	shot, err := t.shoot(1)
	if err != nil {
		return nil, err
	}
	blank, err := oneColour(shot)
	if err != nil {
		return nil, err
	}
	for _, name := range j.site.Missing() {
		j.find("file_missing", dreamcore.Fail, "file", quote(name))
	}
	for _, v := range f.Violations {
		j.find("blocked", dreamcore.Fail, "what", quote(v))
	}
	j.pageErrors(f)
	if blank {
		j.find("blank", dreamcore.Fail)
	}
	if len(f.Errors) > 0 && (blank || f.Waiting == 0) {
		return nil, nil // nothing runs: playing it would say the same again
	}
	return &f, nil
}

// pageErrors adds a finding for each error of the page, once.
func (j *judge) pageErrors(f facts) {
	for _, e := range f.Errors {
		if slices.Contains(j.report.Errors, e) || len(j.report.Errors) >= 10 {
			continue
		}
		j.report.Errors = append(j.report.Errors, e)
		if len(j.report.Errors) <= 4 {
			file, line := errorPlace(e)
			j.findAt("page_error", dreamcore.Fail, file, line, "error", quote(e))
		}
	}
}

// arms plays all arms and compares them with idle.
func (j *judge) arms(ctx context.Context, wait int) (evidence, error) {
	seen := evidence{arms: map[string]difference{}}
	if err := j.playAll(ctx, wait, arm{name: "idle", screen: desktop}, arm{name: "idle-again", screen: desktop}); err != nil {
		return seen, err
	}
	idle := j.runs["idle"]
	noise := noisy(idle, j.runs["idle-again"])
	for i := 1; i < len(idle.samples); i++ {
		a, b := idle.samples[i-1], idle.samples[i]
		seen.alive = seen.alive || a.Texts != b.Texts || a.Picture != b.Picture || a.Layout != b.Layout || !sameEntities(a.Entities, b.Entities)
	}
	todo := choose(idle.handlers, j.opt.Controls)
	if err := j.playAll(ctx, wait, todo...); err != nil {
		return seen, err
	}
	j.compare(seen, idle, todo, noise)
	hasKeys := slices.ContainsFunc(todo, func(a arm) bool { return len(a.hold) > 0 })
	if hasKeys && needsKeys(j.opt.Controls) {
		if seen.oppose(sideways...) == nil || seen.oppose(upright...) == nil {
			more := []arm{keyArm("d", keyD), keyArm("a", keyA), keyArm("w", keyW), keyArm("s", keyS)}
			if _, ok := seen.gate(j.opt.Controls); !ok {
				if err := j.playAll(ctx, wait, more...); err != nil {
					return seen, err
				}
				j.compare(seen, idle, more, noise)
			}
		}
		if seen.oppose(sideways...) == nil {
			// What steers like a car only goes sideways while it goes ahead.
			more := []arm{keyArm("up-right", keyUp, keyRight), keyArm("up-left", keyUp, keyLeft)}
			if err := j.playAll(ctx, wait, more...); err != nil {
				return seen, err
			}
			j.compare(seen, j.runs["up"], more, noise)
		}
	}
	touch := []arm{{name: "touch-idle", screen: phone}, {name: "touch", screen: phone, act: touchAct}, {name: "swipe", screen: phone, act: dragAct}}
	if err := j.playAll(ctx, wait, touch...); err != nil {
		return seen, err
	}
	j.compare(seen, j.runs["touch-idle"], touch[1:], noise)
	return seen, nil
}

func needsKeys(controls string) bool { return controls != "pointer" && controls != "board" }

// choose leaves out what cannot be answered: keys where nothing listens to
// keys, the pointer where nothing listens to it.
func choose(handlers map[string]int, controls string) []arm {
	keys := handlers["keydown"]+handlers["keyup"]+handlers["keypress"] > 0
	pointer := false
	for name := range handlers {
		if strings.HasPrefix(name, "mouse") || strings.HasPrefix(name, "pointer") || strings.HasPrefix(name, "touch") || name == "click" {
			pointer = true
		}
	}
	var arms []arm
	if keys || !pointer {
		arms = append(arms, keyArm("right", keyRight), keyArm("left", keyLeft), keyArm("up", keyUp), keyArm("down", keyDown), keyArm("space", keySpace))
	}
	if pointer || !keys {
		arms = append(arms, arm{name: "click", screen: desktop, act: clickAct})
		if controls != "board" {
			arms = append(arms,
				arm{name: "point-right", screen: desktop, act: glideAct(0.8, 0.5)},
				arm{name: "point-left", screen: desktop, act: glideAct(0.2, 0.5)})
		}
		arms = append(arms, arm{name: "drag", screen: desktop, act: dragAct})
	}
	return arms
}

// playAll plays the arms, a few at once, and remembers their runs. After an
// endless loop the rest is left out.
func (j *judge) playAll(ctx context.Context, wait int, arms ...arm) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(j.opt.Parallel)
	for _, a := range arms {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			begun := time.Now()
			r, err := j.browser.play(j.site.url, a, wait)
			if err != nil {
				return fmt.Errorf("play %s: %w", a.name, err)
			}
			j.opt.Log.Debug("arm played", "arm", a.name, "dur_ms", time.Since(begun).Milliseconds())
			j.mu.Lock()
			j.runs[a.name] = r
			j.mu.Unlock()
			return nil
		})
	}
	return group.Wait()
}

func (j *judge) compare(seen evidence, idle run, arms []arm, noise map[string]bool) {
	for _, a := range arms {
		seen.arms[a.name] = differ(idle, j.runs[a.name], noise)
	}
}

// weigh turns the evidence into verdict and findings.
func (j *judge) weigh(boot facts, seen evidence) {
	j.report.Motion = seen.motion()
	j.report.Moved = seen.moved()
	for i := range j.report.Moved {
		j.report.Moved[i].Entity = clean(j.report.Moved[i].Entity, 60)
	}
	if key, ok := seen.gate(j.opt.Controls); !ok {
		j.find("no_control", dreamcore.Fail,
			"motion", string(j.report.Motion),
			"what", text.T(j.opt.Lang, "playtest.word_"+strings.ToLower(string(j.report.Motion))),
			"need", text.T(j.opt.Lang, key))
	}
	dialogs := boot.Dialogs
	names := make([]string, 0, len(j.runs))
	for name := range j.runs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		r := j.runs[name]
		j.pageErrors(r.facts)
		dialogs += r.facts.Dialogs
		for _, s := range r.samples {
			if s.Bad || (s.Probe != nil && s.Probe.Bad) {
				j.findOnce("not_a_number", dreamcore.Fail)
			}
		}
	}
	if dialogs > 0 {
		j.find("dialog", dreamcore.Fail)
	}
	for _, name := range j.site.Missing() {
		j.findOnce("file_missing", dreamcore.Fail, "file", quote(name))
	}
	if needsKeys(j.opt.Controls) {
		for _, name := range []string{"right", "left", "up", "down", "space"} {
			if d := seen.arms[name]; d.scrolled {
				j.findOnce("keys_scroll", dreamcore.Fail)
			}
		}
	}
	if !seen.arms["touch"].responds() && !seen.arms["swipe"].responds() && seen.motion() != dreamcore.Frozen && seen.motion() != dreamcore.NoResponse {
		j.find("touch_dead", dreamcore.Fail)
	}
}

// find adds a finding whose texts stand in the catalogue under its code.
func (j *judge) find(code string, severity dreamcore.Severity, args ...string) {
	j.findAt(code, severity, "", 0, args...)
}

func (j *judge) findAt(code string, severity dreamcore.Severity, file string, line int, args ...string) {
	f := dreamcore.Finding{
		Code: code, Severity: severity, File: file, Line: line,
		Message: text.T(j.opt.Lang, "playtest."+code, args...),
		Fix:     text.T(j.opt.Lang, "playtest."+code+"_fix", args...),
	}
	if !slices.Contains(j.report.Findings, f) {
		j.report.Findings = append(j.report.Findings, f)
	}
}

// findOnce is find, for what may be seen in many arms: equal findings are one.
func (j *judge) findOnce(code string, severity dreamcore.Severity, args ...string) {
	j.find(code, severity, args...)
}

// clean makes a text from the page safe to print: one line, capped.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) || r == '\u202e' || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}

// quote marks a text from the page as data.
func quote(s string) string {
	b, err := json.Marshal(clean(s, 160))
	if err != nil {
		return `"?"`
	}
	return string(b)
}

var placePattern = regexp.MustCompile(`\(((?:[\w-]+/)*[\w.-]+\.\w+):(\d+)\)$`)

// errorPlace reads "(game.js:12)" from the end of an error of the page.
func errorPlace(e string) (string, int) {
	m := placePattern.FindStringSubmatch(e)
	if m == nil {
		return "", 0
	}
	line := 0
	for _, c := range m[2] {
		line = line*10 + int(c-'0')
		if line > 1_000_000 {
			return m[1], 0
		}
	}
	return m[1], line
}
