package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTailIsWholeLines(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(name, []byte("one\ntwo\nthree\nfour"), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{100: "one\ntwo\nthree\nfour", 12: "three\nfour", 6: "four", 4: "four"} {
		got, err := tail(name, limit)
		if err != nil || string(got) != want {
			t.Errorf("the last %d bytes: %q, %v; want %q", limit, got, err, want)
		}
	}
}

// A log that grows without end is cut, its end is kept, and who writes it goes
// on at that end.
func TestLogIsKeptShort(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	w, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // as a box has it
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("short\n"); err != nil {
		t.Fatal(err)
	}
	if cut, err := shorten(name); cut != 0 || err != nil {
		t.Fatalf("a short log was cut by %d, %v", cut, err)
	}
	line := strings.Repeat("x", 1000)
	for i := range 5000 {
		if _, err := fmt.Fprintf(w, "%06d %s\n", i, line); err != nil {
			t.Fatal(err)
		}
	}
	if cut, err := shorten(name); cut < 3<<20 || err != nil {
		t.Fatalf("cut by %d, %v", cut, err)
	}
	if _, err := w.WriteString("after\n"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > keepLogBytes+10 || len(data) < keepLogBytes/2 || !bytes.HasSuffix(data, []byte("\nafter\n")) || bytes.ContainsRune(data, 0) {
		t.Errorf("%d bytes are left, ending in %q", len(data), data[len(data)-20:])
	}
	for l := range strings.Lines(string(data)) {
		if l != "after\n" && len(l) != 1008 {
			t.Fatalf("a line was torn: %d bytes", len(l))
		}
	}
}
