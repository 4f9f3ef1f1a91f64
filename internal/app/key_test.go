package app

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/config"
)

// commandOn runs one command line on a data folder, with an input.
func commandOn(t *testing.T, data, input string, args ...string) (code int, out string) {
	t.Helper()
	t.Setenv("DREAMCORE_DATA", data)
	t.Setenv("DREAMCORE_CONFIG", "")
	in := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(in, []byte(input), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(in)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b bytes.Buffer
	code = Run(t.Context(), Terminal{In: f, Out: &b, Err: &b, Lang: dreamcore.English}, args)
	return code, b.String()
}

func TestKeySet(t *testing.T) {
	const secret = "sk-canary-Operator-Key-0123456789"
	data := filepath.Join(t.TempDir(), "data")
	code, out := commandOn(t, data, secret+"\n", "key", "set", "main")
	sealed, opening := filepath.Join(data, "keys", "main.age"), filepath.Join(data, "opening.key")
	if code != 0 || !strings.Contains(out, sealed) || !strings.Contains(out, opening) || strings.Contains(out, secret) {
		t.Fatalf("%d %s", code, out)
	}
	first, err := os.ReadFile(opening)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{sealed, opening} {
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info, err)
		}
		text, err := os.ReadFile(file)
		if err != nil || bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s holds the key, %v", file, err)
		}
	}
	if code, out := commandOn(t, data, "sk-another-key-of-the-operator", "key", "set", "main"); code != 0 || strings.Contains(out, opening) {
		t.Errorf("a second time: %d %s", code, out)
	}
	if again, err := os.ReadFile(opening); err != nil || !bytes.Equal(first, again) {
		t.Errorf("the opening key was replaced: %v", err)
	}
	for _, c := range []struct {
		input string
		code  int
		args  []string
	}{
		{secret, 1, []string{"key", "set", "../x"}},
		{secret, 1, []string{"key", "set", "A"}},
		{"", 1, []string{"key", "set", "x"}},
		{"two keys of one line", 1, []string{"key", "set", "x"}},
		{"short", 1, []string{"key", "set", "x"}},
		{secret, 2, []string{"key"}},
		{secret, 2, []string{"key", "get", "main"}},
	} {
		if code, out := commandOn(t, data, c.input, c.args...); code != c.code || strings.Contains(out, secret) {
			t.Errorf("%q: %d %s", c.args, code, out)
		}
	}
	if err := os.Chmod(opening, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, out := commandOn(t, data, secret, "key", "set", "x"); code != 1 || !strings.Contains(out, "chmod 600") {
		t.Errorf("an open opening key: %d %s", code, out)
	}
}

// The process is started with a sealed key, and takes another that is set
// while it runs; jobs leave seals that the audit is verified with.
func TestKeysAreTakenAnewAndJobsSealed(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if code, out := commandOn(t, data, "sk-canary-Operator-Key-0123456789\n", "key", "set", "main"); code != 0 {
		t.Fatal(out)
	}
	cfg := config.Default()
	cfg.Data = data
	cfg.Model.Name, cfg.Model.BaseURL, cfg.Model.KeyFile = "some-model", "https://api.example", cfg.SealedKey("main")
	log := &lines{}
	s := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	var err error
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if s.Proxy, err = openProxy(ctx, cfg, s.log); err != nil {
		t.Fatal(err)
	}
	s.onClose("key proxy", s.Proxy.Host.Close)
	s.watchKeys()
	defer s.Close()
	if code, out := commandOn(t, data, "sk-next-Operator-Key-9876543210\n", "key", "set", "main"); code != 0 {
		t.Fatal(out)
	}
	for !strings.Contains(log.String(), "reason=file_changed changed=1") {
		if ctx.Err() != nil {
			t.Fatalf("the key is not taken anew:\n%s", log)
		}
		time.Sleep(20 * time.Millisecond)
	}
	job := dreamcore.Job{ID: dreamcore.NewJobID(), Attempt: 1}
	if _, err := s.Proxy.Open(ctx, job, "box"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Proxy.Close(ctx, job.ID, 1); err != nil {
		t.Fatal(err)
	}
	seals, err := readSeals(sealsFile(data))
	if err != nil || len(seals) != 1 || seals[0].Seq < 1 {
		t.Fatalf("%+v %v", seals, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out := commandOn(t, data, "", "audit", "verify"); code != 0 || !strings.Contains(out, "ok:") || !strings.Contains(out, "1 seals") {
		t.Errorf("%d %s", code, out)
	}
	audit := filepath.Join(data, "keyproxy", "audit.jsonl")
	if code, out := commandOn(t, data, "", "audit", "verify", audit); code != 0 {
		t.Errorf("%d %s", code, out)
	}
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(audit, bytes.Replace(text, []byte(`"seal"`), []byte(`"sea1"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := commandOn(t, data, "", "audit", "verify"); code != 1 || !strings.Contains(out, "broken") {
		t.Errorf("%d %s", code, out)
	}
	if err := os.Truncate(audit, 0); err != nil {
		t.Fatal(err)
	}
	if code, out := commandOn(t, data, "", "audit", "verify"); code != 1 || !strings.Contains(out, "missing") {
		t.Errorf("%d %s", code, out)
	}
	if code, _ := commandOn(t, data, "", "audit"); code != 2 {
		t.Errorf("%d", code)
	}
}

// A person who runs the proxy's own command is told.
func TestTheProxyIsNotStartedByHand(t *testing.T) {
	code, out := commandOn(t, t.TempDir(), "", "keyproxy")
	if code != 2 || !strings.Contains(out, "started by a running DreamCore") {
		t.Errorf("%d %s", code, out)
	}
}

func TestProxyUser(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	of := func(name string) (string, error) {
		cfg := config.Default()
		cfg.Proxy.User = name
		u, err := proxyUser(cfg, log)
		if u == nil {
			return "ours", err
		}
		return "", err
	}
	if who, err := of(config.SameUser); err != nil || who != "ours" {
		t.Errorf("%s %v", who, err)
	}
	for _, name := range []string{"no-such-account", "root", "0", "nobody", "65534", "1000", "-1"} {
		if who, err := of(name); dreamcore.CodeOf(err) != dreamcore.Invalid {
			t.Errorf("%s: %s %v", name, who, err)
		}
	}
	who, err := of("")
	if want := map[bool]string{true: "", false: "ours"}[os.Geteuid() == 0]; err != nil || who != want {
		t.Errorf("%q %v", who, err)
	}
}
