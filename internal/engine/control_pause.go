package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"dreamcore"
)

const (
	maxForks     = 16
	forksAtOnce  = 2
	maxNameBytes = 128
	// snapshotTag is what E2B puts behind the name of a template; here there is
	// one of each.
	snapshotTag = ":default"
)

type snapshotBody struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func (s *snapshot) body() snapshotBody {
	b := snapshotBody{SnapshotID: string(s.ID) + snapshotTag, Names: []string{}}
	if s.Name != "" {
		b.SnapshotID, b.Names = s.Name+snapshotTag, []string{s.Name + snapshotTag}
	}
	return b
}

// pausePlane adds what has to do with saved boxes to the control plane.
func (e *Engine) pausePlane(mux *http.ServeMux) {
	for _, v := range []struct {
		prefix string
		life   time.Duration
	}{{"", lifeV1}, {"/v2", lifeV2}} {
		mux.HandleFunc("POST "+v.prefix+"/sandboxes/{id}/connect", e.guarded(func(w http.ResponseWriter, r *http.Request) { e.serveConnect(w, r, v.life, false) }))
	}
	mux.HandleFunc("POST /sandboxes/{id}/resume", e.guarded(func(w http.ResponseWriter, r *http.Request) { e.serveConnect(w, r, lifeV1, true) }))
	mux.HandleFunc("POST /sandboxes/{id}/pause", e.guarded(e.living(e.servePause)))
	mux.HandleFunc("POST /sandboxes/{id}/snapshots", e.guarded(e.living(e.serveSnapshot)))
	mux.HandleFunc("POST /sandboxes/{id}/fork", e.guarded(e.living(e.serveFork)))
	mux.HandleFunc("PUT /sandboxes/{id}/network", e.guarded(e.living(e.serveNetwork)))
	mux.HandleFunc("GET /snapshots", e.guarded(e.serveSnapshots))
	mux.HandleFunc("DELETE /templates/{id...}", e.guarded(e.serveDeleteSnapshot))
}

// living hands on the box that a request names, once it is not frozen.
func (e *Engine) living(next func(http.ResponseWriter, *http.Request, *box)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := dreamcore.SandboxID(r.PathValue("id"))
		b, ok := e.settled(r.Context(), id)
		if ok {
			next(w, r, b)
			return
		}
		if _, paused := e.shelf.get(id, kindPaused); paused {
			refuse(w, http.StatusConflict, "the sandbox "+strconv.Quote(clip(string(id), 64))+" is paused")
			return
		}
		refuseUnknown(w, id)
	}
}

// settled finds a box, after it has been thawed or ended if it is frozen.
func (e *Engine) settled(ctx context.Context, id dreamcore.SandboxID) (*box, bool) {
	for {
		b, ok := e.find(id)
		if !ok {
			return nil, false
		}
		_, thawed := b.line()
		if thawed == nil {
			return b, true
		}
		select {
		case <-thawed:
		case <-b.ctx.Done():
			<-b.over
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// memoryKept refuses what only a restart from the disk could do.
func memoryKept(w http.ResponseWriter, memory *bool) bool {
	if memory != nil && !*memory {
		refuse(w, http.StatusNotImplemented, "this engine saves a sandbox with its memory or not at all: memory=false is not possible")
		return false
	}
	return true
}

func (e *Engine) servePause(w http.ResponseWriter, r *http.Request, b *box) {
	var in struct {
		Memory *bool `json:"memory"`
	}
	if !decode(w, r, &in) || !memoryKept(w, in.Memory) {
		return
	}
	if err := e.pause(r.Context(), b); err != nil {
		e.refuseFreeze(w, b.id, "cannot pause a sandbox", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// refuseFreeze answers for a box that could not be saved or restored.
func (e *Engine) refuseFreeze(w http.ResponseWriter, id dreamcore.SandboxID, what string, err error) {
	level := slog.LevelError
	if c := dreamcore.CodeOf(err); c == dreamcore.NotFound || c == dreamcore.Conflict {
		level = slog.LevelInfo // two clients crossed
	} else if c == dreamcore.Refused {
		level = slog.LevelWarn
	}
	e.log.Log(context.Background(), level, what, "sandbox_id", id, "reason", err.Error())
	var known *dreamcore.Error
	message := "the sandbox could not be saved or restored; the engine's log says why"
	if errors.As(err, &known) {
		message = publicText(known)
	}
	status := http.StatusInternalServerError
	if errors.Is(err, errFull) {
		e.refuseFull(w, message)
		return
	}
	switch dreamcore.CodeOf(err) {
	case dreamcore.NotFound:
		status = http.StatusNotFound
	case dreamcore.Conflict:
		status = http.StatusConflict
	case dreamcore.Unavailable:
		status = http.StatusServiceUnavailable
	case dreamcore.Refused:
		status = http.StatusInsufficientStorage
	case dreamcore.Missing:
		status = http.StatusNotImplemented // this machine cannot, for this user
	}
	refuse(w, status, message)
}

// serveConnect wakes a box if it is paused, and else extends its time; the older
// way to wake one, which is not for one that runs, is resume.
func (e *Engine) serveConnect(w http.ResponseWriter, r *http.Request, otherwise time.Duration, resume bool) {
	var in struct {
		Timeout *int64 `json:"timeout"`
		Memory  *bool  `json:"memory"`
	}
	if !decode(w, r, &in) {
		return
	}
	life, err := lifetimeOr(in.Timeout, otherwise)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	id := dreamcore.SandboxID(r.PathValue("id"))
	if b, ok := e.settled(r.Context(), id); ok {
		if resume {
			refuse(w, http.StatusConflict, "the sandbox is running already")
			return
		}
		b.live(life, false, nil)
		e.note(b)
		answer(w, http.StatusOK, b.body())
		return
	}
	snap, ok := e.shelf.get(id, kindPaused)
	if !ok {
		refuseUnknown(w, id)
		return
	}
	if !memoryKept(w, in.Memory) {
		return
	}
	b, woken, err := e.wake(r.Context(), snap, life)
	if err != nil {
		e.refuseFreeze(w, id, "cannot resume a sandbox", err)
		return
	}
	status := http.StatusOK
	if woken {
		status = http.StatusCreated
	}
	answer(w, status, b.body())
}

func (e *Engine) serveSnapshot(w http.ResponseWriter, r *http.Request, b *box) {
	var in struct {
		Name string `json:"name"`
	}
	if !decode(w, r, &in) {
		return
	}
	in.Name = strings.TrimSuffix(in.Name, snapshotTag)
	if !nameable(in.Name) {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the name must be of at most %d letters, digits, and - _ . /", maxNameBytes))
		return
	}
	snap := &snapshot{Format: snapshotFormat, ID: dreamcore.NewSandboxID(), Kind: kindNamed, Name: in.Name, Created: time.Now()}
	if err := e.takeSnapshot(context.WithoutCancel(r.Context()), b, snap); err != nil {
		e.refuseFreeze(w, b.id, "cannot make a snapshot", err)
		return
	}
	// A name is its newest snapshot's.
	for _, old := range e.shelf.list(kindNamed) {
		if old.Name == snap.Name && old.Name != "" && old.Created.Before(snap.Created) {
			if err := e.shelf.drop(old); err != nil {
				e.log.Error("something of a replaced snapshot is left", "snapshot", old.ID, "reason", err.Error())
			}
		}
	}
	answer(w, http.StatusCreated, snap.body())
}

// nameable reports whether a snapshot may have that name: "" is none.
func nameable(name string) bool {
	return len(name) <= maxNameBytes && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_./", c)
	})
}

// serveSnapshots lists snapshots, newest first, a page at a time.
func (e *Engine) serveSnapshots(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := pageLimit(q.Get("limit"))
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	name := strings.TrimSuffix(q.Get("name"), snapshotTag)
	all := slices.DeleteFunc(e.shelf.list(kindNamed), func(s *snapshot) bool {
		return q.Get("sandboxID") != "" && q.Get("sandboxID") != string(s.Box.ID) || name != "" && name != s.Name && name != string(s.ID)
	})
	slices.SortFunc(all, func(a, b *snapshot) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	if from := q.Get("nextToken"); from != "" {
		i := slices.IndexFunc(all, func(s *snapshot) bool { return string(s.ID) == from })
		if i < 0 {
			refuse(w, http.StatusBadRequest, "nextToken is malformed, or its snapshot is gone")
			return
		}
		all = all[i+1:]
	}
	if len(all) > limit {
		all = all[:limit]
		w.Header().Set("X-Next-Token", string(all[limit-1].ID))
	}
	out := []snapshotBody{}
	for _, s := range all {
		out = append(out, s.body())
	}
	answer(w, http.StatusOK, out)
}

// pageLimit reads how many entries a client wants at once.
func pageLimit(s string) (int, error) {
	if s == "" {
		return maxPage, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxPage {
		return 0, fmt.Errorf("limit must be from 1 to %d", maxPage)
	}
	return n, nil
}

// serveDeleteSnapshot deletes a snapshot, which is a template to E2B's clients.
func (e *Engine) serveDeleteSnapshot(w http.ResponseWriter, r *http.Request) {
	ref := r.PathValue("id")
	snap, ok := e.shelf.template(ref)
	if !ok {
		refuse(w, http.StatusNotFound, "there is no snapshot "+strconv.Quote(clip(ref, 64))+"; this engine's other templates are its images")
		return
	}
	if err := e.shelf.drop(snap); err != nil {
		e.log.Error("something of a snapshot is left", "snapshot", snap.ID, "reason", err.Error())
		refuse(w, http.StatusInternalServerError, "the snapshot is deleted but something of it is left; the engine's log says what")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

type forkResult struct {
	Sandbox *sandboxBody `json:"sandbox,omitempty"`
	Error   *failure     `json:"error,omitempty"`
}

// serveFork makes copies of a box, which goes on itself. Each is a box of its
// own: another id, other tokens, its own time.
func (e *Engine) serveFork(w http.ResponseWriter, r *http.Request, b *box) {
	in := struct {
		Count   *int   `json:"count"`
		Timeout *int64 `json:"timeout"`
	}{}
	if !decode(w, r, &in) {
		return
	}
	count, o := 1, b.ordered()
	if in.Count != nil {
		count = *in.Count
	}
	if count < 1 || count > maxForks {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("count must be from 1 to %d", maxForks))
		return
	}
	var err error
	if o.life, err = lifetimeOr(in.Timeout, lifeV1); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	snap := &snapshot{Format: snapshotFormat, ID: dreamcore.NewSandboxID(), Kind: kindFork, Created: time.Now()}
	if err := e.takeSnapshot(context.WithoutCancel(r.Context()), b, snap); err != nil {
		e.refuseFreeze(w, b.id, "cannot fork a sandbox", err)
		return
	}
	o.from = snap
	answer(w, http.StatusCreated, e.forks(r.Context(), o, count))
	if err := e.shelf.drop(snap); err != nil {
		e.log.Error("something of a fork's snapshot is left", "sandbox_id", b.id, "reason", err.Error())
	}
}

func (e *Engine) forks(ctx context.Context, o order, count int) []forkResult {
	out := make([]forkResult, count)
	slots := make(chan struct{}, forksAtOnce)
	var wg sync.WaitGroup
	for i := range out {
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-slots; wg.Done() }()
			f, err := e.boot(ctx, o)
			if err != nil {
				e.log.Error("cannot start a fork", "snapshot", o.from.ID, "reason", err.Error())
				out[i].Error = &failure{Code: http.StatusInternalServerError, Message: publicText(err)}
				if errors.Is(err, errFull) {
					out[i].Error.Code = http.StatusTooManyRequests
				}
				return
			}
			body := f.body()
			out[i].Sandbox = &body
		}()
	}
	wg.Wait()
	return out
}

// pausedInfo is what a client is told of a paused box; its end is when it is
// removed.
func (e *Engine) pausedInfo(s *snapshot) infoBody {
	r := s.Box
	r.Ends = s.Created.Add(e.shelf.limits.Life)
	return r.info()
}

func (r record) template() string {
	if r.Template != "" {
		return r.Template
	}
	return r.Image
}

// lifecycleBody is what becomes of a box whose time is over.
type lifecycleBody struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

func lifecycle(pause, resume bool) *lifecycleBody {
	l := &lifecycleBody{"kill", resume}
	if pause {
		l.OnTimeout = "pause"
	}
	return l
}

// template is what the box was made of, in a client's words.
func (b *box) template() string {
	if b.order.template != "" {
		return b.order.template
	}
	return b.order.image.Digest
}
