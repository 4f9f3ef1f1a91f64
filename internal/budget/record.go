package budget

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"dreamcore"
)

// The kinds of record in the file.
const (
	kindGrant   = "grant"
	kindMark    = "mark"
	kindReserve = "reserve"
	kindSettle  = "settle"
)

// record is one line of the file.
type record struct {
	Kind     string            `json:"kind"`
	ID       int64             `json:"id,omitempty"`
	Account  string            `json:"account,omitempty"`
	Accounts []string          `json:"accounts,omitempty"`
	State    string            `json:"state,omitempty"`
	Limit    *dreamcore.Budget `json:"limit,omitempty"`
	Amount   *dreamcore.Usage  `json:"amount,omitempty"`
}

// maxRecordBytes bounds a line when reading.
const maxRecordBytes = 64 << 10

// lock keeps a second process off the same ledger: two writers would each see
// half of what is spent.
func lock(f *os.File) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock ledger %s (is another process using it?): %w", f.Name(), err)
	}
	return nil
}

// replay reads every whole record and cuts a torn one off the end.
func (l *Ledger) replay(f *os.File) error {
	r := bufio.NewReaderSize(f, maxRecordBytes)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF):
			if len(line) == 0 {
				return nil
			}
			// A crash in the middle of a write: it was never answered for.
			if err := f.Truncate(l.size); err != nil {
				return fmt.Errorf("cut the torn record %d: %w", n, err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("record %d: %w", n, err)
		}
		var rec record
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&rec); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		if err := l.take(rec); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		l.size += int64(len(line))
	}
}

// apply writes rec, then takes it; when it cannot be written nothing changes.
func (l *Ledger) apply(rec record) error {
	line, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	line = append(line, '\n')
	if l.torn {
		if err := l.file.Truncate(l.size); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		l.torn = false
	}
	if _, err := l.file.WriteAt(line, l.size); err != nil {
		l.torn = true
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	l.size += int64(len(line))
	return l.take(rec)
}

// take changes the accounts as rec says.
func (l *Ledger) take(rec record) error {
	switch rec.Kind {
	case kindGrant:
		if rec.Account == "" || rec.Limit == nil {
			return errors.New("a grant without account or limit")
		}
		a := l.accounts[rec.Account]
		if a == nil {
			a = &account{}
			l.accounts[rec.Account] = a
		}
		a.limit = *rec.Limit
	case kindMark:
		a := l.accounts[rec.Account]
		if a == nil {
			return fmt.Errorf("mark %q: %w", rec.Account, ErrNoAccount)
		}
		a.state = rec.State
	case kindReserve:
		if rec.Amount == nil || negative(*rec.Amount) || rec.ID < l.next || rec.ID > 1<<53 {
			return errors.New("a reservation without amount or with an old number")
		}
		for _, name := range rec.Accounts {
			a := l.accounts[name]
			if a == nil {
				return fmt.Errorf("reserve in %q: %w", name, ErrNoAccount)
			}
			a.held = add(a.held, *rec.Amount)
		}
		l.next = rec.ID + 1
		l.held[rec.ID] = Reservation{ID: rec.ID, Accounts: rec.Accounts, Amount: *rec.Amount}
	case kindSettle:
		r, ok := l.held[rec.ID]
		if !ok || rec.Amount == nil || negative(*rec.Amount) {
			return fmt.Errorf("a settlement of %d, which is not held", rec.ID)
		}
		delete(l.held, rec.ID)
		for _, name := range r.Accounts {
			a := l.accounts[name]
			a.held = sub(a.held, r.Amount)
			a.spent = add(a.spent, *rec.Amount)
		}
	default:
		return fmt.Errorf("unknown kind %q", rec.Kind)
	}
	return nil
}
