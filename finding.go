package dreamcore

import (
	"fmt"
	"strings"
)

// Severity ranks a finding.
type Severity string

// A FAIL keeps a game from being published; a WARN does not.
const (
	Fail Severity = "FAIL"
	Warn Severity = "WARN"
)

// Verdict is the outcome of a judgement.
type Verdict string

// The two outcomes.
const (
	Pass   Verdict = "PASS"
	Failed Verdict = "FAIL"
)

// Finding is one FAIL or WARN of a check: what, where, and how to fix it.
// Message and Fix are in the language that was asked for. Text that comes out
// of the game itself is capped and quoted inside Message: it is data, never an
// instruction.
type Finding struct {
	Code     string   `json:"code"` // snake_case and stable: "asset_missing"
	Severity Severity `json:"severity"`
	File     string   `json:"file,omitempty"` // relative to the game's folder, slashes
	Line     int      `json:"line,omitempty"` // 1-based; 0 when a line makes no sense
	Message  string   `json:"message"`
	Fix      string   `json:"fix"`
}

// String is the form that an agent reads.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s:", f.Severity, f.Code)
	if f.File != "" {
		fmt.Fprintf(&b, " %s", f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
	}
	fmt.Fprintf(&b, "\n  %s", f.Message)
	if f.Fix != "" {
		fmt.Fprintf(&b, " %s", f.Fix)
	}
	return b.String()
}

// Report is what one judgement (checker, level validator) prints with --json.
type Report struct {
	Tool     string    `json:"tool"` // "check", "level"
	Version  string    `json:"version"`
	Verdict  Verdict   `json:"verdict"`
	Findings []Finding `json:"findings"`
}

// Judge sets the verdict from the findings: any FAIL fails.
func (r *Report) Judge() {
	r.Verdict = Pass
	for _, f := range r.Findings {
		if f.Severity == Fail {
			r.Verdict = Failed
			return
		}
	}
}

// Motion is the word with which the playtest sums up how a game answers input.
type Motion string

// The words, from dead to fully under control.
const (
	Frozen      Motion = "FROZEN"
	NoResponse  Motion = "NO_RESPONSE"
	HUDOnly     Motion = "HUD_ONLY"
	PixelOnly   Motion = "PIXEL_ONLY"
	DOMResponds Motion = "DOM_RESPONDS"
	Moves       Motion = "MOVES"
	ControlsOK  Motion = "CONTROLS_OK"
)

// Moved is one thing that the playtest saw answering an input.
type Moved struct {
	Arm      string  `json:"arm"`      // the input: "right", "touch", "click", ...
	Entity   string  `json:"entity"`   // what moved, as the instrumentation names it
	Pixels   float64 `json:"pixels"`   // greatest distance from where idle left it
	FirstFrm int     `json:"firstFrm"` // first frame that differed from idle
}

// PlayReport is what the playtest prints with --json. Pictures are files beside
// the report, named relative to its folder.
type PlayReport struct {
	Report
	Motion    Motion   `json:"motion"`
	Controls  string   `json:"controls"` // the control scheme that was demanded
	Moved     []Moved  `json:"moved"`
	Poster    string   `json:"poster,omitempty"`    // PNG, the game in play
	Idle      string   `json:"idle,omitempty"`      // PNG, before any input
	Touch     string   `json:"touch,omitempty"`     // PNG, 390x844
	Recording string   `json:"recording,omitempty"` // animated PNG, WebP or GIF, a few seconds
	Seconds   float64  `json:"seconds"`             // what the playtest cost
	Errors    []string `json:"errors,omitempty"`    // page errors, capped; data, not instructions
}

// Evidence is what verification saw of a version; stored with it for ever.
type Evidence struct {
	ImageDigest  string            `json:"imageDigest"`
	AgentName    string            `json:"agentName"`
	AgentVersion string            `json:"agentVersion"`
	ToolVersion  string            `json:"toolVersion"`
	Model        string            `json:"model"`
	Template     TemplateTag       `json:"template"` // "" when nothing was delivered
	Check        Report            `json:"check"`
	Level        Report            `json:"level"`
	Play         PlayReport        `json:"play"`
	Repairs      int               `json:"repairs"`
	ToolRuns     []ToolRun         `json:"toolRuns,omitempty"`
	Usage        Usage             `json:"usage"`
	Timing       Timing            `json:"timing"`
	Pictures     map[string][]byte `json:"-"` // file name in the reports to PNG

	// PictureHashes is where publishing put Pictures: file name to blob.
	PictureHashes map[string]BlobHash `json:"pictureHashes,omitempty"`
}

// Timing says where a job's time went, in milliseconds.
type Timing struct {
	JobMS    int64 `json:"jobMS"`    // from leaving the queue to the end of verification
	AgentMS  int64 `json:"agentMS"`  // turns of the agent
	VerifyMS int64 `json:"verifyMS"` // judgements in the verifier
	HostMS   int64 `json:"hostMS"`   // the rest: our own share
}

// Verdict is PASS only when all three judgements passed.
func (e Evidence) Verdict() Verdict {
	if e.Check.Verdict == Pass && e.Level.Verdict == Pass && e.Play.Verdict == Pass {
		return Pass
	}
	return Failed
}

// Findings returns those of all three judgements, FAILs first.
func (e Evidence) Findings() []Finding {
	var fails, warns []Finding
	for _, r := range []Report{e.Check, e.Level, e.Play.Report} {
		for _, f := range r.Findings {
			if f.Severity == Fail {
				fails = append(fails, f)
			} else {
				warns = append(warns, f)
			}
		}
	}
	return append(fails, warns...)
}

// ToolRun is one run of a toolkit command in the box, as the box told it: a
// fact for the log, never proof.
type ToolRun struct {
	Tool    string   `json:"tool"`
	Version string   `json:"version"`
	Args    []string `json:"args"`
	Exit    int      `json:"exit"`
}
