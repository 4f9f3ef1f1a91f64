package gamehost

import (
	"compress/gzip"
	"io"
	"strings"
	"sync"
	"testing"

	"dreamcore/internal/tree"
)

func TestTextIsCompressedForThoseWhoTakeIt(t *testing.T) {
	s := newStage(t, false)
	script := strings.Repeat("let aLongName = 'and again';\n", 2000)
	s.publish(map[string]string{"index.html": "<title>x</title>", "big.js": script, "big.png": script})
	base := s.URL(s.game)
	for accept, want := range map[string]string{
		"": "", "br": "", "identity": "", "gzip;q=0": "", "gzip;q=x": "", "*": "",
		"gzip": "gzip", "br, GZIP": "gzip", "gzip;q=0.1": "gzip", "deflate, gzip;q=1.0, *;q=0.5": "gzip",
	} {
		r := s.ask("GET", base+"big.js", "Accept-Encoding", accept)
		if got := r.Header.Get("Content-Encoding"); got != want || r.Header.Get("Vary") != "Accept-Encoding" {
			t.Fatalf("%q: %q", accept, got)
		}
		raw := body(t, r)
		if want == "gzip" {
			if len(raw) > len(script)/10 || r.ContentLength != int64(len(raw)) {
				t.Errorf("%d of %d bytes, length %d", len(raw), len(script), r.ContentLength)
			}
			z, err := gzip.NewReader(strings.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			raw = string(data)
		}
		if raw != script {
			t.Errorf("%q: other bytes", accept)
		}
		if r := s.ask("GET", base+"big.js", "Accept-Encoding", accept, "If-None-Match", r.Header.Get("ETag")); r.StatusCode != 304 {
			t.Errorf("%q: asked again: %d", accept, r.StatusCode)
		}
	}
	for _, path := range []string{"big.png", ""} {
		if r := s.ask("GET", base+path, "Accept-Encoding", "gzip"); r.Header.Get("Content-Encoding") != "" {
			t.Errorf("%q was compressed", path)
		}
	}
	r := s.ask("GET", base+"big.js", "Accept-Encoding", "gzip", "Range", "bytes=0-3")
	if r.StatusCode != 206 || r.Header.Get("Content-Encoding") != "" || body(t, r) != "let " {
		t.Errorf("a range: %d", r.StatusCode)
	}
}

func TestTheShelfIsBoundedAndShared(t *testing.T) {
	s := newStage(t, false)
	hash, err := s.blobs.Put(t.Context(), []byte(strings.Repeat("x", 10000)))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if data, err := s.shelf.get(t.Context(), hash); err != nil || len(data) == 0 {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(s.shelf.all) != 1 {
		t.Errorf("%d files", len(s.shelf.all))
	}
	for i := range 40 {
		s.shelf.keep(tree.Hash([]byte{byte(i)}), make([]byte, compressedBytes/10))
		if s.shelf.bytes > compressedBytes {
			t.Fatalf("%d bytes", s.shelf.bytes)
		}
	}
	before := len(s.shelf.all)
	s.shelf.keep("huge", make([]byte, compressedBytes/2))
	if len(s.shelf.all) != before || s.shelf.all["huge"] != nil {
		t.Error("one file emptied the shelf")
	}
}
