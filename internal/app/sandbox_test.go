package app

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/text"
)

func TestReadPlace(t *testing.T) {
	for s, want := range map[string]place{
		"abcd1234:/workspace": {"abcd1234", "/workspace"}, "abcd1234:": {"abcd1234", ""}, "./abcd1234:/x": {"", "./abcd1234:/x"},
		"/a:b": {"", "/a:b"}, "C:x": {"", "C:x"}, "plain": {"", "plain"},
	} {
		if got := readPlace(s); got != want {
			t.Errorf("%q is %+v", s, got)
		}
	}
}

// What tar in the sandbox says is understood where it matters, and never lost.
func TestHowTarEnded(t *testing.T) {
	for _, lang := range dreamcore.Langs {
		full, _, _ := strings.Cut(text.T(lang, "sandbox_cmd.disk_full"), "{")
		failed, _, _ := strings.Cut(text.T(lang, "sandbox_cmd.tar_failed"), "{")
		for _, c := range []struct {
			code         int
			said         string
			fails        bool
			says, lacked string // lacked: "" when all was copied
		}{
			{0, "", false, "", ""},
			{0, "tar: x: time stamp 2030-01-01 is 9 s in the future", false, "in the future", ""},
			{0, "tar: ./s: socket ignored", false, "socket ignored", "yes"},
			{1, "tar: x: file changed as we read it", false, "file changed", "yes"},
			{2, "tar: big: Wrote only 4096 of 10240 bytes\ntar: Exiting with failure status", true, full, ""},
			{2, "tar: a: Cannot mkdir: No space left on device", true, full, ""},
			{2, "tar: nothing: Cannot stat: No such file or directory", true, failed, ""},
			{137, "", true, failed, ""},
			{-1, "", true, failed, ""},
		} {
			var out bytes.Buffer
			k := &copying{h: &hand{t: Terminal{Err: &out, Lang: lang}}}
			err := k.tarEnded(sandbox.Exit{Code: c.code}, nil, c.said)
			if err != nil {
				out.WriteString(err.Error())
			}
			if (err != nil) != c.fails || !strings.Contains(out.String(), c.says) || k.lacks != (c.lacked != "") || c.says == "" && out.Len() > 0 {
				t.Errorf("%s %d %q: %v, lacks %v, %q", lang, c.code, c.said, err, k.lacks, out.String())
			}
		}
	}
	lost := errors.New("lost")
	if err := (&copying{h: &hand{}}).tarEnded(sandbox.Exit{}, lost, ""); !errors.Is(err, lost) {
		t.Error(err)
	}
}

// quiet makes an environment that names no engine.
func quiet(t *testing.T) {
	t.Helper()
	for _, name := range []string{"E2B_API_URL", "E2B_API_KEY", "E2B_SANDBOX_URL", "E2B_DOMAIN"} {
		t.Setenv(name, "")
	}
}

// Whoever named the engine that does not answer is told that name.
func TestASilentEngineIsNamed(t *testing.T) {
	quiet(t)
	t.Setenv("E2B_API_URL", "http://127.0.0.1:1")
	t.Setenv("E2B_API_KEY", "e2b_"+strings.Repeat("ab", 20))
	for _, args := range [][]string{{"sandbox", "ls"}, {"sandbox", "create"}, {"sandbox", "kill", "abcd1234"}} {
		code, out := run(t, args...)
		_, hint, _ := strings.Cut(out, "What to do")
		if code == 0 || !strings.Contains(hint, "http://127.0.0.1:1") || strings.Contains(hint, "Start it again") {
			t.Errorf("%q: code %d, %s", args, code, out)
		}
	}
}

// env prints what the engine prints, with a domain and without.
func TestEnvironmentIsWhatTheEnginePrints(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer server.Close()
	key := "e2b_" + strings.Repeat("ab", 20)
	for _, domain := range []string{"", "boxes.test"} {
		quiet(t)
		data := t.TempDir()
		folder := filepath.Join(data, "serving")
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := (engineAddress{APIURL: server.URL, Domain: domain, APIKey: key}).leave(folder); err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		printVariables(Terminal{Out: &want}, key, server.URL, server.URL, domain)
		if code, out := run(t, "sandbox", "env", "--data", data); code != 0 || out != want.String() {
			t.Errorf("domain %q: code %d\n%s\nwant\n%s", domain, code, out, want.String())
		}
	}
}

// ls shows what people gave a sandbox; what our client adds is in --json.
func TestListHidesOurOwnMetadata(t *testing.T) {
	if got := pairsOf(map[string]string{"dreamcore_attempt": "x", "b": "2", "a": "1", "dreamcore": "3"}); got != "a=1 b=2 dreamcore=3" {
		t.Errorf("%q", got)
	}
	if !strings.HasPrefix(e2b.AttemptKey, ownMetadata) || !strings.HasPrefix(e2b.ImageKey, ownMetadata) {
		t.Error("the client's own keys are shown")
	}
}

// With --keep nobody is told that the sandboxes end.
func TestEngineSaysWhatCtrlCEnds(t *testing.T) {
	for _, lang := range dreamcore.Langs {
		for _, keep := range []bool{false, true} {
			var out, said bytes.Buffer
			s := &standalone{parts: newParts(slog.New(slog.DiscardHandler)), order: engineOrder{keep: keep}, engine: engine.New(engine.Config{}), public: "http://here"}
			s.tell(Terminal{Out: &out, Err: &said, Lang: lang})
			if strings.Contains(said.String(), "30") != keep || !strings.Contains(said.String(), "http://here") {
				t.Errorf("%s, keep %v: %s", lang, keep, said.String())
			}
		}
	}
}
