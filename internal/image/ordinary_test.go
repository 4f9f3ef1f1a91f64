package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const ordinaryDir = "IMAGE_TEST_ORDINARY_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ordinaryDir); dir != "" {
		ordinary(dir)
	}
	os.Exit(m.Run())
}

// ordinary imports and exports again, as whoever runs it.
func ordinary(dir string) {
	err := func() error {
		ctx := context.Background()
		s, err := Open(filepath.Join(dir, "store"))
		if err != nil {
			return err
		}
		img, err := s.ImportFile(ctx, filepath.Join(dir, "in"), nil)
		if err != nil {
			return err
		}
		if _, err := s.Verify(ctx, img.Digest, nil); err != nil {
			return err
		}
		if _, err := s.ExportFile(ctx, img.Digest, filepath.Join(dir, "store", "out"), nil); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(img.Root, "home/user/more"), nil, 0o644); err != nil {
			return err
		}
		if _, err := s.Verify(ctx, img.Digest, nil); err == nil {
			return fmt.Errorf("a changed image was found whole")
		}
		fmt.Printf("%d imported %s\n", os.Geteuid(), img.Digest)
		return nil
	}()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// An ordinary user cannot give files away, and still has the same image.
func TestAnOrdinaryUserImports(t *testing.T) {
	const nobody = 65534
	from := open(t)
	// Not only root and the user own things: a Debian has groups of its own.
	img := put(t, from, append(another("groups"), node{path: "usr/mail", data: "x", uid: 8}, node{path: "usr/fonts/", uid: 50}))
	dir, err := os.MkdirTemp("", "dreamcore-image-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(dir, "store")
	in, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	program, err := io.ReadAll(in)
	for _, err := range []error{
		err, os.Chmod(dir, 0o755), os.Mkdir(store, 0o700), os.Chown(store, nobody, nobody),
		os.WriteFile(filepath.Join(dir, "test"), program, 0o755), os.WriteFile(filepath.Join(dir, "in"), export(t, from, ""), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "test"))
	cmd.Env = append(os.Environ(), ordinaryDir+"="+dir, "HOME="+store, "TMPDIR="+store)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if want := "65534 imported " + img.Digest + "\n"; err != nil || string(out) != want {
		t.Fatalf("%v: %s", err, out)
	}
	// What that user exports is the image, owners and all.
	again, err := os.ReadFile(filepath.Join(store, "out"))
	if err != nil {
		t.Fatal(err)
	}
	to := open(t)
	if got, err := to.Import(context.Background(), bytes.NewReader(again), nil); err != nil || got.Digest != img.Digest {
		t.Errorf("root imported %s, %v", got.Digest, err)
	}
}
