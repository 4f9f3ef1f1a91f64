package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseTargetsTakesDebianOnly(t *testing.T) {
	out := strings.Join([]string{
		"Debian\tDebian\thttp://mirror.test/debian/\t/etc/apt/sources.list.d/debian.sources:1\tmain\tPackages",
		"Debian\tDebian\thttp://mirror.test/debian/\t/etc/apt/sources.list.d/debian.sources:1\tmain\tDEP-11",
		"Debian\tDebian\thttp://mirror.test/debian/\t/etc/apt/sources.list.d/debian.sources:1\tcontrib\tPackages",
		"Debian\tDebian-Security\thttp://mirror.test/security/\t/etc/apt/sources.list:3\tmain\tPackages",
		"Somebody\tDebian\thttp://other.test/\t/etc/apt/sources.list:4\tmain\tPackages",
		"Debian\tDebian\thttp://x.test/ [trusted=yes]\t/etc/apt/sources.list:5\tmain\tPackages",
		"$(ORIGIN)\t\t\t\t\t", "short",
	}, "\n")
	want := []target{
		{"Debian", "http://mirror.test/debian/", "/etc/apt/sources.list.d/debian.sources"},
		{"Debian-Security", "http://mirror.test/security/", "/etc/apt/sources.list"},
	}
	if d := cmp.Diff(want, parseTargets(out), cmp.AllowUnexported(target{})); d != "" {
		t.Error(d)
	}
}

func TestSignedByOfBothForms(t *testing.T) {
	for data, want := range map[string]string{
		"Types: deb\nSigned-By: /a/one.gpg\n\nTypes: deb\nSigned-By: /a/two.gpg\n": "[signed-by=/a/one.gpg,/a/two.gpg] ",
		"deb [arch=amd64 signed-by=/a/one.gpg] http://mirror.test/ x main\n":       "[signed-by=/a/one.gpg] ",
	} {
		name := filepath.Join(t.TempDir(), "sources")
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := (target{file: name}).options(); got != want {
			t.Errorf("%q gives %q", data, got)
		}
	}
}

func TestParseIndex(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	data := "Package: bash\nEssential: yes\nVersion: 5.2-1\nSize: 12\nSHA256: " + hash + "\nDescription: a shell\n Package: not\n\n" +
		"Package: evil name\nVersion: 1\nSize: 1\nSHA256: " + hash + "\n\n" +
		"Package: nohash\nVersion: 1\nSize: 1\n\n" +
		"Package: git\nVersion: 1:2-1\nSize: 3\nSHA256: " + hash
	var got []indexed
	if err := parseIndex(strings.NewReader(data), func(p indexed) { got = append(got, p) }); err != nil {
		t.Fatal(err)
	}
	want := []indexed{
		{Package{"bash", "5.2-1", 12, "sha256:" + hash}, true},
		{Package{"git", "1:2-1", 3, "sha256:" + hash}, false},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(indexed{})); d != "" {
		t.Error(d)
	}
}

func TestParseSolution(t *testing.T) {
	a := &archive{index: map[string]indexed{}}
	for _, p := range []Package{pkg("bash", "5.2-1"), pkg("git", "1:2-1")} {
		a.index[p.Name+" "+p.Version] = indexed{Package: p}
	}
	out := "Reading...\nInst git (1:2-1 Debian:12/oldstable [amd64])\nInst bash:amd64 [5.1-1] (5.2-1 Debian:12/oldstable [amd64]) []\nConf git (1:2-1 x)\n"
	got, err := a.parseSolution(out)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Package{pkg("bash", "5.2-1"), pkg("git", "1:2-1")}, got); d != "" {
		t.Error(d)
	}
	if _, err := a.parseSolution("Inst curl (8-1 x)\n"); err == nil {
		t.Error("a package that no list has was accepted")
	}
	if _, err := a.parseSolution("nothing\n"); err == nil {
		t.Error("an empty solution was accepted")
	}
}

func FuzzParseIndex(f *testing.F) {
	f.Add("Package: bash\nVersion: 5.2-1\nSize: 12\nSHA256: " + strings.Repeat("ab", 32) + "\n\n")
	f.Fuzz(func(t *testing.T, data string) {
		err := parseIndex(strings.NewReader(data), func(p indexed) {
			if !debianName.MatchString(p.Name) || !debianVersion.MatchString(p.Version) || !debianDigest.MatchString(p.Digest) || p.SizeBytes <= 0 {
				t.Fatalf("let through: %+v", p)
			}
		})
		_ = err // a list that cannot be read is an error, never a panic
	})
}
