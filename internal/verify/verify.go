// Package verify judges a snapshot of project/ in the verifier: a second, clean
// sandbox without any way out, in which nothing of the agent ever ran. The
// agent's own word, exit codes and pictures count for nothing.
package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/publish"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/text"
	"dreamcore/internal/tree"
	"dreamcore/internal/workspace"
)

// Where the verifier writes what the playtest saw.
const outDir = workspace.Root + "/out"

const (
	maxReportBytes  = 4 << 20
	maxPictureBytes = 8 << 20
	maxFindings     = 200
	maxNameBytes    = 100 // of a picture
)

var errOverdue = errors.New("the judgement is overdue")

// Config is what a Verifier needs.
type Config struct {
	Sandboxes sandbox.Provider
	Toolkit   []byte            // the toolkit binary
	Metadata  map[string]string // marks the verifier as one of this installation's
	Timeout   time.Duration     // of one judgement as a whole
	Log       *slog.Logger
}

// Verifier boots a clean sandbox for each judgement.
type Verifier struct{ cfg Config }

// New returns a Verifier.
func New(cfg Config) *Verifier { return &Verifier{cfg} }

// Request is one judgement.
type Request struct {
	Job      dreamcore.JobID
	Attempt  int
	Image    string
	Lang     dreamcore.Lang
	Project  []tree.File
	Template []tree.File // as it was delivered; nil when nothing was
	Controls string      // fixed by the host before the build turn
}

// Run judges the project. A game that fails is no error: the evidence says so.
// An error means that nothing could be judged.
func (v *Verifier) Run(ctx context.Context, req Request) (dreamcore.Evidence, error) {
	// A game that uses up the time of its judgement is at fault; it is nobody's
	// when the job as a whole is cancelled.
	ctx, cancel := context.WithTimeoutCause(ctx, v.cfg.Timeout, errOverdue)
	defer cancel()
	start := time.Now()
	meta := map[string]string{"job": string(req.Job), "attempt": fmt.Sprint(req.Attempt), "role": "verifier"}
	for k, val := range v.cfg.Metadata {
		meta[k] = val
	}
	sb, err := v.cfg.Sandboxes.Create(ctx, sandbox.Spec{Image: req.Image, Timeout: v.cfg.Timeout + time.Minute, Metadata: meta})
	if err != nil {
		return dreamcore.Evidence{}, fmt.Errorf("boot the verifier: %w", err)
	}
	log := v.cfg.Log.With("job_id", req.Job, "verifier_id", sb.ID())
	defer func() {
		kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := v.cfg.Sandboxes.Kill(kctx, sb.ID()); err != nil {
			log.Error("the verifier could not be destroyed; its time to live ends it", "err", err)
		}
	}()

	files := workspace.Toolkit(v.cfg.Toolkit, nil)
	files = append(files, workspace.Put(workspace.Project, req.Project)...)
	files = append(files, workspace.Put(workspace.Original, req.Template)...)
	files = append(files, sandbox.File{Path: outDir + "/.keep", Owner: sandbox.User})
	if err := sb.WriteFiles(ctx, files); err != nil {
		return dreamcore.Evidence{}, fmt.Errorf("fill the verifier: %w", err)
	}

	var ev dreamcore.Evidence
	if err := v.tool(ctx, sb, req, "check", nil, &ev.Check); err != nil {
		return ev, err
	}
	if err := v.tool(ctx, sb, req, "level", nil, &ev.Level); err != nil {
		return ev, err
	}
	if err := v.tool(ctx, sb, req, "playtest", []string{"--controls", req.Controls, "--out", outDir}, &ev.Play); err != nil {
		return ev, err
	}
	ev.ToolVersion = ev.Check.Version
	ev.Check.Judge() // never the verdict that the box printed: that of its findings
	ev.Level.Judge()
	ev.Play.Judge()
	ev.Pictures = map[string][]byte{}
	for _, name := range []*string{&ev.Play.Poster, &ev.Play.Idle, &ev.Play.Touch, &ev.Play.Recording} {
		if *name == "" {
			continue
		}
		base := path.Base(*name)
		data, err := sb.ReadFile(ctx, path.Join(outDir, base), maxPictureBytes)
		if err == nil && (publish.PictureType(data) == "" || len(base) > maxNameBytes) {
			err = dreamcore.Errorf(dreamcore.Refused, "verify.picture", "%.100q is no picture", base)
		}
		if err != nil {
			log.Warn("a picture of the playtest is missing", "err", err)
			*name = ""
			continue
		}
		*name = base
		ev.Pictures[base] = data
	}
	log.Info("judged", "decision", ev.Verdict(), "check", ev.Check.Verdict, "level", ev.Level.Verdict, "playtest", ev.Play.Verdict,
		"motion", ev.Play.Motion, "findings", len(ev.Findings()), "dur_ms", time.Since(start).Milliseconds())
	return ev, nil
}

// tool runs one judgement and decodes its report strictly.
func (v *Verifier) tool(ctx context.Context, sb sandbox.Sandbox, req Request, name string, args []string, report any) error {
	argv := []string{workspace.Tools + "/toolkit", name, "--json", "--lang", string(req.Lang)}
	if len(req.Template) > 0 {
		argv = append(argv, "--template", workspace.Original)
	}
	argv = append(append(argv, args...), workspace.Project)
	env := workspace.Env(req.Lang, workspace.Offer{})
	tctx, cancel := context.WithTimeout(ctx, v.cfg.Timeout/2)
	defer cancel()
	res, err := sandbox.Run(tctx, sb, sandbox.Command{Args: argv, Dir: workspace.Root, Env: env}, maxReportBytes)
	// A game that hangs the tool, or takes the whole verifier down by its memory,
	// is the game's fault: the agent is told, and nothing starts afresh.
	if err != nil {
		overdue := errors.Is(err, context.DeadlineExceeded) || errors.Is(context.Cause(ctx), errOverdue)
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errOverdue) || !overdue && dreamcore.CodeOf(err) != dreamcore.Lost {
			return fmt.Errorf("run %s in the verifier: %w", name, err)
		}
		res.Code = -1
		res.Stderr = []byte(err.Error())
	}
	// 0 PASS, 1 FAIL; anything else could not judge.
	if res.Signal == "" && (res.Code == 0 || res.Code == 1) && !res.Truncated {
		err := decode(res.Stdout, name, res.Code, report)
		if err == nil {
			return nil
		}
		v.cfg.Log.Warn("a report could not be read", "job_id", req.Job, "tool", name, "err", err)
	}
	reason := strings.TrimSpace(string(res.Stderr))
	if len(reason) > 300 {
		reason = reason[len(reason)-300:]
	}
	v.cfg.Log.Warn("a judgement gave no report", "job_id", req.Job, "tool", name, "exit", res.Code, "signal", res.Signal, "reason", reason)
	finding := dreamcore.Finding{
		Code: name + "_gave_up", Severity: dreamcore.Fail,
		Message: text.T(req.Lang, "verify.gave_up", "tool", name), Fix: text.T(req.Lang, "verify.gave_up_fix"),
	}
	switch r := report.(type) {
	case *dreamcore.Report:
		*r = dreamcore.Report{Tool: name, Findings: []dreamcore.Finding{finding}}
	case *dreamcore.PlayReport:
		*r = dreamcore.PlayReport{Report: dreamcore.Report{Tool: name, Findings: []dreamcore.Finding{finding}}}
	}
	return nil
}

// decode reads a report that is exactly one, of this tool, and no better than
// the tool's exit code; and bounds what it may bring across the border.
func decode(out []byte, tool string, code int, report any) error {
	d := json.NewDecoder(bytes.NewReader(out))
	d.DisallowUnknownFields()
	if err := d.Decode(report); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the report")
	}
	var r *dreamcore.Report
	switch p := report.(type) {
	case *dreamcore.Report:
		r = p
	case *dreamcore.PlayReport:
		r = &p.Report
		p.Moved = p.Moved[:min(len(p.Moved), 100)]
		for i := range p.Moved {
			p.Moved[i].Arm, p.Moved[i].Entity = clip(p.Moved[i].Arm, 100), clip(p.Moved[i].Entity, 100)
		}
		p.Errors = p.Errors[:min(len(p.Errors), 20)]
		for i := range p.Errors {
			p.Errors[i] = clip(p.Errors[i], 1000)
		}
		p.Motion = dreamcore.Motion(clip(string(p.Motion), 100))
	}
	if r.Tool != tool {
		return fmt.Errorf("the report is one of %.100q", r.Tool)
	}
	r.Version = clip(r.Version, 100)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Code, f.Message, f.Fix, f.File = clip(f.Code, 100), clip(f.Message, 1000), clip(f.Fix, 1000), clip(f.File, 300)
		if f.Severity != dreamcore.Warn {
			f.Severity = dreamcore.Fail // a word that nobody knows excuses nothing
		}
	}
	r.Judge()
	if code == 1 && r.Verdict == dreamcore.Pass {
		return errors.New("the tool says FAIL and finds nothing")
	}
	// What is cut off must not be what fails the game.
	slices.SortStableFunc(r.Findings, func(a, b dreamcore.Finding) int { return strings.Compare(string(a.Severity), string(b.Severity)) })
	r.Findings = r.Findings[:min(len(r.Findings), maxFindings)]
	return nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
