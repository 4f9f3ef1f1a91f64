package recipe

import (
	"strings"
	"testing"

	"dreamcore"
)

// A title promises no kind of game that the template is not.
func TestTitleIsHonest(t *testing.T) {
	c, r := kitchen(t)
	all := skeletons(t)
	for _, test := range []struct{ wish, word string }{
		{"quiz about planets", "Quiz"}, {"恐竜クイズ", "クイズ"}, {"动物问答", "问答"},
		{"a bear that paints", "Paint"}, {"絵を描くクマ", "おえかき"},
		{"a cat delivers letters on a bicycle", "Rescue"}, {"a cat delivers letters on a bicycle", "Bicycle"},
		{"a cat rides a bicycle", "Riding"}, {"a panda plays the piano and dances", "Danc"},
		{"a cat bakes bread", "Chef"}, {"chess with frogs", "Board"}, {"soccer with dogs", "League"},
	} {
		for tag, s := range all {
			p, err := c.Make(s.manifest, s.files, r.Read(test.wish, dreamcore.DetectLang(test.wish)))
			if err != nil {
				t.Fatal(err)
			}
			for _, title := range p.Title {
				if strings.Contains(title, test.word) {
					t.Errorf("%s, %q is called %q", tag, test.wish, title)
				}
			}
		}
	}
	bonk := all["2d/peek-a-bonk"]
	if d := c.deeds(bonk.manifest); !d["tap"] || d["escape"] || d["collect"] || d["quiz"] {
		t.Errorf("where one taps one does %v", d)
	}
	for _, test := range []struct{ wish, tag, title string }{
		{"a cat flies through the sky", "2d/sky-flyer", "Flying Cat"},
		{"a fox race", "2d/circuit-racer", "Fox Grand Prix"},
		{"a bear tapping", "2d/peek-a-bonk", "Tap the"},
		{"an owl in a maze", "2d/maze-treasure", "Owl in the Maze"},
	} {
		s := all[test.tag]
		p, err := c.Make(s.manifest, s.files, r.Read(test.wish, "en"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(p.Title["en"], test.title) {
			t.Errorf("%s, %q is called %q, want %q", test.tag, test.wish, p.Title["en"], test.title)
		}
	}
}

// A word that merely ends like one without a plural has one.
func TestPlural(t *testing.T) {
	c, _ := kitchen(t)
	for name, want := range map[string]string{
		"slice": "slices", "office": "offices", "red Office": "red Offices", "price": "prices", "marigold": "marigolds", "milkshake": "milkshakes",
		"ice": "ice", "dry ice": "dry ice", "Rice": "Rice", "tea": "tea", "e-mail": "e-mail", "police": "police",
		"fish": "fish", "goldfish": "goldfish", "reindeer": "reindeer", "flatbread": "flatbread", "seafood": "seafood", "sheep": "sheep",
		"mice": "mice", "blind mice": "blind mice", "cat": "cats", "cats": "cats", "glass": "glasses", "cat with a hat": "cat with a hat", "": "",
	} {
		if got := c.plural(name); got != want {
			t.Errorf("the plural of %q is %q, want %q", name, got, want)
		}
	}
}
