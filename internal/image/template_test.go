package image

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"dreamcore"
	recipe "dreamcore/image"
)

func machineStore(t *testing.T) *Store {
	t.Helper()
	dir, err := DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// digests are the SHA-256 of all files below dir.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		all[filepath.ToSlash(rel)], err = sha256File(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A template holds every package of the lock with its digest and nothing else,
// says so itself, and is the same at every export.
func TestTemplateIsTheLock(t *testing.T) {
	s := machineStore(t)
	dir := filepath.Join(t.TempDir(), "a template")
	tmpl, err := s.ExportTemplate(t.Context(), dir, TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := digests(t, dir)
	again := filepath.Join(t.TempDir(), "again")
	if err := os.Mkdir(again, 0o700); err != nil { // empty is as good as missing
		t.Fatal(err)
	}
	other, err := s.ExportTemplate(t.Context(), again, TemplateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, digests(t, again)) || other.Name != tmpl.Name || other.SizeBytes != tmpl.SizeBytes {
		t.Error("two exports of one lock differ")
	}
	if want := "--path '" + dir + "'"; !strings.Contains(tmpl.Publish, want) || !strings.Contains(tmpl.Publish, tmpl.Name) {
		t.Errorf("the command is %q", tmpl.Publish)
	}

	data, err := fs.ReadFile(recipe.Files, "lock.json")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := DecodeLock(data)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, "content", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	sums, versions := "", ""
	packages := 0
	for name := range got {
		if strings.HasPrefix(name, "content/packages/") || strings.HasPrefix(name, "content/npm/") {
			packages++
		}
	}
	if packages != len(lock.Image)+len(lock.NPM) {
		t.Errorf("%d packages are in it, the lock has %d", packages, len(lock.Image)+len(lock.NPM))
	}
	for _, p := range lock.Image {
		name := "packages/" + debFile(p)
		if got["content/"+name] != p.Digest {
			t.Errorf("%s has another digest than the lock", name)
		}
		sums += strings.TrimPrefix(p.Digest, "sha256:") + "  " + name + "\n"
		versions += p.Name + "\t" + p.Version + "\n"
	}
	if read("SHA256SUMS") != sums || read("packages.list") != versions {
		t.Error("the lists are not the lock's")
	}
	for _, p := range lock.NPM {
		name := filepath.Join(dir, "content/npm", npmFile(p))
		if d, err := sha512File(name); err != nil || d != p.Digest {
			t.Errorf("%s: %s, %v", name, d, err)
		}
	}
	for _, sum := range []string{"256", "512"} {
		check := command{args: []string{"sha" + sum + "sum", "--check", "--strict", "--quiet", "SHA" + sum + "SUMS"}, dir: filepath.Join(dir, "content"), env: hostEnv()}
		if out, err := check.run(t.Context()); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	// What it says of itself is what the built image says.
	img := current(t)
	if img.Manifest.Inputs != tmpl.Inputs {
		t.Fatalf("the current image is not of this lock: run `make image`")
	}
	said, err := os.ReadFile(filepath.Join(img.Root, contentsPath))
	if err != nil || !bytes.Equal(said, []byte(read("image.json"))) {
		t.Errorf("the template and the image say different things of themselves (%v)", err)
	}
}

// E2B's builder reads few instructions; every file that they name is there.
func TestTemplateDockerfile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t")
	tmpl, err := machineStore(t).ExportTemplate(t.Context(), dir, TemplateOptions{CPUs: 4, MemoryMB: 2047})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, templateDockerfile))
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		words = append(words, f[0])
		if f[0] == "COPY" {
			if _, err := os.Stat(filepath.Join(dir, f[1], "install.sh")); err != nil {
				t.Error(err)
			}
		}
	}
	if want := []string{"FROM", "USER", "COPY", "RUN", "USER", "WORKDIR"}; !slices.Equal(words, want) {
		t.Errorf("the instructions are %v", words)
	}
	toml, err := os.ReadFile(filepath.Join(dir, templateToml))
	for _, want := range []string{fmt.Sprintf("template_name = %q\n", tmpl.Name), "cpu_count = 4\n", "memory_mb = 2048\n", "dockerfile = \"e2b.Dockerfile\"\n"} {
		if err != nil || !strings.Contains(string(toml), want) {
			t.Errorf("%q is not in %q, %v", want, toml, err)
		}
	}
	if !strings.Contains(tmpl.Publish, "--cpu-count 4 --memory-mb 2048") {
		t.Errorf("the command is %q", tmpl.Publish)
	}
}

func TestTemplateThatCannotBe(t *testing.T) {
	s := machineStore(t)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ExportTemplate(t.Context(), full, TemplateOptions{}); dreamcore.CodeOf(err) != dreamcore.Conflict {
		t.Errorf("a folder that is not empty: %v", err)
	}
	bare, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bare.ExportTemplate(t.Context(), filepath.Join(t.TempDir(), "t"), TemplateOptions{}); dreamcore.CodeOf(err) != dreamcore.Missing || !strings.Contains(err.Error(), "--again") {
		t.Errorf("without packages: %v", err)
	}
	definition, err := fs.ReadFile(recipe.Files, "definition.json")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := fs.ReadFile(recipe.Files, "lock.json")
	if err != nil {
		t.Fatal(err)
	}
	changed := fstest.MapFS{
		"definition.json": {Data: bytes.Replace(definition, []byte(`"git", `), nil, 1)}, "lock.json": {Data: lock},
	}
	if _, err := s.ExportTemplate(t.Context(), filepath.Join(t.TempDir(), "t"), TemplateOptions{Definition: changed}); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("a lock of another definition: %v", err)
	}
	// Given up half way it leaves nothing.
	ctx, cancel := context.WithCancel(t.Context())
	parent := t.TempDir()
	_, err = s.ExportTemplate(ctx, filepath.Join(parent, "t"), TemplateOptions{Progress: func(Progress) { cancel() }})
	if left, rerr := os.ReadDir(parent); err == nil || rerr != nil || len(left) != 0 {
		t.Errorf("%v, %v: %v is left", err, rerr, left)
	}
}
