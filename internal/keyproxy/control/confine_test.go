package control

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel says of the process: another user, nothing it could use to
// become more, no descriptors and no environment of ours, a folder of its own.
func TestTheProcessIsConfined(t *testing.T) {
	t.Setenv("OPERATOR_SECRET", canary)
	// A descriptor that somebody left open.
	leak, err := unix.Open("/etc/hostname", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	w := newWorld(t)
	w.passes()
	pid := w.h.PID()
	proc := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	is := func(field string) string {
		_, rest, _ := strings.Cut("\n"+string(status), "\n"+field+":")
		value, _, _ := strings.Cut(rest, "\n")
		return strings.Join(strings.Fields(value), " ")
	}
	const none = "0000000000000000"
	want := map[string]string{"NoNewPrivs": "1"}
	if user := trialUser(); user != nil {
		four := strings.TrimSpace(strings.Repeat(fmt.Sprint(user.UID)+" ", 4))
		want["Uid"], want["Gid"], want["Groups"] = four, four, ""
		want["CapInh"], want["CapPrm"], want["CapEff"], want["CapBnd"], want["CapAmb"] = none, none, none, none, none
	} else {
		t.Log("without root the proxy shares our user")
	}
	for field, v := range want {
		if is(field) != v {
			t.Errorf("%s is %q, not %q", field, is(field), v)
		}
	}
	if umask := is("Umask"); umask != "0077" {
		t.Errorf("the umask is %s", umask)
	}
	if env, err := os.ReadFile(proc + "environ"); err != nil || len(env) > 0 {
		t.Errorf("the environment is %q, %v", env, err)
	}
	limits, err := os.ReadFile(proc + "limits")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Max core file size", "Max locked memory"} {
		_, rest, _ := strings.Cut(string(limits), name)
		line, _, _ := strings.Cut(rest, "\n")
		if f := strings.Fields(line); len(f) < 2 || f[0] != "0" || f[1] != "0" {
			t.Errorf("%s: %q", name, line)
		}
	}
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fds {
		to, err := os.Readlink(proc + "fd/" + e.Name())
		if err != nil {
			continue // it was closed meanwhile
		}
		own := to == "/dev/null" || strings.HasPrefix(to, "socket:") || strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "anon_inode:") ||
			strings.HasPrefix(to, "/sys/fs/cgroup/") || // the runtime looks how many processors there are
			strings.HasPrefix(to, w.dir+"/")
		if !own || strings.HasPrefix(to, w.key) {
			t.Errorf("descriptor %s is %s", e.Name(), to)
		}
	}
	// Not dumpable: what is in its memory is root's to see only.
	if info, err := os.Stat(proc + "mem"); err != nil || trialUser() != nil && info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("its memory: %v %v", info, err)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("it is in the session %d, %v: Ctrl-C would reach it", sid, err)
	}
	if pgid, _ := unix.Getpgid(pid); pgid != pid {
		t.Errorf("it is in the group %d", pgid)
	}
	info, err := os.Stat(w.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v %v", info, err)
	}
	files, err := os.ReadDir(w.dir)
	if err != nil || len(files) < 3 {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f.Name(), info.Mode(), err)
		}
		if user := trialUser(); user != nil && int(info.Sys().(*syscall.Stat_t).Uid) != user.UID {
			t.Errorf("%s is another's", f.Name())
		}
	}
	if strings.Contains(w.log.String(), canary) {
		t.Error("the log holds the key")
	}
}

// Our own threads keep what the proxy's may not have.
func TestTheHostGivesNothingUp(t *testing.T) {
	w := newWorld(t)
	// The threads of former proxies' parents may not have ended yet, and the
	// first thread of a program never does.
	w.until("all threads but the parent's have what they had", func() bool {
		tasks, err := filepath.Glob("/proc/self/task/*/status")
		if err != nil || len(tasks) < 2 {
			t.Fatalf("%v %v", tasks, err)
		}
		given := 0
		for _, task := range tasks {
			data, err := os.ReadFile(task)
			if err == nil && strings.Contains(string(data), "NoNewPrivs:\t1") && !strings.Contains(string(data), fmt.Sprintf("\nPid:\t%d\n", os.Getpid())) {
				given++
			}
		}
		return given <= 1
	})
}
