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

// AuditRecord is what is written once about every request. Text that a client
// chose is capped and escaped before it gets here.
type AuditRecord struct {
	Seq          int64           `json:"seq"`
	Time         time.Time       `json:"time"`
	Job          dreamcore.JobID `json:"job"`
	Attempt      int             `json:"attempt"`
	Channel      string          `json:"channel"`
	Grant        string          `json:"grant"`
	Route        string          `json:"route"`
	Model        string          `json:"model"`
	Decision     string          `json:"decision"` // "allow" or "refuse"
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
	Prev         string          `json:"prev"` // Hash of the record before
	Hash         string          `json:"hash"` // over this record with Hash empty
}

// Auditor takes records. An Auditor that fails closes every route that spends
// until it works again.
type Auditor interface {
	Record(r AuditRecord) error
}

// AuditLog is an Auditor on a file, one JSON object per line, each holding the
// hash of the one before: a record that is changed, removed or moved is found.
type AuditLog struct {
	mu   sync.Mutex
	file *os.File
	size int64
	torn bool
	seq  int64
	last string
}

// OpenAudit opens or begins the log at path and checks the chain of what is
// there. A half-written last record is cut off.
func OpenAudit(path string) (*AuditLog, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open audit log: %w", err)
	}
	a := &AuditLog{file: f}
	a.seq, a.last, a.size, err = verify(f)
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

// VerifyAudit checks a whole log and returns the number of its records.
func VerifyAudit(r io.Reader) (records int64, err error) {
	records, _, _, err = verify(r)
	return records, err
}

func verify(r io.Reader) (seq int64, last string, size int64, err error) {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				return seq, last, size, errTorn
			}
			return seq, last, size, nil
		}
		if err != nil {
			return seq, last, size, fmt.Errorf("record %d: %w", seq+1, err)
		}
		var rec AuditRecord
		if err := json.Unmarshal(line, &rec); err != nil {
			return seq, last, size, fmt.Errorf("record %d: %w", seq+1, err)
		}
		want := rec.Hash
		_, sum, err := seal(rec)
		if err != nil {
			return seq, last, size, fmt.Errorf("record %d: %w", seq+1, err)
		}
		if rec.Seq != seq+1 || rec.Prev != last || want != sum {
			return seq, last, size, fmt.Errorf("record %d: the chain is broken here", seq+1)
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
	if _, err := a.file.WriteAt(line, a.size); err != nil {
		a.torn = true
		return fmt.Errorf("write audit record: %w", err)
	}
	a.size += int64(len(line))
	a.seq, a.last = r.Seq, sum
	return nil
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
