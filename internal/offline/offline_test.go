package offline_test

import (
	"bytes"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/offline"
	"dreamcore/internal/workspace"
)

const testKey = "test-key"

func serve(t *testing.T, c offline.Config) *httptest.Server {
	t.Helper()
	c.Key = dreamcore.NewSecret(testKey)
	m, err := offline.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	return s
}

func newAgent(t *testing.T, s *httptest.Server, d dialect) *agent {
	t.Helper()
	return &agent{t: t, url: s.URL, dialect: d, box: newBox(t), ids: map[string]bool{}}
}

// The whole of a job through every protocol and every set of tools: the game
// passes the real checker and level validator and is the game of the wish.
func TestJob(t *testing.T) {
	s := serve(t, offline.Config{})
	for _, test := range []struct {
		name    string
		dialect dialect
		wish    string
		tag     dreamcore.TemplateTag
		hero    string
		place   string
	}{
		{"messages pi", anthropicDialect{piTools}, "a game where a cat flies through the sky", "2d/sky-flyer", "cat", ""},
		{"messages claude", anthropicDialect{claudeTools}, "迷路里找宝藏的小狗", "2d/maze-treasure", "dog", ""},
		{"chat pi", chatDialect{piTools}, "ネコが空を飛ぶゲーム", "2d/sky-flyer", "cat", ""},
		{"responses pi", responsesDialect{piTools}, "忍者が屋根を走るゲーム", "2d/run-and-jump", "ninja", ""},
		{"responses shell only", responsesDialect{shellTools}, "an octopus that collects pearls under the sea", "2d/sky-flyer", "octopus", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := newAgent(t, s, test.dialect)
			tag, last := a.job(test.wish)
			if tag != test.tag {
				t.Errorf("the template is %s, want %s", tag, test.tag)
			}
			if f := a.box.judge(); len(f) > 0 {
				t.Errorf("findings: %v", f)
			}
			assertTransformed(t, a.box, tag)
			var game struct {
				Hero  struct{ Name dreamcore.Localized }
				Title dreamcore.Localized
			}
			mustJSON(t, a.box.file("game.json"), &game)
			if game.Hero.Name["en"] != test.hero {
				t.Errorf("the hero is %v, want %s", game.Hero.Name, test.hero)
			}
			if lang := dreamcore.DetectLang(test.wish); !strings.Contains(last, game.Title[lang]) {
				t.Errorf("the last words do not name the title %q: %s", game.Title[lang], last)
			}
			lang := dreamcore.DetectLang(test.wish)
			if page := html.UnescapeString(a.box.file("index.html")); !strings.Contains(page, "<title>"+game.Title[lang]+"</title>") || !strings.Contains(page, `<html lang="`+string(lang)) {
				t.Errorf("the page has another title or language than %q:\n%.200s", game.Title[lang], page)
			}
			if spec := a.box.file("spec.md"); !strings.Contains(spec, test.wish) {
				t.Errorf("the spec does not hold the wish:\n%s", spec)
			}
			for _, tool := range []string{"check ", "level ", "playtest ", "image order", "image wait"} {
				if !strings.Contains(strings.Join(a.box.log, "\n"), tool) {
					t.Errorf("the agent never ran %s", tool)
				}
			}
		})
	}
}

// assertTransformed holds a game against its template: hero's picture, palette,
// at least two numbers and a rule differ.
func assertTransformed(t *testing.T, b *box, tag dreamcore.TemplateTag) {
	t.Helper()
	tmpl, ok := library(t).Get(tag)
	if !ok {
		t.Fatalf("no template %s", tag)
	}
	was := map[string][]byte{}
	for _, f := range tmpl.Files() {
		was[f.Path] = f.Data
	}
	hero := tmpl.Change.Hero.Picture
	if bytes.Equal(was[hero], []byte(b.file(hero))) {
		t.Error("the hero's picture is the template's")
	}
	type data struct {
		Palette map[string]string
		Numbers map[string]float64
		Rules   map[string]any
	}
	var old, now data
	mustJSON(t, string(was["game.json"]), &old)
	mustJSON(t, b.file("game.json"), &now)
	if n := differing(old.Palette, now.Palette); n < len(old.Palette) {
		t.Errorf("only %d of %d colours differ", n, len(old.Palette))
	}
	if n := differing(old.Numbers, now.Numbers); n < 2 {
		t.Errorf("%d numbers differ: %v, %v", n, old.Numbers, now.Numbers)
	}
	if n := differing(old.Rules, now.Rules); n < 1 {
		t.Errorf("no rule differs: %v", now.Rules)
	}
}

func differing[V comparable](a, b map[string]V) int {
	n := 0
	for k := range a {
		if a[k] != b[k] {
			n++
		}
	}
	return n
}

func mustJSON(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// A sabotaged build fails the judgements and the repair turn mends it, from
// nothing but the conversation.
func TestRepair(t *testing.T) {
	for _, mode := range []offline.Sabotage{offline.SabotageBreak, offline.SabotageVanish} {
		t.Run(string(mode), func(t *testing.T) {
			s := serve(t, offline.Config{Sabotage: mode})
			a := newAgent(t, s, anthropicDialect{piTools})
			tag, _ := a.job("a racing game on the moon")
			findings := a.box.judge()
			if len(findings) == 0 {
				t.Fatal("the sabotaged game passes")
			}
			a.say(workspace.RepairPrompt(dreamcore.English, findings))
			if f := a.box.judge(); len(f) > 0 {
				t.Errorf("after the repair: %v", f)
			}
			assertTransformed(t, a.box, tag)
		})
	}
}

// A deaf game passes the checker: only its page tells. The playtest's finding
// has it put right.
func TestRepairOfADeafGame(t *testing.T) {
	s := serve(t, offline.Config{Sabotage: offline.SabotageDeaf})
	a := newAgent(t, s, chatDialect{piTools})
	a.job("a game where a cat flies through the sky")
	if !strings.Contains(a.box.file("index.html"), "stopImmediatePropagation") {
		t.Fatal("the game is not deaf")
	}
	a.say(workspace.RepairPrompt(dreamcore.English, []dreamcore.Finding{{Code: "no_response", Severity: dreamcore.Fail, Message: "No key moves anything."}}))
	page := a.box.file("index.html")
	if strings.Contains(page, "stopImmediatePropagation") || !strings.Contains(page, "Flying Cat") {
		t.Errorf("after the repair the page is\n%s", page)
	}
}

func TestRuinStaysRuined(t *testing.T) {
	s := serve(t, offline.Config{Sabotage: offline.SabotageRuin})
	a := newAgent(t, s, chatDialect{piTools})
	a.job("a game where a cat flies through the sky")
	for range 2 {
		findings := a.box.judge()
		if len(findings) == 0 {
			t.Fatal("the ruined game passes")
		}
		a.say(workspace.RepairPrompt(dreamcore.English, findings))
	}
	if len(a.box.judge()) == 0 {
		t.Error("the ruined game passes in the end")
	}
}

// A second repair turn gives the play of the template back and keeps the looks.
func TestSecondRepairRetreats(t *testing.T) {
	s := serve(t, offline.Config{})
	a := newAgent(t, s, anthropicDialect{piTools})
	tag, _ := a.job("a racing game on the moon")
	finding := []dreamcore.Finding{{Code: "goal_unreachable", Severity: dreamcore.Fail, Message: "The end cannot be reached."}}
	a.say(workspace.RepairPrompt(dreamcore.English, finding))
	a.say(workspace.RepairPrompt(dreamcore.English, finding))
	tmpl, _ := library(t).Get(tag)
	type data struct {
		Numbers map[string]float64
		Hero    struct{ Name dreamcore.Localized }
	}
	var old, now data
	for _, f := range tmpl.Files() {
		if f.Path == "game.json" {
			mustJSON(t, string(f.Data), &old)
		}
	}
	mustJSON(t, a.box.file("game.json"), &now)
	if differing(old.Numbers, now.Numbers) != 0 {
		t.Errorf("the numbers are %v, the template's %v", now.Numbers, old.Numbers)
	}
	if now.Hero.Name["en"] == old.Hero.Name["en"] {
		t.Error("the hero is the template's again")
	}
}

func TestEdit(t *testing.T) {
	s := serve(t, offline.Config{})
	a := newAgent(t, s, anthropicDialect{piTools})
	a.job("a game where a cat flies through the sky")
	var before, after struct {
		Numbers map[string]float64
		Rules   map[string]bool
		Hero    struct{ Name dreamcore.Localized }
	}
	mustJSON(t, a.box.file("game.json"), &before)
	hero := a.box.file("assets/hero.png")
	last := a.say(workspace.EditPrompt(dreamcore.English, "make the cat faster and blue, and more foes", "move-2d", nil))
	mustJSON(t, a.box.file("game.json"), &after)
	if after.Numbers["speed"] <= before.Numbers["speed"] || after.Numbers["foes"] <= before.Numbers["foes"] {
		t.Errorf("numbers before %v, after %v", before.Numbers, after.Numbers)
	}
	if a.box.file("assets/hero.png") == hero || after.Hero.Name["en"] != "cat" {
		t.Error("the cat is not another picture of a cat")
	}
	if f := a.box.judge(); len(f) > 0 {
		t.Errorf("findings: %v (%s)", f, last)
	}
}

// A picture that fails is tried once more; one that fails again is owned up to.
func TestFailingPictures(t *testing.T) {
	for _, failures := range []string{"", "x", "xx"} {
		a := newAgent(t, serve(t, offline.Config{}), chatDialect{piTools})
		if err := os.WriteFile(filepath.Join(a.box.root, "image-failures"), []byte(failures), 0o644); err != nil {
			t.Fatal(err)
		}
		_, last := a.job("a game where a cat flies through the sky")
		orders, waits := 0, 0
		for _, l := range a.box.log {
			orders += strings.Count(l, "image order 'a flying cat")
			waits += strings.Count(l, "image wait")
		}
		want := min(len(failures)+1, 2)
		if orders != want || waits != want || strings.Contains(last, "could not be made") != (len(failures) == 2) {
			t.Errorf("%d failures: ordered %d times, waited %d times, said %q", len(failures), orders, waits, last)
		}
	}
}

// A judgement that could not judge is no pass.
func TestUnjudged(t *testing.T) {
	t.Setenv("PLAYTEST_CANNOT", "1")
	a := newAgent(t, serve(t, offline.Config{}), chatDialect{piTools})
	if _, last := a.job("a game where a cat flies through the sky"); !strings.Contains(last, "could not judge: playtest") {
		t.Errorf("it says %q", last)
	}
}

// What is not understood changes nothing and says so.
func TestEditNotUnderstood(t *testing.T) {
	s := serve(t, offline.Config{})
	a := newAgent(t, s, chatDialect{piTools})
	a.job("a game where a cat flies through the sky")
	before, used := a.box.file("game.json"), len(a.box.log)
	last := a.say(workspace.EditPrompt(dreamcore.English, "hmm, well", "move-2d", nil))
	if a.box.file("game.json") != before || !strings.Contains(last, "did not understand") {
		t.Errorf("it says %q", last)
	}
	for _, l := range a.box.log[used:] {
		if strings.HasPrefix(l, "write") || strings.HasPrefix(l, "bash") {
			t.Errorf("it did %s", l)
		}
	}
}

// Nothing was delivered: the turn still leaves a game that passes.
func TestBuildWithoutTemplate(t *testing.T) {
	s := serve(t, offline.Config{})
	a := newAgent(t, s, anthropicDialect{piTools})
	a.say(workspace.DesignPrompt("en", "a cat that collects stars", ""))
	if spec := a.box.file("spec.md"); !strings.HasPrefix(spec, "template: none\ncontrols: move-2d\n") {
		t.Fatalf("the spec begins %q", spec[:60])
	}
	a.say(workspace.BuildPrompt("en", "a cat that collects stars", "", "move-2d"))
	if f := a.box.judge(); len(f) > 0 {
		t.Errorf("findings: %v", f)
	}
	if !strings.Contains(a.box.file("index.html"), "Cat") {
		t.Error("the game has no cat")
	}
}

// The state is all in the request: another server goes on in the middle of a
// turn, and the same request gets the same bytes.
func TestStateless(t *testing.T) {
	a := newAgent(t, serve(t, offline.Config{}), anthropicDialect{piTools})
	a.history = append(a.history, a.dialect.user(workspace.DesignPrompt("en", "a cat that flies", library(t).Catalogue("en"))))
	first, again := post(t, a), post(t, a)
	if first != again {
		t.Error("the same request got different answers")
	}
	a.url = serve(t, offline.Config{}).URL
	if post(t, a) != first {
		t.Error("another server answers differently")
	}
}

func post(t *testing.T, a *agent) string {
	t.Helper()
	data, err := json.Marshal(a.dialect.body(a.history))
	if err != nil {
		t.Fatal(err)
	}
	res := send(t, a.url, "POST", a.dialect.path(), testKey, string(data))
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func send(t *testing.T, url, method, path, key, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("X-Api-Key", key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestRefusals(t *testing.T) {
	s := serve(t, offline.Config{})
	good := `{"model":"` + offline.ModelName + `","messages":[]}`
	for _, test := range []struct {
		name, method, path, key, body string
		status                        int
	}{
		{"no key", "POST", "/v1/messages", "", good, 401},
		{"wrong key", "POST", "/v1/responses", "other", good, 401},
		{"models without key", "GET", "/v1/models", "", "", 401},
		{"no JSON", "POST", "/v1/messages", testKey, "{", 400},
		{"no model", "POST", "/v1/chat/completions", testKey, "{}", 400},
		{"unknown model", "POST", "/v1/messages", testKey, `{"model":"x"}`, 404},
		{"unknown path", "POST", "/v1/other", testKey, good, 404},
		{"wrong method", "GET", "/v1/messages", testKey, "", 405},
		{"models", "GET", "/v1/models", testKey, "", 200},
		{"count", "POST", "/v1/messages/count_tokens", testKey, good, 200},
		{"without the version", "POST", "/chat/completions", testKey, good, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			res := send(t, s.URL, test.method, test.path, test.key, test.body)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != test.status {
				t.Fatalf("status %d, want %d: %s", res.StatusCode, test.status, body)
			}
			if bytes.Contains(body, []byte(testKey)) {
				t.Error("the answer holds the key")
			}
			if test.status == 400 || test.status == 401 {
				var doc struct {
					Error struct{ Message string }
				}
				mustJSON(t, string(body), &doc)
				if doc.Error.Message == "" {
					t.Errorf("the body does not say why: %s", body)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := offline.New(offline.Config{}); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("without a key: %v", err)
	}
	if _, err := offline.New(offline.Config{Key: dreamcore.NewSecret("k"), Sabotage: "x"}); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("with an unknown sabotage: %v", err)
	}
}

// A marker in a wish does nothing unless the configuration allows it.
func TestMarkers(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		a := newAgent(t, serve(t, offline.Config{AllowMarkers: allowed}), chatDialect{piTools})
		a.job("a cat that flies through the sky [sabotage: vanish]")
		_, err := os.Stat(filepath.Join(a.box.project(), "index.html"))
		if gone := err != nil; gone != allowed {
			t.Errorf("markers allowed: %v, the game is gone: %v", allowed, gone)
		}
	}
}

// A request without tools is the agent asking for a title; one without a turn's
// prompt gets told what this model is.
func TestSmallTalk(t *testing.T) {
	s := serve(t, offline.Config{})
	for _, d := range []dialect{anthropicDialect{}, chatDialect{}, responsesDialect{}, anthropicDialect{piTools}} {
		a := newAgent(t, s, d)
		if last := a.say("What is 2 + 2?"); !strings.Contains(last, "tand-in model") {
			t.Errorf("%T says %q", d, last)
		}
	}
}

// Whole answers hold what the streamed ones do.
func TestWithoutStreaming(t *testing.T) {
	s := serve(t, offline.Config{})
	prompt := workspace.DesignPrompt("zh", "一个猫在天上飞的游戏", library(t).Catalogue("zh"))
	for _, d := range []dialect{anthropicDialect{piTools}, chatDialect{piTools}, responsesDialect{piTools}} {
		a := newAgent(t, s, d)
		a.history = append(a.history, d.user(prompt))
		streamed := a.ask()
		body := d.body(a.history)
		body["stream"] = false
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		res := send(t, s.URL, "POST", d.path(), testKey, string(data))
		var doc struct {
			Content []struct {
				Text  string
				Name  string
				Input json.RawMessage
			}
			Choices []struct {
				Message struct {
					Content   string
					ToolCalls []struct {
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
			}
			Output []struct {
				Content         []struct{ Text string }
				Name, Arguments string
			}
		}
		if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		var got reply
		switch {
		case len(doc.Content) == 2:
			got = reply{text: doc.Content[0].Text, tool: doc.Content[1].Name, args: string(doc.Content[1].Input)}
		case len(doc.Choices) == 1:
			m := doc.Choices[0].Message
			got = reply{text: m.Content, tool: m.ToolCalls[0].Function.Name, args: m.ToolCalls[0].Function.Arguments}
		case len(doc.Output) == 2:
			got = reply{text: doc.Output[0].Content[0].Text, tool: doc.Output[1].Name, args: doc.Output[1].Arguments}
		}
		var a1, a2 map[string]any
		mustJSON(t, got.args, &a1)
		mustJSON(t, streamed.args, &a2)
		if got.text != streamed.text || got.tool != streamed.tool || a1["content"] != a2["content"] || !strings.Contains(a1["content"].(string), "猫") {
			t.Errorf("%T: whole %+v, streamed %+v", d, got, streamed)
		}
	}
}
