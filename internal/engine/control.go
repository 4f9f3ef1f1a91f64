package engine

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"dreamcore"
	"dreamcore/internal/envd"
)

const (
	maxBodyBytes = 1 << 20
	maxLife      = 24 * time.Hour
	lifeV1       = 15 * time.Second
	lifeV2       = 300 * time.Second
	maxPage      = 100
	// RelayCIDR in a create request's allowOut asks for the one way out: inside
	// the box it is at envd.RelayAddr, and there is no other.
	RelayCIDR = "127.0.0.1/32"
)

// The bodies of the control plane, in E2B's words.
type (
	createBody struct {
		TemplateID    string            `json:"templateID"`
		Timeout       *int64            `json:"timeout"`
		Metadata      map[string]string `json:"metadata"`
		EnvVars       map[string]string `json:"envVars"`
		AllowInternet *bool             `json:"allow_internet_access"`
		Network       *networkBody      `json:"network"`
		AutoPause     bool              `json:"autoPause"`
		PauseMemory   *bool             `json:"autoPauseMemory"`
		AutoResume    *struct {
			Enabled bool `json:"enabled"`
		} `json:"autoResume"`
		VolumeMounts []json.RawMessage `json:"volumeMounts"`
		MCP          json.RawMessage   `json:"mcp"`
		IAM          json.RawMessage   `json:"iam"`
	}
	networkBody struct {
		AllowOut           []string        `json:"allowOut"`
		DenyOut            []string        `json:"denyOut"`
		AllowPublicTraffic *bool           `json:"allowPublicTraffic"`
		MaskRequestHost    *string         `json:"maskRequestHost"`
		HTTPSPorts         []int           `json:"httpsPorts"`
		EgressProxy        json.RawMessage `json:"egressProxy"`
		Rules              json.RawMessage `json:"rules"`
	}
	sandboxBody struct {
		TemplateID         string  `json:"templateID"`
		SandboxID          string  `json:"sandboxID"`
		ClientID           string  `json:"clientID"`
		EnvdVersion        string  `json:"envdVersion"`
		EnvdAccessToken    string  `json:"envdAccessToken"`
		TrafficAccessToken *string `json:"trafficAccessToken"`
		Domain             *string `json:"domain"`
	}
	infoBody struct {
		TemplateID      string            `json:"templateID"`
		SandboxID       string            `json:"sandboxID"`
		ClientID        string            `json:"clientID"`
		StartedAt       time.Time         `json:"startedAt"`
		EndAt           time.Time         `json:"endAt"`
		CPUCount        int               `json:"cpuCount"`
		MemoryMB        int64             `json:"memoryMB"`
		DiskSizeMB      int64             `json:"diskSizeMB"`
		Metadata        map[string]string `json:"metadata"`
		State           string            `json:"state"`
		EnvdVersion     string            `json:"envdVersion"`
		EnvdAccessToken string            `json:"envdAccessToken,omitempty"`
		Domain          *string           `json:"domain,omitempty"`
		Lifecycle       *lifecycleBody    `json:"lifecycle,omitempty"` // not in a list
		Network         *networkInfo      `json:"network,omitempty"`   // not in a list
	}
	failure struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
)

func (e *Engine) controlPlane() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, v := range []struct {
		prefix string
		life   time.Duration
	}{{"", lifeV1}, {"/v2", lifeV2}} {
		mux.HandleFunc("POST "+v.prefix+"/sandboxes", e.guarded(func(w http.ResponseWriter, r *http.Request) { e.serveCreate(w, r, v.life) }))
		mux.HandleFunc("GET "+v.prefix+"/sandboxes", e.guarded(e.serveList))
	}
	e.pausePlane(mux)
	mux.HandleFunc("GET /sandboxes/{id}", e.guarded(e.serveInfo))
	mux.HandleFunc("DELETE /sandboxes/{id}", e.guarded(e.serveKill))
	mux.HandleFunc("POST /sandboxes/{id}/timeout", e.guarded(e.living(e.serveTimeout)))
	mux.HandleFunc("POST /sandboxes/{id}/refreshes", e.guarded(e.living(e.serveRefresh)))
	mux.HandleFunc("GET /sandboxes/metrics", e.guarded(e.serveAllMetrics))
	mux.HandleFunc("GET /sandboxes/{id}/metrics", e.guarded(e.living(e.serveMetrics)))
	mux.HandleFunc("GET /sandboxes/{id}/logs", e.guarded(e.living(e.serveOldLogs)))
	mux.HandleFunc("GET /v2/sandboxes/{id}/logs", e.guarded(e.living(e.serveLogs)))
	mux.HandleFunc("/", e.guarded(e.serveMissing))
	return mux
}

// guarded asks for the API key before anything else is looked at.
func (e *Engine) guarded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Api-Key")), []byte(e.cfg.APIKey.Reveal())) != 1 {
			refuse(w, http.StatusUnauthorized, "the API key is missing or wrong")
			return
		}
		next(w, r)
	}
}

func (e *Engine) serveCreate(w http.ResponseWriter, r *http.Request, life time.Duration) {
	var in createBody
	if !decode(w, r, &in) {
		return
	}
	o, err := in.order(life)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if snap, ok := e.shelf.template(in.TemplateID); ok {
		o.from, o.template = snap, snap.body().SnapshotID
		o.env = merged(snap.Box.Env, o.env)
		o.image.Digest = snap.Box.Image // its folder is looked for when it is booted
	} else if o.image, err = e.cfg.Images(in.TemplateID); err != nil {
		status := http.StatusInternalServerError
		if c := dreamcore.CodeOf(err); c == dreamcore.NotFound || c == dreamcore.Missing || c == dreamcore.Invalid {
			status = http.StatusNotFound
		}
		refuse(w, status, publicText(err))
		return
	}
	b, err := e.boot(r.Context(), o)
	if err != nil && r.Context().Err() != nil {
		e.log.Info("the client gave up a boot", "image", o.image.Digest, "reason", err.Error())
		return
	}
	if errors.Is(err, errFull) {
		e.refuseFull(w, publicText(err))
		return
	}
	if err != nil {
		e.log.Error("cannot boot a sandbox", "image", o.image.Digest, "reason", err.Error())
		status := http.StatusInternalServerError
		switch {
		case errors.Is(err, syscall.ENOSPC):
			status = http.StatusInsufficientStorage
		case dreamcore.CodeOf(err) == dreamcore.Unavailable:
			status = http.StatusServiceUnavailable
		}
		refuse(w, status, publicText(err))
		return
	}
	if r.Context().Err() != nil {
		// Nobody would ever end it before its time.
		e.log.Info("the client gave up a boot", "sandbox_id", b.id, "image", o.image.Digest, "decision", "end it")
		e.finish(b, reasonKilled)
		return
	}
	answer(w, http.StatusCreated, b.body())
}

// order checks a create request. What this engine cannot do is refused rather
// than left out: a sandbox that silently lacks what was asked for is worse.
func (in createBody) order(life time.Duration) (order, error) {
	o := order{metadata: in.Metadata, env: in.EnvVars, autoPause: in.AutoPause, autoResume: in.AutoResume != nil && in.AutoResume.Enabled}
	switch {
	case in.TemplateID == "":
		return o, errors.New("templateID is missing")
	case o.autoResume && !o.autoPause:
		return o, errors.New("autoResume needs autoPause")
	case in.AutoPause && in.PauseMemory != nil && !*in.PauseMemory:
		return o, errors.New("this engine saves a sandbox with its memory or not at all: autoPauseMemory=false is not possible")
	case len(in.VolumeMounts) > 0:
		return o, errors.New("this engine has no volumes")
	case isSet(in.MCP):
		return o, errors.New("this engine has no MCP gateway")
	case isSet(in.IAM):
		return o, errors.New("this engine has no workload identities")
	}
	var err error
	if o.life, err = lifetimeOr(in.Timeout, life); err != nil {
		return o, err
	}
	if n := in.Network; n != nil {
		o.private = n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic
		if o.egress, err = n.egress(); err != nil {
			return o, err
		}
		if o.face, err = n.face(); err != nil {
			return o, err
		}
	}
	return o, nil
}

func isSet(m json.RawMessage) bool { return len(m) > 0 && string(m) != "null" && string(m) != "{}" }

func lifetime(seconds int64) (time.Duration, error) {
	if seconds <= 0 || seconds > int64(maxLife/time.Second) {
		return 0, fmt.Errorf("the timeout must be from 1 to %d seconds", int64(maxLife/time.Second))
	}
	return time.Duration(seconds) * time.Second, nil
}

// lifetimeOr is lifetime where a client may leave it out.
func lifetimeOr(seconds *int64, otherwise time.Duration) (time.Duration, error) {
	if seconds == nil {
		return otherwise, nil
	}
	return lifetime(*seconds)
}

func (b *box) body() sandboxBody {
	s := sandboxBody{
		TemplateID: b.template(), SandboxID: string(b.id), ClientID: "00000000",
		EnvdVersion: envd.Version, EnvdAccessToken: b.token,
	}
	if b.traffic != "" {
		s.TrafficAccessToken = &b.traffic
	}
	s.Domain = b.domain
	return s
}

// info is what a client is told of the sandbox that a record describes.
func (r record) info() infoBody {
	metadata := r.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	return infoBody{
		TemplateID: r.template(), SandboxID: string(r.ID), ClientID: "00000000",
		StartedAt: r.Started.UTC(), EndAt: r.Ends.UTC(),
		CPUCount: max(int(r.Limits.CPUs), 1), MemoryMB: r.Limits.MemoryBytes >> 20, DiskSizeMB: r.Limits.DiskBytes >> 20,
		Metadata: metadata, State: r.State, EnvdVersion: envd.Version,
		Lifecycle: lifecycle(r.AutoPause, r.AutoResume),
	}
}

func (b *box) info() infoBody {
	i := b.record(stateRunning).info()
	i.Domain = b.domain
	return i
}

func (e *Engine) serveInfo(w http.ResponseWriter, r *http.Request) {
	id := dreamcore.SandboxID(r.PathValue("id"))
	b, ok := e.settled(r.Context(), id)
	if !ok {
		snap, ok := e.shelf.get(id, kindPaused)
		if !ok {
			refuseUnknown(w, id)
			return
		}
		body := e.pausedInfo(snap)
		body.EnvdAccessToken, body.Network = snap.Box.Token, snap.Box.order().network()
		answer(w, http.StatusOK, body)
		return
	}
	body := b.info()
	body.EnvdAccessToken, body.Network = b.token, b.ordered().network()
	answer(w, http.StatusOK, body)
}

func (e *Engine) serveKill(w http.ResponseWriter, r *http.Request) {
	id := dreamcore.SandboxID(r.PathValue("id"))
	// A kill does not wait for a box that is being saved: it wins.
	b, living := e.find(id)
	snap, paused := e.shelf.get(id, kindPaused)
	var err error
	switch {
	case living:
		err = e.end(b, reasonKilled)
		if snap, paused = e.shelf.get(id, kindPaused); paused {
			err = errors.Join(err, e.forget(snap, reasonKilled)) // it was paused a moment before
		}
	case paused:
		err = e.forget(snap, reasonKilled)
	default:
		refuseUnknown(w, id)
		return
	}
	if err != nil {
		e.log.Error("something of a sandbox is left", "sandbox_id", id, "reason", err.Error())
		refuse(w, http.StatusInternalServerError, "the sandbox is dead but something of it is left; the engine's log says what")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *Engine) serveTimeout(w http.ResponseWriter, r *http.Request, b *box) {
	var in struct {
		Timeout int64 `json:"timeout"`
	}
	if !decode(w, r, &in) {
		return
	}
	if in.Timeout == 0 {
		// E2B's way to say: now.
		go e.finish(b, reasonTimeout)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	life, err := lifetime(in.Timeout)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	b.live(life, true, nil)
	e.note(b)
	w.WriteHeader(http.StatusNoContent)
}

func (e *Engine) serveRefresh(w http.ResponseWriter, r *http.Request, b *box) {
	var in struct {
		Duration *int64 `json:"duration"`
	}
	if !decode(w, r, &in) {
		return
	}
	life, err := lifetimeOr(in.Duration, lifeV1)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	b.live(life, false, nil)
	e.note(b)
	w.WriteHeader(http.StatusNoContent)
}

// decode reads a JSON body; an empty one is the zero value.
func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is too large or broke off")
		return false
	}
	if len(data) == 0 {
		return true
	}
	if err := json.Unmarshal(data, v); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not the JSON that was expected: "+clip(err.Error(), 200))
		return false
	}
	return true
}

// publicText is an error's message without its cause, which is for the log.
func publicText(err error) string {
	var e *dreamcore.Error
	if !errors.As(err, &e) {
		return "the sandbox could not be booted; the engine's log says why"
	}
	if e.Hint != "" {
		return e.Msg + " (" + e.Hint + ")"
	}
	return e.Msg
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, failure{Code: status, Message: message})
}

func refuseUnknown(w http.ResponseWriter, id dreamcore.SandboxID) {
	refuse(w, http.StatusNotFound, "there is no sandbox "+strconv.Quote(clip(string(id), 64)))
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The status is out: a client that went away is all that can fail here.
	_ = json.NewEncoder(w).Encode(v)
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
