package envd

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var errNotAcceptable = errors.New("no encoding that is asked for can be made; there are identity and gzip")

// maxMadeBytes bounds a file that the kernel makes up as it is read: it is held
// whole.
const maxMadeBytes = 8 << 20

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
	zip, err := wantsGzip(r.Header)
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
	var content io.ReadSeeker = f
	if fi.Size() == 0 {
		// What the kernel makes up as it is read (/proc) has no size beforehand and
		// no end to seek to. It is small.
		made, err := io.ReadAll(io.LimitReader(f, maxMadeBytes+1))
		if err == nil && len(made) > maxMadeBytes {
			err = fmt.Errorf("%q is larger than it says: %w", clip(p, 256), unix.EFBIG)
		}
		if err != nil {
			fileError(w, err)
			return
		}
		content = bytes.NewReader(made)
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(p)}))
	h.Set("Vary", "Accept-Encoding")
	if !zip || partial(r.Header) {
		http.ServeContent(wide{w}, r, "", fi.ModTime(), content)
		return
	}
	h.Set("Content-Encoding", "gzip")
	h.Set("Last-Modified", fi.ModTime().UTC().Format(http.TimeFormat))
	if r.Method == http.MethodHead {
		return
	}
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err == nil {
		_, err = io.CopyBuffer(z, onlyReader{content}, make([]byte, copyBytes))
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		// The status is out. Without an end the client knows that it has not all.
		panic(http.ErrAbortHandler)
	}
}

// partial reports whether a request asks for a part of the file or for it only
// under a condition: such an answer is about the bytes as they are.
func partial(h http.Header) bool {
	for _, name := range []string{"Range", "If-Range", "If-Modified-Since", "If-None-Match", "If-Match", "If-Unmodified-Since"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}

// wantsGzip decides how a file is sent. A client that lists several encodings,
// as browsers and Node do by themselves, gets the bytes as they are: between
// here and it is a fast wire, and packing costs more than it brings. One that
// asks for gzip alone, or refuses the plain bytes, gets it.
func wantsGzip(h http.Header) (bool, error) {
	asked := strings.Join(h.Values("Accept-Encoding"), ",")
	gzipped, plain, others := -1.0, -1.0, false
	rest := -1.0 // "*"
	for item := range strings.SplitSeq(asked, ",") {
		name, params, _ := strings.Cut(item, ";")
		q := quality(params)
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "":
		case "gzip", "x-gzip":
			gzipped = q
		case "identity":
			plain = q
		case "*":
			rest = q
		default:
			others = others || q > 0
		}
	}
	if gzipped < 0 {
		gzipped = rest
	}
	refused := plain == 0 || plain < 0 && rest == 0
	switch {
	case refused && gzipped <= 0:
		return false, errNotAcceptable
	case refused:
		return true, nil
	}
	return gzipped > 0 && rest < 0 && plain < gzipped && !others, nil
}

// quality reads ";q=0.5"; what cannot be read is 1.
func quality(params string) float64 {
	for p := range strings.SplitSeq(params, ";") {
		k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(k, "q") {
			if q, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil && q >= 0 && q <= 1 {
				return q
			}
		}
	}
	return 1
}

const copyBytes = 256 << 10

// wide copies in large pieces: each is a system call on either side.
type wide struct{ http.ResponseWriter }

// ReadFrom is what io.Copy uses.
func (w wide) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(onlyWriter{w.ResponseWriter}, onlyReader{r}, make([]byte, copyBytes))
}

// Without the methods that make io.Copy choose its own way.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)
