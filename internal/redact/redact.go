// Package redact removes secrets from text that goes to whom must not see them,
// in the forms in which an echo may come: as they are, base64 in each alignment
// and alphabet, hex, percent-encoded and JSON-escaped, mixed as one likes.
//
// Every form is one pattern over decoded units: a unit is one byte of the
// pattern, written as itself, as %XX or as \u00XX. That finds "s%6b\u002dant"
// without listing all spellings.
package redact

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// Placeholder stands where a secret stood.
const Placeholder = "[REDACTED]"

// MinSecretBytes is the shortest secret that can be searched for without
// tearing holes into ordinary text.
const MinSecretBytes = 8

// pattern is one form of a secret.
type pattern struct {
	text string
	fold *[256]byte // canonical form of a unit: letter case for hex, alphabet for base64
}

// Set is the secrets to remove. It is immutable and safe for concurrent use. A
// nil Set removes nothing.
type Set struct {
	patterns []pattern
	first    [256]bool // bytes with which a match can begin
}

var plainFold, hexFold, base64Fold = folds()

func folds() (plain, hexa, b64 [256]byte) {
	for i := range 256 {
		c := byte(i)
		plain[i], hexa[i], b64[i] = c, c, c
		if c >= 'A' && c <= 'F' {
			hexa[i] = c + 32
		}
	}
	b64['-'], b64['_'] = '+', '/'
	return plain, hexa, b64
}

// New builds a set. Each secret has at least MinSecretBytes.
func New(secrets ...string) (*Set, error) {
	s := &Set{}
	for _, secret := range secrets {
		if len(secret) < MinSecretBytes {
			return nil, fmt.Errorf("a secret of %d bytes is too short to be searched for, it needs %d", len(secret), MinSecretBytes)
		}
		s.add(secret, &plainFold)
		s.add(hex.EncodeToString([]byte(secret)), &hexFold)
		for skip := range 3 {
			// With skip unknown bytes before the secret, the first letters mix
			// both, and the last ones mix the secret with what follows.
			enc := base64.RawStdEncoding.EncodeToString(append(make([]byte, skip), secret...))
			from := []int{0, 2, 3}[skip]
			to := (skip + len(secret)) * 8 / 6
			s.add(enc[from:to], &base64Fold)
		}
	}
	return s, nil
}

func (s *Set) add(text string, fold *[256]byte) {
	p := pattern{text: text, fold: fold}
	s.patterns = append(s.patterns, p)
	for i := range 256 {
		if fold[i] == fold[text[0]] {
			s.first[i] = true
		}
	}
	s.first['%'], s.first['\\'] = true, true
}

// match states.
const (
	no = iota
	yes
	partial // the input ends before it is decided
)

// unit decodes the unit at b[i:]: its byte and its length; 0 means that the
// input ends inside it, 1 that it stands for itself.
func unit(b []byte, i int) (c byte, n int) {
	switch b[i] {
	case '%':
		if i+2 < len(b) {
			if hi, lo := nibble(b[i+1]), nibble(b[i+2]); hi >= 0 && lo >= 0 {
				return byte(hi<<4 | lo), 3
			}
			return '%', 1
		}
		for _, x := range b[i+1:] {
			if nibble(x) < 0 {
				return '%', 1
			}
		}
		return 0, 0
	case '\\':
		if i+1 >= len(b) {
			return 0, 0
		}
		switch b[i+1] {
		case '/', '"', '\\':
			return b[i+1], 2
		case 'u':
			const zeros = "00"
			for k := 2; k < 6; k++ {
				if i+k >= len(b) {
					return 0, 0
				}
				if k < 4 && b[i+k] != zeros[k-2] || k >= 4 && nibble(b[i+k]) < 0 {
					return '\\', 1
				}
			}
			return byte(nibble(b[i+4])<<4 | nibble(b[i+5])), 6
		}
		return '\\', 1
	}
	return b[i], 1
}

func nibble(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// at tries p at b[i:]; n is the length of a whole match.
func (p pattern) at(b []byte, i int) (state, n int) { return p.from(0, b, i, i) }

// from matches the pattern from byte k on at b[i:]. A secret may itself hold %
// or \, so where one stands there are two readings: as the beginning of a unit
// and as itself.
func (p pattern) from(k int, b []byte, i, start int) (state, n int) {
	for ; k < len(p.text); k++ {
		if i >= len(b) {
			return partial, 0
		}
		want := p.fold[p.text[k]]
		c, w := unit(b, i)
		if w != 1 && b[i] == p.text[k] {
			if state, n := p.from(k+1, b, i+1, start); state == yes || state == partial && w != 0 && p.fold[c] != want {
				return state, n
			} else if state == partial {
				// Undecided as itself; the other reading may still say yes.
				if w != 0 {
					if state, n := p.from(k+1, b, i+w, start); state == yes {
						return yes, n
					}
				}
				return partial, 0
			}
		}
		if w == 0 {
			return partial, 0
		}
		if p.fold[c] != want {
			return no, 0
		}
		i += w
	}
	return yes, i - start
}

// scan appends to dst what of b is decided and clean, and returns how many
// bytes of b it used. final: nothing will follow, so everything is decided.
func (s *Set) scan(dst, b []byte, final bool) (out []byte, used int) {
	start := 0
next:
	for i := 0; i < len(b); i++ {
		if !s.first[b[i]] {
			continue
		}
		hold := false
		for _, p := range s.patterns {
			switch state, n := p.at(b, i); state {
			case yes:
				dst = append(append(dst, b[start:i]...), Placeholder...)
				start = i + n
				i = start - 1
				continue next
			case partial:
				hold = true
			}
		}
		if hold && !final {
			return append(dst, b[start:i]...), i
		}
	}
	return append(dst, b[start:]...), len(b)
}

// Bytes returns b without secrets; b itself when there are none.
func (s *Set) Bytes(b []byte) []byte {
	if s == nil || !s.suspect(b) {
		return b
	}
	out, _ := s.scan(make([]byte, 0, len(b)), b, true)
	return out
}

// suspect reports whether b holds any whole match; it allocates nothing.
func (s *Set) suspect(b []byte) bool {
	for i := 0; i < len(b); i++ {
		if !s.first[b[i]] {
			continue
		}
		for _, p := range s.patterns {
			if state, _ := p.at(b, i); state == yes {
				return true
			}
		}
	}
	return false
}

// Text is Bytes for strings.
func (s *Set) Text(t string) string {
	if s == nil {
		return t
	}
	b := []byte(t)
	if !s.suspect(b) {
		return t
	}
	return string(s.Bytes(b))
}

// Stream removes secrets from text that comes in pieces. A tail that may be the
// beginning of a secret is held back until it is decided.
type Stream struct {
	set  *Set
	tail []byte
}

// Stream begins a new one.
func (s *Set) Stream() *Stream { return &Stream{set: s} }

// Push takes a piece and returns what may go out.
func (st *Stream) Push(piece []byte) []byte {
	if st.set == nil {
		return piece
	}
	b := piece
	if len(st.tail) > 0 {
		b = append(st.tail, piece...)
	}
	out, used := st.set.scan(nil, b, false)
	st.tail = append([]byte(nil), b[used:]...)
	return out
}

// Held returns the number of bytes that are held back.
func (st *Stream) Held() int { return len(st.tail) }

// Flush returns what was held back; nothing will follow.
func (st *Stream) Flush() []byte {
	if len(st.tail) == 0 {
		return nil
	}
	out, _ := st.set.scan(nil, st.tail, true)
	st.tail = nil
	return out
}
