// Package attack is the attack range: it boots real sandboxes, lets a hostile
// program loose in them, and says line by line of docs/threat-model.md what
// stopped it. A line holds only if the attempt failed and its twin, the same
// thing done where it may be, worked.
package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/grant"
	"dreamcore/internal/probe"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/tree"
	"dreamcore/internal/workspace"
)

// Verdict is how a line went.
type Verdict string

// The verdicts.
const (
	Held    Verdict = "held"
	Broken  Verdict = "BROKEN"
	Untried Verdict = "not tried" // Detail says why; it counts as not held
	Skipped Verdict = "elsewhere" // no question of a running system, or not on this engine
)

// Row is one line of the result. Detail is for the operator: it may hold words
// of a sandbox.
type Row struct {
	Line    string  `json:"line"`
	Attempt string  `json:"attempt"` // key of the catalogue
	Stopped string  `json:"stopped"` // key of the catalogue
	Verdict Verdict `json:"verdict"`
	Tries   int     `json:"tries"`
	Detail  string  `json:"detail,omitempty"`
}

// Proxy is the key proxy's control side.
type Proxy interface {
	Open(ctx context.Context, job dreamcore.Job, box dreamcore.SandboxID) (token string, err error)
	Close(ctx context.Context, id dreamcore.JobID, attempt int) (dreamcore.Usage, error)
	Mint(c grant.Claims) (string, error)
}

// Config is what is attacked.
type Config struct {
	Sandboxes sandbox.Provider
	Image     string
	Toolkit   []byte // holds the probe
	Env       map[string]string
	Proxy     Proxy
	// Upstream stands for the operator's provider behind Proxy.
	Upstream *Upstream
	API      string // of the model
	Model    string
	Features []dreamcore.Feature // that jobs have
	// ProxyAddress is the key proxy as a sandbox sees it.
	ProxyAddress string
	// Planted is in the environment of this process, by the name PlantedName.
	Planted, PlantedName string
	// Limits of one sandbox.
	MemoryBytes, DiskBytes int64
	Processes              int
	Limited                bool // they are enforced
	// Local says that sandboxes are on this machine.
	Local bool
	// Left lists what belongs to sandboxes on this machine; nil when not Local.
	Left func() ([]string, error)
	// Written returns all that the service has written: logs, ledger, audit.
	Written func() (map[string][]byte, error)
	// Collect takes the tree of a sandbox; nil means the product's way.
	Collect func(ctx context.Context, sb sandbox.Sandbox) (*tree.Tree, error)
	// Parts are the parts of the range to run: network, channel, secrets, trees,
	// limits, endings, written. None means all.
	Parts []string
	// Done is told each row as it is there; may be nil.
	Done func(Row)
	Log  *slog.Logger
}

// field is a run of the range.
type field struct {
	Config
	a, b     sandbox.Sandbox // the attacker's, and another job's
	jobs     [2]dreamcore.Job
	tokens   [2]string
	rows     []Row
	secretB  string // in the other job's sandbox
	trap     *trap
	requests int
}

// Run attacks and returns a row for each line, in the order of the threat
// model. An error means that the range itself could not be set up. Nothing is
// left, also when ctx ends.
func Run(ctx context.Context, cfg Config) (rows []Row, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Collect == nil {
		cfg.Collect = collect
	}
	f := &field{Config: cfg, secretB: "other-job-" + dreamcore.NewToken(24)}
	if f.trap, err = newTrap(); err != nil {
		return nil, fmt.Errorf("listen for attackers: %w", err)
	}
	defer f.trap.close()
	defer func() {
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for i, sb := range []sandbox.Sandbox{f.a, f.b} {
			if f.jobs[i].ID != "" {
				_, cerr := f.Proxy.Close(kctx, f.jobs[i].ID, f.jobs[i].Attempt)
				err = errors.Join(err, cerr)
			}
			if sb != nil {
				err = errors.Join(err, f.Sandboxes.Kill(kctx, sb.ID()))
			}
		}
	}()
	if f.a, err = f.boot(ctx, 0); err != nil {
		return nil, err
	}
	if f.b, err = f.boot(ctx, 1); err != nil {
		return nil, err
	}
	if err := f.b.WriteFiles(ctx, []sandbox.File{{Path: workspace.Project + "/secret.txt", Data: []byte(f.secretB)}}); err != nil {
		return nil, fmt.Errorf("plant in the other job's sandbox: %w", err)
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"network", f.network}, {"channel", f.channel}, {"secrets", f.secrets}, {"trees", f.trees},
		{"limits", f.appetite}, {"endings", f.endings}, {"written", f.written},
	} {
		if len(cfg.Parts) > 0 && !slices.Contains(cfg.Parts, part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return f.rows, err
		}
	}
	f.elsewhere()
	return f.rows, nil
}

// boot makes a sandbox as a job has it, with an open grant.
func (f *field) boot(ctx context.Context, i int) (sandbox.Sandbox, error) {
	sb, err := f.Sandboxes.Create(ctx, sandbox.Spec{
		Image: f.Image, Timeout: 20 * time.Minute, Egress: true, Env: f.Env,
		Metadata: map[string]string{"role": "attack", "job": string(rune('a' + i))},
	})
	if err != nil {
		return nil, fmt.Errorf("boot a sandbox: %w", err)
	}
	f.jobs[i] = dreamcore.Job{ID: dreamcore.NewJobID(), Attempt: 1}
	if f.tokens[i], err = f.Proxy.Open(ctx, f.jobs[i], sb.ID()); err != nil {
		return sb, fmt.Errorf("open a job: %w", err)
	}
	files := append(workspace.Toolkit(f.Toolkit, f.Features), sandbox.File{Path: workspace.GrantFile, Data: []byte(f.tokens[i]), Mode: 0o600})
	if err := sb.WriteFiles(ctx, files); err != nil {
		return sb, fmt.Errorf("write the probe: %w", err)
	}
	return sb, nil
}

// probe runs attempts in a sandbox. What has no outcome is not in the result.
func (f *field) probe(ctx context.Context, sb sandbox.Sandbox, user string, attempts []probe.Attempt) (map[string]probe.Outcome, error) {
	data, err := json.Marshal(attempts)
	if err != nil {
		return nil, err
	}
	request := "/tmp/" + dreamcore.NewToken(8)
	if err := sb.WriteFiles(ctx, []sandbox.File{{Path: request, Data: data, Owner: user, Mode: 0o600}}); err != nil {
		return nil, fmt.Errorf("hand the attempts over: %w", err)
	}
	res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{workspace.Tools + "/toolkit", "probe", request}, User: user, Dir: "/", Timeout: 3 * time.Minute}, 32<<20)
	if err != nil {
		return nil, fmt.Errorf("run the probe: %w", err)
	}
	all := map[string]probe.Outcome{}
	for line := range strings.Lines(string(res.Stdout)) {
		var o probe.Outcome
		if json.Unmarshal([]byte(line), &o) == nil {
			all[o.ID] = o
		}
	}
	return all, nil
}

// try is one attempt of a line and how it went.
type try struct {
	name    string
	control bool // the twin worked
	reached bool // the attack did
	says    string
}

// judge makes a row of all tries of a line.
func (f *field) judge(line, stopped string, tries ...try) {
	r := Row{Line: line, Attempt: "attack." + line, Stopped: "attack.by_" + stopped, Verdict: Held, Tries: len(tries)}
	if len(tries) == 0 {
		r.Verdict, r.Detail = Untried, "nothing was tried"
	}
	for _, t := range tries {
		switch {
		case t.reached:
			r.Verdict = Broken
			r.add(t.name + ": " + t.says)
		case !t.control:
			if r.Verdict == Held {
				r.Verdict = Untried
			}
			r.add(t.name + ": the twin failed: " + t.says)
		}
	}
	f.row(r)
}

func (r *Row) add(detail string) {
	if len(r.Detail) < 2000 {
		r.Detail = strings.TrimPrefix(r.Detail+"; "+detail, "; ")
	}
}

func (f *field) row(r Row) {
	f.rows = append(f.rows, r)
	f.Log.Info("attacked", "line", r.Line, "verdict", string(r.Verdict), "tries", r.Tries, "detail", r.Detail)
	if f.Done != nil {
		f.Done(r)
	}
}

// tries turns outcomes of attempts into tries, in their order; one without an
// outcome has no control.
func tries(attempts []probe.Attempt, got map[string]probe.Outcome) []try {
	var all []try
	for _, a := range attempts {
		o, ok := got[a.ID]
		if !ok {
			o.Says = "no outcome"
		}
		all = append(all, try{a.ID, o.Control, o.Reached, o.Says})
	}
	return all
}

// Holds reports whether everything that was tried held and nothing was left out.
func Holds(rows []Row) bool {
	return len(rows) > 0 && !slices.ContainsFunc(rows, func(r Row) bool { return r.Verdict == Broken || r.Verdict == Untried })
}

func collect(ctx context.Context, sb sandbox.Sandbox) (*tree.Tree, error) {
	if err := workspace.Quiesce(ctx, sb); err != nil {
		return nil, err
	}
	return workspace.Snapshot(ctx, sb, tree.DefaultLimits())
}

// elsewhere names the lines that no running system is asked about.
func (f *field) elsewhere() {
	for _, lines := range []string{"B", "S03", "S07", "S10", "S11", "V", "P", "W"} {
		f.row(Row{Line: lines, Attempt: "attack.elsewhere", Stopped: "attack.by_tests", Verdict: Skipped})
	}
	if f.Local {
		f.row(Row{Line: "E26", Attempt: "attack.elsewhere", Stopped: "attack.by_local", Verdict: Skipped})
	}
}
