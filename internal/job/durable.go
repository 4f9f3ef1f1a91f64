package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"dreamcore"
)

// Steps remembers which steps of one job are done. After the host was killed,
// the job runs again from its top, and a step that had finished returns what it
// returned then without running. So the steps of a job must follow from the
// results of the steps before, and from nothing else.
type Steps interface {
	// Do runs f once and remembers its bytes. An error is not remembered.
	Do(ctx context.Context, name string, f func() ([]byte, error)) ([]byte, error)
}

// outcome is what is remembered of a step: its value or its error, with the
// error's code, which decides what the job does next.
type outcome struct {
	Value json.RawMessage  `json:"value,omitempty"`
	Error *rememberedError `json:"error,omitempty"`
}

type rememberedError struct {
	Code  dreamcore.Code `json:"code"`
	Op    string         `json:"op"`
	Msg   string         `json:"msg"`
	Hint  string         `json:"hint,omitempty"`
	Cause string         `json:"cause,omitempty"`
}

// do runs one step. An interrupted step (the host is stopping) is not
// remembered and runs again at the next start; every other error is an outcome.
func do[T any](ctx context.Context, s Steps, name string, f func(context.Context) (T, error)) (T, error) {
	var zero T
	raw, err := s.Do(ctx, name, func() ([]byte, error) {
		v, err := guard(ctx, name, f)
		if err != nil && stopping(ctx) {
			return nil, err
		}
		var o outcome
		if err != nil {
			o.Error = remember(err)
		} else if o.Value, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("encode step %s: %w", name, err)
		}
		return json.Marshal(o)
	})
	if err != nil {
		return zero, err
	}
	var o outcome
	if err := json.Unmarshal(raw, &o); err != nil {
		return zero, fmt.Errorf("decode step %s: %w", name, err)
	}
	if o.Error != nil {
		return zero, o.Error.err()
	}
	var v T
	if err := json.Unmarshal(o.Value, &v); err != nil {
		return zero, fmt.Errorf("decode step %s: %w", name, err)
	}
	return v, nil
}

// guard turns a panic into an error, so that the sandbox is still destroyed.
func guard[T any](ctx context.Context, name string, f func(context.Context) (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = dreamcore.Errorf(dreamcore.Internal, "job."+name, "a fault of ours: %v", p).Because(errors.New(string(debug.Stack())))
		}
	}()
	return f(ctx)
}

func remember(err error) *rememberedError {
	r := &rememberedError{Code: dreamcore.CodeOf(err), Msg: err.Error()}
	var e *dreamcore.Error
	if errors.As(err, &e) {
		r.Op, r.Msg, r.Hint = e.Op, e.Msg, e.Hint
		if e.Err != nil {
			r.Cause = e.Err.Error()
		}
	}
	return r
}

func (r *rememberedError) err() error {
	e := &dreamcore.Error{Code: r.Code, Op: r.Op, Msg: r.Msg, Hint: r.Hint}
	if r.Cause != "" {
		e.Err = errors.New(r.Cause)
	}
	return e
}
