package node

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

func TestEachSDKIsThereInItsVersion(t *testing.T) {
	dir := Folder(t, fstest.MapFS{"which.mjs": {Data: []byte(`
		import { readFileSync } from 'node:fs'
		for (const name of process.argv.slice(2)) {
			const { Sandbox } = await import(name)
			const { version } = JSON.parse(readFileSync(new URL('node_modules/' + name + '/package.json', import.meta.url)))
			console.log(name, version, typeof Sandbox.create)
		}`)}})
	cmd := exec.Command(Program(t), append([]string{filepath.Join(dir, "which.mjs")}, SDKs...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, want := string(out), "e2b 2.51.0 function\ne2b-2.45 2.45.0 function\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The lock must not send npm to an address: whoever runs the tests has a
// registry of their own choice. It must pin every package all the same.
func TestLockNamesNoAddressAndPinsAll(t *testing.T) {
	var l struct {
		Packages map[string]struct {
			Version, Resolved, Integrity string
		}
	}
	if err := json.Unmarshal(lock, &l); err != nil {
		t.Fatal(err)
	}
	if len(l.Packages) < 3 {
		t.Errorf("the lock has %d packages", len(l.Packages))
	}
	for name, p := range l.Packages {
		if p.Resolved != "" || strings.Contains(name+p.Version, "//") {
			t.Errorf("%s names an address", name)
		}
		if name != "" && !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%s is not pinned", name)
		}
	}
}

func TestInstallByManyAtOnceAndOverWhatADeadOneLeft(t *testing.T) {
	cache := t.TempDir()
	if err := os.MkdirAll(filepath.Join(cache, "unfinished/node_modules/e2b"), 0o755); err != nil {
		t.Fatal(err)
	}
	// A lock without packages: what is tested here is the folder, without network.
	wanted := []byte(`{"name": "empty", "private": true}`)
	lock := []byte(`{"name": "empty", "lockfileVersion": 3, "requires": true, "packages": {"": {"name": "empty"}}}`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			m, err := install(cache, wanted, lock)
			if err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(m, "e2b")); err == nil {
				t.Error("what the dead one left was taken for whole")
			}
		})
	}
	all.Wait()
	if left, err := os.ReadDir(cache); err != nil || len(left) != 2 {
		t.Errorf("left %v, %v; want the packages and the lock", left, err)
	}
}
