// Package blobtest is the suite that every blob store passes.
package blobtest

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"dreamcore"
	"dreamcore/internal/blob"
	"dreamcore/internal/tree"
)

// Run tries a store; open returns a fresh, empty one.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	t.Run("what was put is got", func(t *testing.T) {
		s, ctx := open(t), t.Context()
		for _, data := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("ab"), 1<<19)} {
			h, err := s.Put(ctx, data)
			if err != nil {
				t.Fatal(err)
			}
			if h != tree.Hash(data) {
				t.Fatalf("hash %s", h)
			}
			if again, err := s.Put(ctx, data); err != nil || again != h {
				t.Fatalf("again: %s, %v", again, err)
			}
			got, err := s.Get(ctx, h, int64(len(data)))
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			f, err := s.Open(ctx, h)
			if err != nil {
				t.Fatal(err)
			}
			if f.SizeBytes() != int64(len(data)) {
				t.Errorf("size %d, want %d", f.SizeBytes(), len(data))
			}
			if _, err := f.Seek(int64(len(data)/2), io.SeekStart); err != nil {
				t.Error(err)
			}
			if half, err := io.ReadAll(f); err != nil || !bytes.Equal(half, data[len(data)/2:]) {
				t.Errorf("from the middle: %d bytes, %v", len(half), err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("what is not there is NotFound", func(t *testing.T) {
		s := open(t)
		h := tree.Hash([]byte("never stored"))
		if _, err := s.Open(t.Context(), h); dreamcore.CodeOf(err) != dreamcore.NotFound {
			t.Error(err)
		}
		if _, err := s.Get(t.Context(), h, 100); dreamcore.CodeOf(err) != dreamcore.NotFound {
			t.Error(err)
		}
	})
	t.Run("what is no hash is Invalid", func(t *testing.T) {
		s := open(t)
		for _, h := range []string{"", "..", "../../etc/passwd", strings.Repeat("A", 64), strings.Repeat("/", 64), strings.Repeat("a", 63)} {
			if _, err := s.Open(t.Context(), dreamcore.BlobHash(h)); dreamcore.CodeOf(err) != dreamcore.Invalid {
				t.Errorf("%q: %v", h, err)
			}
		}
	})
	t.Run("more than the limit is Refused", func(t *testing.T) {
		s := open(t)
		h, err := s.Put(t.Context(), []byte("12345"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), h, 4); dreamcore.CodeOf(err) != dreamcore.Refused {
			t.Error(err)
		}
	})
	t.Run("an ended context stores nothing", func(t *testing.T) {
		s := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Put(ctx, []byte("late")); err == nil {
			t.Error("stored")
		}
		if _, err := s.Open(t.Context(), tree.Hash([]byte("late"))); dreamcore.CodeOf(err) != dreamcore.NotFound {
			t.Error(err)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		s := open(t)
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				data := []byte{byte(i % 4)} // eight writers of each blob
				h, err := s.Put(t.Context(), data)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := s.Get(t.Context(), h, 1); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%v %v", got, err)
				}
			})
		}
		wg.Wait()
	})
}
