package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/text"
)

// statusError is a refusal over plain HTTP.
type statusError struct {
	status  int
	message string // the engine's words: untrusted when a sandbox answered
	spoken  bool   // the body was an error of the protocol, not any 404
}

func newStatusError(status int, body []byte) error {
	s := &statusError{status: status}
	var b struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(body, &b); err == nil && b.Message != "" {
		s.message, s.spoken = clip(b.Message), b.Code != 0
	}
	return &dreamcore.Error{Code: codeOfStatus(status), Op: "sandbox.engine", Msg: s.Error(), Err: s}
}

func (e *statusError) Error() string {
	if e.message == "" {
		return fmt.Sprintf("the engine answered %d", e.status)
	}
	return fmt.Sprintf("the engine answered %d: %s", e.status, e.message)
}

func codeOfStatus(status int) dreamcore.Code {
	switch {
	case status == http.StatusNotFound:
		return dreamcore.NotFound
	case status == http.StatusConflict:
		return dreamcore.Conflict
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusRequestEntityTooLarge,
		status == http.StatusInsufficientStorage:
		return dreamcore.Refused
	case status == http.StatusTooManyRequests, status >= 500:
		return dreamcore.Unavailable
	default:
		return dreamcore.Invalid
	}
}

func isStatus(err error, status int) bool {
	var s *statusError
	return errors.As(err, &s) && s.status == status
}

// lostWhenMissing turns the control plane's 404 into code Lost.
func (p *Provider) lostWhenMissing(err error, id dreamcore.SandboxID) error {
	if isStatus(err, http.StatusNotFound) {
		return p.lost(id, "").Because(err)
	}
	return err
}

// lost is the error of a dead sandbox; reason is our engine's word for how it
// ended, "" when nobody knows.
func (p *Provider) lost(id dreamcore.SandboxID, reason string) *dreamcore.Error {
	p.gate.leave(id)
	key := "lost_" + reason
	if !text.Has("engine." + key) {
		key = "lost"
	}
	return fail(p.cfg.Lang, dreamcore.Lost, "sandbox", key, "id", string(id))
}

// fail makes the error that people see out of the texts engine.KEY and, where
// there is one, engine.KEY_hint.
func fail(lang dreamcore.Lang, code dreamcore.Code, op, key string, args ...string) *dreamcore.Error {
	return text.Error(lang, code, op, "engine."+key, args...)
}

// explain gives an error of a request to a box the code that callers decide by.
// When the box may be dead it asks, so that a broken connection and a dead box
// are told apart.
func (s *box) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	// The caller gave up: that says nothing about the box.
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var ce *connect.Error
	if errors.As(err, &ce) && connect.IsWireError(err) {
		if code, ok := wireCodes[ce.Code()]; ok {
			return &dreamcore.Error{Code: code, Op: "sandbox", Msg: clip(ce.Message()), Err: err}
		}
	}
	var st *statusError
	if errors.As(err, &st) && st.status != http.StatusBadGateway {
		return err
	}
	if dead := s.dead(ctx); dead != nil {
		return dead.Because(err)
	}
	return fail(s.p.cfg.Lang, dreamcore.Unavailable, "sandbox", "silent", "id", string(s.id)).Because(err)
}

// wireCodes are the codes that a daemon in a box speaks itself.
var wireCodes = map[connect.Code]dreamcore.Code{
	connect.CodeInvalidArgument:    dreamcore.Invalid,
	connect.CodeNotFound:           dreamcore.NotFound,
	connect.CodeAlreadyExists:      dreamcore.Conflict,
	connect.CodeFailedPrecondition: dreamcore.Conflict,
	connect.CodePermissionDenied:   dreamcore.Refused,
	connect.CodeUnauthenticated:    dreamcore.Refused,
	connect.CodeResourceExhausted:  dreamcore.Refused,
	connect.CodeUnimplemented:      dreamcore.Invalid,
	connect.CodeInternal:           dreamcore.Internal,
}

// dead asks the router whether the box lives; an error with code Lost when not.
func (s *box) dead(ctx context.Context) *dreamcore.Error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/health", nil)
	if err != nil {
		return nil
	}
	res, err := s.http.Do(req)
	if err != nil {
		return nil // the engine is away, which is not the box's death
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusBadGateway {
		return nil
	}
	var b struct {
		SandboxID string `json:"sandboxId"`
		Message   string `json:"message"`
		Reason    string `json:"reason"`
	}
	if json.NewDecoder(io.LimitReader(res.Body, 4096)).Decode(&b) != nil || !strings.Contains(b.Message, "not found") {
		return nil
	}
	return s.p.lost(s.id, b.Reason)
}

func clip(s string) string {
	const most = 500
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "�")
}
