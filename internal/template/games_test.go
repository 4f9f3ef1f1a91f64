package template

import (
	"bytes"
	"encoding/json"
	"path"
	"regexp"
	"strings"
	"testing"

	"dreamcore"
)

// What games.md and the library's issue demand of each game, as far as reading
// its files can tell. Opening the library has already checked the manifest.

const (
	maxScriptLines = 400
	maxGameBytes   = 300 << 10 // a 2D game without its pictures
	maxSameLines   = 20        // in two templates
)

func TestEveryGameKeepsToItself(t *testing.T) {
	foreign := regexp.MustCompile(`(?i)\b(https?|wss?):|["'(]//[a-z]`)
	l := open(t)
	for _, tag := range l.Tags() {
		got, _ := l.Get(tag)
		total := 0
		for _, f := range got.Files() {
			if strings.HasSuffix(f.Path, ".png") || strings.HasSuffix(f.Path, ".LICENSE") {
				continue // no page loads a licence; its text names addresses
			}
			total += len(f.Data)
			if got.Dimension == "2d" && foreign.Match(f.Data) {
				t.Errorf("%s: %s names an address: %s", tag, f.Path, foreign.Find(f.Data))
			}
			own := strings.HasSuffix(f.Path, ".js") && !strings.Contains(f.Path, "/") && f.Path != "dreamcore-sdk.js" && !strings.HasPrefix(f.Path, "three")
			if lines := bytes.Count(f.Data, []byte("\n")); own && lines > maxScriptLines {
				t.Errorf("%s: %s has %d lines, more than %d", tag, f.Path, lines, maxScriptLines)
			}
		}
		if got.Dimension == "2d" && total > maxGameBytes {
			t.Errorf("%s has %d bytes without pictures, more than %d", tag, total, maxGameBytes)
		}
	}
}

func TestEveryTextIsInEveryLanguage(t *testing.T) {
	l := open(t)
	for _, tag := range l.Tags() {
		for _, f := range l.Files(tag) {
			if path.Ext(f.Path) != ".json" || f.Path == "template.json" {
				continue
			}
			var doc any
			if err := json.Unmarshal(f.Data, &doc); err != nil {
				t.Errorf("%s: %s: %v", tag, f.Path, err)
			}
			walk(doc, func(m map[string]any) {
				if _, ok := m["en"]; !ok {
					return
				}
				for _, lang := range dreamcore.Langs {
					if s, _ := m[string(lang)].(string); s == "" {
						t.Errorf("%s: %s: %v has no text in %s", tag, f.Path, m["en"], lang)
					}
				}
			})
		}
	}
}

func walk(doc any, visit func(map[string]any)) {
	switch v := doc.(type) {
	case map[string]any:
		visit(v)
		for _, x := range v {
			walk(x, visit)
		}
	case []any:
		for _, x := range v {
			walk(x, visit)
		}
	}
}

// A number or a rule that no script reads would change nothing.
func TestEveryChangeIsReadByAScript(t *testing.T) {
	l := open(t)
	for _, tag := range l.Tags() {
		got, _ := l.Get(tag)
		var scripts strings.Builder
		for _, f := range got.Files() {
			if strings.HasSuffix(f.Path, ".js") && !strings.HasPrefix(f.Path, "three") {
				scripts.Write(f.Data)
			}
		}
		read := func(pointer string) {
			key := pointer[strings.LastIndex(pointer, "/")+1:]
			if !regexp.MustCompile(`\.` + regexp.QuoteMeta(key) + `\b`).MatchString(scripts.String()) {
				t.Errorf("%s: no script reads %s", tag, pointer)
			}
		}
		for _, n := range got.Change.Numbers {
			read(n.Path)
		}
		for _, r := range got.Change.Rules {
			read(r.Path)
		}
		for _, p := range got.Change.Palette {
			read(p)
		}
	}
}

// Templates share the kit and nothing else: a long block that stands in two of
// them belongs there.
func TestNoBlockStandsInTwoTemplates(t *testing.T) {
	l := open(t)
	seen := map[string]dreamcore.TemplateTag{}
	for _, tag := range l.Tags() {
		for _, f := range l.Files(tag) {
			if path.Ext(f.Path) != ".js" || strings.HasPrefix(f.Path, "kit/") || f.Path == "dreamcore-sdk.js" || strings.HasPrefix(f.Path, "three") {
				continue
			}
			lines := strings.Split(string(f.Data), "\n")
			for i := 0; i+maxSameLines <= len(lines); i++ {
				block := strings.Join(lines[i:i+maxSameLines], "\n")
				if other, ok := seen[block]; ok && other != tag {
					t.Errorf("%s: %s from line %d stands in %s too", tag, f.Path, i+1, other)
					break
				}
				seen[block] = tag
			}
		}
	}
}
