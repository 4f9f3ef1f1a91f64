package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	if off, err := load(t, `{"box": {"warm": false}}`); err != nil || off.Box.Warm || !c.Box.Warm {
		t.Errorf("box.warm: %+v, %v", off.Box, err)
	}
	if c.Jobs.Concurrent != 1 || c.Jobs.Repairs != 2 || c.App.Listen != "127.0.0.1:9" {
		t.Errorf("%+v", c)
	}
}

func TestWrongSettingsAreNamed(t *testing.T) {
	for text, says := range map[string]string{
		`{"jobs": {"concurent": 1}}`:                                               "concurent",
		`{"jobs": {"concurrent": 0}}`:                                              "jobs.concurrent",
		`{"box": {"cpus": -1}}`:                                                    "box.cpus",
		`{"box": {"ahead": -1}}`:                                                   "box.ahead",
		`{"app": {"listen": "8080"}}`:                                              "app.listen",
		`{"app": {"url": "ftp://x"}}`:                                              "app.url",
		`{"games": {"url": "http://localhost:8080"}}`:                              "the same",
		`{"model": {"api": "telepathy"}}`:                                          "model.api",
		`{"model": {"name": "m"}}`:                                                 "model.base_url",
		`{"model": {"private": ["10.0.0.0"]}}`:                                     "model.private",
		`{"image": {"name": "m"}}`:                                                 "image.base_url",
		`{"engine": "docker"}`:                                                     "docker",
		`{"e2b": {"template": "t"}}`:                                               "engine is not",
		`{"engine": "e2b"}`:                                                        "e2b.template",
		`{"engine": "e2b", "e2b": {"template": "t"}}`:                              "e2b.proxy_address",
		remote(`"proxy_address": "proxy.example.com:4000"`):                        "cannot be a name",
		remote(`"proxy_address": "203.0.113.7"`):                                   "e2b.proxy_address",
		remote(`"proxy_address": "0.0.0.0:1"`):                                     "e2b.proxy_address",
		remote(`"proxy_address": "[2001:db8::1]:4000"`):                            "e2b.proxy_address",
		remote(`"proxy_address": "203.0.113.7:4000", "plan": "gold"`):              "e2b.plan",
		remote(`"proxy_address": "203.0.113.7:4000", "proxy_listen": "4000"`):      "e2b.proxy_listen",
		remote(`"proxy_address": "203.0.113.7:4000", "api_url": "http://x"`):       "e2b.api_url",
		remote(`"proxy_address": "203.0.113.7:4000"}, "jobs": {"job_minutes": 56`): "55 at most",
		remote(`"proxy_address": "203.0.113.7:4000"}, "jobs": {"concurrent": 11`):  "10 at most",
		remote(`"proxy_address": "203.0.113.7:4000", "api_key": "e2b_secret"`):     "api_key",
		`not json`: "settings.json",
	} {
		if _, err := load(t, text); dreamcore.CodeOf(err) != dreamcore.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to name %s", text, err, says)
		}
	}
	if _, err := Load("/does/not/exist"); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("a missing file: %v", err)
	}
}

// remote are the settings of a remote engine with these of its own.
func remote(own string) string {
	return `{"engine": "e2b", "e2b": {"template": "t", ` + own + `}}`
}

func TestRemoteEngine(t *testing.T) {
	c, err := load(t, remote(`"proxy_address": "203.0.113.7:4000"`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Engine != Remote || c.E2B.Plan != "free" || c.E2B.ProxyListen != "0.0.0.0:4000" || c.E2B.Proxy().String() != "203.0.113.7:4000" {
		t.Errorf("%+v", c)
	}
	if c, err = load(t, remote(`"proxy_address": "203.0.113.7:4000", "plan": "paid"}, "jobs": {"concurrent": 50, "job_minutes": 600`)); err != nil {
		t.Error(err)
	}
	t.Setenv("E2B_API_KEY", "")
	for lang, says := range map[dreamcore.Lang]string{dreamcore.English: "environment variable E2B_API_KEY", dreamcore.Japanese: "環境変数 E2B_API_KEY", dreamcore.Chinese: "环境变量 E2B_API_KEY"} {
		c.Lang = lang
		if _, err := c.RemoteKey(); dreamcore.CodeOf(err) != dreamcore.Missing || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", lang, err)
		}
	}
	t.Setenv("E2B_API_KEY", "e2b_1")
	if key, err := c.RemoteKey(); err != nil || key.Reveal() != "e2b_1" {
		t.Error(err)
	}
	if c, err := load(t, "{}"); err != nil || c.Engine != Embedded {
		t.Errorf("%+v, %v", c, err)
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
	f, err := OpenKey(file, dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, mode := range []os.FileMode{0o644, 0o640, 0o620, 0o602, 0o601} {
		write("sk-123\n", mode)
		if _, err := OpenKey(file, dreamcore.English); dreamcore.CodeOf(err) != dreamcore.Invalid || strings.Contains(err.Error(), "sk-123") || !strings.Contains(err.Error(), "chmod 600 "+file) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	write(strings.Repeat("k", maxKeyBytes+1), 0o600)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, odd := range []string{file, fifo, t.TempDir(), "/dev/null", "/does/not/exist"} {
		if _, err := OpenKey(odd, dreamcore.English); dreamcore.CodeOf(err) != dreamcore.Invalid {
			t.Errorf("%s: %v", odd, err)
		}
	}
}
