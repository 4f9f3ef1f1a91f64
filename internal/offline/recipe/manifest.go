package recipe

import (
	"encoding/json"
	"fmt"
	"strings"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
)

// Manifest is the part of a template.json that says what a wish may change. It
// is read leniently: in the box it is a file that anybody may have touched.
type Manifest struct {
	Tag     string              `json:"tag"`
	Title   dreamcore.Localized `json:"title"`
	Summary dreamcore.Localized `json:"summary"`
	Words   lexicon.Words       `json:"words"`
	Genre   string              `json:"genre"`
	Change  struct {
		Titles  []string          `json:"titles"`
		Hero    Slot              `json:"hero"`
		Foes    []Slot            `json:"foes"`
		Prizes  []Slot            `json:"prizes"`
		Scenery []Slot            `json:"scenery"`
		Palette map[string]string `json:"palette"`
		Numbers []Number          `json:"numbers"`
		Rules   []Rule            `json:"rules"`
	} `json:"change"`
	Levels struct {
		Files []string `json:"files"`
	} `json:"levels"`
}

// Slot is a thing of the game that gets another name and picture.
type Slot struct {
	Name    string `json:"name"`    // pointer to {en, ja, zh} in game.json
	Picture string `json:"picture"` // file, relative to the game's folder
	Look    string `json:"look"`    // how it is drawn: "side view, facing right"
	Size    int    `json:"size"`    // pixels, square
}

// Number is a number of the game with its bounds.
type Number struct {
	Path  string  `json:"path"` // a pointer into game.json, or FILE#POINTER
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Means string  `json:"means"`
}

// Rule is a switch of the game.
type Rule struct {
	Path   string            `json:"path"`
	Values []json.RawMessage `json:"values"`
	Means  string            `json:"means"`
}

// GameFile holds the data of every game.
const GameFile = "game.json"

// ParseManifest reads a template.json.
func ParseManifest(data []byte) (Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return Manifest{}, fmt.Errorf("read the manifest: %w", err)
	}
	return m, nil
}

// Files lists the JSON files that the manifest's pointers reach into, game.json
// first.
func (m Manifest) Files() []string {
	files := []string{GameFile}
	seen := map[string]bool{GameFile: true}
	add := func(path string) {
		if file, _ := split(path); !seen[file] && safe(file) {
			seen[file] = true
			files = append(files, file)
		}
	}
	for _, n := range m.Change.Numbers {
		add(n.Path)
	}
	for _, r := range m.Change.Rules {
		add(r.Path)
	}
	return files
}

// slots lists all things that get a picture.
func (m Manifest) slots() []Slot {
	all := []Slot{m.Change.Hero}
	all = append(all, m.Change.Foes...)
	all = append(all, m.Change.Prizes...)
	return append(all, m.Change.Scenery...)
}

// split takes FILE#POINTER apart; without a file it is game.json's.
func split(path string) (file, pointer string) {
	if i := strings.IndexByte(path, '#'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return GameFile, path
}

// safe reports whether a manifest's file name stays in the game's folder.
func safe(file string) bool {
	return file != "" && !strings.HasPrefix(file, "/") && !strings.HasPrefix(file, "-") && !strings.Contains(file, "..")
}
