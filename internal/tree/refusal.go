package tree

import (
	"fmt"

	"dreamcore"
	"dreamcore/internal/text"
)

// Reason is why a tree was refused. The list only ever grows.
type Reason string

// The reasons.
const (
	Escape       Reason = "escape"         // the name leaves the folder
	BadName      Reason = "bad_name"       // the name breaks the grammar
	Hidden       Reason = "hidden"         // a part of the name begins with a dot
	Duplicate    Reason = "duplicate"      // two entries share a name, case aside
	Link         Reason = "link"           // a symbolic or hard link
	Special      Reason = "special"        // a device, pipe, socket or unknown kind
	Sparse       Reason = "sparse"         // a file with holes
	TooManyFiles Reason = "too_many_files" // more entries than Limits.Files
	FileTooLarge Reason = "file_too_large" // a file beyond Limits.FileBytes
	TreeTooLarge Reason = "tree_too_large" // all files together beyond Limits.TotalBytes
	TooDeep      Reason = "too_deep"       // more parts than Limits.Depth
	PathTooLong  Reason = "path_too_long"  // a path beyond Limits.PathBytes
	Broken       Reason = "broken"         // not a whole tar stream
)

// Refusal is the error with which a whole tree is refused. Path is untrusted:
// Error and Finding quote and cap it.
type Refusal struct {
	Reason Reason
	Path   string
	Detail string // the limit, or the other name
	Err    error  // what the stream said, for Broken
}

func refuse(reason Reason, path, detail string) *Refusal {
	return &Refusal{Reason: reason, Path: path, Detail: detail}
}

// Error says why, with the path escaped and capped.
func (r *Refusal) Error() string {
	s := "tree refused: " + string(r.Reason)
	if r.Path != "" {
		s += " at " + quote(r.Path)
	}
	if r.Detail != "" {
		s += " (" + quote(r.Detail) + ")"
	}
	if r.Err != nil {
		s += ": " + cap200(fmt.Sprintf("%+q", r.Err.Error()))
	}
	return s
}

// Unwrap returns what the stream said.
func (r *Refusal) Unwrap() error { return r.Err }

// Finding is the refusal as a FAIL that a repair turn can work on.
func (r *Refusal) Finding(lang dreamcore.Lang) dreamcore.Finding {
	return dreamcore.Finding{
		Code:     "tree_" + string(r.Reason),
		Severity: dreamcore.Fail,
		File:     capRunes(r.Path, 200),
		Message:  text.T(lang, "tree."+string(r.Reason), "path", quote(r.Path), "detail", quote(r.Detail)),
		Fix:      text.T(lang, "tree."+string(r.Reason)+"_fix", "path", quote(r.Path), "detail", quote(r.Detail)),
	}
}

// quote makes untrusted text one printable, capped line.
func quote(s string) string {
	if s == "" {
		return ""
	}
	return cap200(fmt.Sprintf("%q", capRunes(s, 200)))
}

func cap200(s string) string { return capRunes(s, 300) }

func capRunes(s string, n int) string {
	i := 0
	for at := range s {
		if i == n {
			return s[:at] + "…"
		}
		i++
	}
	return s
}
