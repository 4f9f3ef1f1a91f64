package envd

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"dreamcore/internal/envd/spec/process"
)

const (
	// defaultTerm is what a terminal calls itself when the request does not say.
	defaultTerm = "xterm-256color"
	// hangUp is how long after the end of its first process a terminal stays
	// open: until then it fails by itself once the last who has it open is gone.
	hangUp = 250 * time.Millisecond
	// ttyGroup owns terminals on Debian; write(1) and its like run as it.
	ttyGroup = 5
)

// openTerminal opens a new terminal that u owns.
func openTerminal(u user, size *process.PTY_Size) (stdio, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return stdio{}, fmt.Errorf("open a terminal: %w", err)
	}
	slave, err := openSlave(master, u)
	if err == nil && size != nil {
		err = resize(master, size)
	}
	if err != nil {
		if slave >= 0 {
			unix.Close(slave)
		}
		unix.Close(master)
		return stdio{}, fmt.Errorf("open a terminal: %w", err)
	}
	f := os.NewFile(uintptr(master), "terminal")
	return stdio{in: f, out: []output{{terminal, f}}, tty: f, child: [3]int{slave, slave, slave}}, nil
}

func openSlave(master int, u user) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlock it: %w", err)
	}
	n, err := unix.IoctlGetUint32(master, unix.TIOCGPTN)
	if err != nil {
		return -1, fmt.Errorf("read its number: %w", err)
	}
	slave, err := unix.Open("/dev/pts/"+strconv.FormatUint(uint64(n), 10), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// The user's programs open it again by its name: it must be theirs.
	if err := unix.Fchown(slave, int(u.uid), ttyGroup); err != nil {
		return slave, fmt.Errorf("give it to %s: %w", u.name, err)
	}
	if err := unix.Fchmod(slave, 0o620); err != nil {
		return slave, fmt.Errorf("give it to %s: %w", u.name, err)
	}
	return slave, nil
}

// resize sets the size of a terminal; its foreground programs learn it by
// SIGWINCH.
func resize(master int, size *process.PTY_Size) error {
	const most = 1<<16 - 1
	if size.GetCols() > most || size.GetRows() > most {
		return fmt.Errorf("a terminal has at most %d rows and columns: %w", most, unix.EINVAL)
	}
	return unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(size.GetRows()), Col: uint16(size.GetCols())})
}

// resize sets the size of the process's terminal.
func (p *running) resize(size *process.PTY_Size) error {
	if p.tty == nil {
		return errNoTerminal
	}
	raw, err := p.tty.SyscallConn()
	if err != nil {
		return os.ErrProcessDone
	}
	var rerr error
	if err := raw.Control(func(fd uintptr) { rerr = resize(int(fd), size) }); err != nil {
		return os.ErrProcessDone // closed with the process
	}
	return rerr
}
