package level

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"dreamcore"
	"dreamcore/internal/text"
)

var legend = map[string]string{"#": "solid", "^": "spike", "o": "prize", "S": "spawn", "G": "goal", "e": "foe", "k": "key", "D": "door"}

// jumper carries about 5 tiles across and 3.5 up.
var jumper = map[string]float64{"gravity": 1800, "speed": 240, "jumpSpeed": 640, "maxFall": 900}

func file(t *testing.T, v any) *fstest.MapFile {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: data}
}

func tiles(kind string, physics map[string]float64, rows ...string) level {
	return level{Kind: kind, Tiles: rows, Legend: legend, TileSize: 32, Physics: physics}
}

func game(t *testing.T, l any) fstest.MapFS {
	t.Helper()
	return fstest.MapFS{
		"template.json": {Data: []byte(`{"levels": {"kind": "platformer", "files": ["levels/1.json"]}}`)},
		"levels/1.json": file(t, l),
	}
}

func num(v float64) *float64 { return &v }

func TestLevels(t *testing.T) {
	plain := []string{
		"..............",
		"..............",
		"..............",
		"....o.........",
		"S.......##...G",
		"##############",
	}
	gap := func(n int) []string {
		air := strings.Repeat(".", n)
		rows := []string{}
		for range 6 {
			rows = append(rows, "...."+air+".......")
		}
		return append(rows, "S..."+air+"......G", "####"+air+"#######")
	}
	cases := []struct {
		name string
		l    level
		want string // the code that must be found; "" for none at all
		says []string
	}{
		{"plain", tiles("platformer", jumper, plain...), "", nil},
		{"gap of 3", tiles("platformer", jumper, gap(3)...), "", nil},
		{"gap of 4", tiles("platformer", jumper, gap(4)...), "", nil},
		{"gap of 9", tiles("platformer", jumper, gap(9)...), "level_gap_too_wide", []string{"9 tiles", "carries about 5", "jumpSpeed to"}},
		{"step of 6", tiles("platformer", jumper, "..........", "..........", ".......G..", "......####", "......####", "......####", "......####", "......####", "S.....####", "##########"), "level_step_too_high", []string{"reaches about 3"}},
		{"wall", tiles("platformer", jumper, "....#...", "....#...", "....#...", "....#...", "....#...", "S...#..G", "########"), "level_way_blocked", nil},
		{"low wall", tiles("platformer", jumper, "........", "........", "....#...", "....#...", "S...#..G", "########"), "", nil}, // over the top: above a level is air
		{"closed in", tiles("platformer", jumper, "#########", "#...#...#", "#S..#..G#", "#########"), "level_way_blocked", nil},
		{"spikes", tiles("platformer", jumper, "##############", "#S..^^^^^^^.G#", "##############"), "level_gap_too_wide", nil},
		{"weak jump", tiles("platformer", map[string]float64{"gravity": 1800, "speed": 240, "jumpSpeed": 300}, gap(4)...), "level_gap_too_wide", []string{"jumpSpeed"}},
		{"no spawn", tiles("platformer", jumper, "....G", "#####"), "level_no_spawn", nil},
		{"no goal", tiles("platformer", jumper, "S....", "#####"), "level_no_goal", nil},
		{"spawn over nothing", tiles("platformer", jumper, "S...G", "..###"), "level_spawn_falls", nil},
		{"no physics", tiles("platformer", map[string]float64{"speed": 240}, plain...), "level_physics", nil},
		{"empty", tiles("platformer", jumper), "level_empty", nil},
		{"runner", tiles("runner", jumper, "..............", "..............", "..............", "S....#.......G", "#######..#####"), "", nil},
		{"runner blocked", tiles("runner", jumper, "#......#......", "#......#......", "#......#......", "#......#......", "#S.....#.....G", "##############"), "level_way_blocked", nil},

		{"maze", tiles("maze", nil, "#######", "#S.k#G#", "#.#.D.#", "#######"), "", nil},
		{"maze walled", tiles("maze", nil, "#######", "#S..#G#", "#...#.#", "#######"), "level_goal_walled", nil},
		{"key behind its door", tiles("maze", nil, "#######", "#S..D.#", "#####k#", "#G....#", "#######"), "level_goal_walled", nil},
		{"door without key", tiles("maze", nil, "#######", "#S.D.G#", "#######"), "level_door_without_key", nil},
		{"treasure walled", tiles("maze", nil, "#######", "#S.G#o#", "#######"), "level_prize_walled", nil},
		{"two doors in order", tiles("maze", nil, "##########", "#Sk.D.k.D.", "########.#", "#G.......#", "##########"), "", nil},

		{"walk", level{Kind: "grid-3d", Heights: [][]*float64{{num(0), num(0.5), num(1)}, {nil, nil, num(1.5)}}, Spawn: []int{0, 0}, Goal: []int{2, 1}, Physics: map[string]float64{"stepHeight": 0.6}}, "", nil},
		{"walk too high", level{Kind: "grid-3d", Heights: [][]*float64{{num(0), num(2)}}, Spawn: []int{0, 0}, Goal: []int{1, 0}, Physics: map[string]float64{"stepHeight": 0.6}}, "level_walk_unreachable", []string{"2.0", "0.6"}},
		{"walk over a hole", level{Kind: "grid-3d", Heights: [][]*float64{{num(0), nil, num(0)}}, Spawn: []int{0, 0}, Goal: []int{2, 0}, Physics: map[string]float64{"stepHeight": 0.6}}, "level_walk_unreachable", nil},
		{"jump over a hole", level{Kind: "grid-3d", Heights: [][]*float64{{num(0), nil, num(0)}}, Spawn: []int{0, 0}, Goal: []int{2, 0}, Physics: map[string]float64{"stepHeight": 0.6, "jumpLength": 2}}, "", nil},
		{"lanes", level{Kind: "runner", Lanes: []string{"...#....", "........", "#......."}}, "", nil},
		{"lanes closed", level{Kind: "runner", Lanes: []string{"...#....", "...#....", "...#...."}}, "level_lanes_closed", nil},
		{"kind", level{Kind: "riddle"}, "level_kind", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			report := Run(context.Background(), game(t, c.l), Options{})
			if c.want == "" {
				for _, f := range report.Findings {
					t.Errorf("unexpected %s", f)
				}
				return
			}
			if report.Verdict != dreamcore.Failed {
				t.Errorf("verdict %s", report.Verdict)
			}
			for _, f := range report.Findings {
				if f.Code != c.want {
					continue
				}
				for _, s := range c.says {
					if !strings.Contains(f.Message+f.Fix, s) {
						t.Errorf("%q is not in %s", s, f)
					}
				}
				return
			}
			t.Errorf("no %s in %v", c.want, report.Findings)
		})
	}
}

func TestNoLevels(t *testing.T) {
	for name, fsys := range map[string]fstest.MapFS{
		"nothing":         {},
		"no declaration":  {"template.json": {Data: []byte(`{"tag": "2d/x"}`)}},
		"another's shape": {"levels/data.json": {Data: []byte(`[1, 2, 3]`)}},
		"own kind":        {"levels/data.json": {Data: []byte(`{"waves": [1]}`)}},
	} {
		if report := Run(context.Background(), fsys, Options{}); report.Verdict != dreamcore.Pass || len(report.Findings) > 0 {
			t.Errorf("%s: %v", name, report.Findings)
		}
	}
}

// What the template had must still be there, whatever the game itself declares.
func TestLost(t *testing.T) {
	sound := tiles("platformer", jumper, "....", "S..G", "####")
	template := game(t, sound)
	lost := fstest.MapFS{"template.json": {Data: []byte(`{}`)}}
	report := Run(context.Background(), lost, Options{Template: template})
	if len(report.Findings) != 1 || report.Findings[0].Code != "level_lost" || report.Verdict != dreamcore.Failed {
		t.Errorf("got %v", report.Findings)
	}
	if report := Run(context.Background(), game(t, sound), Options{Template: template}); report.Verdict != dreamcore.Pass {
		t.Errorf("got %v", report.Findings)
	}
}

// A generator carves levels with a way through them and cuts some: the verdict
// must agree each time.
func TestGenerated(t *testing.T) {
	pick := rand.New(rand.NewPCG(3, 5))
	for i := range 60 {
		heights := []int{2}
		for len(heights) < 40 {
			heights = append(heights, max(1, min(7, heights[len(heights)-1]+pick.IntN(5)-2)))
		}
		for c := 5; c < 34; c += 9 { // level ground around the gaps
			for n := -2; n < 6; n++ {
				heights[c+n] = heights[c-2]
			}
			for n := c + 6; n < len(heights); n++ {
				heights[n] = max(heights[n-1]-2, min(heights[n-1]+2, heights[n]))
			}
		}
		rows := make([][]byte, 14)
		for r := range rows {
			rows[r] = []byte(strings.Repeat(".", 40))
			for c, h := range heights {
				if r >= 14-h {
					rows[r][c] = '#'
				}
			}
		}
		// Gaps of two or three never follow closely, so that each can be jumped.
		for c := 5; c < 34; c += 9 {
			for n := range 2 + pick.IntN(2) {
				for r := range rows {
					rows[r][c+n] = '.'
				}
			}
		}
		cut := i%2 == 1
		if cut {
			at := 6 + pick.IntN(20)
			for r := range rows {
				for n := range 9 {
					rows[r][at+n] = '.'
				}
			}
		}
		rows[14-heights[0]-1][0] = 'S'
		rows[14-heights[39]-1][39] = 'G'
		lines := make([]string, len(rows))
		for r := range rows {
			lines[r] = string(rows[r])
		}
		report := Run(context.Background(), game(t, tiles("platformer", jumper, lines...)), Options{})
		want := dreamcore.Pass
		if cut {
			want = dreamcore.Failed
		}
		if report.Verdict != want {
			t.Errorf("level %d: %s, want %s\n%s\n%v", i, report.Verdict, want, strings.Join(lines, "\n"), report.Findings)
		}
	}
}

// A budget that is used up proves nothing: a WARN, never a FAIL.
func TestBudget(t *testing.T) {
	rows := []string{}
	for range 20 {
		rows = append(rows, strings.Repeat(".", 200))
	}
	rows = append(rows, "S"+strings.Repeat(".", 198)+"G", strings.Repeat("#", 100)+"........."+strings.Repeat("#", 91))
	report := Run(context.Background(), game(t, tiles("platformer", jumper, rows...)), Options{States: 500})
	if report.Verdict != dreamcore.Pass || len(report.Findings) != 1 || report.Findings[0].Code != "level_not_proven" {
		t.Errorf("got %v", report.Findings)
	}
}

func TestTexts(t *testing.T) {
	for _, key := range text.Keys() {
		if !strings.HasPrefix(key, "level.") {
			continue
		}
		for _, lang := range dreamcore.Langs {
			if s := text.T(lang, key); s == "" || s == key {
				t.Errorf("%s has no text in %s", key, lang)
			}
		}
	}
}

func FuzzRun(f *testing.F) {
	f.Add([]byte(`{"kind":"platformer","tiles":["S.G","###"],"legend":{"#":"solid","S":"spawn","G":"goal"},"tileSize":1e-9,"physics":{"gravity":1e300,"speed":1e300,"jumpSpeed":1e300}}`))
	f.Add([]byte(`{"kind":"maze","tiles":["SDkG"],"legend":{"S":"spawn","D":"door","k":"key","G":"goal"}}`))
	f.Add([]byte(`{"kind":"grid-3d","heights":[[0,null,1e308]],"spawn":[0,0],"goal":[2,0],"physics":{"stepHeight":1,"jumpLength":1e18}}`))
	f.Add([]byte(`{"kind":"runner","lanes":["#日","."]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := fstest.MapFS{
			"template.json": {Data: []byte(`{"levels": {"kind": "platformer", "files": ["levels/1.json"]}}`)},
			"levels/1.json": {Data: data},
		}
		for _, finding := range Run(context.Background(), fsys, Options{States: 2000}).Findings {
			if strings.ContainsAny(finding.Message, "\n\x00\x1b") {
				t.Errorf("unsafe message %q", finding.Message)
			}
		}
	})
}
