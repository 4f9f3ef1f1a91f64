package gamehost

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/blob/fs"
	"dreamcore/internal/store/sqlite"
	"dreamcore/internal/tree"
)

// stage is a host over a real store and real blobs with one published game.
type stage struct {
	*Host
	t     *testing.T
	store *sqlite.Store
	blobs *fs.Store
	game  dreamcore.GameID
	first dreamcore.VersionID
	log   *strings.Builder
}

func newStage(t *testing.T, wildcard bool) *stage {
	t.Helper()
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	blobs, err := fs.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = blobs.Close() })
	s := &stage{t: t, store: db, blobs: blobs, log: &strings.Builder{}}
	s.Host, err = New(Config{Origin: "http://games.test:81", Aliases: []string{"127.0.0.1:81"}, Wildcard: wildcard},
		db, blobs, slog.New(slog.NewTextHandler(s.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	g := dreamcore.Game{ID: dreamcore.NewGameID(), Creator: "ann", Wish: "w"}
	if err := db.CreateGame(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.game = g.ID
	s.first = s.publish(map[string]string{
		"index.html": "<title>one</title>", "js/game.js": "let x = 1", "a b&c.png": "PNG", "v/note.txt": "a folder called v",
	})
	return s
}

// publish makes files the current version.
func (s *stage) publish(files map[string]string) dreamcore.VersionID {
	s.t.Helper()
	ctx := s.t.Context()
	j := dreamcore.Job{ID: dreamcore.NewJobID(), Game: s.game, Creator: "ann", State: dreamcore.Queued}
	if err := s.store.CreateJob(ctx, j); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.store.UpdateJob(ctx, j.ID, 0, func(j *dreamcore.Job) error { j.State = dreamcore.Running; return nil }); err != nil {
		s.t.Fatal(err)
	}
	v := dreamcore.Version{Game: s.game, Job: j.ID, ID: dreamcore.VersionID(tree.Hash([]byte(j.ID)))}
	for path, data := range files {
		h, err := s.blobs.Put(ctx, []byte(data))
		if err != nil {
			s.t.Fatal(err)
		}
		v.Files = append(v.Files, dreamcore.VersionFile{Path: path, Hash: h, SizeBytes: int64(len(data))})
	}
	if _, err := s.store.Publish(ctx, v, "t", 0); err != nil {
		s.t.Fatal(err)
	}
	return v.ID
}

// ask sends one request; headers come in pairs.
func (s *stage) ask(method, url string, headers ...string) *http.Response {
	s.t.Helper()
	r := httptest.NewRequest(method, url, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (s *stage) want(r *http.Response, status int, text string) {
	s.t.Helper()
	if got := body(s.t, r); r.StatusCode != status || !strings.Contains(got, text) {
		s.t.Errorf("got %d %.200q, want %d with %q", r.StatusCode, got, status, text)
	}
}

func TestServing(t *testing.T) {
	s := newStage(t, false)
	base := s.URL(s.game)
	s.want(s.ask("GET", base), 200, "<title>one</title>")
	s.want(s.ask("GET", base+"index.html"), 200, "<title>one</title>")
	s.want(s.ask("GET", base+"js/game.js?x=1"), 200, "let x = 1")
	s.want(s.ask("GET", base+"a%20b%26c.png"), 200, "PNG")
	s.want(s.ask("GET", base+"v/note.txt"), 200, "a folder called v")
	s.want(s.ask("GET", s.VersionURL(s.game, s.first)+"js/game.js"), 200, "let x = 1")
	s.want(s.ask("GET", base, "Host", "127.0.0.1:81"), 200, "one")
	for _, gone := range []string{
		"nothing.js", "js", "js/", "JS/game.js", "../", "js/../index.html", "%2e%2e/x", "js%2fgame.js%00", ".env",
		"v/" + strings.Repeat("0", 64) + "/", "v/zz/",
	} {
		if r := s.ask("GET", base+gone); r.StatusCode != 404 {
			t.Errorf("%s: %d", gone, r.StatusCode)
		}
	}
	if r := s.ask("GET", strings.TrimSuffix(base, "/")); r.StatusCode != 302 || r.Header.Get("Location") != "/g/"+string(s.game)+"/" {
		t.Errorf("without a slash: %d %s", r.StatusCode, r.Header.Get("Location"))
	}
	for _, path := range []string{"/", "/g/", "/g/short/", "/g/" + strings.Repeat("a", 16) + "/", "/g/UPPERCASEUPPERCA/", "/api/games"} {
		if r := s.ask("GET", "http://games.test:81"+path); r.StatusCode != 404 {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
		if r := s.ask(method, base); r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %d", method, r.StatusCode)
		}
	}
	if r := s.ask("HEAD", base+"js/game.js"); r.StatusCode != 200 || r.ContentLength != 9 || body(t, r) != "" {
		t.Errorf("HEAD: %d, %d bytes", r.StatusCode, r.ContentLength)
	}
}

func TestCachingAndRanges(t *testing.T) {
	s := newStage(t, false)
	base, pinned := s.URL(s.game), s.VersionURL(s.game, s.first)
	for url, want := range map[string]string{
		base: "no-cache", base + "js/game.js": "no-cache", pinned: "no-cache",
		pinned + "js/game.js": "public, max-age=31536000, immutable",
	} {
		r := s.ask("GET", url)
		if got := r.Header.Get("Cache-Control"); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		tag := r.Header.Get("ETag")
		if r := s.ask("GET", url, "If-None-Match", tag); tag == "" || r.StatusCode != 304 {
			t.Errorf("%s: ETag %q gives %d", url, tag, r.StatusCode)
		}
	}
	r := s.ask("GET", base+"js/game.js", "Range", "bytes=4-4")
	if r.Header.Get("Content-Range") != "bytes 4-4/9" {
		t.Errorf("range: %v", r.Header)
	}
	s.want(r, 206, "x")

	second := s.publish(map[string]string{"index.html": "<title>two</title>"})
	s.want(s.ask("GET", base, "If-None-Match", `"`+string(tree.Hash([]byte("<title>one</title>")))+`"`), 200, "two")
	s.want(s.ask("GET", pinned), 200, "one")
	s.want(s.ask("GET", s.VersionURL(s.game, second)), 200, "two")
	if err := s.store.SetCurrent(t.Context(), s.game, s.first); err != nil {
		t.Fatal(err)
	}
	s.want(s.ask("GET", base), 200, "one")
}

func TestAVersionOfAnotherGameIsNotFound(t *testing.T) {
	s := newStage(t, false)
	mine := s.game
	g := dreamcore.Game{ID: dreamcore.NewGameID(), Creator: "ann"}
	if err := s.store.CreateGame(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.want(s.ask("GET", s.URL(g.ID)), 404, "still being made")
	for range 2 { // from the store and from memory
		s.want(s.ask("GET", s.VersionURL(g.ID, s.first)), 404, "")
		s.want(s.ask("GET", s.VersionURL(mine, s.first)), 200, "one")
	}
}

func TestP01TheGameHostSetsAndAcceptsNoCookies(t *testing.T) {
	for _, wildcard := range []bool{false, true} {
		s := newStage(t, wildcard)
		for _, url := range []string{s.URL(s.game), s.URL(s.game) + "js/game.js", s.URL(s.game) + "nothing", "http://games.test:81/"} {
			plain := s.ask("GET", url)
			r := s.ask("GET", url, "Cookie", "creator=ann; lang=ja")
			if len(r.Header["Set-Cookie"]) != 0 {
				t.Errorf("%s sets %v", url, r.Header["Set-Cookie"])
			}
			if a, b := body(t, plain), body(t, r); plain.StatusCode != r.StatusCode || a != b {
				t.Errorf("%s: a cookie changes the answer", url)
			}
		}
	}
}

func TestP02GamesShareNoOrigin(t *testing.T) {
	s := newStage(t, false)
	for _, path := range []string{"", "js/game.js", "a%20b%26c.png"} {
		csp := s.ask("GET", s.URL(s.game)+path).Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "sandbox ") || strings.Contains(csp, "allow-same-origin") {
			t.Errorf("the origin of %q is not opaque: %s", path, csp)
		}
	}
	own := newStage(t, true)
	if a, b := own.URL("aaaaaaaaaaaaaaaa"), own.URL("bbbbbbbbbbbbbbbb"); a == b || !strings.HasPrefix(a, "http://aaaaaaaaaaaaaaaa.games.test:81/") {
		t.Errorf("%s and %s", a, b)
	}
	own.want(own.ask("GET", own.URL(own.game)), 200, "one")
	own.want(own.ask("GET", own.VersionURL(own.game, own.first)+"js/game.js"), 200, "let x")
	if csp := own.ask("GET", own.URL(own.game)).Header.Get("Content-Security-Policy"); !strings.Contains(csp, "allow-same-origin") {
		t.Errorf("a game on its own origin has no storage: %s", csp)
	}
	// A link from before the wildcard was switched on still arrives.
	r := own.ask("GET", "http://games.test:81/g/"+string(own.game)+"/js/game.js")
	if r.StatusCode != 302 || r.Header.Get("Location") != own.URL(own.game)+"js/game.js" {
		t.Errorf("%d %s", r.StatusCode, r.Header.Get("Location"))
	}
}

func TestP03ServiceWorkersAreRefused(t *testing.T) {
	for _, wildcard := range []bool{false, true} {
		s := newStage(t, wildcard)
		for _, value := range []string{"script", "Script"} {
			r := s.ask("GET", s.URL(s.game)+"js/game.js", "Service-Worker", value)
			if r.Header.Get("Service-Worker-Allowed") != "" || strings.Contains(body(t, r), "let x") || r.StatusCode != 403 {
				t.Errorf("%d", r.StatusCode)
			}
		}
		if !strings.Contains(s.log.String(), "reason=service_worker") {
			t.Error("not written down")
		}
	}
}

func TestP05TheSandboxLetsNothingOut(t *testing.T) {
	for _, wildcard := range []bool{false, true} {
		s := newStage(t, wildcard)
		csp := s.ask("GET", s.URL(s.game)).Header.Get("Content-Security-Policy")
		for _, policy := range []string{csp, s.FrameSandbox()} {
			if !strings.Contains(policy, "allow-scripts") {
				t.Errorf("games cannot run: %s", policy)
			}
			for _, token := range []string{"allow-top-navigation", "allow-popups", "allow-downloads", "allow-forms", "allow-modals", "allow-presentation"} {
				if strings.Contains(policy, token) {
					t.Errorf("%s in %s", token, policy)
				}
			}
		}
	}
}

func TestP06TheHeadersOfEveryFile(t *testing.T) {
	s := newStage(t, false)
	for path, kind := range map[string]string{"": "text/html; charset=utf-8", "js/game.js": "text/javascript; charset=utf-8", "a%20b%26c.png": "image/png"} {
		h := s.ask("GET", s.URL(s.game)+path).Header
		for name, want := range map[string]string{
			"Content-Type": kind, "X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": "*",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "cross-origin",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s %s: %q, want %q", path, name, got, want)
			}
		}
		csp := "; " + h.Get("Content-Security-Policy") + ";"
		for _, want := range []string{
			"default-src 'self' 'unsafe-inline' data: blob:", "connect-src 'self' data: blob:", "form-action 'none'",
			"base-uri 'none'", "frame-src 'none'", "object-src 'none'",
		} {
			if !strings.Contains(csp, "; "+want+";") {
				t.Errorf("%s lacks %q", csp, want)
			}
		}
		if strings.Contains(csp, "frame-ancestors") || h.Get("X-Frame-Options") != "" {
			t.Error("the game cannot be embedded elsewhere")
		}
		for _, power := range []string{"camera=()", "microphone=()", "geolocation=()", "usb=()", "payment=()"} {
			if !strings.Contains(h.Get("Permissions-Policy"), power) {
				t.Errorf("%s is not denied", power)
			}
		}
	}
}

func TestP06ReportsAreRecorded(t *testing.T) {
	s := newStage(t, false)
	send := func(body string) int {
		r := httptest.NewRequest("POST", "http://games.test:81/.report", strings.NewReader(body))
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	code := send(`{"csp-report":{"document-uri":"http://games.test:81/g/x/","blocked-uri":"http://evil.test/\n\u001b[31m","effective-directive":"img-src"}}`)
	line := s.log.String()
	if code != 204 || strings.Count(line, "\n") != 1 || !strings.Contains(line, "evil.test") || strings.Contains(line, "\x1b") {
		t.Errorf("%d, %q", code, line)
	}
	for _, bad := range []string{"", "{", "[]", strings.Repeat("x", 20<<10)} {
		if code := send(bad); code != 400 {
			t.Errorf("%.10q: %d", bad, code)
		}
	}
	flood := map[int]int{}
	for range 2000 {
		flood[send("{")]++
	}
	if flood[429] == 0 {
		t.Errorf("a flood is written down: %v", flood)
	}
}

func TestP10AWrongHostIsMisdirected(t *testing.T) {
	for _, wildcard := range []bool{false, true} {
		s := newStage(t, wildcard)
		for _, host := range []string{
			"localhost:80", "games.test", "games.test:82", "evil.test", "x.games.test:81", "games.test:81.evil.test", "",
			"aaaaaaaaaaaaaaaa.evil.test", "a.aaaaaaaaaaaaaaaa.games.test:81",
		} {
			if r := s.ask("GET", s.URL(s.game), "Host", host); r.StatusCode != 421 || strings.Contains(body(t, r), "<title>one") {
				t.Errorf("wildcard %v, host %q: %d", wildcard, host, r.StatusCode)
			}
		}
	}
}

func TestP14ATakedownIsSeenAtOnce(t *testing.T) {
	s := newStage(t, false)
	s.want(s.ask("GET", s.VersionURL(s.game, s.first)), 200, "one")
	if err := s.store.RemoveGame(t.Context(), s.game); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{s.URL(s.game), s.URL(s.game) + "js/game.js", s.VersionURL(s.game, s.first), s.VersionURL(s.game, s.first) + "js/game.js"} {
		r := s.ask("GET", url)
		if r.Header.Get("Clear-Site-Data") != `"cache", "storage"` || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", url, r.Header)
		}
		s.want(r, 410, "taken down")
	}
}

func TestNoticesSpeakTheReadersLanguage(t *testing.T) {
	s := newStage(t, false)
	for lang, want := range map[string]string{"en-GB": "No game lives here", "ja": "ここにゲームはありません", "zh-CN,en": "这里没有游戏"} {
		r := s.ask("GET", "http://games.test:81/g/zzzzzzzzzzzzzzzz/", "Accept-Language", lang)
		if !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Error("a notice may load something")
		}
		s.want(r, 404, want)
	}
}

func TestAMissingBlobIsAFaultOfOurs(t *testing.T) {
	s := newStage(t, false)
	s.Host.blobs = emptyBlobs(t)
	s.want(s.ask("GET", s.URL(s.game)), 500, "our fault")
	if !strings.Contains(s.log.String(), "level=ERROR") {
		t.Error("not written down")
	}
}

func emptyBlobs(t *testing.T) *fs.Store {
	b, err := fs.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestConfig(t *testing.T) {
	for _, origin := range []string{"", "localhost:8081", "ftp://x", "http://", "http://x/path", "javascript:alert(1)"} {
		if _, err := New(Config{Origin: origin}, nil, nil, nil); dreamcore.CodeOf(err) != dreamcore.Invalid {
			t.Errorf("%q: %v", origin, err)
		}
	}
}

func TestTheVersionCacheIsBounded(t *testing.T) {
	c := newVersionCache(2)
	c.put("a", cachedVersion{})
	c.put("b", cachedVersion{})
	c.get("a")
	c.put("c", cachedVersion{})
	_, a := c.get("a")
	_, b := c.get("b")
	if !a || b || len(c.all) != 2 {
		t.Errorf("%v", c.all)
	}
}
