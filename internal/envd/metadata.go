package envd

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/sys/unix"
)

// What clients say about a file is kept in its extended attributes, under
// E2B's names and within E2B's limits.
const (
	metadataHeader   = "X-Metadata-"
	metadataPrefix   = "user.e2b."
	maxMetadataKey   = 255 - len(metadataPrefix)
	maxMetadataBytes = 4096 // keys with the prefix, and values
)

// metadataOf reads what an upload's headers say about its files. Of a header
// that is there more than once the first counts.
func metadataOf(h http.Header) (map[string]string, error) {
	var m map[string]string
	total := 0
	for name, values := range h {
		if len(name) < len(metadataHeader) || !strings.EqualFold(name[:len(metadataHeader)], metadataHeader) || len(values) == 0 {
			continue
		}
		key, value := strings.ToLower(name[len(metadataHeader):]), values[0]
		if key == "" || len(key) > maxMetadataKey || !printable(key) || !printable(value) {
			return nil, fmt.Errorf("the metadata %q is not of printable ASCII with a key of 1 to %d bytes: %w", clip(key, 64), maxMetadataKey, unix.EINVAL)
		}
		if total += len(metadataPrefix) + len(key) + len(value); total > maxMetadataBytes {
			return nil, fmt.Errorf("a file's metadata may have %d bytes: %w", maxMetadataBytes, unix.EINVAL)
		}
		if m == nil {
			m = map[string]string{}
		}
		m[key] = value
	}
	return m, nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// setMetadata makes m the whole metadata of an open file. A new file has none.
func setMetadata(fd int, m map[string]string, isNew bool) error {
	if !isNew {
		names, err := attributes(metadataPrefix, func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) })
		if err != nil {
			return fmt.Errorf("list metadata: %w", err)
		}
		for _, name := range names {
			if _, keep := m[name[len(metadataPrefix):]]; !keep {
				if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
					return fmt.Errorf("remove metadata: %w", err)
				}
			}
		}
	}
	for k, v := range m {
		if err := unix.Fsetxattr(fd, metadataPrefix+k, []byte(v), 0); err != nil {
			return fmt.Errorf("keep metadata: %w", err)
		}
	}
	return nil
}

// getMetadata reads the metadata of the file p, which is no link.
func getMetadata(p string) map[string]string {
	// What cannot be read is not there for this user.
	names, _ := attributes(metadataPrefix, func(buf []byte) (int, error) { return unix.Llistxattr(p, buf) })
	var m map[string]string
	for _, name := range names {
		value := make([]byte, maxMetadataBytes)
		n, err := unix.Lgetxattr(p, name, value)
		if err != nil || !printable(string(value[:n])) || !printable(name) {
			continue // set by other means; the protocol could not carry it
		}
		if m == nil {
			m = map[string]string{}
		}
		m[name[len(metadataPrefix):]] = string(value[:n])
	}
	return m
}

// attributes lists the names of a file's attributes that begin with prefix and
// go on behind it.
func attributes(prefix string, list func([]byte) (int, error)) ([]string, error) {
	buf := make([]byte, 256)
	n, err := list(buf)
	if errors.Is(err, unix.ERANGE) {
		buf = make([]byte, 64<<10) // the kernel's own limit
		n, err = list(buf)
	}
	if errors.Is(err, unix.ENOTSUP) {
		return nil, nil // this file system keeps none
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(buf[:n], []byte{0}) {
		if len(name) > len(prefix) && strings.HasPrefix(string(name), prefix) {
			names = append(names, string(name))
		}
	}
	return names, nil
}
