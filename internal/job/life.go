package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/agent"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/tree"
	"dreamcore/internal/verify"
	"dreamcore/internal/workspace"
)

// box is what is known of the live sandbox of one attempt. All of it comes from
// remembered steps, so that it is the same after a restart.
type box struct {
	ID      dreamcore.SandboxID
	Image   Image
	Started time.Time
}

// delivery is what was put into project/ between the turns.
type delivery struct {
	Tag      dreamcore.TemplateTag
	Controls string
}

// attempt runs the job once in one sandbox. Whatever happens, the sandbox is
// destroyed; the grant dies first. usage and findings belong to a failure.
func (r *Runner) attempt(ctx context.Context, steps Steps, job dreamcore.Job, log *slog.Logger) (usage dreamcore.Usage, findings []dreamcore.Finding, err error) {
	destroyed := false
	destroy := func() {
		if destroyed {
			return
		}
		destroyed = true
		r.step(ctx, job, "", "job.destroying", nil)
		usage = r.destroy(ctx, job, log)
	}
	defer destroy()

	b, err := do(ctx, steps, "boot", func(ctx context.Context) (box, error) { return r.boot(ctx, job) })
	if err != nil {
		return usage, nil, err
	}
	log = log.With("sandbox_id", b.ID)
	stop := r.renew(ctx, job, b, log)
	defer stop()
	if _, err = do(ctx, steps, "materials", func(ctx context.Context) (bool, error) { return true, r.materials(ctx, job, b) }); err != nil {
		return usage, nil, err
	}

	var agentMS, verifyMS int64
	said := "" // the agent's last word of the last turn that made something
	turn := func(kind dreamcore.Turn, name, prompt string, findings ...dreamcore.Finding) error {
		rep, err := do(ctx, steps, name, func(ctx context.Context) (report, error) {
			r.find(ctx, job, findings)
			return r.turn(ctx, job, b, kind, prompt, log)
		})
		agentMS += rep.MS
		if kind != dreamcore.Design && rep.Said != "" {
			said = rep.Said
		}
		return err
	}
	var d delivery
	if job.Base == "" {
		if err = turn(dreamcore.Design, "design", workspace.DesignPrompt(job.Lang, job.Wish, r.cfg.Library.Catalogue(job.Lang))); err != nil {
			return usage, nil, err
		}
		if d, err = do(ctx, steps, "deliver", func(ctx context.Context) (delivery, error) { return r.deliver(ctx, job, b, log) }); err != nil {
			return usage, nil, err
		}
		err = turn(dreamcore.Build, "build", workspace.BuildPrompt(job.Lang, job.Wish, d.Tag, d.Controls, r.cfg.Features...))
	} else {
		var chat []dreamcore.Message
		if d, chat, err = r.current(ctx, job); err != nil {
			return usage, nil, err
		}
		err = turn(dreamcore.Edit, "edit", workspace.EditPrompt(job.Lang, job.Wish, d.Controls, chat, r.cfg.Features...))
	}
	if err != nil {
		return usage, nil, err
	}

	var j judgement
	for repairs := 0; ; repairs++ {
		j, err = do(ctx, steps, fmt.Sprintf("verify-%d", repairs), func(ctx context.Context) (judgement, error) {
			return r.verify(ctx, job, b, d, log)
		})
		if err != nil {
			return usage, nil, err
		}
		verifyMS += j.MS
		j.Evidence.Repairs = repairs
		if j.Evidence.Verdict() == dreamcore.Pass {
			break
		}
		findings = j.Evidence.Findings()
		if repairs == r.cfg.Limits.Repairs {
			log.Warn("no repair turn is left", "decision", "refuse", "findings", len(findings))
			return usage, findings, &refusedError{j.Evidence}
		}
		log.Info("verification refused the game", "decision", "repair", "findings", len(findings), "repair", repairs+1)
		if err = turn(dreamcore.Repair, fmt.Sprintf("repair-%d", repairs+1), workspace.RepairPrompt(job.Lang, findings, r.cfg.Features...), findings...); err != nil {
			return usage, findings, err
		}
	}
	destroy()

	ev := j.Evidence
	ev.ImageDigest, ev.AgentName, ev.AgentVersion = b.Image.Digest, r.cfg.Agent.Name(), b.Image.AgentVersion
	ev.Model, ev.Template, ev.Usage = r.cfg.Model, d.Tag, usage
	total := time.Since(b.Started).Milliseconds()
	ev.Timing = dreamcore.Timing{JobMS: total, AgentMS: agentMS, VerifyMS: verifyMS, HostMS: total - agentMS - verifyMS}
	version, err := do(ctx, steps, "publish", func(ctx context.Context) (dreamcore.Version, error) {
		r.step(ctx, job, "", "job.publishing", nil)
		return r.cfg.Publisher.Publish(ctx, job, j.Files, ev)
	})
	if err != nil {
		return usage, findings, err
	}
	// What was made, and what could not be, stays in the chat after the progress is gone.
	if said != "" {
		m := dreamcore.Message{Game: job.Game, Job: job.ID, Role: "dreamcore", Text: said, Created: time.Now().UTC()}
		if err := r.cfg.Store.AddMessage(context.WithoutCancel(ctx), m); err != nil {
			log.Error("the agent's last word did not reach the chat", "err", err)
		}
	}
	r.event(ctx, job, dreamcore.Event{Kind: dreamcore.EventState, Text: string(dreamcore.Published), Args: map[string]string{"version": string(version.ID)}})
	log.Info("published", "decision", "publish", "version", version.ID, "job_ms", ev.Timing.JobMS, "agent_ms", agentMS, "verify_ms", verifyMS, "host_ms", ev.Timing.HostMS)
	return usage, nil, nil
}

func metadata(cfg map[string]string, job dreamcore.Job, role string) map[string]string {
	m := map[string]string{"job": string(job.ID), "attempt": fmt.Sprint(job.Attempt), "role": role}
	for k, v := range cfg {
		m[k] = v
	}
	return m
}

// boot starts a fresh sandbox and lets it into the key proxy.
func (r *Runner) boot(ctx context.Context, job dreamcore.Job) (box, error) {
	img, err := r.cfg.Image()
	if err != nil {
		return box{}, err
	}
	r.step(ctx, job, "", "job.booting", nil)
	started := time.Now().UTC()
	from := img.Digest
	if img.Warm != "" {
		from = img.Warm
	}
	sb, err := r.cfg.Sandboxes.Create(ctx, sandbox.Spec{
		Image: from, Egress: true,
		Timeout:  r.cfg.Limits.Job + 5*time.Minute, // if nobody destroys it, it ends itself
		Metadata: metadata(r.cfg.Metadata, job, "agent"),
	})
	if err != nil {
		return box{}, fmt.Errorf("boot: %w", err)
	}
	return box{ID: sb.ID(), Image: img, Started: started}, nil
}

// materials writes everything that the box needs in one bulk write.
func (r *Runner) materials(ctx context.Context, job dreamcore.Job, b box) error {
	sb, err := r.cfg.Sandboxes.Connect(ctx, b.ID)
	if err != nil {
		return err
	}
	grant, err := r.cfg.Proxy.Open(ctx, job, b.ID)
	if err != nil {
		return fmt.Errorf("open the key proxy: %w", err)
	}
	files, err := r.cfg.Agent.Files(r.session(job))
	if err != nil {
		return err
	}
	files = append(files, workspace.Toolkit(r.cfg.Toolkit, r.cfg.Features)...)
	files = append(files,
		sandbox.File{Path: workspace.GrantFile, Data: []byte(grant), Mode: 0o600, Owner: sandbox.User},
		sandbox.File{Path: workspace.RunsFile, Mode: 0o600, Owner: sandbox.User},
		sandbox.File{Path: workspace.Prompt + "/wish.txt", Data: []byte(job.Wish), Owner: sandbox.User},
		sandbox.File{Path: workspace.Reference + "/README.txt", Data: []byte("Materials to look at. Nothing here is collected.\n"), Owner: sandbox.User},
	)
	if job.Base != "" {
		v, err := r.cfg.Store.Version(ctx, job.Base)
		if err != nil {
			return fmt.Errorf("find the current version: %w", err)
		}
		project, err := r.cfg.Publisher.Load(ctx, v.Files)
		if err != nil {
			return fmt.Errorf("load the current version: %w", err)
		}
		files = append(files, workspace.Put(workspace.Project, project)...)
	}
	if err := sb.WriteFiles(ctx, files); err != nil {
		return fmt.Errorf("write materials: %w", err)
	}
	_, err = sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"mkdir", "-p", workspace.Project}, Dir: "/", User: sandbox.User}, 1000)
	return err
}

func (r *Runner) session(job dreamcore.Job) agent.Session {
	offer := workspace.Offer{Features: r.cfg.Features, ProxyURL: r.cfg.ProxyURL, ImageModel: r.cfg.ImageModel}
	return agent.Session{
		ID: job.ID, API: r.cfg.API, Model: r.cfg.Model, ProxyURL: r.cfg.ProxyURL, GrantFile: workspace.GrantFile,
		Dir: workspace.Root, Env: workspace.Env(job.Lang, offer), Timeout: r.cfg.Limits.Turn,
	}
}

// report is how a turn went. Said is the agent's last word: untrusted.
type report struct {
	MS   int64
	Said string
}

// turn runs the agent once. An agent that fails in a build, edit or repair turn
// does not end the job: what it left is verified, and the findings say what is
// missing.
func (r *Runner) turn(ctx context.Context, job dreamcore.Job, b box, kind dreamcore.Turn, prompt string, log *slog.Logger) (rep report, err error) {
	sb, err := r.cfg.Sandboxes.Connect(ctx, b.ID)
	if err != nil {
		return rep, err
	}
	r.step(ctx, job, kind, "job.turn_"+string(kind), nil)
	// The prompt is an argument of the agent; the file is for looking at, and a
	// disk that the agent has filled must not keep it from being repaired.
	if err := sb.WriteFiles(ctx, []sandbox.File{{Path: workspace.Prompt + "/" + string(kind) + ".md", Data: []byte(prompt), Owner: sandbox.User}}); err != nil {
		if ctx.Err() != nil || dreamcore.CodeOf(err) == dreamcore.Lost {
			return rep, fmt.Errorf("write prompt: %w", err)
		}
		log.Warn("the prompt's file could not be written", "turn", kind, "decision", "go on", "err", err)
	}
	start := time.Now()
	session := r.session(job)
	// Only the first turn of a box can find the agent waiting in it.
	session.Warm = b.Image.Warm != "" && (kind == dreamcore.Design || kind == dreamcore.Edit)
	err = agent.RunTurn(ctx, sb, r.cfg.Agent, session, prompt, log.With("turn", kind), func(e agent.Event) {
		ev := dreamcore.Event{Kind: dreamcore.EventSay, Turn: kind, Text: e.Text}
		if e.Kind == agent.Say {
			rep.Said = e.Text
		}
		if e.Kind == agent.Tool {
			ev.Kind, ev.Args = dreamcore.EventTool, map[string]string{"name": e.Name}
		}
		r.event(ctx, job, ev)
	})
	rep.MS = time.Since(start).Milliseconds()
	switch {
	case err == nil:
		log.Info("turn ended", "turn", kind, "decision", "go on", "dur_ms", rep.MS)
	case ctx.Err() != nil || dreamcore.CodeOf(err) == dreamcore.Lost:
		return rep, err
	case kind == dreamcore.Design:
		log.Warn("turn failed", "turn", kind, "decision", "look for a spec", "dur_ms", rep.MS, "err", err)
		if _, rerr := sb.ReadFile(ctx, workspace.Spec, maxSpecBytes); rerr != nil {
			return rep, err // nothing to go on with
		}
	default:
		log.Warn("turn failed", "turn", kind, "decision", "verify what is there", "dur_ms", rep.MS, "err", err)
	}
	if kind == dreamcore.Build || kind == dreamcore.Edit {
		r.noteToolRuns(ctx, sb, kind, log)
	}
	return rep, nil
}

// noteToolRuns logs which tools the agent ran, as the box tells it.
func (r *Runner) noteToolRuns(ctx context.Context, sb sandbox.Sandbox, kind dreamcore.Turn, log *slog.Logger) {
	counts := map[string]int{}
	for _, run := range workspace.ToolRuns(ctx, sb) {
		counts[run.Tool]++
	}
	if counts["check"] == 0 {
		log.Warn("the agent never ran the checker", "turn", kind, "reason", "no_check_run")
	}
	log.Info("tools that the agent ran", "turn", kind, "check", counts["check"], "level", counts["level"], "playtest", counts["playtest"], "image", counts["image"])
}

const maxSpecBytes = 256 << 10

// controlSchemes are those that a spec without a template may choose.
var controlSchemes = map[string]bool{"move-2d": true, "move-x": true, "jump-x": true, "tap": true, "pointer": true, "board": true, "steer-3d": true}

// deliver reads the spec's first line and puts the template that it names,
// matched exactly, into project/. Every branch logs exactly one line.
func (r *Runner) deliver(ctx context.Context, job dreamcore.Job, b box, log *slog.Logger) (delivery, error) {
	sb, err := r.cfg.Sandboxes.Connect(ctx, b.ID)
	if err != nil {
		return delivery{}, err
	}
	spec, err := sb.ReadFile(ctx, workspace.Spec, maxSpecBytes)
	if err != nil {
		switch dreamcore.CodeOf(err) {
		case dreamcore.NotFound, dreamcore.Refused, dreamcore.Invalid: // none, or none that can be read
		default: // the box did not answer, which is not the agent's fault
			log.Warn("delivery", "decision", "fail", "reason", "unreadable", "err", err)
			return delivery{}, fmt.Errorf("read the spec: %w", err)
		}
		log.Warn("delivery", "decision", "fail", "reason", "no_spec", "err", err)
		return delivery{}, dreamcore.Errorf(dreamcore.Unavailable, agent.Op+"spec", "the agent wrote no spec").Because(err)
	}
	first, rest, _ := strings.Cut(string(spec), "\n")
	tpl, reason, ok := r.cfg.Library.Match(first)
	if !ok {
		second, _, _ := strings.Cut(rest, "\n")
		controls, ok := strings.CutPrefix(strings.TrimRight(second, "\r"), "controls: ")
		if !ok || !controlSchemes[controls] {
			log.Warn("delivery", "decision", "nothing", "reason", reason, "controls", "pointer", "controls_reason", "none_or_unknown_in_spec")
			return delivery{Controls: "pointer"}, nil // what every game can answer
		}
		log.Info("delivery", "decision", "nothing", "reason", reason, "controls", controls)
		return delivery{Controls: controls}, nil
	}
	files, err := r.cfg.Library.Files(tpl.Tag)
	if err != nil {
		return delivery{}, fmt.Errorf("read template %s: %w", tpl.Tag, err)
	}
	if err := sb.WriteFiles(ctx, workspace.Put(workspace.Project, files)); err != nil {
		return delivery{}, fmt.Errorf("deliver %s: %w", tpl.Tag, err)
	}
	log.Info("delivery", "decision", "deliver", "reason", reason, "template", tpl.Tag, "controls", tpl.Controls, "files", len(files))
	r.step(ctx, job, "", "job.delivered", map[string]string{"template": tpl.Title.In(job.Lang)})
	return delivery{Tag: tpl.Tag, Controls: tpl.Controls}, nil
}

// current finds what an edit starts from: the gate of the version that it
// changes, and the chat so far.
func (r *Runner) current(ctx context.Context, job dreamcore.Job) (delivery, []dreamcore.Message, error) {
	v, err := r.cfg.Store.Version(ctx, job.Base)
	if err != nil {
		return delivery{}, nil, fmt.Errorf("find the current version: %w", err)
	}
	chat, err := r.cfg.Store.Messages(ctx, job.Game)
	if err != nil {
		return delivery{}, nil, fmt.Errorf("read the chat: %w", err)
	}
	// The last message is the wish itself, and old ones bring little.
	var before []dreamcore.Message
	for _, m := range chat {
		if m.Job != job.ID {
			before = append(before, m)
		}
	}
	return delivery{Tag: v.Evidence.Template, Controls: v.Evidence.Play.Controls}, before[max(0, len(before)-20):], nil
}

// judgement is a snapshot and what verification saw of it.
type judgement struct {
	Files    []dreamcore.VersionFile
	Evidence dreamcore.Evidence
	MS       int64
}

// verify snapshots project/ while the sandbox lives and judges the snapshot in
// a clean one. What is published later is this snapshot and nothing else.
func (r *Runner) verify(ctx context.Context, job dreamcore.Job, b box, d delivery, log *slog.Logger) (judgement, error) {
	start := time.Now()
	sb, err := r.cfg.Sandboxes.Connect(ctx, b.ID)
	if err != nil {
		return judgement{}, err
	}
	r.step(ctx, job, "", "job.verifying", nil)
	runs := workspace.ToolRuns(ctx, sb)
	var t *tree.Tree
	err = workspace.Quiesce(ctx, sb)
	if err == nil {
		t, err = workspace.Snapshot(ctx, sb, r.cfg.Limits.Tree)
	}
	var refusal *tree.Refusal
	switch {
	case errors.As(err, &refusal):
		log.Warn("the tree was refused whole", "decision", "finding", "reason", refusal.Error())
		ev := treeRefused(job.Lang, refusal)
		return judgement{Evidence: ev, MS: time.Since(start).Milliseconds()}, nil
	case err != nil:
		return judgement{}, err
	}
	var original []tree.File
	if d.Tag != "" {
		if original, err = r.cfg.Library.Files(d.Tag); err != nil {
			log.Warn("the template is no longer in the library", "template", d.Tag, "decision", "verify without it", "err", err)
			original = nil
		}
	}
	ev, err := r.cfg.Verifier.Run(ctx, verify.Request{
		Job: job.ID, Attempt: job.Attempt, Image: b.Image.Digest, Lang: job.Lang, Project: t.Files, Template: original, Controls: d.Controls,
	})
	if err != nil {
		return judgement{}, err
	}
	ev.Check.Findings = append(ev.Check.Findings, tree.Scan(t, job.Lang, nil)...)
	ev.Check.Judge()
	ev.Play.Controls = d.Controls
	ev.ToolRuns = runs
	if err := r.cfg.Publisher.KeepPictures(ctx, &ev); err != nil {
		return judgement{}, fmt.Errorf("keep the pictures: %w", err)
	}
	files, err := r.cfg.Publisher.Keep(ctx, t)
	if err != nil {
		return judgement{}, fmt.Errorf("keep the snapshot: %w", err)
	}
	return judgement{Files: files, Evidence: ev, MS: time.Since(start).Milliseconds()}, nil
}

func treeRefused(lang dreamcore.Lang, refusal *tree.Refusal) dreamcore.Evidence {
	ev := dreamcore.Evidence{Check: dreamcore.Report{Tool: "tree", Findings: []dreamcore.Finding{refusal.Finding(lang)}}}
	ev.Check.Judge()
	return ev
}

// renewEvery is well inside the grant's 15 minutes.
const renewEvery = 5 * time.Minute

// renew keeps the grant fresh while the attempt lives.
func (r *Runner) renew(ctx context.Context, job dreamcore.Job, b box, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(renewEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := r.renewOnce(ctx, job, b); err != nil && ctx.Err() == nil {
				log.Warn("the grant was not renewed", "decision", "try again", "err", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (r *Runner) renewOnce(ctx context.Context, job dreamcore.Job, b box) error {
	grant, err := r.cfg.Proxy.Renew(ctx, job, b.ID)
	if err != nil {
		return err
	}
	sb, err := r.cfg.Sandboxes.Connect(ctx, b.ID)
	if err != nil {
		return err
	}
	return sb.WriteFiles(ctx, []sandbox.File{{Path: workspace.GrantFile, Data: []byte(grant), Mode: 0o600, Owner: sandbox.User}})
}

// destroy ends the grant, then every sandbox of this attempt: found by their
// metadata, so that one that was booted but never remembered goes too.
func (r *Runner) destroy(ctx context.Context, job dreamcore.Job, log *slog.Logger) dreamcore.Usage {
	ctx = context.WithoutCancel(ctx)
	// Each part has its own time, so that a slow one cannot eat another's.
	within := func(d time.Duration, f func(context.Context) error) error {
		c, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return f(c)
	}
	var usage dreamcore.Usage
	err := within(15*time.Second, func(ctx context.Context) (err error) {
		usage, err = r.cfg.Proxy.Close(ctx, job.ID, job.Attempt)
		return err
	})
	if err != nil {
		log.Error("the grant could not be closed", "err", err)
	}
	filter := metadata(r.cfg.Metadata, job, "")
	delete(filter, "role")
	var boxes []sandbox.Info
	err = within(30*time.Second, func(ctx context.Context) (err error) {
		boxes, err = r.cfg.Sandboxes.List(ctx, filter)
		return err
	})
	if err != nil {
		log.Error("the job's sandboxes could not be listed; their time to live ends them", "err", err)
	}
	for _, b := range boxes {
		kill := func(ctx context.Context) error { return r.cfg.Sandboxes.Kill(ctx, b.ID) }
		if err := within(time.Minute, kill); err != nil {
			log.Warn("a sandbox could not be destroyed", "sandbox_id", b.ID, "decision", "try again", "err", err)
			if err := within(time.Minute, kill); err != nil {
				log.Error("a sandbox could not be destroyed; its time to live ends it", "sandbox_id", b.ID, "err", err)
				continue
			}
		}
		log.Info("sandbox destroyed", "sandbox_id", b.ID)
	}
	return usage
}
