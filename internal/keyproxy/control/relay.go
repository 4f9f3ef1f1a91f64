package control

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"dreamcore/internal/keyproxy"
	"dreamcore/internal/strictjson"
)

// Bounds of what the proxy may log.
const (
	maxLineBytes = 32 << 10
	maxLetters   = 2000 // of one value
	maxValues    = 40
	maxOdd       = 100 // lines that are no records, of one life: a crash prints them
)

var key = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// relay passes the proxy's log on to ours until it ends. What it says is data:
// its records are taken apart and every value is capped and escaped.
func relay(said *os.File, log *slog.Logger) {
	defer func() { _ = said.Close() }() // it was read to its end
	r := bufio.NewReaderSize(said, maxLineBytes)
	odd := 0
	for {
		line, err := r.ReadSlice('\n')
		cut := errors.Is(err, bufio.ErrBufferFull)
		if text := strings.TrimSpace(string(line)); text != "" {
			if level, msg, values, ok := record(text); ok && !cut {
				log.Log(context.Background(), level, msg, values...)
			} else if odd++; odd <= maxOdd {
				log.Warn("the key proxy says", "text", keyproxy.Clip(text, maxLetters), "cut", cut || odd == maxOdd)
			}
		}
		for cut { // the rest of a line that is too long
			_, err = r.ReadSlice('\n')
			cut = errors.Is(err, bufio.ErrBufferFull)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				log.Error("the key proxy's log cannot be read", "err", err)
			}
			return
		}
	}
}

// record reads one record of the proxy's logger.
func record(text string) (level slog.Level, msg string, values []any, ok bool) {
	v, err := strictjson.Parse([]byte(text))
	if err != nil || v.Kind != strictjson.Object || level.UnmarshalText([]byte(v.Get("level").Text())) != nil {
		return 0, "", nil, false
	}
	for i := range min(v.Len(), maxValues) {
		name, value := v.Name(i), v.At(i)
		switch {
		case name == "time" || name == "level": // ours say the same
		case name == "msg":
			msg = keyproxy.Clip(value.Text(), maxSaid)
		case !key.MatchString(name):
			return 0, "", nil, false
		case value.Kind == strictjson.String:
			values = append(values, name, keyproxy.Clip(value.Text(), maxLetters))
		case value.Kind == strictjson.Bool:
			values = append(values, name, value.True())
		default:
			if n, whole := value.Int(); whole {
				values = append(values, name, n)
			} else {
				values = append(values, name, keyproxy.Clip(string(value.Append(nil)), maxLetters))
			}
		}
	}
	return level, msg, values, msg != ""
}
