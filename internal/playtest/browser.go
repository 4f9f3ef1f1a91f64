package playtest

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
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

// screen is what the game is shown on.
type screen struct {
	width, height int64
	touch         bool
}

var (
	desktop = screen{1280, 720, false}
	phone   = screen{390, 844, true}
)

// browser is one headless Chromium; every arm gets a fresh context of it.
type browser struct {
	ctx    context.Context // chromedp's: the browser lives as long as this
	cancel context.CancelFunc
	token  string // the name of the hook in each page
	paints bool   // the game paints everything anew in each frame
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

// openBrowser starts the browser at path. Close ends it and all its children.
func openBrowser(ctx context.Context, path string) (*browser, error) {
	flags := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path),
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Headless,
		// The box that the playtest runs in is the sandbox.
		chromedp.NoSandbox,
		chromedp.Flag("disable-gpu", true),
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

// tab is one page of the game in a context of its own.
type tab struct {
	ctx    context.Context
	cancel context.CancelFunc
	token  string
	screen screen
	paints bool
}

// open loads url in a fresh context and plays the first frames, so that what
// loads has loaded. shown says that pictures will be taken.
func (b *browser) open(url string, s screen, shown bool) (*tab, error) {
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t := &tab{ctx: ctx, cancel: cancel, token: b.token, screen: s, paints: b.paints}
	if err := t.load(url, shown); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *tab) load(url string, shown bool) error {
	// The first call on a context opens its target and must not carry a deadline.
	if err := chromedp.Do(t.ctx); err != nil {
		return fmt.Errorf("open tab: %w", err)
	}
	if _, err := call(t, page.Enable, page.EnableParams{}); err != nil {
		return fmt.Errorf("open tab: %w", err)
	}
	if _, err := call(t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		return fmt.Errorf("set focus: %w", err)
	}
	if _, err := call(t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: t.screen.width, Height: t.screen.height, DeviceScaleFactor: 1, Mobile: t.screen.touch,
	}); err != nil {
		return fmt.Errorf("set screen: %w", err)
	}
	if t.screen.touch {
		if _, err := call(t, emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true, MaxTouchPoints: 5}); err != nil {
			return fmt.Errorf("set touch: %w", err)
		}
	}
	script := strings.NewReplacer("TOKEN", t.token, "SEED", "12345", "PAINTS", strconv.FormatBool(t.paints), "SHOWN", strconv.FormatBool(shown)).Replace(clockScript + watchScript)
	if _, err := call(t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script}); err != nil {
		return fmt.Errorf("inject clock: %w", err)
	}
	result, err := call(t, page.Navigate, page.NavigateParams{URL: url})
	if err != nil {
		return fmt.Errorf("navigate: %w", err)
	}
	if result.ErrorText != "" {
		return fmt.Errorf("navigate: %s", result.ErrorText)
	}
	if err := t.eval("await clock.loaded", nil); err != nil {
		return err
	}
	// The first page is painted in full, to learn how the game paints.
	draw := "'all'"
	if t.paints {
		draw = "true"
	}
	return t.eval("await clock.settle(); await watch.run(24, "+draw+");", nil)
}

// Close ends the page, also one that is stuck.
func (t *tab) Close() { t.cancel() }

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
// scope and decodes what it returns into out (nil: nothing). errLeft when the
// page has navigated away meanwhile.
func (t *tab) eval(body string, out any) error {
	code := "(async () => { const {clock, watch} = window[" + string(quoteJS(t.token)) + "]; " + body + " })()"
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

// key is one key of the keyboard.
type key struct {
	code, key, text string
	virtual         int64
}

var (
	keyRight = key{"ArrowRight", "ArrowRight", "", 39}
	keyLeft  = key{"ArrowLeft", "ArrowLeft", "", 37}
	keyUp    = key{"ArrowUp", "ArrowUp", "", 38}
	keyDown  = key{"ArrowDown", "ArrowDown", "", 40}
	keySpace = key{"Space", " ", " ", 32}
	keyEnter = key{"Enter", "Enter", "\r", 13}
	keyW     = key{"KeyW", "w", "w", 87}
	keyA     = key{"KeyA", "a", "a", 65}
	keyS     = key{"KeyS", "s", "s", 83}
	keyD     = key{"KeyD", "d", "d", 68}
)

func (t *tab) keys(down bool, keys ...key) error {
	for _, k := range keys {
		params := input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyUp, Code: k.code, Key: k.key,
			WindowsVirtualKeyCode: k.virtual, NativeVirtualKeyCode: k.virtual,
		}
		if down {
			params.Type = input.DispatchKeyEventTypeRawKeyDown
			if k.text != "" {
				params.Type, params.Text, params.UnmodifiedText = input.DispatchKeyEventTypeKeyDown, k.text, k.text
			}
		}
		if _, err := call(t, input.DispatchKeyEvent, params); err != nil {
			return err
		}
	}
	return nil
}

// point is a place on the screen.
type point struct {
	X, Y  float64
	Label string
}

func (t *tab) mouse(kind input.DispatchMouseEventType, at point, held bool) error {
	params := input.DispatchMouseEventParams{Type: kind, X: at.X, Y: at.Y}
	if kind != input.DispatchMouseEventTypeMouseMoved || held {
		params.Button, params.ClickCount = input.MouseButtonLeft, 1
	}
	if held {
		params.Buttons = 1
	}
	_, err := call(t, input.DispatchMouseEvent, params)
	return err
}

// click moves there, presses and releases; on a touch screen it taps.
func (t *tab) click(at point) error {
	if t.screen.touch {
		if err := t.touch(input.DispatchTouchEventTypeTouchStart, at); err != nil {
			return err
		}
		return t.touch(input.DispatchTouchEventTypeTouchEnd)
	}
	if err := t.mouse(input.DispatchMouseEventTypeMouseMoved, at, false); err != nil {
		return err
	}
	if err := t.mouse(input.DispatchMouseEventTypeMousePressed, at, true); err != nil {
		return err
	}
	return t.mouse(input.DispatchMouseEventTypeMouseReleased, at, false)
}

func (t *tab) touch(kind input.DispatchTouchEventType, at ...point) error {
	points := []*input.TouchPoint{}
	for _, p := range at {
		points = append(points, &input.TouchPoint{X: p.X, Y: p.Y})
	}
	_, err := call(t, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: points})
	return err
}

// shoot returns a PNG of the screen, scaled.
func (t *tab) shoot(scale float64) ([]byte, error) {
	params := page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}
	if scale != 1 {
		params.Clip = &page.Viewport{Width: float64(t.screen.width), Height: float64(t.screen.height), Scale: scale}
	}
	result, err := call(t, page.CaptureScreenshot, params)
	return result.Data, err
}
