package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io/fs"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dreamcore"
)

// Limits on one template's own files.
const (
	maxFiles     = 60
	maxFileBytes = 2 << 20
)

// What a template must at least offer for change.
const (
	minNumbers = 3
	minRules   = 2
	minRoles   = 3
)

var hexColour = regexp.MustCompile(`^#[0-9a-f]{6}$`)

// draft is a template while it is read; it collects faults, so that whoever
// writes a template sees all of them at once.
type draft struct {
	dir    string
	own    map[string][]byte // the template's own files
	json   map[string]any    // decoded JSON files, as they are asked for
	faults []error
}

func (d *draft) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Errorf("template "+d.dir+": "+format, args...))
}

// read reads and validates the template in dir.
func read(library, shared fs.FS, dir string) (Template, error) {
	d := &draft{dir: dir, own: map[string][]byte{}, json: map[string]any{}}
	if err := d.load(library); err != nil {
		return Template{}, fmt.Errorf("template %s: %w", dir, err)
	}
	m, err := Parse(d.own["template.json"])
	if err != nil {
		return Template{}, fmt.Errorf("template %s: %w", dir, err)
	}
	d.identity(m)
	d.change(m.Change)
	d.levels(m.Levels)
	d.assets(m.Assets)
	t := Template{Manifest: m}
	for name, data := range d.own {
		t.files = append(t.files, File{name, data})
	}
	t.files = append(t.files, d.shared(shared, m.Assets)...)
	slices.SortFunc(t.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return t, errors.Join(d.faults...)
}

func (d *draft) load(library fs.FS) error {
	return fs.WalkDir(library, d.dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(library, name)
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, d.dir+"/")
		if len(data) > maxFileBytes {
			return fmt.Errorf("%s has %d bytes, more than %d", rel, len(data), maxFileBytes)
		}
		if d.own[rel] = data; len(d.own) > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		return nil
	})
}

func (d *draft) identity(m Manifest) {
	switch {
	case string(m.Tag) != d.dir:
		d.fault("tag is %q, must be the folder's name", m.Tag)
	case !tagForm.MatchString(d.dir):
		d.fault("the folder's name must be lower-case words joined by hyphens")
	}
	if !strings.HasPrefix(d.dir, m.Dimension+"/") || m.Dimension == "" {
		d.fault("dimension is %q, must be the tag's", m.Dimension)
	}
	if m.Genre == "" {
		d.fault("genre is empty")
	}
	d.oneOf("controls", m.Controls, Controls)
	for _, name := range []string{"index.html", "game.js", "game.json"} {
		if len(d.own[name]) == 0 {
			d.fault("%s is missing", name)
		}
	}
	for _, lang := range dreamcore.Langs {
		for place, s := range map[string]string{"title": m.Title[lang], "summary": m.Summary[lang], "words": strings.Join(m.Words[lang], "")} {
			if strings.TrimSpace(s) == "" {
				d.fault("%s has nothing in %s", place, lang)
			}
			if strings.ContainsAny(s, "\n|") {
				d.fault("%s in %s has a line break or a bar, which would break the catalogue", place, lang)
			}
		}
	}
}

func (d *draft) change(c Change) {
	if len(c.Titles) == 0 {
		d.fault("change.titles is empty")
	}
	for _, p := range c.Titles {
		if s, ok := d.at(p).(string); !ok || s == "" {
			d.fault("change.titles: %s is no text", p)
		}
	}
	if len(c.Foes) == 0 || len(c.Prizes) == 0 {
		d.fault("change needs at least one foe and one prize")
	}
	for _, s := range c.Subjects() {
		d.subject(s)
	}
	if len(c.Palette) < minRoles {
		d.fault("change.palette has %d roles, at least %d are needed", len(c.Palette), minRoles)
	}
	for role, p := range c.Palette {
		d.oneOf("change.palette", role, roles)
		if s, _ := d.at(p).(string); !hexColour.MatchString(s) {
			d.fault("change.palette: %s is %q, must be #rrggbb in lower case", p, s)
		}
	}
	if len(c.Numbers) < minNumbers {
		d.fault("change.numbers has %d entries, at least %d are needed", len(c.Numbers), minNumbers)
	}
	for _, n := range c.Numbers {
		d.oneOf("change.numbers: "+n.Path, n.Means, numberMeans)
		v, ok := d.at(n.Path).(float64)
		if !ok || n.Min >= n.Max || v < n.Min || v > n.Max {
			d.fault("change.numbers: %s is %v, must be a number from %v to %v", n.Path, d.at(n.Path), n.Min, n.Max)
		}
	}
	if len(c.Rules) < minRules {
		d.fault("change.rules has %d entries, at least %d are needed", len(c.Rules), minRules)
	}
	for _, r := range c.Rules {
		d.oneOf("change.rules: "+r.Path, r.Means, ruleMeans)
		now := d.at(r.Path)
		// DeepEqual, since == panics on an object
		if len(r.Values) < 2 || !slices.ContainsFunc(r.Values, func(v any) bool { return reflect.DeepEqual(v, now) }) {
			d.fault("change.rules: %s is %v, must be one of at least two values %v", r.Path, now, r.Values)
		}
	}
}

func (d *draft) subject(s Subject) {
	name, _ := d.at(s.Name).(map[string]any)
	for _, lang := range dreamcore.Langs {
		if text, _ := name[string(lang)].(string); text == "" {
			d.fault("%s has no name in %s", s.Name, lang)
		}
	}
	if s.Look == "" {
		d.fault("%s does not say how it looks", s.Name)
	}
	config, err := png.DecodeConfig(bytes.NewReader(d.own[s.Picture]))
	switch {
	case err != nil:
		d.fault("%s: the picture %q is no PNG of the template: %v", s.Name, s.Picture, err)
	case config.Width != config.Height || config.Width != s.Size:
		d.fault("%s: the picture %s has %dx%d pixels, size says %d", s.Name, s.Picture, config.Width, config.Height, s.Size)
	}
}

func (d *draft) levels(l *Levels) {
	if l == nil {
		return
	}
	d.oneOf("levels.kind", l.Kind, levelKinds)
	if len(l.Files) == 0 {
		d.fault("levels.files is empty; leave levels out when there are none")
	}
	for _, name := range l.Files {
		if kind, _ := d.at(name + "#/kind").(string); kind != l.Kind {
			d.fault("levels: %s is of kind %q, the manifest says %q", name, kind, l.Kind)
		}
	}
}

func (d *draft) assets(list []Asset) {
	listed := map[string]bool{}
	for _, a := range list {
		if len(d.own[a.File]) == 0 {
			d.fault("assets: %s is missing or empty", a.File)
		}
		if a.Source == "" {
			d.fault("assets: %s does not say where it comes from", a.File)
		}
		d.oneOf("assets: the licence of "+a.File, a.Licence, licences)
		listed[a.File] = true
	}
	for name := range d.own {
		if strings.HasPrefix(name, "assets/") && !listed[name] {
			d.fault("assets: %s is not listed with its source and licence", name)
		}
	}
}

// pageRef finds what the page loads; a reference that is not the template's own
// is delivered with it.
var pageRef = regexp.MustCompile(`(?:src|href)="([^"#?]+)"`)

// importMap finds the page's import map, whose modules are delivered too.
var importMap = regexp.MustCompile(`(?s)<script type="importmap">(.*?)</script>`)

// loads lists what the page loads, in its order and perhaps more than once.
func (d *draft) loads() []string {
	page := string(d.own["index.html"])
	var names []string
	for _, ref := range pageRef.FindAllStringSubmatch(page, -1) {
		names = append(names, ref[1])
	}
	for _, block := range importMap.FindAllStringSubmatch(page, -1) {
		var m struct {
			Imports map[string]string `json:"imports"`
		}
		if err := json.Unmarshal([]byte(block[1]), &m); err != nil {
			d.fault("index.html: the import map: %v", err)
			continue
		}
		for _, bare := range slices.Sorted(maps.Keys(m.Imports)) {
			names = append(names, strings.TrimPrefix(m.Imports[bare], "./"))
		}
	}
	return names
}

func (d *draft) shared(shared fs.FS, assets []Asset) []File {
	var files []File
	seen := map[string]bool{}
	for _, name := range d.loads() {
		if path.Clean(name) != name || path.IsAbs(name) || strings.Contains(name, ":") || strings.HasPrefix(name, "..") {
			d.fault("index.html loads %q, which is no plain relative path", name)
			continue
		}
		if seen[name] || d.own[name] != nil {
			continue
		}
		seen[name] = true
		from := "vendor/" + name
		switch {
		case name == "dreamcore-sdk.js":
			from = "sdk/" + name
		case strings.HasPrefix(name, "kit/"):
			from = name
		}
		data, err := fs.ReadFile(shared, from)
		if err != nil {
			d.fault("index.html loads %s, which neither the template nor the kit has: %v", name, err)
			continue
		}
		files = append(files, File{name, data})
	}
	if !seen["dreamcore-sdk.js"] {
		d.fault("index.html does not load dreamcore-sdk.js")
	}
	// A game goes out with the licences of what is not ours in it.
	for _, name := range notices(seen, assets) {
		data, err := fs.ReadFile(shared, "vendor/"+name)
		if err != nil {
			d.fault("the licence %s is not in the library: %v", name, err)
			continue
		}
		files = append(files, File{name, data})
	}
	return files
}

// notices names the licence files that belong to what the page loads and to
// the manifest's assets.
func notices(loaded map[string]bool, assets []Asset) []string {
	var names []string
	for name := range loaded {
		if strings.HasPrefix(name, "three") {
			names = append(names, "three.LICENSE")
			break
		}
	}
	for _, a := range assets {
		if strings.HasPrefix(a.Source, "Noto") {
			return append(names, "noto.LICENSE")
		}
	}
	return names
}

func (d *draft) oneOf(place, word string, words []string) {
	if !slices.Contains(words, word) {
		d.fault("%s: %q is not one of %s", place, word, strings.Join(words, ", "))
	}
}

// at resolves "POINTER" into game.json or "FILE#POINTER" into another file; nil
// when there is nothing.
func (d *draft) at(pointer string) any {
	file := "game.json"
	if name, rest, ok := strings.Cut(pointer, "#"); ok {
		file, pointer = name, rest
	}
	doc, ok := d.json[file]
	if !ok {
		if err := json.Unmarshal(d.own[file], &doc); err != nil {
			d.fault("%s: %v", file, err)
		}
		d.json[file] = doc
	}
	v, _ := resolve(doc, pointer)
	return v
}

// resolve follows an RFC 6901 pointer.
func resolve(doc any, pointer string) (any, bool) {
	if pointer == "" {
		return doc, true
	}
	if pointer[0] != '/' {
		return nil, false
	}
	for _, part := range strings.Split(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch at := doc.(type) {
		case map[string]any:
			v, ok := at[part]
			if !ok {
				return nil, false
			}
			doc = v
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(at) || strconv.Itoa(i) != part {
				return nil, false
			}
			doc = at[i]
		default:
			return nil, false
		}
	}
	return doc, true
}
