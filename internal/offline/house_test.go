package offline_test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/offline/words"
)

// The code of the stand-in model knows no template and no noun of a wish: those
// stand in the manifests and in the data of the lexicon and the word index.
func TestNoNounsInTheCode(t *testing.T) {
	nouns := map[string]bool{}
	for _, e := range words.Entries() {
		switch e.Kind {
		case words.Animal, words.Creature, words.Person, words.Food, words.Plant, words.Vehicle:
			for _, lang := range dreamcore.Langs {
				nouns[strings.ToLower(e.Names[lang])] = true
			}
		}
	}
	if len(nouns) < 500 {
		t.Fatalf("the index has only %d nouns", len(nouns))
	}
	// A command of the shell and words of this house that are also creatures.
	for _, w := range []string{"cat", "skeleton", "judge"} {
		delete(nouns, w)
	}
	spaced := regexp.MustCompile(`[a-z]+`)
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (path == "picture" || path == "words") {
			return fs.SkipDir // the index and the pictures themselves
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, literal := range literals(source) {
			if regexp.MustCompile(`\b[23]d/[a-z]`).MatchString(literal) {
				t.Errorf("%s names a template: %q", path, literal)
			}
			for _, w := range spaced.FindAllString(strings.ToLower(literal), -1) {
				if nouns[w] {
					t.Errorf("%s holds the noun %q: %q", path, w, literal)
				}
			}
			if dreamcore.DetectLang(literal) != dreamcore.English {
				t.Errorf("%s holds a text that belongs in a data file: %q", path, literal)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Errorf("only %d files were looked at", files)
	}
}

func literals(source []byte) []string {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(source)), source, nil, 0)
	var all []string
	for {
		_, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return all
		case token.STRING:
			if v, err := strconv.Unquote(text); err == nil {
				all = append(all, v)
			}
		}
	}
}
