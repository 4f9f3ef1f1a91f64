package image

import (
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// packageCache keeps package archives by digest, so that a second build asks no
// mirror. A file counts only after its digest was checked again.
type packageCache struct{ dir string }

func (c packageCache) path(p Package) string {
	name := strings.NewReplacer("sha256:", "", "/", "_", "+", "-", "=", "").Replace(p.Digest)
	return filepath.Join(c.dir, name)
}

// missing returns the packages that are not in the cache; a damaged file is
// removed and counts as missing.
func (c packageCache) missing(ps []Package) ([]Package, error) {
	var gone []Package
	for _, p := range ps {
		got, err := digestLike(p.Digest, c.path(p))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			gone = append(gone, p)
		case err != nil:
			return nil, err
		case got != p.Digest:
			if err := os.Remove(c.path(p)); err != nil {
				return nil, err
			}
			gone = append(gone, p)
		}
	}
	return gone, nil
}

// prune removes what the lock does not name.
func (c packageCache) prune(l Lock) error {
	keep := map[string]bool{}
	for _, ps := range [][]Package{l.Image, l.Stage, l.NPM} {
		for _, p := range ps {
			keep[c.path(p)] = true
		}
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := filepath.Join(c.dir, e.Name()); !keep[name] {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// digestLike hashes a file in the notation of like.
func digestLike(like, name string) (string, error) {
	if strings.HasPrefix(like, "sha256:") {
		return sha256File(name)
	}
	return sha512File(name)
}

// sha512File returns npm's "integrity" of a file.
func sha512File(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha512.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return "sha512-" + base64.StdEncoding.EncodeToString(h.Sum(nil)), nil
}
