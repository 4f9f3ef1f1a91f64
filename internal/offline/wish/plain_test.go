package wish

import (
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
)

// Markup, addresses, code and the small words of other languages name nothing;
// neither do the names that Unicode gives to keys.
func TestReadWhatIsMeant(t *testing.T) {
	l, err := lexicon.Load()
	if err != nil {
		t.Fatal(err)
	}
	r := &Reader{Lexicon: l, Index: Words{}}
	for _, test := range []struct{ wish, hero, others string }{
		{"<script>alert(1)</script>a cat", "cat", ""},
		{"<img src=x onerror=alert(1)> ネコのゲーム <b>", "cat", ""},
		{"https://example.com/dog?bird=1 a cat", "cat", ""},
		{"foo_bar() { return dog } penguin $HOME", "penguin", ""},
		{"a cat(s) & a {{template.dog}}", "cat", ""},
		{"<a href='http://dog.example'>猫</a>", "cat", ""},
		{"un chat qui attrape des souris", "", ""},
		{"Je veux un jeu avec des étoiles", "", ""},
		{"ein Hund der durch den Wald läuft", "", ""},
		{"el gato come tacos", "taco", ""},
		{"a des ask af owl", "owl", ""},
		{"a bee eats a pea", "bee", "pea pod"},
		{"a cat delivers letters", "cat", "letter"},
		{"手紙を届けるネコ", "cat", "letter"},
		{"送信的猫", "cat", "letter"},
		{"input latin letters", "letter", ""},
	} {
		w := r.Read(test.wish, dreamcore.DetectLang(test.wish))
		hero := ""
		if len(w.Heroes) > 0 {
			hero = w.Heroes[0].Concept
		}
		var others []string
		for _, list := range [][]Cast{w.Foes, w.Prizes, w.Scenery} {
			for _, c := range list {
				others = append(others, c.Concept)
			}
		}
		if hero != test.hero || strings.Join(others, " ") != test.others {
			t.Errorf("%q: the hero is %q, the others %q", test.wish, hero, others)
		}
	}
	if w := r.Read("un pingouin dans la jungle", "en"); len(w.Heroes) > 0 || len(w.Places) != 1 || w.Places[0] != "jungle" {
		t.Errorf("a place in a foreign wish: heroes %v, places %v", w.Heroes, w.Places)
	}
	a, b := r.Read("<b>a cat</b>", "en"), r.Read("a cat", "en")
	if a.Seed == b.Seed || strings.ContainsAny(a.Text, "<>") {
		t.Errorf("the text is %q, the seeds %d and %d", a.Text, a.Seed, b.Seed)
	}
}

// No code of the stand-in calls a thing after a key or a sign of a phone.
func TestNoKeyboardNames(t *testing.T) {
	for _, text := range []string{"letters", "a letter", "abcd", "numbers", "input", "the inbox", "字母", "手紙", "英字", "来信", "a button", "symbols"} {
		for _, m := range (Words{}).Scan(text) {
			name := m.Names["en"]
			for _, bad := range []string{"input", "keycap", "button", "with arrow", "incoming", "outbox", "inbox"} {
				if strings.Contains(strings.ToLower(name), bad) {
					t.Errorf("%q is called %q", text, name)
				}
			}
		}
	}
}
