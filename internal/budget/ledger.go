// Package budget keeps what may be spent and what was: reserve atomically, do
// the work, settle. A check that is followed by an addition is a race; here the
// reservation is the check. The ledger is an append-only file, so that a crash
// between the two charges the whole reservation and nothing is spent twice.
package budget

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"dreamcore"
)

// The reasons for which a ledger refuses; test with errors.Is.
var (
	ErrNoAccount   = errors.New("no such account")
	ErrUnavailable = errors.New("the ledger cannot be written")
)

// Exhausted says which limit of which account a reservation would pass.
type Exhausted struct {
	Account string
	Limit   string // the JSON name of the field of dreamcore.Budget
}

// Error names both.
func (e *Exhausted) Error() string {
	return fmt.Sprintf("the budget of %s is spent: %s", e.Account, e.Limit)
}

// Reservation is what Reserve granted and Settle ends.
type Reservation struct {
	ID       int64
	Accounts []string
	Amount   dreamcore.Usage
}

type account struct {
	limit dreamcore.Budget
	spent dreamcore.Usage // settled
	held  dreamcore.Usage // reserved and not settled
	state string          // free text of the owner, see Mark
}

// Ledger is a set of accounts with its file. It is safe for concurrent use.
// Records reach the kernel before a method returns, so they survive a crash of
// the process; Sync brings them to the disk.
type Ledger struct {
	mu       sync.Mutex
	file     file
	size     int64 // the bytes of file that are whole records
	torn     bool  // a write failed half way: cut to size before the next
	accounts map[string]*account
	held     map[int64]Reservation
	next     int64
}

// file is what a ledger needs of *os.File; a test breaks it.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Open reads the ledger at path, or begins one. A half-written last record is
// cut off; any other damage is an error. Reservations that nobody settled are
// charged whole, once. lost says how many there were.
func Open(path string) (l *Ledger, lost int, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open ledger: %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the first error is the one that matters
		}
	}()
	l = &Ledger{file: f, accounts: map[string]*account{}, held: map[int64]Reservation{}, next: 1}
	if err := lock(f); err != nil {
		return nil, 0, err
	}
	if err := l.replay(f); err != nil {
		return nil, 0, fmt.Errorf("read ledger: %w", err)
	}
	for _, r := range l.held {
		if err := l.settle(r, r.Amount); err != nil {
			return nil, 0, fmt.Errorf("reconcile ledger: %w", err)
		}
		lost++
	}
	return l, lost, nil
}

// Grant opens an account, or gives an open one a new limit; what it has spent
// stays spent.
func (l *Ledger) Grant(name string, limit dreamcore.Budget) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[name]; a != nil && a.limit == limit {
		return nil
	}
	return l.apply(record{Kind: kindGrant, Account: name, Limit: &limit})
}

// Mark keeps a short text with an account, for its owner to find after a
// restart.
func (l *Ledger) Mark(name, state string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.accounts[name] == nil {
		return ErrNoAccount
	}
	return l.apply(record{Kind: kindMark, Account: name, State: state})
}

// State returns what Mark kept, "" when nothing.
func (l *Ledger) State(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.accounts[name]; a != nil {
		return a.state
	}
	return ""
}

// Reserve holds u in every account at once, or in none: then it returns an
// *Exhausted, ErrNoAccount or ErrUnavailable.
func (l *Ledger) Reserve(u dreamcore.Usage, accounts ...string) (Reservation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(accounts) == 0 {
		return Reservation{}, ErrNoAccount
	}
	if negative(u) {
		return Reservation{}, fmt.Errorf("reserve: a negative amount: %+v", u)
	}
	for _, name := range accounts {
		a := l.accounts[name]
		if a == nil {
			return Reservation{}, ErrNoAccount
		}
		if limit := over(add(add(a.spent, a.held), u), a.limit); limit != "" {
			return Reservation{}, &Exhausted{name, limit}
		}
	}
	r := Reservation{ID: l.next, Accounts: accounts, Amount: u}
	if err := l.apply(record{Kind: kindReserve, ID: r.ID, Accounts: accounts, Amount: &u}); err != nil {
		return Reservation{}, err
	}
	return r, nil
}

// Settle ends a reservation and charges u, which may be more or less than what
// was held. Settling twice is an error and charges nothing.
func (l *Ledger) Settle(r Reservation, u dreamcore.Usage) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settle(r, u)
}

func (l *Ledger) settle(r Reservation, u dreamcore.Usage) error {
	if _, ok := l.held[r.ID]; !ok {
		return fmt.Errorf("settle %d: there is no such reservation", r.ID)
	}
	if negative(u) {
		return fmt.Errorf("settle %d: a negative amount: %+v", r.ID, u)
	}
	return l.apply(record{Kind: kindSettle, ID: r.ID, Amount: &u})
}

// Spent returns what an account was charged; reservations in flight are not in it.
func (l *Ledger) Spent(name string) (dreamcore.Usage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[name]
	if a == nil {
		return dreamcore.Usage{}, ErrNoAccount
	}
	return a.spent, nil
}

// Left returns the most that all accounts together could still reserve.
func (l *Ledger) Left(accounts ...string) (dreamcore.Budget, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = math.MaxInt64
	left := dreamcore.Budget{Requests: most, InputTokens: most, OutputTokens: most, Images: most, Bytes: most, CostMicros: most}
	for _, name := range accounts {
		a := l.accounts[name]
		if a == nil {
			return dreamcore.Budget{}, ErrNoAccount
		}
		used := add(a.spent, a.held)
		for i, f := range fields {
			*fields[i].limit(&left) = min(*fields[i].limit(&left), max(0, *f.limit(&a.limit)-*f.usage(&used)))
		}
	}
	return left, nil
}

// Sync brings all records to the disk.
func (l *Ledger) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Close syncs and closes the file. Reservations in flight stay on record and
// are charged at the next Open.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := errors.Join(l.file.Sync(), l.file.Close()); err != nil {
		return fmt.Errorf("close ledger: %w", err)
	}
	return nil
}

// field reaches one column of usage and of budget, so that no column is
// forgotten in a sum or a comparison.
type field struct {
	name  string
	usage func(*dreamcore.Usage) *int64
	limit func(*dreamcore.Budget) *int64
}

var fields = []field{
	{"requests", func(u *dreamcore.Usage) *int64 { return &u.Requests }, func(b *dreamcore.Budget) *int64 { return &b.Requests }},
	{"inputTokens", func(u *dreamcore.Usage) *int64 { return &u.InputTokens }, func(b *dreamcore.Budget) *int64 { return &b.InputTokens }},
	{"outputTokens", func(u *dreamcore.Usage) *int64 { return &u.OutputTokens }, func(b *dreamcore.Budget) *int64 { return &b.OutputTokens }},
	{"images", func(u *dreamcore.Usage) *int64 { return &u.Images }, func(b *dreamcore.Budget) *int64 { return &b.Images }},
	{"bytes", func(u *dreamcore.Usage) *int64 { return &u.Bytes }, func(b *dreamcore.Budget) *int64 { return &b.Bytes }},
	{"costMicros", func(u *dreamcore.Usage) *int64 { return &u.CostMicros }, func(b *dreamcore.Budget) *int64 { return &b.CostMicros }},
}

// add sums and stops at the largest number instead of wrapping round.
func add(a, b dreamcore.Usage) dreamcore.Usage {
	for _, f := range fields {
		x, y := f.usage(&a), *f.usage(&b)
		if *x > math.MaxInt64-y {
			*x = math.MaxInt64
		} else {
			*x += y
		}
	}
	return a
}

func sub(a, b dreamcore.Usage) dreamcore.Usage {
	for _, f := range fields {
		x := f.usage(&a)
		*x = max(0, *x-*f.usage(&b))
	}
	return a
}

func negative(u dreamcore.Usage) bool {
	for _, f := range fields {
		if *f.usage(&u) < 0 {
			return true
		}
	}
	return false
}

// over names the first limit that u passes. A zero limit means none of that.
func over(u dreamcore.Usage, b dreamcore.Budget) string {
	for _, f := range fields {
		if *f.usage(&u) > *f.limit(&b) {
			return f.name
		}
	}
	return ""
}
