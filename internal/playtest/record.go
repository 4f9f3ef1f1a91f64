package playtest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	_ "image/jpeg" // how the frames come
	"image/png"
	"sort"
)

// animate joins pictures of one size, made smaller, into an animated PNG
// that loops for ever. step is the number of frames of play (60 a second) between
// two pictures. To be small enough for a page of many, it has 255 colours, and a
// pixel that stays is transparent.
func animate(frames [][]byte, step int) ([]byte, error) {
	if len(frames) == 0 {
		return nil, fmt.Errorf("no frames")
	}
	pictures := make([]*image.RGBA, len(frames))
	for i, f := range frames {
		img, _, err := image.Decode(bytes.NewReader(f))
		if err != nil {
			return nil, fmt.Errorf("decode frame %d: %w", i, err)
		}
		if img.Bounds().Dx() < recordShrink || img.Bounds().Dy() < recordShrink {
			return nil, fmt.Errorf("frame %d is %v", i, img.Bounds())
		}
		pictures[i] = shrink(img, recordShrink)
		if pictures[i].Bounds() != pictures[0].Bounds() {
			return nil, fmt.Errorf("frame %d has another size", i)
		}
	}
	palette, index := reduce(pictures)

	var out bytes.Buffer
	out.WriteString("\x89PNG\r\n\x1a\n")
	w, h := pictures[0].Bounds().Dx(), pictures[0].Bounds().Dy()
	header := binary.BigEndian.AppendUint32(nil, uint32(w))
	header = binary.BigEndian.AppendUint32(header, uint32(h))
	header = append(header, 8, 3, 0, 0, 0) // 8 bits, palette
	chunk(&out, "IHDR", header)
	control := binary.BigEndian.AppendUint32(nil, uint32(len(pictures)))
	chunk(&out, "acTL", binary.BigEndian.AppendUint32(control, 0))
	colours := []byte{0, 0, 0} // entry 0 is transparent: the pixel stays
	for _, c := range palette {
		colours = append(colours, c.R, c.G, c.B)
	}
	chunk(&out, "PLTE", colours)
	chunk(&out, "tRNS", []byte{0})

	sequence := uint32(0)
	var before []byte
	for i, p := range pictures {
		now := make([]byte, 0, w*h)
		for y := range h {
			for x := range w {
				o := p.PixOffset(x, y)
				now = append(now, index[bucket(p.Pix[o], p.Pix[o+1], p.Pix[o+2])]+1)
			}
		}
		shown := now
		if before != nil {
			shown = make([]byte, len(now))
			for k := range now {
				if now[k] != before[k] {
					shown[k] = now[k]
				}
			}
		}
		before = now
		data, err := deflate(shown, w, h)
		if err != nil {
			return nil, err
		}
		frame := binary.BigEndian.AppendUint32(nil, sequence)
		sequence++
		for _, v := range []uint32{uint32(w), uint32(h), 0, 0} {
			frame = binary.BigEndian.AppendUint32(frame, v)
		}
		frame = binary.BigEndian.AppendUint16(frame, uint16(step))
		frame = binary.BigEndian.AppendUint16(frame, 60)
		blend := byte(1) // over
		if i == 0 {
			blend = 0
		}
		chunk(&out, "fcTL", append(frame, 0, blend))
		if i == 0 {
			chunk(&out, "IDAT", data)
			continue
		}
		chunk(&out, "fdAT", append(binary.BigEndian.AppendUint32(nil, sequence), data...))
		sequence++
	}
	chunk(&out, "IEND", nil)
	return out.Bytes(), nil
}

// shrink returns a picture n times smaller, each pixel the mean of n by n.
func shrink(img image.Image, n int) *image.RGBA {
	from := image.NewRGBA(image.Rect(0, 0, img.Bounds().Dx(), img.Bounds().Dy()))
	draw.Draw(from, from.Bounds(), img, img.Bounds().Min, draw.Src)
	to := image.NewRGBA(image.Rect(0, 0, from.Bounds().Dx()/n, from.Bounds().Dy()/n))
	for y := range to.Bounds().Dy() {
		for x := range to.Bounds().Dx() {
			var sum [4]int
			for dy := range n {
				o := from.PixOffset(x*n, y*n+dy)
				for k, v := range from.Pix[o : o+4*n] {
					sum[k%4] += int(v)
				}
			}
			for c := range sum {
				to.Pix[to.PixOffset(x, y)+c] = byte(sum[c] / (n * n))
			}
		}
	}
	return to
}

func chunk(out *bytes.Buffer, kind string, data []byte) {
	body := append([]byte(kind), data...)
	out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(data))))
	out.Write(body)
	out.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(body)))
}

// deflate packs rows of palette indices without a filter.
func deflate(pixels []byte, w, h int) ([]byte, error) {
	var out bytes.Buffer
	z, err := zlib.NewWriterLevel(&out, zlib.BestCompression)
	if err != nil {
		return nil, fmt.Errorf("pack frame: %w", err)
	}
	for y := range h {
		if _, err := z.Write(append([]byte{0}, pixels[y*w:(y+1)*w]...)); err != nil {
			return nil, fmt.Errorf("pack frame: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("pack frame: %w", err)
	}
	return out.Bytes(), nil
}

// bucket is a colour with five bits a channel.
func bucket(r, g, b byte) int { return int(r>>3)<<10 | int(g>>3)<<5 | int(b>>3) }

// reduce finds 255 colours by median cut over all pictures, and for each bucket
// of colours the nearest of them.
func reduce(pictures []*image.RGBA) ([]color.RGBA, []byte) {
	counts := make([]int, 1<<15)
	for _, p := range pictures {
		for o := 0; o+3 < len(p.Pix); o += 4 {
			counts[bucket(p.Pix[o], p.Pix[o+1], p.Pix[o+2])]++
		}
	}
	var used []int
	for b, n := range counts {
		if n > 0 {
			used = append(used, b)
		}
	}
	boxes := [][]int{used}
	for len(boxes) < 255 {
		// Split the box whose colours spread most, weighed by how often they occur.
		best, bestScore, bestChannel := -1, 0, 0
		for i, box := range boxes {
			if len(box) < 2 {
				continue
			}
			total := 0
			low, high := [3]int{31, 31, 31}, [3]int{}
			for _, b := range box {
				total += counts[b]
				for c, v := range channels(b) {
					low[c], high[c] = min(low[c], v), max(high[c], v)
				}
			}
			for c := range 3 {
				if score := (high[c] - low[c]) * (high[c] - low[c]) * (1 + total/64); score > bestScore {
					best, bestScore, bestChannel = i, score, c
				}
			}
		}
		if best < 0 {
			break
		}
		box := boxes[best]
		sort.Slice(box, func(i, k int) bool {
			a, b := channels(box[i])[bestChannel], channels(box[k])[bestChannel]
			return a < b || (a == b && box[i] < box[k])
		})
		half := len(box) / 2
		boxes[best] = box[:half]
		boxes = append(boxes, box[half:])
	}
	palette := make([]color.RGBA, len(boxes))
	index := make([]byte, 1<<15)
	for i, box := range boxes {
		sum, total := [3]int{}, 0
		for _, b := range box {
			total += counts[b]
			for c, v := range channels(b) {
				sum[c] += v * counts[b]
			}
			index[b] = byte(i)
		}
		if total == 0 {
			continue
		}
		level := func(c int) byte { return byte((sum[c]*255/31 + total/2) / total) }
		palette[i] = color.RGBA{level(0), level(1), level(2), 255}
	}
	return palette, index
}

func channels(b int) [3]int { return [3]int{b >> 10, b >> 5 & 31, b & 31} }

// oneColour reports whether a screenshot shows nothing at all.
func oneColour(shot []byte) (bool, error) {
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return false, fmt.Errorf("decode screenshot: %w", err)
	}
	b := img.Bounds()
	first := img.At(b.Min.X, b.Min.Y)
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if img.At(x, y) != first {
				return false, nil
			}
		}
	}
	return true, nil
}
