package house

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// promised are the lines of what a sandbox, its ways out, what is collected from
// it and what is published must survive. Each is shown by a test that carries
// its number; docs/threat-model.md says what they are.
var promised = map[string]string{
	"T": "01 03 04 06 07 08 09 10 12 13 14 19",
	"B": "01 02 03 04 05 06 07 09 13 14",
	"H": "01 02 04 06 08 11 13 14 18 21 22 24 26",
	"M": "01 02 04 07 08 09 10 11 12 13 15 16",
	"E": "01 02 03 04 05 09 10 11 12 14 16 18 19 20 23 26",
	"D": "01 04 05",
	"R": "01 02 03 04 10 12",
	"L": "01 02 03 04 07",
	"C": "01 02 03 04 05 06 10 13",
	"S": "01 02 03 05 06 07 10 11",
	"V": "01 02 04",
	"P": "01 02 03 04 05 06 10 14 15",
	"W": "01 02 03 10",
}

// toCome are lines whose test is being written.
var toCome = map[string]string{}

// At most reasonedAtMost lines may be reasoned about in the threat model
// instead, and none of the kinds in neverReasoned.
const (
	reasonedAtMost = 5
	neverReasoned  = "TBHMCS"
	threatModel    = "docs/threat-model.md"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func (?:Test|Fuzz)(\w*[A-Z]\d\d\w*)\(`)
	number   = regexp.MustCompile(`([A-Z])(\d\d)(?:To([A-Z])(\d\d))?`)
	// A reasoned line of the threat model begins so: "- W10: because …".
	reasonedLine = regexp.MustCompile(`(?m)^- ([A-Z]\d\d): (.+)$`)
)

// numbers reads the numbers of a test's name: B03AndB04, M08ToM16, P01P04.
func numbers(name string) []string {
	var all []string
	for _, m := range number.FindAllStringSubmatch(name, -1) {
		from, _ := strconv.Atoi(m[2])
		to := from
		if m[3] == m[1] {
			to, _ = strconv.Atoi(m[4])
		}
		for n := from; n <= to; n++ {
			all = append(all, fmt.Sprintf("%s%02d", m[1], n))
		}
	}
	return all
}

func TestNumbersOfAName(t *testing.T) {
	for name, want := range map[string]string{"B03AndB04": "B03 B04", "M08ToM11": "M08 M09 M10 M11", "P01P04P05": "P01 P04 P05", "H02": "H02", "H13TrailersAndH14Connection": "H13 H14"} {
		if got := strings.Join(numbers(name), " "); got != want {
			t.Errorf("%s is read as %s", name, got)
		}
	}
	if m := testFunc.FindStringSubmatch("func TestE05AndE16Forms(t *testing.T) {"); m == nil || m[1] != "E05AndE16Forms" {
		t.Errorf("a test's name is read as %q", m)
	}
}

func TestEveryPromiseIsShown(t *testing.T) {
	shown := map[string][]string{}
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, m := range testFunc.FindAllStringSubmatch(string(data), -1) {
			for _, n := range numbers(m[1]) {
				shown[n] = append(shown[n], name)
			}
		}
	}
	model, err := os.ReadFile(filepath.Join("../..", threatModel))
	if err != nil {
		t.Fatalf("what is promised and what is not stands in %s: %v", threatModel, err)
	}
	reasoned := map[string]string{}
	for _, m := range reasonedLine.FindAllStringSubmatch(string(model), -1) {
		reasoned[m[1]] = m[2]
	}
	if len(reasoned) > reasonedAtMost {
		t.Errorf("%d lines are reasoned about instead of shown; at most %d may be", len(reasoned), reasonedAtMost)
	}
	all := map[string]bool{}
	for kind, list := range promised {
		for _, n := range strings.Fields(list) {
			line := kind + n
			all[line] = true
			switch {
			case len(shown[line]) > 0:
				if reasoned[line] != "" || toCome[line] != "" {
					t.Errorf("%s is shown by %s and still excused", line, shown[line][0])
				}
			case toCome[line] != "":
				t.Logf("%s is still to come, %s", line, toCome[line])
			case reasoned[line] == "":
				t.Errorf("no test carries %s, and %s gives no reason", line, threatModel)
			case strings.Contains(neverReasoned, kind):
				t.Errorf("%s must be shown, not reasoned about", line)
			}
			if !strings.Contains(string(model), line) && !inRange(string(model), kind, n) {
				t.Errorf("%s does not name %s", threatModel, line)
			}
		}
	}
	for _, m := range []map[string]string{reasoned, toCome} {
		for _, line := range slices.Sorted(maps.Keys(m)) {
			if !all[line] {
				t.Errorf("%s is excused and not promised", line)
			}
		}
	}
}

var span = regexp.MustCompile(`\b([A-Z])(\d\d)-([A-Z])?(\d\d)\b`)

// inRange reports whether the text names a range such as T01-T14 that holds the line.
func inRange(text, kind, n string) bool {
	for _, m := range span.FindAllStringSubmatch(text, -1) {
		if m[1] == kind && (m[3] == "" || m[3] == kind) && m[2] <= n && n <= m[4] {
			return true
		}
	}
	return false
}
