package app

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/text"
)

// What keeps an engine from starting is said in the language of whoever starts
// it, with what to do, before anything was started.
func TestEngineThatCannotStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	nothing := t.TempDir()
	badKey, openKey := filepath.Join(t.TempDir(), "serving"), filepath.Join(t.TempDir(), "serving")
	for dir, mode := range map[string]os.FileMode{badKey: 0o600, openKey: 0o644} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		key := map[string]string{badKey: "nonsense", openKey: "e2b_" + strings.Repeat("ab", 20)}[dir]
		if err := os.WriteFile(dir+"/api_key", []byte(key), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		key         string // of the catalogue
		code        int
		env         string
		args        []string
		flag, value string
	}{
		{"port_taken", 1, "", []string{"--listen", taken.Addr().String()}, "", ""},
		{"bad_listen", 1, "", []string{"--listen", "nowhere"}, "", ""},
		{"remote", 1, "", []string{"--listen", "0.0.0.0:0"}, "", ""},
		{"remote", 1, "", []string{"--listen", ":0"}, "", ""},
		{"remote", 1, "", []string{"--listen", "192.0.2.1:80"}, "", ""},
		{"cannot_listen", 1, "", []string{"--listen", "192.0.2.1:80", "--allow-remote"}, "", ""},
		{"half_tls", 1, "", []string{"--tls-cert", "x.pem"}, "", ""},
		{"bad_tls", 1, "", []string{"--tls-cert", "/does/not/exist", "--tls-key", "/does/not/exist"}, "", ""},
		{"bad_key", 1, "E2B_API_KEY=e2b_XYZ", nil, "", ""},
		{"bad_key", 1, "E2B_API_KEY=e2b_ab", nil, "", ""},
		{"bad_profile", 1, "", []string{"--profile", "root"}, "", ""},
		{"bad_sandboxes", 1, "", []string{"--max-sandboxes", "-1"}, "", ""},
		{"log_format", 1, "", []string{"--log", "xml"}, "", ""},
		{"bad_kept_key", 1, "", []string{"--data", filepath.Dir(badKey)}, "", ""},
		{"open_key", 1, "", []string{"--data", filepath.Dir(openKey)}, "", ""},
		{"no_folder", 1, "", []string{"--data", "/proc/nowhere"}, "", ""},
		{"cli.flag_value", 2, "", []string{"--memory", "lots"}, "--memory", `"lots"`},
		{"cli.flag_value", 2, "", []string{"--keep=perhaps"}, "--keep", `"perhaps"`},
		{"cli.flag_unknown", 2, "", []string{"--frob"}, "--frob", ""},
		{"cli.flag_unknown", 2, "", []string{"---"}, "---", ""},
		{"cli.flag_lonely", 2, "", []string{"--listen", "127.0.0.1:0", "--url"}, "--url", ""},
		{"", 1, "DREAMCORE_CACHE=" + nothing, nil, "", ""}, // no image
	} {
		for _, lang := range dreamcore.Langs {
			t.Setenv("E2B_API_KEY", "")
			t.Setenv("DREAMCORE_DATA", filepath.Join(t.TempDir(), "data"))
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			args := append([]string{"engine"}, c.args...)
			if !strings.Contains(strings.Join(args, " "), "--listen") {
				args = append(args, "--listen", "127.0.0.1:0")
			}
			var out bytes.Buffer
			code := Run(t.Context(), Terminal{Out: &out, Err: &out, Lang: lang}, args)
			key := "engine_cmd." + c.key
			if strings.HasPrefix(c.key, "cli.") {
				key = c.key
			}
			want, _, _ := strings.Cut(text.T(lang, key, "flag", c.flag, "value", c.value), "{")
			want = strings.TrimRight(want, ".。") // where a cause follows it has no stop
			if c.key == "" {
				want = text.T(lang, "image.err_none")
			}
			if code != c.code || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "export ") {
				t.Errorf("%s %q: code %d, want %d and %q in\n%s", lang, c.args, code, c.code, want, out.String())
			}
		}
	}
}

func TestSize(t *testing.T) {
	for s, want := range map[string]int64{"512": 512 << 20, "512M": 512 << 20, "3G": 3 << 30, "1.5g": 3 << 29, "64KiB": 64 << 10, "1GB": 1 << 30} {
		var got size
		if err := got.Set(s); err != nil || int64(got) != want {
			t.Errorf("%s is %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "-1", "0", "1e30G", "NaN", "Inf", "3GG"} {
		var got size
		if err := got.Set(s); err == nil {
			t.Errorf("%q is %d", s, got)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for s, want := range map[string]string{"http://a:1/b": "http://a:1/b", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "": "''"} {
		if got := shellQuote(s); got != want {
			t.Errorf("%q is %s", s, got)
		}
	}
}
