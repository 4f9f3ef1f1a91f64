package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Left lists everything on this machine that belongs to boxes of the engine in
// dir: processes, mounts, control groups, sockets, folders, runsc's records. It
// looks for itself and asks no engine, so that it sees what one has forgotten.
func Left(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	var all []string
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil || p.Name() == strconv.Itoa(os.Getpid()) {
			continue
		}
		cmdline, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err == nil && bytes.Contains(cmdline, []byte(dir+"/runsc")) {
			all = append(all, fmt.Sprintf("process %s: %s", p.Name(), bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})))
		}
	}
	for kind, file := range map[string]string{"mount": "/proc/self/mountinfo", "socket": "/proc/net/unix"} {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(data) {
			// The engine's own mount of an empty network namespace ends with it.
			if bytes.Contains(line, []byte(dir)) && !bytes.Contains(line, []byte("/null-netns ")) {
				all = append(all, kind+" "+strings.TrimSpace(string(line)))
			}
		}
	}
	groups, err := Groups(dir)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		all = append(all, "control group "+g)
	}
	for _, f := range []struct{ folder, kind, ours string }{{"box", "folder", ""}, {"runsc", "state", "null-netns"}} {
		entries, err := os.ReadDir(filepath.Join(dir, f.folder))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.Name() != f.ours {
				all = append(all, f.kind+" "+e.Name())
			}
		}
	}
	return all, nil
}

// Groups lists the control groups of boxes of the engine in dir, one for each
// box and hierarchy.
func Groups(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(dir))
	group := "dreamcore-" + hex.EncodeToString(sum[:6])
	var all []string
	err = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // groups of others come and go under the walk
		}
		if filepath.Base(filepath.Dir(p)) == group {
			all = append(all, p)
		}
		return nil
	})
	return all, err
}
