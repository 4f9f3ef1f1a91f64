package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"unicode/utf8"
)

// Events writes server-sent events and flushes after each.
type Events struct {
	w     http.ResponseWriter
	flush func() error
	err   error
}

// NewEvents sends the head of an event stream on w.
func NewEvents(w http.ResponseWriter) *Events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	return &Events{w: w, flush: http.NewResponseController(w).Flush}
}

// send writes one event; name is "" in protocols that do not name them. After
// the first error it does nothing: err keeps it.
func (e *Events) send(name string, data any) {
	if name != "" {
		name = "event: " + name + "\n"
	}
	e.raw(name + "data: " + encode(data) + "\n\n")
}

func (e *Events) raw(s string) {
	if e.err != nil {
		return
	}
	if _, err := e.w.Write([]byte(s)); err != nil {
		e.err = fmt.Errorf("write an event: %w", err)
		return
	}
	if err := e.flush(); err != nil {
		e.err = fmt.Errorf("flush an event: %w", err)
	}
}

// Sizes of the pieces in which text and arguments are streamed: small enough
// to be seen growing, large enough that a game's data is not thousands of events.
const (
	textPieceBytes = 48
	argsPieceBytes = 512
)

// pieces cuts s into at most n bytes each, never within a character: a piece is
// sent as JSON, which would destroy half a character.
func pieces(s string, n int) []string {
	var all []string
	for len(s) > n {
		cut := n
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		if cut == 0 {
			cut = n // not UTF-8; it will be replaced wherever it is cut
		}
		all = append(all, s[:cut])
		s = s[cut:]
	}
	if s != "" {
		all = append(all, s)
	}
	return all
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// WriteJSON answers with one JSON document.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write([]byte(encode(v))); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
