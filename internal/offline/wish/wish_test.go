package wish

import (
	"slices"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
)

func reader(t testing.TB) *Reader {
	t.Helper()
	l, err := lexicon.Load()
	if err != nil {
		t.Fatal(err)
	}
	return &Reader{Lexicon: l, Index: Words{}}
}

func heroOf(w Wish) string {
	if len(w.Heroes) == 0 {
		return ""
	}
	return w.Heroes[0].Names["en"]
}

func names(list []Cast) string {
	var all []string
	for _, c := range list {
		all = append(all, c.Names["en"])
	}
	return strings.Join(all, " ")
}

// Who is who, in three languages.
func TestParts(t *testing.T) {
	r := reader(t)
	for _, test := range []struct{ wish, hero, foes, prizes, place string }{
		{"a game where a cat flies through the sky", "cat", "", "", "sky"},
		{"an octopus that collects pearls under the sea", "octopus", "", "pearl", "sea"},
		{"a knight who fights dragons and saves a princess in a castle", "knight", "dragon", "princess", "castle"},
		{"a dog avoiding foxes and wolves", "dog", "fox wolf", "", ""},
		{"help the turtle escape from the shark", "turtle", "shark", "", ""},
		{"a capybara that eats watermelons and avoids crocodiles", "capybara", "crocodile", "watermelon", ""},
		{"a brave little blorptag looks for zibzabs", "blorptag", "", "zibzabs", ""},
		{"quiz about planets", "planet", "", "", "space"},
		{"a racing game on the moon with a rabbit", "rabbit", "", "", "moon"},
		{"ネコが空を飛ぶゲーム", "cat", "", "", "sky"},
		{"忍者が屋根を走るゲーム", "ninja", "", "", "city"},
		{"猫がパンを焼くゲーム", "cat", "", "bread", "kitchen"},
		{"うさぎがキツネから逃げる", "rabbit", "fox", "", ""},
		{"海の中でタコが真珠を集める", "octopus", "", "pearl", "sea"},
		{"パンダがリンゴとバナナを食べる", "panda", "", "apple banana", ""},
		{"森のクマが主人公。ハチミツを集めて、ハチをよける", "bear", "bee", "honey", "forest"},
		{"一只兔子在森林里躲避狐狸", "rabbit", "fox", "", "forest"},
		{"迷路里找宝藏的小狗", "dog", "", "treasure", ""},
		{"一个猫在天上飞的游戏", "cat", "", "", "sky"},
		{"红色的龙吃糖果", "dragon", "", "candy", "candy"},
		{"猴子收集香蕉和苹果，躲开老虎", "monkey", "tiger", "banana apple", ""},
		{"🐙💎🌊", "octopus", "", "gem wave", ""},
		{"", "", "", "", ""},
	} {
		w := r.Read(test.wish, dreamcore.DetectLang(test.wish))
		place := ""
		if len(w.Places) > 0 {
			place = w.Places[0]
		}
		if heroOf(w) != test.hero || names(w.Foes) != test.foes || names(w.Prizes) != test.prizes || place != test.place {
			t.Errorf("%q: hero %q, foes %q, prizes %q, place %q;\nwant %q, %q, %q, %q", test.wish,
				heroOf(w), names(w.Foes), names(w.Prizes), place, test.hero, test.foes, test.prizes, test.place)
		}
	}
}

func TestMeanings(t *testing.T) {
	r := reader(t)
	for _, test := range []struct {
		wish    string
		numbers map[string]bool // true: more, false: less
		rules   map[string]bool
	}{
		{"a cat that flies on the moon", map[string]bool{"gravity": false}, map[string]bool{"fall": false, "night": true}},
		{"a fast car race with a time limit", map[string]bool{"speed": true}, map[string]bool{"timed": true}},
		{"a slow and easy game with a tiny mouse", map[string]bool{"speed": false, "foes": false, "lives": true, "size": false}, nil},
		{"avoid many ghosts, collect few coins", map[string]bool{"foes": true, "prizes": false}, nil},
		{"ペンギンが氷の上をすべる、もっと速く", map[string]bool{"speed": true, "friction": false}, map[string]bool{"slippery": true}},
		{"晚上，猫躲避很多幽灵", map[string]bool{"foes": true}, map[string]bool{"night": true}},
	} {
		w := r.Read(test.wish, dreamcore.DetectLang(test.wish))
		for means, more := range test.numbers {
			if f, ok := w.Numbers[means]; !ok || f > 1 != more {
				t.Errorf("%q: %s is %v, want more: %v", test.wish, means, f, more)
			}
		}
		for means, want := range test.rules {
			if v, ok := w.Rules[means]; !ok || v != want {
				t.Errorf("%q: %s is %v, %v, want %v", test.wish, means, v, ok, want)
			}
		}
	}
}

func TestColours(t *testing.T) {
	r := reader(t)
	for _, test := range []struct{ wish, hero, colour, whole string }{
		{"a blue dog that runs", "dog", "blue", ""},
		{"青い犬が走る", "dog", "blue", ""},
		{"一只蓝色的狗在跑", "dog", "blue", ""},
		{"make the dog blue", "dog", "blue", ""},
		{"everything in purple", "", "", "purple"},
	} {
		w := r.Read(test.wish, dreamcore.DetectLang(test.wish))
		colour := ""
		if len(w.Heroes) > 0 {
			colour = w.Heroes[0].Colour
		}
		if heroOf(w) != test.hero || colour != test.colour || strings.Join(w.Colours, " ") != test.whole {
			t.Errorf("%q: hero %q in %q, whole %v", test.wish, heroOf(w), colour, w.Colours)
		}
	}
}

// The seed spreads: texts that are alike choose differently.
func TestPickSpreads(t *testing.T) {
	r := reader(t)
	seen := map[int]bool{}
	for _, s := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"} {
		seen[r.Read(s, "en").Pick("x", 8)] = true
	}
	if len(seen) < 5 {
		t.Errorf("16 wishes choose %d of 8", len(seen))
	}
	if r.Read("a", "en").Pick("x", 0) != 0 {
		t.Error("a choice from nothing is not 0")
	}
}

// Things are called what the wish calls them.
func TestCalled(t *testing.T) {
	r := reader(t)
	for _, test := range []struct {
		wish string
		lang dreamcore.Lang
		want string
	}{
		{"a puppy that runs", "en", "puppy"},
		{"puppies running", "en", "puppy"},
		{"wolves in the forest", "en", "wolf"},
		{"mice", "en", "mouse"},
		{"子猫が走る", "ja", "子猫"},
		{"迷路里找宝藏的小狗", "zh", "小狗"},
		{"🐙", "en", "octopus"},
	} {
		w := r.Read(test.wish, test.lang)
		if len(w.Heroes) == 0 || w.Heroes[0].Names[test.lang] != test.want {
			t.Errorf("%q: the hero is %+v, want %q", test.wish, w.Heroes, test.want)
		}
	}
}

// A huge wish is read only so far, and quickly enough to be read again for
// every request.
func TestLongWish(t *testing.T) {
	w := reader(t).Read(strings.Repeat("猫 cat ネコ ", 5000)+"dragon", "ja")
	if len(w.Text) > MaxBytes || heroOf(w) == "" || slices.ContainsFunc(w.Scenery, func(c Cast) bool { return c.Key() == "dragon" }) {
		t.Errorf("%d bytes, hero %q, scenery %q", len(w.Text), heroOf(w), names(w.Scenery))
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"a cat", "ネコが空を飛ぶ", "一只猫", "\xff\xfe", "<b>İİ</b>", "Ａ３Ｄ", "🐙", "a , & '", "が の を", "的的的"} {
		f.Add(s)
	}
	r := reader(f)
	f.Fuzz(func(t *testing.T, s string) {
		for _, lang := range dreamcore.Langs {
			a, b := r.Read(s, lang), r.Read(s, lang)
			if heroOf(a) != heroOf(b) || a.Seed != b.Seed {
				t.Errorf("%q is read in two ways", s)
			}
			for _, list := range [][]Cast{a.Heroes, a.Foes, a.Prizes, a.Scenery} {
				for _, c := range list {
					if strings.TrimSpace(c.Key()) == "" {
						t.Errorf("%q has a thing without a name", s)
					}
				}
			}
		}
	})
}
