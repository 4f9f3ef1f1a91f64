package envd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"dreamcore"
)

// move renames from to to, as the calling thread's user. A box has several file
// systems (its root, /tmp, the workspace) which clients do not see: between two
// of them it copies, keeping modes, times, links and attributes, and removes the
// original last.
func move(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	// The copy is made beside the destination, so that what appears there is
	// whole, and is or is not allowed to replace what stands there as any rename.
	stage := filepath.Join(path.Dir(to), ".moving-"+dreamcore.NewToken(20))
	if err = duplicate(from, stage); err == nil {
		err = os.Rename(stage, to)
	}
	if err != nil {
		_ = os.RemoveAll(stage) // the reason why it failed counts
		return fmt.Errorf("move %q: %w", clip(from, 256), err)
	}
	return os.RemoveAll(from)
}

// duplicate copies one file or folder with everything in it.
func duplicate(from, to string) error {
	fi, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch fi.Mode().Type() {
	case 0:
		err = duplicateFile(from, to)
	case fs.ModeDir:
		err = duplicateFolder(from, to)
	case fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to) // a link's mode and times mean nothing
	case fs.ModeNamedPipe:
		err = unix.Mkfifo(to, 0o600)
	default:
		err = fmt.Errorf("%q is a device or a socket: %w", clip(from, 256), unix.EINVAL)
	}
	if err != nil {
		return err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	if err := os.Chmod(to, fi.Mode()); err != nil {
		return err
	}
	duplicateAttributes(from, to)
	return os.Chtimes(to, fi.ModTime(), fi.ModTime())
}

func duplicateFile(from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func duplicateFolder(from, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := duplicate(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// duplicateAttributes copies what users set on a file. A file system that keeps
// no attributes loses them, as with any other program that moves files.
func duplicateAttributes(from, to string) {
	// What cannot be listed is lost like it.
	names, _ := attributes("", func(buf []byte) (int, error) { return unix.Llistxattr(from, buf) })
	value := make([]byte, 64<<10)
	for _, name := range names {
		if k, err := unix.Lgetxattr(from, name, value); err == nil {
			_ = unix.Lsetxattr(to, name, value[:k], 0)
		}
	}
}
