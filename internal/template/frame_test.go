package template

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
)

// patience is how long a page may take before a test gives up; nothing is
// measured with it.
const patience = 2 * time.Minute

// frame is the page around a game: it keeps what the game says. The frame is an
// opaque origin, the hardest place that a game must run in.
const frame = `<!doctype html><meta charset="utf-8"><title>frame</title>
<script>
  window.heard = [];
  addEventListener("message", function (e) { if (e.data && e.data.dreamcore === 2) heard.push(e.data); });
  function tell(m) { document.querySelector("iframe").contentWindow.postMessage(Object.assign({dreamcore: 2}, m), "*"); }
  function count(type) { return heard.filter(function (m) { return m.type === type; }).length; }
</script>
<iframe sandbox="allow-scripts" src="/%s/?seed=1&lang=ja" style="position:fixed;inset:0;width:100%%;height:100%%;border:0"></iframe>`

// tattle lets a game's page say what goes wrong in it.
const tattle = `<script>
  function said(text) { parent.postMessage({dreamcore: 2, type: "error", text: String(text)}, "*"); }
  console.error = function () { said(Array.from(arguments).join(" ")); }; // three.js says there what it caught
  addEventListener("error", function (e) { said(e.message); });
  addEventListener("unhandledrejection", function (e) { said(e.reason); });
</script>
<script`

// host serves the delivered games as the public game host does: framed, with
// the same policy, and readable from an opaque origin.
func host(t *testing.T, l *Library) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if tag, ok := strings.CutPrefix(name, "frame/"); ok {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, frame, tag)
			return
		}
		parts := strings.SplitN(name, "/", 3)
		if len(parts) < 3 {
			http.NotFound(w, r)
			return
		}
		if parts[2] == "" {
			parts[2] = "index.html"
		}
		for _, tag := range l.Tags() {
			if string(tag) != parts[0]+"/"+parts[1] {
				continue
			}
			for _, f := range l.Files(tag) {
				if f.Path == parts[2] {
					w.Header().Set("Access-Control-Allow-Origin", "*")
					w.Header().Set("Content-Security-Policy", "default-src 'self' 'unsafe-inline' data: blob:; connect-src 'self' data: blob:; form-action 'none'; base-uri 'none'")
					w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(f.Path)))
					data := f.Data
					if f.Path == "index.html" {
						data = bytes.Replace(data, []byte("<script"), []byte(tattle), 1)
					}
					w.Write(data)
					return
				}
			}
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func browser(t *testing.T) context.Context {
	t.Helper()
	binary := ""
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if p, err := exec.LookPath(name); err == nil && binary == "" {
			binary = p
		}
	}
	if binary == "" {
		t.Fatal("no Chromium in PATH: apt-get install chromium-headless-shell")
	}
	allocated, stop := chromedp.NewExecAllocator(t.Context(), chromedp.ExecPath(binary), chromedp.Headless, chromedp.NoSandbox,
		chromedp.Flag("disable-gpu", true), chromedp.Flag("enable-unsafe-swiftshader", true), chromedp.Flag("mute-audio", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), chromedp.WindowSize(480, 360))
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(func() {
		cancel()
		stop()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start browser: %v", err)
	}
	return ctx
}

// tab opens a page.
func tab(t *testing.T, browser context.Context, url string) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	do(t, ctx, chromedp.Navigate(url))
	return ctx
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func eval[T any](t *testing.T, ctx context.Context, script string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return v
}

// until waits for a script to say true.
func until(t *testing.T, ctx context.Context, script string) {
	t.Helper()
	for deadline := time.Now().Add(patience); !eval[bool](t, ctx, script); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never true: %s; heard %v", script, eval[any](t, ctx, "window.heard || null"))
		}
	}
}

func TestEachGameSpeaksWithThePageAroundIt(t *testing.T) {
	l := open(t)
	server, window := host(t, l), browser(t)
	for _, tag := range l.Tags() {
		t.Run(string(tag), func(t *testing.T) {
			ctx := tab(t, window, server.URL+"/frame/"+string(tag))
			until(t, ctx, `count("ready") === 1`)
			if early := eval[int](t, ctx, `heard.length`); early != 1 {
				t.Errorf("it says more than ready before anybody has played: %v", eval[any](t, ctx, "heard"))
			}
			do(t, ctx, chromedp.MouseClickXY(6, 6), chromedp.KeyEvent("\r"))
			until(t, ctx, `count("start") === 1`)
			eval[any](t, ctx, `tell({type: "pause"}); tell({type: "resume"}); tell({type: "retry"}); null`)
			until(t, ctx, `count("start") === 2`)
			do(t, ctx, chromedp.KeyEvent("m"))
			until(t, ctx, `heard.some(function (m) { return m.type === "mute" && m.value === true; })`)
			until(t, ctx, `heard.some(function (m) { return m.type === "storage" && m.key === "mute" && m.value === "true"; })`)
			// What it paints may fail where what it says does not: a texture of
			// a picture that an opaque origin may not read.
			eval[any](t, ctx, `(function next(n) { n ? requestAnimationFrame(function () { next(n - 1); }) : heard.push({type: "painted"}); })(3); null`)
			until(t, ctx, `count("painted") === 1`)
			if n := eval[int](t, ctx, `count("error")`); n != 0 {
				t.Errorf("errors: %v", eval[any](t, ctx, `heard.filter(function (m) { return m.type === "error"; }).slice(0, 3)`))
			}
			if n := eval[int](t, ctx, `count("end") + count("share")`); n != 0 {
				t.Errorf("it ends or shares by itself: %v", eval[any](t, ctx, "heard"))
			}
		})
	}
}

// The SDK without a page around it: everything works and nothing is sent.
func TestSDKAlone(t *testing.T) {
	l := open(t)
	server, window := host(t, l), browser(t)
	ctx := tab(t, window, server.URL+"/2d/run-and-jump/?lang=zh&seed=1")
	until(t, ctx, `typeof DreamCoreSDK2 === "object" && !!DreamCoreSDK2.probe()`)
	got := eval[json.RawMessage](t, ctx, `(function () {
		window.heard = [];
		addEventListener("message", function (e) { heard.push(e.data); });
		var s = DreamCoreSDK2, a = s.random(7), b = s.random(7), c = s.random(8);
		var same = [a(), a(), a()].join() === [b(), b(), b()].join(), other = s.random(7)() !== c();
		s.storage.set("k", {n: [1, "é"]});
		var read = JSON.stringify(s.storage.get("k", 0)), none = s.storage.get("no such key", "fallback");
		localStorage.setItem("game.broken", "{");
		s.end({score: 5, won: true}); // not started: nothing to end
		s.share();
		var language = s.language;
		s.language = "ja-JP";
		var changed = s.language;
		s.language = "xx";
		return {version: s.version, inPlatform: s.inPlatform, same: same, other: other, read: read, none: none,
			broken: s.storage.get("broken", "fallback"), language: language, changed: changed, kept: s.language,
			title: document.title, state: s.probe().state};
	})()`)
	want := `{"version":2,"inPlatform":false,"same":true,"other":true,"read":"{\"n\":[1,\"é\"]}","none":"fallback",` +
		`"broken":"fallback","language":"zh","changed":"ja","kept":"ja","title":"ラン・アンド・ジャンプ","state":"title"}`
	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
	// Messages arrive in order: when ours has come, the SDK's would have come.
	eval[any](t, ctx, `DreamCoreSDK2.ready(); DreamCoreSDK2.start(); postMessage("last", "*"); null`)
	until(t, ctx, `heard.indexOf("last") >= 0`)
	if n := eval[int](t, ctx, `heard.length`); n != 1 {
		t.Errorf("the SDK sends messages where nobody is around it: %v", eval[any](t, ctx, "heard"))
	}
}
