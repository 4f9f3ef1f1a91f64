package toolkit

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFetch(t *testing.T) {
	dir := t.TempDir()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" || r.URL.Path != "/asset/host.example/a.png" {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"error":"not on the list [host_not_allowed]"}`)
			return
		}
		io.WriteString(w, "picture")
	}))
	defer srv.Close()
	if err := os.WriteFile(filepath.Join(dir, "grant"), []byte("token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		vars := map[string]string{"DREAMCORE_GRANT_FILE": dir + "/grant", "DREAMCORE_ASSET_URL": srv.URL + "/asset/", "DREAMCORE_LANG": "en", "DREAMCORE_RUNS": dir + "/runs"}
		code := Main(t.Context(), append([]string{"fetch"}, args...), Env{Stdout: &out, Stderr: &out, Getenv: func(n string) string { return vars[n] }})
		return code, out.String()
	}
	file := filepath.Join(dir, "a.png")
	if code, out := run("host.example/a.png", file); code != ExitPass || !strings.Contains(out, "7 bytes") {
		t.Fatalf("%d %s", code, out)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "picture" {
		t.Errorf("%q %v", data, err)
	}
	if code, out := run("https://evil.example/a.png", file); code != ExitFail || !strings.Contains(out, "host_not_allowed") {
		t.Errorf("%d %s", code, out)
	}
	if code, _ := run("host.example/a.png"); code != ExitBroken {
		t.Errorf("no file: %d", code)
	}
}
