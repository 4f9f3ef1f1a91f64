package app

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/keyproxy/control"
	"dreamcore/internal/text"
)

// run runs one command line away from the settings of whoever runs the test.
func run(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	t.Setenv("DREAMCORE_DATA", filepath.Join(t.TempDir(), "data"))
	t.Setenv("DREAMCORE_CONFIG", "")
	var b bytes.Buffer
	code = Run(t.Context(), Terminal{Out: &b, Err: &b, Lang: dreamcore.English}, args)
	return code, b.String()
}

func TestWrongCommandLinesSayWhatIsRight(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(settings, []byte(`{"jobs": {"concurent": 3}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 2, "dreamcore make"},
		{[]string{"help"}, 0, "dreamcore doctor"},
		{[]string{"frob\x1b[31mnicate"}, 2, "no command frob[31mnicate"},
		{[]string{"make"}, 1, "no words"},
		{[]string{"make", "   "}, 1, "What to do"},
		{[]string{"make", strings.Repeat("x", 20000)}, 1, "at most 2000"},
		{[]string{"make", "--frob", "a cat"}, 2, "frob"},
		{[]string{"make", "--server", "http://127.0.0.1:1", "a cat"}, 1, "dreamcore serve"},
		{[]string{"make", "a cat", "--server", "http://127.0.0.1:1", "--once"}, 1, "dreamcore serve"},
		{[]string{"make", "a cat", "--frob"}, 2, "frob"},
		{[]string{"make", "--server", "http://127.0.0.1:1", "--", "--once"}, 1, "dreamcore serve"},
		{[]string{"doctor", "now"}, 2, "now"},
		{[]string{"serve", "--config", "/does/not/exist"}, 1, "no settings file"},
		{[]string{"serve", "--config", settings}, 1, "concurent"},
		{[]string{"serve", "now"}, 2, "now"},
		{[]string{"serve", "--app", "127.0.0.1:0"}, 1, "name a port"},
		{[]string{"image"}, 2, "image build"},
		{[]string{"image", "frob"}, 2, "image build"},
		{[]string{"image", "use"}, 2, "image build"},
		{[]string{"image", "--help"}, 0, "image export --e2b DIR"},
		{[]string{"image", "export", "--help"}, 0, "image export --e2b DIR"},
		{[]string{"image", "build", "-h"}, 0, "--update"},
		{[]string{"image", "use", "sha256:0000"}, 1, "What to do"},
		{[]string{"image", "import", "/does/not/exist"}, 1, "Error"},
	} {
		code, out := run(t, c.args...)
		if code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%.60q: code %d, %q; want %d and %q", c.args, code, out, c.code, c.says)
		}
	}
}

// Every command says what it does and which flags it has, in the language of
// whoever asks: nothing of it is the flag package's own English.
func TestEveryCommandExplainsItself(t *testing.T) {
	service := []string{"--config", "--app", "--games", "--verbose"}
	flags := map[string][]string{
		"make": append([]string{"--once", "--server"}, service...), "serve": service, "doctor": service,
		"attack": {"--config", "--json", "--verbose"}, "image": {"--update", "--again", "--lock", "--e2b"},
		"engine":  {"--listen", "--allow-remote", "--url", "--domain", "--tls-cert", "--tls-key", "--data", "--memory", "--disk", "--cpus", "--processes", "--max-sandboxes", "--ahead", "--idle-timeout", "--overcommit", "--profile", "--log", "--quiet", "--keep", "--allow-no-limits"},
		"sandbox": {"--json", "--timeout", "--max", "--data", "--of", "--all"}, "key": {"--config"}, "audit": {"--config"},
	}
	for _, c := range commands() {
		if c.name == control.Command || c.name == "version" {
			continue // not for people, and without flags
		}
		if flags[c.name] == nil {
			t.Errorf("%s: its flags are not listed here", c.name)
		}
		for _, lang := range dreamcore.Langs {
			var out, said strings.Builder
			code := Run(t.Context(), Terminal{Out: &out, Err: &said, Lang: lang}, []string{c.name, "--help"})
			if code != 0 || said.Len() > 0 || strings.Contains(out.String(), "Usage of") || !strings.HasPrefix(out.String(), "dreamcore "+c.name) {
				t.Errorf("%s in %s: code %d\n%s\n%s", c.name, lang, code, out.String(), said.String())
			}
			if own := lang != dreamcore.English; own != strings.ContainsFunc(out.String(), func(r rune) bool { return r > 0x3000 && r < 0xa000 }) {
				t.Errorf("%s in %s is in another language:\n%s", c.name, lang, out.String())
			}
			for _, f := range flags[c.name] {
				if !strings.Contains(out.String(), f) {
					t.Errorf("%s in %s says nothing of %s", c.name, lang, f)
				}
			}
		}
	}
}

// free returns a loopback address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestATakenPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, flag := range []string{"--app", "--games"} {
		code, out := run(t, "serve", "--app", free(t), "--games", free(t), flag, l.Addr().String())
		if code != 1 || !strings.Contains(out, l.Addr().String()+" is taken") || !strings.Contains(out, flag) {
			t.Errorf("%s: code %d, %q", flag, code, out)
		}
	}
}

func TestAnImageThatWasNotBuiltIsNamed(t *testing.T) {
	t.Setenv("DREAMCORE_CACHE", t.TempDir())
	code, out := run(t, "serve", "--app", free(t), "--games", free(t))
	if code != 1 || !strings.Contains(out, "image build") {
		t.Errorf("code %d, %q", code, out)
	}
}

// What fails in the doctor's trial boot is said in the operator's language.
func TestATrialBootSpeaksTheOperatorsLanguage(t *testing.T) {
	t.Setenv("DREAMCORE_CACHE", t.TempDir())
	for _, lang := range dreamcore.Langs {
		cfg := config.Default()
		cfg.Data, cfg.Lang = filepath.Join(t.TempDir(), "data"), lang
		err := bootOnce(t.Context(), New(cfg, slog.New(slog.DiscardHandler)))
		if err == nil || !strings.Contains(err.Error(), text.T(lang, "image.err_none")) {
			t.Errorf("%s: %v", lang, err)
		}
	}
}

func TestPrintableIsOneLineWithoutTricks(t *testing.T) {
	if got := printable("a\x1b[2J\nb\u202ec\x00 猫🐱", 100); got != "a[2J bc 猫🐱" {
		t.Errorf("%q", got)
	}
	if got := printable(strings.Repeat("猫", 50), 10); got != strings.Repeat("猫", 10)+"…" {
		t.Errorf("%q", got)
	}
}

func TestASentenceLosesItsStopBeforeItsCause(t *testing.T) {
	for want, c := range map[string][2]string{
		"It failed: no room":            {"It failed.", "no room"},
		"失敗しました: no room":               {"失敗しました。", "no room"},
		"It failed: this too: really":   {"It failed.", "this too.: really"},
		"Wait ...: no room":             {"Wait ...", "no room"},
		"It failed: open .: no file":    {"It failed", "open .: no file"},
		"It failed: read /a/..: denied": {"It failed", "read /a/..: denied"},
	} {
		if got := becauseOf(c[0], c[1]); got != want {
			t.Errorf("%q is %q, want %q", c, got, want)
		}
	}
	var out bytes.Buffer
	explain(Terminal{Err: &out, Lang: dreamcore.English}, dreamcore.Errorf(dreamcore.Invalid, "x", "It failed.").Because(errors.New("no room")))
	if out.String() != "Error: It failed: no room\n" {
		t.Errorf("%q", out.String())
	}
}

// A command that no help names is one that nobody finds.
func TestHelpNamesEveryCommand(t *testing.T) {
	for _, lang := range dreamcore.Langs {
		help := text.T(lang, "cli.help")
		for _, c := range commands() {
			if c.name != control.Command && !strings.Contains(help, "dreamcore "+c.name+" ") {
				t.Errorf("the help in %s lacks %s", lang, c.name)
			}
		}
	}
}
