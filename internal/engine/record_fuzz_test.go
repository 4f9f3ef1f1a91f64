package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dreamcore/internal/engine/gvisor"
)

var whole = record{
	Format: recordFormat, Protocol: 1, ID: "abcdefghijkmnpqrstuv", State: stateRunning, Image: "sha256:0",
	Machine: gvisor.Identity{PID: 7, Start: 8, Boot: "x"}, Limits: DefaultLimits,
	Started: time.Unix(1, 0).UTC(), Ends: time.Unix(2, 0).UTC(), Token: "t", Traffic: "u", Private: true, Egress: true,
	Metadata: map[string]string{"a": "b"}, Env: map[string]string{"c": "d"},
}

func TestRecordIsReplacedWhole(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if err := whole.write(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(whole, got); d != "" {
		t.Error(d)
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) != 1 {
		t.Errorf("%d files (%v)", len(all), err)
	}
	if err := os.WriteFile(filepath.Join(dir, recordFile), make([]byte, maxRecordBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecord(dir); err == nil {
		t.Error("read a record that is too large")
	}
}

// A record that lacks what a box must not lack is refused, whatever it says.
func FuzzRecord(f *testing.F) {
	data, err := json.Marshal(whole)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"format":1,"id":"x"}`))
	f.Add([]byte(`{"format":1,"id":"x","state":"running","image":"i","started":"2026-01-01T00:00:00Z","ends":"2026-01-01T00:00:00Z","limits":{"CPUs":1},"private":true,"token":""}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		if r.Token == "" || r.ID == "" || r.Private && r.Traffic == "" {
			t.Errorf("accepted %q", data)
		}
	})
}
