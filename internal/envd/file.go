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
	http.ServeContent(w, r, "", fi.ModTime(), f)
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
	// All of it happens as the user, on one thread: one change of identity for
	// a thousand files.
	var all []written
	err = u.do(func() (err error) {
		switch kind {
		case "application/octet-stream":
			all, err = up.one(body)
		case "multipart/form-data":
			all, err = up.parts(multipart.NewReader(body, params["boundary"]))
		default:
			err = fmt.Errorf("send multipart/form-data or application/octet-stream: %w", unix.EINVAL)
		}
		return err
	})
	if err != nil {
		fileError(w, err)
		return
	}
	w.Header().Set(BulkHeader, "1")
	writeJSON(w, http.StatusOK, all)
}

// upload is one request's worth of files.
type upload struct {
	user  user
	asked string          // the path in the query
	mode  string          // of every file that says nothing else
	made  map[string]bool // folders that exist for sure
}

func (u *upload) one(body io.Reader) ([]written, error) {
	if u.asked == "" {
		return nil, fmt.Errorf("the query names no path: %w", unix.EINVAL)
	}
	f, err := u.write(u.asked, u.mode, body)
	return []written{f}, err
}

func (u *upload) parts(mr *multipart.Reader) ([]written, error) {
	all := []written{}
	for {
		part, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the body: %w: %w", unix.EINVAL, err)
		}
		// part.FileName would cut the folders off.
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
		if err != nil {
			return nil, fmt.Errorf("read the name of a part: %w: %w", unix.EINVAL, err)
		}
		if params["name"] != "file" {
			return nil, fmt.Errorf("a part is not called \"file\": %w", unix.EINVAL)
		}
		name := params["filename"]
		if u.asked != "" {
			if len(all) > 0 {
				return nil, fmt.Errorf("the query names one path and the body has more files: %w", unix.EINVAL)
			}
			name = u.asked
		}
		if name == "" {
			return nil, fmt.Errorf("a part has no file name: %w", unix.EINVAL)
		}
		mode := u.mode
		if m := part.Header.Get(ModeHeader); m != "" {
			mode = m
		}
		f, err := u.write(name, mode, part)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the body holds no file: %w", unix.EINVAL)
	}
	return all, nil
}

// write writes one file. The calling thread is the user already.
func (u *upload) write(name, mode string, body io.Reader) (written, error) {
	p, err := u.user.resolve(name)
	if err != nil {
		return written{}, err
	}
	perm, err := parseMode(mode)
	if err != nil {
		return written{}, err
	}
	if dir := path.Dir(p); !u.made[dir] {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return written{}, err
		}
		u.made[dir] = true
	}
	create := perm
	if mode == "" {
		create = 0o644
	}
	// O_NONBLOCK: opening a pipe must not wait for a reader.
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, create)
	if err != nil {
		return written{}, err
	}
	err = fill(f, p, mode, perm, body)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return written{Name: path.Base(p), Type: "file", Path: p}, err
}

func fill(f *os.File, p, mode string, perm os.FileMode, body io.Reader) error {
	n, err := io.Copy(onlyWriter{f}, io.LimitReader(body, maxEnvdFileBytes+1))
	if err != nil {
		return fmt.Errorf("write %q: %w", clip(p, 256), err)
	}
	if n > maxEnvdFileBytes {
		return fmt.Errorf("write %q: one file may hold %d bytes: %w", clip(p, 256), maxEnvdFileBytes, unix.EFBIG)
	}
	if mode != "" {
		// The file may have been there, and the umask applies to new ones.
		if err := f.Chmod(perm); err != nil {
			return fmt.Errorf("set the mode of %q: %w", clip(p, 256), err)
		}
	}
	return nil
}

// onlyWriter hides ReadFrom: it would try splice and copy_file_range first,
// two system calls for each of a thousand small files.
type onlyWriter struct{ io.Writer }

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
