package engine_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// nobody is an ordinary user that every Debian machine has.
const nobody = 65534

// ordinaryDir tells the test binary to be an ordinary user's program.
const ordinaryDir = "ENGINE_TEST_ORDINARY_DIR"

// ordinaryImage tells that program where the image is.
const ordinaryImage = "ENGINE_TEST_ORDINARY_IMAGE"

// ordinary opens an engine in dir as whoever runs it, uses a box and prints
// what it saw.
func ordinary(dir string) {
	err := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		p := engine.Config{Runsc: filepath.Join(dir, "runsc"), Sandboxd: filepath.Join(dir, "sandboxd")}
		work, image := filepath.Join(dir, "engine"), os.Getenv(ordinaryImage)
		if err := engine.TryRootless(ctx); err != nil {
			// A machine that does not allow it must say so at once.
			_, err := enginetest.Open(work, p, image, func(c *engine.Config) { c.AllowNoLimits = true })
			if dreamcore.CodeOf(err) != dreamcore.Missing || !strings.Contains(err.Error(), "namespaces") {
				return fmt.Errorf("a machine without namespaces for users: %w", err)
			}
			return nil
		}
		if _, err := enginetest.Open(work, p, image); dreamcore.CodeOf(err) != dreamcore.Missing {
			return fmt.Errorf("an engine that cannot limit opened without being told to: %w", err)
		}
		e, err := enginetest.Open(work, p, image, func(c *engine.Config) { c.AllowNoLimits = true })
		if err != nil {
			return err
		}
		defer e.Shut()
		if e.Limited() {
			return fmt.Errorf("an ordinary user seems to limit memory")
		}
		sb, err := e.Provider.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute})
		if err != nil {
			return err
		}
		if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "/home/user/in/a", Data: []byte("written")}, {Path: "/etc/b", Data: nil, Owner: sandbox.Root}}); err != nil {
			return err
		}
		for _, c := range []struct {
			user, script, want string
		}{
			{"user", "id -u; stat -c '%u %a' ~ ~/in/a; cat ~/in/a; echo x >~/own && echo own", "1000\n1000 755\n1000 644\nwrittenown\n"},
			{"user", "ls /run/dreamcore 2>&1 | grep -c 'Permission denied'; touch /etc/x 2>&1 | grep -c 'Permission denied'", "1\n1\n"},
			{"root", "id -u; stat -c %u /etc/b; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "0\n0\nlo\n"},
			{"user", "python3 -c 'print(sum(range(1000)))'; node -e 'console.log(6*7)'", "499500\n42\n"},
			// The limits that do not need the host's control groups.
			{"user", forkBomb, "refused\n"},
			{"user", "head -c 400M /dev/zero 2>&1 >/workspace/x | grep -c 'No space left'", "1\n"},
		} {
			res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"bash", "-c", c.script}, User: c.user}, 1<<16)
			if err != nil {
				return err
			}
			if string(res.Stdout) != c.want {
				return fmt.Errorf("%s as %s: %q and %q, want %q", c.script, c.user, res.Stdout, res.Stderr, c.want)
			}
		}
		if err := e.Provider.Kill(ctx, sb.ID()); err != nil {
			return err
		}
		// One more is left to Close.
		if _, err := e.Provider.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: time.Minute}); err != nil {
			return err
		}
		return e.Shut()
	}()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("uid", os.Geteuid(), "used a sandbox, or was told why not")
	os.Exit(0)
}

const forkBomb = `exec python3 -c '
import os, threading
hold = threading.Event()
try:
	for _ in range(400):
		threading.Thread(target=hold.wait, daemon=True).start()
except RuntimeError:
	print("refused", flush=True)
os._exit(0)
'`

// An ordinary user boots the same boxes as root, but for the limits that need
// control groups, and must be told so.
func TestAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test becomes an ordinary user: run it as root")
	}
	p := enginetest.Programs(t)
	dir, err := os.MkdirTemp("", "dreamcore-ordinary-") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]string{"test": exe, "runsc": p.Runsc, "sandboxd": p.Sandboxd} {
		copyProgram(t, from, filepath.Join(dir, name))
	}
	work := filepath.Join(dir, "engine")
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.Mkdir(work, 0o700), os.Chown(work, nobody, nobody),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "test"))
	cmd.Env = append(os.Environ(), ordinaryDir+"="+dir, ordinaryImage+"="+shownImage(t), "HOME="+work, "TMPDIR="+work)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "uid 65534 used a sandbox") {
		t.Errorf("%v: %s", err, out)
	}
	nothing(t, work)
}

// shownImage shows the machine's image where every user may see it: wherever it
// is kept, an ordinary one may not pass through there. It is the real image, so
// it is read-only there, and in no folder that is removed with what is in it.
func shownImage(t *testing.T) string {
	t.Helper()
	at, err := os.MkdirTemp("", "dreamcore-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Never RemoveAll: were it mounted still, the image would go with it.
		if err := os.Remove(at); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount(enginetest.Image(t), at, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", at, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	const write = 2
	if err := syscall.Access(at, write); err != syscall.EROFS {
		t.Fatalf("the image can be written to: %v", err)
	}
	return at
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
}
