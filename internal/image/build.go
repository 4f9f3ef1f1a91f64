package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"dreamcore"
	recipe "dreamcore/image"
)

// BuildOptions say what to build; the zero value builds what this program was
// released with.
type BuildOptions struct {
	// Definition holds definition.json, lock.json and notices/; nil means the
	// program's own.
	Definition fs.FS
	// LockFile, when it is not "", is read instead of the definition's lock if
	// it exists, and a new lock is written to it.
	LockFile string
	// Update chooses the newest versions instead of the locked ones.
	Update bool
	// Again builds even when the store has an image of the same lock.
	Again bool
	// Progress hears what goes on; may be nil.
	Progress func(Progress)
	// Log hears every decision; nil discards.
	Log *slog.Logger
}

// BuildResult is what came of a build.
type BuildResult struct {
	Image Image
	// Reused: the store had an image of this lock already.
	Reused bool
	// Lock is what the image was built from, Changes how it differs from the
	// lock that was asked for. Both are on record in the log as well.
	Lock    Lock
	Changes []Change
	// Current: the image is the one that new jobs use.
	Current bool
}

// builder is one build.
type builder struct {
	s     *Store
	o     BuildOptions
	def   Definition
	cache packageCache
	work  string // the temporary folder
	arch  *archive
	stage *stage
	npm   npmSettings
	lock  Lock // being made
}

// Build makes an image and puts it into the store; the first one becomes the
// current one, later ones wait for Use. It needs root, a Debian machine's apt,
// and mmdebstrap, which it installs when it can.
//
// A locked version that the mirrors have dropped is replaced by one that they
// have: a log line for each, and Changes. Ending ctx leaves nothing behind.
func (s *Store) Build(ctx context.Context, o BuildOptions) (BuildResult, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Definition == nil {
		o.Definition = recipe.Files
	}
	res, err := s.build(ctx, o)
	if err != nil {
		return BuildResult{}, s.explainBuild(ctx, err)
	}
	return res, nil
}

func (s *Store) build(ctx context.Context, o BuildOptions) (BuildResult, error) {
	def, err := readDefinition(o.Definition)
	if err != nil {
		return BuildResult{}, s.fail(dreamcore.Invalid, "image.build", "err_definition", err)
	}
	locked, err := s.readLock(o)
	if err != nil {
		return BuildResult{}, err
	}
	if locked != nil && !o.Update && !o.Again && locked.Definition == def.wants() {
		if img, ok := s.built(def.inputs(*locked)); ok {
			return s.result(BuildResult{Image: img, Reused: true, Lock: *locked}), nil
		}
	}
	report(o.Progress, StagePrepare, 0, 0)
	if err := s.ready(ctx, o.Log); err != nil {
		return BuildResult{}, err
	}
	unlock, err := s.lock(ctx, "image.build", lockPatience)
	if err != nil {
		return BuildResult{}, err
	}
	defer unlock()
	work, err := s.temp()
	if err != nil {
		return BuildResult{}, err
	}
	b := &builder{s: s, o: o, def: def, work: work, cache: packageCache{filepath.Join(s.dir, "packages")}}
	res, err := b.run(ctx, locked)
	if err := errors.Join(err, removeTree(work)); err != nil {
		return BuildResult{}, err
	}
	return s.result(res), nil
}

func (s *Store) result(r BuildResult) BuildResult {
	current, err := s.resolve("image.build", "current")
	r.Current = err == nil && current == r.Image.Digest
	return r
}

// built finds an image that was built from the same inputs.
func (s *Store) built(inputs string) (Image, bool) {
	images, _ := s.List() // a damaged one is no reason not to build
	for _, img := range images {
		if img.Manifest.Inputs == inputs {
			return img, true
		}
	}
	return Image{}, false
}

// readLock reads the lock that is asked for; nil when there is none yet.
func (s *Store) readLock(o BuildOptions) (*Lock, error) {
	name := o.LockFile
	var data []byte
	err := fs.ErrNotExist
	if name != "" {
		data, err = os.ReadFile(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		name = "lock.json"
		data, err = fs.ReadFile(o.Definition, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var l Lock
	if err == nil {
		l, err = DecodeLock(data)
	}
	if err != nil {
		if o.Update {
			o.Log.Warn("the lock file is damaged and will be made anew", "file", name, "error", err)
			return nil, nil
		}
		return nil, s.fail(dreamcore.Invalid, "image.build", "err_lock", err, "file", name)
	}
	return &l, nil
}

// ready checks what a build needs of the machine.
func (s *Store) ready(ctx context.Context, log *slog.Logger) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return s.fail(dreamcore.Missing, "image.build", "err_machine", nil, "machine", runtime.GOOS+"/"+runtime.GOARCH)
	}
	if os.Geteuid() != 0 {
		return s.fail(dreamcore.Missing, "image.build", "err_root", nil, "command", "image build")
	}
	if free := freeBytes(s.dir); free > 0 && free < needBytes {
		return s.fail(dreamcore.Unavailable, "image.build", "err_disk", nil, "dir", s.dir, "need", gib(needBytes), "free", gib(free))
	}
	for _, tool := range []string{"apt-get", "dpkg-deb", "unshare", "chroot"} {
		if _, err := exec.LookPath(tool); err != nil {
			return s.fail(dreamcore.Missing, "image.build", "err_debian", err)
		}
	}
	if _, err := exec.LookPath("mmdebstrap"); err == nil {
		return nil
	}
	log.Info("installing mmdebstrap with apt-get", "reason", "it is missing")
	install := command{args: []string{"apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends", "mmdebstrap"}, env: hostEnv()}
	_, err := install.run(ctx)
	if err != nil && ctx.Err() == nil { // the lists may be old or missing
		if _, err = (command{args: []string{"apt-get", "-q", "update"}, env: hostEnv()}).run(ctx); err == nil {
			_, err = install.run(ctx)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return s.fail(dreamcore.Missing, "image.build", "err_mmdebstrap", err)
	}
	return nil
}

func (b *builder) run(ctx context.Context, locked *Lock) (BuildResult, error) {
	if err := os.MkdirAll(b.cache.dir, 0o700); err != nil {
		return BuildResult{}, err
	}
	b.npm = readNPMSettings(os.Environ(), os.Getenv("HOME"))
	if err := b.choose(ctx, locked); err != nil {
		return BuildResult{}, err
	}
	if err := b.fetch(ctx, locked); err != nil {
		return BuildResult{}, err
	}
	var changes []Change
	if locked != nil {
		changes = locked.Changes(b.lock)
	}
	for _, c := range changes {
		b.o.Log.Warn("package re-locked", "set", c.Set, "package", c.Name, "from", c.From, "to", c.To, "reason", b.reason(locked))
	}
	img, err := b.tree(ctx)
	if err != nil {
		return BuildResult{}, err
	}
	// The lock is written once there is an image of it: a build that fails
	// changes nothing.
	if b.o.LockFile != "" {
		if err := writeFile(b.o.LockFile, b.lock.Encode(), 0o644); err != nil {
			return BuildResult{}, fmt.Errorf("write the lock file: %w", err)
		}
	}
	if err := b.cache.prune(b.lock); err != nil {
		return BuildResult{}, fmt.Errorf("clear the package cache: %w", err)
	}
	return BuildResult{Image: img, Lock: b.lock, Changes: changes}, nil
}

func (b *builder) reason(locked *Lock) string {
	switch {
	case b.o.Update:
		return "an update was asked for"
	case locked.Definition != b.def.wants():
		return "the definition asks for other packages than the lock was made for"
	}
	return "the mirrors no longer have the locked version"
}

// choose settles every Debian package's version and digest: the locked ones as
// long as they can be had.
func (b *builder) choose(ctx context.Context, locked *Lock) error {
	b.lock = Lock{Format: lockFormat, Definition: b.def.wants(), Suite: b.def.Suite, Architecture: "amd64"}
	keep := locked != nil && !b.o.Update && locked.Definition == b.lock.Definition && locked.Suite == b.def.Suite
	if keep {
		b.lock = *locked
	}
	var old Lock
	if locked != nil && !b.o.Update {
		old = *locked
	}
	for _, set := range []struct {
		name        string
		names, omit []string
		old         []Package
		to          *[]Package
	}{
		{"image", b.def.Packages, b.def.Omit, old.Image, &b.lock.Image},
		{"stage", b.def.Stage, b.def.StageOmit, old.Stage, &b.lock.Stage},
	} {
		gone := !keep
		if keep {
			missing, err := b.cache.missing(set.old)
			if err != nil {
				return err
			}
			if set.name == "stage" && len(missing) > 0 {
				// The stage is needed only when npm packages have to be fetched.
				if npm, err := b.cache.missing(b.lock.NPM); err != nil || len(npm) == 0 {
					if err != nil {
						return err
					}
					continue
				}
			}
			if len(missing) > 0 {
				if err := b.openArchive(ctx); err != nil {
					return err
				}
			}
			for _, p := range missing {
				is, ok := b.arch.index[p.Name+" "+p.Version]
				if ok && is.Digest != p.Digest {
					return b.s.fail(dreamcore.Refused, "image.build", "err_swapped", nil, "package", p.Name+" "+p.Version)
				}
				gone = gone || !ok
			}
		}
		if !gone {
			continue
		}
		if err := b.openArchive(ctx); err != nil {
			return err
		}
		names := slices.Concat(b.arch.essential(), set.names)
		if set.name == "stage" {
			names = set.names // unpacked only, so nothing essential is needed
		}
		chosen, err := b.arch.solve(ctx, names, set.omit, set.old)
		if err != nil {
			return err
		}
		*set.to = chosen
	}
	return nil
}

func (b *builder) openArchive(ctx context.Context) error {
	if b.arch != nil {
		return nil
	}
	report(b.o.Progress, StageIndex, 0, 0)
	a, err := openArchive(ctx, filepath.Join(b.work, "apt"), b.def.Suite, b.o.Log)
	b.arch = a
	return err
}

// fetch brings every package of the lock into the cache, and settles the npm
// packages.
func (b *builder) fetch(ctx context.Context, locked *Lock) error {
	if err := b.download(ctx, b.lock.Image); err != nil {
		return err
	}
	var old []Package
	if locked != nil && !b.o.Update {
		for _, p := range locked.NPM {
			if i := slices.IndexFunc(b.def.NPM, func(n NPMPackage) bool { return n.Name == p.Name }); i >= 0 && b.def.NPM[i].allows(p.Version) {
				old = append(old, p)
			}
		}
	}
	chosen := make([]Package, 0, len(b.def.NPM))
	for i, n := range b.def.NPM {
		report(b.o.Progress, StageNPM, int64(i), int64(len(b.def.NPM)))
		p, err := b.fetchNPM(ctx, n, byName(old)[n.Name])
		if err != nil {
			return err
		}
		chosen = append(chosen, p)
	}
	report(b.o.Progress, StageNPM, int64(len(b.def.NPM)), int64(len(b.def.NPM)))
	sortPackages(chosen)
	b.lock.NPM = chosen
	if b.stage != nil { // it has done its work; with it go the host's settings
		return removeTree(filepath.Join(b.work, "stage"))
	}
	return nil
}

func (b *builder) download(ctx context.Context, ps []Package) error {
	missing, err := b.cache.missing(ps)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := b.openArchive(ctx); err != nil {
		return err
	}
	return b.arch.download(ctx, b.cache, missing, func(done, total int64) {
		report(b.o.Progress, StageDownload, done, total)
	})
}

func (b *builder) fetchNPM(ctx context.Context, n NPMPackage, old Package) (Package, error) {
	if old.Name != "" {
		missing, err := b.cache.missing([]Package{old})
		if err != nil || len(missing) == 0 {
			return old, err
		}
	}
	if err := b.openStage(ctx); err != nil {
		return Package{}, err
	}
	if old.Name != "" {
		p, err := b.stage.fetch(ctx, b.npm, n.Name, old.Version)
		var failed *commandError
		switch {
		case err == nil && p != old:
			return Package{}, b.s.fail(dreamcore.Refused, "image.build", "err_swapped", nil, "package", old.Name+" "+old.Version)
		case err == nil:
			return p, nil
		case !errors.As(err, &failed) || !failed.said("E404", "ETARGET", "No matching version"):
			return Package{}, err
		}
	}
	return b.stage.fetch(ctx, b.npm, n.Name, n.Range)
}

func (b *builder) openStage(ctx context.Context) error {
	if b.stage != nil {
		return nil
	}
	if err := b.download(ctx, b.lock.Stage); err != nil {
		return err
	}
	report(b.o.Progress, StageNPM, 0, 0)
	work := filepath.Join(b.work, "stage")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	st := &stage{dir: filepath.Join(work, "root"), cache: b.cache}
	if err := bootstrap(ctx, b.cache, work, st.dir, b.lock.Suite, b.lock.Stage, b.def.StageOmit, true, func(int64, int64) {}); err != nil {
		return err
	}
	if err := st.prepare(b.npm); err != nil {
		return fmt.Errorf("prepare the stage: %w", err)
	}
	b.stage = st
	return nil
}

// tree makes the root file system and admits it to the store.
func (b *builder) tree(ctx context.Context) (Image, error) {
	out := filepath.Join(b.work, "image")
	dir := filepath.Join(out, "root")
	if err := os.Mkdir(out, 0o755); err != nil {
		return Image{}, err
	}
	report(b.o.Progress, StageInstall, 0, int64(len(b.lock.Image)))
	err := bootstrap(ctx, b.cache, b.work, dir, b.lock.Suite, b.lock.Image, b.def.Omit, false, func(done, total int64) {
		report(b.o.Progress, StageInstall, done, total)
	})
	if err != nil {
		return Image{}, err
	}
	report(b.o.Progress, StageFinish, 0, 0)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Image{}, err
	}
	defer root.Close()
	for _, n := range b.def.NPM {
		if err := unpackNPM(ctx, root, b.cache.path(byName(b.lock.NPM)[n.Name]), n); err != nil {
			return Image{}, err
		}
	}
	if err := finish(root, b.def, contents(b.def, b.lock)); err != nil {
		return Image{}, err
	}
	if err := writeFile(filepath.Join(out, "lock.json"), b.lock.Encode(), 0o644); err != nil {
		return Image{}, err
	}
	return b.s.admit(ctx, out, "", time.Now(), b.def.inputs(b.lock), b.o.Progress, 0)
}

// explainBuild turns the usual accidents into what people read.
func (s *Store) explainBuild(ctx context.Context, err error) error {
	var known *dreamcore.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &known):
		return err
	case errors.Is(err, errNoMirror):
		return s.fail(dreamcore.Missing, "image.build", "err_mirror", err)
	case diskFull(err):
		return s.fail(dreamcore.Unavailable, "image.build", "err_disk", err, "dir", s.dir, "need", gib(needBytes), "free", gib(freeBytes(s.dir)))
	case noNetwork(err):
		return s.fail(dreamcore.Unavailable, "image.build", "err_network", err)
	}
	return s.fail(dreamcore.Internal, "image.build", "err_build", err)
}
