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
	"math/bits"
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
	// begin and second hold, for a byte, one bit per pattern of which it may be
	// the first and the second unit, written as itself.
	begin, second [256]uint64
	first         [256]bool // whether a match may begin with this byte at all
	all           uint64
}

// text is what can be searched.
type text interface{ ~string | ~[]byte }

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

// MaxSecrets is how many secrets a set can have.
const MaxSecrets = 12

// New builds a set. Each secret has at least MinSecretBytes.
func New(secrets ...string) (*Set, error) {
	if len(secrets) > MaxSecrets {
		return nil, fmt.Errorf("%d secrets, at most %d are possible", len(secrets), MaxSecrets)
	}
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
	bit := uint64(1) << len(s.patterns)
	s.patterns = append(s.patterns, pattern{text: text, fold: fold})
	s.all |= bit
	s.first['%'], s.first['\\'] = true, true
	for i := range 256 {
		if fold[i] == fold[text[0]] {
			s.begin[i] |= bit
			s.first[i] = true
		}
		if fold[i] == fold[text[1]] || i == '%' || i == '\\' {
			s.second[i] |= bit
		}
	}
}

// escaped returns the patterns that can begin at the escape b[i:].
func escaped[T text](s *Set, b T, i int) uint64 {
	c, n := unit(b, i)
	if n == 0 {
		return s.all
	}
	return s.begin[b[i]] | s.begin[c]
}

// match states.
const (
	no = iota
	yes
	partial // the input ends before it is decided
)

// unit decodes the unit at b[i:]: its byte and its length; 0 means that the
// input ends inside it, 1 that it stands for itself.
func unit[T text](b T, i int) (c byte, n int) {
	switch b[i] {
	case '%':
		if i+2 < len(b) {
			if hi, lo := nibble(b[i+1]), nibble(b[i+2]); hi >= 0 && lo >= 0 {
				return byte(hi<<4 | lo), 3
			}
			return '%', 1
		}
		for k := i + 1; k < len(b); k++ {
			if nibble(b[k]) < 0 {
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

// match matches p from its byte k on at b[i:]; n is the length of a whole
// match, which began at start. A secret may itself hold %
// or \, so where one stands there are two readings: as the beginning of a unit
// and as itself.
func match[T text](p *pattern, k int, b T, i, start int) (state, n int) {
	for ; k < len(p.text); k++ {
		if i >= len(b) {
			return partial, 0
		}
		want := p.fold[p.text[k]]
		c, w := unit(b, i)
		if w != 1 && b[i] == p.text[k] {
			if state, n := match(p, k+1, b, i+1, start); state == yes || state == partial && w != 0 && p.fold[c] != want {
				return state, n
			} else if state == partial {
				// Undecided as itself; the other reading may still say yes.
				if w != 0 {
					if state, n := match(p, k+1, b, i+w, start); state == yes {
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

// find returns where in b, from byte at on, the first match begins: a whole one
// of n bytes, or (n is 0) an unfinished one. Without either, at is len(b).
func find[T text](s *Set, b T, at int) (begin, n int) {
	for i := at; i < len(b); i++ {
		c := b[i]
		if !s.first[c] {
			continue
		}
		m := s.begin[c]
		if c == '%' || c == '\\' {
			m = escaped(s, b, i)
		} else if m != 0 && i+1 < len(b) {
			m &= s.second[b[i+1]] // most often nothing is left of it
		}
		hold := false
		for ; m != 0; m &= m - 1 {
			switch state, n := match(&s.patterns[bits.TrailingZeros64(m)], 0, b, i, i); state {
			case yes:
				return i, n
			case partial:
				hold = true
			}
		}
		if hold {
			return i, 0
		}
	}
	return len(b), 0
}

// scan appends to dst what of b is decided and clean, and returns how many
// bytes of b it used. final: nothing will follow, so everything is decided.
func scan[T text](s *Set, dst []byte, b T, final bool) (out []byte, used int) {
	start, from := 0, 0
	for {
		i, n := find(s, b, from)
		switch {
		case i == len(b):
			return append(dst, b[start:]...), len(b)
		case n > 0:
			dst = append(append(dst, b[start:i]...), Placeholder...)
			start = i + n
			from = start
		case final:
			from = i + 1
		default:
			return append(dst, b[start:i]...), i
		}
	}
}

// Bytes returns b without secrets; b itself when there are none.
func (s *Set) Bytes(b []byte) []byte {
	if s == nil || clean(s, b) {
		return b
	}
	out, _ := scan(s, make([]byte, 0, len(b)), b, true)
	return out
}

// clean reports whether b holds no whole match; it allocates nothing.
func clean[T text](s *Set, b T) bool {
	for at := 0; ; at++ {
		var n int
		if at, n = find(s, b, at); n > 0 || at == len(b) {
			return n == 0
		}
	}
}

// Clean reports whether t holds no secret.
func (s *Set) Clean(t string) bool { return s == nil || clean(s, t) }

// Text is Bytes for strings.
func (s *Set) Text(t string) string {
	if s == nil || clean(s, t) {
		return t
	}
	out, _ := scan(s, make([]byte, 0, len(t)), t, true)
	return string(out)
}

// Stream removes secrets from text that comes in pieces. A tail that may be the
// beginning of a secret is held back until it is decided.
type Stream struct {
	set  *Set
	tail string
}

// Stream begins a new one.
func (s *Set) Stream() *Stream { return &Stream{set: s} }

// Push takes a piece and returns what may go out.
func (st *Stream) Push(piece string) string {
	if st.set == nil {
		return piece
	}
	if st.tail == "" {
		if at, _ := find(st.set, piece, 0); at == len(piece) {
			return piece
		}
	}
	b := st.tail + piece
	out, used := scan(st.set, nil, b, false)
	st.tail = b[used:]
	return string(out)
}

// Held returns the number of bytes that are held back.
func (st *Stream) Held() int { return len(st.tail) }

// Flush returns what was held back; nothing will follow.
func (st *Stream) Flush() string {
	if st.tail == "" {
		return ""
	}
	out, _ := scan(st.set, nil, st.tail, true)
	st.tail = ""
	return string(out)
}
