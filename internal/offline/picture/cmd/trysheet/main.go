package main

import (
	"bufio"
	"context"
	"dreamcore/internal/offline/picture"
	"fmt"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
)

func main() { // out bg? prompts on stdin
	sc := bufio.NewScanner(os.Stdin)
	var ps []string
	for sc.Scan() {
		if sc.Text() != "" {
			ps = append(ps, sc.Text())
		}
	}
	cols := 8
	s := 150
	rows := (len(ps) + cols - 1) / cols
	out := image.NewRGBA(image.Rect(0, 0, cols*s, rows*(s+16)))
	draw.Draw(out, out.Bounds(), image.NewUniform(color.RGBA{205, 225, 205, 255}), image.Point{}, draw.Src)
	for i, p := range ps {
		q := picture.Request{Prompt: p, W: s - 6, H: s - 6, Transparent: os.Args[2] != "bg"}
		m, info, err := picture.Draw(context.Background(), q)
		x, y := i%cols*s, i/cols*(s+16)
		if err != nil {
			fmt.Println(p, err)
			continue
		}
		draw.Draw(out, image.Rect(x, y, x+s-6, y+s-6), m, image.Point{}, draw.Over)
		d := font.Drawer{Dst: out, Src: image.Black, Face: basicfont.Face7x13, Dot: fixed.P(x+2, y+s+8)}
		l := p
		if len(l) > 20 {
			l = l[:20]
		}
		d.DrawString(l)
		if info.Fallback {
			fmt.Println("fallback:", p)
		}
	}
	f, _ := os.Create(os.Args[1])
	png.Encode(f, out)
	f.Close()
}
