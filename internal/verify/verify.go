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
	"log/slog"
	"path"
	"strings"
	"time"

	"dreamcore"
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
)

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
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeout)
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

	files := workspace.Toolkit(v.cfg.Toolkit)
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
		data, err := sb.ReadFile(ctx, path.Join(outDir, path.Base(*name)), maxPictureBytes)
		if err != nil {
			log.Warn("a picture of the playtest is missing", "err", err)
			*name = ""
			continue
		}
		*name = path.Base(*name)
		ev.Pictures[*name] = data
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
	env := workspace.Env(req.Lang, "", "")
	tctx, cancel := context.WithTimeout(ctx, v.cfg.Timeout/2)
	defer cancel()
	res, err := sandbox.Run(tctx, sb, sandbox.Command{Args: argv, Dir: workspace.Root, Env: env}, maxReportBytes)
	// A game that hangs the tool, or takes the whole verifier down by its memory,
	// is the game's fault: the agent is told, and nothing starts afresh.
	if err != nil && (ctx.Err() != nil || (!errors.Is(err, context.DeadlineExceeded) && dreamcore.CodeOf(err) != dreamcore.Lost)) {
		return fmt.Errorf("run %s in the verifier: %w", name, err)
	}
	if err != nil {
		res.Code = -1
		res.Stderr = []byte(err.Error())
	}
	// 0 PASS, 1 FAIL; anything else could not judge.
	if res.Signal == "" && (res.Code == 0 || res.Code == 1) && !res.Truncated {
		d := json.NewDecoder(bytes.NewReader(res.Stdout))
		d.DisallowUnknownFields()
		if err := d.Decode(report); err == nil {
			return v.cap(report)
		} else {
			v.cfg.Log.Warn("a report could not be read", "job_id", req.Job, "tool", name, "err", err)
		}
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

// cap bounds what a report may bring across the border.
func (v *Verifier) cap(report any) error {
	var fs *[]dreamcore.Finding
	switch r := report.(type) {
	case *dreamcore.Report:
		fs = &r.Findings
	case *dreamcore.PlayReport:
		fs = &r.Findings
		r.Moved = r.Moved[:min(len(r.Moved), 100)]
		r.Errors = r.Errors[:min(len(r.Errors), 20)]
	}
	*fs = (*fs)[:min(len(*fs), maxFindings)]
	for i := range *fs {
		f := &(*fs)[i]
		f.Message, f.Fix, f.File = clip(f.Message, 1000), clip(f.Fix, 1000), clip(f.File, 300)
	}
	return nil
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
