package offline

import (
	"embed"
	"fmt"

	"dreamcore/internal/offline/recipe"
)

// A small complete game, for a turn in which no template was delivered. It has
// a manifest like any template, so everything else works on it too.
//
//go:embed own/*
var ownFiles embed.FS

// own writes the small game of our own into the project; it is then built on
// like a delivered one.
func (j *job) own() (*game, error) {
	words := j.say("own.write")
	for _, file := range []string{pageFile, "game.js", recipe.GameFile, manifestFile} {
		data, err := ownFiles.ReadFile("own/" + file)
		if err != nil {
			return nil, fmt.Errorf("read our own game: %w", err)
		}
		if err := j.write(words, file, string(data)); err != nil {
			return nil, err
		}
		words = ""
	}
	if _, _, err := j.shell("", "mkdir -p "+project+"/assets"); err != nil {
		return nil, err
	}
	return ownGame()
}

func ownGame() (*game, error) {
	text, err := ownFiles.ReadFile("own/" + manifestFile)
	if err != nil {
		return nil, fmt.Errorf("read our own game: %w", err)
	}
	m, err := recipe.ParseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("read our own game: %w", err)
	}
	data, err := ownFiles.ReadFile("own/" + recipe.GameFile)
	if err != nil {
		return nil, fmt.Errorf("read our own game: %w", err)
	}
	return &game{manifest: m, files: map[string][]byte{recipe.GameFile: data}}, nil
}
