package envd

import (
	"errors"
	"net/http"
	"os"

	"golang.org/x/sys/unix"
)

// fileUser finds who acts on /files: the username of the query, which is how
// clients say it there, else Basic auth.
func (s *Server) fileUser(r *http.Request) (user, error) {
	return s.actor(r.URL.Query().Get("username"), r.Header)
}

// actor is the user of that name, else of Basic auth.
func (s *Server) actor(name string, h http.Header) (user, error) {
	if name != "" {
		return s.user(name)
	}
	return s.userOf(h)
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
	case errors.Is(err, errNotAcceptable):
		status = http.StatusNotAcceptable
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENAMETOOLONG),
		errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ETXTBSY), errors.Is(err, unix.EEXIST),
		errors.Is(err, unix.ENOTSUP):
		status = http.StatusBadRequest
	}
	writeFailure(w, status, err.Error())
}
