package gvisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// What gVisor and PID 1 print is kept in a file of the box's folder, and who is
// in the box can make them print. So the file is cut to keepLogBytes whenever it
// has grown over maxLogBytes; between two looks it grows as fast as gVisor
// writes.
const (
	maxLogBytes  = 4 << 20
	keepLogBytes = 1 << 20
	logTick      = time.Second
)

func (r *Runtime) logFile(id string) string { return filepath.Join(r.boxDir(id), "log") }

// Log returns the end of what gVisor and PID 1 have printed, whole lines, at
// most limitBytes. It is untrusted.
func (b *Box) Log(limitBytes int64) ([]byte, error) {
	data, err := tail(b.r.logFile(b.ID), limitBytes)
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", b.ID, err)
	}
	return data, nil
}

// tail returns the last whole lines of a file.
func tail(name string, limitBytes int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(info.Size()-limitBytes, 0)
	data, err := io.ReadAll(io.NewSectionReader(f, from, limitBytes))
	if err != nil || from == 0 {
		return data, err
	}
	if _, rest, ok := bytes.Cut(data, []byte("\n")); ok {
		data = rest // the first is a part of a line
	}
	return data, nil
}

// keepLogsShort looks after the files until the returned function is called.
func (r *Runtime) keepLogsShort() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(logTick)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				r.shortenLogs()
			}
		}
	}()
	return sync.OnceFunc(func() { close(quit); <-done })
}

func (r *Runtime) shortenLogs() {
	r.mu.Lock()
	ids := make([]string, 0, len(r.boxes))
	for id := range r.boxes {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	for _, id := range ids {
		cut, err := shorten(r.logFile(id))
		switch {
		case errors.Is(err, fs.ErrNotExist): // it ends, or has not begun
		case err != nil:
			r.log.Error("the log of a sandbox cannot be kept short", "sandbox_id", id, "reason", err.Error())
		case cut > 0:
			r.log.Warn("the log of a sandbox was cut", "sandbox_id", id, "decision", "cut", "reason", "too_long", "bytes", cut)
		}
	}
}

// shorten cuts a file that has grown too long to its end, and returns by how
// much. Its writers append, so what they write next follows; what they write in
// the moment of the cut may be lost.
func shorten(name string) (cutBytes int64, err error) {
	info, err := os.Stat(name)
	if err != nil || info.Size() <= maxLogBytes {
		return 0, err
	}
	data, err := tail(name, keepLogBytes)
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	_, err = f.Write(data)
	return info.Size() - int64(len(data)), errors.Join(err, f.Close())
}
