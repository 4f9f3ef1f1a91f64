package template

import (
	"encoding/json"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"dreamcore"
	"dreamcore/games"
	"dreamcore/internal/text"
	"dreamcore/templates"
)

func open(t testing.TB) *Library {
	t.Helper()
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMatchIsExact(t *testing.T) {
	l := open(t)
	for _, tag := range l.Tags() {
		for _, line := range []string{"template: " + string(tag), "template: " + string(tag) + "\n"} {
			if got, reason := l.Match(line); reason != Matched || got.Tag != tag {
				t.Errorf("%q: got %q, %s", line, got.Tag, reason)
			}
		}
	}
	for line, want := range map[string]Reason{
		"":                             Malformed,
		"\n":                           Malformed,
		"2d/sky-flyer":                 Malformed,
		"template:2d/sky-flyer":        Malformed,
		"template:  2d/sky-flyer":      Malformed,
		"template: 2d/sky-flyer ":      Malformed,
		" template: 2d/sky-flyer":      Malformed,
		"Template: 2d/sky-flyer":       Malformed,
		"template: 2d/sky-flyer\r\n":   Malformed,
		"template: 2d/sky-flyer\n\n":   Malformed,
		"template: 2d/Sky-Flyer":       Malformed,
		"template: 2d/../2d":           Malformed,
		"template: `2d/sky-flyer`":     Malformed,
		"template: 4d/sky-flyer":       Malformed,
		"template: none":               Malformed,
		"\ufefftemplate: 2d/sky-flyer": Malformed,
		"template: 2d/sky-flyers":      Unknown,
		"template: 3d/sky-flyer":       Unknown,
		"template: 2d/sky":             Unknown,
	} {
		if got, reason := l.Match(line); reason != want || got.Tag != "" {
			t.Errorf("%q: got %q, %s; want %s", line, got.Tag, reason, want)
		}
	}
	for _, r := range []Reason{Matched, Malformed, Unknown} {
		for _, lang := range dreamcore.Langs {
			if key := "template." + string(r); text.T(lang, key) == key {
				t.Errorf("%s has no text in %s", key, lang)
			}
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("template: 2d/sky-flyer\n")
	f.Add("template: 2d/nothing-here")
	l := open(f)
	f.Fuzz(func(t *testing.T, line string) {
		got, reason := l.Match(line)
		named := strings.TrimSuffix(line, "\n") == "template: "+string(got.Tag)
		if (reason == Matched) != (got.Tag != "") || reason == Matched && !named {
			t.Errorf("%q: got %q, %s", line, got.Tag, reason)
		}
	})
}

func TestCatalogueHasOneLineForEachTemplate(t *testing.T) {
	l := open(t)
	form := regexp.MustCompile(`^- ([23]d/[a-z0-9-]+) \| [^|]+ \| [^|]+ \| controls: ([a-z0-9-]+) \| words: [^|]+$`)
	for _, lang := range dreamcore.Langs {
		lines := strings.Split(strings.TrimSuffix(l.Catalogue(lang), "\n"), "\n")
		if len(lines) != len(l.Tags()) {
			t.Fatalf("%s: %d lines for %d templates", lang, len(lines), len(l.Tags()))
		}
		for i, line := range lines {
			m := form.FindStringSubmatch(line)
			if m == nil || m[1] != string(l.Tags()[i]) || !slices.Contains(Controls, m[2]) {
				t.Errorf("%s: %q", lang, line)
			}
			if got, _ := l.Get(l.Tags()[i]); !strings.Contains(line, got.Title[lang]) {
				t.Errorf("%s: %q does not have the title in its language", lang, line)
			}
		}
	}
}

func TestFilesAreAWholeGame(t *testing.T) {
	l := open(t)
	for _, tag := range l.Tags() {
		files := l.Files(tag)
		var names []string
		for _, f := range files {
			names = append(names, f.Path)
		}
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("%s: not sorted, or twice the same: %v", tag, names)
		}
		for _, want := range []string{"template.json", "index.html", "game.js", "game.json", "dreamcore-sdk.js"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s lacks %s", tag, want)
			}
		}
		files[0] = File{"changed", nil}
		if l.Files(tag)[0].Path == "changed" {
			t.Errorf("%s: who asks for the files can change the library's list", tag)
		}
	}
	if got := l.Files("2d/none"); len(got) != 0 {
		t.Errorf("a template that does not exist has %d files", len(got))
	}
}

// good is a copy of one template that a test can break.
func good(t testing.TB) fstest.MapFS {
	t.Helper()
	m := fstest.MapFS{}
	err := fs.WalkDir(templates.Files, "2d/run-and-jump", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(templates.Files, name)
		m[strings.Replace(name, "run-and-jump", "probe", 1)] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	swap(t, m, "template.json", `"2d/run-and-jump"`, `"2d/probe"`)
	return m
}

func swap(t testing.TB, m fstest.MapFS, name, old, replacement string) {
	t.Helper()
	f := m["2d/probe/"+name]
	if !strings.Contains(string(f.Data), old) {
		t.Fatalf("%s does not contain %q", name, old)
	}
	f.Data = []byte(strings.Replace(string(f.Data), old, replacement, 1))
}

func TestABrokenTemplateIsRefusedWithItsFault(t *testing.T) {
	if _, err := New(good(t), games.Files); err != nil {
		t.Fatalf("the unbroken copy is refused: %v", err)
	}
	edit := func(name, old, replacement string) func(*testing.T, fstest.MapFS) {
		return func(t *testing.T, m fstest.MapFS) { swap(t, m, name, old, replacement) }
	}
	remove := func(name string) func(*testing.T, fstest.MapFS) {
		return func(_ *testing.T, m fstest.MapFS) { delete(m, "2d/probe/"+name) }
	}
	for name, c := range map[string]struct {
		broken func(*testing.T, fstest.MapFS)
		want   string
	}{
		"unknown field":           {edit("template.json", `"genre"`, `"gender"`), "unknown field"},
		"two documents":           {edit("template.json", "\n}\n", "\n}\n{}"), "after the document"},
		"no manifest":             {remove("template.json"), "decode template.json"},
		"tag of another":          {edit("template.json", "2d/probe", "2d/other"), "must be the folder's name"},
		"dimension":               {edit("template.json", `"dimension": "2d"`, `"dimension": "3d"`), "dimension"},
		"controls":                {edit("template.json", `"jump-x"`, `"jump"`), `"jump" is not one of`},
		"a language lost":         {edit("template.json", `"ja": "ラン・アンド・ジャンプ"`, `"ja": ""`), "title has nothing in ja"},
		"bar in a title":          {edit("template.json", `"en": "Run and Jump"`, `"en": "Run | Jump"`), "a bar"},
		"no page":                 {remove("index.html"), "index.html is missing"},
		"no SDK":                  {edit("index.html", `<script src="dreamcore-sdk.js"></script>`, ""), "does not load dreamcore-sdk.js"},
		"unknown script":          {edit("index.html", "kit/tiles.js", "kit/tile.js"), "loads kit/tile.js"},
		"foreign script":          {edit("index.html", "kit/tiles.js", "//cdn.example/x.js"), "no plain relative path"},
		"script above the folder": {edit("index.html", "kit/tiles.js", "../other/game.js"), "no plain relative path"},
		"title pointer":           {edit("template.json", `"/title/en"`, `"/title/fr"`), "/title/fr is no text"},
		"hero's name":             {edit("game.json", `"ja": "ハリネズミ", `, ""), "/hero/name has no name in ja"},
		"picture lost":            {remove("assets/hero.png"), `"assets/hero.png" is no PNG`},
		"picture that is none": {func(_ *testing.T, m fstest.MapFS) {
			m["2d/probe/assets/foe-1.png"].Data = []byte("GIF89a")
		}, `"assets/foe-1.png" is no PNG`},
		"picture's size":    {edit("template.json", `facing right", "size": 256`, `facing right", "size": 128`), "256x256 pixels, size says 128"},
		"colour":            {edit("game.json", "#55b7f3", "lightblue"), "must be #rrggbb"},
		"palette role":      {edit("template.json", `"sky2":`, `"heaven":`), `"heaven" is not one of`},
		"number gone":       {edit("template.json", "/numbers/size", "/numbers/height"), "/numbers/height is <nil>"},
		"number too large":  {edit("game.json", `"size": 66`, `"size": 660`), "must be a number from 48 to 96"},
		"number in a level": {edit("levels/2.json", `"speed": 260`, `"speed": 2600`), "levels/2.json#/physics/speed is 2600"},
		"number's meaning":  {edit("template.json", `"means": "size"`, `"means": "width"`), `"width" is not one of`},
		"rule's value":      {edit("game.json", `"slippery": false`, `"slippery": "no"`), "/rules/slippery is no"},
		"rule as an object": {edit("game.json", `"slippery": false`, `"slippery": {}`), "/rules/slippery is map"},
		"level of a kind":   {edit("levels/1.json", `"platformer"`, `"maze"`), "levels/1.json is of kind"},
		"level lost":        {remove("levels/3.json"), "levels/3.json"},
		"broken game.json":  {edit("game.json", "{", "{,"), "game.json"},
		"asset not listed": {func(_ *testing.T, m fstest.MapFS) {
			m["2d/probe/assets/extra.png"] = m["2d/probe/assets/hero.png"]
		}, "assets/extra.png is not listed"},
		"licence":        {edit("template.json", `"licence": "Apache-2.0"`, `"licence": "LGPL-3.0"`), `"LGPL-3.0" is not one of`},
		"file too large": {func(_ *testing.T, m fstest.MapFS) { m["2d/probe/game.js"].Data = make([]byte, maxFileBytes+1) }, "bytes, more than"},
	} {
		t.Run(name, func(t *testing.T) {
			m := good(t)
			c.broken(t, m)
			_, err := New(m, games.Files)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "2d/probe") {
				t.Errorf("got %v; want %q", err, c.want)
			}
		})
	}
	if _, err := New(fstest.MapFS{}, games.Files); err == nil {
		t.Error("an empty library was accepted")
	}
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	m := good(t)
	swap(t, m, "game.json", "#55b7f3", "blue")
	swap(t, m, "template.json", `"jump-x"`, `"jump"`)
	_, err := New(m, games.Files)
	if err == nil || !strings.Contains(err.Error(), "#rrggbb") || !strings.Contains(err.Error(), "controls") {
		t.Errorf("got %v", err)
	}
}

func FuzzManifest(f *testing.F) {
	data, err := fs.ReadFile(templates.Files, "2d/run-and-jump/template.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"change":{"numbers":[{"path":"#"},{"path":"/a~1/0"}],"rules":[{"path":"","values":[{},[]]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := good(t)
		m["2d/probe/template.json"].Data = data
		l, err := New(m, games.Files)
		if (l == nil) == (err == nil) {
			t.Errorf("library %v, error %v", l, err)
		}
	})
}

func TestPointers(t *testing.T) {
	var doc any
	if err := json.Unmarshal([]byte(`{"a": [{"b/c": 1, "d~e": 2}], "": 3}`), &doc); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"/a/0/b~1c": 1.0, "/a/0/d~0e": 2.0, "/": 3.0, "/a/1": nil, "/a/-": nil, "/a/00": nil, "a": nil, "/x": nil, "/a/0/b~1c/z": nil}
	for _, p := range slices.Sorted(maps.Keys(want)) {
		if got, _ := resolve(doc, p); got != want[p] {
			t.Errorf("%q: got %v, want %v", p, got, want[p])
		}
	}
}

// The modules of a page's import map are delivered, so that both ways to use
// three.js work: the global THREE, and import from "three".
func TestImportMapIsDelivered(t *testing.T) {
	m := good(t)
	swap(t, m, "index.html", "<script", `<script type="importmap">{"imports": {"three": "./three.module.js", "mine": "./game.js"}}</script>`+"\n<script")
	l, err := New(m, games.Files)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range l.Files("2d/probe") {
		if f.Path == "three.module.js" && len(f.Data) == 0 {
			t.Error("three.module.js is empty")
		}
		names = append(names, f.Path)
	}
	if !slices.Contains(names, "three.module.js") || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("delivered: %v", names)
	}
	for name, broken := range map[string]string{"loads three.js.js": `{"imports": {"three": "./three.js.js"}}`, "the import map": `{"imports": `, "no plain relative path": `{"imports": {"three": "../three.js"}}`} {
		m := good(t)
		swap(t, m, "index.html", "<script", `<script type="importmap">`+broken+"</script>\n<script")
		if _, err := New(m, games.Files); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestAGameGoesOutWithItsLicences(t *testing.T) {
	lib, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range lib.Tags() {
		names := map[string]bool{}
		for _, f := range lib.Files(tag) {
			names[f.Path] = true
		}
		if !names["noto.LICENSE"] {
			t.Errorf("%s: the pictures' licence is not delivered", tag)
		}
		if names["three.js"] != names["three.LICENSE"] {
			t.Errorf("%s: three.js without its licence, or the reverse", tag)
		}
	}
}
