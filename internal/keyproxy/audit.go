package keyproxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
	"unicode"

	"dreamcore"
)

// AuditRecord is what is written once about every request, but for floods, which
// share one record a second. Text that a client chose is capped and escaped before
// it gets here.
type AuditRecord struct {
	Seq          int64           `json:"seq"`
	Time         time.Time       `json:"time"`
	Job          dreamcore.JobID `json:"job"`
	Attempt      int             `json:"attempt"`
	Channel      string          `json:"channel"`
	Grant        string          `json:"grant"`
	Route        string          `json:"route"`
	Model        string          `json:"model"`
	Decision     string          `json:"decision"` // "allow", "refuse", or "seal" when a job has ended
	Reason       Reason          `json:"reason"`   // "" when all went well
	Detail       string          `json:"detail"`
	Status       int             `json:"status"`
	Dialled      bool            `json:"dialled"` // whether a packet may have left
	InputTokens  int64           `json:"input_tokens"`
	OutputTokens int64           `json:"output_tokens"`
	Images       int64           `json:"images"`
	CostMicros   int64           `json:"cost_micros"`
	BytesIn      int64           `json:"bytes_in"`
	BytesOut     int64           `json:"bytes_out"`
	DurMS        int64           `json:"dur_ms"`
	Requests     int64           `json:"requests,omitempty"` // of a flood that this record stands for
	Prev         string          `json:"prev"`               // Hash of the record before
	Hash         string          `json:"hash"`               // over this record with Hash empty
}

// Auditor takes records. An Auditor that fails closes every route that spends
// until it works again.
type Auditor interface {
	Record(r AuditRecord) error
}

// AuditLog is an Auditor on files, one JSON object per line, each holding the
// hash of the one before: a record that is changed, removed or moved is found.
// A file that is full is put aside and the chain goes on in a new one.
type AuditLog struct {
	mu   sync.Mutex
	path string
	max  int64 // bytes of one file
	file *os.File
	size int64
	torn bool
	seq  int64
	last string
}

// OpenAudit opens or begins the log at path and checks the chain of the file that
// is written to, and that it follows on the full one before. A half-written last record is cut off.
func OpenAudit(path string) (*AuditLog, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	a := &AuditLog{path: path, max: auditBytes, file: f}
	full, err := archives(path)
	if err == nil && len(full) > 0 {
		a.seq, a.last, err = lastOf(full[len(full)-1])
	}
	if err == nil {
		_, a.seq, a.last, a.size, err = verify(f, a.seq, a.last, nil)
	}
	if errors.Is(err, errTorn) {
		err = f.Truncate(a.size)
	}
	if err != nil {
		_ = f.Close() // the first error is the one that matters
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	return a, nil
}

var errTorn = errors.New("the last record is half written")

// VerifyAudit checks a log of one file and returns the number of its records.
func VerifyAudit(r io.Reader) (records int64, err error) {
	_, records, _, _, err = verify(r, 0, "", nil)
	return records, err
}

// anyRecord stands for the number before a first record that may be any.
const anyRecord = -1

// verify checks that the records of r follow on the record seq with the hash
// last, and that those which were sealed are the ones that seals knows. It returns the number before the first, and those of the last.
func verify(r io.Reader, seq int64, last string, seals map[int64]string) (first, end int64, hash string, size int64, err error) {
	first = seq
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				return first, seq, last, size, errTorn
			}
			return first, seq, last, size, nil
		}
		if err != nil {
			return first, seq, last, size, fmt.Errorf("record %d: %w", seq+1, err)
		}
		var rec AuditRecord
		if err := json.Unmarshal(line, &rec); err != nil {
			return first, seq, last, size, fmt.Errorf("record %d: %w", seq+1, err)
		}
		if seq == anyRecord {
			first, seq, last = rec.Seq-1, rec.Seq-1, rec.Prev
		}
		want := rec.Hash
		_, sum, err := seal(rec)
		if err != nil {
			return first, seq, last, size, fmt.Errorf("record %d: %w", seq+1, err)
		}
		if rec.Seq != seq+1 || rec.Prev != last || want != sum {
			return first, seq, last, size, fmt.Errorf("record %d: the chain is broken here", seq+1)
		}
		if sealed, ok := seals[rec.Seq]; ok && sealed != sum {
			return first, seq, last, size, fmt.Errorf("record %d: the chain was written anew from here or from before: a job was sealed with another record", rec.Seq)
		}
		seq, last = rec.Seq, rec.Hash
		size += int64(len(line))
	}
}

// seal sets the hash and returns the record's line.
func seal(r AuditRecord) (line []byte, sum string, err error) {
	r.Hash = ""
	body, err := json.Marshal(r)
	if err != nil {
		return nil, "", err
	}
	h := sha256.Sum256(body)
	r.Hash = hex.EncodeToString(h[:])
	line, err = json.Marshal(r)
	return append(line, '\n'), r.Hash, err
}

// Record numbers, chains and writes r.
func (a *AuditLog) Record(r AuditRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.Seq, r.Prev = a.seq+1, a.last
	line, sum, err := seal(r)
	if err != nil {
		return fmt.Errorf("write audit record: %w", err)
	}
	if a.torn {
		if err := a.file.Truncate(a.size); err != nil {
			return fmt.Errorf("write audit record: %w", err)
		}
		a.torn = false
	}
	if a.size > 0 && a.size+int64(len(line)) > a.max {
		if err := a.rotate(); err != nil {
			return fmt.Errorf("begin a new audit file: %w", err)
		}
	}
	if _, err := a.file.WriteAt(line, a.size); err != nil {
		a.torn = true
		return fmt.Errorf("write audit record: %w", err)
	}
	a.size += int64(len(line))
	a.seq, a.last = r.Seq, sum
	return nil
}

// Seal is the last record of the chain at a moment. Who keeps it elsewhere sees
// when the chain was cut, or written anew as a whole.
type Seal struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// Head returns the last record.
func (a *AuditLog) Head() Seal {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Seal{a.seq, a.last}
}

// Close syncs and closes the file.
func (a *AuditLog) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := errors.Join(a.file.Sync(), a.file.Close()); err != nil {
		return fmt.Errorf("close audit log: %w", err)
	}
	return nil
}

// Clip makes untrusted text fit for one line of a log: at most max letters,
// everything unprintable escaped.
func Clip(s string, max int) string { return clip(s, max) }

// clip makes untrusted text fit for one line of a log: at most max runes,
// everything unprintable escaped.
func clip(s string, max int) string {
	var b bytes.Buffer
	n := 0
	for _, r := range s {
		if n++; n > max {
			b.WriteString("...")
			break
		}
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) || r > unicode.MaxLatin1 && unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
