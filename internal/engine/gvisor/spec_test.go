package gvisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// S07: what a box gets is written down here once more, so that no change to it
// goes unnoticed.
func TestS07SpecIsGolden(t *testing.T) {
	r := New(Config{Dir: "/engine", Limits: Limits{MemoryBytes: 1 << 30, CPUs: 1.5, Processes: 100, DiskBytes: 256 << 20}})
	r.cgroups = &cgroups{parent: "dreamcore-x"}
	got, err := r.spec("thebox", "/image/root", "/engine/box/thebox/control").encode()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/config.json")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.TrimSpace(string(want)), string(got)); d != "" {
		t.Errorf("the specification changed (-golden +now):\n%s", d)
	}
	flags := strings.Join(r.bootFlags("/engine/box/thebox/overlay"), " ")
	if want := "--root=/engine/runsc --platform=systrap --network=none --host-uds=open --overlay2=root:dir=/engine/box/thebox/overlay,size=268435456"; flags != want {
		t.Errorf("the flags changed:\n%s\n%s", want, flags)
	}
	for _, never := range []string{"allow-suid", "network=host", "network=sandbox", "host-uds=all", "host-uds=create", "TESTONLY"} {
		if strings.Contains(flags, never) {
			t.Errorf("the flags hold %s", never)
		}
	}
}

const (
	v1 = `22 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
23 22 0:21 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
24 22 0:22 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
25 22 0:23 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
26 22 0:24 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	v2 = `30 1 0:26 / %s rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
31 1 0:27 / / rw - ext4 /dev/vda rw
`
)

func TestFindCgroups(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	c, err := findCgroups(write("v1", v1), "ours")
	if err != nil {
		t.Fatal(err)
	}
	if c.v2 || c.mount("cpu") != "/sys/fs/cgroup/cpu,cpuacct" || c.mount("memory") != "/sys/fs/cgroup/memory" || len(c.dirs("x")) != 3 {
		t.Errorf("got %+v", c)
	}
	if _, err := findCgroups(write("v1-half", strings.ReplaceAll(v1, "rw,pids", "rw,net_cls")), "ours"); err == nil || !strings.Contains(err.Error(), "pids") {
		t.Errorf("without pids: %v", err)
	}
	if _, err := findCgroups(write("none", "31 1 0:27 / / rw - ext4 /dev/vda rw\n"), "ours"); err == nil {
		t.Error("found groups where none are")
	}
	root := filepath.Join(dir, "unified")
	info := write("v2", strings.ReplaceAll(v2, "%s", root))
	write("unified/cgroup.controllers", "cpuset cpu io\n")
	if _, err := findCgroups(info, "ours"); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("without memory: %v", err)
	}
	write("unified/cgroup.controllers", "cpuset cpu io memory pids\n")
	if c, err = findCgroups(info, "ours"); err != nil || !c.v2 || c.path("x") != "/ours/x" {
		t.Fatalf("got %+v, %v", c, err)
	}
	write("unified/ours/box1/cgroup.procs", "12\n34\n")
	write("unified/ours/box1/memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\n")
	write("unified/ours/box2/memory.events", "low 0\noom 1\noom_kill 2\noom_group_kill 0\n")
	write("unified/ours/box2/memory.current", "4096\n")
	if got := c.ids(); len(got) != 2 {
		t.Errorf("boxes %v", got)
	}
	if got := c.processes("box1"); len(got) != 2 || got[0] != 12 || got[1] != 34 {
		t.Errorf("processes %v", got)
	}
	if c.outOfMemory("box1") || !c.outOfMemory("box2") || c.outOfMemory("none") {
		t.Error("who ran out of memory is wrong")
	}
	if n, err := c.memoryBytes("box2"); n != 4096 || err != nil {
		t.Errorf("memory %d, %v", n, err)
	}
	one := &cgroups{mounts: map[string]string{"memory": filepath.Join(dir, "one")}, parent: "ours"}
	write("one/ours/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
	if !one.outOfMemory("b") {
		t.Error("version 1 does not tell")
	}
}
