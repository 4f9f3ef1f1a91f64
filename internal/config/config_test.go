package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
)

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

func TestDefaultsAreWhole(t *testing.T) {
	c, err := load(t, "{}")
	if err != nil {
		t.Fatal(err)
	}
	if c.Games.URL != "http://127.0.0.1:8081" || c.Data == "" || c.Jobs.Turn() <= 0 || c.Jobs.Job() <= c.Jobs.Turn() {
		t.Errorf("%+v", c)
	}
}

func TestAFileChangesWhatItNames(t *testing.T) {
	c, err := load(t, `{"jobs": {"concurrent": 1}, "app": {"listen": "127.0.0.1:9"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Jobs.Concurrent != 1 || c.Jobs.Repairs != 2 || c.App.Listen != "127.0.0.1:9" {
		t.Errorf("%+v", c)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for text, says := range map[string]string{
		`{"jobs": {"concurent": 1}}`:                  "concurent",
		`{"jobs": {"concurrent": 0}}`:                 "jobs.concurrent",
		`{"box": {"cpus": -1}}`:                       "box.cpus",
		`{"box": {"ahead": -1}}`:                      "box.ahead",
		`{"app": {"listen": "8080"}}`:                 "app.listen",
		`{"app": {"url": "ftp://x"}}`:                 "app.url",
		`{"games": {"url": "http://localhost:8080"}}`: "the same",
		`{"model": {"api": "telepathy"}}`:             "model.api",
		`{"model": {"name": "m"}}`:                    "model.base_url",
		`{"model": {"private": ["10.0.0.0"]}}`:        "model.private",
		`{"image": {"name": "m"}}`:                    "image.base_url",
		`not json`:                                    "settings.json",
	} {
		if _, err := load(t, text); dreamcore.CodeOf(err) != dreamcore.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to name %s", text, err, says)
		}
	}
	if _, err := Load("/does/not/exist"); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("a missing file: %v", err)
	}
}

func TestKeysOfOthersEyes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("sk-123\n", 0o600)
	key, err := Key(file)
	if err != nil || key.Reveal() != "sk-123" {
		t.Errorf("%v, %v", key, err)
	}
	write("sk-123\n", 0o644)
	if _, err := Key(file); dreamcore.CodeOf(err) != dreamcore.Invalid || strings.Contains(err.Error(), "sk-123") {
		t.Errorf("readable by others: %v", err)
	}
	for _, text := range []string{"", "\n", "two keys", "a\nb\n"} {
		write(text, 0o600)
		if _, err := Key(file); err == nil {
			t.Errorf("%q is taken as a key", text)
		}
	}
}
