package image

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFinishLeavesNothingOfTheMachine(t *testing.T) {
	dir := plant(t, append(append([]node{}, small...), []node{
		{path: "etc/passwd", data: "root:x:0:0:root:/root:/bin/bash\n"},
		{path: "etc/group", data: "root:x:0:\n"},
		{path: "etc/shadow", data: "root:*:20600:0:99999:7:::\n"},
		{path: "etc/passwd-", data: "old"},
		{path: "etc/resolv.conf", data: "nameserver 192.0.2.1\n"},
		{path: "etc/machine-id", data: "abc\n"},
		{path: "etc/apt/"}, {path: "etc/apt/sources.list", data: "deb copy:///x"},
		{path: "etc/skel/"}, {path: "etc/skel/.profile", data: "# profile\n"},
		{path: "var/"}, {path: "var/log/"}, {path: "var/log/dpkg.log", data: "today"},
		{path: "var/cache/"}, {path: "var/cache/ldconfig/"}, {path: "var/cache/ldconfig/aux-cache", data: "inodes"},
		{path: "dev/"}, {path: "run/"}, {path: "run/lock/"}, {path: "tmp/x", data: "x"},
		{path: "usr/bin/su", data: "su", mode: 0o755 | os.ModeSetuid}, {path: "usr/bin/mail", data: "m", mode: 0o755 | os.ModeSetgid},
		{path: "usr/local/", mode: 0o775 | os.ModeSetgid},
		{path: "usr/bin/old", data: "from a package", mode: 0o755},
	}...))
	packageTime := time.Unix(1_600_000_000, 0)
	capable := []byte{1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, err := range []error{
		unix.Mknod(dir+"/dev/null", syscall.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Mkfifo(dir+"/etc/pipe", 0o600),
		os.Chtimes(dir+"/usr/bin/old", packageTime, packageTime),
		unix.Lsetxattr(dir+"/usr/bin/true", "security.capability", capable, 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := finish(root, Definition{notices: map[string][]byte{"tool.txt": []byte("MIT")}}, Contents{AgentName: "pi"}); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"etc/passwd-", "etc/resolv.conf", "etc/machine-id", "etc/apt", "etc/pipe", "var/log/dpkg.log", "var/cache/ldconfig", "dev/null", "run/lock", "tmp/x"} {
		if _, err := root.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
	for name, want := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n",
		"etc/group":  "root:x:0:\nuser:x:1000:\n",
		"etc/shadow": "root:*::0:99999:7:::\nuser:!::0:99999:7:::\n",
		"etc/hosts":  "127.0.0.1 localhost sandbox\n::1 localhost\n",

		"home/user/.profile":               "# profile\n",
		"usr/share/doc/dreamcore/tool.txt": "MIT",
	} {
		if data, err := root.ReadFile(name); err != nil || string(data) != want {
			t.Errorf("%s holds %q, %v", name, data, err)
		}
	}
	for name, owner := range map[string]uint32{"workspace": 1000, "run/dreamcore": 0, "home/user": 1000, "home/user/.profile": 1000, "usr/bin/su": 0} {
		info, err := root.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != owner {
			t.Errorf("%s belongs to %d", name, st.Uid)
		}
	}
	if c, err := readContents(dir); err != nil || c.AgentName != "pi" {
		t.Errorf("contents %+v, %v", c, err)
	}
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s is %v", p, info.Mode())
		}
		want := epoch
		if p == "usr/bin/old" {
			want = packageTime
		}
		if !info.ModTime().Equal(want) {
			t.Errorf("%s has the time %v", p, info.ModTime())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Lgetxattr(dir+"/usr/bin/true", "security.capability", nil); err == nil {
		t.Errorf("a file capability stayed, %d bytes", n)
	}
	if info, err := root.Stat("tmp"); err != nil || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("tmp is %v, %v", info.Mode(), err)
	}
}

func TestEmptyRefusesALinkInPlaceOfAFolder(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/keep", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(plant(t, []node{{path: "var", link: outside}, {path: "run", link: outside}}))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := empty(root, "run/"); err == nil || !strings.Contains(err.Error(), "no folder") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(outside + "/keep"); err != nil {
		t.Error(err)
	}
}
