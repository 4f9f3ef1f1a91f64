package main

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bytesPerFile is how much of a folder's size there is for each file in it: a
// folder of 1 GiB holds 131,072 files, folders, links, pipes and sockets. gVisor
// keeps about 1.5 KiB of its own memory for each, which no process of the box is
// charged for: without a bound files end the box, and with one whoever makes them
// is told that no space is left.
const bytesPerFile = 8 << 10

// boundFiles mounts each folder that is kept in memory anew, with the same size
// and mode and so many files. runsc itself passes on no number of files.
func boundFiles(folders []string) error {
	for _, folder := range folders {
		var st unix.Statfs_t
		if err := unix.Statfs(folder, &st); err != nil {
			return fmt.Errorf("bound the files in %s: %w", folder, err)
		}
		var is unix.Stat_t
		if err := unix.Stat(folder, &is); err != nil {
			return fmt.Errorf("bound the files in %s: %w", folder, err)
		}
		size := int64(st.Blocks) * st.Bsize
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%o", size, max(size/bytesPerFile, 64), is.Mode&0o7777)
		if err := unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("bound the files in %s: %w", folder, err)
		}
	}
	return nil
}

// giveUpMounts takes the right to mount from this process and from all that it will
// start, for good. Giving up takes a right too, which goes the same way where no
// program may gain any.
func giveUpMounts() error {
	give := []uintptr{unix.CAP_SYS_ADMIN}
	fixed, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("ask whether programs gain privileges: %w", err)
	}
	if fixed == 1 {
		give = append(give, unix.CAP_SETPCAP) // last: the others need it
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	// Each thread has its own.
	for _, c := range give {
		if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0); errno != 0 {
			return fmt.Errorf("give up capability %d: %w", c, errno)
		}
		bit := uint32(1) << (c % 32)
		for _, set := range []*uint32{&sets[c/32].Effective, &sets[c/32].Permitted, &sets[c/32].Inheritable} {
			*set &^= bit
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0); errno != 0 {
		return fmt.Errorf("give up capabilities: %w", errno)
	}
	return nil
}
