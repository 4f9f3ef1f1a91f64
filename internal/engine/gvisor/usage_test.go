package gvisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tree is a fake control-group file system.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The same box is read the same from either version of control groups.
func TestUsage(t *testing.T) {
	want := Usage{CPU: 1500 * time.Millisecond, MemoryBytes: 1000 - 300, CacheBytes: 300, OwnBytes: 500}
	dir := tree(t, map[string]string{
		"memory/ours/b/memory.usage_in_bytes": "1000\n",
		"memory/ours/b/memory.stat":           "cache 900\nactive_file 1\ninactive_file 1\ntotal_active_file 100\ntotal_inactive_file 200\nrss 1\ntotal_rss 500\n",
		"cpuacct/ours/b/cpuacct.usage":        "1500000000\n",
	})
	one := &cgroups{parent: "ours", mounts: map[string]string{"memory": dir + "/memory", "cpuacct": dir + "/cpuacct", "cpu": dir + "/cpu"}}
	if got, err := one.usage("b"); err != nil || got != want {
		t.Errorf("version 1: %+v, %v", got, err)
	}
	two := &cgroups{v2: true, parent: "ours", mounts: map[string]string{"": tree(t, map[string]string{
		"ours/b/memory.current": "1000\n",
		"ours/b/memory.stat":    "anon 500\nfile 900\nactive_file 100\ninactive_file 200\n",
		"ours/b/cpu.stat":       "usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n",
		"ours/c/memory.current": "1000\n",
		"ours/c/memory.stat":    "anon 500\n",
		"ours/c/cpu.stat":       "user_usec 1\n",
	})}}
	if got, err := two.usage("b"); err != nil || got != want {
		t.Errorf("version 2: %+v, %v", got, err)
	}
	for _, id := range []string{"c", "none"} {
		if got, err := two.usage(id); err == nil {
			t.Errorf("%s: %+v", id, got)
		}
	}
}

// Whoever has waited and is handed out gets the share of all others.
func TestShares(t *testing.T) {
	dir := tree(t, map[string]string{"ours/b/cpu.shares": "2", "ours/b/cpu.weight": "1"})
	for file, c := range map[string]*cgroups{
		"cpu.shares": {parent: "ours", mounts: map[string]string{"cpu": dir}},
		"cpu.weight": {parent: "ours", v2: true, mounts: map[string]string{"": dir}},
	} {
		if err := c.setShares("b"); err != nil {
			t.Fatal(err)
		}
		if err := c.setShares("not booted yet"); err != nil {
			t.Error(err)
		}
		want := map[string]string{"cpu.shares": "1024", "cpu.weight": "100"}[file]
		if data, err := os.ReadFile(filepath.Join(dir, "ours/b", file)); err != nil || string(data) != want {
			t.Errorf("%s is %q (%v)", file, data, err)
		}
	}
}
