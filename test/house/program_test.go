package house

import (
	"slices"
	"strings"
	"testing"
)

// starters are the packages of the product that start programs, and which.
var starters = map[string]string{
	"internal/engine/gvisor":     "runsc, by the path that it was given",
	"internal/image":             "Debian's own tools, while an image is built",
	"internal/playtest":          "the browser; on a host only in tests",
	"internal/toolkit/imagetool": "itself, in a sandbox",
	"internal/probe":             "itself, in a sandbox",
	"internal/doctor":            "nothing; it asks where programs are",
	"internal/keyproxy/control":  "the key proxy, which is this same program",
	"internal/app":               "the key proxy, which is this same program",
}

// S11: what lies in a workspace (.git/hooks, .npmrc, .claude, package scripts) is
// never executed on the host, since hardly anything is: no package but these
// can start a program, and none of them sees what was collected.
func TestS11OnlyTheseStartPrograms(t *testing.T) {
	for _, line := range goList(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./internal/...", "./cmd/...", ".") {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], "dreamcore/")
		if strings.HasSuffix(pkg, "test") || !slices.Contains(fields[1:], "os/exec") {
			continue
		}
		if starters[pkg] == "" {
			t.Errorf("%s starts programs: say in this list which, or leave it", pkg)
		}
		for _, imp := range fields[1:] {
			if imp == "dreamcore/internal/workspace" && pkg != "internal/app" {
				t.Errorf("%s starts programs and sees what was collected", pkg)
			}
		}
	}
}
