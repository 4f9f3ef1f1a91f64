package keyproxy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"

	"dreamcore"
)

// painted is a picture in the given format, in base64: left half red, right
// half transparent.
func painted(t testing.TB, format string, width, height int) string {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width / 2 {
			m.SetNRGBA(x, y, color.NRGBA{255, 0, 0, 255})
		}
	}
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, m)
	case "jpeg":
		err = jpeg.Encode(&b, m, nil)
	case "gif":
		err = gif.Encode(&b, m, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// webp is a 1x1 picture, lossless.
const webp = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="

func picture(w *world, b64 string) {
	w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"created":1,"data":[{"b64_json":%q,"revised_prompt":"key %s","url":"https://evil.example"}],"usage":{"total_tokens":5},"x":1}`, b64, canary)
	})
}

func decode(t *testing.T, body string) image.Image {
	t.Helper()
	var v struct {
		Data []map[string]string `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil || len(v.Data) != 1 {
		t.Fatalf("%v: %.200s", err, body)
	}
	for k := range v.Data[0] {
		if k != "b64_json" && k != "revised_prompt" {
			t.Errorf("the field %s came through", k)
		}
	}
	raw, err := base64.StdEncoding.DecodeString(v.Data[0]["b64_json"])
	if err != nil {
		t.Fatal(err)
	}
	m, kind, err := image.Decode(bytes.NewReader(raw))
	if err != nil || kind != "png" {
		t.Fatalf("%s %v", kind, err)
	}
	return m
}

func TestPicturesAreRepainted(t *testing.T) {
	w := newWorld(t)
	for name, b64 := range map[string]string{"png": painted(t, "png", 40, 20), "jpeg": painted(t, "jpeg", 40, 20), "gif": painted(t, "gif", 40, 20), "webp": webp} {
		picture(w, b64)
		r := w.post(imagesPath, minimal(imagesPath, false))
		if r.status != 200 {
			t.Errorf("%s: %d %s", name, r.status, r.body)
			continue
		}
		m := decode(t, r.body)
		if b := m.Bounds(); name != "webp" && (b.Dx() != 40 || b.Dy() != 20) {
			t.Errorf("%s: %v", name, b)
		}
		if leaks(r.body) {
			t.Errorf("%s: %s", name, r.body)
		}
	}
	// What stood beside the picture in the file is gone.
	raw, _ := base64.StdEncoding.DecodeString(painted(t, "png", 40, 20))
	chunk := []byte("tEXtComment\x00<script>alert(1)</script>")
	withText := append([]byte{}, raw[:33]...)
	withText = append(withText, byte(0), 0, 0, byte(len(chunk)-4))
	withText = append(withText, chunk...)
	sum := crc32.ChecksumIEEE(chunk)
	withText = append(withText, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
	withText = append(append(withText, raw[33:]...), "<script>behind</script>"...)
	picture(w, base64.StdEncoding.EncodeToString(withText))
	r := w.post(imagesPath, minimal(imagesPath, false))
	var v struct {
		Data []struct {
			B64 []byte `json:"b64_json"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(r.body), &v); err != nil || len(v.Data) != 1 || bytes.Contains(v.Data[0].B64, []byte("script")) {
		t.Errorf("%v %.300s", err, r.body)
	}
}

func TestPictureSizeAndTransparency(t *testing.T) {
	w := newWorld(t)
	picture(w, painted(t, "png", 400, 400))
	r := w.post(imagesPath, `{"model":"fake-image","prompt":"a cat","size":"100x50","background":"transparent","style":"flat","effects":["outline"],"output_format":"webp","response_format":"b64_json"}`)
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	m := decode(t, r.body)
	if m.Bounds().Dx() != 100 || m.Bounds().Dy() != 50 {
		t.Fatalf("%v", m.Bounds())
	}
	for _, c := range []struct {
		x, y   int
		opaque bool
	}{{35, 25, true}, {65, 25, false}, {5, 25, false}, {95, 25, false}} {
		if _, _, _, a := m.At(c.x, c.y).RGBA(); (a > 0x8000) != c.opaque {
			t.Errorf("(%d,%d): alpha %x", c.x, c.y, a)
		}
	}
	_, sent := w.up.seen()
	if sent["size"] != "1536x1024" || sent["style"] != nil || sent["effects"] != nil || sent["response_format"] != nil || sent["output_format"] != "png" {
		t.Errorf("%v", sent)
	}
	if p, _ := sent["prompt"].(string); !strings.Contains(p, "flat") || !strings.Contains(p, "outline") || !strings.HasPrefix(p, "a cat") {
		t.Errorf("%v", sent["prompt"])
	}
	// The built-in maker gets the order as it is.
	w = newWorld(t, func(cfg *Config, _ *JobTerms) {
		u := cfg.Upstreams[dreamcore.ImageGeneration][0]
		u.PictureMaker = true
		cfg.Upstreams[dreamcore.ImageGeneration] = []Upstream{u}
	})
	w.post(imagesPath, `{"model":"fake-image","prompt":"a cat","size":"100x50","style":"flat","effects":["outline"],"seed":7}`)
	if _, sent := w.up.seen(); sent["size"] != "100x50" || sent["style"] != "flat" || sent["seed"] != 7.0 || sent["prompt"] != "a cat" {
		t.Errorf("%v", sent)
	}
}

func TestPictureRefusals(t *testing.T) {
	w := newWorld(t)
	for _, size := range []string{"1x1", "4000x4000", "15x100", "9999x10"} {
		w.refused(w.post(imagesPath, `{"model":"fake-image","prompt":"x","size":"`+size+`"}`), 400, BadField)
	}
	big := painted(t, "png", 16, 16)
	raw, _ := base64.StdEncoding.DecodeString(big)
	raw[16], raw[17], raw[18], raw[19] = 0x7f, 0xff, 0xff, 0xff // says that it is 2 billion pixels wide
	sum := crc32.ChecksumIEEE(raw[12:29])
	raw[29], raw[30], raw[31], raw[32] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	for name, b64 := range map[string]string{
		"bomb": base64.StdEncoding.EncodeToString(raw), "no base64": "!!!", "svg": base64.StdEncoding.EncodeToString([]byte("<svg onload=alert(1)>")),
		"empty": "", "cut": big[:len(big)/2/4*4], "too large": painted(t, "png", 5000, 10),
	} {
		picture(w, b64)
		r := w.post(imagesPath, minimal(imagesPath, false))
		if r.status != 502 || !strings.Contains(r.body, string(UpstreamBroken)) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	w.up.set(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		io.WriteString(rw, `{"data":[{"url":"https://evil.example/x.png"}]}`)
	})
	if r := w.post(imagesPath, minimal(imagesPath, false)); r.status != 502 {
		t.Errorf("a URL instead of a picture: %d %s", r.status, r.body)
	}
}

func TestPicturesAreCounted(t *testing.T) {
	w := newWorld(t, limited(func(b *dreamcore.Budget) { b.Images = 3 }))
	picture(w, painted(t, "png", 20, 20))
	for range 3 {
		if r := w.post(imagesPath, minimal(imagesPath, false)); r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		w.settled(int(w.sent.Load()))
	}
	if u := w.usage(); u.Images != 3 || u.CostMicros != 120_000 {
		t.Errorf("%+v", u)
	}
	before := w.up.calls.Load()
	if r := w.post(imagesPath, minimal(imagesPath, false)); r.status != 400 || !strings.Contains(r.body, string(BudgetSpent)) {
		t.Errorf("%d %s", r.status, r.body)
	}
	if w.up.calls.Load() != before {
		t.Error("a fourth picture was ordered")
	}
}

// FuzzRepaint: whatever an upstream calls a picture, a PNG of the right size or
// an error comes out.
func FuzzRepaint(f *testing.F) {
	for _, format := range []string{"png", "jpeg", "gif"} {
		b, _ := base64.StdEncoding.DecodeString(painted(f, format, 20, 10))
		f.Add(b)
	}
	b, _ := base64.StdEncoding.DecodeString(webp)
	f.Add(b)
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := repaint(base64.StdEncoding.EncodeToString(data), 32, 32)
		if err != nil {
			return
		}
		raw, err := base64.StdEncoding.DecodeString(out)
		if err != nil {
			t.Fatal(err)
		}
		cfg, kind, err := image.DecodeConfig(bytes.NewReader(raw))
		if err != nil || kind != "png" || cfg.Width != 32 || cfg.Height != 32 {
			t.Fatalf("%s %+v %v", kind, cfg, err)
		}
	})
}
