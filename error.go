package dreamcore

import (
	"errors"
	"fmt"
)

// Code says what kind of thing went wrong. The list only ever grows.
type Code string

// The error codes. A caller decides by the code, never by the text.
const (
	Invalid     Code = "invalid"     // the request makes no sense as it stands
	NotFound    Code = "not_found"   // there is no such thing (or not for this person)
	Conflict    Code = "conflict"    // the thing is in a state that forbids this
	Refused     Code = "refused"     // a policy, budget or limit says no
	Unavailable Code = "unavailable" // something that is needed does not answer; try later
	Lost        Code = "lost"        // the sandbox is gone: the work in it must start afresh
	Missing     Code = "missing"     // the machine lacks something; Hint says how to get it
	Internal    Code = "internal"    // a fault of ours
)

// Error is what people see. Op is where it happened ("image.build"), Msg what
// happened, Hint what to do next, Err the cause (which may hold untrusted text
// and is for logs only).
type Error struct {
	Code Code
	Op   string
	Msg  string
	Hint string
	Err  error
}

// Errorf builds an Error without a hint.
func Errorf(code Code, op, format string, args ...any) *Error {
	return &Error{Code: code, Op: op, Msg: fmt.Sprintf(format, args...)}
}

// WithHint returns a copy of e that says what to do next.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// Because returns a copy of e with its cause.
func (e *Error) Because(err error) *Error {
	c := *e
	c.Err = err
	return &c
}

// Error joins place, message, hint and cause in one line.
func (e *Error) Error() string {
	s := e.Msg
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// CodeOf returns the code of the first Error in err's chain, Internal when
// there is none, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}
