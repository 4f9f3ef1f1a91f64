package keyproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The audit is one chain over several files: audit.jsonl is written to, and
// when it is full it becomes audit-N.jsonl, N being the number of its last
// record. The oldest go when there are too many, so that no box can fill the
// disk: at most (auditKept+1) * auditBytes.
const (
	auditBytes = 256 << 20
	auditKept  = 4
)

// archive names the file of records up to seq; names sort as their numbers do.
func archive(path string, seq int64) string {
	ext := filepath.Ext(path)
	return fmt.Sprintf("%s-%016d%s", strings.TrimSuffix(path, ext), seq, ext)
}

// archives lists the full files that belong to path, oldest first.
func archives(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		name, seq := filepath.Join(filepath.Dir(path), e.Name()), int64(0)
		ext := filepath.Ext(path)
		number := strings.TrimSuffix(strings.TrimPrefix(name, strings.TrimSuffix(path, ext)+"-"), ext)
		if _, err := fmt.Sscanf(number, "%d", &seq); err == nil && name == archive(path, seq) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// lastOf returns the number and hash of the last record of a full file.
func lastOf(path string) (seq int64, hash string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return 0, "", err
	}
	tail := make([]byte, min(info.Size(), 64<<10))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return 0, "", err
	}
	line, whole := bytes.CutSuffix(tail, []byte("\n"))
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	var rec AuditRecord
	if err := json.Unmarshal(line, &rec); err != nil || !whole {
		return 0, "", fmt.Errorf("%s: %w", filepath.Base(path), errors.Join(err, errTorn))
	}
	if _, sum, err := seal(rec); err != nil || sum != rec.Hash {
		return 0, "", fmt.Errorf("%s: the chain is broken at its end", filepath.Base(path))
	}
	return rec.Seq, rec.Hash, nil
}

// rotate goes on in a new file. It may be tried again after it failed at any
// point; a.mu is held.
func (a *AuditLog) rotate() error {
	if err := a.file.Sync(); err != nil {
		return err
	}
	full := archive(a.path, a.seq)
	if _, err := os.Lstat(full); errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(a.path, full)
		if err != nil {
			return err
		}
	}
	f, err := os.OpenFile(a.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_ = a.file.Close() // synced, and nothing more is written to it
	a.file, a.size = f, 0
	old, err := archives(a.path)
	for i := 0; err == nil && i < len(old)-auditKept; i++ {
		err = os.Remove(old[i])
	}
	return err
}

// VerifyAuditFiles checks the whole chain of the log at path over all its
// files, and that every seal fits it. It returns the number of the records that
// are there. The first may be missing only when as many full files are there as
// are kept. ErrTorn says that only the last record is half written, as a crash
// leaves it.
func VerifyAuditFiles(path string, seals ...Seal) (records int64, err error) {
	sealed := map[int64]string{}
	for _, s := range seals {
		sealed[s.Seq] = s.Hash
	}
	files, err := archives(path)
	if err != nil {
		return 0, fmt.Errorf("verify audit log: %w", err)
	}
	trimmed := len(files) >= auditKept
	var seq int64
	var last string
	var torn error
	for i, name := range append(files, path) {
		f, err := os.Open(name)
		if err != nil {
			return records, fmt.Errorf("verify audit log: %w", err)
		}
		before := seq
		if i == 0 && trimmed {
			before = anyRecord
		}
		first := int64(0)
		first, seq, last, _, err = verify(f, before, last, sealed)
		_ = f.Close() // only read
		if errors.Is(err, errTorn) && name != path {
			return records, fmt.Errorf("verify audit log: %s: record %d is cut", filepath.Base(name), seq+1)
		}
		if err != nil && !errors.Is(err, errTorn) {
			return records, fmt.Errorf("verify audit log: %s: %w", filepath.Base(name), err)
		}
		records += seq - first
		if err != nil {
			torn = ErrTorn
		}
	}
	for s := range sealed {
		if s > seq {
			return records, fmt.Errorf("verify audit log: record %d is the last, but a job was sealed with record %d: the end is missing", seq, s)
		}
	}
	return records, torn
}

// ErrTorn is what VerifyAuditFiles returns when only the last record is half
// written. The next start cuts it off.
var ErrTorn = errTorn
