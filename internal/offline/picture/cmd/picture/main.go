// Command picture draws one picture with the built-in picture maker, for those
// who make templates:
//
//	go run ./internal/offline/picture/cmd/picture "a cat, facing right" -size 256 -o cat.png
//
// Flags may stand before or after the words. The picture is transparent unless
// -background is given.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"dreamcore/internal/offline/picture"
)

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	fs := flag.NewFlagSet("picture", flag.ContinueOnError)
	size := fs.String("size", "256", "side, or WIDTHxHEIGHT, in pixels")
	out := fs.String("o", "", "file to write (default: standard output)")
	background := fs.Bool("background", false, "paint a background")
	style := fs.String("style", "", "one of: "+strings.Join(picture.Styles[1:], ", "))
	tint := fs.String("tint", "", "colour, as #rrggbb or rainbow")
	rim := fs.String("outline", "", "colour of an outline, as #rrggbb")
	facing := fs.String("facing", "", "left, right or up")
	flip := fs.Bool("flip", false, "mirror")
	seed := fs.Int64("seed", 0, "varies what the words leave open")
	var said []string
	for len(args) > 0 {
		if err := fs.Parse(args); err != nil {
			return 2
		}
		args = fs.Args()
		if len(args) > 0 {
			said, args = append(said, args[0]), args[1:]
		}
	}
	w, h, err := parseSize(*size)
	if err != nil || len(said) == 0 {
		fmt.Fprintln(os.Stderr, `usage: picture "words" [-size 256] [-o FILE] [-background] [-style S] [-tint #rrggbb] [-outline #rrggbb] [-facing right] [-flip] [-seed N]`)
		return 2
	}
	data, info, err := picture.Make(context.Background(), picture.Request{
		Prompt: strings.Join(said, " "), W: w, H: h, Transparent: !*background, Style: *style, Seed: *seed,
		Effects: picture.Effects{Tint: *tint, Outline: *rim, FlipX: *flip, Facing: *facing},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		return 1
	}
	if *out == "" {
		_, err = os.Stdout.Write(data)
	} else {
		err = os.WriteFile(*out, data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		return 1
	}
	switch {
	case info.Fallback:
		fmt.Fprintln(os.Stderr, "picture: no word was understood: a friendly shape was drawn")
	default:
		fmt.Fprintf(os.Stderr, "picture: %s %s\n", info.Concept, info.Place)
	}
	return 0
}

func parseSize(s string) (int, int, error) {
	a, b, two := strings.Cut(s, "x")
	if !two {
		b = a
	}
	w, err := strconv.Atoi(a)
	if err != nil {
		return 0, 0, err
	}
	h, err := strconv.Atoi(b)
	return w, h, err
}
