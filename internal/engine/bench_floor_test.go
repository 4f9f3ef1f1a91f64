package engine_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"dreamcore/internal/engine/enginetest"
)

// bare is a container runtime without an engine, with the same image: runsc
// with the same network and platform, or runc.
type bare struct {
	program, root, dir string
	flags              []string
}

func newBare(b *testing.B) *bare {
	dir := b.TempDir()
	return &bare{enginetest.Programs(b).Runsc, enginetest.Image(b), dir,
		[]string{"--root=" + dir + "/state", "--network=none", "--platform=systrap", "--overlay2=root:memory", "--ignore-cgroups"}}
}

// newRunc is nil, with the reason printed, where Debian's package is missing.
func newRunc(b *testing.B) *bare {
	program, err := exec.LookPath("runc")
	if err != nil {
		fmt.Println("runc is not beside it: apt-get install --no-install-recommends runc")
		return nil
	}
	dir := b.TempDir()
	return &bare{program, enginetest.Image(b), dir, []string{"--root=" + dir + "/state"}}
}

// plain runs /bin/true on the host, under the given command.
func plain(args ...string) func() error {
	return func() error { return exec.Command(args[0], args[1:]...).Run() }
}

// newBwrap is nil, with the reason printed, where Debian's package is missing.
func newBwrap(b *testing.B) func() error {
	program, err := exec.LookPath("bwrap")
	if err != nil {
		fmt.Println("bwrap is not beside it: apt-get install --no-install-recommends bubblewrap")
		return nil
	}
	return plain(program, "--ro-bind", enginetest.Image(b), "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all", "/bin/true")
}

func (r *bare) run(args ...string) error {
	cmd := exec.Command(r.program, append(r.flags[:len(r.flags):len(r.flags)], args...)...)
	// A file: a pipe would stay open in the box that create leaves behind.
	out, err := os.CreateTemp(r.dir, "out")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name()) // only for the message
		return fmt.Errorf("%s %v: %w: %s", filepath.Base(r.program), args, err, said)
	}
	return nil
}

func (r *bare) boot(id string) error {
	bundle := filepath.Join(r.dir, id)
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		return err
	}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process":    map[string]any{"args": []string{"sleep", "1000"}, "env": []string{"PATH=/usr/bin:/bin"}, "cwd": "/", "user": map[string]int{"uid": 0, "gid": 0}},
		// runc has no overlay of its own.
		"root": map[string]any{"path": r.root, "readonly": filepath.Base(r.program) == "runc"},
		// Without a /dev of its own runc makes its devices in the image.
		"mounts": []map[string]string{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
		},
		"linux": map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}}},
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600); err != nil {
		return err
	}
	if err := r.run("create", "--bundle", bundle, id); err != nil {
		return err
	}
	return r.run("start", id)
}

// first boots one and runs a first command in it.
func (r *bare) first(id string) func() error {
	return func() error {
		if err := r.boot(id); err != nil {
			return err
		}
		return r.run("exec", id, "/bin/true")
	}
}

func (r *bare) remove(id string) error { return r.run("delete", "--force", id) }

func (r *bare) close() {
	// Only mounts of runsc's own; the folder is the benchmark's.
	for exec.Command("umount", "-l", filepath.Join(r.dir, "state", "null-netns")).Run() == nil {
	}
}
