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
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"dreamcore"
	"dreamcore/internal/text"
)

// Version changes whenever a verdict may change.
const Version = "2"

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
	if opt.Out != "" {
		if err := os.MkdirAll(opt.Out, 0o755); err != nil {
			return j.report, fmt.Errorf("make folder for pictures: %w", err)
		}
	}
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
	if j.browser, err = openBrowser(ctx, path, j.site.server.Addr); err != nil {
		return dreamcore.Errorf(dreamcore.Unavailable, "playtest", "the browser did not start").
			WithHint("try it by hand: %s --headless --no-sandbox --dump-dom about:blank", path).Because(err)
	}
	defer j.browser.Close()

	page, boot, err := j.boot()
	if err != nil || page == nil {
		return j.couldJudge(ctx, err)
	}
	seen, shown, err := j.play(ctx, page)
	if err != nil {
		return j.couldJudge(ctx, err)
	}
	j.weigh(boot, seen)
	j.report.Poster, j.report.Recording = shown.poster, shown.recording
	j.add(shown)
	return nil
}

// play collects the evidence and the pictures. page is the one that has booted.
func (j *judge) play(ctx context.Context, page *tab) (evidence, shown, error) {
	var pictures shown
	seen, err := j.arms(ctx, page, startWait)
	if err != nil {
		return seen, pictures, err
	}
	if _, ok := seen.gate(j.opt.Controls); ok {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error {
			var err error
			pictures, err = j.show(seen)
			return err
		})
		group.Go(func() error { return j.touch(ctx, seen, startWait, 1) })
		return seen, pictures, group.Wait()
	}
	if err := j.touch(ctx, seen, startWait, j.opt.Parallel); err != nil {
		return seen, pictures, err
	}
	wait, err := j.worthWaiting(ctx, seen)
	if err != nil {
		return seen, pictures, err
	}
	if wait {
		// The game may count down or tell a story first: once more, with patience.
		j.opt.Log.Info("playtest waits longer", "reason", string(seen.motion()))
		later, err := j.arms(ctx, nil, patientWait)
		if err != nil {
			return seen, pictures, err
		}
		if err := j.touch(ctx, later, patientWait, j.opt.Parallel); err != nil {
			return seen, pictures, err
		}
		if _, ok := later.gate(j.opt.Controls); ok {
			seen = later
		}
	}
	pictures, err = j.show(seen)
	return seen, pictures, err
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
	if err := j.playAll(ctx, patientWait, j.opt.Parallel, arm{name: "idle", screen: desktop}); err != nil {
		return false, err
	}
	a, b := soon.samples[0], j.runs["idle"].samples[0]
	return a.Picture != b.Picture || a.Layout != b.Layout || a.Texts != b.Texts || !sameEntities(a.Entities, b.Entities), nil
}

// couldJudge turns an endless loop, or a game that leads elsewhere, into a
// finding; other errors stay errors.
func (j *judge) couldJudge(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errStuck) && ctx.Err() == nil {
		j.find("endless_loop", dreamcore.Fail)
		return nil
	}
	if errors.Is(err, errLeft) && ctx.Err() == nil {
		j.find("left", dreamcore.Fail)
		return nil
	}
	if ctx.Err() != nil {
		return dreamcore.Errorf(dreamcore.Unavailable, "playtest", "the playtest was ended before it could judge").Because(ctx.Err())
	}
	return dreamcore.Errorf(dreamcore.Internal, "playtest", "the browser failed").Because(err)
}

// boot is the gate before anything is played: no error, not blank. The page is
// nil when it is closed; else the caller plays on in it.
func (j *judge) boot() (*tab, facts, error) {
	t, err := j.browser.open(j.site, desktop, true)
	if err != nil {
		return nil, facts{}, err
	}
	open := false
	defer func() {
		if !open {
			t.Close()
		}
	}()
	f, err := t.facts()
	if err != nil {
		return nil, f, err
	}
	if err := t.eval("return watch.paintsAnew()", &j.browser.paints); err != nil {
		return nil, f, err
	}
	shot, err := t.shoot()
	if err != nil {
		return nil, f, err
	}
	blank, err := oneColour(shot)
	if err != nil {
		return nil, f, err
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
		return nil, f, nil // nothing runs: playing it would say the same again
	}
	j.report.Idle, err = j.save("idle.png", shot)
	if err != nil {
		return nil, f, err
	}
	open = true
	return t, f, nil
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
		j.pageErrors(r.end.Facts)
		dialogs += r.end.Facts.Dialogs
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
