// Package payload carries the programs that the dreamcore binary needs beside
// itself: runsc (gVisor), sandboxd (PID 1 of a sandbox) and the toolkit. They
// are built by `make payload` into bin/ and embedded, so that one file is all
// that an operator installs.
package payload

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dreamcore"
)

//go:embed all:bin
var files embed.FS

// Paths are the programs as files on disk.
type Paths struct {
	Runsc    string // runs on the host
	Sandboxd string // bind-mounted into each sandbox as its PID 1
	Toolkit  string // written into each sandbox at boot
}

// DefaultCache is the one folder for everything that is expensive to make:
// $DREAMCORE_CACHE, else dreamcore in the user's cache folder.
func DefaultCache() (string, error) {
	if dir := os.Getenv("DREAMCORE_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	return filepath.Join(dir, "dreamcore"), nil
}

// Extract writes the embedded programs below dir, each in a folder named by its
// digest, and returns where they are. What is there already is left alone, so
// that a box that runs an older sandboxd keeps it.
func Extract(dir string) (Paths, error) {
	var p Paths
	for _, x := range []struct {
		name string
		to   *string
	}{{"runsc", &p.Runsc}, {"sandboxd", &p.Sandboxd}, {"toolkit", &p.Toolkit}} {
		data, err := Read(x.name)
		if err != nil {
			return Paths{}, err
		}
		if *x.to, err = extract(dir, x.name, data); err != nil {
			return Paths{}, fmt.Errorf("extract %s: %w", x.name, err)
		}
	}
	return p, nil
}

// Read returns one embedded program.
func Read(name string) ([]byte, error) {
	data, err := files.ReadFile("bin/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, dreamcore.Errorf(dreamcore.Missing, "payload", "this binary was built without %s", name).
			WithHint("build it with: make build")
	}
	return data, err
}

func extract(dir, name string, data []byte) (string, error) {
	sum := sha256.Sum256(data)
	folder := filepath.Join(dir, "payload", hex.EncodeToString(sum[:8]))
	path := filepath.Join(folder, name)
	if have, err := os.ReadFile(path); err == nil && sha256.Sum256(have) == sum {
		return path, nil
	}
	// 0755: the sandbox's processes must be able to run what is mounted for them.
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(folder, name+".*")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(data); err != nil {
		tmp.Close()
		return "", err
	}
	if err := tmp.Chmod(0o755); err != nil {
		tmp.Close()
		return "", err
	}
	if err := tmp.Close(); err != nil {
		return "", err
	}
	return path, os.Rename(tmp.Name(), path)
}
