package config

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"dreamcore"
	"dreamcore/internal/text"
)

// Proxy is how the key proxy runs.
type Proxy struct {
	// User is whom its process runs as: an account or a number. "" is one of its
	// own where we are root, else ours; SameUser is ours in any case.
	User string `json:"user"`
	// OpeningKeyFile opens the keys that are sealed: an identity of age. "" is
	// opening.key in the data folder, where there is one.
	OpeningKeyFile string `json:"opening_key_file"`
}

// OpeningKey is where the opening key is, or would be.
func (c *Config) OpeningKey() string {
	if c.Proxy.OpeningKeyFile != "" {
		return c.Proxy.OpeningKeyFile
	}
	return filepath.Join(c.Data, "opening.key")
}

// SealedKey is where a sealed key of this name is, or would be.
func (c *Config) SealedKey(name string) string { return filepath.Join(c.Data, "keys", name+".age") }

// SameUser lets the key proxy share the service's user.
const SameUser = "same"

// maxKeyBytes bounds a key file.
const maxKeyBytes = 16 << 10

// OpenKey opens a key file for whoever is to read it. Only its owner may be able
// to read or change it.
func OpenKey(path string, lang dreamcore.Lang) (*os.File, error) {
	fail := func(key string) *dreamcore.Error {
		return text.Error(lang, dreamcore.Invalid, "config", "keyproxy."+key, "file", path)
	}
	// Not blocking: it may be a pipe, at which nobody writes.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fail("no_key").Because(err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = fail("no_key").Because(err)
	case !info.Mode().IsRegular() || info.Size() > maxKeyBytes:
		err = fail("odd_key")
	case info.Mode().Perm()&0o077 != 0:
		err = fail("open_key")
	default:
		return f, nil
	}
	_ = f.Close() // nothing was read of it
	return nil, err
}
