package recipe

import (
	"slices"
	"testing"

	"dreamcore"
	"dreamcore/internal/offline/wish"
)

// Where a wish names no place, the hero's world is the game's: its place, and
// foes and prizes from there.
func TestWorld(t *testing.T) {
	c, r := kitchen(t)
	all := skeletons(t)
	for _, test := range []struct{ wish, place string }{
		{"an astronaut game", "space"}, {"宇宙飛行士のゲーム", "space"}, {"a rocket racing", "space"}, {"外星人", "space"},
		{"an octopus", "sea"}, {"3D submarine treasure", "sea"}, {"潜水艦", "sea"}, {"鲸鱼", "sea"}, {"a fish", "sea"},
		{"a penguin", "ice"}, {"ペンギン", "ice"}, {"企鹅", "ice"},
		{"dinosaur", "volcano"}, {"恐竜が走る", "volcano"}, {"a ghost", "night"}, {"蝙蝠", "night"}, {"robot", "city"},
		{"a penguin in the desert", "desert"}, {"an octopus in space", "space"},
	} {
		w := r.Read(test.wish, dreamcore.DetectLang(test.wish))
		for tag, s := range all {
			p, err := c.Make(s.manifest, s.files, w)
			if err != nil {
				t.Fatal(err)
			}
			if p.Place != test.place {
				t.Fatalf("%q is in %s, want %s", test.wish, p.Place, test.place)
			}
			world := c.Lexicon.Places[p.Place]
			names := func(list []string, thing wish.Thing) bool {
				return slices.ContainsFunc(list, func(n string) bool { found, _ := c.Index.Lookup(n); return sameThing(found, thing) })
			}
			if len(p.Foes) > 0 && !names(world.Foes, p.Foes[0].Thing) {
				t.Errorf("%s, %q: %s does not belong to %s", tag, test.wish, p.Foes[0].Key(), p.Place)
			}
			for _, prize := range p.Prizes {
				if !names(world.Prizes, prize.Thing) {
					t.Errorf("%s, %q: %s does not belong to %s", tag, test.wish, prize.Key(), p.Place)
				}
			}
		}
	}
}

// Every name in the lexicon's places is the name of a thing.
func TestHomes(t *testing.T) {
	c, _ := kitchen(t)
	seen := map[string]string{}
	for id, place := range c.Lexicon.Places {
		for _, name := range place.Home {
			found, ok := c.Index.Lookup(name)
			if !ok {
				t.Errorf("%s: nothing is called %q", id, name)
			}
			if other := seen[found.Key()]; other != "" && other != id {
				t.Errorf("%q is at home in %s and in %s", name, other, id)
			}
			seen[found.Key()] = id
		}
	}
}
