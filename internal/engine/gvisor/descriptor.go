package gvisor

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// hostDescriptors bounds what each of a box's processes on the host may have open:
// files of the image that programs in the box hold open, each with one or two, and
// connections to the host's sockets. Those processes take all that the machine
// allows by themselves, and what one box opens without end is the whole machine's.
const hostDescriptors = 16384

// boundDescriptors bounds what the box's processes on the host may have open. What
// they start later inherits it.
func (b *Box) boundDescriptors() error {
	pids := []int{b.sandboxPID()}
	if b.r.cgroups != nil {
		pids = append(pids, b.r.cgroups.processes(b.ID)...)
	}
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		if pid <= 0 {
			continue
		}
		var has unix.Rlimit
		err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &has)
		if err == nil && has.Max > hostDescriptors {
			err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: hostDescriptors, Max: hostDescriptors}, nil)
		}
		// One that has ended needs no bound: they come and go with the box's own.
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("bound the open files of process %d: %w", pid, err)
		}
	}
	return nil
}
