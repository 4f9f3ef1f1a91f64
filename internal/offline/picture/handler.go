package picture

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/offline/words"
)

// ModelName is what the picture maker calls itself on the wire.
const ModelName = "builtin-pictures"

// Limits of one request over the wire.
const (
	maxBodyBytes = 64 << 10
	maxPictures  = 4
	defaultSide  = 512
)

// order is the body of POST /v1/images/generations: OpenAI's fields and, beside
// them, style, effects and seed. Fields that make no difference here (quality,
// user, ...) are accepted.
type order struct {
	Model          string   `json:"model"`
	Prompt         string   `json:"prompt"`
	N              *int     `json:"n"`
	Size           string   `json:"size"`
	Background     string   `json:"background"`
	OutputFormat   string   `json:"output_format"`
	ResponseFormat string   `json:"response_format"`
	Style          string   `json:"style"`
	Effects        []string `json:"effects"`
	Seed           int64    `json:"seed"`
}

// Handler serves the OpenAI images API: POST /v1/images/generations and
// GET /v1/models, for those who send key as bearer token. It logs one line for
// each picture, and says in it when no word of a prompt was understood.
func Handler(key dreamcore.Secret, log *slog.Logger) http.Handler {
	h := &handler{key: sha256.Sum256([]byte(key.Reveal())), log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/images/generations", h.generate)
	mux.HandleFunc("GET /v1/models", h.models)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		h.refuse(w, http.StatusNotFound, "not_found", "There is no such route; pictures are made at POST /v1/images/generations.")
	})
	if key.IsZero() {
		// Without a key everybody would be let in; refuse everybody instead.
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h.refuse(w, http.StatusUnauthorized, "invalid_api_key", "The picture maker was started without a key and answers nobody.")
		})
	}
	return h.guard(mux)
}

type handler struct {
	key [sha256.Size]byte
	log *slog.Logger
}

func (h *handler) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		sum := sha256.Sum256([]byte(given))
		if !ok || subtle.ConstantTimeCompare(sum[:], h.key[:]) != 1 {
			h.refuse(w, http.StatusUnauthorized, "invalid_api_key", "The picture maker needs its key as Authorization: Bearer.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *handler) models(w http.ResponseWriter, _ *http.Request) {
	h.answer(w, http.StatusOK, map[string]any{"object": "list", "data": []any{
		map[string]any{"id": ModelName, "object": "model", "created": 0, "owned_by": "dreamcore"},
	}})
}

func (h *handler) generate(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	var o order
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err == nil {
		err = json.Unmarshal(body, &o)
	}
	if err != nil {
		var tooBig *http.MaxBytesError
		if errors.As(err, &tooBig) {
			h.refuse(w, http.StatusRequestEntityTooLarge, "too_large", "The request is too large.")
			return
		}
		h.refuse(w, http.StatusBadRequest, "bad_json", "The body is not the JSON of an image request.")
		return
	}
	q, n, problem := o.request()
	if problem != "" {
		h.refuse(w, http.StatusBadRequest, "bad_field", problem)
		return
	}
	var data []any
	for i := range n {
		q.Seed = o.Seed + int64(i)
		png, info, err := Make(r.Context(), q)
		if errors.Is(err, context.Canceled) {
			return // nobody is there to read an answer
		}
		if err != nil {
			h.fail(w, q, err)
			return
		}
		h.note(q, info, len(png), time.Since(start))
		data = append(data, map[string]any{"b64_json": base64.StdEncoding.EncodeToString(png)})
	}
	h.answer(w, http.StatusOK, map[string]any{"created": start.Unix(), "data": data, "output_format": "png"})
}

func (h *handler) fail(w http.ResponseWriter, q Request, err error) {
	var e *dreamcore.Error
	if errors.As(err, &e) && e.Code == dreamcore.Invalid {
		h.refuse(w, http.StatusBadRequest, "bad_field", e.Msg)
		return
	}
	h.log.Error("picture", "decision", "failed", "reason", err.Error(), "prompt", clip(q.Prompt))
	h.refuse(w, http.StatusInternalServerError, "internal", "The picture could not be drawn.")
}

// note logs what was drawn; an unknown word is worth a warning, since somebody
// can add it to the word index.
func (h *handler) note(q Request, info Info, size int, took time.Duration) {
	level, decision, reason := slog.LevelInfo, "drawn", "word_known"
	switch {
	case info.Fallback:
		level, decision, reason = slog.LevelWarn, "fallback", "no_word_known"
	case info.Concept == "":
		reason = "place_known"
	}
	h.log.Log(context.Background(), level, "picture", "decision", decision, "reason", reason,
		"prompt", clip(q.Prompt), "concept", info.Concept, "place", info.Place, "width", q.W, "height", q.H,
		"bytes", size, "dur_ms", took.Milliseconds())
}

// clip makes untrusted text fit for a log line.
func clip(s string) string {
	const most = 120
	runes := []rune(s)
	if len(runes) > most {
		s = string(runes[:most]) + "…"
	}
	return strconv.Quote(s)
}

var sizePattern = regexp.MustCompile(`^([1-9][0-9]{0,4})x([1-9][0-9]{0,4})$`)

// request turns the order into a Request and a number of pictures, or says what
// is wrong with it.
func (o order) request() (q Request, n int, problem string) {
	q = Request{Prompt: o.Prompt, W: defaultSide, H: defaultSide}
	if o.Model != "" && o.Model != ModelName {
		return q, 0, fmt.Sprintf("The only model here is %s.", ModelName)
	}
	if strings.TrimSpace(o.Prompt) == "" {
		return q, 0, "The field prompt is empty; say what to draw."
	}
	if o.Size != "" && o.Size != "auto" {
		m := sizePattern.FindStringSubmatch(o.Size)
		if m == nil {
			return q, 0, `The field size must be "WIDTHxHEIGHT" in pixels, or "auto".`
		}
		q.W, _ = strconv.Atoi(m[1]) // the pattern has checked the digits
		q.H, _ = strconv.Atoi(m[2])
	}
	n = 1
	if o.N != nil {
		n = *o.N
	}
	if n < 1 || n > maxPictures {
		return q, 0, fmt.Sprintf("The field n must be from 1 to %d.", maxPictures)
	}
	switch o.Background {
	case "transparent":
		q.Transparent = true
	case "", "auto":
		q.Transparent = !understand(o.Prompt).scene
	case "opaque":
	default:
		return q, 0, `The field background must be "transparent", "opaque" or "auto".`
	}
	if o.ResponseFormat != "" && o.ResponseFormat != "b64_json" {
		return q, 0, `The field response_format must be "b64_json".`
	}
	if o.OutputFormat != "" && o.OutputFormat != "png" {
		return q, 0, `The field output_format must be "png".`
	}
	q.Style = styleOf(o.Style)
	for _, e := range o.Effects {
		kind, arg, _ := strings.Cut(strings.ToLower(strings.TrimSpace(e)), ":")
		switch kind {
		case "tint":
			q.Effects.Tint = arg
		case "outline":
			q.Effects.Outline = arg
		case "flip":
			q.Effects.FlipX = true
		case "facing":
			q.Effects.Facing = arg
		default:
			return q, 0, "An effect is one of tint:#rrggbb, outline:#rrggbb, flip, facing:left, facing:right, facing:up."
		}
	}
	return q, n, ""
}

// styleOf finds the style that free words mean; words that mean none are left
// to other picture makers.
func styleOf(said string) string {
	said = strings.ToLower(strings.TrimSpace(said))
	if knownStyle(said) {
		return said
	}
	for _, f := range find(openLexicon().modifiers, words.Fold(said)) {
		if style, ok := strings.CutPrefix(f.effect, "style:"); ok {
			return style
		}
	}
	return ""
}

func (h *handler) refuse(w http.ResponseWriter, status int, code, message string) {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusUnauthorized:
		kind = "authentication_error"
	case status >= 500:
		kind = "server_error"
	}
	h.answer(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "code": code, "param": nil}})
}

func (h *handler) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		// The client is gone; the status is sent already.
		h.log.Debug("picture", "decision", "dropped", "reason", err.Error())
	}
}
