package engine_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// Whatever a box makes without end in a folder of its memory ends with an error that its own program sees; the box goes on, and can clear up.
func TestEndlessFiles(t *testing.T) {
	e := enginetest.Start(t)
	neighbour, sb := boot(t, e), boot(t, e)
	const limit = 256 << 20 / 8192 // of /workspace: enginetest's disk
	for kind, make := range map[string]string{
		"files":         `open(my $f, ">", $p)`,
		"folders":       `mkdir($p)`,
		"links":         `symlink("x", $p)`,
		"pipes":         `mkfifo($p, 0600)`,
		"sockets":       `do { my $s; socket($s, AF_UNIX, SOCK_STREAM, 0) && bind($s, sockaddr_un($p)) }`,
		"renamed files": `open(my $f, ">", "$p.tmp") && rename("$p.tmp", $p)`,
	} {
		for folder, most := range map[string]int{"/workspace": limit, "/tmp": limit / 2, "/dev/shm": limit / 4} {
			if kind != "files" && folder != "/dev/shm" {
				continue
			}
			t.Run(kind+" in "+folder, func(t *testing.T) {
				got := sh(t, sb, sandbox.User, fmt.Sprintf(`cd %s && perl -MPOSIX -MSocket -e 'my $i = 0; while ($i < 200000) { my $p = "e$i"; %s or last; $i++ } print "$i $!\n"'; find . -mindepth 1 -delete; echo again > room && cat room && rm room`, folder, make))
				count, says, _ := strings.Cut(got, " ")
				n, err := strconv.Atoi(count)
				if err != nil || n < most*9/10 || n > most || says != "No space left on device\nagain" {
					t.Errorf("got %q, want %d and that no space is left", got, most)
				}
			})
		}
	}
	// The host's own writes are refused by name too.
	sh(t, sb, sandbox.User, `cd /workspace && perl -e 'my $i = 0; while (mkdir("e$i")) { $i++ }'`)
	if err := sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/workspace/more", Data: []byte("x")}}); dreamcore.CodeOf(err) != dreamcore.Refused {
		t.Errorf("writing one file too many: %v", err)
	}
	if got := sh(t, neighbour, sandbox.User, "echo fine"); got != "fine" {
		t.Errorf("the neighbour says %q", got)
	}
}

// One process has a bound of its own; whether it opens pipes, sockets or files
// without a name, the error is its own.
func TestEndlessDescriptors(t *testing.T) {
	e := enginetest.Start(t)
	sb := boot(t, e)
	for kind, make := range map[string]string{
		"files":  `open($x, "<", "/etc/passwd")`,
		"pipes":  `pipe($x, $y)`,
		"memfds": `($x = syscall(319, my $name = "m", 0)) >= 0`,
		"epolls": `($x = syscall(291, 0)) >= 0`,
	} {
		t.Run(kind, func(t *testing.T) {
			got := sh(t, sb, sandbox.User, `perl -MSocket -e 'my @all; my $i = 0; while ($i < 80000) { my ($x, $y); `+make+` or last; push @all, $x, $y; $i++ } print $i < 66000 ? "bounded" : "endless", ": $!\n"'`)
			if got != "bounded: Too many open files" {
				t.Errorf("got %q", got)
			}
			if got := sh(t, sb, sandbox.User, "echo here"); got != "here" {
				t.Errorf("the box says %q", got)
			}
		})
	}
}

// What no bound inside holds ends the box alone, and its log says why; neither the
// host nor its other boxes notice.
func TestEndlessObjectsEndTheBoxAlone(t *testing.T) {
	var log lockedBuffer
	e := enginetest.Start(t, func(c *engine.Config) {
		c.Limits = engine.Limits{MemoryBytes: 512 << 20, CPUs: 2, Processes: 256, DiskBytes: 64 << 20}
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	neighbour := boot(t, e)
	for kind, script := range map[string]string{
		"descriptors of many": `perl -e 'for (1..250) { next if fork; my @all; while (pipe(my $x, my $y)) { push @all, $x, $y } sleep 1000 } sleep 1000'`,
		"files in the root":   `mkdir ~/d && perl -e 'my $i = 0; while (open(my $f, ">", "$ENV{HOME}/d/$i")) { $i++ } sleep 1000'`,
	} {
		t.Run(kind, func(t *testing.T) {
			sb := boot(t, e)
			_, err := sandbox.Run(ctxOf(t), sb, sandbox.Command{Args: []string{"bash", "-c", script}}, 1000)
			if dreamcore.CodeOf(err) != dreamcore.Lost || !strings.Contains(err.Error(), "ran out of memory") {
				t.Errorf("got %v", err)
			}
			line := log.line("a sandbox died", string(sb.ID()))
			if !strings.Contains(line, "reason=out_of_memory") || !strings.Contains(line, "too many files, sockets or descriptors") {
				t.Errorf("the log says %q", line)
			}
			if got := sh(t, neighbour, sandbox.User, "echo fine"); got != "fine" {
				t.Errorf("the neighbour says %q", got)
			}
		})
	}
}

// A box that holds the host's sockets open without end has a bound of its own on
// the host, and does not fill the host's log either.
func TestEndlessWaysOut(t *testing.T) {
	var log lockedBuffer
	e := enginetest.Start(t, func(c *engine.Config) {
		c.Profile = engine.E2B // whose user may become root, who may reach the socket itself
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	neighbour, sb := boot(t, e), boot(t, e)
	got := sh(t, sb, sandbox.Root, `perl -MSocket -e 'my @all; my $i = 0; while ($i < 40000) { my $s; socket($s, AF_UNIX, SOCK_STREAM, 0) && connect($s, sockaddr_un("/run/dreamcore/egress.sock")) or last; push @all, $s; $i++ } print $i < 20000 ? "bounded" : "endless"'; echo; echo here`)
	if got != "bounded\nhere" {
		t.Errorf("got %q", got)
	}
	for _, n := range limits(t, e.Dir, string(sb.ID())) {
		if n > 16384 {
			t.Errorf("a process of the box may have %d files of the host open", n)
		}
	}
	if n := log.count("tried its way out"); n < 1 || n > 20 {
		t.Errorf("the host's log has %d lines of it", n)
	}
	if got := sh(t, neighbour, sandbox.User, "echo fine"); got != "fine" {
		t.Errorf("the neighbour says %q", got)
	}
}

// The right to mount, by which PID 1 bounds the files, is gone before the first
// command: from each of its threads, and from whatever it starts.
func TestPID1CannotMount(t *testing.T) {
	for _, p := range []engine.Profile{engine.Job, engine.E2B} {
		t.Run(string(p), func(t *testing.T) {
			e := enginetest.Start(t, func(c *engine.Config) { c.Profile = p })
			got := sh(t, boot(t, e), sandbox.Root, "cat /proc/1/task/*/status /proc/self/status")
			sets := 0
			for line := range strings.Lines(got) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
				if !strings.HasPrefix(name, "Cap") {
					continue
				}
				sets++
				set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				const setPCap, sysAdmin = 1 << 8, 1 << 21
				if set&sysAdmin != 0 || p == engine.Job && set&setPCap != 0 {
					t.Errorf("%s: %x", name, set)
				}
			}
			if sets < 10 {
				t.Errorf("%d sets were seen: %q", sets, got)
			}
		})
	}
}

// limits are how many files each process of a box may have open on the host.
func limits(t *testing.T, dir, id string) []int {
	t.Helper()
	groups, err := enginetest.Groups(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, g := range groups {
		if filepath.Base(g) != id {
			continue
		}
		procs, err := os.ReadFile(filepath.Join(g, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(procs)) {
			data, err := os.ReadFile("/proc/" + pid + "/limits")
			if err != nil {
				continue // it has ended
			}
			for line := range strings.Lines(string(data)) {
				if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
					n, err := strconv.Atoi(strings.Fields(rest)[1])
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, n)
				}
			}
		}
	}
	if len(all) < 2 {
		t.Fatalf("%d processes of the box were found", len(all))
	}
	return all
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// line is the first that holds all of what.
func (b *lockedBuffer) line(what ...string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for line := range strings.Lines(b.buf.String()) {
		for _, w := range what {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		return line
	}
	return ""
}

func (b *lockedBuffer) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), what)
}
