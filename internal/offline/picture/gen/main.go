// Command gen builds the icon pack of the picture maker, pack.zip, from the npm
// package of the Noto Emoji icons. Unpack it first, outside the repository:
//
//	npm install --prefix DIR --no-save --ignore-scripts @iconify-json/noto@1.2.9
//	go run ./internal/offline/picture/gen DIR/node_modules internal/offline/picture/pack.zip
//
// With a third argument, a folder, it also draws every icon there as it will be
// drawn, for a comparison with another renderer:
//
//	go run ./internal/offline/picture/gen DIR/node_modules pack.zip OUT
//
// Left out are skin tones, flags of places, and what package svg cannot draw;
// the latter are named on standard error.
package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"dreamcore/internal/offline/picture/svg"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: gen NODE_MODULES PACK.zip [PNG-FOLDER]")
		os.Exit(2)
	}
	pngs := ""
	if len(os.Args) > 3 {
		pngs = os.Args[3]
	}
	if err := run(os.Args[1], os.Args[2], pngs); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

type iconSet struct {
	Icons map[string]struct {
		Body string `json:"body"`
	} `json:"icons"`
	Aliases map[string]struct {
		Parent string `json:"parent"`
	} `json:"aliases"`
	Width  int `json:"width"`
	Height int `json:"height"`
}

func run(modules, out, pngs string) error {
	var set iconSet
	if err := decode(filepath.Join(modules, "@iconify-json/noto/icons.json"), &set); err != nil {
		return err
	}
	var chars map[string]string
	if err := decode(filepath.Join(modules, "@iconify-json/noto/chars.json"), &chars); err != nil {
		return err
	}
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	keys := make([]string, 0, len(chars))
	for k := range chars {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	kept := 0
	for _, key := range keys {
		name := chars[key]
		if a, ok := set.Aliases[name]; ok {
			name = a.Parent
		}
		icon, ok := set.Icons[name]
		if !ok || left(key, name) {
			continue
		}
		doc := fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d">%s</svg>`, set.Width, set.Height, icon.Body)
		picture, err := draw([]byte(doc))
		if err != nil {
			fmt.Fprintf(os.Stderr, "left out: %s (%s): %v\n", name, key, err)
			continue
		}
		if pngs != "" {
			if err := save(pngs, key, doc, picture); err != nil {
				return err
			}
		}
		// Without a time stamp the same input gives the same bytes.
		w, err := z.CreateHeader(&zip.FileHeader{Name: strings.ReplaceAll(key, "-fe0f", "") + ".svg", Method: zip.Deflate})
		if err != nil {
			return err
		}
		if _, err := w.Write([]byte(doc)); err != nil {
			return err
		}
		kept++
	}
	if err := z.Close(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d icons, %d bytes\n", kept, zipped.Len())
	return os.WriteFile(out, zipped.Bytes(), 0o644)
}

// left reports whether an icon stays out of the pack.
func left(key, name string) bool {
	for _, part := range strings.Split(key, "-") {
		if part >= "1f3fb" && part <= "1f3ff" && len(part) == 5 {
			return true // skin tones
		}
		if part >= "1f1e6" && part <= "1f1ff" && len(part) == 5 {
			return true // flags of countries, by their letters
		}
	}
	return strings.HasPrefix(name, "flag-for") || strings.HasPrefix(key, "1f3f4-e00")
}

func draw(doc []byte) (*image.RGBA, error) {
	d, err := svg.Parse(doc)
	if err != nil {
		return nil, err
	}
	dst := image.NewRGBA(image.Rect(0, 0, 128, 128))
	return dst, d.Draw(dst, d.Fit(128, 128))
}

func save(folder, key, doc string, picture image.Image) error {
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, key+".svg"), []byte(doc), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, key+".png"), b.Bytes(), 0o644)
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
