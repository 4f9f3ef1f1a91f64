package words

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"dreamcore"
)

func concepts(ms []Match) string {
	var out []string
	for _, m := range ms {
		out = append(out, m.Entry.Concept)
	}
	return strings.Join(out, ", ")
}

func TestScanFindsTheThingsOfASentence(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a game where a cat flies through the sky", "cat, sky"},
		{"ネコが空を飛ぶゲーム", "cat, sky"},
		{"一个猫在天上飞的游戏", "cat"},
		{"a racing game on the moon", "moon"},
		{"迷路里找宝藏的小狗", "maze, treasure, dog"},
		{"3D penguin sliding down an ice mountain", "penguin, snowy mountain"},
		{"an octopus that collects pearls under the sea", "octopus, pearl, sea"},
		{"忍者が屋根を走るゲーム", "ninja, village"},
		{"一只兔子在森林里躲避狐狸", "rabbit, forest, fox"},
		{"3D dragon flying through rings", "dragon, golden ring"},
		{"猫がパンを焼くゲーム", "cat, bread"},
		{"勇者がドラゴンを倒して姫を助ける", "knight, dragon, princess"},
		{"外星人入侵地球，我开飞船打它们", "alien, earth, spaceship"},
		{"I want a unicorn jumping over rainbows and eating cupcakes!!", "unicorn, rainbow, cupcake"},
		{"a helicopter rescues sheep from wolves", "helicopter, sheep, wolf"},
		{"小猪开着赛车躲避石头", "pig, racing car, rock"},
		{"カエルがハエを食べる", "frog, fly"},
		{"snow-capped mountains and T-Rex's eggs", "snow-capped mountain, t-rex, egg"},
		{"スーパーネコがロボットネコと戦う", "cat, robot, cat"},
		{"パンダ", "panda"},        // not パン, bread
		{"静かに逃げる", ""},          // not かに, crab
		{"かわいいうさちゃん", "rabbit"}, // not かわ, river
		{"ペンギンがソリで氷の山をすべる", "penguin, sled, snowy mountain"},
		{"🐸 jumps over 🐉", "frog, dragon"},
		{"👍🏽", "thumbs up"},
		{"RED CAR", "car"}, {"ＣＡＴ", "cat"}, {"ｃａｔ", "cat"},
		{"the cats' houses", "cat, house"},
		{"butterflies and mice", "butterfly, mouse"},
		{"", ""}, {"   ", ""}, {"!!!", ""}, {"\xff\xfe", ""},
		{"play a fun game and win", ""},
		{"小さい", ""}, {"漂亮", ""},
	} {
		if got := concepts(Scan(c.text)); got != c.want {
			t.Errorf("%q names %q, want %q", c.text, got, c.want)
		}
	}
}

func TestScanSaysWhere(t *testing.T) {
	const text = "青いネコ and a BLUE dog"
	for _, m := range Scan(text) {
		if text[m.Start:m.End] != m.Text {
			t.Errorf("%q is not at %d to %d", m.Text, m.Start, m.End)
		}
	}
	if got := Scan(text); len(got) != 2 || got[0].Text != "ネコ" || got[1].Text != "dog" {
		t.Errorf("%v", got)
	}
}

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		phrase, want string
		rank         Rank
	}{
		{"cat", "cat", Exact}, {"cats", "cat", Exact}, {"a cat", "cat", Exact}, {"Kitten", "cat", Exact},
		{"ネコ", "cat", Exact}, {"ねこ", "cat", Exact}, {"猫", "cat", Exact}, {"子猫", "cat", Exact}, {"小猫", "cat", Exact}, {"貓", "cat", Exact},
		{"イヌ", "dog", Exact}, {"いぬ", "dog", Exact}, {"犬", "dog", Exact}, {"子犬", "dog", Exact}, {"小狗", "dog", Exact}, {"狗", "dog", Exact},
		{"小鳥", "bird", Exact}, {"飛船", "spaceship", Exact}, {"鯊魚", "shark", Exact}, {"機器人", "robot", Exact}, {"賽車", "racing car", Exact},
		{"penguins", "penguin", Exact}, {"ペンギン", "penguin", Exact}, {"企鹅", "penguin", Exact},
		{"aliens", "alien", Exact}, {"宇宙人", "alien", Exact}, {"外星人", "alien", Exact},
		{"race car", "racing car", Exact}, {"レーシングカー", "racing car", Exact},
		{"wolves", "wolf", Exact}, {"butterflies", "butterfly", Exact}, {"mice", "mouse", Exact}, {"foxes", "fox", Exact},
		{"roller coaster", "roller coaster", Name}, {"流れ星", "shooting star", Exact},
		{"purple elephant", "elephant", Partial},
		{"baking", "", Partial},
	} {
		m := Lookup(c.phrase)
		if c.want == "" {
			continue
		}
		if len(m) == 0 || m[0].Entry.Concept != c.want || m[0].Rank != c.rank {
			t.Errorf("%q is %s, want %s with rank %d", c.phrase, concepts(m), c.want, c.rank)
		}
	}
	for _, nothing := range []string{"", "flibbertigibbet", "xyzzy", "ぬるぽ", strings.Repeat("x", MaxScanBytes+1)} {
		if m := Lookup(nothing); len(m) != 0 {
			t.Errorf("%.30q is %s", nothing, concepts(m))
		}
	}
}

func TestRanksAreInOrder(t *testing.T) {
	for _, phrase := range []string{"cat", "fire", "moon", "car", "heart", "tree", "鳥", "花", "车"} {
		m := Lookup(phrase)
		if len(m) < 2 {
			t.Errorf("%q has only %d meanings", phrase, len(m))
		}
		if !slices.IsSortedFunc(m, func(a, b Match) int { return int(a.Rank) - int(b.Rank) }) {
			t.Errorf("the meanings of %q are not in the order of their rank", phrase)
		}
	}
}

func TestEntriesAreWhole(t *testing.T) {
	entries := Entries()
	if len(entries) < 1800 {
		t.Fatalf("only %d entries", len(entries))
	}
	for _, e := range entries {
		for _, lang := range dreamcore.Langs {
			if name := e.Names[lang]; name == "" || !utf8.ValidString(name) {
				t.Errorf("%s has no name in %s", e.Concept, lang)
			}
		}
		if e.Concept == "" || e.Picture == "" || !slices.Contains(kindOrder, e.Kind) {
			t.Errorf("%+v is not whole", e)
		}
	}
}

// What a child says first must be a name, in each language, not a chance hit.
func TestCommonNamesAreExact(t *testing.T) {
	for number, line := range strings.Split(common, "\n") {
		f := strings.Split(line, "|")
		if len(f) != 5 || strings.HasPrefix(line, "#") {
			continue
		}
		for _, cell := range f[2:] {
			name := strings.TrimSpace(strings.FieldsFunc(cell, func(r rune) bool { return r == ',' || r == '/' })[0])
			m := Lookup(name)
			if len(m) == 0 || m[0].Rank != Exact {
				t.Errorf("common.tsv:%d: %q is not found as an exact name", number+1, name)
			}
		}
	}
}

func TestFoldKeepsOffsets(t *testing.T) {
	for in, want := range map[string]string{
		"Blue DOG": "blue dog", "ピンクのネコ": "ぴんくのねこ", "紅色的貓": "红色的猫", "İx": "İx", "\xffA": "\xffa", "Ｘ": "Ｘ", "": "",
	} {
		if got := Fold(in); got != want || len(got) != len(in) {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// A thing that borrows the picture of another keeps its own name.
func TestBorrowedPicturesKeepTheirNames(t *testing.T) {
	for _, c := range []struct{ word, concept, ja, zh string }{
		{"capybara", "capybara", "カピバラ", "水豚"}, {"タカ", "hawk", "タカ", "苍鹰"}, {"女王", "queen", "女王", "女王"},
		{"bulldozers", "bulldozer", "ブルドーザー", "推土机"}, {"palm tree", "palm tree", "ヤシの木", "棕榈树"},
	} {
		m := Lookup(c.word)
		if len(m) == 0 || m[0].Entry.Concept != c.concept || m[0].Entry.Names["ja"] != c.ja || m[0].Entry.Names["zh"] != c.zh {
			t.Errorf("%q is %s", c.word, concepts(m))
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range []string{"a game where a cat flies", "ネコが空を飛ぶゲーム", "迷路里找宝藏的小狗", "👨‍🚀🐱", "T-Rex's", "\xf0\x28", "İK ﷺ ｶﾞ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		end := 0
		for _, m := range Scan(text) {
			if m.Start < end || m.End <= m.Start || m.End > len(text) || text[m.Start:m.End] != m.Text || m.Entry == nil {
				t.Fatalf("%q: bad match %+v after %d", text, m, end)
			}
			end = m.End
		}
		Lookup(text)
	})
}

func BenchmarkScan(b *testing.B) {
	load()
	for b.Loop() {
		Scan("an octopus that collects pearls under the sea 忍者が屋根を走るゲーム 一只兔子在森林里躲避狐狸")
	}
}
