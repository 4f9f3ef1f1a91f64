package keyproxy

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/draw"
	_ "image/gif" // decoders register themselves
	_ "image/jpeg"
	"image/png"
	"net/http"
	"strconv"
	"strings"

	xdraw "golang.org/x/image/draw"
	_ "golang.org/x/image/webp"

	"dreamcore/internal/strictjson"
)

// Limits of a picture.
const (
	maxPixels    = 4096 * 4096
	maxImageSide = 4096
	minImageSide = 16
	maxOwnSide   = 2048 // of a size that may be asked for
)

// image sends a picture order on. What comes back is decoded and written anew
// as PNG: nothing of the provider's file reaches the box.
func (c *call) image() *stop {
	width, height, s := c.order()
	if s != nil {
		return s
	}
	res, s := c.reserve()
	if s != nil {
		return s
	}
	ch := &charge{images: res.Amount.Images}
	defer func() { c.settle(res, ch) }()
	body := c.body.Append(make([]byte, 0, c.rec.BytesIn+ownBytes))
	ctx, watch, done := c.watch(false)
	defer done()
	var data []byte
	for try := 0; ; try++ {
		resp, s := c.request(ctx, body, false, ch)
		if s != nil {
			return s
		}
		ch.known = false // an upstream that refuses charges nothing
		if resp.StatusCode == http.StatusOK {
			ch.known, ch.images = true, res.Amount.Images
			if data, s = c.answer(ctx, resp, watch, res.Amount.Bytes-int64(len(body))); s != nil {
				return s
			}
			break
		}
		s, again := c.failed(resp, try)
		if !again {
			return s
		}
	}
	v, err := strictjson.Parse(data)
	if err != nil {
		return nof(UpstreamBroken, "its body is not JSON")
	}
	items := v.Get("data")
	n := int64(items.Len())
	if n == 0 || n > res.Amount.Images {
		return nof(UpstreamBroken, "it holds %d pictures, not %d", n, res.Amount.Images)
	}
	ch.images = n
	var out []strictjson.Value
	for i := range items.Len() {
		pic, err := repaint(items.At(i).Get("b64_json").Text(), width, height)
		if err != nil {
			return nof(UpstreamBroken, "picture %d: %v", i+1, err)
		}
		item := strictjson.Obj("b64_json", strictjson.Str(pic))
		if note := items.At(i).Get("revised_prompt").Text(); note != "" {
			item.Set("revised_prompt", strictjson.Str(clip(c.up.secrets().Text(note), 1000)))
		}
		out = append(out, item)
	}
	answer := strictjson.Obj("created", strictjson.Int(c.start.Unix()))
	answer.Set("data", strictjson.List(out...))
	c.w.Header().Set("Content-Type", "application/json")
	c.began, c.rec.Status = true, http.StatusOK
	return c.send(answer.Append(nil))
}

// order turns our request into one that the upstream understands and returns
// the size that the picture must have, 0 for whatever comes.
func (c *call) order() (width, height int, s *stop) {
	if size := c.body.Get("size").Text(); size != "" && size != "auto" {
		w, h, _ := strings.Cut(size, "x")
		width, _ = strconv.Atoi(w) // the list has checked the form
		height, _ = strconv.Atoi(h)
		if width < minImageSide || height < minImageSide || width > maxOwnSide || height > maxOwnSide {
			return 0, 0, nof(BadField, "the field size must be from %d to %d pixels a side", minImageSide, maxOwnSide)
		}
	}
	if c.up.PictureMaker {
		return width, height, nil
	}
	prompt := c.body.Get("prompt").Text()
	if style := c.body.Get("style").Text(); style != "" {
		prompt += "\nStyle: " + style
	}
	effects := c.body.Get("effects")
	for i := range effects.Len() {
		prompt += "\nEffect: " + effects.At(i).Text()
	}
	c.body.Set("prompt", strictjson.Str(prompt))
	for _, own := range []string{"style", "effects", "seed"} {
		c.body.Delete(own)
	}
	// The sizes that the OpenAI image models make.
	switch {
	case width == 0:
	case width*4 > height*5:
		c.body.Set("size", strictjson.Str("1536x1024"))
	case height*4 > width*5:
		c.body.Set("size", strictjson.Str("1024x1536"))
	default:
		c.body.Set("size", strictjson.Str("1024x1024"))
	}
	if c.body.Get("background").Text() == "transparent" {
		c.body.Set("output_format", strictjson.Str("png"))
	}
	return width, height, nil
}

// repaint decodes a picture in base64 and returns it as PNG in base64, scaled
// to fit width x height.
func repaint(b64 string, width, height int) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		return "", fmt.Errorf("it is not base64")
	}
	cfg, kind, err := image.DecodeConfig(bytes.NewReader(raw))
	if err != nil {
		return "", fmt.Errorf("it is not a PNG, JPEG, WebP or GIF")
	}
	if cfg.Width < 1 || cfg.Height < 1 || cfg.Width > maxImageSide || cfg.Height > maxImageSide || cfg.Width*cfg.Height > maxPixels {
		return "", fmt.Errorf("it has %d x %d pixels", cfg.Width, cfg.Height)
	}
	src, _, err := image.Decode(bytes.NewReader(raw))
	if err != nil {
		return "", fmt.Errorf("the %s is damaged", kind)
	}
	b := src.Bounds()
	if width == 0 || b.Dx() == width && b.Dy() == height {
		width, height = b.Dx(), b.Dy()
	}
	dst := image.NewNRGBA(image.Rect(0, 0, width, height))
	if b.Dx() == width && b.Dy() == height {
		draw.Draw(dst, dst.Bounds(), src, b.Min, draw.Src)
	} else {
		// The whole picture, in the middle, without distortion.
		w, h := width, max(1, b.Dy()*width/b.Dx())
		if h > height {
			w, h = max(1, b.Dx()*height/b.Dy()), height
		}
		at := image.Rect(0, 0, w, h).Add(image.Pt((width-w)/2, (height-h)/2))
		xdraw.CatmullRom.Scale(dst, at, src, b, draw.Src, nil)
	}
	var out bytes.Buffer
	enc := base64.NewEncoder(base64.StdEncoding, &out)
	if err := png.Encode(enc, dst); err != nil {
		return "", fmt.Errorf("write it as PNG: %w", err)
	}
	if err := enc.Close(); err != nil {
		return "", fmt.Errorf("write it as PNG: %w", err)
	}
	return out.String(), nil
}
