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
	spec               map[string]any // what it boots, where that is not the least
}

func newBare(b *testing.B) *bare {
	dir := b.TempDir()
	return &bare{program: enginetest.Programs(b).Runsc, root: enginetest.Image(b), dir: dir,
		flags: []string{"--root=" + dir + "/state", "--network=none", "--platform=systrap", "--overlay2=root:memory", "--ignore-cgroups"}}
}

// newEqual is bare runsc with the very box of e: its mounts, limits, control
// groups, capabilities and overlay on the disk, as the engine has told runsc of
// one. Only what runs in it as PID 1 is another.
func newEqual(b *testing.B, e *enginetest.Engine) *bare {
	sb := boot(b, e)
	data, err := os.ReadFile(filepath.Join(e.Dir, "box", string(sb.ID()), "config.json"))
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Provider.Kill(ctxOf(b), sb.ID()); err != nil {
		b.Fatal(err)
	}
	r := newBare(b)
	if err := json.Unmarshal(data, &r.spec); err != nil {
		b.Fatal(err)
	}
	linux := r.spec["linux"].(map[string]any)
	if linux["cgroupsPath"] == nil {
		b.Fatal("the engine's boxes have no control groups here: the two would not be equal")
	}
	r.flags = []string{"--root=" + r.dir + "/state", "--network=none", "--platform=systrap", "--host-uds=open"}
	return r
}

// equal makes the specification and the flags of one box out of the engine's.
func (r *bare) equal(id, bundle string) (map[string]any, []string, error) {
	control, overlay := filepath.Join(bundle, "control"), filepath.Join(bundle, "overlay")
	for _, d := range []string{control, overlay} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, nil, err
		}
	}
	data, err := json.Marshal(r.spec)
	if err != nil {
		return nil, nil, err
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, nil, err
	}
	spec["process"].(map[string]any)["args"] = []string{"/bin/sleep", "1000"}
	linux := spec["linux"].(map[string]any)
	linux["cgroupsPath"] = filepath.Join(filepath.Dir(linux["cgroupsPath"].(string)), id)
	for _, m := range spec["mounts"].([]any) {
		if m := m.(map[string]any); m["type"] == "bind" {
			m["source"] = control
		}
	}
	return spec, []string{fmt.Sprintf("--overlay2=root:dir=%s,size=%d", overlay, 256<<20)}, nil
}

// newRunc is nil, with the reason printed, where Debian's package is missing.
func newRunc(b *testing.B) *bare {
	program, err := exec.LookPath("runc")
	if err != nil {
		fmt.Println("runc is not beside it: apt-get install --no-install-recommends runc")
		return nil
	}
	dir := b.TempDir()
	return &bare{program: program, root: enginetest.Image(b), dir: dir, flags: []string{"--root=" + dir + "/state"}}
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
	var flags []string
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
	if r.spec != nil {
		var err error
		if spec, flags, err = r.equal(id, bundle); err != nil {
			return err
		}
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600); err != nil {
		return err
	}
	if err := r.run(append(flags, "create", "--bundle", bundle, id)...); err != nil {
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
