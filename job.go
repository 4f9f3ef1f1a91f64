package dreamcore

import "time"

// Job is the work of one chat message: one sandbox for the agent, several
// turns, a verifier; it ends as a version or as a failure.
type Job struct {
	ID       JobID     `json:"id"`
	Game     GameID    `json:"game"`
	Creator  CreatorID `json:"creator"`
	Wish     string    `json:"wish"`
	Lang     Lang      `json:"lang"`
	Base     VersionID `json:"base"` // the version that is changed; "" for a new game
	State    JobState  `json:"state"`
	Attempt  int       `json:"attempt"` // 1 or 2: the generation of the sandbox
	Error    string    `json:"error,omitempty"`
	Findings []Finding `json:"findings,omitempty"` // why verification refused, when it did
	Version  VersionID `json:"version,omitempty"`
	Usage    Usage     `json:"usage"`
	Created  time.Time `json:"created"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
}

// JobState is where a job stands.
type JobState string

// A job goes from queued to running to exactly one of the last three.
const (
	Queued    JobState = "queued"
	Running   JobState = "running"
	Published JobState = "published"
	FailedJob JobState = "failed"
	Cancelled JobState = "cancelled"
)

// Ended reports whether the state is final.
func (s JobState) Ended() bool { return s == Published || s == FailedJob || s == Cancelled }

// Turn is one run of the agent in a live sandbox.
type Turn string

// The turns.
const (
	Design Turn = "design"
	Build  Turn = "build"
	Edit   Turn = "edit"
	Repair Turn = "repair"
)

// Event is one thing that happened in a job, for people who watch it. Seq
// counts from 1 within the job without gaps.
type Event struct {
	Job  JobID     `json:"job"`
	Seq  int64     `json:"seq"`
	Kind EventKind `json:"kind"`
	Turn Turn      `json:"turn,omitempty"`
	// Key is a key of the message catalogue and Args what it is filled with,
	// so that every watcher reads it in their own language.
	Key  string            `json:"key,omitempty"`
	Args map[string]string `json:"args,omitempty"`
	// Text is raw and untrusted: what the agent said, a command, a finding.
	Text string    `json:"text,omitempty"`
	Time time.Time `json:"time"`
}

// EventKind sorts events.
type EventKind string

// The kinds of event.
const (
	EventState EventKind = "state" // the job's state changed; Text is the state
	EventStep  EventKind = "step"  // a step of the job's life began; Key says which
	EventSay   EventKind = "say"   // the agent says Text
	EventTool  EventKind = "tool"  // the agent uses a tool: Args["name"], Text what with
	EventFind  EventKind = "find"  // verification found something
)

// Usage is what a job has used. Money is in micro-units of the operator's currency.
type Usage struct {
	Requests     int64 `json:"requests"`
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
	Images       int64 `json:"images"`
	Bytes        int64 `json:"bytes"`
	CostMicros   int64 `json:"costMicros"`
}

// Budget bounds a job's usage; a zero field means "none of that", never "no limit".
type Budget struct {
	Requests     int64 `json:"requests"`
	InputTokens  int64 `json:"inputTokens"`
	OutputTokens int64 `json:"outputTokens"`
	Images       int64 `json:"images"`
	Bytes        int64 `json:"bytes"`
	CostMicros   int64 `json:"costMicros"`
}
