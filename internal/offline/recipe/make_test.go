package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dreamcore"
	"dreamcore/internal/offline/wish"
	"dreamcore/internal/template"
)

// skeleton is a template of the real library as the agent finds it.
type skeleton struct {
	manifest Manifest
	files    map[string][]byte
}

func skeletons(t testing.TB) map[string]skeleton {
	t.Helper()
	lib, err := template.Open()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]skeleton{}
	for _, tag := range lib.Tags() {
		s := skeleton{files: map[string][]byte{}}
		for _, f := range lib.Files(tag) {
			s.files[f.Path] = f.Data
		}
		if s.manifest, err = ParseManifest(s.files["template.json"]); err != nil {
			t.Fatal(err)
		}
		all[string(tag)] = s
	}
	if len(all) == 0 {
		t.Fatal("the library has no templates")
	}
	return all
}

// Every wish on every template: at least the hero's picture, the palette, two
// numbers and one rule differ; everything stays in its bounds; nothing is
// broken; and it comes out the same twice.
func TestMakeOnEveryTemplate(t *testing.T) {
	c, r := kitchen(t)
	for tag, s := range skeletons(t) {
		for _, test := range choices {
			w := r.Read(test.wish, dreamcore.DetectLang(test.wish))
			p, err := c.Make(s.manifest, s.files, w)
			if err != nil {
				t.Fatalf("%s, %q: %v", tag, test.wish, err)
			}
			where := fmt.Sprintf("%s, %q", tag, test.wish)
			assertPlan(t, where, s, p)
			again, err := c.Make(s.manifest, s.files, w)
			if err != nil || !bytes.Equal(again.Files[GameFile], p.Files[GameFile]) {
				t.Errorf("%s: it comes out in two ways (%v)", where, err)
			}
		}
	}
}

func assertPlan(t testing.TB, where string, s skeleton, p *Plan) {
	t.Helper()
	was, err := newDocument(s.files[GameFile])
	if err != nil {
		t.Fatal(err)
	}
	now, err := newDocument(p.Files[GameFile])
	if err != nil {
		t.Fatalf("%s: %v\n%s", where, err, p.Files[GameFile])
	}
	if len(was.values) != len(now.values) {
		t.Errorf("%s: %d values became %d", where, len(was.values), len(now.values))
	}
	hero := s.manifest.Change.Hero
	if len(p.Orders) == 0 || p.Orders[0].File != hero.Picture || strings.Contains(p.Orders[0].Words, "'\n") {
		t.Errorf("%s: the orders are %v", where, p.Orders)
	}
	for role, pointer := range s.manifest.Change.Palette {
		var a, b string
		if !was.get(pointer, &a) || !now.get(pointer, &b) || a == b {
			t.Errorf("%s: the colour %s was %s, is %s", where, role, a, b)
		}
		if _, ok := parseColour(b); !ok {
			t.Errorf("%s: %s is the colour %q", where, role, b)
		}
	}
	changed := 0
	for _, n := range s.manifest.Change.Numbers {
		file, pointer := split(n.Path)
		old, err := newDocument(s.files[file])
		if err != nil {
			t.Fatal(err)
		}
		after := old
		if text, ok := p.Files[file]; ok {
			if after, err = newDocument(text); err != nil {
				t.Fatal(err)
			}
		}
		var a, b float64
		if !old.get(pointer, &a) || !after.get(pointer, &b) || b < n.Min || b > n.Max {
			t.Errorf("%s: %s is %v, not in %v..%v", where, n.Path, b, n.Min, n.Max)
		}
		if a != b && file == GameFile {
			changed++
		}
	}
	if changed < leastNumbers {
		t.Errorf("%s: %d numbers of game.json changed", where, changed)
	}
	changed = 0
	for _, rule := range s.manifest.Change.Rules {
		_, pointer := split(rule.Path)
		var a, b json.RawMessage
		was.get(pointer, &a)
		now.get(pointer, &b)
		if !bytes.Equal(a, b) {
			changed++
		}
	}
	if changed < 1 {
		t.Errorf("%s: no rule changed", where)
	}
	for _, lang := range dreamcore.Langs {
		if title := p.Title.In(lang); title == "" || strings.ContainsAny(title, "{}") || len([]rune(title)) > 60 {
			t.Errorf("%s: the title in %s is %q", where, lang, title)
		}
		if p.Hero.Names.In(lang) == "" {
			t.Errorf("%s: the hero has no name in %s", where, lang)
		}
	}
}

// Two wishes on one template differ from each other too.
func TestTwoWishesDiffer(t *testing.T) {
	c, r := kitchen(t)
	for tag, s := range skeletons(t) {
		heroes := rapid.SampledFrom([]string{"cat", "dog", "fox", "robot", "owl", "pirate"})
		doing := rapid.SampledFrom([]string{"flying", "running fast", "collecting stars", "avoiding ghosts", "in space", "on a mountain", "under the sea", "at night"})
		rapid.Check(t, func(rt *rapid.T) {
			a := heroes.Draw(rt, "hero") + " " + doing.Draw(rt, "doing")
			b := heroes.Draw(rt, "other hero") + " " + doing.Draw(rt, "other doing")
			if a == b {
				return
			}
			one, err := c.Make(s.manifest, s.files, r.Read("a "+a, "en"))
			if err != nil {
				rt.Fatal(err)
			}
			two, err := c.Make(s.manifest, s.files, r.Read("a "+b, "en"))
			if err != nil {
				rt.Fatal(err)
			}
			if one.Hero.Key() != two.Hero.Key() && one.Orders[0].Words == two.Orders[0].Words {
				rt.Errorf("%s: %q and %q have one hero's picture", tag, a, b)
			}
			if bytes.Equal(one.Files[GameFile], two.Files[GameFile]) {
				rt.Errorf("%s: %q and %q are one game", tag, a, b)
			}
			x, _ := newDocument(one.Files[GameFile])
			y, _ := newDocument(two.Files[GameFile])
			same := 0
			for _, pointer := range s.manifest.Change.Palette {
				var m, n string
				x.get(pointer, &m)
				y.get(pointer, &n)
				if m == n {
					same++
				}
			}
			if same == len(s.manifest.Change.Palette) {
				rt.Errorf("%s: %q and %q have one palette", tag, a, b)
			}
		})
	}
}

// What the wish means reaches the game.
func TestMakeMeans(t *testing.T) {
	c, r := kitchen(t)
	s := skeletons(t)["2d/sky-flyer"]
	type game struct {
		Hero    struct{ Name dreamcore.Localized }
		Foes    []struct{ Name dreamcore.Localized }
		Prizes  []struct{ Name dreamcore.Localized }
		Palette map[string]string
		Numbers map[string]float64
		Rules   map[string]bool
		Look    map[string]bool
	}
	make := func(text string) (*Plan, game) {
		p, err := c.Make(s.manifest, s.files, r.Read(text, dreamcore.DetectLang(text)))
		if err != nil {
			t.Fatal(err)
		}
		var g game
		if err := json.Unmarshal(p.Files[GameFile], &g); err != nil {
			t.Fatal(err)
		}
		return p, g
	}
	var base game
	if err := json.Unmarshal(s.files[GameFile], &base); err != nil {
		t.Fatal(err)
	}
	p, g := make("a fast blue owl flying on the moon, avoiding many bats and collecting candy")
	if g.Hero.Name["en"] != "owl" || g.Hero.Name["ja"] == base.Hero.Name["ja"] || g.Foes[0].Name["en"] != "bat" || g.Prizes[0].Name["en"] != "candy" {
		t.Errorf("the names are %+v", g)
	}
	if !strings.Contains(p.Orders[0].Words, "blue") || !strings.Contains(p.Orders[0].Words, "owl") {
		t.Errorf("the hero is ordered as %q", p.Orders[0].Words)
	}
	if g.Numbers["speed"] <= base.Numbers["speed"] || g.Numbers["foes"] <= base.Numbers["foes"] || g.Numbers["gravity"] >= base.Numbers["gravity"] {
		t.Errorf("the numbers are %v, were %v", g.Numbers, base.Numbers)
	}
	if g.Rules["fall"] || !g.Rules["night"] {
		t.Errorf("the rules are %v", g.Rules)
	}
	if _, sea := make("an octopus under the sea"); sea.Look["clouds"] || !sea.Look["bubbles"] {
		t.Errorf("under the sea one sees %v", sea.Look)
	}
	_, slow := make("a slow owl flying with few bats")
	if slow.Numbers["speed"] >= base.Numbers["speed"] {
		t.Errorf("a slow one has the speed %v", slow.Numbers["speed"])
	}
}

// The template's own hero still gets another look.
func TestMakeWithTheSameHero(t *testing.T) {
	c, r := kitchen(t)
	for tag, s := range skeletons(t) {
		doc, err := newDocument(s.files[GameFile])
		if err != nil {
			t.Fatal(err)
		}
		var names dreamcore.Localized
		doc.get(s.manifest.Change.Hero.Name, &names)
		p, err := c.Make(s.manifest, s.files, r.Read("a game with a "+names["en"], "en"))
		if err != nil {
			t.Fatal(err)
		}
		if p.Hero.Colour == "" && sameThing(p.Hero.Thing, wish.Thing{Names: names}) {
			t.Errorf("%s: the %s is the template's", tag, names["en"])
		}
	}
}

// A manifest and files that somebody has spoilt may give an error, never a
// panic, and no file outside the project.
func FuzzMake(f *testing.F) {
	c, r := kitchen(f)
	f.Add([]byte(`{"change":{"titles":["/title/en"],"hero":{"name":"/h","picture":"../x.png"}}}`), []byte(`{"title":{"en":"A"},"h":{"en":"b"}}`), "a cat")
	f.Add([]byte(`{"change":{"titles":["x"],"numbers":[{"path":"/n","min":0,"max":9,"means":"speed"},{"path":"../../etc#/a","min":0,"max":1}],"rules":[{"path":"/r","values":[true,false,"x"]}],"palette":{"sky":"/p"}}}`), []byte(`{"n":3,"r":true,"p":"#123456"}`), "ネコ 速い")
	f.Add([]byte(`{"change":{"foes":[{"name":"/a"},{"name":"/a"}]}}`), []byte(`{"a":{"en":"x"}}`), "")
	f.Fuzz(func(t *testing.T, manifest, game []byte, text string) {
		m, err := ParseManifest(manifest)
		if err != nil {
			return
		}
		w := r.Read(text, "en")
		for _, plan := range []func(Manifest, map[string][]byte, wish.Wish) (*Plan, error){c.Make, c.Edit} {
			p, err := plan(m, map[string][]byte{GameFile: game}, w)
			if err != nil {
				continue
			}
			for name, text := range p.Files {
				if !json.Valid(text) || !safe(name) {
					t.Errorf("%s became %q", name, text)
				}
			}
			for _, o := range p.Orders {
				if !safe(o.File) || o.Size < 16 {
					t.Errorf("it orders %+v", o)
				}
			}
		}
	})
}
