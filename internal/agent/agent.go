// Package agent knows the coding-agent CLIs: one file per CLI, with its command
// line, environment, configuration, how a session is resumed, how its events
// become ours and what failure looks like. The CLI itself lives in the sandbox
// image; nothing of it ever runs on the host.
package agent

import (
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// Adapter drives one CLI.
type Adapter interface {
	// Name is the CLI's name as in the image's manifest: "pi".
	Name() string
	// Files are what the CLI must find in its home before its first turn.
	Files(s Session) ([]sandbox.File, error)
	// Command runs one turn. The same session is created by the first turn of a
	// job and resumed by the following ones.
	Command(s Session, prompt string) sandbox.Command
	// NewParser returns a parser for the output of one turn.
	NewParser() Parser
}

// Op begins the Op of every error that is the agent's fault, not the machine's.
const Op = "agent."

// API is the wire protocol in which the CLI speaks to the model.
type API string

// The three protocols that the key proxy serves.
const (
	Anthropic API = "anthropic-messages"
	Chat      API = "openai-chat"
	Responses API = "openai-responses"
)

// Session is one job's conversation with its agent.
type Session struct {
	ID        dreamcore.JobID
	API       API
	Model     string
	ProxyURL  string // the key proxy as the box sees it, without a slash at the end
	GrantFile string // the file in the box that holds the current grant
	Dir       string // where the agent works
	Env       map[string]string
	Timeout   time.Duration // of one turn; then its process group is killed
	// Warm: this turn is the first in its box, which may hold the CLI, loaded and
	// waiting (see Warmer).
	Warm bool
}

// EventKind sorts what an agent does.
type EventKind int

// The kinds.
const (
	Say  EventKind = iota // the agent says Text
	Tool                  // the agent uses the tool Name with Text
)

// Event is one thing that an agent did. Untrusted text.
type Event struct {
	Kind EventKind
	Name string
	Text string
}

// Parser turns one turn's standard output into events, line by line.
type Parser interface {
	// Line reads one line without its end. A line that makes no sense is no error:
	// the output is untrusted and versions differ.
	Line(line []byte) []Event
	// Err says whether the turn as a whole failed, once the process has ended.
	Err() error
}
