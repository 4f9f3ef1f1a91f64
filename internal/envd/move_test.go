package envd

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"dreamcore/internal/envd/spec/filesystem"
)

// A client does not see that /tmp is another file system than the rest.
func TestMoveBetweenFileSystems(t *testing.T) {
	f := daemon(t)
	from, err := os.MkdirTemp("/dev/shm", "dreamcore-move-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(from) })
	if err := os.Chown(from, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(f.home(t), "deep/er/moved")
	tree := filepath.Join(from, "tree")
	made, err := f.run(t, ctxOf(t), "user", script("mkdir -p "+tree+"/inner && cd "+tree+` && printf hello > inner/run && chmod 751 inner/run && touch -d '2001-02-03 04:05:06 UTC' inner/run &&
		ln -s inner/run link && ln -s /no/where broken && mkfifo -m 600 pipe && chmod 750 inner && printf x > ../other`, false))
	if err != nil || made.end.GetExitCode() != 0 {
		t.Fatalf("make the tree: %v, %v", made, err)
	}
	move := func(source string) (*connect.Response[filesystem.MoveResponse], error) {
		req := connect.NewRequest(&filesystem.MoveRequest{Source: source, Destination: to})
		req.Header().Set("Authorization", as("user"))
		return f.files.Move(ctxOf(t), req)
	}
	if err := os.Rename(tree, filepath.Join(t.TempDir(), "x")); !errors.Is(err, unix.EXDEV) {
		t.Fatalf("/dev/shm is no other file system here: %v", err)
	}
	res, err := move(tree)
	if err != nil {
		t.Fatal(err)
	}
	if e := res.Msg.GetEntry(); e.GetPath() != to || e.GetType() != filesystem.FileType_FILE_TYPE_DIRECTORY {
		t.Errorf("moved: %v", e)
	}
	fi, err := os.Stat(filepath.Join(to, "inner/run"))
	if err != nil || fi.Mode().Perm() != 0o751 || !fi.ModTime().Equal(time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)) {
		t.Errorf("the file's mode and time: %v, %v", fi, err)
	}
	if fi, err := os.Stat(filepath.Join(to, "inner")); err != nil || fi.Mode().Perm() != 0o750 {
		t.Errorf("the folder's mode: %v, %v", fi, err)
	}
	for name, want := range map[string]string{"link": "inner/run", "broken": "/no/where"} {
		if got, err := os.Readlink(filepath.Join(to, name)); err != nil || got != want {
			t.Errorf("the link %s: %q, %v", name, got, err)
		}
	}
	if fi, err := os.Lstat(filepath.Join(to, "pipe")); err != nil || fi.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("the pipe: %v, %v", fi, err)
	}
	if _, err := os.Lstat(tree); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the original is still there: %v", err)
	}

	// Where it cannot be put, nothing is left and nothing is lost.
	other := filepath.Join(from, "other")
	if _, err := move(other); err == nil {
		t.Error("a file replaced a folder")
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the original is lost: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 {
		t.Errorf("left beside it: %v, %v", left, err)
	}
}

// What the kernel makes up has no size beforehand.
func TestReadOfWhatHasNoSize(t *testing.T) {
	f := daemon(t)
	if status, body := f.get(t, "user", "/proc/version"); status != http.StatusOK || !strings.Contains(body, "Linux") {
		t.Errorf("/proc/version: %d %q", status, body)
	}
	if status, body := f.get(t, "user", "/proc/version", "Range", "bytes=0-4"); status != http.StatusPartialContent || body != "Linux" {
		t.Errorf("a part of /proc/version: %d %q", status, body)
	}
}
