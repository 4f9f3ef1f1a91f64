// Package strictjson reads JSON that a hostile client wrote, so that what was
// checked is what is sent on. It refuses what encoding/json forgives: a name
// given twice, a second document, invalid UTF-8, absurd depth. Names are compared byte
// by byte. The result is a tree that Schema rules check and may prune, and that
// Append writes out again; the client's own bytes are never forwarded.
package strictjson

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Kind is the type of a Value.
type Kind uint8

// The kinds of JSON value.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

// String names the kind as an error text does.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "boolean"
	case Number:
		return "number"
	case String:
		return "string"
	case Array:
		return "array"
	case Object:
		return "object"
	}
	return "unknown"
}

// Value is one JSON value. The zero Value is null.
type Value struct {
	Kind  Kind
	text  string // String: the decoded text; Number: the literal; Bool: "true" or "false"
	names []string
	items []Value
}

// Str makes a string value.
func Str(s string) Value { return Value{Kind: String, text: s} }

// Int makes a number value.
func Int(n int64) Value { return Value{Kind: Number, text: strconv.FormatInt(n, 10)} }

// Flag makes a boolean value.
func Flag(b bool) Value { return Value{Kind: Bool, text: strconv.FormatBool(b)} }

// List makes an array value.
func List(items ...Value) Value { return Value{Kind: Array, items: items} }

// Obj makes an object with one member; Set adds more.
func Obj(name string, v Value) Value {
	return Value{Kind: Object, names: []string{name}, items: []Value{v}}
}

// Text returns the text of a string value, "" for any other.
func (v *Value) Text() string {
	if v == nil || v.Kind != String {
		return ""
	}
	return v.text
}

// True reports whether v is the boolean true.
func (v *Value) True() bool { return v != nil && v.Kind == Bool && v.text == "true" }

// Int returns a number that is written as an integer and fits.
func (v *Value) Int() (int64, bool) {
	if v == nil || v.Kind != Number {
		return 0, false
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	return n, err == nil
}

// Float returns a finite number.
func (v *Value) Float() (float64, bool) {
	if v == nil || v.Kind != Number {
		return 0, false
	}
	f, err := strconv.ParseFloat(v.text, 64)
	return f, err == nil && !math.IsInf(f, 0)
}

// Len returns the number of elements or members.
func (v *Value) Len() int {
	if v == nil {
		return 0
	}
	return len(v.items)
}

// At returns element or member value i.
func (v *Value) At(i int) *Value { return &v.items[i] }

// Name returns the name of member i of an object.
func (v *Value) Name(i int) string { return v.names[i] }

// Get returns the member of that exact name, or nil. It may be chained: a nil
// Value has no members.
func (v *Value) Get(name string) *Value {
	if v == nil || v.Kind != Object {
		return nil
	}
	for i, n := range v.names {
		if n == name {
			return &v.items[i]
		}
	}
	return nil
}

// Set replaces or adds a member of an object.
func (v *Value) Set(name string, x Value) {
	if old := v.Get(name); old != nil {
		*old = x
		return
	}
	v.Kind = Object
	v.names = append(v.names, name)
	v.items = append(v.items, x)
}

// Delete removes a member of an object.
func (v *Value) Delete(name string) {
	for i, n := range v.names {
		if n == name {
			v.names = append(v.names[:i], v.names[i+1:]...)
			v.items = append(v.items[:i], v.items[i+1:]...)
			return
		}
	}
}

// Append writes v as compact JSON behind dst.
func (v *Value) Append(dst []byte) []byte {
	switch v.Kind {
	case Null:
		return append(dst, "null"...)
	case Bool, Number:
		return append(dst, v.text...)
	case String:
		return AppendString(dst, v.text)
	case Array:
		dst = append(dst, '[')
		for i := range v.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.items[i].Append(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i := range v.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, v.names[i]), ':')
		dst = v.items[i].Append(dst)
	}
	return append(dst, '}')
}

const hexDigits = "0123456789abcdef"

// AppendString writes s as a JSON string behind dst. Bytes that are no UTF-8
// become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf && !ends[c] {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
