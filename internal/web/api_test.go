package web

import (
	"encoding/json"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/text"
)

func TestAPIMakesAndChangesGames(t *testing.T) {
	s := newStage(t)
	p := s.person()
	res, body := p.json("/api/games", `{"wish":"ネコが空を飛ぶゲーム","lang":"ja"}`)
	var w WorkJSON
	if err := json.Unmarshal([]byte(body), &w); err != nil || res.StatusCode != 201 {
		t.Fatalf("%d %s %v", res.StatusCode, body, err)
	}
	if w.Job.State != dreamcore.Queued || w.Game.PlayURL != s.PlayURL(w.Game.ID) || w.Game.GameURL != s.host.URL(w.Game.ID) || w.Game.PageURL != s.GameURL(w.Game.ID) {
		t.Errorf("%+v", w)
	}
	if res.Header.Get("Location") != "/api/jobs/"+string(w.Job.ID) {
		t.Error(res.Header)
	}
	j, err := s.db.Job(t.Context(), w.Job.ID)
	if err != nil {
		t.Fatal(err)
	}
	v := s.publish(j, "<title>one</title>")
	for path, want := range map[string][]string{
		"/api/jobs/" + string(j.ID):       {`"state":"published"`, `"version":"` + string(v.ID) + `"`},
		"/api/games/" + string(w.Game.ID): {`"number":1`, `"title":"one"`, `"imageDigest":"sha256:feed"`},
	} {
		res, body := p.get(path)
		for _, part := range want {
			if res.StatusCode != 200 || !strings.Contains(body, part) {
				t.Errorf("%s lacks %s: %d %s", path, part, res.StatusCode, body)
			}
		}
		if strings.Contains(body, string(j.Creator)) {
			t.Errorf("%s tells the creator's id", path)
		}
	}
	res, body = p.json("/api/games/"+string(w.Game.ID)+"/changes", `{"wish":"faster"}`)
	if err := json.Unmarshal([]byte(body), &w); err != nil || res.StatusCode != 201 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	if res, body := p.json("/api/games/"+string(w.Game.ID)+"/changes", `{"wish":"slower"}`); res.StatusCode != 409 || !strings.Contains(body, `"code":"conflict"`) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if res, body := p.json("/api/jobs/"+string(w.Job.ID)+"/cancel", ""); res.StatusCode != 200 || !strings.Contains(body, `"state":"cancelled"`) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if res, body := p.json("/api/games/"+string(w.Game.ID)+"/restore", `{"version":"`+string(v.ID)+`"}`); res.StatusCode != 200 || !strings.Contains(body, string(v.ID)) {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if _, body := p.get("/api/health"); !strings.Contains(body, `"name":"dreamcore"`) {
		t.Error(body)
	}
}

func TestAPIRefusesWhatItDoesNotKnow(t *testing.T) {
	s := newStage(t)
	p := s.person()
	for _, body := range []string{"", "{", "[]", `"x"`, `{"wish":1}`, `{"wish":"a","extra":1}`, `{"wish":"a"} {}`, `{"wish":"a"}x`, `{"wish":""}`, `{"wish":"` + strings.Repeat("a", 20000) + `"}`, strings.Repeat(" ", MaxBodyBytes+1)} {
		res, answer := p.json("/api/games", body, "Accept-Language", "zh")
		if res.StatusCode != 422 || !strings.HasPrefix(answer, `{"error":{"code":"invalid","message":"`) {
			t.Errorf("%.40q: %d %s", body, res.StatusCode, answer)
		}
	}
	if _, answer := p.json("/api/games", `{"wish":"","lang":"zh"}`); !strings.Contains(answer, text.T("zh", "studio.wish_empty")) {
		t.Error(answer)
	}
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
		res := p.do("POST", "/api/games", strings.NewReader(`{"wish":"a cat"}`), "Content-Type", kind)
		if res.StatusCode != 422 {
			t.Errorf("%q: %d", kind, res.StatusCode)
		}
	}
	if games, _, err := s.db.Gallery(t.Context(), 10, ""); err != nil || len(games) != 0 {
		t.Error(games, err)
	}
}
