package playtest

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"

	"dreamcore"
)

func sampled(name string, places ...[]float64) run {
	r := run{arm: name}
	for _, p := range places {
		r.samples = append(r.samples, sample{Entities: map[string][]float64{"i:hero.png#1": p}})
	}
	return r
}

func still() run {
	return sampled("idle", []float64{10, 10}, []float64{10, 10}, []float64{10, 10}, []float64{10, 10})
}

func evidenceOf(arms ...run) evidence {
	e := evidence{arms: map[string]difference{}}
	for _, a := range arms {
		e.arms[a.arm] = differ(still(), a, nil)
	}
	return e
}

func TestCompare(t *testing.T) {
	right := sampled("right", []float64{10, 10}, []float64{20, 10}, []float64{30, 10}, []float64{40, 10})
	left := sampled("left", []float64{10, 10}, []float64{5, 10}, []float64{0, 10}, []float64{-9, 10})
	up := sampled("up", []float64{10, 10}, []float64{10, 5}, []float64{10, 0}, []float64{10, -9})
	once := sampled("space", []float64{10, 10}, []float64{30, 10}, []float64{10, 10}, []float64{10, 10})
	trembling := sampled("space", []float64{10, 10}, []float64{12, 10}, []float64{12, 10}, []float64{12, 10})
	same := sampled("left", []float64{10, 10}, []float64{20, 10}, []float64{30, 10}, []float64{40, 10})

	if m := evidenceOf(right, left).motion(); m != dreamcore.ControlsOK {
		t.Errorf("opposite keys: %s", m)
	}
	if m := evidenceOf(right, same).motion(); m != dreamcore.Moves {
		t.Errorf("both keys the same way: %s", m)
	}
	if m := evidenceOf(once).motion(); m == dreamcore.Moves {
		t.Errorf("one sample that differs counts as moving")
	}
	if m := evidenceOf(trembling).motion(); m == dreamcore.Moves {
		t.Errorf("two pixels count as moving")
	}
	if m := evidenceOf().motion(); m != dreamcore.Frozen {
		t.Errorf("nothing: %s", m)
	}
	for _, c := range []struct {
		controls string
		arms     []run
		ok       bool
	}{
		{"move-2d", []run{right, left}, false},
		{"move-2d", []run{right, left, up}, true},
		{"move-x", []run{right, left}, true},
		{"move-x", []run{right, same}, false},
		{"jump-x", []run{right, left}, false},
		{"jump-x", []run{right, left, up}, true},
		{"tap", []run{right, left}, false},
		{"tap", []run{up}, true},
		{"pointer", []run{right, left}, false},
		{"board", []run{trembling}, false},
		{"", []run{right}, true},
		{"", []run{trembling}, false},
	} {
		if _, ok := evidenceOf(c.arms...).gate(c.controls); ok != c.ok {
			t.Errorf("gate %q with %d arms: %t", c.controls, len(c.arms), ok)
		}
	}
}

// What moves by itself, what is text, and what cannot be told apart never counts.
func TestWhatDoesNotCount(t *testing.T) {
	moved := sampled("right", []float64{10, 10}, []float64{20, 10}, []float64{30, 10}, []float64{40, 10})
	if d := differ(still(), moved, map[string]bool{"i:hero.png": true}); len(d.moved) > 0 {
		t.Errorf("noise counts: %v", d.moved)
	}
	for i := range moved.samples {
		moved.samples[i].Entities["i:hero.png#2"] = []float64{0, 0}
	}
	if d := differ(still(), moved, nil); len(d.moved) > 0 {
		t.Errorf("another number of the same picture counts: %v", d.moved)
	}
	words := func(x float64) run {
		r := run{arm: "right"}
		for range 4 {
			r.samples = append(r.samples, sample{Entities: map[string][]float64{"T:Score #1": {x, 0}}})
		}
		return r
	}
	if d := differ(words(0), words(50), nil); len(d.moved) > 0 {
		t.Errorf("text counts: %v", d.moved)
	}
}

func TestAnimate(t *testing.T) {
	var frames [][]byte
	for i := range 4 {
		img := image.NewRGBA(image.Rect(0, 0, 96, 54))
		for x := range 96 {
			for y := range 54 {
				img.Set(x, y, color.RGBA{uint8(x * 2), uint8(y * 4), 90, 255})
			}
		}
		for k := range 9 {
			img.Set(i*3+k%3, 9+k/3, color.RGBA{255, 0, 0, 255})
		}
		var b bytes.Buffer
		if err := png.Encode(&b, img); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, b.Bytes())
	}
	movie, err := animate(frames, 5)
	if err != nil {
		t.Fatal(err)
	}
	first, err := png.Decode(bytes.NewReader(movie)) // a plain decoder sees the first picture
	if err != nil {
		t.Fatal(err)
	}
	if first.Bounds() != image.Rect(0, 0, 32, 18) {
		t.Errorf("bounds %v", first.Bounds())
	}
	if r, _, _, _ := first.At(0, 3).RGBA(); r>>8 < 200 {
		t.Errorf("the red point is %v", first.At(0, 3))
	}
	if n := bytes.Count(movie, []byte("fcTL")); n != 4 {
		t.Errorf("%d frames", n)
	}
	if _, err := animate(nil, 5); err == nil {
		t.Error("no frames make a recording")
	}
}
