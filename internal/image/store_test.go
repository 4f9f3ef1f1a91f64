package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dreamcore"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// put admits a synthetic image the way a build does.
func put(t *testing.T, s *Store, nodes []node) Image {
	t.Helper()
	tmp, err := s.temp()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(plant(t, nodes), filepath.Join(tmp, "root")); err != nil {
		t.Fatal(err)
	}
	img, err := s.admit(context.Background(), tmp, "", time.Now(), "", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// another is small with one more file, so with another digest.
func another(name string) []node {
	return append(append([]node{}, small...), node{path: "etc/" + name, data: name})
}

func wantCode(t *testing.T, err error, code dreamcore.Code) {
	t.Helper()
	if got := dreamcore.CodeOf(err); got != code {
		t.Errorf("code %q, want %q: %v", got, code, err)
	}
	var e *dreamcore.Error
	if errors.As(err, &e) && (strings.HasPrefix(e.Msg, "image.") || strings.HasPrefix(e.Hint, "image.") || strings.ContainsAny(e.Msg+e.Hint, "{}")) {
		t.Errorf("a text is missing or a slot is open: %q %q", e.Msg, e.Hint)
	}
}

func TestEmptyStore(t *testing.T) {
	s := open(t)
	_, err := s.Current()
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.Get("abcdef")
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.Get("../../etc")
	wantCode(t, err, dreamcore.Invalid)
	_, err = s.Use(context.Background(), "abcdef")
	wantCode(t, err, dreamcore.NotFound)
	_, err = s.Remove(context.Background(), "abcdef")
	wantCode(t, err, dreamcore.NotFound)
	if images, err := s.List(); err != nil || len(images) != 0 {
		t.Errorf("List: %v, %v", images, err)
	}
}

func TestFirstIsCurrentLaterWaitForUse(t *testing.T) {
	ctx := context.Background()
	s := open(t)
	a := put(t, s, small)
	b := put(t, s, another("b"))
	if cur, err := s.Current(); err != nil || cur.Digest != a.Digest {
		t.Fatalf("current is %s, %v", cur.Digest, err)
	}
	if a.Manifest.AgentVersion != "1.6.0" || a.Manifest.SizeBytes == 0 || a.Manifest.Created.IsZero() {
		t.Errorf("manifest %+v", a.Manifest)
	}
	if images, err := s.List(); err != nil || len(images) != 2 {
		t.Fatalf("List: %v, %v", images, err)
	}
	if _, err := s.Use(ctx, b.Digest[:len("sha256:")+8]); err != nil {
		t.Fatal(err)
	}
	if cur, err := s.Current(); err != nil || cur.Digest != b.Digest {
		t.Fatalf("current is %s, %v", cur.Digest, err)
	}
	_, err := s.Remove(ctx, b.Digest)
	wantCode(t, err, dreamcore.Conflict)
	if gone, err := s.Remove(ctx, a.Digest); err != nil || gone != a.Digest {
		t.Fatal(gone, err)
	}
	_, err = s.Get(a.Digest)
	wantCode(t, err, dreamcore.NotFound)
	if _, err := os.Stat(a.Root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed image is still there: %v", err)
	}
}

func TestSwitchIsNeverHalf(t *testing.T) {
	ctx := context.Background()
	s := open(t)
	a, b := put(t, s, small), put(t, s, another("b"))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if cur, err := s.Current(); err != nil || cur.Digest != a.Digest && cur.Digest != b.Digest {
					t.Errorf("read %q, %v", cur.Digest, err)
					return
				}
			}
		})
	}
	for i := range 60 {
		if _, err := s.Use(ctx, []string{a.Digest, b.Digest}[i%2]); err != nil {
			t.Error(err)
		}
	}
	close(done)
	readers.Wait()
}

func TestVerifyNamesTheDamage(t *testing.T) {
	ctx := context.Background()
	s := open(t)
	img := put(t, s, small)
	var last Progress
	if _, err := s.Verify(ctx, "current", func(p Progress) { last = p }); err != nil {
		t.Fatal(err)
	}
	if last.Stage != StageDigest || last.Done != last.Total || last.Text(dreamcore.Japanese) == "image.stage_digest" {
		t.Errorf("last progress %+v", last)
	}
	if err := os.WriteFile(filepath.Join(img.Root, "etc/hosts"), []byte("evil"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := s.Verify(ctx, "current", nil)
	wantCode(t, err, dreamcore.Invalid)
	if !strings.Contains(err.Error(), "etc/hosts") {
		t.Errorf("the damage is not named: %v", err)
	}
	if err := os.Remove(filepath.Join(s.path(img.Digest), "listing")); err != nil {
		t.Fatal(err)
	}
	_, err = s.Verify(ctx, "current", nil)
	wantCode(t, err, dreamcore.Invalid)
	if err := s.exportFails(ctx); err == nil {
		t.Error("a damaged image was exported")
	}
}

func (s *Store) exportFails(ctx context.Context) error {
	_, err := s.Export(ctx, "", &bytes.Buffer{}, nil)
	return err
}

func TestDamagedManifestIsNamedBesideTheOthers(t *testing.T) {
	s := open(t)
	a, b := put(t, s, small), put(t, s, another("b"))
	if err := os.WriteFile(filepath.Join(s.path(b.Digest), "manifest.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	images, err := s.List()
	if len(images) != 1 || images[0].Digest != a.Digest {
		t.Errorf("images %v", images)
	}
	wantCode(t, err, dreamcore.Invalid)
	_, err = s.Get(b.Digest)
	wantCode(t, err, dreamcore.Invalid)
	if _, err := s.Remove(context.Background(), b.Digest); err != nil {
		t.Errorf("a damaged image cannot be removed: %v", err)
	}
}

func TestOneChangeAtATime(t *testing.T) {
	ctx := context.Background()
	s := open(t)
	put(t, s, small)
	unlock, err := s.lock(ctx, "test", 0)
	if err != nil {
		t.Fatal(err)
	}
	// A build under way keeps its folder although others open the store.
	tmp, err := s.temp()
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Current(); err != nil {
		t.Errorf("reading waits for a change: %v", err)
	}
	_, err = other.lock(ctx, "test", 0)
	wantCode(t, err, dreamcore.Conflict)
	if _, err := os.Stat(tmp); err != nil {
		t.Errorf("the folder of a living build was reaped: %v", err)
	}
	unlock() // as the kernel does when the holder dies: the folder is left over
	if _, err := Open(s.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tmp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a leftover folder was not reaped: %v", err)
	}
}

func TestWaitingForTheStoreEndsWithTheContext(t *testing.T) {
	s := open(t)
	unlock, err := s.lock(context.Background(), "test", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Use(ctx, "abcdef"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestRemoveTreeRefusesMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	dir := t.TempDir()
	keep := filepath.Join(dir, "keep")
	in := filepath.Join(dir, "tree", "in")
	for _, err := range []error{os.Mkdir(keep, 0o755), os.WriteFile(keep+"/file", nil, 0o644), os.MkdirAll(in, 0o755), syscall.Mount(keep, in, "", syscall.MS_BIND, "")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	err := removeTree(filepath.Join(dir, "tree"))
	if uerr := syscall.Unmount(in, 0); uerr != nil {
		t.Fatal(uerr)
	}
	if err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(keep + "/file"); err != nil {
		t.Errorf("the removal went through the mount: %v", err)
	}
	if err := removeTree(filepath.Join(dir, "tree")); err != nil {
		t.Error(err)
	}
}

func TestAmbiguousReference(t *testing.T) {
	s := open(t)
	for _, last := range "ab" {
		d := fmt.Sprintf("sha256:%s%c", strings.Repeat("0", 63), last)
		if err := os.MkdirAll(s.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Get("000000")
	wantCode(t, err, dreamcore.Invalid)
	if !strings.Contains(err.Error(), "More than one") {
		t.Error(err)
	}
}
