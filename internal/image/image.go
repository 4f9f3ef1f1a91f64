// Package image builds, keeps and hands out sandbox images: the root file
// systems that every sandbox boots from and none ever writes.
//
// An image is named by its digest, the SHA-256 of a canonical listing of its
// tree. It is built from packages that a lock file names with their digests, so
// the same lock gives the same image. A Store keeps images in one folder:
//
//	DIR/current          the digest that new jobs use
//	DIR/sha256-HEX/      one image: root/, listing, manifest.json, lock.json
//	DIR/packages/        archives that were downloaded, by digest
//	DIR/tmp-*            a build or an import under way, never handed out
//	DIR/lock             held by whoever changes the folder
package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// Image is one image in a store.
type Image struct {
	Digest   string // "sha256:HEX"
	Root     string // the unpacked root file system; nobody may write to it
	Manifest Manifest
}

// Store is a folder of images. It is safe for use by several processes.
type Store struct {
	dir string
	// Lang is the language of the errors; English when it is empty.
	Lang dreamcore.Lang
}

// lockPatience is how long a change waits for another one that holds the store.
// A reader that clears up holds it for a moment; a build holds it for minutes.
const lockPatience = 3 * time.Second

// DefaultDir is where images are kept: $DREAMCORE_CACHE or dreamcore in the
// user's cache folder, and there images.
func DefaultDir() (string, error) {
	if dir := os.Getenv("DREAMCORE_CACHE"); dir != "" {
		abs, err := filepath.Abs(dir)
		return filepath.Join(abs, "images"), err
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	return filepath.Join(dir, "dreamcore", "images"), nil
}

// Open opens the store in dir, making the folder if it is missing, and removes
// what a dead build left behind.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, s.fail(dreamcore.Unavailable, "image.open", "err_folder", err, "dir", dir)
	}
	if s.leftovers() {
		unlock, err := s.lock(context.Background(), "image.open", 0)
		if dreamcore.CodeOf(err) == dreamcore.Conflict {
			return s, nil // they are not left over: somebody is at work
		}
		if err != nil {
			return nil, err
		}
		unlock()
	}
	return s, nil
}

// fail makes the error that people see out of the texts image.KEY and, where
// there is one, image.KEY_hint.
func (s *Store) fail(code dreamcore.Code, op, key string, cause error, args ...string) error {
	e := &dreamcore.Error{Code: code, Op: op, Err: cause}
	e.Msg = text.T(s.Lang, "image."+key, args...)
	e.Hint = hintFor(s.Lang, "image."+key+"_hint", os.Geteuid() == 0, args...)
	return e
}

// hintFor is what to do next, "" when there is nothing; for whoever is not root
// where that differs: KEY_user.
func hintFor(lang dreamcore.Lang, key string, root bool, args ...string) string {
	if user := key + "_user"; !root && text.Has(user) {
		key = user
	}
	if !text.Has(key) {
		return ""
	}
	return text.T(lang, key, args...)
}

// leftovers reports whether there is a temporary folder.
func (s *Store) leftovers() bool {
	names, err := filepath.Glob(filepath.Join(s.dir, "tmp-*"))
	return err == nil && len(names) > 0
}

// lock takes the store for a change and reaps what a dead holder left: whoever
// holds the lock knows that no temporary folder is anybody's. The kernel drops
// the lock when its holder dies.
func (s *Store) lock(ctx context.Context, op string, patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, s.fail(dreamcore.Unavailable, op, "err_folder", err, "dir", s.dir)
	}
	deadline := time.Now().Add(patience)
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, s.fail(dreamcore.Unavailable, op, "err_folder", err, "dir", s.dir)
		}
		if time.Now().After(deadline) {
			f.Close()
			return nil, s.fail(dreamcore.Conflict, op, "err_busy", nil)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	unlock = func() { f.Close() } // closing drops the lock
	names, err := filepath.Glob(filepath.Join(s.dir, "tmp-*"))
	for _, name := range names {
		err = errors.Join(err, removeTree(name))
	}
	if err != nil {
		unlock()
		return nil, s.fail(dreamcore.Unavailable, op, "err_folder", err, "dir", s.dir)
	}
	return unlock, nil
}

// removeTree removes a folder, after making sure that nothing is mounted in it:
// a removal through a mount would reach what is mounted there. Builds mount in
// a namespace of their own, so there never should be.
func removeTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("look for mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4]+"/", dir+"/") {
			return fmt.Errorf("remove %s: something is mounted on %s", dir, fields[4])
		}
	}
	return os.RemoveAll(dir)
}

// temp makes a temporary folder. The caller holds the lock and removes it.
func (s *Store) temp() (string, error) {
	dir, err := os.MkdirTemp(s.dir, "tmp-")
	if err != nil {
		return "", fmt.Errorf("make a temporary folder: %w", err)
	}
	return dir, nil
}

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	prefixForm = regexp.MustCompile(`^(?:sha256:)?([0-9a-f]{6,64})$`)
)

func (s *Store) path(digest string) string {
	return filepath.Join(s.dir, strings.Replace(digest, ":", "-", 1))
}

// load reads the image with the full digest.
func (s *Store) load(digest string) (Image, error) {
	dir := s.path(digest)
	img := Image{Digest: digest, Root: filepath.Join(dir, "root")}
	data, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	var st stamp
	if err == nil {
		err = decodeStrict(data, &st)
	}
	if err == nil && (st.Format != stampFormat || st.Digest != digest) {
		err = errors.New("manifest.json is another image's or another program's")
	}
	var c Contents
	if err == nil {
		c, err = readContents(img.Root)
	}
	if err != nil {
		return Image{}, s.fail(dreamcore.Invalid, "image.get", "err_damaged", err, "digest", short(digest), "files", contentsPath)
	}
	img.Manifest = Manifest{Contents: c, Digest: digest, SizeBytes: st.SizeBytes, Created: st.Created, Inputs: st.Inputs}
	return img, nil
}

// digests returns the digests in the store, sorted.
func (s *Store) digests() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, s.fail(dreamcore.Unavailable, "image.list", "err_folder", err, "dir", s.dir)
	}
	var all []string
	for _, e := range entries {
		if d := strings.Replace(e.Name(), "-", ":", 1); e.IsDir() && digestForm.MatchString(d) {
			all = append(all, d)
		}
	}
	return all, nil
}

// List returns the images, newest first. Damaged ones are left out and named by
// the error, which comes beside the others.
func (s *Store) List() ([]Image, error) {
	all, err := s.digests()
	if err != nil {
		return nil, err
	}
	var images []Image
	var bad []error
	for _, d := range all {
		img, err := s.load(d)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		images = append(images, img)
	}
	slices.SortFunc(images, func(a, b Image) int {
		return cmp.Or(b.Manifest.Created.Compare(a.Manifest.Created), cmp.Compare(a.Digest, b.Digest))
	})
	return images, errors.Join(bad...)
}

// resolve turns "", "current", a digest or the beginning of one into a digest.
func (s *Store) resolve(op, ref string) (string, error) {
	if ref == "" || ref == "current" {
		data, err := os.ReadFile(filepath.Join(s.dir, "current"))
		if errors.Is(err, fs.ErrNotExist) {
			return "", s.fail(dreamcore.NotFound, op, "err_none", nil)
		}
		if err != nil {
			return "", s.fail(dreamcore.Unavailable, op, "err_folder", err, "dir", s.dir)
		}
		digest := strings.TrimSpace(string(data))
		if _, err := os.Stat(s.path(digest)); err != nil || !digestForm.MatchString(digest) {
			return "", s.fail(dreamcore.NotFound, op, "err_none", err)
		}
		return digest, nil
	}
	m := prefixForm.FindStringSubmatch(ref)
	if m == nil {
		return "", s.fail(dreamcore.Invalid, op, "err_ref", nil, "ref", fmt.Sprintf("%.80q", ref))
	}
	all, err := s.digests()
	if err != nil {
		return "", err
	}
	var found []string
	for _, d := range all {
		if strings.HasPrefix(d, "sha256:"+m[1]) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		return "", s.fail(dreamcore.NotFound, op, "err_unknown", nil, "ref", short(ref))
	case 1:
		return found[0], nil
	}
	return "", s.fail(dreamcore.Invalid, op, "err_ambiguous", nil, "ref", ref)
}

// short is a digest as people read it.
func short(digest string) string {
	return digest[:min(len(digest), len("sha256:")+12)]
}

// Get returns the image that ref names: a digest, at least six characters of
// its beginning, or "current".
func (s *Store) Get(ref string) (Image, error) {
	digest, err := s.resolve("image.get", ref)
	if err != nil {
		return Image{}, err
	}
	return s.load(digest)
}

// Current returns the image that new jobs use; code NotFound when there is none.
func (s *Store) Current() (Image, error) { return s.Get("current") }

// Use makes ref the image of new jobs. Jobs that run keep theirs.
func (s *Store) Use(ctx context.Context, ref string) (Image, error) {
	unlock, err := s.lock(ctx, "image.use", lockPatience)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	img, err := s.Get(ref)
	if err != nil {
		return Image{}, err
	}
	return img, s.setCurrent(img.Digest)
}

func (s *Store) setCurrent(digest string) error {
	name := filepath.Join(s.dir, "current")
	if err := writeFile(name, []byte(digest+"\n"), 0o644); err != nil {
		return s.fail(dreamcore.Unavailable, "image.use", "err_folder", err, "dir", s.dir)
	}
	return nil
}

// writeFile writes a file so that it is there whole or not at all.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Remove deletes an image. The current one is refused (Conflict): switch first.
// The caller makes sure that no sandbox still runs on it.
func (s *Store) Remove(ctx context.Context, ref string) (string, error) {
	unlock, err := s.lock(ctx, "image.remove", lockPatience)
	if err != nil {
		return "", err
	}
	defer unlock()
	digest, err := s.resolve("image.remove", ref)
	if err != nil {
		return "", err
	}
	if current, err := s.resolve("image.remove", "current"); err == nil && current == digest {
		return "", s.fail(dreamcore.Conflict, "image.remove", "err_current", nil, "digest", short(digest))
	}
	// Out of sight in one step, then away.
	tmp := filepath.Join(s.dir, "tmp-removed-"+strings.TrimPrefix(digest, "sha256:"))
	if err := os.Rename(s.path(digest), tmp); err != nil {
		return "", s.fail(dreamcore.Unavailable, "image.remove", "err_folder", err, "dir", s.dir)
	}
	if err := removeTree(tmp); err != nil {
		return "", s.fail(dreamcore.Unavailable, "image.remove", "err_folder", err, "dir", s.dir)
	}
	return digest, nil
}

// Verify hashes the whole tree and compares it with the digest. A damaged image
// is an error with code Invalid that names the first paths that differ.
func (s *Store) Verify(ctx context.Context, ref string, progress func(Progress)) (Image, error) {
	img, err := s.Get(ref)
	if err != nil {
		return Image{}, err
	}
	got, err := list(ctx, img.Root, func(done int64) {
		report(progress, StageDigest, done, img.Manifest.SizeBytes)
	})
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	damaged := func(files []string, cause error) error {
		return s.fail(dreamcore.Invalid, "image.verify", "err_damaged", cause, "digest", short(img.Digest), "files", strings.Join(files, ", "))
	}
	if err != nil {
		return Image{}, damaged([]string{"root"}, err)
	}
	if got.digest() == img.Digest {
		return img, nil
	}
	f, err := os.Open(filepath.Join(s.path(img.Digest), "listing"))
	if err != nil {
		return Image{}, damaged([]string{"listing"}, err)
	}
	defer f.Close()
	want, err := readListing(f)
	if err != nil || want.digest() != img.Digest {
		return Image{}, damaged([]string{"root", "listing"}, err)
	}
	return Image{}, damaged(want.damage(got, 8), nil)
}

// admit lists the tree in tmp/root, writes listing and manifest beside it, and
// makes the image visible in one step. want, when it is not "", is the digest
// that it must have. The caller holds the lock.
func (s *Store) admit(ctx context.Context, tmp, want string, created time.Time, inputs string, progress func(Progress), sizeHint int64) (Image, error) {
	root := filepath.Join(tmp, "root")
	l, err := list(ctx, root, func(done int64) { report(progress, StageDigest, done, max(sizeHint, done)) })
	if err != nil {
		return Image{}, err
	}
	digest := l.digest()
	if want != "" && want != digest {
		return Image{}, badArchive("its digest is %s, it claims %s", short(digest), short(want))
	}
	if _, err := readContents(root); err != nil {
		return Image{}, fmt.Errorf("%w: %w", errArchive, err)
	}
	if _, err := os.Stat(s.path(digest)); err == nil {
		return s.load(digest) // we have it: the copy is dropped
	}
	data, err := encodeIndented(stamp{Format: stampFormat, Digest: digest, SizeBytes: l.sizeBytes, Created: created.UTC().Truncate(time.Second), Inputs: inputs})
	if err != nil {
		return Image{}, fmt.Errorf("encode manifest: %w", err)
	}
	f, err := os.Create(filepath.Join(tmp, "listing"))
	if err != nil {
		return Image{}, fmt.Errorf("write listing: %w", err)
	}
	_, err = l.WriteTo(f)
	if err := errors.Join(err, f.Close(), writeFile(filepath.Join(tmp, "manifest.json"), data, 0o644)); err != nil {
		return Image{}, fmt.Errorf("write manifest: %w", err)
	}
	// On the disk before it is visible: a power cut must not leave a name for
	// half an image.
	if err := errors.Join(syncTree(tmp), os.Chmod(tmp, 0o755)); err != nil {
		return Image{}, err
	}
	if err := os.Rename(tmp, s.path(digest)); err != nil {
		return Image{}, fmt.Errorf("make the image visible: %w", err)
	}
	if _, err := s.resolve("image.use", "current"); dreamcore.CodeOf(err) == dreamcore.NotFound {
		if err := s.setCurrent(digest); err != nil {
			return Image{}, err
		}
	}
	return s.load(digest)
}

// syncTree flushes the file system that holds dir.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncfs(f)
}
