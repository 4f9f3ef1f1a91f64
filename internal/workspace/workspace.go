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

// commands are the names under which the toolkit is found in PATH.
var commands = []string{"check", "level", "playtest", "image"}

// Toolkit returns the toolkit's files. They are root's, so that the agent's user
// cannot change them, and they are written at boot rather than baked into the
// image, so that a better tool never changes a job that is running.
func Toolkit(binary []byte) []sandbox.File {
	files := []sandbox.File{{Path: Tools + "/toolkit", Data: binary, Mode: 0o755, Owner: sandbox.Root}}
	for _, name := range commands {
		files = append(files, sandbox.File{
			Path: path.Join(Tools, name), Mode: 0o755, Owner: sandbox.Root,
			Data: []byte("#!/bin/sh\nexec " + Tools + "/toolkit " + name + " \"$@\"\n"),
		})
	}
	return files
}

// Env is the environment of everything that runs in a sandbox. Without a proxy
// (in the verifier) there are no pictures to order; imageModel is who draws them.
func Env(lang dreamcore.Lang, proxyURL, imageModel string) map[string]string {
	env := map[string]string{
		"PATH":                 Path,
		"HOME":                 "/home/user",
		"LANG":                 "C.UTF-8",
		"DREAMCORE_LANG":       string(lang),
		"DREAMCORE_RUNS":       RunsFile,
		"DREAMCORE_GRANT_FILE": GrantFile,
	}
	if proxyURL != "" {
		env["DREAMCORE_IMAGE_URL"] = proxyURL + "/openai/v1/images/generations"
		env["DREAMCORE_IMAGE_MODEL"] = imageModel
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
