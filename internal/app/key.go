package app

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/keyproxy/control"
	"dreamcore/internal/text"
)

// keyName is what a sealed key may be called: it becomes a file name.
var keyName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// runKey seals a provider's key at rest.
func runKey(_ context.Context, t Terminal, args []string) error {
	var s settings
	rest, err := options(t, "keyproxy.key_help", args, func(f *flag.FlagSet) { f.StringVar(&s.config, "config", "", "") })
	if err != nil {
		return err
	}
	if len(rest) != 2 || rest[0] != "set" {
		fmt.Fprintln(t.Err, text.T(t.Lang, "keyproxy.key_help"))
		return errUsage
	}
	fail := func(key string, args ...string) error {
		return text.Error(t.Lang, dreamcore.Invalid, "key", "keyproxy."+key, args...)
	}
	if !keyName.MatchString(rest[1]) {
		return fail("bad_name", "name", printable(rest[1], 40))
	}
	cfg, err := s.load(t)
	if err != nil {
		return err
	}
	key, err := askKey(t)
	if err != nil {
		return err
	}
	if key.IsZero() {
		return fail("one_key")
	}
	opening, made, err := openingKey(cfg)
	if err != nil {
		return err
	}
	data, err := control.Seal(key, opening)
	if err != nil {
		return err
	}
	path := cfg.SealedKey(rest[1])
	if err := keepFile(path, data); err != nil {
		return fmt.Errorf("keep the sealed key: %w", err)
	}
	if made {
		t.say("keyproxy.opening_made", "file", cfg.OpeningKey())
	}
	t.say("keyproxy.sealed", "file", path)
	return nil
}

// askKey reads a key from standard input, unseen where that is a terminal.
func askKey(t Terminal) (dreamcore.Secret, error) {
	if t.In == nil {
		return dreamcore.Secret{}, nil
	}
	if state, err := unix.IoctlGetTermios(int(t.In.Fd()), unix.TCGETS); err == nil {
		fmt.Fprint(t.Err, text.T(t.Lang, "keyproxy.ask"))
		hidden := *state
		hidden.Lflag &^= unix.ECHO
		if err := unix.IoctlSetTermios(int(t.In.Fd()), unix.TCSETSF, &hidden); err != nil {
			return dreamcore.Secret{}, fmt.Errorf("hide what is typed: %w", err)
		}
		defer func() {
			_ = unix.IoctlSetTermios(int(t.In.Fd()), unix.TCSETSF, state) // it was settable before
			fmt.Fprintln(t.Err)
		}()
	}
	line, err := bufio.NewReader(io.LimitReader(t.In, 8<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return dreamcore.Secret{}, fmt.Errorf("read the key: %w", err)
	}
	key := strings.TrimSpace(line)
	if len(key) < 8 || strings.ContainsAny(key, " \t\r") {
		return dreamcore.Secret{}, nil
	}
	return dreamcore.NewSecret(key), nil
}

// openingKey reads the opening key, or makes one where there is none.
func openingKey(cfg config.Config) (key dreamcore.Secret, made bool, err error) {
	path := cfg.OpeningKey()
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if key, err = control.NewOpeningKey(); err != nil {
			return key, false, err
		}
		if err := keepFile(path, []byte(key.Reveal())); err != nil {
			return key, false, fmt.Errorf("keep the opening key: %w", err)
		}
		return key, true, nil
	}
	f, err := config.OpenKey(path, cfg.Lang)
	if err != nil {
		return key, false, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return key, false, fmt.Errorf("read the opening key: %w", err)
	}
	return dreamcore.NewSecret(string(data)), false, nil
}

// keepFile writes a file for our eyes only, whole or not at all.
func keepFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the first error is the one that matters
	}
	return err
}
