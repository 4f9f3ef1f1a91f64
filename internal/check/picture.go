package check

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"image"
	_ "image/gif"  // formats that browsers show
	_ "image/jpeg" //
	_ "image/png"  //
	"io/fs"
	"path"
	"regexp"
	"strings"

	_ "golang.org/x/image/webp" //

	"dreamcore"
)

// checkPictures reports placeholders: files that are no picture, pictures of one
// colour or one pixel, the same picture under many names, empty sounds.
func (c *checker) checkPictures() {
	same := map[[32]byte][]string{}
	for _, name := range c.project.names {
		f := c.project.files[name]
		if f.size > maxReadBytes {
			continue
		}
		switch strings.ToLower(path.Ext(name)) {
		case ".png", ".jpg", ".jpeg", ".gif", ".webp":
			f = c.project.get(name)
			if f.trusted {
				continue
			}
			if c.picture(f) {
				sum := sha256.Sum256(f.data)
				same[sum] = append(same[sum], name)
			}
		case ".svg":
			f = c.project.get(name)
			if !f.trusted && !bytes.Contains(f.data, []byte("<svg")) {
				c.fail("asset_dummy", name, 0)
			}
		case ".mp3", ".ogg", ".wav", ".m4a", ".glb", ".ttf", ".woff2", ".woff", ".mp4", ".webm":
			f = c.project.get(name)
			if !f.trusted && !soundsReal(strings.ToLower(path.Ext(name)), f.data) {
				c.fail("asset_dummy", name, 0)
			}
		}
	}
	for _, names := range same {
		switch {
		case len(names) >= 3:
			c.fail("picture_copies", names[0], 0, "files", strings.Join(names[:min(len(names), 6)], ", "))
		case len(names) == 2:
			c.warn("picture_copies", names[0], 0, "files", strings.Join(names, ", "))
		}
	}
}

// picture judges one picture and reports whether it is one.
func (c *checker) picture(f *file) bool {
	config, _, err := image.DecodeConfig(bytes.NewReader(f.data))
	if err != nil {
		c.fail("asset_dummy", f.name, 0)
		return false
	}
	if config.Width*config.Height <= 1 {
		c.fail("picture_placeholder", f.name, 0)
		return false
	}
	if config.Width*config.Height > 64<<20 {
		c.warn("picture_huge", f.name, 0)
		return true
	}
	img, _, err := image.Decode(bytes.NewReader(f.data))
	if err != nil {
		c.fail("asset_dummy", f.name, 0)
		return false
	}
	if flat(img) {
		c.fail("picture_placeholder", f.name, 0)
		return false
	}
	return true
}

// flat reports whether a picture has one colour only.
func flat(img image.Image) bool {
	b := img.Bounds()
	r0, g0, b0, a0 := img.At(b.Min.X, b.Min.Y).RGBA()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if r, g, bl, a := img.At(x, y).RGBA(); r != r0 || g != g0 || bl != b0 || a != a0 {
				return false
			}
		}
	}
	return true
}

// soundsReal looks at the first bytes: enough to tell a sound, model or font
// from a text that was put in its place.
func soundsReal(ext string, data []byte) bool {
	if len(data) < 32 {
		return false
	}
	has := func(offset int, magic string) bool {
		return len(data) >= offset+len(magic) && string(data[offset:offset+len(magic)]) == magic
	}
	switch ext {
	case ".mp3":
		return has(0, "ID3") || data[0] == 0xff && data[1]&0xe0 == 0xe0
	case ".ogg":
		return has(0, "OggS")
	case ".wav":
		return has(0, "RIFF") && has(8, "WAVE")
	case ".m4a", ".mp4":
		return has(4, "ftyp")
	case ".webm":
		return has(0, "\x1a\x45\xdf\xa3")
	case ".glb":
		return has(0, "glTF")
	case ".woff":
		return has(0, "wOFF")
	case ".woff2":
		return has(0, "wOF2")
	}
	return true
}

// manifest is what the checker reads of template.json.
type manifest struct {
	Tag    string `json:"tag"`
	Change struct {
		Titles []string `json:"titles"`
		Hero   struct {
			Name    string `json:"name"`
			Picture string `json:"picture"`
		} `json:"hero"`
	} `json:"change"`
	Assets []struct {
		File string `json:"file"`
	} `json:"assets"`
}

// checkLeftovers compares the game with the template that it was made from.
func (c *checker) checkLeftovers() {
	c.own(func(s *script) {
		if s.name == "index.html" || c.project.files[s.name].trusted {
			return
		}
		for _, at := range todoComment.FindAllIndex(s.source, 3) {
			c.warn("todo_comment", s.name, s.line-1+lineAt(s.source, at[0]))
		}
	})
	if c.opt.Template == nil {
		return
	}
	data, err := fs.ReadFile(c.opt.Template, "template.json")
	if err != nil {
		return
	}
	var m manifest
	if json.Unmarshal(data, &m) != nil {
		return
	}
	was := readJSON(c.opt.Template, "game.json")
	var is any
	if f := c.project.get("game.json"); f != nil && json.Unmarshal(f.data, &is) != nil {
		return
	}
	if was == nil || is == nil {
		return
	}
	titleKept := len(m.Change.Titles) > 0
	for _, p := range m.Change.Titles {
		a, okA := pointer(was, p).(string)
		b, okB := pointer(is, p).(string)
		titleKept = titleKept && okA && okB && a == b
	}
	heroKept := equalJSON(pointer(was, m.Change.Hero.Name), pointer(is, m.Change.Hero.Name))
	picture := c.project.get(m.Change.Hero.Picture)
	pictureKept := picture != nil && picture.trusted
	switch {
	case titleKept && heroKept && pictureKept:
		c.fail("template_unchanged", "game.json", 0, "template", quote(m.Tag))
	case titleKept:
		c.fail("title_of_template", "game.json", 0, "template", quote(m.Tag))
	case pictureKept && !heroKept:
		c.warn("hero_of_template", m.Change.Hero.Picture, 0)
	}
	if !heroKept {
		c.oldHero(pointer(was, m.Change.Hero.Name), is)
	}
}

var todoComment = regexp.MustCompile(`(?://|/\*|\*)\s*(TODO|FIXME|XXX)\b`)

// oldHero warns of texts that still speak of the template's hero.
func (c *checker) oldHero(name, game any) {
	names, ok := name.(map[string]any)
	if !ok {
		return
	}
	for _, v := range names {
		old, ok := v.(string)
		if !ok || len([]rune(old)) < 3 {
			continue
		}
		pattern, err := regexp.Compile(`(?i)(^|[^\p{L}])` + regexp.QuoteMeta(old) + `($|[^\p{L}])`)
		if err != nil {
			continue
		}
		walkJSON(game, func(s string) {
			if !namesFile.MatchString(s) && pattern.MatchString(s) {
				c.find(dreamcore.Warn, "old_hero", "game.json", 0, "text", quote(s))
			}
		})
	}
}

func readJSON(fsys fs.FS, name string) any {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil
	}
	var v any
	if json.Unmarshal(data, &v) != nil {
		return nil
	}
	return v
}

// pointer follows a JSON pointer; nil when it leads nowhere.
func pointer(v any, p string) any {
	if p == "" {
		return v
	}
	for _, part := range strings.Split(strings.TrimPrefix(p, "/"), "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch t := v.(type) {
		case map[string]any:
			v = t[part]
		case []any:
			i := 0
			for _, d := range part {
				if d < '0' || d > '9' || i > len(t) {
					return nil
				}
				i = i*10 + int(d-'0')
			}
			if part == "" || i >= len(t) {
				return nil
			}
			v = t[i]
		default:
			return nil
		}
	}
	return v
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
