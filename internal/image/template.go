package image

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dreamcore"
	recipe "dreamcore/image"
)

//go:embed template/install.sh
var templateInstall []byte

// TemplateOptions say what to make an E2B template of. The zero value is the
// lock that this program carries.
type TemplateOptions struct {
	Definition fs.FS  // definition.json, lock.json and notices/
	LockFile   string // instead of the definition's lock.json
	CPUs       int    // 0: 2
	MemoryMB   int    // 0: 3072; E2B wants an even number
	Progress   func(Progress)
}

// Template is an exported E2B template.
type Template struct {
	Name      string // under which it is published
	Dir       string
	Inputs    string // digest of definition and lock, as an image built of them has it
	SizeBytes int64
	Publish   string // the command that publishes it
}

const (
	templateDockerfile = "e2b.Dockerfile"
	templateToml       = "e2b.toml"
	// templateContent is the one folder that the Dockerfile copies.
	templateContent = "content"
)

// ExportTemplate writes into dir, which must be missing or empty, all that E2B
// needs to build the same image: a Dockerfile, its settings, and every package
// of the lock as a file with its digest. The same lock gives the same bytes.
// The packages must be in the store's cache, where a build leaves them.
func (s *Store) ExportTemplate(ctx context.Context, dir string, o TemplateOptions) (Template, error) {
	const op = "image.template"
	if o.Definition == nil {
		o.Definition = recipe.Files
	}
	def, err := readDefinition(o.Definition)
	if err != nil {
		return Template{}, s.fail(dreamcore.Invalid, op, "err_definition", err)
	}
	lock, err := s.readLock(BuildOptions{Definition: o.Definition, LockFile: o.LockFile})
	if err != nil {
		return Template{}, err
	}
	if lock == nil || lock.Definition != def.wants() {
		return Template{}, s.fail(dreamcore.Invalid, op, "err_template_lock", nil)
	}
	unlock, err := s.lock(ctx, op, lockPatience)
	if err != nil {
		return Template{}, err
	}
	defer unlock()
	cache := packageCache{filepath.Join(s.dir, "packages")}
	missing, err := cache.missing(slices.Concat(lock.Image, lock.NPM))
	if err != nil {
		return Template{}, s.explain(ctx, op, err)
	}
	if len(missing) > 0 {
		return Template{}, s.fail(dreamcore.Missing, op, "err_template_packages", nil, "package", missing[0].Name+" "+missing[0].Version, "count", fmt.Sprint(len(missing)))
	}
	if entries, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) || len(entries) > 0 {
		return Template{}, s.fail(dreamcore.Conflict, op, "err_template_dir", err, "dir", dir)
	}
	if o.CPUs == 0 {
		o.CPUs = 2
	}
	if o.MemoryMB == 0 {
		o.MemoryMB = 3072
	}
	o.MemoryMB += o.MemoryMB % 2
	t := Template{Dir: dir, Inputs: def.inputs(*lock)}
	t.Name = "dreamcore-" + t.Inputs[:12]
	t.Publish = fmt.Sprintf("e2b template create %s --path %s --dockerfile %s --cpu-count %d --memory-mb %d", t.Name, quoteShell(dir), templateDockerfile, o.CPUs, o.MemoryMB)
	// The folder gets its name when it is whole.
	work, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".dreamcore-template-")
	if err == nil {
		defer os.RemoveAll(work) // after the rename there is nothing by that name
		err = errors.Join(os.Chmod(work, 0o755), t.write(ctx, work, cache, def, *lock, o))
	}
	if err == nil {
		err = os.Remove(dir) // empty, or missing
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(work, dir)
		}
	}
	if err != nil {
		return Template{}, s.explain(ctx, op, err)
	}
	return t, nil
}

// quoteShell writes a word for people to copy into a shell.
func quoteShell(s string) string {
	plain := func(r rune) bool {
		return r == '/' || r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// write fills the folder.
func (t *Template) write(ctx context.Context, dir string, cache packageCache, def Definition, lock Lock, o TemplateOptions) error {
	image, err := encodeIndented(contents(def, lock))
	if err != nil {
		return err
	}
	in := templateContent + "/"
	var sums256, sums512, versions, archives, links strings.Builder
	files := map[string]string{} // to package file
	for _, p := range lock.Image {
		name := debFile(p)
		files[in+"packages/"+name] = cache.path(p)
		fmt.Fprintf(&sums256, "%s  packages/%s\n", strings.TrimPrefix(p.Digest, "sha256:"), name)
		fmt.Fprintf(&versions, "%s\t%s\n", p.Name, p.Version)
	}
	for _, p := range lock.NPM {
		name := npmFile(p)
		files[in+"npm/"+name] = cache.path(p)
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.Digest, "sha512-"))
		if err != nil {
			return fmt.Errorf("digest of %s: %w", p.Name, err)
		}
		fmt.Fprintf(&sums512, "%s  npm/%s\n", hex.EncodeToString(raw), name)
		i := slices.IndexFunc(def.NPM, func(n NPMPackage) bool { return n.Name == p.Name })
		if i < 0 {
			return fmt.Errorf("the definition does not know %s", p.Name)
		}
		fmt.Fprintf(&archives, "%s\t%s\t%s\n", name, def.NPM[i].To, strings.Join(def.NPM[i].Files, " "))
	}
	for _, n := range def.NPM {
		for _, link := range sortedKeys(n.Links) {
			fmt.Fprintf(&links, "%s\t%s\n", link, n.Links[link])
		}
	}
	texts := map[string]string{
		templateDockerfile: t.dockerfile(lock), templateToml: t.toml(o),
		in + "install.sh": string(templateInstall), in + "image.json": string(image), in + "omitted": omitted(def.Omit),
		in + "dpkg.cfg": strings.Join(unwanted, "\n") + "\n", in + "SHA256SUMS": sums256.String(), in + "SHA512SUMS": sums512.String(),
		in + "packages.list": versions.String(), in + "npm.list": archives.String(), in + "links.list": links.String(),
	}
	for name, text := range def.notices {
		texts[in+"notices/"+name] = string(text)
	}
	for _, sub := range []string{"packages", "npm", "notices"} {
		if err := os.MkdirAll(filepath.Join(dir, in, sub), 0o755); err != nil {
			return err
		}
	}
	for name, text := range texts {
		t.SizeBytes += int64(len(text))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	var total, done int64
	for _, p := range slices.Concat(lock.Image, lock.NPM) {
		total += p.SizeBytes
	}
	for name, from := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := copyFile(from, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		done += n
		report(o.Progress, StageArchive, done, total)
	}
	t.SizeBytes += total
	return nil
}

// debFile is a package's file name as apt writes it.
func debFile(p Package) string {
	return p.Name + "_" + strings.ReplaceAll(p.Version, ":", "%3a") + ".deb"
}

func npmFile(p Package) string {
	return strings.NewReplacer("@", "", "/", "-").Replace(p.Name) + "-" + p.Version + ".tgz"
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func copyFile(from, to string) (int64, error) {
	r, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(w, r)
	return n, errors.Join(err, w.Close())
}

// dockerfile holds to the few instructions that E2B's builder knows: no stages,
// no ARG, and a COPY of one folder.
func (t *Template) dockerfile(l Lock) string {
	return fmt.Sprintf(`# The sandbox image of DreamCore as a template of E2B.
# Inputs: %[1]s
# Publish it with E2B's command line (npm package @e2b/cli), in this folder:
#   e2b template create %[2]s
# and put the template's id into the settings as e2b.template.
FROM debian:%[3]s-slim
USER root
COPY %[4]s /opt/dreamcore
RUN for d in /opt/dreamcore /opt/dreamcore/%[4]s; do if [ -f "$d/install.sh" ]; then exec sh "$d/install.sh"; fi; done; exit 1
USER user
WORKDIR /home/user
`, t.Inputs, t.Name, l.Suite, templateContent)
}

// toml are the settings as E2B's command line kept them before its version 2,
// and self-hosted ones still do.
func (t *Template) toml(o TemplateOptions) string {
	return fmt.Sprintf("# Settings of E2B's command line before its version 2; later ones take them as flags.\ntemplate_name = %q\ndockerfile = %q\ncpu_count = %d\nmemory_mb = %d\n",
		t.Name, templateDockerfile, o.CPUs, o.MemoryMB)
}

// Recipe is what an image of the lock in this program is.
type Recipe struct {
	Contents
	Inputs string // digest of definition and lock, which names it before it is built
	// File is where a sandbox of it says what it holds, Data how.
	File string
	Data []byte
}

// OwnRecipe returns the recipe of the lock in this program.
func OwnRecipe() (Recipe, error) {
	def, err := readDefinition(recipe.Files)
	if err != nil {
		return Recipe{}, err
	}
	data, err := fs.ReadFile(recipe.Files, "lock.json")
	if err != nil {
		return Recipe{}, fmt.Errorf("read the lock: %w", err)
	}
	lock, err := DecodeLock(data)
	if err != nil {
		return Recipe{}, err
	}
	r := Recipe{Contents: contents(def, lock), Inputs: def.inputs(lock), File: "/" + contentsPath}
	r.Data, err = encodeIndented(r.Contents)
	return r, err
}
