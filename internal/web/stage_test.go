package web

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	blobfs "dreamcore/internal/blob/fs"
	"dreamcore/internal/gamehost"
	"dreamcore/internal/publish"
	"dreamcore/internal/store/sqlite"
	"dreamcore/internal/studio"
	"dreamcore/internal/tree"
)

// testStage is the app and the game host on two real listeners over a real
// store and real blobs; only the work of a job is done by hand.
type testStage struct {
	*App
	t      *testing.T
	db     *sqlite.Store
	pub    *publish.Publisher
	app    string // origin
	host   *gamehost.Host
	log    *lines
	config Config

	games http.HandlerFunc // what answers for the game host
}

// lines is a log that may be written from many goroutines.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// noQueue leaves jobs queued; cancelling is a change in the store.
type noQueue struct{ db *sqlite.Store }

func (noQueue) Enqueue(context.Context, dreamcore.JobID) error { return nil }

func (noQueue) Abandon(context.Context, dreamcore.JobID) error { return nil }

func (q noQueue) Cancel(ctx context.Context, id dreamcore.JobID) error {
	_, err := q.db.UpdateJob(ctx, id, 0, func(j *dreamcore.Job) error { j.State = dreamcore.Cancelled; return nil })
	return err
}

func newStage(t *testing.T, change ...func(*Config)) *testStage {
	t.Helper()
	return openStage(t, false, change...)
}

// newWildcardStage gives each game an origin of its own.
func newWildcardStage(t *testing.T) *testStage {
	t.Helper()
	return openStage(t, true)
}

func openStage(t *testing.T, wildcard bool, change ...func(*Config)) *testStage {
	t.Helper()
	dir := t.TempDir()
	s := &testStage{t: t, log: &lines{}}
	var err error
	if s.db, err = sqlite.Open(t.Context(), filepath.Join(dir, "s.db")); err != nil {
		t.Fatal(err)
	}
	blobs, err := blobfs.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	appServer, gameServer := listen(t), listen(t)
	s.app = "http://" + appServer.Listener.Addr().String()
	games := gamehost.Config{Origin: "http://" + gameServer.Listener.Addr().String(), Wildcard: wildcard}
	if wildcard { // browsers resolve *.localhost by themselves
		games.Origin = strings.Replace(games.Origin, "127.0.0.1", "localhost", 1)
	}
	s.host, err = gamehost.New(games, s.db, blobs, log)
	if err != nil {
		t.Fatal(err)
	}
	desk := studio.New(studio.Config{Store: s.db, Queue: noQueue{s.db}, Canceller: noQueue{s.db}, PerCreator: 5, Queued: 100, Log: log})
	s.config = Config{Origin: s.app, PostsPerMinute: 1000}
	for _, f := range change {
		f(&s.config)
	}
	if s.App, err = New(s.config, desk, s.db, blobs, s.host, log); err != nil {
		t.Fatal(err)
	}
	s.pub = &publish.Publisher{Blobs: blobs, Versions: s.db, Log: log}
	appServer.Config.Handler = s.App
	appServer.Start()
	// The handler may be wrapped by a test until the first game is asked for.
	gameServer.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.games(w, r) })
	s.games = s.host.ServeHTTP
	gameServer.Start()
	t.Cleanup(func() {
		s.Stop()
		appServer.Close()
		gameServer.Close()
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
		if err := blobs.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func listen(t *testing.T) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &httptest.Server{Listener: l, Config: &http.Server{}}
}

// person is a browser with its own cookies that follows no redirect by itself.
type person struct {
	s      *testStage
	client *http.Client
}

func (s *testStage) person() *person {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &person{s, &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// do sends a request; headers come in pairs.
func (p *person) do(method, path string, body io.Reader, headers ...string) *http.Response {
	p.s.t.Helper()
	// Nothing here takes long; what hangs must fail, and say where.
	ctx, cancel := context.WithTimeout(p.s.t.Context(), 2*time.Minute)
	p.s.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, p.s.app+path, body)
	if err != nil {
		p.s.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := p.client.Do(r)
	if err != nil {
		p.s.t.Fatal(err)
	}
	p.s.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func (p *person) get(path string, headers ...string) (*http.Response, string) {
	p.s.t.Helper()
	res := p.do("GET", path, nil, headers...)
	return res, read(p.s.t, res)
}

func (p *person) post(path string, form url.Values, headers ...string) (*http.Response, string) {
	p.s.t.Helper()
	res := p.do("POST", path, strings.NewReader(form.Encode()), append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
	return res, read(p.s.t, res)
}

func (p *person) json(path, body string, headers ...string) (*http.Response, string) {
	p.s.t.Helper()
	res := p.do("POST", path, strings.NewReader(body), append([]string{"Content-Type", "application/json"}, headers...)...)
	return res, read(p.s.t, res)
}

func decode[T any](t *testing.T, data string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}

func jobID(s string) dreamcore.JobID { return dreamcore.JobID(s) }

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// wish makes a game through the form and returns it with its queued job.
func (p *person) wish(wish string) (dreamcore.Game, dreamcore.Job) {
	t := p.s.t
	t.Helper()
	res, body := p.post("/games", url.Values{"wish": {wish}})
	id, found := strings.CutPrefix(res.Header.Get("Location"), "/game/")
	if res.StatusCode != http.StatusSeeOther || !found {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	g, err := p.s.db.Game(t.Context(), dreamcore.GameID(id))
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := p.s.db.JobsOf(t.Context(), g.ID, 1)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%v, %v", jobs, err)
	}
	return g, jobs[0]
}

func (s *testStage) update(id dreamcore.JobID, change func(*dreamcore.Job)) dreamcore.Job {
	s.t.Helper()
	j, err := s.db.UpdateJob(s.t.Context(), id, 0, func(j *dreamcore.Job) error { change(j); return nil })
	if err != nil {
		s.t.Fatal(err)
	}
	return j
}

func (s *testStage) run(id dreamcore.JobID) dreamcore.Job {
	s.t.Helper()
	return s.update(id, func(j *dreamcore.Job) { j.State, j.Attempt = dreamcore.Running, 1 })
}

func (s *testStage) event(id dreamcore.JobID, kind dreamcore.EventKind, key, text string) {
	s.t.Helper()
	if _, err := s.db.AppendEvent(s.t.Context(), dreamcore.Event{Job: id, Kind: kind, Key: key, Text: text}); err != nil {
		s.t.Fatal(err)
	}
}

const onePixel = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89" +
	"\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"

// publish ends a queued job with a version of one page.
func (s *testStage) publish(j dreamcore.Job, page string) dreamcore.Version {
	s.t.Helper()
	tr, err := tree.New([]tree.File{{Path: "index.html", Data: []byte(page)}}, tree.DefaultLimits())
	if err != nil {
		s.t.Fatal(err)
	}
	ok := dreamcore.Report{Verdict: dreamcore.Pass, Version: "1"}
	v, err := s.pub.Publish(s.t.Context(), publish.Request{Job: s.run(j.ID), Tree: tr, Evidence: dreamcore.Evidence{
		Check: ok, Level: ok, Play: dreamcore.PlayReport{Report: ok, Motion: dreamcore.Moves, Poster: "p.png", Touch: "t.png"},
		ImageDigest: "sha256:feed", AgentName: "pi", Pictures: map[string][]byte{"p.png": []byte(onePixel), "t.png": []byte(onePixel)},
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// published makes a person's game with one version.
func (p *person) published(wish, page string) (dreamcore.Game, dreamcore.Version) {
	p.s.t.Helper()
	g, j := p.wish(wish)
	v := p.s.publish(j, page)
	g, err := p.s.db.Game(p.s.t.Context(), g.ID)
	if err != nil {
		p.s.t.Fatal(err)
	}
	return g, v
}
