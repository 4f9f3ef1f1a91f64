package lexicon

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"dreamcore"
)

// What numbers and rules may mean, as the manifests of templates say it.
var (
	numberMeanings = []string{"speed", "gravity", "jump", "foes", "prizes", "size", "lives", "time", "friction", "goal"}
	ruleMeanings   = []string{"fall", "wrap", "bounce", "chase", "lives", "night", "slippery", "timed", "shoot", "grow"}
	paletteRoles   = []string{"sky", "sky2", "ground", "ground2", "accent", "wall", "path", "text"}
	hexColour      = regexp.MustCompile(`^#[0-9a-f]{6}$`)
)

func load(t testing.TB) *Lexicon {
	t.Helper()
	l, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestDataHoldsTogether(t *testing.T) {
	l := load(t)
	words := func(what string, w Words) {
		for _, lang := range dreamcore.Langs {
			if len(w[lang]) == 0 {
				t.Errorf("%s has no words in %s", what, lang)
			}
		}
	}
	meaning := func(what string, m Meaning) {
		for k, f := range m.Numbers {
			if !slices.Contains(numberMeanings, k) || f <= 0 {
				t.Errorf("%s: number %s: %v", what, k, f)
			}
		}
		for k := range m.Rules {
			if !slices.Contains(ruleMeanings, k) {
				t.Errorf("%s: rule %s", what, k)
			}
		}
	}
	title := func(what string, l dreamcore.Localized, slot string) {
		for _, lang := range dreamcore.Langs {
			if !strings.Contains(l[lang], slot) && !strings.Contains(l[lang], "{foe}") {
				t.Errorf("%s: the title in %s is %q", what, lang, l[lang])
			}
		}
	}
	for id, a := range l.Activities {
		words(id, a.Words)
		meaning(id, a.Meaning)
		title(id, a.Title, "{hero}")
		for near, f := range a.Near {
			if (l.Activities[near] == nil && near != "sport") || f <= 0 || f >= 1 {
				t.Errorf("%s is near %s by %v", id, near, f)
			}
		}
		if a.Place != "" && l.Places[a.Place] == nil {
			t.Errorf("%s happens in %s, which is no place", id, a.Place)
		}
		if !slices.Contains([]string{"", "foe", "prize"}, a.Role) {
			t.Errorf("%s has the role %q", id, a.Role)
		}
	}
	for id, p := range l.Places {
		words(id, p.Words)
		meaning(id, p.Meaning)
		title(id, p.Title, "{title}")
		for _, role := range paletteRoles {
			if !hexColour.MatchString(p.Palette[role]) {
				t.Errorf("%s: %s is %q", id, role, p.Palette[role])
			}
		}
		for _, near := range slices.Concat(p.Near, p.Implied) {
			if l.Activities[near] == nil && l.Places[near] == nil {
				t.Errorf("%s is near %s, which is nothing", id, near)
			}
		}
		if len(p.Foes) < 3 || len(p.Prizes) < 3 || len(p.Scenery) < 3 {
			t.Errorf("%s has too little in it", id)
		}
	}
	for id, c := range l.Colours {
		words(id, c.Words)
		if !hexColour.MatchString(c.Hex) {
			t.Errorf("%s is %q", id, c.Hex)
		}
	}
	for id, a := range l.Amounts {
		words(id, a.Words)
		meaning(id, a.Meaning)
	}
	for _, id := range l.Defaults.Places {
		if l.Places[id] == nil {
			t.Errorf("the default place %s is none", id)
		}
	}
}

func ids(hits []Hit) string {
	var all []string
	for _, h := range hits {
		all = append(all, h.ID)
	}
	return strings.Join(all, " ")
}

func TestFind(t *testing.T) {
	l := load(t)
	for _, test := range []struct {
		find       func(string) []Hit
		text, want string
	}{
		{l.FindActivities, "It flies, then was RUNNING and hopped", "fly run jump"},
		{l.FindActivities, "chased by wolves", "escape"},
		{l.FindActivities, "a catfish", ""},
		{l.FindActivities, "ネコが走って、飛び越える", "run jump"},
		{l.FindActivities, "小狗找宝藏", "find"},
		{l.FindPlaces, "under the sea", "sea"},
		{l.FindPlaces, "on an ice mountain", "ice"},
		{l.FindColours, "a blue and golden dog", "blue golden"},
		{l.FindAmounts, "much faster, with lots of stars", "fast many"},
		{l.FindDimensions, "a 3D game", "3d"},
		{l.FindDimensions, "３Ｄのゲーム", "3d"},
	} {
		if got := ids(test.find(test.text)); got != test.want {
			t.Errorf("%q: %q, want %q", test.text, got, test.want)
		}
	}
}

func TestInflect(t *testing.T) {
	for word, want := range map[string]string{
		"run": "run runs runed runer runing runned runner running", "fly": "fly flies flied flying",
		"chase": "chase chases chased chaser chasing", "catch": "catch catches catched catcher catching",
		"play": "play plays played player playing", "fishing": "fishing",
	} {
		if got := strings.Join(Inflect(word), " "); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"fly high", "空を飛ぶ", "飞", "a-b 'c’ &,", "ＡＢ３Ｄ", "\xff", "İ"} {
		f.Add(s)
	}
	l := load(f)
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		for _, find := range []func(string) []Hit{l.FindActivities, l.FindPlaces, l.FindAmounts, l.FindChanges} {
			at := 0
			for _, h := range find(s) {
				if h.Start < at || h.End <= h.Start || h.End > len(s) || !utf8.ValidString(s[h.Start:h.End]) {
					t.Fatalf("%q: hit %+v", s, h)
				}
				at = h.Start
			}
		}
	})
}
