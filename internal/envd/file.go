package envd

import (
	"bytes"
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
}

// fileUser finds who acts on /files: the username of the query, which is how
// clients say it there, else Basic auth.
func (s *Server) fileUser(r *http.Request) (user, error) {
	if name := r.URL.Query().Get("username"); name != "" {
		return s.user(name)
	}
	return s.userOf(r.Header)
}

// serveRead answers GET /files?path=…&username=… with the bytes of one file.
func (s *Server) serveRead(w http.ResponseWriter, r *http.Request) {
	u, err := s.fileUser(r)
	if err != nil {
		fileError(w, err)
		return
	}
	p, err := u.resolve(r.URL.Query().Get("path"))
	if err != nil {
		fileError(w, err)
		return
	}
	var f *os.File
	err = u.do(func() (err error) {
		// Opening a pipe must not wait for a writer.
		f, err = os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		fileError(w, err)
		return
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		fileError(w, err)
		return
	}
	if !fi.Mode().IsRegular() {
		fileError(w, fmt.Errorf("%q is not a regular file: %w", clip(p, 256), unix.EINVAL))
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(p)}))
	if fi.Size() > 0 {
		http.ServeContent(w, r, "", fi.ModTime(), f)
		return
	}
	// What the kernel makes up as it is read (/proc) has no size beforehand and
	// no end to seek to. It is small.
	made, err := io.ReadAll(io.LimitReader(f, batchBytes+1))
	if err == nil && len(made) > batchBytes {
		err = fmt.Errorf("%q is larger than it says: %w", clip(p, 256), unix.EFBIG)
	}
	if err != nil {
		fileError(w, err)
		return
	}
	http.ServeContent(w, r, "", fi.ModTime(), bytes.NewReader(made))
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
	up := upload{user: u, asked: r.URL.Query().Get("path"), mode: r.Header.Get(ModeHeader), made: map[string]bool{}}
	switch kind {
	case "application/octet-stream":
		err = up.one(body)
	case "multipart/form-data":
		err = up.parts(multipart.NewReader(body, params["boundary"]))
	default:
		err = fmt.Errorf("send multipart/form-data or application/octet-stream: %w", unix.EINVAL)
	}
	if err == nil {
		err = up.flush()
	}
	if err != nil {
		fileError(w, err)
		return
	}
	w.Header().Set(BulkHeader, "1")
	writeJSON(w, http.StatusOK, up.all)
}

// Small files are gathered and written together: each change to the user's
// identity costs a thread, and a thousand files need only a few.
const (
	smallBytes = 1 << 20
	batchBytes = 8 << 20
	batchFiles = 4096
)

// upload is one request's worth of files.
type upload struct {
	user    user
	asked   string          // the path in the query
	mode    string          // of every file that says nothing else
	made    map[string]bool // folders that exist for sure
	waiting []content
	held    int64 // bytes in waiting
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

// header reads a part's path and mode.
func (u *upload) header(part *multipart.Part) (name, mode string, err error) {
	// part.FileName would cut the folders off.
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return "", "", fmt.Errorf("read the name of a part: %w: %w", unix.EINVAL, err)
	}
	if params["name"] != "file" {
		return "", "", fmt.Errorf("a part is not called \"file\": %w", unix.EINVAL)
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
	if c.data, err = io.ReadAll(io.LimitReader(body, smallBytes)); err != nil {
		return fmt.Errorf("read the body: %w: %w", unix.EINVAL, err)
	}
	u.all = append(u.all, written{Name: path.Base(p), Type: "file", Path: p})
	u.waiting = append(u.waiting, c)
	u.held += int64(len(c.data))
	if len(c.data) == smallBytes {
		return u.stream(c, body)
	}
	if u.held >= batchBytes || len(u.waiting) >= batchFiles {
		return u.flush()
	}
	return nil
}

// flush writes what waits, on one thread that is the user.
func (u *upload) flush() error {
	if len(u.waiting) == 0 {
		return nil
	}
	err := u.user.do(func() error {
		for _, c := range u.waiting {
			fd, err := u.create(c)
			if err != nil {
				return err
			}
			err = writeAll(fd, c.data)
			if cerr := unix.Close(fd); err == nil {
				err = cerr
			}
			if err != nil {
				return fmt.Errorf("write %q: %w", clip(c.path, 256), err)
			}
		}
		return nil
	})
	u.waiting, u.held = nil, 0
	return err
}

// stream writes a file of which c.data is the beginning: opened as the user,
// filled by whichever thread has the bytes.
func (u *upload) stream(c content, rest io.Reader) error {
	u.waiting = u.waiting[:len(u.waiting)-1]
	if err := u.flush(); err != nil {
		return err
	}
	fd := -1
	if err := u.user.do(func() (err error) { fd, err = u.create(c); return err }); err != nil {
		return err
	}
	n, err := int64(len(c.data)), writeAll(fd, c.data)
	buf := c.data
	for err == nil {
		// Parts come in pieces of a few KiB; each write is a system call.
		k, rerr := io.ReadFull(rest, buf)
		if n += int64(k); n > maxFileBytes {
			err = fmt.Errorf("one file may hold %d bytes: %w", maxFileBytes, unix.EFBIG)
			break
		}
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

// create opens a file for writing. The calling thread is the user. It is three
// system calls with the write and the close, where package os makes five.
func (u *upload) create(c content) (int, error) {
	if dir := path.Dir(c.path); !u.made[dir] {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return -1, err
		}
		u.made[dir] = true
	}
	// O_NONBLOCK: opening a pipe must not wait for a reader.
	fd, err := unix.Open(c.path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC|unix.O_NONBLOCK, uint32(c.perm))
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: clip(c.path, 256), Err: err}
	}
	if c.mode != "" {
		// The file may have been there, and the umask applies to new ones.
		if err := unix.Fchmod(fd, uint32(c.perm)); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("set the mode of %q: %w", clip(c.path, 256), err)
		}
	}
	return fd, nil
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

// fileError answers with the status that clients decide by.
func fileError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch {
	case errors.Is(err, errNoUser):
		status = http.StatusUnauthorized
	case errors.Is(err, os.ErrNotExist):
		status = http.StatusNotFound
	case errors.Is(err, os.ErrPermission):
		status = http.StatusForbidden
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		status = http.StatusInsufficientStorage
	case errors.Is(err, unix.EFBIG):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ETXTBSY), errors.Is(err, unix.EEXIST):
		status = http.StatusBadRequest
	}
	writeFailure(w, status, err.Error())
}
