package fs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/blob"
	"dreamcore/internal/blob/blobtest"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return open(t, t.TempDir()) })
}

func TestADamagedFileIsNoticedAndMended(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	h, err := s.Put(t.Context(), []byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	_, name := place(h)
	if err := os.WriteFile(filepath.Join(dir, name), []byte("hullo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), h, 100); dreamcore.CodeOf(err) != dreamcore.Internal {
		t.Fatalf("damage was not noticed: %v", err)
	}
	if _, err := s.Put(t.Context(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), h, 100); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestACrashLeavesNothingForLong(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	old, young := filepath.Join(dir, fresh, "old"), filepath.Join(dir, fresh, "young")
	for _, p := range []string{old, young} {
		if err := os.WriteFile(p, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the litter of a crash is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("another process lost its file: %v", err)
	}
	if _, err := s.Put(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(dir, fresh))
	if err != nil || len(left) != 1 {
		t.Errorf("a finished write left something: %v, %v", left, err)
	}
}

func TestAFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	// A file where the folder of the hash must go makes the rename fail, for
	// root as well.
	data := []byte("x")
	h, err := s.Put(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	folder, _ := place(h)
	if err := os.RemoveAll(filepath.Join(dir, folder)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, folder), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), data); err == nil {
		t.Fatal("stored below a file")
	}
	left, err := os.ReadDir(filepath.Join(dir, fresh))
	if err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}
