package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"dreamcore"
)

func export(t *testing.T, s *Store, ref string) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.Export(context.Background(), ref, &b, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestExportImportRoundTrip(t *testing.T) {
	ctx := context.Background()
	from, to := open(t), open(t)
	tmp, err := from.temp()
	if err != nil {
		t.Fatal(err)
	}
	root := plant(t, small)
	if err := os.Link(root+"/usr/bin/true", root+"/usr/bin/also"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(root, tmp+"/root"); err != nil {
		t.Fatal(err)
	}
	img, err := from.admit(ctx, tmp, "", epoch, "inputs", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := export(t, from, "")
	if !bytes.Equal(data, export(t, from, img.Digest)) {
		t.Error("two exports of one image differ")
	}
	got, err := to.Import(ctx, bytes.NewReader(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Digest != img.Digest || !got.Manifest.Created.Equal(img.Manifest.Created) || got.Manifest.AgentVersion != "1.6.0" {
		t.Errorf("imported %+v, exported %+v", got, img)
	}
	if got.Manifest.Inputs != "" {
		t.Error("an import claims to have been built here")
	}
	if _, err := to.Verify(ctx, "", nil); err != nil {
		t.Error(err)
	}
	a, err1 := os.Stat(got.Root + "/usr/bin/true")
	b, err2 := os.Stat(got.Root + "/usr/bin/also")
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		t.Errorf("a hard link became a copy: %v %v", err1, err2)
	}
	if again, err := to.Import(ctx, bytes.NewReader(data), nil); err != nil || again.Digest != img.Digest {
		t.Errorf("importing twice: %v", err)
	}
	noLeftovers(t, to)
}

func noLeftovers(t *testing.T, s *Store) {
	t.Helper()
	for _, pattern := range []string{"tmp-*", ".new-*", ".dreamcore-*"} {
		if names, _ := filepath.Glob(filepath.Join(s.dir, pattern)); len(names) > 0 {
			t.Errorf("left behind: %q", names)
		}
	}
}

// forge compresses a tar of the entries.
func forge(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, h := range entries {
		data := h.PAXRecords["DREAMCORE.data"]
		h.PAXRecords = nil
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(data))
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name, data string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, PAXRecords: map[string]string{"DREAMCORE.data": data}}
}

func link(kind byte, name, target string) tar.Header {
	return tar.Header{Name: name, Typeflag: kind, Linkname: target}
}

func dir(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir} }

var goodStamp = file("manifest.json", `{"format":1,"digest":"sha256:`+strings.Repeat("a", 64)+`","sizeBytes":1,"created":"2026-01-01T00:00:00Z"}`)

func TestHostileArchivesAreRefused(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	setuid := file("root/su", "x")
	setuid.Mode = 0o4755
	owner := file("root/x", "x")
	owner.Uid = 1 << 20
	rootMode := dir("root/")
	rootMode.Mode = 0o777
	for name, c := range map[string]struct {
		entries []tar.Header
		says    string
	}{
		"no manifest":             {[]tar.Header{dir("root/")}, "begin with a manifest"},
		"manifest of another":     {[]tar.Header{file("manifest.json", `{"format":9}`), dir("root/")}, "format 9"},
		"manifest unknown field":  {[]tar.Header{file("manifest.json", `{"x":1}`), dir("root/")}, "unknown field"},
		"manifest digest path":    {[]tar.Header{file("manifest.json", `{"format":1,"digest":"../../x"}`), dir("root/")}, "digest"},
		"manifest is a link":      {[]tar.Header{link(tar.TypeSymlink, "manifest.json", "/etc/passwd")}, "begin with a manifest"},
		"no root":                 {[]tar.Header{goodStamp}, "holds no image"},
		"root is a link":          {[]tar.Header{goodStamp, link(tar.TypeSymlink, "root", "/etc"), file("root/x", "x")}, "plain folder"},
		"root twice":              {[]tar.Header{goodStamp, dir("root/"), dir("root/")}, "plain folder"},
		"root for all to write":   {[]tar.Header{goodStamp, rootMode}, "plain folder"},
		"dot dot":                 {[]tar.Header{goodStamp, dir("root/"), file("root/../../outside", "x")}, "plain relative"},
		"absolute":                {[]tar.Header{goodStamp, dir("root/"), file(outside, "x")}, "plain relative"},
		"beside the root":         {[]tar.Header{goodStamp, dir("root/"), file("current", "x")}, "not below its root"},
		"before the root":         {[]tar.Header{goodStamp, file("root/x", "x")}, "not below its root"},
		"through a link":          {[]tar.Header{goodStamp, dir("root/"), link(tar.TypeSymlink, "root/d", filepath.Dir(outside)), file("root/d/outside", "x")}, "did not make"},
		"through a relative link": {[]tar.Header{goodStamp, dir("root/"), dir("root/e/"), link(tar.TypeSymlink, "root/d", "e"), file("root/d/x", "x")}, "did not make"},
		"link that climbs":        {[]tar.Header{goodStamp, dir("root/"), link(tar.TypeSymlink, "root/d", "../../../etc")}, "points out"},
		"link replaced by a file": {[]tar.Header{goodStamp, dir("root/"), link(tar.TypeSymlink, "root/d", outside), file("root/d", "x")}, "comes twice"},
		"hard link out":           {[]tar.Header{goodStamp, dir("root/"), link(tar.TypeLink, "root/h", outside)}, "points out"},
		"hard link dot dot":       {[]tar.Header{goodStamp, dir("root/"), link(tar.TypeLink, "root/h", "root/../../x")}, "plain relative"},
		"hard link to a link":     {[]tar.Header{goodStamp, dir("root/"), link(tar.TypeSymlink, "root/s", outside), link(tar.TypeLink, "root/h", "root/s")}, "no file of the archive"},
		"device":                  {[]tar.Header{goodStamp, dir("root/"), {Name: "root/sda", Typeflag: tar.TypeBlock, Devmajor: 8}}, "neither file"},
		"character device":        {[]tar.Header{goodStamp, dir("root/"), {Name: "root/mem", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}}, "neither file"},
		"pipe":                    {[]tar.Header{goodStamp, dir("root/"), {Name: "root/p", Typeflag: tar.TypeFifo}}, "neither file"},
		"set-id":                  {[]tar.Header{goodStamp, dir("root/"), setuid}, "set-id"},
		"owner":                   {[]tar.Header{goodStamp, dir("root/"), owner}, "owner"},
		"twice":                   {[]tar.Header{goodStamp, dir("root/"), file("root/x", "1"), file("root/x", "2")}, "comes twice"},
		"other digest":            {[]tar.Header{goodStamp, dir("root/"), file("root/x", "x")}, "its digest is"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			_, err := s.Import(context.Background(), bytes.NewReader(forge(t, c.entries...)), nil)
			wantCode(t, err, dreamcore.Invalid)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("want %q, got %v", c.says, err)
			}
			if images, err := s.List(); err != nil || len(images) != 0 {
				t.Errorf("an image is there: %v %v", images, err)
			}
			noLeftovers(t, s)
			if data, err := os.ReadFile(outside); err != nil || string(data) != "untouched" {
				t.Errorf("the file outside holds %q, %v", data, err)
			}
		})
	}
}

func TestArchiveCutShortOrFlipped(t *testing.T) {
	from := open(t)
	img := put(t, from, small)
	data := export(t, from, "")
	to := open(t)
	refused := 0
	for _, n := range []int{0, 1, 10, len(data) / 2, len(data) - 1} {
		_, err := to.Import(context.Background(), bytes.NewReader(data[:n]), nil)
		wantCode(t, err, dreamcore.Invalid)
	}
	for i := 0; i < len(data); i += 7 {
		bad := bytes.Clone(data)
		bad[i] ^= 0x10
		// A flip may leave what is decoded as it was (two matches of the same
		// bytes); it must never give another image.
		if got, err := to.Import(context.Background(), bytes.NewReader(bad), nil); err == nil && got.Digest != img.Digest {
			t.Fatalf("byte %d flipped gives the image %s", i, got.Digest)
		} else if err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no flip was noticed")
	}
	noLeftovers(t, to)
}

func TestImportKeepsItsLimits(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	u := newUnpacker(root, limits{bytes: 10, entries: 3}, false)
	add := func(name string, size int) error {
		return u.add(&tar.Header{Typeflag: tar.TypeReg, Size: int64(size)}, name, strings.NewReader(strings.Repeat("x", size)))
	}
	if err := add("a", 10); err != nil {
		t.Fatal(err)
	}
	if err := add("b", 1); !errors.Is(err, errArchive) {
		t.Errorf("too many bytes: %v", err)
	}
	if err := u.add(&tar.Header{Typeflag: tar.TypeDir}, "c", nil); err != nil {
		t.Fatal(err)
	}
	if err := u.add(&tar.Header{Typeflag: tar.TypeDir}, "d", nil); !errors.Is(err, errArchive) {
		t.Errorf("too many entries: %v", err)
	}
}

func TestCancelledImportLeavesNothing(t *testing.T) {
	from, to := open(t), open(t)
	put(t, from, small)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := to.Import(ctx, bytes.NewReader(export(t, from, "")), func(Progress) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	noLeftovers(t, to)
	if images, _ := to.List(); len(images) != 0 {
		t.Error("a cancelled import is visible")
	}
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	from := open(t)
	put(t, from, append(another("big"), node{path: "etc/more", data: strings.Repeat("x", 1<<20)}))
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	to, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = to.Import(context.Background(), bytes.NewReader(export(t, from, "")), nil)
	wantCode(t, err, dreamcore.Unavailable)
	if err == nil || !strings.Contains(err.Error(), "too full") {
		t.Errorf("got %v", err)
	}
	noLeftovers(t, to)
	_, err = to.Build(context.Background(), BuildOptions{})
	wantCode(t, err, dreamcore.Unavailable)
	if err == nil || !strings.Contains(err.Error(), "too full") {
		t.Errorf("got %v", err)
	}
}

func TestExportFileIsWholeOrNotThere(t *testing.T) {
	ctx := context.Background()
	s := open(t)
	img := put(t, s, small)
	out := filepath.Join(t.TempDir(), "image.tar.zst")
	if _, err := s.ExportFile(ctx, "", out, nil); err != nil {
		t.Fatal(err)
	}
	to := open(t)
	if got, err := to.ImportFile(ctx, out, nil); err != nil || got.Digest != img.Digest {
		t.Errorf("imported %s, %v", got.Digest, err)
	}
	_, err := to.ImportFile(ctx, out+".none", nil)
	wantCode(t, err, dreamcore.NotFound)
	if err := os.WriteFile(img.Root+"/etc/hosts", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "bad")
	if _, err := s.ExportFile(ctx, "", other, nil); err == nil {
		t.Error("a damaged image was exported")
	}
	if entries, _ := os.ReadDir(filepath.Dir(other)); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func FuzzImport(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Fatal("imports set owners: run it as root")
	}
	f.Add([]byte("root/x"), byte(tar.TypeReg), "", int64(0o644))
	f.Add([]byte("root/../x"), byte(tar.TypeReg), "", int64(0o644))
	f.Add([]byte("root/l"), byte(tar.TypeSymlink), "../..", int64(0o777))
	f.Add([]byte("root/l"), byte(tar.TypeLink), "root/d/f", int64(0o777))
	f.Add([]byte("root/d/l/x"), byte(tar.TypeReg), "", int64(0o644))
	f.Fuzz(func(t *testing.T, name []byte, kind byte, target string, mode int64) {
		base := t.TempDir()
		in := filepath.Join(base, "in")
		if err := os.Mkdir(in, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(in)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		u := newUnpacker(root, limits{1 << 20, 100}, true)
		entries := []tar.Header{
			{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755},
			{Name: "d/f", Typeflag: tar.TypeReg, Mode: 0o644},
			{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "/", Mode: 0o777},
			{Name: strings.TrimPrefix(string(name), "root/"), Typeflag: kind, Linkname: strings.TrimPrefix(target, "root/"), Mode: mode},
			{Name: strings.TrimPrefix(string(name), "root/") + "/below", Typeflag: tar.TypeReg, Mode: 0o644},
		}
		for _, h := range entries {
			p, err := cleanName(h.Name)
			if err != nil {
				continue
			}
			_ = u.add(&h, p, strings.NewReader("")) // refused or done: what counts is where
		}
		if err := u.seal(); err != nil {
			t.Fatal(err)
		}
		if outside, err := os.ReadDir(base); err != nil || len(outside) != 1 {
			t.Fatalf("something was written outside: %v %v", outside, err)
		}
		if l, err := list(t.Context(), in, nil); err != nil {
			t.Fatalf("what was unpacked is no image tree: %v", err)
		} else {
			for _, line := range l.lines {
				if f := strings.Fields(line); f[1] != "1777" && len(f[1]) != 4 || f[1][0] > '1' {
					t.Fatalf("a set-id bit came through: %s", line)
				}
			}
		}
	})
}
