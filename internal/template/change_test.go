package template

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
)

//go:embed testdata/trace.js
var traceScript string

// How long a variant is played, in frames of 1/60 second: most changes show at
// once, some only after a while.
const (
	shortPlay = 240
	longPlay  = 1500
)

// variants serves one template with other values, at /N/.
type variants struct {
	files []File
	mu    sync.Mutex
	set   []map[string]any // pointer to value
}

func (v *variants) add(set map[string]any) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.set = append(v.set, set)
	return fmt.Sprintf("/%d/", len(v.set)-1)
}

func (v *variants) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var n int
	var name string
	if _, err := fmt.Sscanf(strings.Replace(r.URL.Path[1:], "/", " ", 1), "%d %s", &n, &name); err != nil {
		name = "index.html"
	}
	v.mu.Lock()
	set := v.set[n]
	v.mu.Unlock()
	for _, f := range v.files {
		if f.Path != name {
			continue
		}
		data := f.Data
		switch {
		case name == "index.html":
			data = []byte(strings.Replace(string(data), "<script", "<script>"+traceScript+"</script>\n<script", 1))
			w.Header().Set("Content-Type", "text/html")
		case strings.HasSuffix(name, ".json"):
			data = patched(name, data, set)
		case strings.HasSuffix(name, ".js"):
			w.Header().Set("Content-Type", "text/javascript")
		}
		w.Write(data)
		return
	}
	http.NotFound(w, r)
}

// patched sets the values of the pointers that lead into this file.
func patched(name string, data []byte, set map[string]any) []byte {
	var doc any
	if err := json.Unmarshal(data, &doc); err != nil {
		panic(err)
	}
	for pointer, value := range set {
		file, path, ok := strings.Cut(pointer, "#")
		if !ok {
			file, path = "game.json", pointer
		}
		if file != name {
			continue
		}
		cut := strings.LastIndex(path, "/")
		parent, _ := resolve(doc, path[:cut])
		parent.(map[string]any)[path[cut+1:]] = value
	}
	out, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return out
}

// Every number, rule and colour that a manifest lists really changes the play
// or the look: the same keys, pressed at the same frames, give another picture.
func TestEveryChangeChangesTheGame(t *testing.T) {
	l := open(t)
	window := browser(t)
	for _, tag := range l.Tags() {
		got, _ := l.Get(tag)
		every := 1
		if got.Dimension == "3d" {
			every = 6 // what the kit plays in one frame at most
		}
		t.Run(string(tag), func(t *testing.T) {
			v := &variants{files: got.Files()}
			server := httptest.NewServer(v)
			defer server.Close()
			played := map[string]int{}
			play := func(set map[string]any, frames int) int {
				key := fmt.Sprint(frames, set)
				if hash, ok := played[key]; ok {
					return hash
				}
				ctx, cancel := chromedp.NewContext(window)
				defer cancel()
				played[key] = trace(t, ctx, server.URL+v.add(set)+"?seed=4&lang=en&mute=1", frames, every)
				return played[key]
			}
			// differ plays with and without the change p.
			differ := func(base map[string]any, p string, value any, frames int) bool {
				with := maps.Clone(base)
				with[p] = value
				return play(with, frames) != play(base, frames)
			}
			d := &draft{own: map[string][]byte{}, json: map[string]any{}}
			for _, f := range got.Files() {
				d.own[f.Path] = f.Data
			}
			flipped := map[string]any{} // some numbers matter only under a rule
			quick := map[string]any{}   // and some only near the end
			for _, n := range got.Change.Numbers {
				if n.Means == "goal" {
					quick[n.Path] = n.Min
				}
			}
			for _, r := range got.Change.Rules {
				flipped[r.Path] = other(r.Values, d.at(r.Path))
			}
			none := map[string]any{}
			soon := play(none, shortPlay)
			if clear(played); play(none, shortPlay) != soon {
				t.Fatal("two plays with the same seed differ: nothing can be compared")
			}
			changes := map[string]any{}
			for _, n := range got.Change.Numbers {
				if changes[n.Path] = n.Max; d.at(n.Path) == n.Max {
					changes[n.Path] = n.Min
				}
			}
			for _, r := range got.Change.Rules {
				changes[r.Path] = flipped[r.Path]
			}
			for _, p := range got.Change.Palette {
				changes[p] = "#123456"
			}
			for _, p := range slices.Sorted(maps.Keys(changes)) {
				if strings.HasPrefix(p, "levels/") && !strings.HasPrefix(p, "levels/1.json") {
					continue // a level that these keys do not reach
				}
				if play(map[string]any{p: changes[p]}, shortPlay) != soon || differ(none, p, changes[p], longPlay) {
					continue
				}
				rest := maps.Clone(flipped)
				delete(rest, p)
				if !differ(rest, p, changes[p], longPlay) && !differ(quick, p, changes[p], longPlay) {
					t.Errorf("%s = %v changes nothing", p, changes[p])
				}
			}
		})
	}
}

func other(values []any, now any) any {
	for _, v := range values {
		if v != now {
			return v
		}
	}
	return now
}

func trace(t *testing.T, ctx context.Context, url string, frames, every int) int {
	t.Helper()
	do(t, ctx, chromedp.Navigate(url))
	until(t, ctx, `typeof DreamCoreSDK2 === "object" && !!DreamCoreSDK2.probe()`)
	return eval[int](t, ctx, fmt.Sprintf("play(%d, %d)", frames, every))
}
