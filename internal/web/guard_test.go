package web

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"dreamcore"
)

func TestW01CrossOriginPostsAreForbidden(t *testing.T) {
	s := newStage(t)
	ann := s.person()
	g, v := ann.published("a cat", "<title>one</title>")
	_, j := ann.wish("another")
	before, err := s.db.GamesBy(t.Context(), g.Creator, 10)
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"wish": {"x"}, "version": {string(v.ID)}}
	for _, r := range routeTable() {
		method, path := concrete(r.pattern, g, j)
		if method != http.MethodPost {
			continue
		}
		for name, headers := range map[string][]string{
			"another site":            {"Sec-Fetch-Site", "cross-site", "Origin", "http://evil.test"},
			"the games, another port": {"Sec-Fetch-Site", "same-site", "Origin", s.host.FrameSource()},
			"an opaque origin":        {"Origin", "null"},
			"an old browser":          {"Origin", "http://evil.test"},
			"origin before site":      {"Sec-Fetch-Site", "cross-site", "Origin", s.app},
		} {
			if res, _ := ann.post(path, form, headers...); res.StatusCode != http.StatusForbidden {
				t.Errorf("%s from %s: %d", path, name, res.StatusCode)
			}
		}
	}
	after, err := s.db.GamesBy(t.Context(), g.Creator, 10)
	if err != nil || len(after) != len(before) {
		t.Errorf("%d games became %d, %v", len(before), len(after), err)
	}
	if j, err = s.db.Job(t.Context(), j.ID); err != nil || j.State != dreamcore.Queued {
		t.Errorf("the job is %s, %v", j.State, err)
	}
	if !strings.Contains(s.log.String(), "reason=cross_origin") {
		t.Error("not written down")
	}
	// The twin: the same forms from our own page, and from a program, work.
	if res, _ := ann.post("/job/"+string(j.ID)+"/cancel", nil, "Sec-Fetch-Site", "same-origin", "Origin", s.app); res.StatusCode != 303 {
		t.Errorf("own page: %d", res.StatusCode)
	}
	if res, _ := ann.json("/api/games", `{"wish":"a dog"}`); res.StatusCode != 201 {
		t.Errorf("a program: %d", res.StatusCode)
	}
}

// concrete fills a pattern with a game and a job.
func concrete(pattern string, g dreamcore.Game, j dreamcore.Job) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.NewReplacer("{game}", string(g.ID), "{job}", string(j.ID), "{number}", "1", "{name}", "p.png",
		"{version}", string(g.Current), "{which}", "poster", "{file}", "app.js", "{$}", "").Replace(path)
}

// TestW02OwnershipMatrix tries each address of the table as nobody, as another
// creator and as the owner.
func TestW02OwnershipMatrix(t *testing.T) {
	s := newStage(t)
	ann, bob, nobody := s.person(), s.person(), s.person()
	g, _ := ann.published("a cat", "<title>one</title>")
	if res, _ := ann.post("/game/"+string(g.ID)+"/change", url.Values{"wish": {"faster"}}); res.StatusCode != 303 {
		t.Fatal(res.StatusCode)
	}
	jobs, err := s.db.JobsOf(t.Context(), g.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	bob.wish("bob is somebody, too")
	tried := 0
	for _, r := range routeTable() {
		method, path := concrete(r.pattern, g, jobs[0])
		ask := func(p *person) int {
			if method == http.MethodGet {
				if strings.HasSuffix(path, "/events") {
					return s.streamed(p, path)
				}
				res, _ := p.get(path)
				return res.StatusCode
			}
			if strings.HasPrefix(path, "/api/") {
				res, _ := p.json(path, `{"wish":"x"}`)
				return res.StatusCode
			}
			res, _ := p.post(path, url.Values{"wish": {"x"}, "version": {string(g.Current)}})
			return res.StatusCode
		}
		if r.owner != (strings.Contains(path, string(g.ID)) || strings.Contains(path, string(jobs[0].ID))) &&
			!strings.HasPrefix(path, "/play/") && !strings.HasPrefix(path, "/embed/") && !strings.HasPrefix(path, "/picture/") {
			t.Errorf("%s: who may see it is not what its address says", r.pattern)
		}
		if !r.owner {
			continue
		}
		tried++
		for name, p := range map[string]*person{"nobody": nobody, "another creator": bob} {
			if status := ask(p); status != http.StatusNotFound {
				t.Errorf("%s as %s: %d", r.pattern, name, status)
			}
		}
		if j, err := s.db.Job(t.Context(), jobs[0].ID); err != nil || j.State != dreamcore.Queued {
			t.Fatalf("%s: a stranger changed the job to %s, %v", r.pattern, j.State, err)
		}
		if strings.HasSuffix(path, "/cancel") {
			continue // the owner's turn comes below: it ends the job
		}
		if status := ask(ann); status == http.StatusNotFound || status >= 500 {
			t.Errorf("%s as its owner: %d", r.pattern, status)
		}
	}
	if tried < 11 {
		t.Errorf("only %d addresses were tried", tried)
	}
	if res, _ := ann.json("/api/jobs/"+string(jobs[0].ID)+"/cancel", ""); res.StatusCode != 200 {
		t.Errorf("the owner cannot cancel: %d", res.StatusCode)
	}
}

// streamed is the status of a stream, which is then left.
func (s *testStage) streamed(p *person, path string) int {
	res := p.do("GET", path, nil)
	if err := res.Body.Close(); err != nil {
		s.t.Error(err)
	}
	return res.StatusCode
}

func TestRatesAndPlaces(t *testing.T) {
	p := newPlaces(3, 2)
	leave, ok := p.take("a")
	_, ok2 := p.take("a")
	_, third := p.take("a")
	_, other := p.take("b")
	_, full := p.take("c")
	if !ok || !ok2 || third || !other || full {
		t.Error(ok, ok2, third, other, full)
	}
	leave()
	if _, ok := p.take("c"); !ok {
		t.Error("a place that was left is not free")
	}
}

func TestABodyThatTricklesInIsCutOff(t *testing.T) {
	s := newStage(t, func(c *Config) { c.BodyTime = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.app, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "POST /games HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nwish=",
		strings.TrimPrefix(s.app, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	// The end of the stream comes by itself: nothing more is sent from here.
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408") {
		t.Errorf("%.100q, %v", answer, err)
	}
	if games, _, err := s.db.Gallery(t.Context(), 10, ""); err != nil || len(games) != 0 {
		t.Error(games, err)
	}
}
