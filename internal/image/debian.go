package image

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// archive is the host's own apt, pointed at a folder of its own for lists and
// state: mirrors, keyrings, proxies and certificates are the host's, what is
// installed on the host does not count.
type archive struct {
	dir   string
	suite string
	log   *slog.Logger

	index map[string]indexed // "name version"
	names map[string][]indexed
}

// indexed is one package of the mirrors' lists.
type indexed struct {
	Package
	essential bool
}

func (a *archive) path(p string) string { return filepath.Join(a.dir, p) }

func (a *archive) options() []string {
	return []string{
		"-o", "Dir::State=" + a.path("state"), "-o", "Dir::State::status=" + a.path("state/status"),
		"-o", "Dir::Cache=" + a.path("cache"),
		"-o", "Dir::Etc::SourceList=" + a.path("sources.list"), "-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::Etc::Preferences=" + a.path("preferences"), "-o", "Dir::Etc::PreferencesParts=/dev/null",
		"-o", "APT::Architecture=amd64", "-o", "APT::Architectures=amd64", "-o", "APT::Install-Recommends=false",
		"-o", "Acquire::GzipIndexes=false", "-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root",
		"-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-o", "Acquire::Retries=3", "-q", "-y",
	}
}

func (a *archive) apt(ctx context.Context, dir string, args ...string) ([]byte, error) {
	return command{args: slices.Concat([]string{"apt-get"}, a.options(), args), dir: dir, env: hostEnv()}.run(ctx)
}

// openArchive finds the host's Debian mirrors and reads their lists.
func openArchive(ctx context.Context, dir, suite string, log *slog.Logger) (*archive, error) {
	a := &archive{dir: dir, suite: suite, log: log}
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(a.path(d), 0o755); err != nil {
			return nil, err
		}
	}
	sources, err := hostSources(ctx, suite)
	if err != nil {
		return nil, err
	}
	err = errors.Join(os.WriteFile(a.path("sources.list"), []byte(sources), 0o600), os.WriteFile(a.path("state/status"), nil, 0o644),
		os.WriteFile(a.path("preferences"), nil, 0o644))
	if err != nil {
		return nil, err
	}
	// apt-get update ends well although a list could not be had, unless told.
	if _, err := a.apt(ctx, "", "-o", "APT::Update::Error-Mode=any", "update"); err != nil {
		return nil, fmt.Errorf("read the mirrors' lists: %w", err)
	}
	return a, a.readIndex()
}

var errNoMirror = errors.New("apt on this machine knows no Debian mirror")

// hostSources writes a sources.list for suite out of the mirrors that the
// host's apt is configured with, as apt itself tells them: whatever the files
// look like, a source counts when its signed Release file says Debian.
func hostSources(ctx context.Context, suite string) (string, error) {
	targets, err := debianTargets(ctx)
	if err != nil {
		return "", err
	}
	if len(targets) == 0 { // a fresh machine has no lists yet
		if _, err := (command{args: []string{"apt-get", "-q", "update"}, env: hostEnv()}).run(ctx); err != nil {
			return "", fmt.Errorf("read the mirrors' lists: %w", err)
		}
		if targets, err = debianTargets(ctx); err != nil {
			return "", err
		}
	}
	var main, security target
	for _, t := range targets {
		switch {
		case t.label == "Debian" && main.uri == "":
			main = t
		case t.label == "Debian-Security" && security.uri == "":
			security = t
		}
	}
	if main.uri == "" {
		return "", errNoMirror
	}
	var b strings.Builder
	fmt.Fprintf(&b, "deb %s%s %s main\n", main.options(), main.uri, suite)
	fmt.Fprintf(&b, "deb %s%s %s-updates main\n", main.options(), main.uri, suite)
	if security.uri != "" {
		fmt.Fprintf(&b, "deb %s%s %s-security main\n", security.options(), security.uri, suite)
	}
	return b.String(), nil
}

// target is one of the host's sources, as `apt-get indextargets` tells it.
type target struct {
	label, uri, file string
}

func debianTargets(ctx context.Context) ([]target, error) {
	out, err := command{args: []string{"apt-get", "indextargets", "--format", "$(ORIGIN)\t$(LABEL)\t$(REPO_URI)\t$(SOURCESENTRY)\t$(COMPONENT)\t$(CREATED_BY)"}, env: hostEnv()}.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask apt for its sources: %w", err)
	}
	return parseTargets(string(out)), nil
}

func parseTargets(out string) []target {
	var all []target
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 6 || f[0] != "Debian" || f[4] != "main" || f[5] != "Packages" || strings.ContainsAny(f[2], " []") {
			continue
		}
		file := f[3]
		if i := strings.LastIndexByte(file, ':'); i > 0 {
			file = file[:i]
		}
		if t := (target{f[1], f[2], file}); !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

var signedBy = regexp.MustCompile(`(?im)\bsigned-by\s*[:=]\s*(/[^\s,\]]+)`)

// debianKeyring is where Debian's own keys are on a Debian machine.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// options are those of the sources.list line: the keyrings that the host's own
// entry names, or Debian's, or those that apt trusts anyhow.
func (t target) options() string {
	var keys []string
	if data, err := os.ReadFile(t.file); err == nil {
		for _, m := range signedBy.FindAllStringSubmatch(string(data), -1) {
			if !slices.Contains(keys, m[1]) {
				keys = append(keys, m[1])
			}
		}
	}
	if _, err := os.Stat(debianKeyring); err == nil && len(keys) == 0 {
		keys = []string{debianKeyring}
	}
	if len(keys) == 0 {
		return ""
	}
	return "[signed-by=" + strings.Join(keys, ",") + "] "
}

// readIndex reads the mirrors' lists, whose signatures apt has checked.
func (a *archive) readIndex() error {
	a.index, a.names = map[string]indexed{}, map[string][]indexed{}
	files, err := filepath.Glob(a.path("state/lists/*_Packages"))
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = parseIndex(f, func(p indexed) {
			key := p.Name + " " + p.Version
			if _, ok := a.index[key]; !ok {
				a.index[key] = p
				a.names[p.Name] = append(a.names[p.Name], p)
			}
		})
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("read %s: %w", filepath.Base(name), err)
		}
	}
	if len(a.index) == 0 {
		return fmt.Errorf("the mirrors list no packages for %s", a.suite)
	}
	return nil
}

// parseIndex reads a Packages file.
func parseIndex(r io.Reader, add func(indexed)) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 4<<20)
	var p indexed
	flush := func() {
		if debianName.MatchString(p.Name) && debianVersion.MatchString(p.Version) && debianDigest.MatchString(p.Digest) && p.SizeBytes > 0 {
			add(p)
		}
		p = indexed{}
	}
	for s.Scan() {
		line := s.Text()
		if line == "" {
			flush()
			continue
		}
		key, value, ok := strings.Cut(line, ": ")
		if !ok {
			continue
		}
		switch key {
		case "Package":
			p.Name = value
		case "Version":
			p.Version = value
		case "SHA256":
			p.Digest = "sha256:" + value
		case "Size":
			if _, err := fmt.Sscanf(value, "%d", &p.SizeBytes); err != nil {
				return fmt.Errorf("size of %.60q: %w", p.Name, err)
			}
		case "Essential":
			p.essential = value == "yes"
		}
	}
	flush()
	return s.Err()
}

// omitted is the part of a package database that says of each name that it is
// installed, so that what depends on it is content without it.
func omitted(names []string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "Package: %s\nStatus: install ok installed\nMaintainer: dreamcore\nArchitecture: all\nMulti-Arch: foreign\n"+
			"Version: 1:9999\nDescription: left out of this image on purpose\n\n", n)
	}
	return b.String()
}

// essential returns the names of the packages that Debian calls essential.
func (a *archive) essential() []string {
	var names []string
	for name, ps := range a.names {
		if slices.ContainsFunc(ps, func(p indexed) bool { return p.essential }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var instLine = regexp.MustCompile(`(?m)^Inst (\S+?)(?::\S+)? (?:\[[^\]]*\] )?\((\S+) `)

// solve asks apt for everything that names need. prefer are versions to keep
// where the mirrors still have them; when they do not fit together any more,
// apt chooses freely.
func (a *archive) solve(ctx context.Context, names, omit []string, prefer []Package) ([]Package, error) {
	if err := os.WriteFile(a.path("state/status"), []byte(omitted(omit)), 0o644); err != nil {
		return nil, err
	}
	var pins strings.Builder
	for _, p := range prefer {
		if _, ok := a.index[p.Name+" "+p.Version]; ok {
			fmt.Fprintf(&pins, "Package: %s\nPin: version %s\nPin-Priority: 1001\n\n", p.Name, p.Version)
		}
	}
	for _, preferences := range []string{pins.String(), ""} {
		if err := os.WriteFile(a.path("preferences"), []byte(preferences), 0o644); err != nil {
			return nil, err
		}
		out, err := a.apt(ctx, "", append([]string{"-s", "install"}, names...)...)
		if err != nil && preferences != "" && ctx.Err() == nil {
			a.log.Warn("the locked packages that are left do not fit together, choosing all anew", "error", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("choose packages: %w", err)
		}
		return a.parseSolution(string(out))
	}
	return nil, errors.New("choose packages: no solution")
}

func (a *archive) parseSolution(out string) ([]Package, error) {
	var ps []Package
	for _, m := range instLine.FindAllStringSubmatch(out, -1) {
		p, ok := a.index[m[1]+" "+m[2]]
		if !ok {
			return nil, fmt.Errorf("choose packages: apt chose %s %s, which no list has", m[1], m[2])
		}
		ps = append(ps, p.Package)
	}
	if len(ps) == 0 {
		return nil, errors.New("choose packages: apt chose none")
	}
	sortPackages(ps)
	return ps, nil
}

// download fetches packages into the cache with the host's apt.
func (a *archive) download(ctx context.Context, cache packageCache, ps []Package, progress func(done, total int64)) error {
	dir := a.path("download")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir) // what is wanted has been moved into the cache
	var total int64
	args := []string{"download"}
	for _, p := range ps {
		total += p.SizeBytes
		args = append(args, p.Name+"="+p.Version)
	}
	wctx, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { // apt tells nothing that is easy to read; the folder does
		defer close(watched)
		for {
			select {
			case <-wctx.Done():
				return
			case <-time.After(250 * time.Millisecond):
				progress(min(folderBytes(dir), total), total)
			}
		}
	}()
	_, err := a.apt(ctx, dir, args...)
	stop()
	<-watched
	if err != nil {
		return fmt.Errorf("download packages: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	wanted := make(map[string]Package, len(ps))
	for _, p := range ps {
		wanted[p.Digest] = p
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), ".deb") {
			continue
		}
		name := filepath.Join(dir, e.Name())
		digest, err := sha256File(name)
		if err != nil {
			return err
		}
		if p, ok := wanted[digest]; ok {
			if err := os.Rename(name, cache.path(p)); err != nil {
				return err
			}
			delete(wanted, digest)
		}
	}
	for _, p := range wanted {
		return fmt.Errorf("download packages: what came for %s %s has another digest than the lock", p.Name, p.Version)
	}
	progress(total, total)
	return nil
}

func folderBytes(dir string) int64 {
	var n int64
	// Files come and go under way; the count is for a progress bar.
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}

func sha256File(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
