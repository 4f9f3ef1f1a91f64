package recipe

import (
	"strings"
	"testing"

	"dreamcore"
)

// No text of a made game names what the template had in a place and the game
// has no more, wherever the template's data say what that was.
func TestTextsNameNothingOld(t *testing.T) {
	c, r := kitchen(t)
	for tag, s := range skeletons(t) {
		p, err := c.Make(s.manifest, s.files, r.Read("a submarine under the sea", "en"))
		if err != nil {
			t.Fatal(err)
		}
		was, err := newDocument(s.files[GameFile])
		if err != nil {
			t.Fatal(err)
		}
		now, err := newDocument(p.Files[GameFile])
		if err != nil {
			t.Fatal(err)
		}
		for _, slot := range s.manifest.slots() {
			var old, new dreamcore.Localized
			if !was.get(slot.Name, &old) || !now.get(slot.Name, &new) {
				t.Fatalf("%s: no name at %s", tag, slot.Name)
			}
			for _, lang := range dreamcore.Langs {
				for _, text := range []string{"goal", "won", "lost"} {
					var said string
					if !now.get("/texts/"+text+"/"+string(lang), &said) || old[lang] == new[lang] || len([]rune(old[lang])) < 2 {
						continue
					}
					if strings.Contains(strings.ToLower(said), strings.ToLower(old[lang])) {
						t.Errorf("%s: %q speaks of the template's %s, which is %s now", tag, said, old[lang], new[lang])
					}
				}
			}
		}
	}
}
