package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"pgregory.net/rapid"

	"dreamcore"
	"dreamcore/internal/text"
)

// pack writes a tar of headers; a regular file's Size bytes are the letter x
// unless data names them.
func pack(t testing.TB, headers []*tar.Header, data map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		body, ok := data[h.Name]
		if ok {
			h.Size = int64(len(body))
		} else if h.Typeflag == tar.TypeReg {
			body = strings.Repeat("x", int(h.Size))
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func reg(name string, size int64) *tar.Header {
	return &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: size}
}

func reasonOf(t testing.TB, err error) Reason {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("want a refusal, got %v", err)
	}
	return r.Reason
}

func TestReadTakesAGame(t *testing.T) {
	stream := pack(t, []*tar.Header{
		{Name: "./", Typeflag: tar.TypeDir},
		{Name: "./assets/", Typeflag: tar.TypeDir},
		reg("./index.html", 0), reg("./assets/cat.png", 0), reg("./ネコ.json", 0), reg("./empty", 0),
	}, map[string]string{"./index.html": "<p>hi", "./assets/cat.png": "PNG", "./ネコ.json": "{}"})
	tree, err := Read(bytes.NewReader(stream), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range tree.Files {
		got = append(got, f.Path+"="+string(f.Data))
	}
	want := []string{"assets/cat.png=PNG", "empty=", "index.html=<p>hi", "ネコ.json={}"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := fstest.TestFS(tree.FS(), "index.html", "assets/cat.png", "ネコ.json"); err != nil {
		t.Error(err)
	}
	if tree.SizeBytes() != 10 {
		t.Errorf("size %d", tree.SizeBytes())
	}
}

func TestC01NamesThatEscapeAreRefused(t *testing.T) {
	for _, name := range []string{"../x", "/etc/passwd", "a/../../b", "a/..", "..", ".//x", "./../x", "a/../b"} {
		_, err := Read(bytes.NewReader(pack(t, []*tar.Header{reg("ok.txt", 1), reg(name, 1)}, nil)), DefaultLimits())
		if r := reasonOf(t, err); r != Escape && r != BadName {
			t.Errorf("%q: %s", name, r)
		}
	}
}

func TestC02SymlinksAreRefused(t *testing.T) {
	for _, target := range []string{"/etc/passwd", "index.html", "nowhere", "loop"} {
		h := &tar.Header{Name: "loop", Typeflag: tar.TypeSymlink, Linkname: target}
		_, err := Read(bytes.NewReader(pack(t, []*tar.Header{reg("index.html", 3), h}, nil)), DefaultLimits())
		if r := reasonOf(t, err); r != Link {
			t.Errorf("%q: %s", target, r)
		}
	}
}

func TestC03HardLinksAreRefused(t *testing.T) {
	h := &tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}
	_, err := Read(bytes.NewReader(pack(t, []*tar.Header{reg("a", 3), h}, nil)), DefaultLimits())
	if r := reasonOf(t, err); r != Link {
		t.Error(r)
	}
}

func TestC04DevicesAndPipesAreRefused(t *testing.T) {
	for _, kind := range []byte{tar.TypeChar, tar.TypeBlock, tar.TypeFifo, tar.TypeCont, 's', 'Z'} {
		h := &tar.Header{Name: "dev", Typeflag: kind}
		_, err := Read(bytes.NewReader(pack(t, []*tar.Header{h}, nil)), DefaultLimits())
		if r := reasonOf(t, err); r != Special {
			t.Errorf("%q: %s", kind, r)
		}
	}
}

// sparsePAX is how GNU tar writes a file with holes: a PAX header whose records
// begin with GNU.sparse.
func sparsePAX(t testing.TB, records string) []byte {
	raw := func(name string, kind byte, body string) []byte {
		b := pack(t, []*tar.Header{reg(name, 0)}, map[string]string{name: body})
		b = b[:len(b)-2*block]
		b[156] = kind
		copy(b[148:156], "        ")
		sum := 0
		for _, c := range b[:block] {
			sum += int(c)
		}
		copy(b[148:156], []byte{
			'0' + byte(sum>>15&7), '0' + byte(sum>>12&7), '0' + byte(sum>>9&7), '0' + byte(sum>>6&7),
			'0' + byte(sum>>3&7), '0' + byte(sum&7), 0, ' ',
		})
		return b
	}
	out := append(raw("PaxHeaders/x", 'x', records), raw("x", '0', "")...)
	return append(out, make([]byte, 2*block)...)
}

func TestC05HolesAndClaimedSizesAreRefused(t *testing.T) {
	old := sparsePAX(t, "22 GNU.sparse.major=0\n22 GNU.sparse.minor=1\n"+
		"31 GNU.sparse.size=1099511627776\n"+"25 GNU.sparse.numblocks=0\n"+"20 GNU.sparse.map=0,0\n")
	if _, err := Read(bytes.NewReader(old), DefaultLimits()); err == nil {
		t.Error("a sparse file was taken")
	}
	// Records of a version that the library does not know are not expanded by
	// it; they are still no business of a game's.
	unknown := sparsePAX(t, "22 GNU.sparse.major=9\n")
	_, err := Read(bytes.NewReader(unknown), DefaultLimits())
	if r := reasonOf(t, err); r != Sparse {
		t.Errorf("unknown version: %s", r)
	}
	// A terabyte that is claimed and not sent is refused by its header.
	claim := pack(t, []*tar.Header{reg("big", 1)}, nil)
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(reg("big", 1<<40)); err != nil {
		t.Fatal(err)
	}
	_, err = Read(bytes.NewReader(append(b.Bytes(), claim...)), DefaultLimits())
	if r := reasonOf(t, err); r != FileTooLarge {
		t.Error(r)
	}
}

func TestC06LimitsRefuseTheWholeTree(t *testing.T) {
	limits := Limits{Files: 3, TotalBytes: 100, FileBytes: 60, Depth: 3, PathBytes: 20}
	at := []*tar.Header{reg("a/b/c", 60), reg("d", 40), reg("12345678901234567890", 0)}
	if _, err := Read(bytes.NewReader(pack(t, at, nil)), limits); err != nil {
		t.Fatalf("exactly at the limits: %v", err)
	}
	cases := map[Reason][]*tar.Header{
		TooManyFiles: {reg("a", 1), reg("b", 1), reg("c", 1), reg("d", 1)},
		FileTooLarge: {reg("a", 61)},
		TreeTooLarge: {reg("a", 60), reg("b", 41)},
		TooDeep:      {reg("a/b/c/d", 1)},
		PathTooLong:  {reg("123456789012345678901", 1)},
	}
	for want, headers := range cases {
		tree, err := Read(bytes.NewReader(pack(t, headers, nil)), limits)
		if got := reasonOf(t, err); got != want || tree != nil {
			t.Errorf("got %s (tree %v), want %s", got, tree, want)
		}
	}
	folders := []*tar.Header{}
	for _, n := range []string{"a/", "b/", "c/", "d/"} {
		folders = append(folders, &tar.Header{Name: n, Typeflag: tar.TypeDir})
	}
	_, err := Read(bytes.NewReader(pack(t, folders, nil)), limits)
	if r := reasonOf(t, err); r != TooManyFiles {
		t.Errorf("folders alone: %s", r)
	}
}

func TestNames(t *testing.T) {
	cases := map[string]Reason{
		".env": Hidden, "a/.git/config": Hidden, "a\x00b": BadName, "a\nb": BadName, "a\u202eb": BadName,
		"a\\b": BadName, "C:x": BadName, "a ": BadName, " a": BadName, "a.": BadName, "a//b": BadName,
		"\xff\xfe": BadName, "a/": BadName, "": BadName, "x\u200d": BadName, "a/./b": BadName,
	}
	for path, want := range cases {
		if got := reasonOf(t, CheckPath(path, DefaultLimits())); got != want {
			t.Errorf("%q: got %s, want %s", path, got, want)
		}
	}
	for _, path := range []string{"a b.png", "猫.png", "game.min.js", "a-_~(1).txt", "été/ö.json"} {
		if err := CheckPath(path, DefaultLimits()); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestNamesThatDifferInCaseOnlyAreRefused(t *testing.T) {
	for _, pair := range [][2]string{
		{"a.png", "A.png"}, {"a.png", "a.png"}, {"Assets/a", "assets/b"}, {"a", "a/b"}, {"a/b", "a"},
		{"s", "\u017f"}, {"k", "\u212a"}, {"É", "é"},
	} {
		_, err := New([]File{{Path: pair[0]}, {Path: pair[1]}}, DefaultLimits())
		if r := reasonOf(t, err); r != Duplicate {
			t.Errorf("%q: %s", pair, r)
		}
	}
}

func TestStreamsThatEndEarlyAreRefused(t *testing.T) {
	whole := pack(t, []*tar.Header{reg("a", 1024), reg("b", 700)}, map[string]string{"b": strings.Repeat("\x00", 1024)})
	if _, err := Read(bytes.NewReader(whole), DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(whole); n += 128 {
		_, err := Read(bytes.NewReader(whole[:n]), DefaultLimits())
		if r := reasonOf(t, err); r != Broken {
			t.Errorf("cut at %d: %s", n, r)
		}
	}
}

func TestAnErrorOfTheTransportIsNotARefusal(t *testing.T) {
	whole := pack(t, []*tar.Header{reg("a", 1024)}, nil)
	gone := errors.New("sandbox gone")
	_, err := Read(&failing{data: whole[:700], err: gone}, DefaultLimits())
	if !errors.Is(err, gone) {
		t.Fatalf("got %v", err)
	}
	var r *Refusal
	if errors.As(err, &r) {
		t.Error("a broken transport was blamed on the tree")
	}
	if _, err := Read(iotest.OneByteReader(bytes.NewReader(whole)), DefaultLimits()); err != nil {
		t.Errorf("byte by byte: %v", err)
	}
}

type failing struct {
	data []byte
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if len(f.data) == 0 {
		return 0, f.err
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

func TestDigestTellsTreesApart(t *testing.T) {
	d := func(files ...File) string {
		tree, err := New(files, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		return tree.Digest()
	}
	a := d(File{"a", []byte("1")}, File{"b", []byte("2")})
	if a != d(File{"b", []byte("2")}, File{"a", []byte("1")}) {
		t.Error("the order of files changes the digest")
	}
	for _, other := range []string{
		d(File{"a", []byte("1")}), d(File{"a", []byte("2")}, File{"b", []byte("1")}),
		d(File{"a", []byte("1")}, File{"c", []byte("2")}), d(),
	} {
		if a == other {
			t.Error("different trees share a digest")
		}
	}
}

func TestC13SecretsAreFound(t *testing.T) {
	// Built from pieces, so that no scanner takes this file for a leak.
	grant := "v4." + "public." + strings.Repeat("Ab1_", 30)
	canaryValue := "canary-7f3a91c2d4"
	cases := map[string]File{
		"secret_private_key": {"a.txt", []byte("x\n-----BEGIN OPENSSH " + "PRIVATE KEY-----\n")},
		"secret_grant":       {"g.js", []byte("var t='" + grant + "'")},
		"secret_token":       {"k.js", []byte("key = \"sk-ant-" + "api03-" + strings.Repeat("aB3", 10) + "\"")},
		"secret_file":        {"certs/server.pem", nil},
		"secret_canary":      {"c.js", []byte("\n\nlet x='" + canaryValue + "'")},
	}
	for code, f := range cases {
		tree, err := New([]File{{"index.html", []byte("sk- eyJ AKIA v4.public. xoxo")}, f}, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		for _, lang := range dreamcore.Langs {
			found := Scan(tree, lang, []string{canaryValue, ""})
			if len(found) != 1 || found[0].Code != code || found[0].File != f.Path || found[0].Severity != dreamcore.Fail {
				t.Fatalf("%s: %+v", code, found)
			}
			if s := found[0].String(); strings.Contains(s, canaryValue) || strings.Contains(s, "aB3aB3") || strings.Contains(s, "tree.") {
				t.Errorf("%s: the finding repeats the secret or lacks its text: %s", code, s)
			}
		}
	}
	// .env cannot even be part of a tree, and that too is a finding.
	_, err := New([]File{{".env", nil}}, DefaultLimits())
	var r *Refusal
	if !errors.As(err, &r) || r.Finding("en").Code != "tree_hidden" {
		t.Errorf(".env: %v", err)
	}
}

func TestC13CanariesAreFoundInEveryForm(t *testing.T) {
	const value = "canary/7f3a+91c2 d4e5"
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "before")
		after := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "after")
		text := append(append(slices.Clone(before), value...), after...)
		encode := rapid.SampledFrom(encoders).Draw(t, "encoding")
		tree, err := New([]File{{"f", []byte(encode(text))}}, DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if found := Scan(tree, "en", []string{value}); len(found) != 1 {
			t.Fatalf("not found in %q", encode(text))
		}
	})
}

func TestRefusalsSpeakToPeopleAndEscapeNames(t *testing.T) {
	for _, reason := range []Reason{
		Escape, BadName, Hidden, Duplicate, Link, Special, Sparse,
		TooManyFiles, FileTooLarge, TreeTooLarge, TooDeep, PathTooLong, Broken,
	} {
		r := &Refusal{Reason: reason, Path: "a\x1b[31m\n" + strings.Repeat("é", 5000), Detail: "x"}
		for _, lang := range dreamcore.Langs {
			f := r.Finding(lang)
			if f.Message == "tree."+string(reason) || f.Fix == "tree."+string(reason)+"_fix" {
				t.Errorf("%s has no text", reason)
			}
			if strings.ContainsAny(f.Message+f.Fix+r.Error(), "\x1b\n") || len(r.Error()) > 2000 {
				t.Errorf("%s: a hostile name is not escaped and capped", reason)
			}
		}
	}
	if len(text.Area("en", "tree.")) == 0 {
		t.Error("the catalogue has no area tree")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(pack(f, []*tar.Header{reg("index.html", 5), reg("a/b.js", 600)}, nil))
	f.Add(pack(f, []*tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/"}}, nil))
	f.Add(sparsePAX(f, "22 GNU.sparse.major=1\n"))
	f.Add([]byte{})
	limits := Limits{Files: 8, TotalBytes: 4096, FileBytes: 2048, Depth: 3, PathBytes: 40}
	f.Fuzz(func(t *testing.T, stream []byte) {
		tree, err := Read(bytes.NewReader(stream), limits)
		if (tree == nil) == (err == nil) {
			t.Fatal("neither or both of tree and error")
		}
		if err != nil {
			reasonOf(t, err) // every error is a refusal: the reader itself cannot fail
			return
		}
		if len(tree.Files) > limits.Files || tree.SizeBytes() > limits.TotalBytes {
			t.Fatal("beyond the limits")
		}
		for _, file := range tree.Files {
			if err := CheckPath(file.Path, limits); err != nil || !fs.ValidPath(file.Path) {
				t.Fatalf("%q: %v", file.Path, err)
			}
		}
		again, err := New(tree.Files, limits)
		if err != nil || again.Digest() != tree.Digest() {
			t.Fatalf("not the same when built again: %v", err)
		}
		var names []string
		for _, file := range tree.Files {
			names = append(names, file.Path)
		}
		if err := fstest.TestFS(tree.FS(), names...); err != nil {
			t.Fatal(err)
		}
	})
}
