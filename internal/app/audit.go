package app

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"dreamcore"
	"dreamcore/internal/keyproxy"
	"dreamcore/internal/text"
)

// sealsFile keeps what each job was sealed with, out of the key proxy's reach.
func sealsFile(data string) string { return filepath.Join(data, "audit-seals.jsonl") }

// sealRecord is a line of it.
type sealRecord struct {
	Time    time.Time       `json:"time"`
	Job     dreamcore.JobID `json:"job"`
	Attempt int             `json:"attempt"`
	keyproxy.Seal
}

// sealTo appends to the file of seals.
func sealTo(path string, log *slog.Logger) func(dreamcore.JobID, int, keyproxy.Seal) {
	var mu sync.Mutex
	return func(job dreamcore.JobID, attempt int, s keyproxy.Seal) {
		mu.Lock()
		defer mu.Unlock()
		line, err := json.Marshal(sealRecord{time.Now().UTC(), job, attempt, s})
		if err == nil {
			err = appendLine(path, line)
		}
		if err != nil {
			log.Error("a job's audit cannot be sealed", "job_id", job, "attempt", attempt, "err", err)
			return
		}
		log.Info("audit sealed", "job_id", job, "attempt", attempt, "seq", s.Seq, "hash", s.Hash)
	}
}

func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// readSeals reads the file of seals; a half-written last line is none.
func readSeals(path string) (seals []keyproxy.Seal, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		var r sealRecord
		if json.Unmarshal(sc.Bytes(), &r) == nil && r.Hash != "" {
			seals = append(seals, r.Seal)
		}
	}
	return seals, sc.Err()
}

// runAudit checks the chain of the key proxy's audit.
func runAudit(_ context.Context, t Terminal, args []string) error {
	var s settings
	rest, err := options(t, "keyproxy.audit_help", args, func(f *flag.FlagSet) { f.StringVar(&s.config, "config", "", "") })
	if err != nil {
		return err
	}
	if len(rest) < 1 || len(rest) > 2 || rest[0] != "verify" {
		fmt.Fprintln(t.Err, text.T(t.Lang, "keyproxy.audit_help"))
		return errUsage
	}
	cfg, err := s.load(t)
	if err != nil {
		return err
	}
	path := filepath.Join(cfg.Data, "keyproxy", "audit.jsonl")
	var seals []keyproxy.Seal
	if len(rest) == 2 {
		path = rest[1] // a copy, of which we know no seals
	} else if seals, err = readSeals(sealsFile(cfg.Data)); err != nil {
		return fmt.Errorf("read the seals: %w", err)
	}
	n, err := keyproxy.VerifyAuditFiles(path, seals...)
	switch {
	case err == nil:
		t.say("keyproxy.audit_ok", "records", strconv.FormatInt(n, 10), "seals", strconv.Itoa(len(seals)))
		return nil
	case errors.Is(err, keyproxy.ErrTorn):
		t.say("keyproxy.audit_torn", "records", strconv.FormatInt(n, 10), "seals", strconv.Itoa(len(seals)))
		return nil
	}
	fmt.Fprintln(t.Err, text.T(t.Lang, "keyproxy.audit_bad", "where", printable(err.Error(), 400)))
	return errSaid
}
