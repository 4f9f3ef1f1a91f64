package main

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// ownHome gives name's home to name where it is somebody else's: in an image
// that an ordinary user imported, everything seems to be root's. An image
// without such a user is left as it is.
func ownHome(name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return nil // commands as that user fail by themselves, and say so
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	fi, err := os.Lstat(u.HomeDir)
	if err != nil {
		return nil // no home is the image's choice
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
		return nil
	}
	return filepath.WalkDir(u.HomeDir, func(p string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, uid, gid)
	})
}
