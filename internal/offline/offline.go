// Package offline is the stand-in model: an upstream for coding agents that
// needs no key and no network. It speaks the wire protocols of the real ones,
// streaming and with tool calls, so that the real agent does real work: it
// picks a template for a wish, writes the spec, and changes the delivered
// skeleton into the game that was asked for.
//
// It is honest about what it is: a transformer that follows rules over a
// lexicon, not a language model. It says so in what it answers.
//
// It keeps no state. What to do next follows from the conversation that each
// request carries: the last prompt says which turn it is, and the program of
// that turn is run again from its start over the tool calls that have been
// answered since (see replay.go). So retries, resumed sessions and a restart of
// the host cannot put it out of step.
package offline

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/offline/lexicon"
	"dreamcore/internal/offline/recipe"
	"dreamcore/internal/offline/wire"
	"dreamcore/internal/offline/wish"
)

// ModelName is the name under which the stand-in model is asked for.
const ModelName = "dreamcore-stand-in"

// maxBodyBytes bounds a request: a whole job's conversation is far smaller.
const maxBodyBytes = 32 << 20

// Config sets a model up.
type Config struct {
	// Key is what a request must show, as x-api-key or as a bearer token.
	Key dreamcore.Secret
	// Models are the names that are answered to; nil means ModelName alone.
	Models []string
	// Log gets one line a request.
	Log *slog.Logger
	// Sabotage makes the agent misbehave, for tests; "" is none.
	Sabotage Sabotage
	// AllowMarkers lets a wish choose the sabotage by a marker, for tests:
	// [sabotage: break].
	AllowMarkers bool
}

// Model is the stand-in model. It is safe for concurrent use.
type Model struct {
	config Config
	reader *wish.Reader
	cook   *recipe.Cook
	mux    *http.ServeMux
}

// New builds the model. It refuses a configuration without a key: an upstream
// that anybody may call would not show whether the proxy does its work.
func New(c Config) (*Model, error) {
	if c.Key.IsZero() {
		return nil, dreamcore.Errorf(dreamcore.Invalid, "offline.new", "the stand-in model needs a key to ask for")
	}
	if !c.Sabotage.known() {
		return nil, dreamcore.Errorf(dreamcore.Invalid, "offline.new", "there is no sabotage %q", string(c.Sabotage))
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Models == nil {
		c.Models = []string{ModelName}
	}
	lex, err := lexicon.Load()
	if err != nil {
		return nil, fmt.Errorf("load the stand-in model: %w", err)
	}
	m := &Model{
		config: c,
		reader: &wish.Reader{Lexicon: lex, Index: wish.Words{}},
		cook:   &recipe.Cook{Lexicon: lex, Index: wish.Words{}},
		mux:    http.NewServeMux(),
	}
	// Clients put the version in the path or in their base URL.
	for _, version := range []string{"", "/v1"} {
		m.mux.Handle("POST "+version+"/messages", m.generate(wire.Anthropic{}))
		m.mux.Handle("POST "+version+"/messages/count_tokens", http.HandlerFunc(m.count))
		m.mux.Handle("POST "+version+"/chat/completions", m.generate(wire.Chat{}))
		m.mux.Handle("POST "+version+"/responses", m.generate(wire.Responses{}))
		m.mux.Handle("GET "+version+"/models", http.HandlerFunc(m.models))
	}
	return m, nil
}

// ServeHTTP implements http.Handler. Only requests with the key are answered.
func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !m.authorised(r.Header) {
		m.refuse(w, r, protocolOf(r.URL.Path), http.StatusUnauthorized, "authentication_error", "the key is missing or wrong")
		return
	}
	m.mux.ServeHTTP(w, r)
}

func (m *Model) authorised(h http.Header) bool {
	key := h.Get("X-Api-Key")
	if key == "" {
		key, _ = strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	}
	return subtle.ConstantTimeCompare([]byte(key), []byte(m.config.Key.Reveal())) == 1
}

func protocolOf(path string) wire.Protocol {
	switch {
	case strings.Contains(path, "/messages"):
		return wire.Anthropic{}
	case strings.HasSuffix(path, "/responses"):
		return wire.Responses{}
	}
	return wire.Chat{}
}

// generate answers a model call in one protocol.
func (m *Model) generate(p wire.Protocol) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
		if err != nil {
			m.refuse(w, r, p, http.StatusRequestEntityTooLarge, "invalid_request_error", "the request is too large")
			return
		}
		req, err := p.Decode(body)
		if err != nil {
			m.refuse(w, r, p, http.StatusBadRequest, "invalid_request_error", err.Error())
			return
		}
		if !slices.Contains(m.config.Models, req.Model) {
			m.refuse(w, r, p, http.StatusNotFound, "not_found_error",
				fmt.Sprintf("there is no model %.80q here; there are %s", req.Model, strings.Join(m.config.Models, ", ")))
			return
		}
		answer, step, err := m.answer(req)
		switch {
		case errors.Is(err, errSilent):
			m.config.Log.Info("stand-in model keeps silent", "turn", string(step.turn), "reason", "sabotage")
			<-r.Context().Done()
			return
		case err != nil:
			m.refuse(w, r, p, http.StatusBadRequest, "invalid_request_error", err.Error())
			return
		}
		if req.Stream {
			err = p.Stream(wire.NewEvents(w), req, answer)
		} else {
			err = wire.WriteJSON(w, http.StatusOK, p.Whole(req, answer))
		}
		attrs := []any{"turn", string(step.turn), "step", step.number, "tool", step.tool, "dur_ms", time.Since(began).Milliseconds()}
		if err != nil {
			m.config.Log.Warn("stand-in model was cut off", append(attrs, "reason", err.Error())...)
			return
		}
		m.config.Log.Info("stand-in model answered by its rules (it is no language model)", attrs...)
	})
}

func (m *Model) count(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		m.refuse(w, r, wire.Anthropic{}, http.StatusRequestEntityTooLarge, "invalid_request_error", "the request is too large")
		return
	}
	m.document(w, r, http.StatusOK, wire.Anthropic{}.Count(int(n)))
}

func (m *Model) models(w http.ResponseWriter, r *http.Request) {
	m.document(w, r, http.StatusOK, wire.Models(m.config.Models))
}

func (m *Model) refuse(w http.ResponseWriter, r *http.Request, p wire.Protocol, status int, kind, message string) {
	m.config.Log.Info("stand-in model refused a request", "decision", "refused", "reason", kind, "status", status)
	m.document(w, r, status, p.Fault(status, kind, message))
}

func (m *Model) document(w http.ResponseWriter, r *http.Request, status int, v any) {
	if err := wire.WriteJSON(w, status, v); err != nil {
		m.config.Log.Warn("stand-in model was cut off", "path", fmt.Sprintf("%.100q", r.URL.Path), "reason", err.Error())
	}
}
