// Package text is the one message catalogue: every text that a person or an
// agent reads, in English, Japanese and Chinese. One JSON file per area in
// catalog/, each a map from key to language to text:
//
//	{"check.asset_missing": {"en": "{file} is missing.", "ja": "…", "zh": "…"}}
//
// A key begins with the name of its file. {name} is replaced by an argument;
// what is put in is data and is not looked at again.
package text

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"sort"
	"strings"

	"dreamcore"
)

//go:embed catalog/*.json
var files embed.FS

var catalog = load()

func load() map[string]dreamcore.Localized {
	all := map[string]dreamcore.Localized{}
	names, err := fs.Glob(files, "catalog/*.json")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			panic(err)
		}
		m := map[string]dreamcore.Localized{}
		if err := json.Unmarshal(data, &m); err != nil {
			panic(fmt.Sprintf("text: %s: %v", name, err))
		}
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// T returns the text of key in lang with {name} replaced from args, which come
// in pairs: name, value. An unknown key returns itself, so that a missing text
// is seen rather than hidden.
func T(lang dreamcore.Lang, key string, args ...string) string {
	l, ok := catalog[key]
	if !ok {
		return key
	}
	if len(args) == 0 {
		return l.In(lang)
	}
	pairs := make([]string, 0, len(args))
	for i := 0; i+1 < len(args); i += 2 {
		pairs = append(pairs, "{"+args[i]+"}", args[i+1])
	}
	return strings.NewReplacer(pairs...).Replace(l.In(lang))
}

// Map is T with its arguments in a map.
func Map(lang dreamcore.Lang, key string, args map[string]string) string {
	pairs := make([]string, 0, 2*len(args))
	for k, v := range args {
		pairs = append(pairs, k, v)
	}
	return T(lang, key, pairs...)
}

// Area returns all texts whose key begins with prefix, for a page that needs
// them in the browser.
func Area(lang dreamcore.Lang, prefix string) map[string]string {
	m := map[string]string{}
	for k, l := range catalog {
		if strings.HasPrefix(k, prefix) {
			m[k] = l.In(lang)
		}
	}
	return m
}

// Keys returns every key, sorted.
func Keys() []string {
	keys := make([]string, 0, len(catalog))
	for k := range catalog {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// Has reports whether the catalogue has the key.
func Has(key string) bool {
	_, ok := catalog[key]
	return ok
}

// Error makes the error that people see out of the text KEY and, where there is
// one, KEY_hint.
func Error(lang dreamcore.Lang, code dreamcore.Code, op, key string, args ...string) *dreamcore.Error {
	e := &dreamcore.Error{Code: code, Op: op, Msg: T(lang, key, args...)}
	if hint := key + "_hint"; Has(hint) {
		e.Hint = T(lang, hint, args...)
	}
	return e
}
