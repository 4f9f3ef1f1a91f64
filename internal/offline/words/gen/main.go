// Command gen builds the word index, words.tsv.gz, from the annotations of
// Unicode CLDR (names and keywords), the order and groups of emoji, and the
// list of pictures in the icon pack. Unpack the packages first, outside the
// repository:
//
//	npm install --prefix DIR --no-save --ignore-scripts \
//	  cldr-annotations-full@48.2.0 cldr-annotations-derived-full@48.2.0 emojibase-data@17.0.0
//	go run ./internal/offline/words/gen DIR/node_modules internal/offline/picture/pack.zip internal/offline/words/words.tsv.gz
//
// A line of the result: emoji, kind, then for en, ja and zh the name and the
// keywords joined by "|".
package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: gen NODE_MODULES PACK.zip WORDS.tsv.gz")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

type annotation struct {
	Default []string `json:"default"`
	TTS     []string `json:"tts"`
}

func run(modules, pack, out string) error {
	order, kinds, err := groups(modules)
	if err != nil {
		return err
	}
	type line struct {
		order int
		text  string
	}
	var lines []line
	langs := []string{"en", "ja", "zh"}
	notes := map[string]map[string]annotation{}
	for _, lang := range langs {
		if notes[lang], err = annotations(modules, lang); err != nil {
			return err
		}
	}
	z, err := zip.OpenReader(pack)
	if err != nil {
		return err
	}
	defer z.Close()
	for _, f := range z.File {
		emoji, err := characters(strings.TrimSuffix(f.Name, ".svg"))
		if err != nil {
			return err
		}
		fields := []string{emoji, kinds[emoji]}
		for _, lang := range langs {
			a, ok := notes[lang][emoji]
			if !ok || len(a.TTS) == 0 {
				break
			}
			fields = append(fields, a.TTS[0], strings.Join(a.Default, "|"))
		}
		if len(fields) != 8 || kinds[emoji] == "" {
			continue
		}
		lines = append(lines, line{order[emoji], strings.Join(fields, "\t")})
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.text, b.text)) })
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return err
	}
	for _, l := range lines {
		fmt.Fprintln(w, l.text)
	}
	if err := w.Close(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d emoji, %d bytes\n", len(lines), zipped.Len())
	return os.WriteFile(out, zipped.Bytes(), 0o644)
}

// characters turns "1f431-200d" into the emoji.
func characters(hex string) (string, error) {
	var b strings.Builder
	for _, part := range strings.Split(hex, "-") {
		v, err := strconv.ParseUint(part, 16, 32)
		if err != nil {
			return "", fmt.Errorf("picture %q is not named after an emoji", hex)
		}
		b.WriteRune(rune(v))
	}
	return b.String(), nil
}

// bare drops the variation selector, as the icon pack does.
func bare(emoji string) string { return strings.ReplaceAll(emoji, "\ufe0f", "") }

func annotations(modules, lang string) (map[string]annotation, error) {
	all := map[string]annotation{}
	for _, f := range []struct{ folder, key string }{
		{"cldr-annotations-derived-full/annotationsDerived", "annotationsDerived"},
		{"cldr-annotations-full/annotations", "annotations"},
	} {
		var doc map[string]json.RawMessage
		if err := decode(filepath.Join(modules, f.folder, lang, "annotations.json"), &doc); err != nil {
			return nil, err
		}
		var inner map[string]json.RawMessage
		if err := json.Unmarshal(doc[f.key], &inner); err != nil {
			return nil, fmt.Errorf("%s: %w", f.folder, err)
		}
		var m map[string]annotation
		if err := json.Unmarshal(inner["annotations"], &m); err != nil {
			return nil, fmt.Errorf("%s: %w", f.folder, err)
		}
		for k, v := range m {
			all[bare(k)] = v
		}
	}
	return all, nil
}

// groups returns each emoji's place in the usual order and its kind.
func groups(modules string) (map[string]int, map[string]string, error) {
	var meta struct {
		Groups    map[string]string `json:"groups"`
		Subgroups map[string]string `json:"subgroups"`
	}
	if err := decode(filepath.Join(modules, "emojibase-data/meta/groups.json"), &meta); err != nil {
		return nil, nil, err
	}
	var data []struct {
		Emoji    string `json:"emoji"`
		Hex      string `json:"hexcode"`
		Order    int    `json:"order"`
		Subgroup *int   `json:"subgroup"`
	}
	if err := decode(filepath.Join(modules, "emojibase-data/en/data.json"), &data); err != nil {
		return nil, nil, err
	}
	order, kinds := map[string]int{}, map[string]string{}
	for _, d := range data {
		if d.Subgroup == nil {
			continue
		}
		c, err := characters(strings.ToLower(d.Hex))
		if err != nil {
			return nil, nil, err
		}
		order[bare(c)] = d.Order
		kinds[bare(c)] = kind(meta.Subgroups[strconv.Itoa(*d.Subgroup)])
	}
	return order, kinds, nil
}

// kind sums up a subgroup of the emoji order.
func kind(subgroup string) string {
	switch {
	case strings.HasPrefix(subgroup, "animal-"):
		return "animal"
	case subgroup == "cat-face", subgroup == "monkey-face", strings.HasPrefix(subgroup, "face-") && subgroup != "face-costume":
		return "face"
	case subgroup == "face-costume", subgroup == "person-fantasy":
		return "creature"
	case strings.HasPrefix(subgroup, "person"), subgroup == "family":
		return "person"
	case strings.HasPrefix(subgroup, "hand"), subgroup == "body-parts":
		return "body"
	case strings.HasPrefix(subgroup, "plant-"):
		return "plant"
	case strings.HasPrefix(subgroup, "food-"), subgroup == "drink":
		return "food"
	case strings.HasPrefix(subgroup, "transport-") && subgroup != "transport-sign":
		return "vehicle"
	case strings.HasPrefix(subgroup, "place-"):
		return "place"
	case subgroup == "sky-weather":
		return "sky"
	case subgroup == "heart", subgroup == "emotion", slices.Contains([]string{
		"transport-sign", "warning", "arrow", "religion", "zodiac", "av-symbol", "gender", "math", "punctuation",
		"currency", "other-symbol", "keycap", "alphanum", "geometric",
	}, subgroup):
		return "symbol"
	}
	return "object"
}

func decode(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
