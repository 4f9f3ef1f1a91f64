package keyproxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every way to change what was written is found, at its first place; what a
// crash leaves is told apart from it.
func TestAuditTampering(t *testing.T) {
	write := func(t *testing.T) (path string, seal Seal) {
		path = filepath.Join(t.TempDir(), "audit.jsonl")
		log, err := OpenAudit(path)
		if err != nil {
			t.Fatal(err)
		}
		log.max = 2000 // several files
		for i := range 30 {
			if err := log.Record(AuditRecord{Job: "job", Detail: fmt.Sprint(i), Decision: "allow"}); err != nil {
				t.Fatal(err)
			}
			if i == 14 { // over a restart
				if err := log.Close(); err != nil {
					t.Fatal(err)
				}
				if log, err = OpenAudit(path); err != nil {
					t.Fatal(err)
				}
				log.max = 100_000
			}
		}
		seal = log.Head()
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		return path, seal
	}
	path, seal := write(t)
	full, err := archives(path)
	if err != nil || len(full) < 2 {
		t.Fatalf("%v %v", full, err)
	}
	if n, err := VerifyAuditFiles(path, seal); err != nil || n < 20 || seal.Seq != 30 {
		t.Fatalf("%d records, %+v, %v", n, seal, err)
	}
	lines := func(s string) []string { return slices.Collect(strings.Lines(s)) }
	for name, c := range map[string]struct {
		change func(lines []string) string
		says   string // "" is torn
	}{
		"flip": {func(l []string) string {
			l[4] = strings.Replace(l[4], `"allow"`, `"allov"`, 1)
			return strings.Join(l, "")
		}, "broken here"},
		"flip in the hash": {func(l []string) string {
			i := strings.LastIndex(l[4], `"hash":"`) + 8
			b := []byte(l[4])
			b[i] ^= 1
			l[4] = string(b)
			return strings.Join(l, "")
		}, "broken here"},
		"delete":           {func(l []string) string { return strings.Join(slices.Delete(l, 4, 5), "") }, "broken here"},
		"delete first":     {func(l []string) string { return strings.Join(l[1:], "") }, "broken here"},
		"reorder":          {func(l []string) string { l[4], l[5] = l[5], l[4]; return strings.Join(l, "") }, "broken here"},
		"insert":           {func(l []string) string { return strings.Join(slices.Insert(l, 4, l[4]), "") }, "broken here"},
		"insert text":      {func(l []string) string { return strings.Join(slices.Insert(l, 4, "x\n"), "") }, "record"},
		"truncate":         {func(l []string) string { return strings.Join(l[:4], "") }, "the end is missing"},
		"truncate to none": {func([]string) string { return "" }, "the end is missing"},
		"half a record":    {func(l []string) string { s := strings.Join(l, ""); return s + l[0][:40] }, ""},
		"written anew": {func(l []string) string {
			var out strings.Builder
			var prev string
			for i, line := range l {
				var rec AuditRecord
				if err := json.Unmarshal([]byte(line), &rec); err != nil {
					t.Fatal(err)
				}
				if i > 3 {
					rec.Detail, rec.Prev = "nothing happened", prev
				}
				b, sum, err := sealRecord(rec)
				if err != nil {
					t.Fatal(err)
				}
				prev = sum
				out.Write(b)
			}
			return out.String()
		}, "written anew"},
	} {
		t.Run(name, func(t *testing.T) {
			path, seal := write(t)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.change(lines(string(data)))), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = VerifyAuditFiles(path, seal)
			if c.says == "" {
				if !errors.Is(err, ErrTorn) {
					t.Errorf("%v", err)
				}
				if log, err := OpenAudit(path); err != nil || log.Head() != seal {
					t.Errorf("after a crash it does not go on: %v", err)
				}
				return
			}
			if err == nil || errors.Is(err, ErrTorn) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
	// A full file that is gone, in the middle.
	if err := os.Remove(full[len(full)-1]); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyAuditFiles(path); err == nil {
		t.Error("a whole file is missing")
	}
}

// A job that ends seals the chain.
func TestAJobIsSealed(t *testing.T) {
	w := newWorld(t)
	w.passes()
	if _, err := w.p.CloseJob(t.Context(), w.job, 1); err != nil {
		t.Fatal(err)
	}
	seal := w.p.Seal()
	path := filepath.Join(w.dir, "audit.jsonl")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := data[strings.LastIndex(strings.TrimSpace(string(data)), "\n")+1:]
	if !strings.Contains(string(last), `"decision":"seal"`) || !strings.Contains(string(last), seal.Hash) || !strings.Contains(string(last), string(w.job)) {
		t.Errorf("%+v, the last record is %s", seal, last)
	}
	if n, err := VerifyAuditFiles(path, seal); err != nil || n != seal.Seq {
		t.Errorf("%d %v", n, err)
	}
}

// sealRecord is what hides behind the variable seal in tests.
func sealRecord(r AuditRecord) ([]byte, string, error) { return seal(r) }
