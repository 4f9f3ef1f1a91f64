package recipe

import (
	"encoding/json"
	"strings"
	"testing"

	"dreamcore"
)

// Changes of one game in three languages: what must come out, and nothing else.
func TestEdit(t *testing.T) {
	c, r := kitchen(t)
	s := skeletons(t)["2d/sky-flyer"]
	type game struct {
		Title   dreamcore.Localized
		Hero    struct{ Name dreamcore.Localized }
		Foes    []struct{ Name dreamcore.Localized }
		Prizes  []struct{ Name dreamcore.Localized }
		Palette map[string]string
		Numbers map[string]float64
		Rules   map[string]bool
	}
	read := func(text []byte) game {
		var g game
		if err := json.Unmarshal(text, &g); err != nil {
			t.Fatal(err)
		}
		return g
	}
	made, err := c.Make(s.manifest, s.files, r.Read("a cat flies through the sky, collects stars, avoids bats", "en"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{GameFile: made.Files[GameFile]}
	base := read(files[GameFile])
	more := func(k string) func(game) bool { return func(g game) bool { return g.Numbers[k] > base.Numbers[k] } }
	less := func(k string) func(game) bool { return func(g game) bool { return g.Numbers[k] < base.Numbers[k] } }
	hero := func(n string) func(game) bool { return func(g game) bool { return g.Hero.Name["en"] == n } }
	for _, test := range []struct {
		wish   string
		orders string // files of the pictures that are ordered
		holds  func(game) bool
	}{
		{"make the cat faster", "", more("speed")},
		{"もっと速くして", "", more("speed")},
		{"速度慢一点", "", less("speed")},
		{"more stars please", "", more("prizes")},
		{"敵を減らして", "", less("foes")},
		{"敌人多一点", "", more("foes")},
		{"more lives", "", more("lives")},
		{"make the cat blue", "hero", hero("cat")},
		{"ネコを赤くして", "hero", hero("cat")},
		{"change the cat to a dog", "hero", hero("dog")},
		{"I want a dog instead of the cat", "hero", hero("dog")},
		{"ネコを犬に変えて", "hero", hero("dog")},
		{"把猫换成兔子", "hero", hero("rabbit")},
		{"replace the bats with dragons", "foe-1", func(g game) bool { return g.Foes[0].Name["en"] == "dragon" && g.Hero.Name["en"] == "cat" }},
		{"把猫变成蓝色的狗", "hero", hero("dog")},
		{"turn the cat into a blue dog", "hero", hero("dog")},
		{"猫を青い犬に変えて", "hero", hero("dog")},
		{"turn the fox into a blue dog", "hero", hero("dog")}, // a fox is not in the game
		{"把老鼠变成蓝色的狗", "hero", hero("dog")},
		{"用狗代替老鼠", "hero", hero("dog")},
		{"もっと星を", "", more("prizes")},
		{"多一些星星", "", more("prizes")},
		{"more candles", "prize-1", func(g game) bool {
			return g.Numbers["prizes"] > base.Numbers["prizes"] && g.Prizes[0].Name["en"] == "candle"
		}},
		{"もっとろうそくを", "prize-1", func(g game) bool {
			return g.Numbers["prizes"] > base.Numbers["prizes"] && g.Prizes[0].Name["en"] == "candle"
		}},
		{"add ghosts", "foe-2", func(g game) bool { return g.Foes[1].Name["en"] == "ghost" && g.Hero.Name["en"] == "cat" }},
		{"add a time limit", "", func(g game) bool { return g.Rules["timed"] }},
		{"夜にして", "", func(g game) bool { return g.Rules["night"] && g.Palette["sky"] != base.Palette["sky"] }},
		{"put it under the sea", "scenery-1", func(g game) bool { return g.Palette["sky"] != base.Palette["sky"] }},
		{"make the background pink", "", func(g game) bool { return g.Palette["sky"] != base.Palette["sky"] && g.Hero.Name["en"] == "cat" }},
		{"make it easier", "", less("foes")},
	} {
		w := r.Read(test.wish, dreamcore.DetectLang(test.wish))
		p, err := c.Edit(s.manifest, files, w)
		if err != nil {
			t.Fatal(err)
		}
		var orders []string
		for _, o := range p.Orders {
			orders = append(orders, strings.TrimSuffix(strings.TrimPrefix(o.File, "assets/"), ".png"))
		}
		now := base
		if text, ok := p.Files[GameFile]; ok {
			now = read(text)
		}
		if strings.Join(orders, " ") != test.orders || !test.holds(now) {
			t.Errorf("%q: orders %v, changed %v; hero %s, foes %v, numbers %v, rules %v", test.wish, orders, p.Changed, now.Hero.Name["en"], now.Foes, now.Numbers, now.Rules)
		}
	}
	for _, text := range []string{"hmm", "よくわからない", "谢谢"} {
		p, err := c.Edit(s.manifest, files, r.Read(text, dreamcore.DetectLang(text)))
		if err != nil || len(p.Files) > 0 || len(p.Orders) > 0 {
			t.Errorf("%q changes %v, orders %v (%v)", text, p.Changed, p.Orders, err)
		}
	}
	w := r.Read("call it X", "en")
	w.Title = "Moon \"Cat\" <b>"
	p, err := c.Edit(s.manifest, files, w)
	if err != nil {
		t.Fatal(err)
	}
	if got := read(p.Files[GameFile]).Title; got["ja"] != w.Title {
		t.Errorf("the title is %v", got)
	}
	if page := p.RewordPage("<title>"+base.Title["en"]+"</title>", "en"); page != "<title>Moon &#34;Cat&#34; &lt;b&gt;</title>" {
		t.Errorf("the page is %s", page)
	}
}
