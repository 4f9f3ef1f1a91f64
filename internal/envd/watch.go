package envd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"dreamcore/internal/envd/spec/filesystem"
)

const (
	maxWatchBytes   = 1 << 20 // what one watcher keeps for a client that does not take it: about 4,000 events
	maxWatchFolders = 8192    // folders below a recursively watched one
)

// What is asked of the kernel for each folder. What happens to a folder below
// the watched one is reported by its parent, by name.
const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

var (
	// errLost ends a stream, or answers one poll: the client must look for itself.
	errLost = errors.New("events were lost because they came faster than they were taken: list the folder again")
	// errWatchedGone ends a watcher without an error: its last event says why.
	errWatchedGone = errors.New("the watched folder is gone")
)

// watcher reports what happens in a folder, to one client.
type watcher struct {
	user      user
	namer     func() *namer
	root      string // as the client names it
	real      string // without links
	recursive bool
	entries   bool // describe what an event is about

	file    *os.File        // the kernel's queue; it must be drained whoever reads
	fd      int             // of file, for the calls that name it
	folders map[int]string  // by watch number, below real; "" is real itself
	fresh   map[string]bool // reported by looking; the kernel may report them again
	leaving string          // a folder that was moved away, until it is known where to; "" for none
	cookie  uint32          // of that move

	mu      sync.Mutex
	queue   []*filesystem.FilesystemEvent
	size    int           // bytes in queue, about
	err     error         // what ended it, or errLost
	over    bool          // nothing comes any more
	changed chan struct{} // has a token whenever anything above changed
}

// watch begins to watch. The caller must close what it returns.
func (s *Server) watch(u user, root string, recursive, entries, network bool) (*watcher, error) {
	w := &watcher{
		user: u, namer: s.namer, root: root, recursive: recursive, entries: entries,
		folders: map[int]string{}, fresh: map[string]bool{}, changed: make(chan struct{}, 1),
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	w.fd, w.file = fd, os.NewFile(uintptr(fd), "watcher")
	err = u.do(func() error {
		fi, err := os.Stat(root)
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return fmt.Errorf("%q is not a folder: %w", clip(root, 256), unix.ENOTDIR)
		}
		if w.real, err = filepath.EvalSymlinks(root); err != nil {
			return err
		}
		if !network && onNetwork(w.real) {
			return fmt.Errorf("%q is on a network file system, which does not report what others do there; ask for it with allowNetworkMounts: %w", clip(root, 256), unix.EINVAL)
		}
		return w.add("", false)
	})
	if err != nil {
		w.file.Close()
		return nil, err
	}
	go w.run()
	return w, nil
}

// onNetwork reports whether a path is on a file system of another machine.
func onNetwork(p string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(p, &st); err != nil {
		return false // watching it will say what is wrong
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.AFS_SUPER_MAGIC:
		return true
	}
	return false
}

// add watches the folder below and, where asked for, those in it. What is in it
// may have come before the kernel watched: with report each is an event. The
// calling thread is the user.
func (w *watcher) add(below string, report bool) error {
	if len(w.folders) > maxWatchFolders {
		return fmt.Errorf("%w: the folder has more than %d below it", errTooMany, maxWatchFolders)
	}
	// Linux lets only those watch a folder who may read it; gVisor lets everybody.
	dir, err := os.Open(path.Join(w.real, below))
	if err != nil {
		return err
	}
	defer dir.Close()
	n, err := unix.InotifyAddWatch(w.fd, path.Join(w.real, below), watchMask)
	if err != nil {
		return &fs.PathError{Op: "watch", Path: clip(path.Join(w.root, below), 256), Err: err}
	}
	w.folders[n] = below
	if !w.recursive {
		return nil
	}
	found, err := dir.ReadDir(-1)
	if err != nil && below == "" {
		return err
	}
	// A folder below that cannot be read, or has gone, has no events for this user.
	for _, d := range found {
		name := path.Join(below, d.Name())
		if report {
			w.fresh[name] = true
			w.event(name, filesystem.EventType_EVENT_TYPE_CREATE)
			if fi, err := d.Info(); err == nil && fi.Mode().IsRegular() && fi.Size() > 0 {
				w.event(name, filesystem.EventType_EVENT_TYPE_WRITE)
			}
		}
		if d.IsDir() {
			err := w.add(name, report)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
	}
	return nil
}

// drop forgets the folder below and all under it.
func (w *watcher) drop(below string) {
	for n, at := range w.folders {
		if at == below || strings.HasPrefix(at, below+"/") {
			// It fails when the folder is gone, and then it is not watched either.
			_, _ = unix.InotifyRmWatch(w.fd, uint32(n))
			delete(w.folders, n)
		}
	}
}

// run drains the kernel's queue until the watcher is closed or what it watches
// is gone.
func (w *watcher) run() {
	defer w.file.Close()
	buf := make([]byte, 64<<10)
	raw, err := w.file.SyscallConn()
	if err != nil {
		w.end(err)
		return
	}
	for {
		var n int
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, rerr = unix.Read(int(fd), buf)
			if errors.Is(rerr, unix.EAGAIN) {
				// All that the kernel had seen when a folder was looked through has come.
				clear(w.fresh)
				w.leave()
				return false
			}
			return true
		})
		if err != nil {
			w.end(nil) // closed
			return
		}
		if errors.Is(rerr, unix.EINTR) {
			continue
		}
		if rerr != nil {
			w.end(fmt.Errorf("watch: %w", rerr))
			return
		}
		handle := func() error { return w.batch(buf[:n]) }
		if w.recursive || w.entries {
			err = w.user.do(handle) // it looks at files
		} else {
			err = handle()
		}
		if err != nil {
			if errors.Is(err, errWatchedGone) {
				err = nil
			}
			w.end(err)
			return
		}
	}
}

// batch handles what one read brought. The calling thread is the user.
func (w *watcher) batch(data []byte) error {
	for len(data) >= unix.SizeofInotifyEvent {
		number := int(int32(binary.NativeEndian.Uint32(data[0:])))
		mask, cookie, length := binary.NativeEndian.Uint32(data[4:]), binary.NativeEndian.Uint32(data[8:]), int(binary.NativeEndian.Uint32(data[12:]))
		data = data[unix.SizeofInotifyEvent:]
		if length > len(data) {
			return fmt.Errorf("watch: %w", unix.EBADMSG)
		}
		name := strings.TrimRight(string(data[:length]), "\x00")
		data = data[length:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			w.lose()
			continue
		}
		if w.leaving != "" && (mask&unix.IN_MOVED_TO == 0 || cookie != w.cookie) {
			w.leave() // the two halves of a move come together, or there is only one
		}
		folder, ok := w.folders[number]
		if !ok {
			continue // of a folder that is not watched any more
		}
		if name == "" {
			if err := w.self(folder, mask); err != nil {
				return err
			}
			continue
		}
		if err := w.child(path.Join(folder, name), mask, cookie); err != nil {
			return err
		}
	}
	return nil
}

// self handles what happened to a watched folder itself.
func (w *watcher) self(folder string, mask uint32) error {
	switch {
	case mask&unix.IN_IGNORED != 0:
		w.drop(folder)
		if folder == "" {
			return errWatchedGone
		}
	case folder != "":
		// Its parent says the same by name.
	case mask&unix.IN_DELETE_SELF != 0:
		w.event(".", filesystem.EventType_EVENT_TYPE_REMOVE)
		return errWatchedGone
	case mask&unix.IN_MOVE_SELF != 0:
		w.event(".", filesystem.EventType_EVENT_TYPE_RENAME)
		return errWatchedGone
	case mask&unix.IN_ATTRIB != 0:
		w.event(".", filesystem.EventType_EVENT_TYPE_CHMOD)
	}
	return nil
}

// leave forgets the folder that was moved to where nobody watches.
func (w *watcher) leave() {
	if w.leaving != "" {
		w.drop(w.leaving)
		w.leaving = ""
	}
}

// arrive gives the folder that was moved, and all under it, their new names.
// The kernel's watches go on; what it queued since is of the new names already.
func (w *watcher) arrive(name string) {
	from := w.leaving
	w.leaving = ""
	for n, at := range w.folders {
		if at == from || strings.HasPrefix(at, from+"/") {
			w.folders[n] = name + at[len(from):]
		}
	}
}

// child handles what happened to name in a watched folder.
func (w *watcher) child(name string, mask, cookie uint32) error {
	isDir := mask&unix.IN_ISDIR != 0
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		if w.fresh[name] {
			delete(w.fresh, name)
			return nil
		}
		w.event(name, filesystem.EventType_EVENT_TYPE_CREATE)
		if !isDir || !w.recursive {
			return nil
		}
		if w.leaving != "" && mask&unix.IN_MOVED_TO != 0 {
			w.arrive(name)
			return nil
		}
		err := w.add(name, true)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		return err
	case mask&unix.IN_MOVED_FROM != 0:
		delete(w.fresh, name)
		if isDir {
			w.leaving, w.cookie = name, cookie
		}
		w.event(name, filesystem.EventType_EVENT_TYPE_RENAME)
	case mask&unix.IN_DELETE != 0:
		delete(w.fresh, name)
		if isDir {
			w.drop(name)
		}
		w.event(name, filesystem.EventType_EVENT_TYPE_REMOVE)
	case mask&unix.IN_ATTRIB != 0:
		w.event(name, filesystem.EventType_EVENT_TYPE_CHMOD)
	case mask&unix.IN_MODIFY != 0:
		w.event(name, filesystem.EventType_EVENT_TYPE_WRITE)
	}
	return nil
}

// event queues one event.
func (w *watcher) event(name string, kind filesystem.EventType) {
	e := &filesystem.FilesystemEvent{Name: carried(name), Type: kind}
	gone := kind == filesystem.EventType_EVENT_TYPE_REMOVE || kind == filesystem.EventType_EVENT_TYPE_RENAME
	if w.entries && !gone {
		// It may have gone meanwhile, and then the event has none.
		if entry, err := w.namer().entry(path.Join(w.root, name)); err == nil {
			e.Entry = entry
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	size := eventBytes + len(name) + len(e.GetEntry().GetPath()) + len(e.GetEntry().GetSymlinkTarget())
	if w.size+size > maxWatchBytes {
		w.err = errLost
	} else {
		w.queue = append(w.queue, e)
		w.size += size
	}
	w.wake()
}

// eventBytes is what an event takes beside its names.
const eventBytes = 256

func (w *watcher) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = errLost
	}
	w.wake()
}

func (w *watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.over = true
	w.wake()
}

// wake tells the client's side that something changed. w.mu is held.
func (w *watcher) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// take returns what is queued. When that is nothing it returns what ended the
// watcher, which for errLost is told once: after it the events count again.
func (w *watcher) take() (events []*filesystem.FilesystemEvent, over bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) > 0 {
		events, w.queue, w.size = w.queue, nil, 0
		return events, false, nil
	}
	err = w.err
	if errors.Is(err, errLost) {
		w.err = nil
	}
	return nil, w.over, err
}

// close ends the watcher. The queue itself is closed by who drains it: until
// then the number of the file is used.
func (w *watcher) close() { _ = w.file.SetReadDeadline(time.Now()) }
