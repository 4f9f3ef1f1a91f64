// Package level judges a game's levels by playing them: it simulates the very
// physics that the game imports, never a guessed arc, and looks for the way from
// spawn to goal. A level that nobody can finish is a FAIL that names the place,
// the size and the fix.
package level

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"dreamcore"
	"dreamcore/internal/text"
)

// Version changes whenever a verdict may change.
const Version = "1"

const (
	maxFileBytes = 4 << 20
	maxTiles     = 250_000
	maxFiles     = 200
	maxFindings  = 30
)

// Options says how to judge.
type Options struct {
	// Lang is the language of findings; empty is English.
	Lang dreamcore.Lang
	// Template is the folder that was delivered, when the host judges: levels
	// that it has must still be there. nil: the game's own template.json counts.
	Template fs.FS
	// States bounds the search in one level; 0 is 400,000. A search that ends at
	// the bound proves nothing and is a WARN.
	States int
}

// Run judges the levels of the game in fsys. A game without levels passes.
func Run(ctx context.Context, fsys fs.FS, opt Options) dreamcore.Report {
	if opt.Lang == "" {
		opt.Lang = dreamcore.English
	}
	if opt.States <= 0 {
		opt.States = 400_000
	}
	j := &judge{ctx: ctx, fsys: fsys, opt: opt}
	j.report = dreamcore.Report{Tool: "level", Version: Version, Findings: []dreamcore.Finding{}}
	j.run()
	slices.SortStableFunc(j.report.Findings, func(a, b dreamcore.Finding) int {
		return strings.Compare(string(a.Severity), string(b.Severity)) // FAIL before WARN
	})
	if len(j.report.Findings) > maxFindings {
		j.report.Findings = j.report.Findings[:maxFindings]
	}
	j.report.Judge()
	return j.report
}

type judge struct {
	ctx    context.Context
	fsys   fs.FS
	opt    Options
	report dreamcore.Report
}

// declaration is what template.json says about levels.
type declaration struct {
	Levels *struct {
		Kind  string   `json:"kind"`
		Files []string `json:"files"`
	} `json:"levels"`
}

func (j *judge) run() {
	own, _ := declared(j.fsys)
	was := own
	if j.opt.Template != nil {
		if d, err := declared(j.opt.Template); err == nil {
			was = d
		}
	}
	kind := ""
	var files []string
	if was.Levels != nil {
		kind, files = was.Levels.Kind, was.Levels.Files
	}
	for _, name := range files {
		if _, err := fs.Stat(j.fsys, name); err != nil {
			j.find("lost", dreamcore.Fail, name)
		}
	}
	// Levels that the game has beside those are judged too.
	if own.Levels != nil {
		for _, name := range own.Levels.Files {
			if !slices.Contains(files, name) && !strings.HasPrefix(name, "levels/") {
				files = append(files, name)
			}
		}
	}
	more, err := fs.Glob(j.fsys, "levels/*.json")
	if err != nil {
		more = nil // the pattern is constant and sound
	}
	for _, name := range more {
		if !slices.Contains(files, name) {
			files = append(files, name)
		}
	}
	if len(files) > maxFiles {
		j.find("too_many", dreamcore.Warn, "levels", "count", strconv.Itoa(len(files)), "limit", strconv.Itoa(maxFiles))
		files = files[:maxFiles]
	}
	for _, name := range files {
		if j.ctx.Err() != nil {
			j.find("not_proven", dreamcore.Warn, name)
			return
		}
		if _, err := fs.Stat(j.fsys, name); err != nil {
			continue // said above, or declared by the game alone
		}
		j.file(name, kind, slices.Contains(more, name) && (was.Levels == nil || !slices.Contains(was.Levels.Files, name)))
	}
}

func declared(fsys fs.FS) (declaration, error) {
	var d declaration
	data, err := readFile(fsys, "template.json")
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return declaration{}, fmt.Errorf("decode template.json: %w", err)
	}
	return d, nil
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", name, maxFileBytes)
	}
	return fs.ReadFile(fsys, name)
}

// level is one file of levels/.
type level struct {
	Kind     string             `json:"kind"`
	Tiles    []string           `json:"tiles"`
	Legend   map[string]string  `json:"legend"`
	TileSize float64            `json:"tileSize"`
	Physics  map[string]float64 `json:"physics"`
	Heights  [][]*float64       `json:"heights"`
	Spawn    []int              `json:"spawn"`
	Goal     []int              `json:"goal"`
	Pickups  [][]int            `json:"pickups"`
	Lanes    []string           `json:"lanes"`
}

// file judges one level. extra says that nobody declared it: then a shape that
// we do not know is the game's own business.
func (j *judge) file(name, kind string, extra bool) {
	data, err := readFile(j.fsys, name)
	if err != nil {
		j.find("unreadable", dreamcore.Fail, name)
		return
	}
	var l level
	if err := json.Unmarshal(data, &l); err != nil {
		var wrongType *json.UnmarshalTypeError
		if extra && errors.As(err, &wrongType) {
			return
		}
		j.find("json", dreamcore.Fail, name, "error", clean(err.Error()))
		return
	}
	if l.Kind != "" {
		kind = l.Kind
	}
	switch kind {
	case "platformer", "maze", "runner":
		if kind == "runner" && len(l.Lanes) > 0 {
			j.lanes(name, &l)
			return
		}
		if m, ok := j.grid(name, &l); ok {
			switch kind {
			case "maze":
				j.maze(name, m)
			default:
				j.platform(name, m, kind == "runner")
			}
		}
	case "grid-3d":
		j.walk(name, &l)
	default:
		if !extra {
			j.find("kind", dreamcore.Fail, name, "kind", clean(kind))
		}
	}
}

// Kinds of tiles.
const (
	air    = ""
	solid  = "solid"
	spike  = "spike"
	prize  = "prize"
	spawn  = "spawn"
	goal   = "goal"
	keyed  = "key"
	locked = "door"
)

// grid is a level of tiles, checked: it has a spawn, and numbers that are some.
type grid struct {
	cols, rows int
	kinds      []string
	size       float64
	physics    map[string]float64
	spawn      cell
	goals      []cell
	prizes     []cell
	keys       []cell
	doors      []cell
}

type cell struct{ col, row int }

func (c cell) String() string { return fmt.Sprintf("(%d,%d)", c.col, c.row) }

// at returns the kind at a place. As in the kit: solid left and right of the
// level, air above and below.
func (g *grid) at(col, row int) string {
	if col < 0 || col >= g.cols {
		return solid
	}
	if row < 0 || row >= g.rows {
		return air
	}
	return g.kinds[row*g.cols+col]
}

// grid reads tiles; ok is false when a finding says why they are useless.
func (j *judge) grid(name string, l *level) (*grid, bool) {
	g := &grid{rows: len(l.Tiles), size: l.TileSize, physics: l.Physics}
	if g.size == 0 {
		g.size = 32
	}
	if !(g.size >= 1 && g.size <= 1024) {
		j.find("tile_size", dreamcore.Fail, name)
		return nil, false
	}
	for _, row := range l.Tiles {
		g.cols = max(g.cols, len([]rune(row)))
	}
	if g.rows == 0 || g.cols == 0 {
		j.find("empty", dreamcore.Fail, name)
		return nil, false
	}
	if g.rows*g.cols > maxTiles {
		j.find("too_big", dreamcore.Fail, name, "tiles", strconv.Itoa(g.rows*g.cols), "limit", strconv.Itoa(maxTiles))
		return nil, false
	}
	g.kinds = make([]string, g.rows*g.cols)
	unknown := map[rune]bool{}
	spawns := []cell{}
	for r, row := range l.Tiles {
		for c, letter := range []rune(row) {
			kind, ok := l.Legend[string(letter)]
			if !ok && letter != '.' && letter != ' ' && !unknown[letter] {
				unknown[letter] = true
				j.find("letter", dreamcore.Warn, name, "letter", clean(string(letter)), "place", cell{c, r}.String())
			}
			g.kinds[r*g.cols+c] = kind
			switch kind {
			case spawn:
				spawns = append(spawns, cell{c, r})
			case goal:
				g.goals = append(g.goals, cell{c, r})
			case prize:
				g.prizes = append(g.prizes, cell{c, r})
			case keyed:
				g.keys = append(g.keys, cell{c, r})
			case locked:
				g.doors = append(g.doors, cell{c, r})
			}
		}
	}
	switch {
	case len(spawns) == 0:
		j.find("no_spawn", dreamcore.Fail, name)
		return nil, false
	case len(spawns) > 1:
		j.find("two_spawns", dreamcore.Fail, name, "first", spawns[0].String(), "second", spawns[1].String())
		return nil, false
	}
	g.spawn = spawns[0]
	return g, true
}

// number returns one of the physics numbers; one that is missing or absurd is a
// finding.
func (j *judge) number(name string, physics map[string]float64, key string) (float64, bool) {
	v, ok := physics[key]
	if !ok || !(v > 0 && v < 100_000) {
		j.find("physics", dreamcore.Fail, name, "key", key)
		return 0, false
	}
	return v, true
}

func (j *judge) find(code string, severity dreamcore.Severity, file string, args ...string) {
	args = append(args, "file", file)
	j.report.Findings = append(j.report.Findings, dreamcore.Finding{
		Code: "level_" + code, Severity: severity, File: file,
		Message: text.T(j.opt.Lang, "level."+code, args...),
		Fix:     text.T(j.opt.Lang, "level."+code+"_fix", args...),
	})
}

// clean makes a text out of the game safe to print.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u202e' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > 80 {
		s = string(r[:80]) + "…"
	}
	return strconv.Quote(s)
}

func oneDecimal(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
func whole(v float64) string      { return strconv.FormatFloat(v, 'f', 0, 64) }
