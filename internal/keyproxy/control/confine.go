package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits of the proxy's process.
const (
	openFiles = 16 << 10 // two or three for each call
	fileBytes = 16 << 30 // of the ledger or one audit file
	blockMask = 0o077
)

// errByHand is what a person gets who runs the proxy's command.
var errByHand = errors.New("the key proxy is started by a running DreamCore and not by hand")

// Main is the whole life of the proxy's process: it confines itself, then
// serves the host that started it, until that is gone or ctx ends. ByHand(err)
// tells the mistake of a person who started it.
func Main(ctx context.Context, builtIn BuiltIn) error {
	w, err := inherit()
	if err != nil {
		return err
	}
	level := &slog.LevelVar{}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if err := confine(); err != nil {
		return err
	}
	return serve(ctx, w, builtIn, log, level)
}

// ByHand reports whether err only says that nobody should start the proxy.
func ByHand(err error) bool { return errors.Is(err, errByHand) }

// inherit takes the host's socket, and sees that it is the host's.
func inherit() (*wire, error) {
	// Any descriptor may stand there when a person runs the command.
	domain, err := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX {
		return nil, errByHand
	}
	f := os.NewFile(controlFD, "control")
	defer func() { _ = f.Close() }() // the wire has a copy
	w, err := newWire(f)
	if err != nil {
		return nil, errors.Join(errByHand, err)
	}
	cred, err := w.peer()
	if err != nil || int(cred.Pid) != os.Getppid() || cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		return nil, errors.Join(errByHand, w.close())
	}
	return w, nil
}

// confine gives up what the process does not need. What only a parent can take
// (the user, new privileges, capabilities) the host has taken before, and sees
// to it afterwards; here it is looked at again.
func confine() error {
	if len(os.Environ()) > 0 {
		return errors.New("the key proxy has an environment")
	}
	syscall.Umask(blockMask)
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hide the key proxy's memory: %w", err)
	}
	for _, l := range []struct {
		what int
		most uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, openFiles}, {unix.RLIMIT_FSIZE, fileBytes}, {unix.RLIMIT_MEMLOCK, 0}} {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.what, &now); err != nil {
			return fmt.Errorf("limit the key proxy: %w", err)
		}
		most := min(l.most, now.Max)
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit the key proxy: %w", err)
		}
	}
	// The folder's path may lead through folders that only root may pass.
	if err := unix.Fchdir(folderFD); err != nil {
		return fmt.Errorf("enter the key proxy's folder: %w", err)
	}
	return unix.Close(folderFD)
}
