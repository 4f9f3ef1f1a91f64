package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"dreamcore"
)

func wholeSnapshot() *snapshot {
	box := whole
	box.State = string(kindPaused)
	return &snapshot{Format: snapshotFormat, ID: box.ID, Kind: kindPaused, Box: box, Created: time.Unix(3, 0).UTC(), Bytes: 5}
}

// What a record of a snapshot says is believed only when it is whole.
func FuzzSnapshotRecord(f *testing.F) {
	s := wholeSnapshot()
	data, err := json.Marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := parseSnapshot(data); err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"format":1,"id":"../../etc","kind":"paused"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSnapshot(data)
		if err != nil {
			return
		}
		if s.ID == "" || s.Bytes <= 0 || s.Kind == kindPaused && (s.Box.Token == "" || s.Box.ID != s.ID) {
			t.Errorf("believed %+v", s.Box)
		}
	})
}

// The shelf takes only what was complete, and a folder's name is its id.
func TestShelfLoads(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, s *snapshot, data []byte) {
		t.Helper()
		if data == nil {
			var err error
			if data, err = json.Marshal(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, snapshotFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := wholeSnapshot()
	fork := wholeSnapshot()
	fork.Kind, fork.ID = kindFork, "fork"
	write(string(good.ID), good, nil)
	write("another", good, nil)
	write("fork", fork, nil)
	write(newPrefix+"x", good, nil)
	write("broken", good, []byte("{"))
	if err := os.MkdirAll(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &shelf{dir: dir, limits: Storage{Count: 2, Bytes: 100, Life: time.Hour}}
	if err := s.load(); err == nil {
		t.Error("nothing is said of what is broken")
	}
	if len(s.all) != 1 || s.all[good.ID] == nil {
		t.Fatalf("took %v", s.all)
	}
	if _, err := os.Stat(filepath.Join(dir, newPrefix+"x")); err != nil {
		t.Errorf("looking removed something: %v", err) // it may be another engine's
	}
	if err := s.sweep(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"fork": false, newPrefix + "x": false, "broken": true, string(good.ID): true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Room is counted with what is being written.
	give, err := s.reserve(50, dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.reserve(1, dreamcore.English); dreamcore.CodeOf(err) != dreamcore.Refused {
		t.Errorf("a third: %v", err)
	}
	give()
	if _, err := s.reserve(96, dreamcore.English); dreamcore.CodeOf(err) != dreamcore.Refused {
		t.Errorf("too large: %v", err)
	}
	if err := s.drop(s.all[good.ID]); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, string(good.ID))); err == nil {
		t.Error("it is still there")
	}
}
