package agent

import (
	_ "embed" // what is loaded ahead of pi
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// Pi drives the CLI of the npm package @earendil-works/pi-coding-agent (1.6.0),
// the default agent.
type Pi struct{}

// piProvider is the name under which pi's configuration knows the key proxy.
const piProvider = "dreamcore"

// piHome is where pi keeps its configuration and its sessions.
const piHome = "/home/user/.pi/agent"

// Name returns "pi".
func (Pi) Name() string { return "pi" }

// Files returns pi's models.json. The key is read from the grant's file at each
// request, so that a renewed grant needs no restart.
func (Pi) Files(s Session) ([]sandbox.File, error) {
	var api, base string
	switch s.API {
	case Anthropic:
		api, base = "anthropic-messages", s.ProxyURL+"/anthropic"
	case Chat:
		api, base = "openai-completions", s.ProxyURL+"/openai/v1"
	case Responses:
		api, base = "openai-responses", s.ProxyURL+"/openai/v1"
	default:
		return nil, dreamcore.Errorf(dreamcore.Invalid, Op+"pi", "pi does not speak %q", s.API).
			WithHint("choose one of %s, %s, %s", Anthropic, Chat, Responses)
	}
	models := map[string]any{"providers": map[string]any{piProvider: map[string]any{
		"baseUrl": base,
		"api":     api,
		"apiKey":  "!cat " + s.GrantFile,
		"models":  []any{map[string]any{"id": s.Model}},
	}}}
	data, err := json.MarshalIndent(models, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode pi's models: %w", err)
	}
	return []sandbox.File{{Path: piHome + "/models.json", Data: data, Mode: 0o600, Owner: sandbox.User}}, nil
}

// Command runs one turn headless. --session-id creates the session or goes on
// with it; everything that would load code or reach out is off.
func (Pi) Command(s Session, prompt string) sandbox.Command {
	env := map[string]string{"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}
	for k, v := range s.Env {
		env[k] = v
	}
	return sandbox.Command{
		Args: []string{
			"pi", "-p", "--mode", "json", "--no-extensions", "--no-skills", "--no-prompt-templates",
			"--no-themes", "--no-mcp", "--no-approve", "--model", piProvider + "/" + s.Model,
			"--session-id", string(s.ID), prompt,
		},
		Dir: s.Dir, Env: env, User: sandbox.User, Timeout: s.Timeout,
	}
}

//go:embed pi_warm.mjs
var piWarm []byte

// Warmup loads node and all modules of pi.
func (Pi) Warmup() Warmup {
	// The orders come as file 3, for pi's modules look at the standard input when
	// they are loaded, and it must be as empty then as it is for a command.
	const script = `exec 3<&0 </dev/null; unset PWD OLDPWD; exec node --import "$0" /usr/local/bin/pi`
	return Warmup{
		Args: []string{"/bin/sh", "-c", script, "data:text/javascript;base64," + base64.StdEncoding.EncodeToString(piWarm)},
		Env:  map[string]string{"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1", "LANG": "C.UTF-8"},
		Tag:  "agent", Ready: "ready",
	}
}

// NewParser returns a parser for pi's JSON mode.
func (Pi) NewParser() Parser { return &piParser{} }

type piParser struct {
	settled bool
	stop    string // stopReason of the last assistant message
	message string // its error
}

type piEvent struct {
	Type     string          `json:"type"`
	ToolName string          `json:"toolName"`
	Args     json.RawMessage `json:"args"`
	Message  struct {
		Role         string          `json:"role"`
		Content      json.RawMessage `json:"content"`
		StopReason   string          `json:"stopReason"`
		ErrorMessage string          `json:"errorMessage"`
	} `json:"message"`
}

func (p *piParser) Line(line []byte) []Event {
	var e piEvent
	if json.Unmarshal(line, &e) != nil {
		return nil
	}
	switch e.Type {
	case "tool_execution_start":
		return []Event{{Kind: Tool, Name: clip(e.ToolName, 40), Text: piToolText(e.Args)}}
	case "message_end":
		if e.Message.Role != "assistant" {
			return nil
		}
		p.stop, p.message = e.Message.StopReason, e.Message.ErrorMessage
		var parts []struct{ Type, Text string }
		if json.Unmarshal(e.Message.Content, &parts) != nil {
			return nil
		}
		var out []Event
		for _, part := range parts {
			if part.Type == "text" && strings.TrimSpace(part.Text) != "" {
				out = append(out, Event{Kind: Say, Text: clip(part.Text, 2000)})
			}
		}
		return out
	case "agent_settled":
		p.settled = true
	}
	return nil
}

// Err reports failure. pi exits with 0 also when it failed: only the last
// assistant message tells.
func (p *piParser) Err() error {
	switch {
	case p.stop == "error" || p.stop == "aborted":
		return dreamcore.Errorf(dreamcore.Unavailable, Op+"pi", "the agent gave up: %s", clip(p.message, 300))
	case !p.settled:
		return dreamcore.Errorf(dreamcore.Unavailable, Op+"pi", "the agent ended before it was done")
	case p.stop == "":
		return dreamcore.Errorf(dreamcore.Unavailable, Op+"pi", "the agent ended without an answer")
	}
	return nil
}

// piToolText picks what a person wants to see of a tool call: the command or the path.
func piToolText(args json.RawMessage) string {
	var a struct{ Command, Path string }
	if json.Unmarshal(args, &a) != nil {
		return ""
	}
	if a.Command != "" {
		return clip(a.Command, 300)
	}
	return clip(a.Path, 300)
}

// clip shortens s to at most n bytes at a letter's border and says that it did.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
