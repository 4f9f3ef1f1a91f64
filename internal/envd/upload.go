package envd

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// ModeHeader on an upload, or on one part of it, gives the permission bits of
// the file in octal. It is ours: E2B's daemon ignores it, so an answer of a
// daemon that obeyed carries BulkHeader.
const (
	ModeHeader = "X-Dreamcore-Mode"
	BulkHeader = "X-Dreamcore-Bulk"
)

// written describes a file that was uploaded.
type written struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Path string `json:"path"`
	// Metadata is as it was sent, with its keys in lower case.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// serveWrite answers POST /files: a multipart body whose parts are files named
// by their paths, or one file as application/octet-stream named by the query.
func (s *Server) serveWrite(w http.ResponseWriter, r *http.Request) {
	u, err := s.fileUser(r)
	if err != nil {
		fileError(w, err)
		return
	}
	body := io.Reader(r.Body)
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			fileError(w, fmt.Errorf("the body is not gzip: %w", unix.EINVAL))
			return
		}
		body = z
	default:
		writeFailure(w, http.StatusUnsupportedMediaType, "the content encoding is not known")
		return
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		fileError(w, fmt.Errorf("the content type is malformed: %w", unix.EINVAL))
		return
	}
	meta, err := metadataOf(r.Header)
	if err != nil {
		fileError(w, err)
		return
	}
	up := upload{
		user: u, asked: r.URL.Query().Get("path"), mode: r.Header.Get(ModeHeader), meta: meta,
		made: map[string]bool{}, seen: map[string]bool{},
	}
	switch kind {
	case "application/octet-stream":
		err = up.one(body)
	case "multipart/form-data":
		err = up.parts(multipart.NewReader(body, params["boundary"]))
	default:
		err = fmt.Errorf("send multipart/form-data or application/octet-stream: %w", unix.EINVAL)
	}
	if err != nil {
		up.waiting = nil // what came before is written or not; nothing more is
	}
	if ferr := up.finish(); err == nil {
		err = ferr
	}
	if err != nil {
		fileError(w, err)
		return
	}
	w.Header().Set(BulkHeader, "1")
	writeJSON(w, http.StatusOK, up.all)
}

// Small files are gathered and handed to one thread that is the user as long as
// the request lasts: a change of identity costs a thread, and so the next files
// are read while these are written.
const (
	smallBytes = 1 << 20
	batchBytes = 256 << 10
	batchFiles = 64
	// maxUploadFiles bounds what is remembered of one request.
	maxUploadFiles = 100_000
)

// upload is one request's worth of files.
type upload struct {
	user    user
	asked   string // the path in the query
	mode    string // of every file that says nothing else
	meta    map[string]string
	made    map[string]bool // folders that exist for sure
	seen    map[string]bool // files of this request
	waiting []content
	work    chan func() error // to the thread that is the user; nil until there is any
	done    chan error        // what became of all that
	failed  atomic.Bool       // some of it; the rest is not tried
	held    int64             // bytes in waiting
	closing sync.WaitGroup    // the batch that is written and being closed
	all     []written
}

// content is a file that is to be written.
type content struct {
	path string
	mode string // "" leaves it to the umask
	perm os.FileMode
	data []byte
}

func (u *upload) one(body io.Reader) error {
	if u.asked == "" {
		return fmt.Errorf("the query names no path: %w", unix.EINVAL)
	}
	return u.add(u.asked, u.mode, body)
}

func (u *upload) parts(mr *multipart.Reader) error {
	for {
		part, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the body: %w: %w", unix.EINVAL, err)
		}
		name, mode, err := u.header(part)
		if errors.Is(err, errNoFile) {
			continue // a field of a form
		}
		if err != nil {
			return err
		}
		if err := u.add(name, mode, part); err != nil {
			return err
		}
	}
	if len(u.all) == 0 {
		return fmt.Errorf("the body holds no file: %w", unix.EINVAL)
	}
	return nil
}

var errNoFile = errors.New("the part is not a file")

// header reads a part's path and mode.
func (u *upload) header(part *multipart.Part) (name, mode string, err error) {
	// part.FileName would cut the folders off.
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", "", fmt.Errorf("read the name of a part: %w: %w", unix.EINVAL, err)
	}
	if params["name"] != "file" {
		return "", "", errNoFile
	}
	name = params["filename"]
	if u.asked != "" {
		if len(u.all) > 0 {
			return "", "", fmt.Errorf("the query names one path and the body has more files: %w", unix.EINVAL)
		}
		name = u.asked
	}
	if name == "" {
		return "", "", fmt.Errorf("a part has no file name: %w", unix.EINVAL)
	}
	mode = u.mode
	if m := part.Header.Get(ModeHeader); m != "" {
		mode = m
	}
	return name, mode, nil
}

// add takes one file: a small one is kept for flush, a large one is written
// as it comes.
func (u *upload) add(name, mode string, body io.Reader) error {
	p, err := u.user.resolve(name)
	if err != nil {
		return err
	}
	c := content{path: p, mode: mode}
	if c.perm, err = parseMode(mode); err != nil {
		return err
	}
	if u.seen[p] {
		return fmt.Errorf("%q is there twice: %w", clip(p, 256), unix.EINVAL)
	}
	if len(u.all) >= maxUploadFiles {
		return fmt.Errorf("one upload may have %d files: %w", maxUploadFiles, unix.EFBIG)
	}
	u.seen[p] = true
	if c.data, err = io.ReadAll(io.LimitReader(body, smallBytes)); err != nil {
		return fmt.Errorf("read the body: %w: %w", unix.EINVAL, err)
	}
	u.all = append(u.all, written{Name: path.Base(p), Type: "file", Path: p, Metadata: u.meta})
	u.waiting = append(u.waiting, c)
	u.held += int64(len(c.data))
	if len(c.data) == smallBytes {
		return u.stream(c, body)
	}
	if u.held >= batchBytes || len(u.waiting) >= batchFiles {
		u.flush()
	}
	if u.failed.Load() {
		return u.finish()
	}
	return nil
}

// asUser has f done on the thread that is the user, after all before it. Once
// something has failed nothing more is done.
func (u *upload) asUser(f func() error) {
	if u.work == nil {
		u.work, u.done = make(chan func() error, 4), make(chan error, 1)
		go func(work <-chan func() error) {
			var first error
			began := false
			err := u.user.do(func() error {
				began = true
				for f := range work {
					if first != nil {
						continue
					}
					if first = f(); first != nil {
						u.failed.Store(true)
					}
				}
				return first
			})
			if !began {
				u.failed.Store(true)
				for range work { // nobody is to wait for it
				}
			}
			u.done <- err
		}(u.work)
	}
	u.work <- f
}

// finish has the rest written and reports what became of it all.
func (u *upload) finish() error {
	u.flush()
	if u.work == nil {
		return nil
	}
	close(u.work)
	u.work = nil
	err := <-u.done
	u.closing.Wait() // nobody may run what somebody still has open to write
	return err
}

// flush hands over what waits.
func (u *upload) flush() {
	if len(u.waiting) == 0 {
		return
	}
	batch := u.waiting
	u.waiting, u.held = nil, 0
	u.asUser(func() error {
		var held descriptors
		defer func() {
			// Anybody may close, so that is done beside the next batch's writing. One
			// batch at a time: that many files more are open, and no more.
			u.closing.Wait()
			u.closing.Go(held.close)
		}()
		for _, c := range batch {
			fd, err := u.create(c)
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
				u.closing.Wait()
				held.close()
				held = nil
				fd, err = u.create(c)
			}
			if err != nil {
				return err
			}
			held = append(held, fd)
			if err := writeAll(fd, c.data); err != nil {
				return fmt.Errorf("write %q: %w", clip(c.path, 256), err)
			}
		}
		return nil
	})
}

// descriptors are open files that are ours alone.
type descriptors []int

// close closes them all, one by one: gVisor looks for what close_range is to close
// from the beginning again after each, and so closes what somebody else has opened
// meanwhile under a number that has just become free. All of a file's bytes are in
// memory when its write has returned, so that closing it cannot fail.
func (d descriptors) close() {
	for _, fd := range d {
		unix.Close(fd)
	}
}

// stream writes a file of which c.data is the beginning: opened as the user,
// filled by whichever thread has the bytes.
func (u *upload) stream(c content, rest io.Reader) error {
	u.waiting = u.waiting[:len(u.waiting)-1]
	u.flush()
	fd := -1
	u.asUser(func() (err error) { fd, err = u.create(c); return err })
	if err := u.finish(); err != nil {
		return err
	}
	err := writeAll(fd, c.data)
	buf := c.data
	for err == nil {
		// Parts come in pieces of a few KiB; each write is a system call.
		k, rerr := io.ReadFull(rest, buf)
		err = writeAll(fd, buf[:k])
		if errors.Is(rerr, io.EOF) || errors.Is(rerr, io.ErrUnexpectedEOF) {
			break
		}
		if err == nil && rerr != nil {
			err = fmt.Errorf("read the body: %w: %w", unix.EINVAL, rerr)
		}
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", clip(c.path, 256), err)
	}
	return nil
}

// create opens a file for writing. The calling thread is the user. It is two
// system calls with the write, where package os makes four.
func (u *upload) create(c content) (int, error) {
	if dir := path.Dir(c.path); !u.made[dir] {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return -1, err
		}
		u.made[dir] = true
	}
	fd, isNew, err := openNew(c.path, uint32(c.perm))
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: clip(c.path, 256), Err: err}
	}
	if c.mode != "" && !(isNew && c.perm&umask == 0) {
		// The file was there, or the umask took something away.
		if err := unix.Fchmod(fd, uint32(c.perm)); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("set the mode of %q: %w", clip(c.path, 256), err)
		}
	}
	if err := setMetadata(fd, u.meta, isNew); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%q: %w", clip(c.path, 256), err)
	}
	return fd, nil
}

// umask is what the daemon runs with.
const umask = 0o022

// openNew opens an empty file to write to and says whether it made it.
func openNew(p string, perm uint32) (fd int, isNew bool, err error) {
	// O_NONBLOCK: opening a pipe must not wait for a reader.
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_CLOEXEC | unix.O_NONBLOCK
	if fd, err = unix.Open(p, flags|unix.O_EXCL, perm); !errors.Is(err, unix.EEXIST) {
		return fd, true, err
	}
	// Something has the name: a file, or a link to where one may be.
	fd, err = unix.Open(p, flags|unix.O_TRUNC, perm)
	return fd, false, err
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := unix.Write(fd, data)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func parseMode(s string) (os.FileMode, error) {
	if s == "" {
		return 0o644, nil
	}
	m, err := strconv.ParseUint(s, 8, 32)
	if err != nil || m > 0o777 {
		return 0, fmt.Errorf("the mode %q is not three octal digits: %w", clip(s, 16), unix.EINVAL)
	}
	return os.FileMode(m), nil
}
