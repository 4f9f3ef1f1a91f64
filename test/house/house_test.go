// Package house keeps the layout of the project true: which folder may import
// which, how long a file may be, and what may not stand in it.
package house

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rows is the table of README.md: a row may import the rows above it (and the
// root package), never one below it or beside it unless `within` says so.
var rows = [][]string{
	{"internal/text", "internal/strictjson"},
	{"internal/grant", "internal/redact", "internal/budget", "internal/egress", "internal/tree"},
	{"internal/keyproxy"},
	{"internal/envd", "internal/payload", "internal/probe"},
	{"internal/sandbox"},
	{"image", "templates", "games"},
	{"internal/image"},
	{"internal/engine"},
	{"internal/agent", "internal/template"},
	{"internal/workspace"},
	{"internal/check", "internal/level", "internal/playtest", "internal/toolkit"},
	{"internal/store", "internal/blob", "internal/publish"},
	{"internal/verify"},
	{"internal/job"},
	{"internal/durable"},
	{"internal/studio", "internal/gamehost", "internal/web", "internal/offline"},
	{"internal/config"},
	{"internal/doctor", "internal/attack"},
	{"internal/app"},
	{"cmd"},
}

func row(pkg string) int {
	for i, names := range rows {
		for _, n := range names {
			if pkg == n || strings.HasPrefix(pkg, n+"/") {
				return i
			}
		}
	}
	return -1
}

// room is the folder of the table that a package belongs to.
func room(pkg string) string {
	for _, names := range rows {
		for _, n := range names {
			if pkg == n || strings.HasPrefix(pkg, n+"/") {
				return n
			}
		}
	}
	return ""
}

// beside are imports between rooms of one row, each with its reason.
var beside = map[[2]string]string{
	{"internal/publish", "internal/store"}: "publishing is a transaction of the store",
	{"internal/publish", "internal/blob"}:  "publishing puts blobs",
	{"internal/toolkit", "internal/check"}: "the toolkit is the three judgements as commands", {"internal/toolkit", "internal/level"}: "the same", {"internal/toolkit", "internal/playtest"}: "the same",
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestImportsOnlyGoDown(t *testing.T) {
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], "dreamcore/")
		if pkg == "dreamcore" {
			for _, imp := range fields[1:] {
				if strings.Contains(imp, "dreamcore/") || strings.Contains(imp, ".") {
					t.Errorf("the root package imports %s; it may import the standard library only", imp)
				}
			}
			continue
		}
		if strings.HasPrefix(pkg, "test/") || strings.HasSuffix(pkg, "test") {
			continue
		}
		from := row(pkg)
		if from < 0 {
			t.Errorf("%s is in no row of the table: give it one", pkg)
			continue
		}
		for _, imp := range fields[1:] {
			target, ok := strings.CutPrefix(imp, "dreamcore/")
			if !ok {
				continue
			}
			to := row(target)
			if room(pkg) == room(target) || to >= 0 && to < from {
				continue
			}
			if beside[[2]string{room(pkg), room(target)}] != "" {
				continue
			}
			t.Errorf("%s imports %s, which is not above it", pkg, target)
		}
	}
}

// L07: what shows a program's inside is not in it at all, so that no listener can
// serve it by mistake.
func TestL07NothingThatShowsTheInsideIsBuiltIn(t *testing.T) {
	deps := goList(t, "-deps", "./cmd/dreamcore")
	if !slices.Contains(deps, "net/http") {
		t.Fatal("the list of packages is not what it should be")
	}
	for _, bad := range []string{"net/http/pprof", "expvar", "net/rpc", "golang.org/x/net/trace"} {
		if slices.Contains(deps, bad) {
			t.Errorf("the program has %s, which registers itself on the default mux", bad)
		}
	}
}

func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

var generated = regexp.MustCompile(`\.pb\.go$|\.connect\.go$|/vendor/|/testdata/`)

func TestFilesStayShort(t *testing.T) {
	for _, name := range tracked(t) {
		if ext := filepath.Ext(name); !slices.Contains([]string{".go", ".js", ".css"}, ext) || generated.MatchString(name) || strings.HasSuffix(name, ".min.js") {
			continue
		}
		f, err := os.Open(filepath.Join("../..", name))
		if err != nil {
			t.Error(err)
			continue
		}
		n := 0
		for s := bufio.NewScanner(f); s.Scan(); {
			n++
		}
		f.Close()
		if n > 520 {
			t.Errorf("%s has %d lines; split it by idea (about 500 at most)", name, n)
		}
	}
}

// forbidden are words that belong to one machine or one registry. They are put
// together here so that this file does not hold them.
var forbidden = []string{"registry." + "npmjs", "deb." + "debian.org", "proxy." + "golang.org", "/work" + "/main", "/work" + "/shared", "/tmp" + "/brief"}

func TestNothingOfThisMachineIsTracked(t *testing.T) {
	for _, name := range tracked(t) {
		data, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, word := range forbidden {
			if strings.Contains(string(data), word) {
				t.Errorf("%s names %s", name, word)
			}
		}
	}
}

// skip is written so that this file does not match itself.
var skip = regexp.MustCompile(`\b[tbf]\.Skip(Now|f)?` + `\(`)

func TestNoTestSkips(t *testing.T) {
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Error(err)
			continue
		}
		if skip.Match(data) {
			t.Errorf("%s skips; a missing prerequisite is a failure that says what to run", name)
		}
	}
}
