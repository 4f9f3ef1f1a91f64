package gamehost

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"

	"dreamcore"
)

// Bounds of compression: below the one it gains nothing, and the other bounds
// the memory that compressed files may take in all.
const (
	compressFromBytes = 1 << 10
	compressedBytes   = 64 << 20
)

// compressible are the media types that shrink; pictures and sounds do not.
func compressible(kind string) bool {
	kind, _, _ = strings.Cut(kind, ";")
	switch kind {
	case "application/json", "application/xml", "application/wasm", "image/svg+xml", "model/gltf+json", "model/gltf-binary", "font/ttf", "font/otf":
		return true
	}
	return strings.HasPrefix(kind, "text/")
}

// acceptsGzip reads an Accept-Encoding header; gzip has to be named.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		coding, params, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			continue
		}
		q, found := strings.CutPrefix(strings.TrimSpace(params), "q=")
		if !found {
			return true
		}
		f, err := strconv.ParseFloat(q, 64)
		return err == nil && f > 0
	}
	return false
}

// wantsGzip reports whether this answer is to be compressed. A range is of the
// bytes as they are.
func wantsGzip(r *http.Request, file dreamcore.VersionFile, kind string) bool {
	return file.SizeBytes >= compressFromBytes && compressible(kind) && r.Header.Get("Range") == "" &&
		acceptsGzip(r.Header.Get("Accept-Encoding"))
}

// shelf keeps compressed files by the hash of what they were made from. A file
// of many readers is compressed once.
type shelf struct {
	blobs  Blobs
	flight singleflight.Group

	mu    sync.Mutex
	bytes int64
	all   map[dreamcore.BlobHash][]byte
}

func newShelf(blobs Blobs) *shelf { return &shelf{blobs: blobs, all: map[dreamcore.BlobHash][]byte{}} }

func (s *shelf) get(ctx context.Context, hash dreamcore.BlobHash) ([]byte, error) {
	s.mu.Lock()
	data, ok := s.all[hash]
	s.mu.Unlock()
	if ok {
		return data, nil
	}
	// The first reader may leave while others still wait for the same file.
	ctx = context.WithoutCancel(ctx)
	v, err, _ := s.flight.Do(string(hash), func() (any, error) { return s.compress(ctx, hash) })
	if err != nil {
		return nil, err
	}
	return v.([]byte), nil
}

func (s *shelf) compress(ctx context.Context, hash dreamcore.BlobHash) (data []byte, err error) {
	f, err := s.blobs.Open(ctx, hash)
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("compress: %w", cerr)
		}
	}()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.Copy(z, f); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	s.keep(hash, b.Bytes())
	return b.Bytes(), nil
}

// keep makes room by forgetting any other files: which ones hardly matters,
// they are made again in milliseconds.
func (s *shelf) keep(hash dreamcore.BlobHash, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[hash]; ok || int64(len(data)) > compressedBytes/4 {
		return
	}
	for old, d := range s.all {
		if s.bytes+int64(len(data)) <= compressedBytes {
			break
		}
		s.bytes -= int64(len(d))
		delete(s.all, old)
	}
	s.all[hash] = data
	s.bytes += int64(len(data))
}
