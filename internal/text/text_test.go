package text

import (
	"encoding/json"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"dreamcore"
)

var slot = regexp.MustCompile(`\{[a-zA-Z_]+\}`)

func TestEveryTextInEveryLanguage(t *testing.T) {
	for _, key := range Keys() {
		l := catalog[key]
		want := slot.FindAllString(l[dreamcore.English], -1)
		slices.Sort(want)
		for _, lang := range dreamcore.Langs {
			if l[lang] == "" {
				t.Errorf("%s has no text in %s", key, lang)
			}
			got := slot.FindAllString(l[lang], -1)
			slices.Sort(got)
			if !slices.Equal(slices.Compact(got), slices.Compact(slices.Clone(want))) {
				t.Errorf("%s in %s has the slots %v, English has %v", key, lang, got, want)
			}
		}
	}
}

func TestKeysAreUniqueAndNamedAfterTheirFile(t *testing.T) {
	names, _ := fs.Glob(files, "catalog/*.json")
	seen := map[string]string{}
	for _, name := range names {
		data, _ := files.ReadFile(name)
		m := map[string]json.RawMessage{}
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		area := strings.TrimSuffix(path.Base(name), ".json")
		for k := range m {
			if !strings.HasPrefix(k, area+".") {
				t.Errorf("%s: the key %s does not begin with %s.", name, k, area)
			}
			if other := seen[k]; other != "" {
				t.Errorf("%s is in %s and in %s", k, other, name)
			}
			seen[k] = name
		}
	}
}

func TestArgumentsAreData(t *testing.T) {
	catalog["t.x"] = dreamcore.Localized{"en": "{a} and {b}"}
	defer delete(catalog, "t.x")
	if got := T("en", "t.x", "a", "{b}", "b", "2"); got != "{b} and 2" {
		t.Errorf("got %q", got)
	}
}

func TestError(t *testing.T) {
	catalog["t.bad"] = dreamcore.Localized{"en": "{what} is bad"}
	catalog["t.bad_hint"] = dreamcore.Localized{"en": "mend {what}", "ja": "{what}を直す"}
	catalog["t.plain"] = dreamcore.Localized{"en": "plain"}
	defer func() {
		for _, k := range []string{"t.bad", "t.bad_hint", "t.plain"} {
			delete(catalog, k)
		}
	}()
	if e := Error("ja", dreamcore.Refused, "op", "t.bad", "what", "it"); e.Code != dreamcore.Refused || e.Op != "op" || e.Msg != "it is bad" || e.Hint != "itを直す" {
		t.Errorf("%+v", e)
	}
	if e := Error("en", dreamcore.Invalid, "op", "t.plain"); e.Msg != "plain" || e.Hint != "" {
		t.Errorf("a text without a hint: %+v", e)
	}
	if Has("t.none") || !Has("t.plain") {
		t.Error("Has")
	}
}

// What is a name, a command or a call in a text keeps its own punctuation.
var verbatim = regexp.MustCompile("`[^`\n]*`|[A-Za-z0-9_}]\\([^()\\p{Han}\\p{Hiragana}\\p{Katakana}]*\\)")

// ASCII punctuation behind a character of Chinese or Japanese writing, or before one.
var narrow = regexp.MustCompile(`[\p{Han}\p{Hiragana}\p{Katakana}ー。、，：；！？（）「」『』] ?[,:;?!()]|[^\s][,:;?!()] ?[\p{Han}\p{Hiragana}\p{Katakana}「『（]|\) ?[\p{Han}\p{Hiragana}\p{Katakana}]`)

// Chinese and Japanese are written with their own, full-width punctuation.
func TestPunctuationIsFullWidth(t *testing.T) {
	for _, key := range Keys() {
		for _, lang := range []dreamcore.Lang{dreamcore.Japanese, dreamcore.Chinese} {
			s := verbatim.ReplaceAllString(catalog[key][lang], "x")
			for _, m := range narrow.FindAllString(s, -1) {
				t.Errorf("%s in %s has %q", key, lang, m)
			}
		}
	}
	for s, narrowed := range map[string]bool{
		"运行:x": true, "运行 (x)": true, "只有 {have};运行": true, "需要 root,或": true, "例: x": true, "です!": true, "v2(需要": true, "`a`: だ": true,
		"运行：x": false, "调用 start() 吗": false, "{name}() は": false, "f({name}) を": false, "http://x:1/y": false, "--of a|b: 选择": true,
	} {
		if narrow.MatchString(verbatim.ReplaceAllString(s, "x")) != narrowed {
			t.Errorf("%q is taken for the other kind", s)
		}
	}
}
