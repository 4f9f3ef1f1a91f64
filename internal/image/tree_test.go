package image

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// node is one entry of a synthetic tree.
type node struct {
	path, data, link string
	mode             os.FileMode // 0: a folder when path ends in a slash, else 0644
	uid              int
}

var small = []node{
	{path: "etc/"},
	{path: "etc/hosts", data: "127.0.0.1 localhost\n"},
	{path: "home/"},
	{path: "home/user/", mode: 0o700, uid: 1000},
	{path: "home/user/ネコ \"a\".txt", data: "cat", uid: 1000},
	{path: "tmp/", mode: 0o777 | os.ModeSticky},
	{path: "usr/"},
	{path: "usr/bin/"},
	{path: "usr/bin/true", data: "#!/bin/sh\n", mode: 0o755},
	{path: "bin", link: "usr/bin"},
	{path: "usr/bin/abs", link: "/usr/bin/true"},
	{path: "usr/share/"},
	{path: "usr/share/doc/"},
	{path: "usr/share/doc/dreamcore/"},
	{path: "usr/share/doc/dreamcore/image.json", data: `{"suite":"bookworm","architecture":"amd64","agentName":"pi","agentVersion":"1.6.0","nodeVersion":"24.0.0","browserVersion":"1","debian":[],"npm":[]}`},
}

// plant makes the tree in a new folder.
func plant(t *testing.T, nodes []node) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test sets owners: run it as root")
	}
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		p := filepath.Join(dir, n.path)
		var err error
		switch {
		case n.link != "":
			err = os.Symlink(n.link, p)
		case strings.HasSuffix(n.path, "/"):
			if err = os.Mkdir(p, 0o755); err == nil && n.mode != 0 {
				err = os.Chmod(p, n.mode)
			}
		default:
			if err = os.WriteFile(p, []byte(n.data), 0o644); err == nil && n.mode != 0 {
				err = os.Chmod(p, n.mode)
			}
		}
		if err == nil {
			err = os.Lchown(p, n.uid, n.uid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func digestOf(t *testing.T, dir string) string {
	t.Helper()
	l, err := list(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l.digest()
}

func TestDigestIsCanonical(t *testing.T) {
	want := digestOf(t, plant(t, small))
	// The order of making, times and hard links change nothing.
	var dirs, rest []node
	for _, n := range small {
		if strings.HasSuffix(n.path, "/") {
			dirs = append(dirs, n)
		} else {
			rest = append(rest, n)
		}
	}
	for range 5 {
		rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		dir := plant(t, slices.Concat(dirs, rest))
		old := time.Unix(rand.Int64N(1e9), 0)
		if err := os.Chtimes(filepath.Join(dir, "etc/hosts"), old, old); err != nil {
			t.Fatal(err)
		}
		if got := digestOf(t, dir); got != want {
			t.Fatalf("the order of making changed the digest: %s, %s", got, want)
		}
	}
	twice := slices.Concat(small, []node{{path: "etc/copy", data: "127.0.0.1 localhost\n"}})
	dir := plant(t, small)
	if err := os.Link(filepath.Join(dir, "etc/hosts"), filepath.Join(dir, "etc/copy")); err != nil {
		t.Fatal(err)
	}
	if digestOf(t, dir) != digestOf(t, plant(t, twice)) {
		t.Error("a hard link and a copy have different digests")
	}
}

func TestDigestSeesEveryChange(t *testing.T) {
	base := digestOf(t, plant(t, small))
	seen := map[string]string{base: "nothing"}
	for name, change := range map[string]func(dir string) error{
		"contents": func(d string) error { return os.WriteFile(d+"/etc/hosts", []byte("127.0.0.1 localhosT\n"), 0) },
		"mode":     func(d string) error { return os.Chmod(d+"/etc/hosts", 0o600) },
		"setuid":   func(d string) error { return os.Chmod(d+"/usr/bin/true", 0o755|os.ModeSetuid) },
		"owner":    func(d string) error { return os.Lchown(d+"/etc/hosts", 1000, 0) },
		"group":    func(d string) error { return os.Lchown(d+"/etc/hosts", 0, 1000) },
		"dir mode": func(d string) error { return os.Chmod(d+"/etc", 0o700) },
		"root":     func(d string) error { return os.Chmod(d, 0o700) },
		"name":     func(d string) error { return os.Rename(d+"/etc/hosts", d+"/etc/hostt") },
		"new dir":  func(d string) error { return os.Mkdir(d+"/etc/x", 0o755) },
		"gone":     func(d string) error { return os.Remove(d + "/bin") },
		"target": func(d string) error {
			return cmpErr(os.Remove(d+"/bin"), os.Symlink("usr/bin/", d+"/bin"))
		},
		"kind": func(d string) error {
			return cmpErr(os.Remove(d+"/bin"), os.WriteFile(d+"/bin", []byte("usr/bin"), 0o777))
		},
	} {
		dir := plant(t, small)
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		got := digestOf(t, dir)
		if other, ok := seen[got]; ok {
			t.Errorf("%s gives the digest of %s", name, other)
		}
		seen[got] = name
	}
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestListRefusesSpecialFiles(t *testing.T) {
	dir := plant(t, small)
	if err := syscall.Mkfifo(dir+"/etc/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := list(context.Background(), dir, nil); err == nil || !strings.Contains(err.Error(), "etc/pipe") {
		t.Errorf("a pipe was listed: %v", err)
	}
}

func TestListingRoundTripAndDamage(t *testing.T) {
	dir := plant(t, small)
	want, err := list(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := want.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	read, err := readListing(&b)
	if err != nil {
		t.Fatal(err)
	}
	if read.digest() != want.digest() {
		t.Error("a listing that was written and read has another digest")
	}
	for _, err := range []error{
		os.WriteFile(dir+"/etc/hosts", []byte("x"), 0), os.Remove(dir + "/bin"), os.Mkdir(dir+"/usr/new", 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := list(context.Background(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := read.damage(got, 9); !slices.Equal(d, []string{"bin", "etc/hosts", "usr/new"}) {
		t.Errorf("damage is %q", d)
	}
}

func TestClimbs(t *testing.T) {
	for _, c := range []struct {
		link, target string
		want         bool
	}{
		{"a", "b", false}, {"a", "..", true}, {"a/b", "..", false}, {"a/b", "../..", true}, {"a/b", "../c", false},
		{"a/b", "/etc/passwd", false}, {"a/b/c", "../../..", true}, {"a/b/c", "x/../../../d", false}, {"a", "./../x", true},
		{"a/b", "c/../../../d", true},
	} {
		if got := climbs(c.link, c.target); got != c.want {
			t.Errorf("climbs(%q, %q) = %v", c.link, c.target, got)
		}
	}
}
