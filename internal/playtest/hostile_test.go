package playtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"dreamcore"
)

// trap is a third party of a game: it counts whoever comes, by TCP or UDP.
type trap struct {
	tcp, udp atomic.Int64
	addr     string // the loopback by its address
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	tr := &trap{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	tr.addr = l.Addr().String()
	srv := &http.Server{
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				tr.tcp.Add(1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			io.WriteString(w, "secret of the host")
		}),
	}
	go func() { _ = srv.Serve(l) }()
	go func() {
		buf := make([]byte, 1500)
		for {
			if _, _, err := u.ReadFrom(buf); err != nil {
				return
			}
			tr.udp.Add(1)
		}
	}()
	t.Cleanup(func() { srv.Close(); u.Close() })
	return tr
}

// hostileGame is a game whose script is put into a page that otherwise does nothing.
func hostileGame(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.html"), []byte(`<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>Hostile</title>
<body style="margin:0"><canvas id="c" width="640" height="360"></canvas><script>
const x = document.getElementById('c').getContext('2d'); let n = 0;
(function frame() { x.fillStyle = '#135'; x.fillRect(0, 0, 640, 360); x.fillStyle = '#f00'; x.fillRect(n++ % 600, 100, 20, 20); requestAnimationFrame(frame); })();
</script><script>`+script+`</script></body></html>`), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// outward are all the ways by which a page can reach ADDR, a host and port.
const outward = `
const ADDR = '%s', HOST = '%s', PORT = '%s';
const go = f => { try { const p = f(); if (p && p.catch) p.catch(() => {}); } catch (e) {} };
go(() => fetch('http://' + ADDR + '/fetch'));
go(() => fetch('http://' + ADDR + '/nocors', {method: 'POST', mode: 'no-cors', body: 'x', keepalive: true}));
go(() => { const r = new XMLHttpRequest(); r.open('GET', 'http://' + ADDR + '/xhr'); r.send(); });
go(() => new WebSocket('ws://' + ADDR + '/ws'));
go(() => new EventSource('http://' + ADDR + '/es'));
go(() => navigator.sendBeacon('http://' + ADDR + '/beacon', 'x'));
go(() => { new Image().src = 'http://' + ADDR + '/img.png'; });
go(() => { const s = document.createElement('script'); s.src = 'http://' + ADDR + '/s.js'; document.head.append(s); });
go(() => { const l = document.createElement('link'); l.rel = 'stylesheet'; l.href = 'http://' + ADDR + '/s.css'; document.head.append(l); });
for (const rel of ['preconnect', 'prefetch', 'dns-prefetch', 'preload', 'modulepreload']) go(() => { const l = document.createElement('link'); l.rel = rel; l.as = 'script'; l.href = 'http://' + ADDR + '/p'; document.head.append(l); });
go(() => { const f = document.createElement('iframe'); f.src = 'http://' + ADDR + '/frame'; document.body.append(f); });
go(() => { const v = document.createElement('video'); v.src = 'http://' + ADDR + '/v.mp4'; v.load(); });
go(() => import('http://' + ADDR + '/m.js'));
go(() => new FontFace('f', 'url(http://' + ADDR + '/f.woff2)').load());
go(() => { new Worker(URL.createObjectURL(new Blob(["try { importScripts('http://" + ADDR + "/w.js') } catch (e) {} fetch('http://" + ADDR + "/wf').catch(() => {})"]))); });
go(() => { document.body.style.backgroundImage = 'url(http://' + ADDR + '/bg.png)'; });
go(() => { const f = document.createElement('form'); f.action = 'http://' + ADDR + '/form'; f.method = 'post'; f.target = 'sink'; const i = document.createElement('iframe'); i.name = 'sink'; document.body.append(i, f); f.submit(); });
go(() => { const p = new RTCPeerConnection({iceServers: [{urls: 'stun:' + HOST + ':' + PORT}, {urls: 'turn:' + HOST + ':' + PORT + '?transport=tcp', username: 'u', credential: 'c'}]}); p.createDataChannel('d'); return p.createOffer().then(o => p.setLocalDescription(o)); });
`

func outwardTo(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return fmt.Sprintf(outward, addr, host, port)
}

// plainVisit shows a folder in the same Chromium, without a content policy: the
// twin of a page that is held.
func plainVisit(t *testing.T, dir string, until func() bool) {
	t.Helper()
	path, err := FindBrowser()
	if err != nil {
		t.Fatal(err)
	}
	// The twin is a browser as people have it.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.FileServer(http.Dir(dir))}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	allocated, cancelAllocator := chromedp.NewExecAllocator(ctx, chromedp.ExecPath(path), chromedp.Headless, chromedp.NoSandbox, chromedp.NoFirstRun)
	defer cancelAllocator()
	tab, cancelTab := chromedp.NewContext(allocated, chromedp.WithErrorf(t.Logf))
	defer cancelTab()
	if err := chromedp.Do(tab); err != nil {
		t.Fatal(err)
	}
	go func() { // the page may keep loading for ever
		_ = chromedp.Do(tab, chromedp.Navigate("http://"+l.Addr().String()+"/"))
	}()
	for !until() {
		if ctx.Err() != nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func failed(report dreamcore.PlayReport, codes ...string) bool {
	for _, f := range report.Findings {
		for _, c := range codes {
			if f.Code == c && f.Severity == dreamcore.Fail {
				return true
			}
		}
	}
	return false
}

// What a game sends to a third party is blocked and reported. The twin is the
// same page in the same browser without what the judge adds.
func TestV01NothingReachesAThirdParty(t *testing.T) {
	tr := newTrap(t)
	report := playGame(t, hostileGame(t, outwardTo(tr.addr)), "")
	if tr.tcp.Load() != 0 || tr.udp.Load() != 0 {
		t.Errorf("the third party was reached: %d by TCP, %d by UDP", tr.tcp.Load(), tr.udp.Load())
	}
	if !failed(report, "blocked") {
		t.Errorf("it is not reported: %v", report.Findings)
	}
	plainVisit(t, hostileGame(t, outwardTo(tr.addr)), func() bool { return tr.tcp.Load() > 0 })
	if tr.tcp.Load() == 0 {
		t.Error("the twin reaches nobody either: nothing was shown")
	}
}

// A page gets at no port of the machine, no file, and none of the browser's own
// pages or its remote control.
func TestV02TheMachineIsOutOfReach(t *testing.T) {
	tr := newTrap(t)
	_, port, _ := net.SplitHostPort(tr.addr)
	file := filepath.Join(t.TempDir(), "host-secret.txt")
	if err := os.WriteFile(file, []byte("secret of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`
const got = [];
const see = (what, text) => { if (('' + text).includes('secret of the host') || ('' + text).includes('webSocketDebuggerUrl')) document.title = 'LEAK ' + what; };
for (const host of ['127.0.0.1', 'localhost', '[::1]', '0.0.0.0', '127.1', '2130706433', '[::ffff:127.0.0.1]'])
  for (const port of [%s, 9222, 22, 49982, 8080]) fetch('http://' + host + ':' + port + '/json/version').then(r => r.text()).then(t => see(host, t)).catch(() => {});
for (const u of ['file://%s', 'chrome://version', 'chrome://settings', 'devtools://devtools/bundled/inspector.html', 'view-source:file:///etc/passwd', 'filesystem:file:///temporary/x']) {
  fetch(u).then(r => r.text()).then(t => see(u, t)).catch(() => {});
  try { const r = new XMLHttpRequest(); r.open('GET', u); r.onload = () => see(u, r.responseText); r.send(); } catch (e) {}
  const f = document.createElement('iframe'); f.src = u; f.onload = () => { try { see(u, f.contentDocument.body.innerText); } catch (e) {} }; document.body.append(f);
}
`, port, file)
	report := playGame(t, hostileGame(t, script), "")
	if tr.tcp.Load() != 0 {
		t.Errorf("a port of the machine was reached %d times", tr.tcp.Load())
	}
	if strings.Contains(fmt.Sprintf("%+v", report), "LEAK") || strings.Contains(fmt.Sprintf("%+v", report), "secret of the host") {
		t.Errorf("the page read what it must not: %+v", report)
	}
	plainVisit(t, hostileGame(t, script), func() bool { return tr.tcp.Load() > 0 })
	if tr.tcp.Load() == 0 {
		t.Error("the twin reaches no port either: nothing was shown")
	}
}

// A game that takes what it can get ends the judgement with a finding, and the
// next game is judged as ever.
func TestV04TheNextGameIsFine(t *testing.T) {
	// Endless loops alone stand in the corpus.
	report := playGame(t, hostileGame(t, `
const b = URL.createObjectURL(new Blob(['for (;;);'])); for (let i = 0; i < 12; i++) new Worker(b);
const all = [], keep = [];
for (let i = 0; i < 32; i++) { const c = document.createElement('canvas'); c.width = c.height = 4096; c.getContext(i % 2 ? '2d' : 'webgl'); all.push(c); }
(function eat() { for (let i = 0; i < 64; i++) keep.push(new Array(1 << 16).fill(Math.random())); if (keep.length < 1024) setTimeout(eat, 0); else for (;;); })();`), "")
	if report.Verdict != dreamcore.Failed || !failed(report, "endless_loop", "page_error", "crashed", "no_control", "blank") {
		t.Errorf("verdict %s: %v", report.Verdict, report.Findings)
	}
	if report = playGame(t, "testdata/good/paddle", "pointer"); report.Verdict != dreamcore.Pass {
		t.Errorf("the next game: %s %v", report.Verdict, report.Findings)
	}
}
