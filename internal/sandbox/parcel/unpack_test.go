package parcel

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"dreamcore"
)

// part is one entry of an archive that a sandbox sends.
type part struct {
	kind       byte
	name, text string // text is the contents, or what a link points to
	mode       int64
}

func archive(t testing.TB, parts ...part) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, p := range parts {
		h := &tar.Header{Typeflag: p.kind, Name: p.name, Mode: p.mode, ModTime: time.Unix(1_700_000_000, 0), Format: tar.FormatPAX}
		if p.kind == tar.TypeReg {
			h.Size = int64(len(p.text))
		} else {
			h.Linkname = p.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if p.kind == tar.TypeReg {
			if _, err := w.Write([]byte(p.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpackInto unpacks below dir/got, beside which a secret stands.
func unpackInto(t testing.TB, dir, base string, data []byte, l limits) (left []string, files int, err error) {
	t.Helper()
	files, err = Unpack(bytes.NewReader(data), Order{Base: base, Target: filepath.Join(dir, "got"), MaxBytes: l.bytes, MaxFiles: l.files, LeftOut: func(why Why, name string) {
		left = append(left, string(why)+" "+name)
	}})
	return left, files, err
}

type limits struct {
	bytes int64
	files int
}

var ample = limits{1 << 20, 1000}

// seen lists everything below dir: mode, name and contents or target.
func seen(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		s := info.Mode().String() + " " + rel
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			s += " " + string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			s += " -> " + to
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestUnpackKeepsWhatItGets(t *testing.T) {
	dir := t.TempDir()
	left, files, err := unpackInto(t, dir, "proj", archive(t,
		part{tar.TypeDir, "proj/", "", 0o755}, part{tar.TypeDir, "proj/shut/", "", 0o500}, part{tar.TypeReg, "proj/shut/x", "inside", 0o640},
		part{tar.TypeReg, "proj/run.sh", "#!", 0o4755}, part{tar.TypeSymlink, "proj/link", "shut/x", 0o777}, part{tar.TypeLink, "proj/hard", "proj/run.sh", 0o755},
		part{tar.TypeReg, "proj/deep/er/none", "", 0o600}), ample)
	if err != nil || left != nil || files != 7 {
		t.Fatalf("%d files, left out %v, %v", files, left, err)
	}
	want := []string{
		"drwxr-xr-x .", "drwxr-xr-x got", "drwxr-xr-x got/deep", "drwxr-xr-x got/deep/er", "-rw------- got/deep/er/none ", "-rwxr-xr-x got/hard #!",
		"Lrwxrwxrwx got/link -> shut/x", "-rwxr-xr-x got/run.sh #!", "dr-x------ got/shut", "-rw-r----- got/shut/x inside",
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := seen(t, dir); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if info, err := os.Stat(filepath.Join(dir, "got/shut/x")); err != nil || info.ModTime().Unix() != 1_700_000_000 {
		t.Errorf("its time is %v, %v", info.ModTime(), err)
	}
	// Again, over what is there; and one file onto another.
	if _, _, err := unpackInto(t, dir, "proj", archive(t, part{tar.TypeReg, "proj/run.sh", "new", 0o755}), ample); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "got/run.sh")); string(data) != "new" {
		t.Errorf("%q, %v", data, err)
	}
	one := t.TempDir()
	if _, n, err := unpackInto(t, one, "a b", archive(t, part{tar.TypeReg, "a b", "alone", 0o600}), ample); err != nil || n != 1 {
		t.Error(n, err)
	}
	if data, _ := os.ReadFile(filepath.Join(one, "got")); string(data) != "alone" {
		t.Errorf("%q", data)
	}
}

// Whatever names and links a sandbox sends, nothing beside the target changes
// and no link that is left leads out of it.
func TestUnpackStaysInside(t *testing.T) {
	for name, parts := range map[string][]part{
		"climbs":            {{tar.TypeReg, "proj/../../evil", "x", 0o644}, {tar.TypeReg, "../evil", "x", 0o644}, {tar.TypeReg, "proj/a/../../evil", "x", 0o644}},
		"absolute":          {{tar.TypeReg, "/evil", "x", 0o644}, {tar.TypeReg, "//evil", "x", 0o644}},
		"a sibling":         {{tar.TypeReg, "secret", "x", 0o644}, {tar.TypeReg, "project/x", "x", 0o644}, {tar.TypeDir, "..", "", 0o755}},
		"link out":          {{tar.TypeSymlink, "proj/l", "../secret", 0o777}, {tar.TypeReg, "proj/l", "x", 0o644}},
		"link to a folder":  {{tar.TypeSymlink, "proj/l", "..", 0o777}, {tar.TypeReg, "proj/l/secret", "x", 0o644}},
		"absolute link":     {{tar.TypeSymlink, "proj/l", "/etc", 0o777}, {tar.TypeReg, "proj/l/evil", "x", 0o644}},
		"hard link out":     {{tar.TypeLink, "proj/h", "../secret", 0o644}, {tar.TypeLink, "proj/h", "secret", 0o644}, {tar.TypeLink, "proj/h", "/etc/passwd", 0o644}},
		"the target a link": {{tar.TypeSymlink, "proj", "secret", 0o777}, {tar.TypeReg, "proj", "x", 0o644}},
		"links that add up": {
			{tar.TypeDir, "proj/top/", "", 0o755}, {tar.TypeDir, "proj/a/b/c/", "", 0o755},
			{tar.TypeSymlink, "proj/a/b/c/s", "../../../top", 0o777}, {tar.TypeSymlink, "proj/t", "a/b/c/s/../../secret", 0o777},
		},
		"a link loop":        {{tar.TypeSymlink, "proj/x", "y", 0o777}, {tar.TypeSymlink, "proj/y", "x", 0o777}, {tar.TypeReg, "proj/x/z", "x", 0o644}},
		"devices":            {{tar.TypeChar, "proj/null", "", 0o666}, {tar.TypeFifo, "proj/pipe", "", 0o666}, {tar.TypeBlock, "proj/sda", "", 0o666}},
		"the target a pipe":  {{tar.TypeFifo, "proj", "", 0o666}},
		"hard link to links": {{tar.TypeSymlink, "proj/l", "inside", 0o777}, {tar.TypeLink, "proj/deep/h", "proj/l", 0o644}, {tar.TypeReg, "proj/deep/h", "x", 0o644}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			checkInside(t, dir, func() {
				left, _, err := unpackInto(t, dir, "proj", archive(t, parts...), ample)
				t.Logf("left out %v, %v", left, err)
			})
		})
	}
}

// checkInside runs f and fails when anything in dir but dir/got was changed, or
// a link in there leads out.
func checkInside(t testing.TB, dir string, f func()) {
	t.Helper()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	f()
	if data, err := os.ReadFile(secret); err != nil || string(data) != "mine" {
		t.Errorf("the secret is %q, %v", data, err)
	}
	if info, err := os.Stat(secret); err != nil || info.Mode() != 0o600 || info.Sys() == nil {
		t.Errorf("the secret has the mode %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "secret" && e.Name() != "got" {
			t.Errorf("%s came to be", e.Name())
		}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Join(dir, "got"), func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.Type()&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
			t.Errorf("%s is %v", p, d.Type())
		}
		if d.Type()&fs.ModeSymlink != 0 {
			if to, err := filepath.EvalSymlinks(p); err == nil && to != real+"/got" && !strings.HasPrefix(to, real+"/got/") {
				t.Errorf("%s leads to %s", p, to)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUnpackIsBounded(t *testing.T) {
	for name, l := range map[string]limits{"bytes": {5, 10}, "files": {1000, 1}} {
		_, _, err := unpackInto(t, t.TempDir(), "p", archive(t, part{tar.TypeDir, "p/", "", 0o755}, part{tar.TypeReg, "p/x", "123456", 0o644}), l)
		if dreamcore.CodeOf(err) != dreamcore.Refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	cut := archive(t, part{tar.TypeReg, "p", strings.Repeat("x", 2000), 0o644})[:1000]
	if _, _, err := unpackInto(t, t.TempDir(), "p", cut, ample); err == nil {
		t.Error("half an archive passed for a whole one")
	}
}

// What pack writes is what unpack makes.
func TestPackAndUnpack(t *testing.T) {
	src := t.TempDir()
	for _, err := range []error{
		os.Chmod(src, 0o755), os.Mkdir(src+"/sub", 0o700), os.WriteFile(src+"/sub/"+strings.Repeat("猫", 60), []byte("long name"), 0o600),
		os.WriteFile(src+"/run", []byte("#!/bin/sh"), 0o755), os.Symlink("run", src+"/link"), os.Chmod(src+"/sub", 0o750),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := Pack(&b, src, "name", func(why Why, name string) { t.Errorf("%s %s", why, name) }); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, _, err := unpackInto(t, dir, "name", b.Bytes(), ample); err != nil {
		t.Fatal(err)
	}
	if got, want := seen(t, dir+"/got"), seen(t, src); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// FuzzUnpack: no archive at all makes or changes anything beside its target.
func FuzzUnpack(f *testing.F) {
	f.Add("proj", archive(f, part{tar.TypeDir, "proj/", "", 0o755}, part{tar.TypeReg, "proj/x", "1", 0o644}, part{tar.TypeSymlink, "proj/l", "../secret", 0o777}, part{tar.TypeReg, "proj/l", "2", 0o644}))
	f.Add(".", archive(f, part{tar.TypeReg, "./x", "1", 0o644}, part{tar.TypeLink, "./h", "./x", 0o644}, part{tar.TypeReg, "../secret", "2", 0o644}))
	f.Add("a", archive(f, part{tar.TypeSymlink, "a/l", ".", 0o777}, part{tar.TypeSymlink, "a/l/m", "l/..", 0o777}, part{tar.TypeReg, "a/l/m/secret", "2", 0o644}))
	f.Fuzz(func(t *testing.T, base string, data []byte) {
		dir := t.TempDir()
		checkInside(t, dir, func() { _, _, _ = unpackInto(t, dir, base, data, limits{64 << 10, 100}) })
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error { // so that it can be removed
			if d != nil && d.IsDir() {
				return os.Chmod(p, 0o700)
			}
			return nil
		})
	})
}

// A copy that is cut leaves no part of a file, and what had its name stays.
func TestUnpackLeavesNoHalfFile(t *testing.T) {
	big := part{tar.TypeReg, "p", strings.Repeat("x", 20_000), 0o644}
	alone := archive(t, big)
	big.name = "p/big"
	folder := archive(t, part{tar.TypeDir, "p/", "", 0o755}, part{tar.TypeReg, "p/first", "whole", 0o644}, big)
	for name, c := range map[string]struct {
		data   []byte
		before string // what is there under the cut file's name
		cut    string
		want   []string
	}{
		"a file":              {alone, "", "got", nil},
		"a file over another": {alone, "old", "got", []string{"got old"}},
		"a file of a folder":  {folder, "", "got/big", []string{"got/first whole"}},
		"one over another":    {folder, "old", "got/big", []string{"got/big old", "got/first whole"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, l := range []limits{ample, {10_000, 10}} { // cut by the sender, or by our bound
				dir := t.TempDir()
				data := c.data
				if l == ample {
					data = data[:len(data)-12_000]
				}
				if c.before != "" {
					if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, c.cut)), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(filepath.Join(dir, c.cut), []byte(c.before), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if _, _, err := unpackInto(t, dir, "p", data, l); err == nil {
					t.Fatal("half an archive passed for a whole one")
				}
				var files []string
				for _, s := range seen(t, dir) {
					if mode, rest, _ := strings.Cut(s, " "); strings.HasPrefix(mode, "-") {
						files = append(files, rest)
					}
				}
				if !slices.Equal(files, c.want) {
					t.Errorf("%v: there are %.200q, want %q", l, files, c.want)
				}
			}
		})
	}
}

// What is neither file nor link is not replaced by a file.
func TestUnpackLeavesPipesAndFoldersAlone(t *testing.T) {
	for name, make := range map[string]func(string) error{
		"a folder": func(p string) error { return os.Mkdir(p, 0o755) },
		"a pipe":   func(p string) error { return syscall.Mkfifo(p, 0o600) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, "got")); err != nil {
			t.Fatal(err)
		}
		before := seen(t, dir)
		_, _, err := unpackInto(t, dir, "p", archive(t, part{tar.TypeReg, "p", "x", 0o644}), ample)
		if dreamcore.CodeOf(err) != dreamcore.Refused || !strings.Contains(err.Error(), "got") || !slices.Equal(before, seen(t, dir)) {
			t.Errorf("%s: %v, %q became %q", name, err, before, seen(t, dir))
		}
	}
}
