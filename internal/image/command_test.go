package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var testEnv = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}

func TestFailedCommandSaysWhatItPrinted(t *testing.T) {
	_, err := command{args: []string{"sh", "-c", "echo out; echo No space left on device >&2; exit 3"}, env: testEnv}.run(t.Context())
	var failed *commandError
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "out") {
		t.Fatalf("got %v", err)
	}
	if !diskFull(err) || noNetwork(err) {
		t.Errorf("disk full %v, no network %v", diskFull(err), noNetwork(err))
	}
}

func TestCommandOutputAndLines(t *testing.T) {
	var lines []string
	out, err := command{args: []string{"sh", "-c", "echo a; echo b; printf c"}, env: testEnv, line: func(l string) { lines = append(lines, l) }}.run(t.Context())
	if err != nil || string(out) != "a\nb\nc" {
		t.Errorf("output %q, %v", out, err)
	}
	if strings.Join(lines, ",") != "a,b" {
		t.Errorf("lines %q", lines)
	}
}

func TestErrorKeepsTheEndOnly(t *testing.T) {
	w := &tailWriter{}
	for range 1000 {
		if _, err := w.Write([]byte(strings.Repeat("x", 100))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	if s := w.String(); len(s) != tailBytes || !strings.HasSuffix(s, "the end") {
		t.Errorf("%d bytes", len(s))
	}
}

// An isolated command that is cut short takes its mounts and its children, also
// those that left its session, with it.
func TestIsolatedCommandLeavesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("namespaces need root: run it as root")
	}
	dir := t.TempDir()
	mnt, alive := filepath.Join(dir, "mnt"), filepath.Join(dir, "alive")
	if err := os.Mkdir(mnt, 0o755); err != nil {
		t.Fatal(err)
	}
	script := `mount -t tmpfs x "$1"
setsid sh -c 'while :; do echo x >> "$1"; sleep 0.05; done' sh "$2" &
while [ ! -s "$2" ]; do sleep 0.05; done
echo ready
sleep 600`
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := command{
		args: []string{"sh", "-c", script, "sh", mnt, alive}, env: testEnv, isolated: true, offline: true,
		line: func(l string) {
			if l == "ready" {
				if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), mnt) {
					t.Errorf("the mount is seen outside (%v)", err)
				}
				cancel()
			}
		},
	}.run(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	size := func() int64 {
		info, err := os.Stat(alive)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	// The child wrote twenty lines a second; after the kill it falls silent.
	for before, tries := size(), 0; ; tries++ {
		time.Sleep(300 * time.Millisecond)
		now := size()
		if now == before {
			break
		}
		if before = now; tries > 100 {
			t.Fatal("a child outlived the command")
		}
	}
}

func TestOfflineCommandHasNoNetwork(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("namespaces need root: run it as root")
	}
	count := func(offline bool) int {
		out, err := command{args: []string{"cat", "/proc/net/dev"}, env: testEnv, isolated: true, offline: offline}.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(out), ":")
	}
	if n := count(true); n != 1 {
		t.Errorf("%d network devices, want the loopback alone", n)
	}
	if n := count(false); n < 1 {
		t.Errorf("the control sees %d devices", n)
	}
}
