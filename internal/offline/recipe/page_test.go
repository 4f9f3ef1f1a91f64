package recipe

import (
	"slices"
	"strings"
	"testing"

	"dreamcore"
)

// A page has the title and the language of the one who asked, made and changed.
func TestPageTitle(t *testing.T) {
	c, r := kitchen(t)
	for tag, s := range skeletons(t) {
		for _, lang := range dreamcore.Langs {
			p, err := c.Make(s.manifest, s.files, r.Read("a cat collects candles", lang))
			if err != nil {
				t.Fatal(err)
			}
			page := p.RewordPage(string(s.files["index.html"]), lang)
			if !strings.Contains(page, "<title>"+strings.ReplaceAll(p.Title.In(lang), "'", "&#39;")+"</title>") || !strings.Contains(page, `<html lang="`+string(lang)+`"`) {
				t.Errorf("%s in %s: %q stands in\n%.300s", tag, lang, p.Title.In(lang), page)
			}
			e, err := c.Edit(s.manifest, map[string][]byte{GameFile: p.Files[GameFile]}, r.Read("change the cat to a blue dog", lang))
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Orders) != 1 || !strings.HasPrefix(e.Orders[0].Words, "a blue dog") {
				t.Errorf("%s: the blue dog is ordered as %v", tag, e.Orders)
			}
			was := p.Title.In(lang)
			if now := e.Title.In(lang); strings.Contains(was, p.Hero.Names.In(lang)) && now == was {
				t.Errorf("%s in %s: the title is still %q", tag, lang, now)
			}
			if page = e.RewordPage(page, lang); !strings.Contains(page, "<title>"+strings.ReplaceAll(e.Title.In(lang), "'", "&#39;")+"</title>") {
				t.Errorf("%s in %s: after a change the page has not %q", tag, lang, e.Title.In(lang))
			}
		}
	}
}

// What is understood and cannot be done is said, not passed over.
func TestEditRefuses(t *testing.T) {
	c, r := kitchen(t)
	for tag, s := range skeletons(t) {
		has := slices.ContainsFunc(s.manifest.Change.Numbers, func(n Number) bool { f, _ := split(n.Path); return n.Means == "prizes" && f == GameFile })
		for _, text := range []string{"more stars", "もっと星を", "多一些星星"} {
			p, err := c.Edit(s.manifest, s.files, r.Read(text, dreamcore.DetectLang(text)))
			if err != nil {
				t.Fatal(err)
			}
			if did := slices.Contains(p.Changed, "prizes"); did != has || did == slices.Contains(p.Refused, "prizes") {
				t.Errorf("%s, %q: changed %v, refused %v", tag, text, p.Changed, p.Refused)
			}
		}
	}
}

// A title does not go on naming a prize that has been replaced.
func TestEditRetitles(t *testing.T) {
	c, r := kitchen(t)
	s := skeletons(t)["2d/peek-a-bonk"]
	made, err := c.Make(s.manifest, s.files, r.Read("a cat collects candles", "en"))
	if err != nil {
		t.Fatal(err)
	}
	if made.Title["en"] != "Cat and the Candles" {
		t.Fatalf("the title is %q", made.Title["en"])
	}
	p, err := c.Edit(s.manifest, map[string][]byte{GameFile: made.Files[GameFile]}, r.Read("more stars", "en"))
	if err != nil {
		t.Fatal(err)
	}
	if p.Title["en"] != "Cat and the Stars" || p.Title["ja"] != "ネコと星" || p.Title["zh"] != "猫和星星" {
		t.Errorf("the titles are %v", p.Title)
	}
	if !strings.Contains(string(p.Files[GameFile]), `"Cat and the Stars"`) {
		t.Error("the game keeps the old title")
	}
}
