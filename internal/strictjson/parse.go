package strictjson

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of what Parse accepts, whatever the caller's cap on the bytes.
const (
	MaxDepth       = 64
	MaxNumberBytes = 40
	// MaxValues bounds the tree: a byte of input can cost about a hundred of memory.
	MaxValues = 400_000
)

// The reasons for which Parse refuses; test with errors.Is.
var (
	ErrSyntax    = errors.New("not valid JSON")
	ErrDuplicate = errors.New("the same name twice in one object")
	ErrTrailing  = errors.New("something after the JSON document")
	ErrUTF8      = errors.New("not valid UTF-8")
	ErrLimit     = errors.New("too deep or too large")
)

type parser struct {
	s      string
	i      int
	values int
}

// Parse reads exactly one JSON document.
func Parse(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return Value{}, ErrUTF8
	}
	p := &parser{s: string(data)}
	var v Value
	if err := p.value(&v, 0); err != nil {
		return Value{}, err
	}
	p.space()
	if p.i != len(p.s) {
		return Value{}, fmt.Errorf("%w, at byte %d", ErrTrailing, p.i)
	}
	return v, nil
}

func (p *parser) syntax() error { return fmt.Errorf("%w, at byte %d", ErrSyntax, p.i) }

func (p *parser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\n', '\r', '\t':
			p.i++
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.i < len(p.s) {
		return p.s[p.i]
	}
	return 0
}

func (p *parser) value(v *Value, depth int) error {
	if p.values++; depth > MaxDepth || p.values > MaxValues {
		return fmt.Errorf("%w, at byte %d", ErrLimit, p.i)
	}
	p.space()
	switch c := p.peek(); {
	case c == '{':
		return p.object(v, depth)
	case c == '[':
		return p.array(v, depth)
	case c == '"':
		s, err := p.str()
		*v = Value{Kind: String, text: s}
		return err
	case c == '-' || c >= '0' && c <= '9':
		return p.number(v)
	case p.word("true"):
		*v = Flag(true)
	case p.word("false"):
		*v = Flag(false)
	case p.word("null"):
		*v = Value{}
	default:
		return p.syntax()
	}
	return nil
}

func (p *parser) word(w string) bool {
	if strings.HasPrefix(p.s[p.i:], w) {
		p.i += len(w)
		return true
	}
	return false
}

func (p *parser) array(v *Value, depth int) error {
	p.i++
	*v = Value{Kind: Array}
	if p.space(); p.peek() == ']' {
		p.i++
		return nil
	}
	for {
		v.items = append(v.items, Value{})
		if err := p.value(&v.items[len(v.items)-1], depth+1); err != nil {
			return err
		}
		p.space()
		switch p.peek() {
		case ',':
			p.i++
		case ']':
			p.i++
			return nil
		default:
			return p.syntax()
		}
	}
}

func (p *parser) object(v *Value, depth int) error {
	p.i++
	*v = Value{Kind: Object}
	if p.space(); p.peek() == '}' {
		p.i++
		return nil
	}
	var seen map[string]bool // only for objects that are not small
	for {
		p.space()
		if p.peek() != '"' {
			return p.syntax()
		}
		at := p.i
		name, err := p.str()
		if err != nil {
			return err
		}
		if p.known(v, name, &seen) {
			return fmt.Errorf("%w, at byte %d", ErrDuplicate, at)
		}
		if p.space(); p.peek() != ':' {
			return p.syntax()
		}
		p.i++
		if v.names == nil {
			v.names, v.items = make([]string, 0, 4), make([]Value, 0, 4)
		}
		v.names = append(v.names, name)
		v.items = append(v.items, Value{})
		if err := p.value(&v.items[len(v.items)-1], depth+1); err != nil {
			return err
		}
		p.space()
		switch p.peek() {
		case ',':
			p.i++
		case '}':
			p.i++
			return nil
		default:
			return p.syntax()
		}
	}
}

func (p *parser) known(v *Value, name string, seen *map[string]bool) bool {
	const small = 16
	if len(v.names) < small {
		for _, n := range v.names {
			if n == name {
				return true
			}
		}
		return false
	}
	if *seen == nil {
		*seen = make(map[string]bool, 2*small)
		for _, n := range v.names {
			(*seen)[n] = true
		}
	}
	if (*seen)[name] {
		return true
	}
	(*seen)[name] = true
	return false
}

func (p *parser) digits() bool {
	start := p.i
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.i++
	}
	return p.i > start
}

func (p *parser) number(v *Value) error {
	start := p.i
	if p.peek() == '-' {
		p.i++
	}
	if p.peek() == '0' {
		p.i++
	} else if !p.digits() {
		return p.syntax()
	}
	if p.peek() == '.' {
		p.i++
		if !p.digits() {
			return p.syntax()
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.i++
		if c := p.peek(); c == '+' || c == '-' {
			p.i++
		}
		if !p.digits() {
			return p.syntax()
		}
	}
	if p.i-start > MaxNumberBytes {
		return fmt.Errorf("%w: a number of %d bytes, at byte %d", ErrLimit, p.i-start, start)
	}
	*v = Value{Kind: Number, text: p.s[start:p.i]}
	return nil
}

// ends marks the bytes at which plain text of a string ends.
var ends = func() (t [256]bool) {
	for c := range 0x20 {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// str reads a string. Text without escapes shares the input's memory.
func (p *parser) str() (string, error) {
	p.i++
	start, i := p.i, p.i
	for i < len(p.s) && !ends[p.s[i]] {
		i++
	}
	p.i = i
	switch p.peek() {
	case '"':
		p.i++
		return p.s[start:i], nil
	case '\\':
		return p.escaped(start)
	}
	return "", p.syntax()
}

func (p *parser) escaped(start int) (string, error) {
	b := make([]byte, 0, p.i-start+64)
	b = append(b, p.s[start:p.i]...)
	for p.i < len(p.s) {
		c := p.s[p.i]
		switch {
		case c == '"':
			p.i++
			return string(b), nil
		case c < 0x20:
			return "", p.syntax()
		case c != '\\':
			b = append(b, c)
			p.i++
			continue
		}
		if p.i++; p.i >= len(p.s) {
			return "", p.syntax()
		}
		c = p.s[p.i]
		p.i++
		switch c {
		case '"', '\\', '/':
			b = append(b, c)
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			r, ok := p.hex4()
			if !ok {
				return "", p.syntax()
			}
			// A lone surrogate (a text cut inside an emoji) becomes U+FFFD by
			// AppendRune, so what is sent on is always valid.
			if utf16.IsSurrogate(r) && strings.HasPrefix(p.s[p.i:], `\u`) {
				at := p.i
				p.i += 2
				low, ok := p.hex4()
				if !ok {
					return "", p.syntax()
				}
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					r = pair
				} else {
					p.i = at
				}
			}
			b = utf8.AppendRune(b, r)
		default:
			return "", p.syntax()
		}
	}
	return "", p.syntax()
}

func (p *parser) hex4() (rune, bool) {
	if p.i+4 > len(p.s) {
		return 0, false
	}
	var r rune
	for _, c := range []byte(p.s[p.i : p.i+4]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	p.i += 4
	return r, true
}
