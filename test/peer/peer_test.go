// Package peer drives the engine with E2B's own client, unmodified, in each
// version that we promise to serve: real packages, real gVisor, real image.
package peer

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/test/node"
)

//go:embed suite/*.mjs
var suite embed.FS

// parts are the modules of the suite that hold cases.
var parts = []string{"commands", "files", "signed", "control", "ports", "bad", "cloud", "metadata", "pty", "watch", "order", "freeze", "git", "served", "metrics"}

// domain is where sandboxes have their names in these tests; nothing resolves it.
const domain = "sandbox.test"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(command())
	}
	code := m.Run()
	enginetest.CleanUp()
	os.Exit(code)
}

// The engine as `dreamcore engine` serves it, at one address for everything.
func TestSDK(t *testing.T) {
	for _, sdk := range node.SDKs {
		t.Run(sdk, func(t *testing.T) {
			e := enginetest.Start(t, func(c *enginetest.Config) { c.Profile = engine.E2B })
			_, port, _ := strings.Cut(strings.TrimPrefix(e.URL, "http://"), ":")
			drive(t, e, way{
				sdk: sdk, domain: domain + ":" + port, env: []string{"E2B_API_URL=" + e.URL, "E2B_SANDBOX_URL=" + e.URL},
				parts: parts, cases: strings.Fields(os.Getenv("PEER_CASES")),
			})
		})
	}
}

// way is how the SDK is used.
type way struct {
	sdk     string   // name of the package
	domain  string   // of the sandboxes, with the port
	preload string   // a module to load before all others, or ""
	env     []string // variables beside the key and the domain
	parts   []string // modules of the suite
	cases   []string // beginnings of the names of cases; none: all
}

// line is what suite/run.mjs tells about itself.
type line struct {
	Plan   []string
	Case   string
	MS     int
	Error  string
	Broken string
	Done   bool
}

// drive runs the suite; each case is a subtest. e may be nil.
func drive(t *testing.T, e *enginetest.Engine, w way) {
	t.Helper()
	source, err := fs.Sub(suite, "suite")
	if err != nil {
		t.Fatal(err)
	}
	dir := node.Folder(t, source)
	var args []string
	if w.preload != "" {
		args = append(args, "--import", "./"+w.preload)
	}
	args = append(append(args, filepath.Join(dir, "run.mjs"), w.sdk), w.cases...)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node.Program(t), args...)
	cmd.Dir = dir
	// Nothing else: no proxy, no settings of this machine.
	cmd.Env = append([]string{
		"HOME=" + dir, "E2B_API_KEY=" + enginetest.APIKey, "E2B_DOMAIN=" + w.domain, "PEER_PARTS=" + strings.Join(w.parts, " "), "PEER_CERTIFICATE=" + forPrograms(t),
	}, w.env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	var plan []string
	done := false
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Errorf("the suite said %.200q: %v", lines.Text(), err)
			continue
		}
		switch {
		case l.Plan != nil:
			plan = l.Plan
		case l.Case != "":
			told[l.Case] = true
			t.Run(l.Case, func(t *testing.T) {
				t.Logf("%d ms", l.MS)
				if l.Error != "" {
					t.Error(l.Error)
				}
			})
		case l.Broken != "":
			t.Error(l.Broken)
		case l.Done:
			done = true
		}
	}
	if err := cmd.Wait(); err != nil || lines.Err() != nil || !done {
		t.Errorf("the suite did not end by itself: %v, %v", err, lines.Err())
	}
	if len(plan) == 0 {
		t.Error("the suite has no cases")
	}
	for _, name := range plan {
		if !told[name] {
			t.Run(name, func(t *testing.T) { t.Error("the suite ended before this case did") })
		}
	}
	if e == nil {
		return // it is another program's, which says at its end what is left
	}
	left, err := e.Provider.List(context.Background(), nil)
	if err != nil || len(left) > 0 {
		t.Errorf("sandboxes left: %v, %v", left, err)
	}
}

// counter counts the ways that requests came.
type counter struct{ http2, byName atomic.Int64 }

func (c *counter) add(r *http.Request) {
	if r.ProtoMajor == 2 {
		c.http2.Add(1)
	}
	if label, _, _ := strings.Cut(r.Host, "."); strings.HasPrefix(label, "49983-") {
		c.byName.Add(1)
	}
}
