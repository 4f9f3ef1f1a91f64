package budget

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"dreamcore"
)

func open1(t testing.TB, path string) (*Ledger, int) {
	t.Helper()
	l, lost, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return l, lost
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func limit(n int64) dreamcore.Budget {
	return dreamcore.Budget{Requests: n, InputTokens: n, OutputTokens: n, Images: n, Bytes: n, CostMicros: n}
}

func TestB02OneOfFiftyIsAdmitted(t *testing.T) {
	l, _ := open1(t, filepath.Join(t.TempDir(), "l"))
	defer l.Close()
	ok(t, l.Grant("a", dreamcore.Budget{Requests: 1}))
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := 0
	for range 50 {
		wg.Go(func() {
			_, err := l.Reserve(dreamcore.Usage{Requests: 1}, "a")
			var spent *Exhausted
			if err == nil {
				mu.Lock()
				admitted++
				mu.Unlock()
			} else if !errors.As(err, &spent) || spent.Limit != "requests" || spent.Account != "a" {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if admitted != 1 {
		t.Errorf("%d were admitted", admitted)
	}
}

func TestAllAccountsOrNone(t *testing.T) {
	l, _ := open1(t, filepath.Join(t.TempDir(), "l"))
	defer l.Close()
	ok(t, l.Grant("job", limit(100)))
	ok(t, l.Grant("creator", limit(10)))
	if _, err := l.Reserve(dreamcore.Usage{Bytes: 20}, "job", "creator"); err == nil {
		t.Fatal("admitted past the creator's limit")
	}
	left, err := l.Left("job")
	ok(t, err)
	if left.Bytes != 100 {
		t.Errorf("the job's account holds something: %+v", left)
	}
	r, err := l.Reserve(dreamcore.Usage{Bytes: 10}, "job", "creator")
	ok(t, err)
	if left, _ := l.Left("job", "creator"); left.Bytes != 0 || left.Requests != 10 {
		t.Errorf("left %+v", left)
	}
	ok(t, l.Settle(r, dreamcore.Usage{Bytes: 3}))
	if left, _ := l.Left("job", "creator"); left.Bytes != 7 {
		t.Errorf("left %+v", left)
	}
	if err := l.Settle(r, dreamcore.Usage{Bytes: 3}); err == nil {
		t.Error("settled twice")
	}
	if u, _ := l.Spent("creator"); u.Bytes != 3 {
		t.Errorf("spent %+v", u)
	}
	if _, err := l.Reserve(dreamcore.Usage{}, "nobody"); !errors.Is(err, ErrNoAccount) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Reserve(dreamcore.Usage{}); !errors.Is(err, ErrNoAccount) {
		t.Errorf("no account: %v", err)
	}
	if _, err := l.Reserve(dreamcore.Usage{Bytes: -1}, "job"); err == nil {
		t.Error("a negative amount was reserved")
	}
}

func TestZeroLimitMeansNone(t *testing.T) {
	l, _ := open1(t, filepath.Join(t.TempDir(), "l"))
	defer l.Close()
	ok(t, l.Grant("a", dreamcore.Budget{}))
	for _, u := range []dreamcore.Usage{{Requests: 1}, {InputTokens: 1}, {OutputTokens: 1}, {Images: 1}, {Bytes: 1}, {CostMicros: 1}} {
		if _, err := l.Reserve(u, "a"); err == nil {
			t.Errorf("%+v was admitted", u)
		}
	}
}

func TestSumsDoNotWrap(t *testing.T) {
	l, _ := open1(t, filepath.Join(t.TempDir(), "l"))
	defer l.Close()
	ok(t, l.Grant("a", limit(math.MaxInt64-1)))
	r, err := l.Reserve(dreamcore.Usage{Bytes: 1}, "a")
	ok(t, err)
	ok(t, l.Settle(r, dreamcore.Usage{Bytes: math.MaxInt64}))
	if _, err := l.Reserve(dreamcore.Usage{Bytes: math.MaxInt64}, "a"); err == nil {
		t.Error("wrapped round")
	}
}

func TestB14CrashBetweenReserveAndSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	l, _ := open1(t, path)
	ok(t, l.Grant("a", limit(100)))
	ok(t, l.Mark("a", "open:1"))
	r, err := l.Reserve(dreamcore.Usage{Bytes: 5}, "a")
	ok(t, err)
	ok(t, l.Settle(r, dreamcore.Usage{Bytes: 4}))
	_, err = l.Reserve(dreamcore.Usage{Bytes: 30}, "a")
	ok(t, err)
	// The process dies here: no Close, the lock goes with the descriptor.
	ok(t, l.file.Close())
	for round, wantLost := range []int{1, 0, 0} {
		l, lost := open1(t, path)
		if lost != wantLost {
			t.Errorf("round %d: %d calls were lost", round, lost)
		}
		if u, _ := l.Spent("a"); u.Bytes != 34 {
			t.Errorf("round %d: spent %+v", round, u)
		}
		if l.State("a") != "open:1" {
			t.Errorf("round %d: state %q", round, l.State("a"))
		}
		ok(t, l.Close())
	}
}

func TestTornAndDamagedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	l, _ := open1(t, path)
	ok(t, l.Grant("a", limit(100)))
	r, err := l.Reserve(dreamcore.Usage{Bytes: 5}, "a")
	ok(t, err)
	ok(t, l.Settle(r, dreamcore.Usage{Bytes: 5}))
	ok(t, l.Close())
	good, err := os.ReadFile(path)
	ok(t, err)
	// Torn anywhere: it opens, and never with less than what was settled whole.
	for n := range good {
		ok(t, os.WriteFile(path, good[:n], 0o600))
		l, _, err := Open(path)
		if err != nil {
			t.Fatalf("torn at %d: %v", n, err)
		}
		if strings.Contains(string(good[:n]), `"reserve"`) && strings.HasSuffix(string(good[:n]), "\n") {
			if u, _ := l.Spent("a"); u.Bytes != 5 {
				t.Errorf("torn at %d: spent %+v", n, u)
			}
		}
		ok(t, l.Grant("b", limit(1)))
		ok(t, l.Close())
		l, _ = open1(t, path)
		ok(t, l.Close())
	}
	// Damage in the middle is no crash: it is said.
	bad := strings.Replace(string(good), `"bytes":5`, `"bytes":-5`, 1)
	ok(t, os.WriteFile(path, []byte(bad), 0o600))
	if _, _, err := Open(path); err == nil {
		t.Error("a negative amount on file was accepted")
	}
}

func TestOneProcessOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	l, _ := open1(t, path)
	if _, _, err := Open(path); err == nil {
		t.Error("opened twice")
	}
	ok(t, l.Close())
	l, _ = open1(t, path)
	ok(t, l.Close())
}

// broken is a file on a full disk: it takes half of a record, then nothing.
type broken struct {
	file
	full bool
}

func (b *broken) WriteAt(p []byte, off int64) (int, error) {
	if b.full {
		n, _ := b.file.WriteAt(p[:len(p)/2], off)
		return n, errors.New("no space left on device")
	}
	return b.file.WriteAt(p, off)
}

func TestB13FullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	l, _ := open1(t, path)
	ok(t, l.Grant("a", limit(100)))
	b := &broken{file: l.file}
	l.file = b
	r, err := l.Reserve(dreamcore.Usage{Bytes: 1}, "a")
	ok(t, err)
	b.full = true
	if _, err := l.Reserve(dreamcore.Usage{Bytes: 1}, "a"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("reserve: %v", err)
	}
	if err := l.Settle(r, dreamcore.Usage{Bytes: 1}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("settle: %v", err)
	}
	if left, _ := l.Left("a"); left.Bytes != 99 {
		t.Errorf("left %+v", left)
	}
	b.full = false
	ok(t, l.Settle(r, dreamcore.Usage{Bytes: 1}))
	ok(t, l.Close())
	l, lost := open1(t, path)
	defer l.Close()
	if u, _ := l.Spent("a"); u.Bytes != 1 || lost != 0 {
		t.Errorf("after the disk had room: %+v, %d lost", u, lost)
	}
}

// TestLedgerAgainstModel: any order of operations and crashes agrees with a
// plain sum, and never passes a limit by reserving.
func TestLedgerAgainstModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		f, err := os.CreateTemp(dir, "l")
		ok(t, err)
		path := f.Name()
		ok(t, f.Close())
		l, _ := open1(t, path)
		names := []string{"a", "b"}
		max := map[string]int64{"a": rapid.Int64Range(0, 100).Draw(rt, "a"), "b": rapid.Int64Range(0, 100).Draw(rt, "b")}
		for _, n := range names {
			ok(t, l.Grant(n, limit(max[n])))
		}
		spent, held := map[string]int64{}, map[string]int64{}
		var open []Reservation
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"reserve", "reserve", "settle", "crash"}).Draw(rt, "op") {
			case "reserve":
				in := rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}}).Draw(rt, "in")
				n := rapid.Int64Range(0, 30).Draw(rt, "n")
				fits := true
				for _, x := range in {
					fits = fits && spent[x]+held[x]+n <= max[x]
				}
				r, err := l.Reserve(dreamcore.Usage{Bytes: n}, in...)
				if (err == nil) != fits {
					rt.Fatalf("reserve %d in %v: %v, the model says %t", n, in, err, fits)
				}
				if err == nil {
					open = append(open, r)
					for _, x := range in {
						held[x] += n
					}
				}
			case "settle":
				if len(open) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(open)-1).Draw(rt, "i")
				r := open[i]
				open = append(open[:i:i], open[i+1:]...)
				n := rapid.Int64Range(0, r.Amount.Bytes).Draw(rt, "n")
				ok(t, l.Settle(r, dreamcore.Usage{Bytes: n}))
				for _, x := range r.Accounts {
					held[x] -= r.Amount.Bytes
					spent[x] += n
				}
			case "crash":
				ok(t, l.file.Close())
				var lost int
				l, lost = open1(t, path)
				if lost != len(open) {
					rt.Fatalf("%d lost, the model says %d", lost, len(open))
				}
				for _, r := range open {
					for _, x := range r.Accounts {
						held[x] -= r.Amount.Bytes
						spent[x] += r.Amount.Bytes
					}
				}
				open = nil
			}
			for _, n := range names {
				if u, _ := l.Spent(n); u.Bytes != spent[n] || u.Bytes > max[n] {
					rt.Fatalf("%s: spent %d, the model says %d of %d", n, u.Bytes, spent[n], max[n])
				}
			}
		}
		ok(t, l.Close())
	})
}

// FuzzReplay opens files of any content: an error or a ledger that works.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"kind":"grant","account":"a","limit":{"bytes":5}}` + "\n" + `{"kind":"reserve","id":1,"accounts":["a"],"amount":{"bytes":1}}` + "\n"))
	f.Add([]byte(`{"kind":"settle","id":1,"amount":{}}` + "\n"))
	f.Add([]byte(`{"kind":"reserve","id":9223372036854775807,"accounts":["a"],"amount":{"bytes":1}}` + "\n"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "l")
		ok(t, os.WriteFile(path, data, 0o600))
		l, _, err := Open(path)
		if err != nil {
			return
		}
		ok(t, l.Grant("x", limit(1)))
		ok(t, l.Close())
		l, lost, err := Open(path)
		if err != nil || lost != 0 {
			t.Fatalf("what was opened once does not open again: %v, %d lost", err, lost)
		}
		ok(t, l.Close())
	})
}
