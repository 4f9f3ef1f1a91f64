package envd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"dreamcore"
)

const (
	maxComposeBytes = 1 << 20 // the request
	maxComposeFiles = 10_000
)

// composeBody asks to make one file out of several.
type composeBody struct {
	Sources     []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`
}

// serveCompose answers POST /files/compose: it joins files, in order, into one
// and removes them. Until all is there, the destination is as it was.
func (s *Server) serveCompose(w http.ResponseWriter, r *http.Request) {
	var in composeBody
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxComposeBytes)).Decode(&in); err != nil {
		fileError(w, fmt.Errorf("the body is not the JSON that was expected: %w", unix.EINVAL))
		return
	}
	u, err := s.actor(in.Username, r.Header)
	var to string
	if err == nil {
		to, err = u.compose(in)
	}
	if err != nil {
		fileError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, written{Name: path.Base(to), Type: "file", Path: to})
}

// composePaths makes the paths of a request absolute and checks them.
func (u user) composePaths(in composeBody) (to string, from []string, err error) {
	if in.Destination == "" || len(in.Sources) == 0 || len(in.Sources) > maxComposeFiles {
		return "", nil, fmt.Errorf("name a destination and 1 to %d source_paths: %w", maxComposeFiles, unix.EINVAL)
	}
	if to, err = u.resolve(in.Destination); err != nil {
		return "", nil, err
	}
	from = make([]string, len(in.Sources))
	for i, p := range in.Sources {
		if from[i], err = u.resolve(p); err != nil {
			return "", nil, err
		}
		if from[i] == to {
			return "", nil, fmt.Errorf("a source is the destination: %w", unix.EINVAL)
		}
	}
	return to, from, nil
}

// compose returns the path of what it made.
func (u user) compose(in composeBody) (string, error) {
	to, from, err := u.composePaths(in)
	if err != nil {
		return "", err
	}
	return to, u.do(func() error {
		if err := os.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		part := to + "." + dreamcore.NewToken(12) + ".part"
		if err := join(part, from); err != nil {
			return errors.Join(err, ignoreMissing(os.Remove(part)))
		}
		if err := os.Rename(part, to); err != nil {
			return errors.Join(err, ignoreMissing(os.Remove(part)))
		}
		for _, p := range from {
			// One that is named twice is gone the second time.
			if err := ignoreMissing(os.Remove(p)); err != nil {
				return err
			}
		}
		return nil
	})
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func join(to string, from []string) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range from {
		if err := appendFile(f, p); err != nil {
			return err
		}
	}
	return f.Close()
}

func appendFile(to *os.File, p string) error {
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%q is not a regular file: %w", clip(p, 256), unix.EINVAL)
	}
	_, err = io.Copy(to, f)
	return err
}
