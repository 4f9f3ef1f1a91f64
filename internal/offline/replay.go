package offline

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dreamcore"
	"dreamcore/internal/offline/wire"
	"dreamcore/internal/text"
)

// errAsked ends a run of a turn's program: it has asked for a tool whose result
// is not in the conversation yet.
var errAsked = errors.New("asked for a tool")

// job is one run of a turn's program. The program is written as if tools
// answered at once. Each request runs it from its start: calls that have been
// answered return what the conversation holds, the first that has not becomes
// the answer to the request and ends the run with errAsked. A program must
// therefore be a pure function of the conversation.
type job struct {
	model *Model
	req   wire.Request
	talk  conversation
	prompt
	sabotage Sabotage

	next    int // index into talk.done
	answer  wire.Answer
	undrawn bool // a picture could not be made
	// unjudged are the judgements that did not come to a verdict.
	unjudged []string
}

// step describes an answer for the log.
type step struct {
	turn   dreamcore.Turn
	number int
	tool   string
}

// answer decides what to say.
func (m *Model) answer(req wire.Request) (wire.Answer, step, error) {
	talk := parseConversation(req)
	if len(req.Tools) == 0 {
		// Agents ask so for a title of the session.
		return wire.Answer{Text: text.T(dreamcore.English, "offline.title_call")}, step{}, nil
	}
	if len(talk.prompts) == 0 {
		return wire.Answer{Text: text.T(dreamcore.English, "offline.no_turn")}, step{}, nil
	}
	j := &job{model: m, req: req, talk: talk, prompt: talk.prompts[len(talk.prompts)-1]}
	j.wish, _ = talk.wish()
	j.sabotage = m.sabotage(j.wish)
	j.wish = marker.ReplaceAllString(j.wish, " ")
	last, err := j.run()
	s := step{turn: j.turn, number: j.next + 1}
	switch {
	case errors.Is(err, errAsked):
		s.tool = j.answer.Call.Tool
		return j.answer, s, nil
	case errors.Is(err, wire.ErrNoTool):
		return wire.Answer{Text: j.say("no_tool")}, s, nil
	case err != nil:
		return wire.Answer{}, s, err
	}
	return wire.Answer{Text: last}, s, nil
}

// run runs the program of the turn; it returns the last words.
func (j *job) run() (string, error) {
	switch j.turn {
	case dreamcore.Design:
		return j.design()
	case dreamcore.Build:
		return j.build()
	case dreamcore.Edit:
		return j.edit()
	}
	return j.repair()
}

// keys are the keys of m, sorted: what is said must follow from the request.
func keys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func count[T any](list []T) string { return strconv.Itoa(len(list)) }

// say is a text of the catalogue in the language of the turn.
func (j *job) say(key string, args ...string) string {
	return text.T(j.lang, "offline."+key, args...)
}

// do is one tool call: its result, or errAsked.
func (j *job) do(words string, call *wire.Call, err error) (exchange, error) {
	if err != nil {
		return exchange{}, err
	}
	if j.next < len(j.talk.done) {
		e := j.talk.done[j.next]
		j.next++
		return e, nil
	}
	j.answer = wire.Answer{Text: words, Call: call}
	return exchange{}, errAsked
}

// project is the game's folder in every box.
const project = "/workspace/project"

// run marks the exit code in the output, because agents show it in different
// ways or not at all.
const exitMark = "exit code: "

var exitLine = regexp.MustCompile(`(?m)^exit code: (\d+)\s*$`)

// shell runs a command and returns what it printed and its exit code, or -1
// where the command did not get to its end.
func (j *job) shell(words, command string) (string, int, error) {
	call, err := j.req.Shell(command + "\necho \"" + exitMark + "$?\"")
	e, err := j.do(words, call, err)
	if err != nil {
		return "", 0, err
	}
	found := exitLine.FindAllStringSubmatchIndex(e.result, -1)
	if found == nil {
		return e.result, -1, nil
	}
	last := found[len(found)-1]
	code, err := strconv.Atoi(e.result[last[2]:last[3]])
	if err != nil {
		code = -1
	}
	return e.result[:last[0]], code, nil
}

// read returns a file of a folder; missing or unreadable is "".
func (j *job) read(words, folder, file string) (string, error) {
	call, err := j.req.Read(folder + "/" + file)
	e, err := j.do(words, call, err)
	if err != nil {
		return "", err
	}
	if e.failed || !e.ended {
		return "", nil
	}
	return unnumbered(e.result), nil
}

// readJSON is read for a file that must be JSON: agents cut long files or write
// notes around them, then the shell prints it.
func (j *job) readJSON(words, folder, file string) (string, error) {
	s, err := j.read(words, folder, file)
	if err != nil || s == "" || json.Valid([]byte(s)) {
		return s, err
	}
	s, _, err = j.shell(words, "cat "+wire.Quote(folder+"/"+file))
	return s, err
}

// write makes a file of the project hold content.
func (j *job) write(words, file, content string) error {
	call, err := j.req.Write(project+"/"+file, content)
	_, err = j.do(words, call, err)
	return err
}

var numberedLine = regexp.MustCompile(`^\s*\d+(?:→|\t|\|)`)

// unnumbered takes the line numbers off that some agents' read tools put on.
func unnumbered(s string) string {
	lines := strings.SplitAfter(s, "\n")
	for _, l := range lines {
		if strings.TrimSpace(l) != "" && !numberedLine.MatchString(l) {
			return s
		}
	}
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, numberedLine.FindString(l))
	}
	return strings.Join(lines, "")
}
