package image

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leftover are what packages, apt and the machine leave behind: caches, logs,
// settings of the build, and everything that would differ on another machine.
// A trailing slash empties the folder and keeps it.
var leftover = []string{
	"dev/", "proc/", "sys/", "run/", "tmp/", "boot/", "media/", "mnt/", "srv/",
	"var/cache/", "var/log/", "var/tmp/", "var/lib/apt", "var/lib/systemd", "var/lib/dbus",
	"var/lib/dpkg/status-old", "var/lib/dpkg/available", "var/lib/dpkg/available-old", "var/lib/dpkg/diversions-old",
	"var/lib/dpkg/statoverride-old", "var/lib/dpkg/lock", "var/lib/dpkg/lock-frontend", "var/lib/dpkg/triggers/Lock",
	"etc/apt", "etc/dpkg/dpkg.cfg.d/", "etc/resolv.conf", "etc/hostname", "etc/hosts", "etc/machine-id", "etc/mtab",
	"etc/.pwd.lock", "etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-",
	"root/",
}

// mountPoint is where a sandbox finds its host. It is part of the image because
// runsc makes a missing one in the image's own folder, which nothing may write.
const mountPoint = "run/dreamcore"

// User of the sandbox.
const (
	userName = "user"
	userID   = 1000
)

// finish turns a freshly installed root into the image's tree: trimmed, with
// its user, without set-id bits, and the same on every machine.
func finish(root *os.Root, def Definition, c Contents) error {
	for _, p := range leftover {
		if err := empty(root, p); err != nil {
			return fmt.Errorf("trim %s: %w", p, err)
		}
	}
	if err := root.Mkdir(mountPoint, 0o700); err != nil {
		return fmt.Errorf("make the mount point: %w", err)
	}
	if err := addUser(root); err != nil {
		return fmt.Errorf("add the user: %w", err)
	}
	data, err := encodeIndented(c)
	if err != nil {
		return fmt.Errorf("encode contents: %w", err)
	}
	files := map[string][]byte{
		contentsPath: data,
		// The second name is what a sandbox calls itself; sudo asks for it.
		"etc/hosts": []byte("127.0.0.1 localhost sandbox\n::1 localhost\n"),
	}
	for name, text := range def.notices {
		files[path.Dir(contentsPath)+"/"+name] = text
	}
	for name, data := range files {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := root.WriteFile(name, data, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return normalise(root)
}

// empty removes p, or what is in it when it ends in a slash.
func empty(root *os.Root, p string) error {
	dir, keep := strings.CutSuffix(p, "/")
	if !keep {
		return root.RemoveAll(p)
	}
	info, err := root.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || !info.IsDir() {
		return errors.Join(err, fmt.Errorf("%s is no folder", dir))
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	for _, e := range entries {
		err = errors.Join(err, root.RemoveAll(dir+"/"+e.Name()))
	}
	return err
}

// addUser adds the sandbox's one user with its home, and the empty workspace.
func addUser(root *os.Root) error {
	// "x" sends whoever checks the account to etc/shadow, "*" is no password too.
	locked := "x"
	if _, err := root.Lstat("etc/shadow"); errors.Is(err, fs.ErrNotExist) {
		locked = "*"
	}
	for name, line := range map[string]string{
		"etc/passwd": fmt.Sprintf("%s:%s:%d:%d:%[1]s:/home/%[1]s:/bin/bash", userName, locked, userID, userID),
		"etc/group":  fmt.Sprintf("%s:x:%d:", userName, userID),
		"etc/shadow": userName + ":!::0:99999:7:::",
	} {
		data, err := root.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) && name == "etc/shadow" {
			continue // without it there are no passwords at all
		}
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		if name == "etc/shadow" {
			// The third field is the day of the last change of the password: of
			// the build, that is. Nobody has a password, and an empty day says so; day
			// 0 would ask for a new one, and with it sudo refuses.
			for i, l := range lines {
				if f := strings.Split(l, ":"); len(f) == 9 {
					f[2] = ""
					lines[i] = strings.Join(f, ":")
				}
			}
		}
		lines = append(lines, line)
		if err := root.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			return err
		}
	}
	home := "home/" + userName
	for _, dir := range []string{home, "workspace"} {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := root.Lchown(dir, userID, userID); err != nil {
			return err
		}
	}
	skel, err := fs.ReadDir(root.FS(), "etc/skel")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range skel {
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		var data []byte
		if data, err = root.ReadFile("etc/skel/" + e.Name()); err == nil {
			to := home + "/" + e.Name()
			err = errors.Join(root.WriteFile(to, data, 0o644), root.Lchown(to, userID, userID))
		}
	}
	return err
}

// normalise takes away set-id bits and file capabilities (nothing in a sandbox
// gains privileges), and gives what the build made, and all folders, the same
// time everywhere. Files from packages keep theirs: Python compares them with
// its compiled files'.
func normalise(root *os.Root) error {
	type dir struct{ path string }
	var dirs []dir
	err := fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := root.Name() + "/" + p
		switch info.Mode().Type() {
		case fs.ModeSymlink:
			return setLinkTime(name)
		case fs.ModeDir:
			dirs = append(dirs, dir{p})
		case 0:
			if err := unix.Lremovexattr(name, "security.capability"); err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP) {
				return fmt.Errorf("take the capabilities of %s: %w", p, err)
			}
			if st, ok := info.Sys().(*syscall.Stat_t); !ok || packaged(st) {
				break
			}
			if err := root.Chtimes(p, epoch, epoch); err != nil {
				return err
			}
		default:
			return root.Remove(p) // a device or socket that a script made
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			return root.Chmod(p, info.Mode()&(fs.ModePerm|fs.ModeSticky))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("normalise: %w", err)
	}
	slices.SortFunc(dirs, func(a, b dir) int { return cmp.Compare(len(b.path), len(a.path)) })
	for _, d := range dirs {
		if err := root.Chtimes(d.path, epoch, epoch); err != nil {
			return fmt.Errorf("normalise: %w", err)
		}
	}
	return nil
}

// packaged reports whether a file has the time that its package gave it: its
// contents are then older than its inode.
func packaged(st *syscall.Stat_t) bool {
	modified := time.Unix(st.Mtim.Unix())
	changed := time.Unix(st.Ctim.Unix())
	return changed.Sub(modified) > time.Hour
}

func setLinkTime(name string) error {
	ts := []unix.Timespec{unix.NsecToTimespec(epoch.UnixNano()), unix.NsecToTimespec(epoch.UnixNano())}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set the time of %s: %w", name, err)
	}
	return nil
}
