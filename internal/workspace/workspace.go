// Package workspace owns the layout inside a sandbox: what is written there at
// boot, what the agent is told for each turn, and how project/ is collected.
//
//	/workspace/prompt     what the agent is told for this turn
//	/workspace/reference  materials to look at; never collected
//	/workspace/tools      the toolkit, owned by root
//	/workspace/project    the game; the only folder that is ever collected
package workspace

import (
	"path"

	"dreamcore"
	"dreamcore/internal/egress"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/tree"
)

// The layout.
const (
	Root      = "/workspace"
	Prompt    = Root + "/prompt"
	Reference = Root + "/reference"
	Tools     = Root + "/tools"
	Project   = Root + "/project"
	// Original is where the verifier finds the delivered template to compare with.
	Original = Root + "/template"
	// Spec is what the design turn writes; its first line is the template tag.
	Spec = Project + "/spec.md"
	// GrantFile holds the job's current grant.
	GrantFile = "/home/user/.dreamcore/grant"
	// RunsFile is where the toolkit notes each of its runs.
	RunsFile = "/home/user/.dreamcore/runs.jsonl"
	// Path is PATH for everything that runs in a sandbox.
	Path = Tools + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// judgements are the commands of every sandbox; features add theirs.
var judgements = []string{"check", "level", "playtest"}

// Offer is what a sandbox is given beyond the judgements. The zero offer is
// nothing, which is what the verifier gets.
type Offer struct {
	Features []dreamcore.Feature
	// ProxyURL is the key proxy as the sandbox sees it, without a slash at the
	// end, and ImageModel who draws there.
	ProxyURL, ImageModel string
}

// Toolkit returns the toolkit's files: the judgements and the commands of the
// features. They are root's, so that the agent's user cannot change them, and they
// are written at boot rather than baked into the image, so that a better tool never
// changes a job that is running.
func Toolkit(binary []byte, features []dreamcore.Feature) []sandbox.File {
	files := []sandbox.File{{Path: Tools + "/toolkit", Data: binary, Mode: 0o755, Owner: sandbox.Root}}
	add := func(name, script string) {
		files = append(files, sandbox.File{
			Path: path.Join(Tools, name), Mode: 0o755, Owner: sandbox.Root, Data: []byte("#!/bin/sh\n" + script + "\n"),
		})
	}
	for _, name := range judgements {
		add(name, "exec "+Tools+"/toolkit "+name+` "$@"`)
	}
	for _, d := range egress.Declarations(features) {
		for _, c := range d.Commands {
			add(c.Name, c.Script)
		}
	}
	return files
}

// Env is the environment of everything that runs in a sandbox.
func Env(lang dreamcore.Lang, offer Offer) map[string]string {
	env := map[string]string{
		"PATH":                 Path,
		"HOME":                 "/home/user",
		"LANG":                 "C.UTF-8",
		"DREAMCORE_LANG":       string(lang),
		"DREAMCORE_RUNS":       RunsFile,
		"DREAMCORE_GRANT_FILE": GrantFile,
	}
	for _, d := range egress.Declarations(offer.Features) {
		for _, v := range d.Variables {
			if v.Model {
				env[v.Name] = offer.ImageModel
			} else {
				env[v.Name] = offer.ProxyURL + v.Route
			}
		}
	}
	return env
}

// Put turns project files into files to write below dir.
func Put(dir string, files []tree.File) []sandbox.File {
	out := make([]sandbox.File, 0, len(files))
	for _, f := range files {
		out = append(out, sandbox.File{Path: path.Join(dir, f.Path), Data: f.Data, Mode: 0o644, Owner: sandbox.User})
	}
	return out
}
