package offline

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dreamcore/internal/offline/recipe"
)

// finding is one FAIL as the judgements print it.
type finding struct {
	code string
	file string // relative to the project; "" when none is named
	line int
	text string
}

var findingLine = regexp.MustCompile(`^FAIL ([a-z][a-z0-9_]*):(?: ([^\s:]+)(?::(\d+))?)?`)

// parseFindings reads the FAILs of a judgement's output or of a prompt. Of the
// messages only file names are used, and only such as stay in the project.
func parseFindings(output string) []finding {
	var all []finding
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if m := findingLine.FindStringSubmatch(line); m != nil {
			f := finding{code: m[1], file: inProject(m[2])}
			if n, err := strconv.Atoi(m[3]); err == nil {
				f.line = n
			}
			all = append(all, f)
		} else if len(all) > 0 && strings.HasPrefix(line, "  ") {
			all[len(all)-1].text += strings.TrimSpace(line) + " "
		}
	}
	return all
}

func inProject(file string) string {
	file = strings.TrimPrefix(file, project+"/")
	if strings.HasPrefix(file, "/") || strings.HasPrefix(file, "-") || strings.Contains(file, "..") {
		return ""
	}
	return file
}

// remedy is what the programs know to do about a finding.
type remedy string

const (
	redraw  remedy = "redraw"  // order the picture again
	retell  remedy = "retell"  // replace what is left of the template's names
	refill  remedy = "refill"  // write the data anew from the plan
	restore remedy = "restore" // put the delivered file back
	retreat remedy = "retreat" // put all code and levels back
	calm    remedy = "calm"    // and the numbers and rules too: only looks and names stay
)

// remedies choose by parts of a finding's code; the first that fits stands.
var remedies = []struct {
	part string
	does remedy
}{
	{"placeholder_title", retell},
	{"title", retell},
	{"left_over", retell},
	{"leftover", retell},
	{"old_hero", retell},
	{"old_name", retell},
	{"asset", redraw},
	{"picture", redraw},
	{"placeholder", redraw},
	{"image", redraw},
	{"level", retreat},
	{"goal", retreat},
	{"play", retreat},
	{"frozen", retreat},
	{"response", retreat},
	{"motion", retreat},
	{"move", retreat},
	{"controls", retreat},
	{"blank", retreat},
	{"boot", retreat},
}

// remedyFor is what to do about a finding, given the pictures that were ordered.
func remedyFor(f finding, pictures []string) remedy {
	switch {
	case f.file == recipe.GameFile:
		return refill
	case slices.Contains(pictures, f.file):
		return redraw
	case strings.HasPrefix(f.file, "levels/"):
		return retreat
	}
	for _, r := range remedies {
		if strings.Contains(f.code, r.part) {
			return r.does
		}
	}
	if f.file != "" {
		return restore
	}
	return retreat
}
