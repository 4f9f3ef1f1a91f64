// Package fuzz runs for some seconds each the fuzz targets of what decodes bytes
// that come out of a sandbox, in every run of the tests. Their seeds, and those
// of all other targets, run as tests where they stand; test/long gives all of
// them an hour.
package fuzz

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// reached are the packages whose decoders a sandbox can reach, and how many
// targets they have at least.
var reached = map[string]int{
	"internal/engine":           3, // the control connection, a port's answer, logs and records
	"internal/engine/gvisor":    1, // the door
	"internal/sandbox/e2b":      1, // answers to the client
	"internal/envd":             4, // the daemon, which the programs beside it could reach
	"internal/tree":             1, // the collected tree
	"internal/agent":            1, // the agent's events
	"internal/keyproxy":         3, // the way out
	"internal/keyproxy/control": 3, // between the host and the proxy's process
}

const each = "2s"

func TestEveryReachedDecoder(t *testing.T) {
	cache := t.TempDir() // begins with the seeds: what an hour has found is test/long's
	for pkg, least := range reached {
		t.Run(pkg, func(t *testing.T) {
			dir := filepath.Join("../..", pkg)
			// Built once for all targets; starting the tool takes longer than they run.
			program := filepath.Join(t.TempDir(), "fuzz.test")
			build := exec.Command("go", "test", "-c", "-fuzz=Fuzz", "-o", program, ".")
			build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			run := func(args ...string) (string, error) {
				cmd := exec.Command(program, args...)
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			out, err := run("-test.list", "^Fuzz")
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			names := strings.Fields(out)
			if len(names) < least {
				t.Errorf("there are %d fuzz targets, and there were %d", len(names), least)
			}
			for _, name := range names {
				// A finding is written to the package's testdata, to be mended and kept.
				out, err := run("-test.run", "^$", "-test.fuzz", "^"+name+"$", "-test.fuzztime", each, "-test.fuzzminimizetime", "1s", "-test.fuzzcachedir", cache)
				if err != nil {
					t.Errorf("%s: %v\n%s", name, err, out)
				}
			}
		})
	}
}
