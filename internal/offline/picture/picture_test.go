package picture

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"strings"
	"testing"

	"dreamcore"
)

func make1(t *testing.T, q Request) (*image.RGBA, Info) {
	t.Helper()
	if q.W == 0 {
		q.W, q.H = 128, 128
	}
	m, info, err := Draw(context.Background(), q)
	if err != nil {
		t.Fatalf("%q: %v", q.Prompt, err)
	}
	return m, info
}

func thing(t *testing.T, prompt string) (*image.RGBA, Info) {
	t.Helper()
	return make1(t, Request{Prompt: prompt, Transparent: true})
}

func TestUnderstandsWhatIsMeant(t *testing.T) {
	for _, c := range []struct{ prompt, picture string }{
		{"a cat", "1f408"},
		{"ネコ", "1f408"},
		{"ねこ", "1f408"},
		{"子猫", "1f408"},
		{"一只小猫", "1f408"},
		{"cats", "1f408"},
		{"🐱", "1f431"},
		{"いぬ", "1f415"}, {"小狗", "1f415"}, {"puppy", "1f415"},
		{"a flying cat, side view", "1f408"},
		{"空を飛ぶネコ", "1f408"},
		{"会飞的猫", "1f408"},
		{"cute cartoon penguin, side view, flat vector, game sprite, transparent background", "1f427"},
		{"a small green frog jumping over a log", "1f438"},
		{"knight", "knight"}, {"騎士", "knight"}, {"骑士", "knight"},
		{"宇宙人", "1f47d"}, {"外星人", "1f47d"},
		{"忍者", "1f977"}, {"怪獣", "1f996"}, {"姫", "1f478"}, {"ドラゴン", "1f409"},
		{"レーシングカー", "1f3ce"}, {"赛车", "1f3ce"}, {"a racing car", "1f3ce"}, {"車", "1f697"},
		{"racing car, top view, facing up", "1f3ce-top"},
		{"a rocket on the moon", "1f680"},
		{"ninja cat", "1f408"}, {"忍者ネコ", "1f408"}, {"猫の王様", "1f408"},
		{"cat with a hat", "1f408"},
		{"帽子をかぶった犬", "1f415"},
		{"戴帽子的猫", "1f408"},
		{"a bird on a tree", "1f426"},
		{"pearl", "pearl"}, {"真珠", "pearl"}, {"珍珠", "pearl"},
		{"treasure chest", "treasure"}, {"宝箱", "treasure"}, {"宝藏", "treasure"},
		{"gold coin", "1fa99"}, {"コイン", "1fa99"}, {"金币", "1fa99"},
		{"orange cat", "1f408"}, {"an orange", "1f34a"},
		{"stone wall texture", "tile-stone"}, {"ice platform", "tile-ice"}, {"冰的平台", "tile-ice"},
		{"a cat on a platform", "1f408"},
	} {
		r := understand(c.prompt)
		_, info := thing(t, c.prompt)
		if got := info.Picture; got != c.picture && got+"-top" != c.picture {
			t.Errorf("%q is drawn as %s, want %s", c.prompt, got, c.picture)
		}
		if strings.HasSuffix(c.picture, "-top") && !r.top {
			t.Errorf("%q is not seen from above", c.prompt)
		}
		if info.Fallback {
			t.Errorf("%q was not understood", c.prompt)
		}
	}
}

func TestReadsScenes(t *testing.T) {
	for _, c := range []struct{ prompt, place string }{
		{"underwater background", "sea"}, {"海の背景", "sea"}, {"海底背景", "sea"},
		{"a forest landscape", "forest"}, {"space background with stars", "space"},
		{"background of a night city", "city"}, {"desert scenery", "desert"}, {"雪山の風景", "snow"},
	} {
		for _, transparent := range []bool{false, true} {
			m, info := make1(t, Request{Prompt: c.prompt, W: 160, H: 90, Transparent: transparent})
			if info.Concept != "" || info.Fallback || info.Place != c.place && !(c.place == "city" && info.Place == "night") {
				t.Errorf("%q gives %+v, want the place %s alone", c.prompt, info, c.place)
			}
			if a := m.RGBAAt(80, 45).A; a != 255 {
				t.Errorf("%q has a hole", c.prompt)
			}
		}
	}
	_, info := make1(t, Request{Prompt: "a shark under the sea", W: 160, H: 90})
	if info.Concept != "shark" || info.Place != "sea" {
		t.Errorf("a shark under the sea is %+v", info)
	}
}

func TestSameWordsGiveTheSamePicture(t *testing.T) {
	for _, q := range []Request{
		{Prompt: "a flying cat", W: 96, H: 96, Transparent: true},
		{Prompt: "a cat in the forest", W: 96, H: 96},
		{Prompt: "flibbertigibbet", W: 96, H: 96, Transparent: true},
	} {
		a, _, err := Make(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := Make(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%q is drawn in two ways", q.Prompt)
		}
	}
}

// mean is the mean colour of what can be seen.
func mean(m *image.RGBA) (r, g, b float64) {
	var a float64
	for i := 0; i < len(m.Pix); i += 4 {
		r += float64(m.Pix[i])
		g += float64(m.Pix[i+1])
		b += float64(m.Pix[i+2])
		a += float64(m.Pix[i+3])
	}
	return r / a, g / a, b / a
}

func TestColoursTheThingThatIsMeant(t *testing.T) {
	for _, prompt := range []string{"a blue dog", "青い犬", "あおいいぬ", "蓝色的狗", "藍色的小狗", "blue flying dog", "BLUE DOG"} {
		m, _ := thing(t, prompt)
		if r, _, b := mean(m); b < r+0.15 {
			t.Errorf("%q is not blue: red %.2f, blue %.2f", prompt, r, b)
		}
	}
	red, _ := thing(t, "red dragon")
	if r, g, _ := mean(red); r < g+0.15 {
		t.Errorf("a red dragon is not red")
	}
	plain, _ := thing(t, "dog")
	sky, _ := thing(t, "a dog in the blue sky")
	if !bytes.Equal(plain.Pix, sky.Pix) {
		t.Error("the colour of the sky paints the dog")
	}
	tinted, _ := make1(t, Request{Prompt: "dog", Transparent: true, Effects: Effects{Tint: "#00c853"}})
	if r, g, _ := mean(tinted); g < r+0.15 {
		t.Error("the effect tint does nothing")
	}
}

func TestWhatIsSaidIsSeen(t *testing.T) {
	plain := map[string]*image.RGBA{}
	for _, c := range []struct{ base, said string }{
		{"cat", "flying cat"}, {"cat", "cat with a hat"}, {"bear", "angry bear"}, {"cat", "king cat"}, {"fox", "pirate fox"},
		{"panda", "sleeping panda"}, {"gem", "sparkling gem"}, {"fox", "burning fox"}, {"cat", "astronaut cat"}, {"cat", "ghostly cat"},
		{"dog", "superhero dog"}, {"cat", "cat with glasses"}, {"knight", "knight with a sword"}, {"cat", "cat and dog"},
		{"cat", "cat riding a rocket"}, {"dog", "rainbow dog"}, {"cat", "robot cat"}, {"cat", "pixel art cat"}, {"cat", "sticker of a cat"},
		{"cat", "silhouette of a cat"}, {"cat", "a cat facing right"}, {"cat", "右向きのネコ"}, {"rocket", "rocket facing up"},
		{"car", "car from above"}, {"猫", "会飞的猫"}, {"猫", "骑着火箭的猫"}, {"犬", "ロケットに乗った犬"},
	} {
		if plain[c.base] == nil {
			plain[c.base], _ = thing(t, c.base)
		}
		m, info := thing(t, c.said)
		if info.Fallback || bytes.Equal(m.Pix, plain[c.base].Pix) {
			t.Errorf("%q looks like %q", c.said, c.base)
		}
	}
	// What flies by itself needs no wings.
	bird, _ := thing(t, "bird")
	flying, _ := thing(t, "flying bird")
	if !bytes.Equal(bird.Pix, flying.Pix) {
		t.Error("a flying bird has been given more wings")
	}
}

func TestFacingMirrors(t *testing.T) {
	left, _ := thing(t, "a cat facing left")
	right, _ := thing(t, "a cat facing right")
	mirror(right)
	diff := 0
	for i := range left.Pix {
		diff += max(int(left.Pix[i])-int(right.Pix[i]), int(right.Pix[i])-int(left.Pix[i]))
	}
	if avg := float64(diff) / float64(len(left.Pix)); avg > 1 {
		t.Errorf("left and right are no mirror images: they differ by %.2f of 255", avg)
	}
	flipped, _ := make1(t, Request{Prompt: "a cat", Transparent: true, Effects: Effects{FlipX: true}})
	mirror(flipped)
	plain, _ := thing(t, "a cat")
	if !bytes.Equal(flipped.Pix, plain.Pix) {
		t.Error("FlipX is no mirror image")
	}
}

func TestFillsItsFrame(t *testing.T) {
	for _, size := range [][2]int{{16, 16}, {64, 64}, {300, 100}, {90, 200}} {
		for _, prompt := range []string{"a cat", "a flying cat", "zorp", "pirate fox", "sticker of a cat"} {
			m, _ := make1(t, Request{Prompt: prompt, W: size[0], H: size[1], Transparent: true})
			r := visible(m)
			short := min(size[0], size[1])
			if r.Dx() < short*8/10 && r.Dy() < short*8/10 {
				t.Errorf("%q at %v fills only %v", prompt, size, r)
			}
			if m.RGBAAt(0, 0).A != 0 || m.RGBAAt(size[0]-1, size[1]-1).A != 0 {
				t.Errorf("%q at %v is not transparent in its corners", prompt, size)
			}
		}
	}
}

func TestUnknownWordsGiveAFriendlyShape(t *testing.T) {
	a, info := thing(t, "flibbertigibbet")
	if !info.Fallback || info.Concept != "" {
		t.Errorf("it is %+v", info)
	}
	b, _ := thing(t, "zorp quux")
	if bytes.Equal(a.Pix, b.Pix) {
		t.Error("two unknown words look alike")
	}
	for _, prompt := range []string{"", "   ", "!!!", "<script>alert(1)</script>", strings.Repeat("blorp ", 5000), "\xff\xfe\x00", "İstanbul Kelvin K ﷺ"} {
		if m, info := thing(t, prompt); visible(m).Empty() {
			t.Errorf("%.30q shows nothing: %+v", prompt, info)
		}
	}
}

func TestRefusesNonsense(t *testing.T) {
	for _, q := range []Request{
		{Prompt: "cat", W: 0, H: 10}, {Prompt: "cat", W: 15, H: 64}, {Prompt: "cat", W: 64, H: 2049},
		{Prompt: "cat", W: 64, H: 64, Style: "baroque"},
		{Prompt: "cat", W: 64, H: 64, Effects: Effects{Tint: "blue"}},
		{Prompt: "cat", W: 64, H: 64, Effects: Effects{Outline: "#12345"}},
		{Prompt: "cat", W: 64, H: 64, Effects: Effects{Facing: "north"}},
	} {
		_, _, err := Make(context.Background(), q)
		if dreamcore.CodeOf(err) != dreamcore.Invalid {
			t.Errorf("%+v gives %v", q, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := Make(ctx, Request{Prompt: "cat", W: 64, H: 64}); err == nil {
		t.Error("a cancelled request was carried out")
	}
}

func TestMakesPNG(t *testing.T) {
	for _, style := range Styles {
		data, _, err := Make(context.Background(), Request{Prompt: "a cat", W: 70, H: 50, Style: style, Transparent: true, Effects: Effects{Outline: "#ffffff"}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if m.Bounds() != image.Rect(0, 0, 70, 50) {
			t.Errorf("style %q: %v", style, m.Bounds())
		}
	}
}

func FuzzDraw(f *testing.F) {
	for _, s := range []string{"a flying blue cat with a hat, facing right", "青い犬が空を飛ぶ", "戴帽子的红色的猫", "ice platform texture", "\xf0\x9f", "İ a cat", "K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, prompt string) {
		m, _, err := Draw(context.Background(), Request{Prompt: prompt, W: 32, H: 32, Transparent: true})
		if err != nil {
			t.Fatalf("%q: %v", prompt, err)
		}
		if visible(m).Empty() {
			t.Fatalf("%q shows nothing", prompt)
		}
	})
}
