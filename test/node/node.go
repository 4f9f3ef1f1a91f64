// Package node gives tests the Node.js of the sandbox image, and the npm
// packages that package-lock.json beside it pins. The lock names no registry:
// npm asks the one that the machine's own settings name, and checks each
// package against the lock's digest.
package node

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/payload"
)

var (
	//go:embed package.json
	wanted []byte
	//go:embed package-lock.json
	lock []byte
)

// SDKs are E2B's own client in the versions that we promise to serve, by the
// name under which a program imports them, the current one first.
var SDKs = []string{"e2b", "e2b-2.45"}

// Program returns the path of the image's node. It runs on the host as it is:
// of the host it needs glibc only.
func Program(tb testing.TB) string {
	tb.Helper()
	p := filepath.Join(enginetest.Image(tb), "usr/local/lib/node/bin/node")
	if _, err := os.Stat(p); err != nil {
		tb.Fatalf("the sandbox image has no node; run `make setup` (%v)", err)
	}
	return p
}

// Folder returns a new folder that holds what source holds and the packages,
// so that the programs in it import them by name. It ends with the test.
func Folder(tb testing.TB, source fs.FS) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.CopyFS(dir, source); err != nil {
		tb.Fatal(err)
	}
	if err := os.Symlink(Modules(tb), filepath.Join(dir, "node_modules")); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Modules returns the node_modules folder with the packages of the lock. The
// first call on a machine installs them, which needs the network; it is shared
// with every other test there and must not be written.
func Modules(tb testing.TB) string {
	tb.Helper()
	dir, err := modules()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

var modules = sync.OnceValues(func() (string, error) {
	cache, err := payload.DefaultCache()
	if err != nil {
		return "", err
	}
	return install(filepath.Join(cache, "npm"), wanted, lock)
})

// install puts the packages into a folder of cache that is named by the lock's
// digest, unless they are there. Several processes may do so at once.
func install(cache string, wanted, lock []byte) (string, error) {
	sum := sha256.New()
	sum.Write(wanted)
	sum.Write(lock)
	name := hex.EncodeToString(sum.Sum(nil)[:16])
	dir := filepath.Join(cache, name)
	m := filepath.Join(dir, "node_modules")
	// The folder gets its name when it is whole.
	done := func() bool { _, err := os.Stat(dir); return err == nil }
	if done() {
		return m, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := flock(filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if done() { // another process was faster
		return m, nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("npm is missing on this machine, and the packages are not in the cache yet; run: sudo apt-get install --no-install-recommends npm")
	}
	// One name for all: a process that died in the middle is cleaned up here.
	work := filepath.Join(cache, "unfinished")
	if err := os.RemoveAll(work); err != nil {
		return "", err
	}
	defer os.RemoveAll(work) // gone already where it worked
	if err := os.Mkdir(work, 0o755); err != nil {
		return "", err
	}
	for file, data := range map[string][]byte{"package.json": wanted, "package-lock.json": lock} {
		if err := os.WriteFile(filepath.Join(work, file), data, 0o644); err != nil {
			return "", err
		}
	}
	cmd := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress")
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(work, dir); err != nil {
		return "", err
	}
	return m, nil
}

// flock takes the lock that a file stands for; the kernel gives it back when
// this process dies.
func flock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	return func() { f.Close() }, nil
}
