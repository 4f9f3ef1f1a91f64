package envd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxTableBytes = 4 << 20
	// settled is how old a change to a table must be for its time to tell it from
	// the next one.
	settled = 100 * time.Millisecond
)

// table is a file of accounts or groups as it was read last. In gVisor to read
// one costs four times what it costs to ask whether it has changed, and every
// request needs both.
type table struct {
	file string

	mu    sync.Mutex
	at    tableID
	lines [][]string
	names map[uint32]string // the first name of each id
}

// tableID tells one content of a table from another.
type tableID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime syscall.Timespec
}

// read returns the fields of each line, and the names of the ids in the third.
// Neither may be changed.
func (t *table) read() ([][]string, map[uint32]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var st syscall.Stat_t
	if err := syscall.Stat(t.file, &st); err != nil {
		return nil, nil, &os.PathError{Op: "stat", Path: t.file, Err: err}
	}
	id := tableID{st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim}
	if t.names != nil && id == t.at {
		return t.lines, t.names, nil
	}
	data, err := t.content()
	if err != nil {
		return nil, nil, err
	}
	lines, names := parseTable(data)
	t.lines, t.names = nil, nil
	if time.Since(time.Unix(st.Ctim.Unix())) > settled {
		t.at, t.lines, t.names = id, lines, names
	}
	return lines, names, nil
}

func (t *table) content() ([]byte, error) {
	// The box's root may have put anything there: nothing to wait for, please.
	f, err := os.OpenFile(t.file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxTableBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxTableBytes {
		return nil, fmt.Errorf("%s has more than %d bytes: %w", t.file, maxTableBytes, unix.EFBIG)
	}
	return data, nil
}

func parseTable(data []byte) ([][]string, map[uint32]string) {
	var lines [][]string
	names := map[uint32]string{}
	for line := range bytes.Lines(data) {
		f := strings.Split(strings.TrimRight(string(line), "\r\n"), ":")
		if len(f) < 3 || f[0] == "" || strings.HasPrefix(f[0], "#") {
			continue
		}
		lines = append(lines, f)
		if id, err := strconv.ParseUint(f[2], 10, 32); err == nil {
			if _, ok := names[uint32(id)]; !ok {
				names[uint32(id)] = f[0]
			}
		}
	}
	return lines, names
}

// user looks an account up in the sandbox's own files, without cgo.
func (s *Server) user(name string) (user, error) {
	lines, _, err := s.passwd.read()
	if err != nil {
		return user{}, fmt.Errorf("read accounts: %w", err)
	}
	u := user{}
	for _, f := range lines {
		if f[0] != name || len(f) < 7 {
			continue
		}
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 == nil && err2 == nil {
			u = user{name: name, uid: uint32(uid), gid: uint32(gid), home: f[5], shell: f[6]}
		}
		break
	}
	if u.name == "" {
		return user{}, fmt.Errorf("%w: %q", errNoUser, clip(name, 64))
	}
	if !strings.HasPrefix(u.home, "/") {
		u.home = "/"
	}
	groups, _, err := s.group.read()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return user{}, fmt.Errorf("read groups: %w", err)
	}
	for _, f := range groups {
		if len(f) < 4 {
			continue
		}
		gid, err := strconv.ParseUint(f[2], 10, 32)
		for member := range strings.SplitSeq(f[3], ",") {
			if err == nil && member == name {
				u.groups = append(u.groups, uint32(gid))
				break
			}
		}
	}
	return u, nil
}
