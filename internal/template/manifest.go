package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"dreamcore"
)

// Manifest is template.json: what a template is, and what of it a wish may
// change. games/README.md and the format's tests say what is demanded of it.
type Manifest struct {
	Tag       dreamcore.TemplateTag       `json:"tag"`
	Title     dreamcore.Localized         `json:"title"`
	Summary   dreamcore.Localized         `json:"summary"`
	Words     map[dreamcore.Lang][]string `json:"words"` // the kinds of wish that it fits
	Genre     string                      `json:"genre"`
	Dimension string                      `json:"dimension"` // "2d" or "3d"
	Controls  string                      `json:"controls"`  // one of Controls
	Change    Change                      `json:"change"`
	Levels    *Levels                     `json:"levels,omitempty"` // nil: the game has none
	Assets    []Asset                     `json:"assets"`
}

// Change lists what a wish may change. A pointer is an RFC 6901 JSON pointer
// into game.json, or "FILE#POINTER" into another JSON file of the template.
type Change struct {
	Titles  []string          `json:"titles"`  // pointers to texts
	Hero    Subject           `json:"hero"`    // who the player is
	Foes    []Subject         `json:"foes"`    // what to keep away from
	Prizes  []Subject         `json:"prizes"`  // what to collect or reach
	Scenery []Subject         `json:"scenery"` // what stands around
	Palette map[string]string `json:"palette"` // role to pointer to "#rrggbb"
	Numbers []Number          `json:"numbers"`
	Rules   []Rule            `json:"rules"`
}

// Subject is something that has a name and a picture.
type Subject struct {
	Name    string `json:"name"`    // pointer to {en, ja, zh}
	Picture string `json:"picture"` // a square PNG in the template's folder
	Look    string `json:"look"`    // how it must be drawn: "side view, facing right"
	Size    int    `json:"size"`    // pixels on a side
}

// Number is a number that a wish may move between Min and Max.
type Number struct {
	Path  string  `json:"path"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Means string  `json:"means"`
}

// Rule is a switch of the game; its value is one of Values.
type Rule struct {
	Path   string `json:"path"`
	Values []any  `json:"values"`
	Means  string `json:"means"`
}

// Levels says which files hold levels and how they are to be simulated.
type Levels struct {
	Kind  string   `json:"kind"`
	Files []string `json:"files"`
}

// Asset is where a picture or sound comes from.
type Asset struct {
	File    string `json:"file"`
	Source  string `json:"source"`
	Licence string `json:"licence"` // SPDX identifier
}

// The words that a manifest may use.
var (
	// Controls are the control schemes; the playtest has a gate for each.
	Controls = []string{"move-2d", "move-x", "tap", "pointer", "board", "steer-3d", "jump-x"}

	roles       = []string{"sky", "sky2", "ground", "ground2", "accent", "wall", "path", "text"}
	numberMeans = []string{"speed", "gravity", "jump", "foes", "prizes", "size", "lives", "time", "friction", "goal"}
	ruleMeans   = []string{"fall", "wrap", "bounce", "chase", "lives", "night", "slippery", "timed", "shoot", "grow"}
	levelKinds  = []string{"platformer", "maze", "runner", "grid-3d"}
	licences    = []string{"Apache-2.0", "MIT", "CC0-1.0", "CC-BY-4.0", "OFL-1.1", "BSD-2-Clause", "BSD-3-Clause", "ISC"}
)

// Parse decodes a manifest. An unknown field, or anything after the document,
// is an error; whether the manifest fits its template's files is not looked at.
func Parse(data []byte) (Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("decode template.json: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Manifest{}, errors.New("decode template.json: something stands after the document")
	}
	return m, nil
}

// Subjects returns hero, foes, prizes and scenery in this order.
func (c Change) Subjects() []Subject {
	all := []Subject{c.Hero}
	all = append(all, c.Foes...)
	all = append(all, c.Prizes...)
	return append(all, c.Scenery...)
}
