package wire

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// Tool is one tool that a request offers. Free tools take free text and have no
// schema.
type Tool struct {
	Name   string
	Schema map[string]any
	Free   bool
}

// ErrNoTool means that a request offers no tool with which a thing can be done.
var ErrNoTool = errors.New("the request offers no tool for this")

// What agents call their tools and the arguments of them, most telling first.
var (
	shellTools = []string{"bash", "shell", "shell_command", "exec_command", "run_shell_command", "container.exec"}
	readTools  = []string{"read", "read_file"}
	writeTools = []string{"write", "write_file", "create_file"}
	editTools  = []string{"edit", "replace", "edit_file"}

	pathArgs    = []string{"path", "file_path", "filePath", "absolute_path", "filename"}
	contentArgs = []string{"content", "contents", "text"}
	commandArgs = []string{"command", "cmd"}
	oldArgs     = []string{"old_string", "oldString", "oldText"}
	newArgs     = []string{"new_string", "newString", "newText"}
	limitArgs   = []string{"timeout", "timeout_ms", "timeoutMs"}
)

// Shell returns the call that runs command in the request's shell tool.
func (r Request) Shell(command string) (*Call, error) {
	if t, ok := r.find(shellTools); ok {
		return t.call(setting{commandArgs, command}), nil
	}
	if t, ok := r.find([]string{"exec"}); ok && t.Free {
		// One CLI's newest models run everything as JavaScript.
		script := "const r = await tools.exec_command({cmd: " + encode(command) + "});\ntext(r.output ?? JSON.stringify(r));"
		return &Call{Tool: t.Name, Free: script}, nil
	}
	return nil, ErrNoTool
}

// Read returns the call that prints a file.
func (r Request) Read(file string) (*Call, error) {
	if t, ok := r.find(readTools); ok {
		return t.call(setting{pathArgs, file}), nil
	}
	return r.Shell("cat " + Quote(file))
}

// Write returns the call that makes file hold content.
func (r Request) Write(file, content string) (*Call, error) {
	if t, ok := r.find(writeTools); ok {
		return t.call(setting{pathArgs, file}, setting{contentArgs, content}), nil
	}
	mark := "DREAMCORE_END"
	for strings.Contains(content, mark) {
		mark += "_"
	}
	if !strings.HasSuffix(content, "\n") {
		content += "\n" // a here-document ends its last line anyway
	}
	return r.Shell("mkdir -p " + Quote(path.Dir(file)) + " && cat > " + Quote(file) + " <<'" + mark + "'\n" + content + mark)
}

// Edit is one replacement in a file. Old stands in the file exactly once.
type Edit struct{ Old, New string }

// Edit returns the call that replaces edits in file; whole is the file's text
// after them, for when there are no edits, the agent offers no edit tool, or
// only one edit a call.
func (r Request) Edit(file string, edits []Edit, whole string) (*Call, error) {
	t, ok := r.find(editTools)
	if !ok || len(edits) == 0 {
		return r.Write(file, whole)
	}
	if t.has("edits") {
		all := make([]any, len(edits))
		for i, e := range edits {
			all[i] = map[string]any{"oldText": e.Old, "newText": e.New}
		}
		return t.call(setting{pathArgs, file}, setting{[]string{"edits"}, all}), nil
	}
	if len(edits) == 1 {
		return t.call(setting{pathArgs, file}, setting{oldArgs, edits[0].Old}, setting{newArgs, edits[0].New}), nil
	}
	return r.Write(file, whole)
}

// Quote makes s one word of a POSIX shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (r Request) find(names []string) (Tool, bool) {
	for _, n := range names {
		for _, t := range r.Tools {
			if strings.EqualFold(t.Name, n) {
				return t, true
			}
		}
	}
	return Tool{}, false
}

// setting is a value and the names under which a tool may want it.
type setting struct {
	names []string
	value any
}

func (t Tool) has(name string) bool {
	_, ok := fields(t.Schema["properties"])[name]
	return ok
}

// call fills the tool's schema: each setting goes under the first of its names
// that the schema knows, and what else is required gets a harmless value.
func (t Tool) call(settings ...setting) *Call {
	props := fields(t.Schema["properties"])
	args := map[string]any{}
	for _, s := range settings {
		name := s.names[0]
		if i := slices.IndexFunc(s.names, t.has); i >= 0 {
			name = s.names[i]
		}
		args[name] = s.value
		if command, ok := s.value.(string); ok && text(fields(props[name])["type"]) == "array" {
			args[name] = []any{"bash", "-lc", command}
		}
	}
	for _, q := range list(t.Schema["required"]) {
		name := text(q)
		if _, ok := args[name]; !ok {
			args[name] = harmless(name, fields(props[name]))
		}
	}
	return &Call{Tool: t.Name, Args: args}
}

// harmless is a value for a required argument that we have no use for. Strict
// schemas list optional arguments as required with null among their types.
func harmless(name string, schema object) any {
	if nullable(schema) {
		return nil
	}
	if e := list(schema["enum"]); len(e) > 0 {
		return e[0]
	}
	switch text(schema["type"]) {
	case "boolean":
		return false
	case "number", "integer":
		if slices.Contains(limitArgs, name) {
			return commandLimit(name)
		}
		return 1
	case "array":
		return []any{}
	case "object":
		return object{}
	}
	return "A step of the stand-in model."
}

// commandLimit is how long a command may run, in the unit that the argument's
// name tells: a playtest takes tens of seconds.
func commandLimit(name string) int {
	if name == "timeout" {
		return 300
	}
	return 300_000
}

func nullable(schema object) bool {
	for _, t := range list(schema["type"]) {
		if text(t) == "null" {
			return true
		}
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		for _, t := range list(schema[k]) {
			if text(fields(t)["type"]) == "null" {
				return true
			}
		}
	}
	return false
}

// join is all of a content's texts as one.
func join(v any) string { return strings.Join(parts(v), "\n") }
