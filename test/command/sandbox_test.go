package command

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// exec is the command itself as far as a script can tell: streams, exit codes,
// signals, users, folders, variables.
func TestExec(t *testing.T) {
	w := newWorld(t)
	w.serve()
	id := w.must("sandbox", "create", "-e", "GIVEN=at boot")
	for _, c := range []struct {
		input string
		args  []string
		want  result
	}{
		{"", []string{"--", "sh", "-c", "echo out; echo err >&2; exit 7"}, result{7, "out\n", "err\n"}},
		{"line\n\x00\xff binary", []string{"cat"}, result{0, "line\n\x00\xff binary", ""}},
		{"unread", []string{"true"}, result{0, "", ""}},
		{"unread", []string{"-n", "cat"}, result{0, "", ""}},
		{"", []string{"-u", "root", "-w", "/etc", "-e", "A=b c", "--", "sh", "-c", `echo "$(id -un) $PWD $A $GIVEN"`}, result{0, "root /etc b c at boot\n", ""}},
		{"", []string{"--", "sh", "-c", "kill -TERM $$"}, result{143, "", ""}},
		{"", []string{"--", "sh", "-c", "kill -KILL $$"}, result{137, "", ""}},
		{"", []string{"--", "printf", "%s|", "a b", "--", "-x"}, result{0, "a b|--|-x|", ""}},
	} {
		if got := w.run(c.input, append([]string{"sandbox", "exec", id}, c.args...)...); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.args, got, c.want)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{id, "no-such-command"}, 127, "no-such-command"},
		{[]string{id, "/etc/passwd"}, 126, "/etc/passwd"},
		{[]string{id, "-w", "/no/such/folder", "true"}, 125, "folder"},
		{[]string{id, "-u", "nosuchuser", "true"}, 125, "user"},
		{[]string{"nosuchsandbox", "true"}, 125, "no sandbox nosuchsandbox"},
		{[]string{id}, 125, "sandbox exec ID"},
		{[]string{id, "ls", "-l"}, 125, "-l"},
		{[]string{id, "--timeout", "1s", "sleep", "1000"}, 125, "1s"},
	} {
		if got := w.run("", append([]string{"sandbox", "exec"}, c.args...)...); got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%q: %+v, want code %d and %q", c.args, got, c.code, c.says)
		}
	}
	big := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB
	if got := w.run(big, "sandbox", "exec", id, "cat"); got.out != big || got.code != 0 {
		t.Errorf("of %d bytes %d came back, code %d, %s", len(big), len(got.out), got.code, got.err)
	}
}

// When nobody reads the output any more, and when Ctrl-C comes, the command ends
// in the sandbox too.
func TestExecEndsTheCommand(t *testing.T) {
	w := newWorld(t)
	w.serve()
	id := w.must("sandbox", "create")
	gone := func(what string) {
		t.Helper()
		until := time.Now().Add(patience)
		for w.run("", "sandbox", "exec", id, "--", "sh", "-c", "pgrep -x "+what).code == 0 {
			if time.Now().After(until) {
				t.Fatalf("%s goes on", what)
			}
		}
	}
	yes := w.command("sandbox", "exec", id, "yes")
	out, err := yes.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := yes.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := yes.Wait(); yes.ProcessState.ExitCode() != 141 {
		t.Errorf("without a reader: %v", err)
	}
	gone("yes")

	sleep := w.command("sandbox", "exec", id, "--", "sh", "-c", "echo begun; exec sleep 1000")
	if out, err = sleep.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	if err := sleep.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := sleep.Wait(); sleep.ProcessState.ExitCode() != 130 {
		t.Errorf("after Ctrl-C: %v", err)
	}
	gone("sleep")
}

// -t is a real terminal: it has our size, follows it, echoes, and takes keys
// such as Ctrl-C as keys.
func TestExecWithTerminal(t *testing.T) {
	w := newWorld(t)
	w.serve()
	id := w.must("sandbox", "create")
	ours, theirs := openTerminal(t, 100, 30)
	cmd := w.command("sandbox", "exec", "-t", id, "--", "bash", "-c",
		`trap 'echo interrupted' INT; trap 'stty size' WINCH; tty; stty size; echo term $TERM; while read -r line; [ "$line" != bye ]; do echo "got $line"; done; exit 5`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	var seen strings.Builder
	more := func(what string) {
		t.Helper()
		if err := ours.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, err := ours.Read(buf)
		if err != nil {
			t.Fatalf("waiting for %q: %v; seen %q", what, err, seen.String())
		}
		seen.Write(buf[:n])
	}
	expect := func(want string) {
		t.Helper()
		for !strings.Contains(seen.String(), want) {
			more(want)
		}
		_, rest, _ := strings.Cut(seen.String(), want)
		seen.Reset()
		seen.WriteString(rest)
	}
	send := func(s string) {
		t.Helper()
		if _, err := ours.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	expect("/dev/pts/")
	expect("30 100")
	expect("term xterm")
	send("hello\r")
	expect("got hello")
	if err := unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 77, Row: 22}); err != nil {
		t.Fatal(err)
	}
	// A trap runs when the shell has something to do.
	for n := 1; !strings.Contains(seen.String(), "22 77"); n++ {
		send("again\r")
		for strings.Count(seen.String(), "got again") < n {
			more("got again")
		}
	}
	send("\x03")
	send("after\r")
	expect("interrupted")
	send("bye\r")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("it ended with %v; seen %q", err, seen.String())
	}
}

// openTerminal returns the two ends of a terminal.
func openTerminal(t *testing.T, columns, rows uint16) (ours, theirs *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { ours.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
	if theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	return ours, theirs
}

// cp keeps contents, modes and links both ways, puts things where cp does, and
// nothing that a sandbox sends lands outside of the target.
func TestCopy(t *testing.T) {
	w := newWorld(t)
	w.serve()
	id := w.must("sandbox", "create")
	dir := t.TempDir()
	src := filepath.Join(dir, "proj")
	for _, err := range []error{
		os.MkdirAll(src+"/sub", 0o755), os.WriteFile(src+"/sub/猫 x", []byte(strings.Repeat("z", 3<<20)), 0o640), os.WriteFile(src+"/run", []byte("#!/bin/sh\necho ran\n"), 0o755),
		os.Symlink("run", src+"/link"), os.Chmod(src+"/sub", 0o700), os.WriteFile(dir+"/-dash", []byte("d"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.must("sandbox", "cp", src, id+":/workspace")
	if got := w.must("sandbox", "exec", id, "--", "sh", "-c", `cd /workspace/proj && ./link && stat -c '%a %s %U' sub run 'sub/猫 x' && readlink link`); got != "ran\n700 60 user\n755 19 user\n640 3145728 user\nrun" {
		// The size of a folder is the file system's affair.
		if !strings.HasPrefix(got, "ran\n700 ") || !strings.HasSuffix(got, " user\n755 19 user\n640 3145728 user\nrun") {
			t.Errorf("in the sandbox: %q", got)
		}
	}
	w.must("sandbox", "cp", dir+"/-dash", id+":made/by/cp")                // a new name below home, folders made
	w.must("sandbox", "cp", "-u", "root", src+"/.", id+":/opt")            // what is in it, as root
	w.must("sandbox", "cp", id+":made/by/cp", filepath.Join(dir, "back1")) // a file, renamed
	w.must("sandbox", "cp", id+":/workspace/proj", dir+"/new")             // a folder, renamed
	if err := os.Mkdir(dir+"/into", 0o755); err != nil {
		t.Fatal(err)
	}
	w.must("sandbox", "cp", id+":/workspace/proj", dir+"/into")
	w.must("sandbox", "cp", "-u", "root", id+":/opt/.", dir+"/inner")
	if out, err := exec.Command("diff", "-r", src, dir+"/new").CombinedOutput(); err != nil {
		t.Errorf("it came back otherwise: %s", out)
	}
	for _, p := range []string{"back1", "new/sub/猫 x", "into/proj/run", "inner/run"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			t.Error(err)
		}
	}
	for p, want := range map[string]os.FileMode{"new/sub": os.ModeDir | 0o700, "new/run": 0o755, "new/sub/猫 x": 0o640, "back1": 0o600, "new/link": os.ModeSymlink | 0o777} {
		if info, err := os.Lstat(filepath.Join(dir, p)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", p, info.Mode(), err)
		}
	}

	// What no archive holds is left out, and that is said.
	mixed := filepath.Join(dir, "mixed")
	for _, err := range []error{os.Mkdir(mixed, 0o755), syscall.Mkfifo(mixed+"/pipe", 0o600), os.WriteFile(mixed+"/file", []byte("f"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := w.run("", "sandbox", "cp", mixed, id+":/workspace"); got.code != 1 || !strings.Contains(got.err, "mixed/pipe") || !strings.Contains(got.err, "not everything") {
		t.Errorf("a pipe was left out: %+v", got)
	}
	w.must("sandbox", "exec", id, "--", "sh", "-c", "cd /workspace/mixed && test -f file && ln -s /etc out")
	if got := w.run("", "sandbox", "cp", id+":/workspace/mixed", dir+"/mixed2"); got.code != 1 || !strings.Contains(got.err, "mixed/out") || !strings.Contains(got.err, "not everything") {
		t.Errorf("a link was left out: %+v", got)
	}

	// The sandbox turns hostile: its tar is a program of its own.
	hostile := filepath.Join(dir, "hostile")
	script := "#!/usr/bin/python3\nimport tarfile, io, sys\nt = tarfile.open(fileobj=sys.stdout.buffer, mode='w|')\n" +
		"def add(name, kind=tarfile.REGTYPE, link='', data=b'evil'):\n i = tarfile.TarInfo(name); i.type = kind; i.linkname = link; i.size = len(data) if kind == tarfile.REGTYPE else 0; t.addfile(i, io.BytesIO(data))\n" +
		"add('x/../../secret'); add('../secret'); add('/secret'); add('x/up', tarfile.SYMTYPE, '..'); add('x/up/secret'); add('x/\\x1b[2Jname\\u202e', tarfile.FIFOTYPE); add('x/good')\nt.close()\n"
	if err := os.WriteFile(hostile, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	w.must("sandbox", "cp", "-u", "root", hostile, id+":/usr/bin/nottar")
	w.must("sandbox", "exec", "-u", "root", id, "--", "mv", "/usr/bin/nottar", "/usr/bin/tar")
	if err := os.WriteFile(dir+"/secret", []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := w.run("", "sandbox", "cp", id+":/workspace/x", dir+"/x")
	if data, err := os.ReadFile(dir + "/secret"); string(data) != "mine" {
		t.Errorf("the secret is %q, %v", data, err)
	}
	if data, err := os.ReadFile(dir + "/x/good"); string(data) != "evil" {
		t.Errorf("what was good did not come: %q, %v, %+v", data, err, got)
	}
	if strings.ContainsAny(got.err+got.out, "\x1b\u202e") || !strings.Contains(got.err, "left out") {
		t.Errorf("it printed %q", got.err)
	}
	for _, args := range [][]string{{"a", "b"}, {id + ":/a", id + ":/b"}, {id + ":/a"}} {
		if got := w.run("", append([]string{"sandbox", "cp"}, args...)...); got.code != 2 {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := w.run("", "sandbox", "cp", dir+"/no-such-file", id+":/x"); got.code != 1 || !strings.Contains(got.err, "no-such-file") {
		t.Errorf("a missing file: %+v", got)
	}

	// A copy that is interrupted leaves no half file.
	stuck := "#!/usr/bin/python3\nimport tarfile, sys, time\ni = tarfile.TarInfo('big'); i.size = 1 << 20\n" +
		"sys.stdout.buffer.write(i.tobuf() + b'x' * 5000); sys.stdout.flush(); time.sleep(1000)\n"
	if got := w.run(stuck, "sandbox", "exec", "-u", "root", id, "--", "sh", "-c", "cat > /usr/bin/tar"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	half := t.TempDir()
	cmd := w.command("sandbox", "cp", id+":/workspace/big", half+"/big")
	var said lines
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if parts, err := filepath.Glob(half + "/.*"); err == nil && len(parts) > 0 {
			break
		}
		if time.Since(begun) > patience {
			t.Error("nothing is being copied")
			break
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended: then its code is another
	_ = cmd.Wait()
	if left, err := os.ReadDir(half); err != nil || len(left) > 0 || cmd.ProcessState.ExitCode() != 130 || !strings.Contains(said.String(), "Nothing was left behind") {
		t.Errorf("interrupted: %v are left, %v, code %d, it said %q", left, err, cmd.ProcessState.ExitCode(), said.String())
	}
}

// ls, logs and kill tell the truth, and print nothing that a terminal obeys.
func TestListLogsKill(t *testing.T) {
	w := newWorld(t)
	e := w.serve("--max-sandboxes", "2")
	id := w.must("sandbox", "create", "-m", "who=\x1b[31mme\u202e", "-m", "n=1")
	other := w.must("sandbox", "create", "--timeout", "10m", "base")
	if r := w.run("", "sandbox", "create", "no-such-image"); r.code != 1 || !strings.Contains(r.err, "no-such-image") {
		t.Errorf("an image that is not there: %+v", r)
	}
	table := w.must("sandbox", "ls")
	if strings.ContainsAny(table, "\x1b\u202e") || strings.Count(table, "\n") != 2 || !strings.Contains(table, id) || !strings.Contains(table, other) || !strings.Contains(table, "who=[31mme") || !strings.Contains(table, "M/3072M") {
		t.Errorf("ls prints\n%s", table)
	}
	var list []struct {
		ID       string            `json:"id"`
		State    string            `json:"state"`
		Used     int64             `json:"memory_used_bytes"`
		Started  time.Time         `json:"started"`
		Ends     time.Time         `json:"ends"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal([]byte(w.must("sandbox", "ls", "--json")), &list); err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, s := range list {
		if s.State != "running" || s.Used < 1<<20 || !s.Ends.After(s.Started) || s.ID == id && s.Metadata["who"] != "\x1b[31mme\u202e" {
			t.Errorf("%+v", s)
		}
	}
	if r := w.run("", "sandbox", "exec", "-n", id, "--", "perl", "-e", `my @a; push @a, "x" x (8<<20) while 1`); r.code != 137 || !strings.Contains(r.err, "memory") {
		t.Errorf("a command that eats the memory: %+v", r)
	}
	if got := w.must("sandbox", "logs", id); !strings.Contains(got, "ended the biggest process") {
		t.Errorf("logs prints %q", got)
	}
	// -f goes on until the sandbox ends.
	follow := w.command("sandbox", "logs", "-f", id)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 20)); err != nil {
		t.Fatal(err)
	}
	if r := w.run("", "sandbox", "kill", id, "nosuchsandbox"); r.code != 1 || r.out != id+"\n" || !strings.Contains(r.err, "nosuchsandbox") {
		t.Errorf("kill: %+v", r)
	}
	rest, err := io.ReadAll(out)
	if werr := follow.Wait(); err != nil || werr != nil || strings.Contains(string(rest), "biggest process\" pid=0") {
		t.Errorf("logs -f: %v, %v", err, werr)
	}
	if strings.Count(string(rest), "ended the biggest process") > 1 {
		t.Errorf("logs -f repeats itself: %q", rest)
	}
	if got := w.must("sandbox", "kill", "--all"); got != other {
		t.Errorf("kill --all: %q", got)
	}
	for _, args := range [][]string{{"kill"}, {"kill", "--all", id}, {"frob"}, {"logs"}, {}, {"ls", "--frob"}} {
		if got := w.run("", append([]string{"sandbox"}, args...)...); got.code != 2 || !strings.Contains(got.err, "sandbox kill") {
			t.Errorf("%q: %+v", args, got)
		}
	}
	res, err := http.Get(e.vars["E2B_API_URL"] + "/v2/sandboxes")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the key: %s", res.Status)
	}
}
