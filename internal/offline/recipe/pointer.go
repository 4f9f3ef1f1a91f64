package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// span is one value of a JSON document: bytes [start, end).
type span struct {
	pointer    string
	start, end int
	value      json.Token // a json.Delim for objects and arrays
}

// spans lists every value of a JSON document with its pointer (RFC 6901), inner
// values before the one that holds them. Positions allow changing a value
// without touching the order, the spaces or the rest of the document.
func spans(doc []byte) ([]span, error) {
	s := &scanner{doc: doc, dec: json.NewDecoder(bytes.NewReader(doc))}
	s.dec.UseNumber()
	if err := s.value(""); err != nil {
		return nil, fmt.Errorf("read JSON near byte %d: %w", s.dec.InputOffset(), err)
	}
	if _, err := s.dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("read JSON: more than one document")
	}
	return s.found, nil
}

type scanner struct {
	doc   []byte
	dec   *json.Decoder
	found []span
}

func (s *scanner) value(pointer string) error {
	start := int(s.dec.InputOffset())
	for start < len(s.doc) && strings.IndexByte(" \t\r\n:,", s.doc[start]) >= 0 {
		start++
	}
	tok, err := s.dec.Token()
	if err != nil {
		return err
	}
	if open, ok := tok.(json.Delim); ok {
		for i := 0; s.dec.More(); i++ {
			name := strconv.Itoa(i)
			if open == '{' {
				key, err := s.dec.Token()
				if err != nil {
					return err
				}
				name = escape.Replace(key.(string))
			}
			if err := s.value(pointer + "/" + name); err != nil {
				return err
			}
		}
		if _, err := s.dec.Token(); err != nil {
			return err
		}
	}
	s.found = append(s.found, span{pointer, start, int(s.dec.InputOffset()), tok})
	return nil
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// document is a JSON file with changes that wait to be made.
type document struct {
	text    []byte
	values  map[string]span
	changes map[string]any // by pointer
}

func newDocument(text []byte) (*document, error) {
	all, err := spans(text)
	if err != nil {
		return nil, err
	}
	d := &document{text: text, values: map[string]span{}, changes: map[string]any{}}
	for _, s := range all {
		d.values[s.pointer] = s
	}
	return d, nil
}

// get decodes the value at pointer as it was in the file.
func (d *document) get(pointer string, into any) bool {
	s, ok := d.values[pointer]
	return ok && json.Unmarshal(d.text[s.start:s.end], into) == nil
}

// set replaces the value at pointer; a pointer that the file lacks is passed
// over, because a manifest may be ahead of a file that a creator changed.
func (d *document) set(pointer string, value any) {
	if _, ok := d.values[pointer]; ok {
		d.changes[pointer] = value
	}
}

// rewrite passes every string of the file that has no change yet through f.
func (d *document) rewrite(f func(string) string) {
	for pointer, s := range d.values {
		old, ok := s.value.(string)
		if !ok || d.covered(pointer) {
			continue
		}
		if now := f(old); now != old {
			d.changes[pointer] = now
		}
	}
}

// covered reports whether a value or one that holds it is being replaced.
func (d *document) covered(pointer string) bool {
	for p := pointer; ; p = p[:strings.LastIndexByte(p, '/')] {
		if _, ok := d.changes[p]; ok {
			return true
		}
		if p == "" {
			return false
		}
	}
}

// bytes returns the file with its changes.
func (d *document) bytes() ([]byte, error) {
	pointers := make([]string, 0, len(d.changes))
	for p := range d.changes {
		pointers = append(pointers, p)
	}
	slices.SortFunc(pointers, func(a, b string) int { return d.values[a].start - d.values[b].start })
	var out bytes.Buffer
	at := 0
	for _, p := range pointers {
		s := d.values[p]
		if s.start < at {
			continue // inside a value that has been replaced already
		}
		out.Write(d.text[at:s.start])
		v, err := literal(d.changes[p])
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", p, err)
		}
		out.Write(v)
		at = s.end
	}
	out.Write(d.text[at:])
	return out.Bytes(), nil
}

func literal(v any) ([]byte, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return raw, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
