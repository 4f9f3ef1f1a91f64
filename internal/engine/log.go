package engine

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxLogLines = 1000
	maxLogBytes = 1 << 20 // of a box's log that are looked at
	maxLogLine  = 4 << 10
)

// logLine is one line of what gVisor and PID 1 said, in the words of version 2
// of E2B's log.
type logLine struct {
	Timestamp time.Time         `json:"timestamp"`
	Message   string            `json:"message"`
	Level     string            `json:"level"`
	Fields    map[string]string `json:"fields"`
}

// logQuery selects lines.
type logQuery struct {
	from, to  time.Time // zero: from the beginning, to the end
	limit     int
	backwards bool // newest first
	level     int  // of levels
	search    string
}

// levels in the order of their weight.
var levels = []string{"debug", "info", "warn", "error"}

// serveLogs answers version 2: GET /v2/sandboxes/{id}/logs.
func (e *Engine) serveLogs(w http.ResponseWriter, r *http.Request, b *box) {
	if lines, ok := e.logLines(w, r.URL.Query(), b, "cursor"); ok {
		answer(w, http.StatusOK, map[string]any{"logs": lines})
	}
}

// serveOldLogs answers version 1: GET /sandboxes/{id}/logs, the same lines in
// two forms.
func (e *Engine) serveOldLogs(w http.ResponseWriter, r *http.Request, b *box) {
	lines, ok := e.logLines(w, r.URL.Query(), b, "start")
	if !ok {
		return
	}
	type plain struct {
		Timestamp time.Time `json:"timestamp"`
		Line      string    `json:"line"`
	}
	old := make([]plain, 0, len(lines))
	for _, l := range lines {
		old = append(old, plain{l.Timestamp, l.Message})
	}
	answer(w, http.StatusOK, map[string]any{"logs": old, "logEntries": lines})
}

// logLines reads the lines that a query asks for; when it cannot it has
// answered. from is the name of the parameter that is the time of the first.
func (e *Engine) logLines(w http.ResponseWriter, q url.Values, b *box, from string) ([]logLine, bool) {
	ask, problem := readLogQuery(q, from)
	if problem != "" {
		refuse(w, http.StatusBadRequest, problem)
		return nil, false
	}
	data, err := b.machine.Log(maxLogBytes)
	if err != nil {
		if b.dead() {
			refuse(w, http.StatusNotFound, "the sandbox has ended")
			return nil, false
		}
		e.log.Error("the log of a sandbox cannot be read", "sandbox_id", b.id, "reason", err.Error())
		refuse(w, http.StatusInternalServerError, "the sandbox's log cannot be read; the engine's log says why")
		return nil, false
	}
	return ask.choose(parseLog(data, b.started.UTC())), true
}

func readLogQuery(q url.Values, from string) (ask logQuery, problem string) {
	ask.limit = maxLogLines
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > maxLogLines {
			return ask, "limit must be from 0 to " + strconv.Itoa(maxLogLines)
		}
		ask.limit = n
	}
	for name, at := range map[string]*time.Time{from: &ask.from, "end": &ask.to} {
		if s := q.Get(name); s != "" {
			ms, err := strconv.ParseInt(s, 10, 64)
			if err != nil || ms < 0 || ms > 1<<53 {
				return ask, name + " must be a time in milliseconds"
			}
			*at = time.UnixMilli(ms)
		}
	}
	switch q.Get("direction") {
	case "", "forward":
	case "backward":
		// The cursor is then where it begins to look back.
		ask.backwards, ask.from, ask.to = true, time.Time{}, ask.from
	default:
		return ask, "direction must be forward or backward"
	}
	if s := q.Get("level"); s != "" {
		if ask.level = slices.Index(levels, s); ask.level < 0 {
			return ask, "level must be one of " + strings.Join(levels, ", ")
		}
	}
	ask.search = q.Get("search")
	return ask, ""
}

func (ask logQuery) choose(all []logLine) []logLine {
	some := []logLine{}
	for _, l := range all {
		ms := l.Timestamp.UnixMilli()
		if !ask.from.IsZero() && ms < ask.from.UnixMilli() || !ask.to.IsZero() && ms > ask.to.UnixMilli() ||
			slices.Index(levels, l.Level) < ask.level || !strings.Contains(l.Message, ask.search) {
			continue
		}
		some = append(some, l)
	}
	if ask.backwards {
		slices.Reverse(some)
	}
	return some[:min(len(some), ask.limit)]
}

// parseLog reads a box's log. Lines without a time of their own have that of
// the line before, the first ones that of the boot; the times never go back.
func parseLog(data []byte, booted time.Time) []logLine {
	all := []logLine{}
	at := booted
	for raw := range bytes.Lines(data) {
		s := strings.ToValidUTF8(string(bytes.TrimRight(raw[:min(len(raw), maxLogLine)], "\r\n")), "\uFFFD")
		if s == "" {
			continue
		}
		l := logLine{Message: s, Level: "info", Fields: map[string]string{"logger": "gvisor"}}
		if t, level, rest, ok := slogLine(s); ok {
			l.Level, l.Message, l.Fields["logger"] = level, rest, "sandboxd"
			if t.After(at) {
				at = t
			}
		} else if t, level, ok := glogLine(s, at); ok {
			l.Level = level
			if t.After(at) {
				at = t
			}
		}
		l.Timestamp = at
		all = append(all, l)
	}
	return all
}

// slogLine takes apart what PID 1 logs: time=… level=… and the rest.
func slogLine(s string) (at time.Time, level, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, "time=")
	if !ok {
		return
	}
	stamp, s, ok1 := strings.Cut(s, " level=")
	level, rest, ok2 := strings.Cut(s, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	level = strings.ToLower(level)
	return at.UTC(), level, rest, ok1 && ok2 && err == nil && slices.Contains(levels, level)
}

// glogLine reads level and time of what gVisor logs: "W1130 21:19:53.738781 …".
// The year is that of near.
func glogLine(s string, near time.Time) (at time.Time, level string, ok bool) {
	const form = "0102 15:04:05.000000"
	if len(s) < 1+len(form) {
		return
	}
	i := strings.IndexByte("DIWE", s[0])
	at, err := time.Parse(form, s[1:1+len(form)])
	if i < 0 || err != nil {
		return time.Time{}, "", false
	}
	return at.AddDate(near.Year(), 0, 0), levels[i], true
}
