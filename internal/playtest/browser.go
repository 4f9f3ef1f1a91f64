package playtest

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/cdproto/systeminfo"
	"github.com/chromedp/chromedp"

	"dreamcore"
)

//go:embed inject/clock.js
var clockScript string

//go:embed inject/watch.js
var watchScript string

// When a page counts as stuck. A frame of a sound game takes milliseconds.
const (
	lookEvery    = 3 * time.Second
	stuckSeconds = 8.0             // of processor time within one request
	blindStuck   = 2 * time.Minute // where the browser does not tell its processor time
)

var (
	// errStuck says that the page never came back: an endless loop.
	errStuck = errors.New("the page does not answer")
	// errLeft says that the page has gone somewhere else or loaded itself again.
	errLeft = errors.New("the page has left")
)

// hookless is what eval says where the page is not one of the game's.
const hookless = "this page has no hook"

// screen is what the game is shown on.
type screen struct {
	width, height int64
	touch         bool
}

var (
	desktop = screen{1280, 720, false}
	small   = screen{960, 540, false} // for the pictures of play: each is drawn in software
	phone   = screen{390, 844, true}
)

// browser is one headless Chromium with a few tabs, which arms take in turn: a
// new process for each page would cost more than the play in it.
type browser struct {
	ctx    context.Context // chromedp's: the browser lives as long as this
	cancel context.CancelFunc
	token  string // the name of the hook in each page
	paints bool   // the game paints everything anew in each frame

	mu   sync.Mutex
	free []*tab // nobody plays in them
}

// FindBrowser returns the path of a Chromium that can run the playtest, or an
// *dreamcore.Error of code Missing.
func FindBrowser() (string, error) {
	for _, name := range []string{"chromium-headless-shell", "chrome-headless-shell", "chromium", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", dreamcore.Errorf(dreamcore.Missing, "playtest.browser", "no Chromium was found in PATH").
		WithHint("install it: apt-get install chromium-headless-shell")
}

// nowhere is where the browser sends whatever is not for the game's own site.
const nowhere = "http://127.0.0.1:1"

// openBrowser starts the browser at path for games at the address site. Close
// ends it and all its children.
func openBrowser(ctx context.Context, path, site string) (*browser, error) {
	flags := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless,
		// The box that the playtest runs in is the sandbox.
		chromedp.NoSandbox,
		chromedp.Flag("disable-gpu", true),
		// Starting a process and talking to it is what costs most in a box.
		chromedp.Flag("in-process-gpu", true),
		chromedp.Flag("enable-unsafe-swiftshader", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("force-webrtc-ip-handling-policy", "disable_non_proxied_udp"),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-background-timer-throttling", true),
		chromedp.Flag("disable-backgrounding-occluded-windows", true),
		chromedp.Flag("disable-renderer-backgrounding", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-breakpad", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-extensions", true),
		chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-hang-monitor", true),
		chromedp.Flag("disable-ipc-flooding-protection", true),
		chromedp.Flag("disable-features", "Translate,OptimizationHints,MediaRouter"),
		chromedp.Flag("force-color-profile", "srgb"),
		chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("mute-audio", true),
		chromedp.WindowSize(int(desktop.width), int(desktop.height)),
	}
	// A content policy does not hold what a page only hints at (preconnect) nor
	// WebRTC: everything but the game's own site goes to a proxy that is not there.
	// "<-loopback>" takes the loopback's exemption away.
	flags = append(flags, chromedp.Flag("proxy-server", nowhere), chromedp.Flag("proxy-bypass-list", "<-loopback>;"+site))
	allocated, cancelAllocator := chromedp.NewExecAllocator(ctx, flags...)
	// chromedp reports what it cannot decode; it changes no verdict.
	quiet := func(string, ...any) {}
	browserCtx, cancelBrowser := chromedp.NewContext(allocated, chromedp.WithErrorf(quiet), chromedp.WithLogf(quiet))
	b := &browser{ctx: browserCtx, token: "_" + dreamcore.NewToken(12)}
	b.cancel = func() {
		cancelBrowser()
		cancelAllocator()
	}
	if err := chromedp.Do(browserCtx); err != nil {
		b.cancel()
		return nil, fmt.Errorf("start browser: %w", err)
	}
	return b, nil
}

// Close kills the browser and waits for it.
func (b *browser) Close() { b.cancel() }

// tab is a tab with a context of its own. It shows one page after another; each
// begins as if the browser were new.
type tab struct {
	ctx     context.Context
	cancel  context.CancelFunc
	browser *browser
	screen  screen
	site    string                // where the game is
	script  page.ScriptIdentifier // what is injected into each page
	shown   bool                  // whether that says that pictures are taken
	used    bool                  // a game was in it
	lost    bool                  // it is stuck or broken: nobody may use it again
}

// open loads the game into a tab that nobody uses and plays the first frames, so
// that what loads has loaded. shown says that pictures will be taken.
func (b *browser) open(site *site, s screen, shown bool) (*tab, error) {
	t, err := b.take(s)
	if err != nil {
		return nil, err
	}
	if err := t.load(site, s, shown); err != nil {
		t.lost = true
		t.Close()
		return nil, err
	}
	return t, nil
}

// take returns a free tab, best one with this screen, or else a new one.
func (b *browser) take(s screen) (*tab, error) {
	b.mu.Lock()
	i := slices.IndexFunc(b.free, func(t *tab) bool { return t.screen == s })
	if i < 0 {
		i = len(b.free) - 1
	}
	if i >= 0 {
		t := b.free[i]
		b.free = slices.Delete(b.free, i, i+1)
		b.mu.Unlock()
		return t, nil
	}
	b.mu.Unlock()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t := &tab{ctx: ctx, cancel: cancel, browser: b}
	// The first call on a context opens its target and must not carry a deadline.
	if err := chromedp.Do(t.ctx); err != nil {
		cancel()
		return nil, fmt.Errorf("open tab: %w", err)
	}
	if _, err := call(t, page.Enable, page.EnableParams{}); err != nil {
		cancel()
		return nil, fmt.Errorf("open tab: %w", err)
	}
	if _, err := call(t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		cancel()
		return nil, fmt.Errorf("set focus: %w", err)
	}
	return t, nil
}

// Close gives the tab back. One that is stuck is ended.
func (t *tab) Close() {
	if t.lost {
		t.cancel()
		return
	}
	t.browser.mu.Lock()
	defer t.browser.mu.Unlock()
	t.browser.free = append(t.browser.free, t)
}

func (t *tab) load(site *site, s screen, shown bool) error {
	t.site = site.url
	if err := t.forget(site); err != nil {
		return fmt.Errorf("forget the last game: %w", err)
	}
	if err := t.show(s); err != nil {
		return err
	}
	if t.script == "" || t.shown != shown {
		if t.script != "" {
			if _, err := call(t, page.RemoveScriptToEvaluateOnNewDocument, page.RemoveScriptToEvaluateOnNewDocumentParams{Identifier: t.script}); err != nil {
				return fmt.Errorf("remove clock: %w", err)
			}
		}
		script := strings.NewReplacer("TOKEN", t.browser.token, "SEED", "12345", "SHOWN", strconv.FormatBool(shown)).Replace(clockScript + watchScript)
		added, err := call(t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		if err != nil {
			return fmt.Errorf("inject clock: %w", err)
		}
		t.script, t.shown = added.Identifier, shown
	}
	if err := t.navigate(site.url); err != nil {
		return err
	}
	if t.browser.paints {
		return t.eval("watch.paints(); await clock.settle(); await watch.run(24, true);", nil)
	}
	// The first page is painted in full, to learn how the game paints.
	return t.eval("await clock.settle(); await watch.run(24, 'all');", nil)
}

// forget leaves the page that the tab shows, so that it can write nothing more,
// and empties all stores.
func (t *tab) forget(site *site) error {
	if !t.used {
		t.used = true
		return nil
	}
	if err := t.navigate(site.url + emptyPage); err != nil {
		return err
	}
	if err := t.eval("localStorage.clear(); sessionStorage.clear(); window.name = '';", nil); err != nil {
		return err
	}
	_, err := call(t, storage.ClearDataForOrigin, storage.ClearDataForOriginParams{
		Origin: strings.TrimSuffix(site.url, "/"), StorageTypes: "cookies,indexeddb,cache_storage,file_systems",
	})
	return err
}

// show gives the tab another screen.
func (t *tab) show(s screen) error {
	if t.screen == s {
		return nil
	}
	if _, err := call(t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: s.width, Height: s.height, DeviceScaleFactor: 1, Mobile: s.touch,
	}); err != nil {
		return fmt.Errorf("set screen: %w", err)
	}
	if s.touch != t.screen.touch {
		touch := emulation.SetTouchEmulationEnabledParams{Enabled: s.touch}
		if s.touch {
			touch.MaxTouchPoints = 5
		}
		if _, err := call(t, emulation.SetTouchEmulationEnabled, touch); err != nil {
			return fmt.Errorf("set touch: %w", err)
		}
	}
	t.screen = s
	return nil
}

// navigate goes to url and waits until the page has loaded.
func (t *tab) navigate(url string) error {
	result, err := call(t, page.Navigate, page.NavigateParams{URL: url})
	if err != nil {
		return fmt.Errorf("navigate: %w", err)
	}
	if result.ErrorText != "" {
		return fmt.Errorf("navigate: %s", result.ErrorText)
	}
	return t.eval("await clock.loaded", nil)
}

// call sends one command to the page and waits for its answer; errStuck when
// the page burns time and does not come back. What counts is the processor time
// of the browser's renderers: on a busy machine a sound page may wait for long.
func call[P, R any](t *tab, command cdp.Command[P, R], params P) (R, error) {
	type answer struct {
		result R
		err    error
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		result, err := chromedp.Run(ctx, func(ctx context.Context, target *chromedp.Target) (R, error) {
			return cdp.Call(ctx, target, command, params)
		})
		done <- answer{result, err}
	}()
	begun := time.Now()
	var before map[int64]float64
	for {
		timer := time.NewTimer(lookEvery)
		select {
		case a := <-done:
			timer.Stop()
			return a.result, a.err
		case <-timer.C:
		}
		now, ok := t.rendererSeconds()
		if before == nil {
			before = now
		}
		stuck := !ok && time.Since(begun) > blindStuck
		for id, seconds := range now {
			stuck = stuck || seconds-before[id] > stuckSeconds
		}
		if !stuck {
			continue
		}
		stop, cancelStop := context.WithTimeout(t.ctx, 2*time.Second)
		defer cancelStop()
		// Best effort: the page is closed next anyway.
		_, _ = chromedp.Run(stop, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, target, runtime.TerminateExecution, cdp.Empty{})
		})
		t.lost = true
		var zero R
		return zero, errStuck
	}
}

// rendererSeconds is the processor time of each renderer so far; false when the
// browser does not tell.
func (t *tab) rendererSeconds() (map[int64]float64, bool) {
	ctx, cancel := context.WithTimeout(t.ctx, lookEvery)
	defer cancel()
	info, err := chromedp.CallBrowser(ctx, systeminfo.GetProcessInfo, cdp.Empty{})
	if err != nil {
		return nil, false
	}
	seconds := map[int64]float64{}
	for _, p := range info.ProcessInfo {
		if p.Type == "renderer" {
			seconds[p.ID] = p.CPUTime
		}
	}
	return seconds, len(seconds) > 0
}

// eval runs the body of an async function in the page with clock and watch in
// scope and decodes what it returns into out (nil: nothing). Where the page has
// loaded itself again meanwhile, as some games do to begin anew, it runs in the
// new one; errLeft when there is none of this game any more.
func (t *tab) eval(body string, out any) error {
	err := t.evaluate(body, out)
	for range 2 {
		if !errors.Is(err, errLeft) {
			break
		}
		if again := t.evaluate("await clock.loaded", nil); again != nil {
			err = again
			continue
		}
		err = t.evaluate(body, out)
	}
	return err
}

func (t *tab) evaluate(body string, out any) error {
	code := "(async () => { const hook = window[" + string(quoteJS(t.browser.token)) + "]; " +
		"if (!hook || !location.href.startsWith(" + string(quoteJS(t.site)) + ")) throw new Error('" + hookless + "'); " +
		"const {clock, watch} = hook; " + body + " })()"
	yes := true
	result, err := call(t, runtime.Evaluate, runtime.EvaluateParams{Expression: code, AwaitPromise: &yes, ReturnByValue: &yes})
	if err != nil {
		if left := err.Error(); strings.Contains(left, "context was destroyed") || strings.Contains(left, "Cannot find context") ||
			strings.Contains(left, "navigated or closed") || strings.Contains(left, "Promise was collected") {
			return errLeft
		}
		return err
	}
	if e := result.ExceptionDetails; e != nil {
		what := e.Text
		if e.Exception != nil {
			what += " " + e.Exception.Description
		}
		if strings.Contains(what, hookless) {
			return errLeft
		}
		return fmt.Errorf("evaluate: %s", clean(what, 300))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(result.Result.Value, out); err != nil {
		return fmt.Errorf("decode answer of the page: %w", err)
	}
	return nil
}

func quoteJS(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("playtest: quote: %v", err)) // only strings and numbers come here
	}
	return b
}

// shoot returns a PNG of the screen.
func (t *tab) shoot() ([]byte, error) {
	result, err := call(t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	return result.Data, err
}

// snap returns a JPEG of the screen, which is made faster.
func (t *tab) snap() ([]byte, error) {
	quality := int64(90)
	result, err := call(t, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatJpeg, Quality: &quality})
	return result.Data, err
}
