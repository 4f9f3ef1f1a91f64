// Package toolkit is the command line of the tools that the host writes into
// every sandbox: check, level, playtest and image. The agent runs them in its
// box and the host runs the same program in the verifier: one implementation,
// no drift.
//
// Exit codes: 0 only when the verdict is PASS, 1 when it is FAIL, 2 when the tool
// could not judge.
package toolkit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"dreamcore"
	"dreamcore/internal/check"
	"dreamcore/internal/level"
	"dreamcore/internal/playtest"
	"dreamcore/internal/probe"
	"dreamcore/internal/text"
	"dreamcore/internal/toolkit/imagetool"
)

// Release is the toolkit's own version; a new one never reaches a job that runs.
const Release = "1.0"

// Exit codes.
const (
	ExitPass   = 0
	ExitFail   = 1
	ExitBroken = 2 // could not judge, or was called wrongly
)

// DefaultDir is where the game lies in a sandbox.
const DefaultDir = "/workspace/project"

// defaultRuns is where each run leaves a line for the host.
const defaultRuns = "/run/dreamcore/runs/log.jsonl"

// Env is what the commands touch of the world.
type Env struct {
	Stdout, Stderr io.Writer
	// Getenv looks up the environment; nil is os.Getenv.
	Getenv func(string) string
}

func (e Env) getenv(name string) string {
	if e.Getenv != nil {
		return e.Getenv(name)
	}
	return os.Getenv(name)
}

// Version is the release with the build's own stamp, where it has one.
func Version() string {
	v := Release + "+check" + check.Version + ".level" + level.Version + ".playtest" + playtest.Version
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				v += "." + s.Value[:12]
			}
		}
	}
	return v
}

// names are the tools, as argv[0] or first argument.
var names = []string{"check", "level", "playtest", "image", "fetch", "version"}

// Main runs the command that argv names: by the program's own name (links
// called check, level ...) or by the first argument. It returns the exit code.
func Main(ctx context.Context, argv []string, env Env) int {
	tool, args := "", argv
	if len(argv) > 0 {
		tool, args = strings.TrimSuffix(filepath.Base(argv[0]), ".exe"), argv[1:]
	}
	if !slices.Contains(names, tool) {
		tool = ""
		if len(args) > 0 {
			tool, args = args[0], args[1:]
		}
	}
	code := ExitBroken
	switch tool {
	case "check", "level", "playtest":
		code = judge(ctx, tool, args, env)
	case "image":
		self := []string{}
		if exe, err := os.Executable(); err == nil {
			self = []string{exe, "image"}
			if slices.Contains(names, filepath.Base(exe)) {
				self = self[:1] // a link: its name says the tool
			}
		}
		code = imagetool.Main(args, imagetool.Env{Stdout: env.Stdout, Stderr: env.Stderr, Getenv: env.Getenv, Self: self})
	case "probe":
		// The attack range's; whoever is in the sandbox may try what it tries.
		return probe.Main(ctx, args, env.Stdout)
	case "fetch":
		code = fetch(ctx, args, env)
	case "version", "--version", "-v":
		fmt.Fprintln(env.Stdout, Version())
		return ExitPass
	default:
		lang := dreamcore.Lang(env.getenv("DREAMCORE_LANG"))
		fmt.Fprintln(env.Stderr, text.T(lang, "toolkit.usage"))
		if tool == "help" || tool == "--help" || tool == "-h" {
			return ExitPass
		}
		return ExitBroken
	}
	record(tool, args, code, env)
	return code
}

// request is the command line of a judgement.
type request struct {
	dir, template, controls, out string
	browser                      string
	lang                         dreamcore.Lang
	json, verbose                bool
}

// parse accepts flags before and after the folder, as agents write them.
func parse(args []string, env Env) (request, error) {
	r := request{dir: DefaultDir, lang: dreamcore.Lang(env.getenv("DREAMCORE_LANG")), browser: env.getenv("DREAMCORE_BROWSER")}
	dirs := 0
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(args[i], "=")
		take := func(into *string) error {
			if !inline {
				i++
				if i >= len(args) {
					return fmt.Errorf("%s needs a value", name)
				}
				value = args[i]
			}
			*into = value
			return nil
		}
		var err error
		switch name {
		case "--json", "-json":
			r.json = true
		case "--verbose", "-verbose":
			r.verbose = true
		case "--lang", "-lang":
			var lang string
			err = take(&lang)
			r.lang = dreamcore.Lang(lang)
		case "--controls", "-controls":
			err = take(&r.controls)
		case "--out", "-out":
			err = take(&r.out)
		case "--template", "-template":
			err = take(&r.template)
		case "--browser", "-browser":
			err = take(&r.browser)
		default:
			if strings.HasPrefix(args[i], "-") {
				return r, fmt.Errorf("unknown option %s", args[i])
			}
			r.dir = args[i]
			dirs++
		}
		if err != nil {
			return r, err
		}
	}
	if dirs > 1 {
		return r, errors.New("more than one folder")
	}
	if !slices.Contains(dreamcore.Langs, r.lang) {
		r.lang = dreamcore.English
	}
	return r, nil
}

// judge runs one of the three judgements and prints its report.
func judge(ctx context.Context, tool string, args []string, env Env) int {
	r, err := parse(args, env)
	if err != nil {
		fmt.Fprintf(env.Stderr, "%s: %v\n%s\n", tool, err, text.T(r.lang, "toolkit.usage"))
		return ExitBroken
	}
	if info, err := os.Stat(r.dir); err != nil || !info.IsDir() {
		fmt.Fprintln(env.Stderr, text.T(r.lang, "toolkit.no_folder", "dir", r.dir))
		return ExitBroken
	}
	var report dreamcore.Report
	var whole any
	switch tool {
	case "check":
		opt := check.Options{Lang: r.lang}
		if r.template != "" {
			opt.Template = os.DirFS(r.template)
		}
		report = check.Run(ctx, os.DirFS(r.dir), opt)
		report.Version = Version()
		whole = report
	case "level":
		opt := level.Options{Lang: r.lang}
		if r.template != "" {
			opt.Template = os.DirFS(r.template)
		}
		report = level.Run(ctx, os.DirFS(r.dir), opt)
		report.Version = Version()
		whole = report
	case "playtest":
		play, err := playtest.Run(ctx, playtest.Options{
			Dir: r.dir, Controls: controls(r), Out: r.out, Lang: r.lang, Browser: r.browser, Log: logger(r.verbose, env),
		})
		if err != nil {
			fmt.Fprintln(env.Stderr, text.T(r.lang, "toolkit.no_verdict", "error", err.Error()))
			return ExitBroken
		}
		play.Version = Version()
		report, whole = play.Report, play
		if !r.json {
			printPlay(env.Stdout, r.lang, play)
		}
	}
	if ctx.Err() != nil {
		fmt.Fprintln(env.Stderr, text.T(r.lang, "toolkit.no_verdict", "error", ctx.Err().Error()))
		return ExitBroken
	}
	if r.json {
		encoder := json.NewEncoder(env.Stdout)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", " ")
		if err := encoder.Encode(whole); err != nil {
			fmt.Fprintf(env.Stderr, "%s: print report: %v\n", tool, err)
			return ExitBroken
		}
	} else {
		print(env.Stdout, r.lang, report)
	}
	if report.Verdict == dreamcore.Pass {
		return ExitPass
	}
	return ExitFail
}

// print writes a report as the agent reads it.
func print(w io.Writer, lang dreamcore.Lang, report dreamcore.Report) {
	fails, warns := 0, 0
	for _, f := range report.Findings {
		fmt.Fprintln(w, f)
		if f.Severity == dreamcore.Fail {
			fails++
		} else {
			warns++
		}
	}
	if fails > 0 {
		fmt.Fprintln(w, text.T(lang, "toolkit.failed", "count", strconv.Itoa(fails)))
		return
	}
	if warns > 0 {
		fmt.Fprintln(w, text.T(lang, "toolkit.passed_warned", "count", strconv.Itoa(warns)))
		return
	}
	fmt.Fprintln(w, text.T(lang, "toolkit.passed"))
}

// printPlay says in a few lines what the playtest saw.
func printPlay(w io.Writer, lang dreamcore.Lang, play dreamcore.PlayReport) {
	fmt.Fprintln(w, text.T(lang, "toolkit.motion", "motion", string(play.Motion), "seconds", strconv.FormatFloat(play.Seconds, 'f', 1, 64)))
	for _, m := range play.Moved {
		fmt.Fprintln(w, "  "+text.T(lang, "toolkit.moved", "arm", m.Arm, "entity", m.Entity, "pixels", strconv.FormatFloat(m.Pixels, 'f', 0, 64)))
	}
}

func logger(verbose bool, env Env) *slog.Logger {
	if !verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

var controlsLine = regexp.MustCompile(`(?m)^controls: *([a-z0-9-]+) *$`)

// controls is the control scheme that was asked for; else that of the game's
// template.json, else of its spec.md. The host always asks: the game's own word
// counts only for the agent's own runs.
func controls(r request) string {
	if r.controls != "" {
		return r.controls
	}
	var manifest struct {
		Controls string `json:"controls"`
	}
	if data, err := os.ReadFile(filepath.Join(r.dir, "template.json")); err == nil {
		if json.Unmarshal(data, &manifest) == nil && slices.Contains(playtest.Schemes, manifest.Controls) {
			return manifest.Controls
		}
	}
	if data, err := os.ReadFile(filepath.Join(r.dir, "spec.md")); err == nil {
		if m := controlsLine.FindSubmatch(data); m != nil && slices.Contains(playtest.Schemes, string(m[1])) {
			return string(m[1])
		}
	}
	return ""
}

// record leaves a line about this run for the host. Where the file cannot be
// written there is no host that would read it.
func record(tool string, args []string, exit int, env Env) {
	name := env.getenv("DREAMCORE_RUNS")
	if name == "" {
		name = defaultRuns
	}
	if args == nil {
		args = []string{}
	}
	line, err := json.Marshal(dreamcore.ToolRun{Tool: tool, Version: Version(), Args: args, Exit: exit})
	if err != nil {
		return
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Write(append(line, '\n')) // as above
}
