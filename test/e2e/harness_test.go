// Package e2e runs the whole program with its real parts: sandboxes, agent CLI,
// key proxy, verifier with a browser, store, servers.
package e2e

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/app"
	"dreamcore/internal/config"
	"dreamcore/internal/store"
)

// patience bounds what should take about a minute.
const patience = 8 * time.Minute

const creator = dreamcore.CreatorID("tester")

// freeAddress returns a loopback address that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// settings are those of a service of its own in a folder of its own.
func settings(t testing.TB) config.Config {
	t.Helper()
	c, err := config.Load("", func(c *config.Config) {
		c.Data = filepath.Join(t.TempDir(), "data")
		c.App = config.Listener{Listen: freeAddress(t)}
		c.Games = config.Listener{Listen: freeAddress(t)}
		c.Model.TestMarkers = true
		c.Jobs.PerCreator = 50
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// logbook keeps a service's log for looking at.
type logbook struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// house is a service that runs for one test.
type house struct {
	*app.Service
	t   testing.TB
	cfg config.Config
	log *logbook
}

func open(t testing.TB, cfg config.Config) *house {
	t.Helper()
	h := &house{t: t, cfg: cfg, log: &logbook{}}
	var to io.Writer = h.log
	if os.Getenv("DREAMCORE_TEST_LOG") != "" {
		to = io.MultiWriter(h.log, os.Stderr)
	}
	h.Service = app.New(cfg, slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err := h.Open(t.Context()); err != nil {
		t.Fatalf("open: %v (run `make setup` once)", err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Logf("the service's log:\n%s", tail(h.log.String(), 20000))
		}
	})
	return h
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// wish starts a job.
func (h *house) wish(text string) dreamcore.Job {
	h.t.Helper()
	_, job, err := h.Studio.Make(h.t.Context(), creator, text, dreamcore.English)
	if err != nil {
		h.t.Fatal(err)
	}
	return job
}

// until waits for an event of the job and returns it; an ended job that never
// had it is a failure.
func (h *house) until(id dreamcore.JobID, what string, is func(dreamcore.Event) bool) dreamcore.Event {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	e, err := waitEvent(ctx, h.Store, id, is)
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	return e
}

func waitEvent(ctx context.Context, s store.Store, id dreamcore.JobID, is func(dreamcore.Event) bool) (dreamcore.Event, error) {
	changed, stop := s.Watch(id)
	defer stop()
	after := int64(0)
	for {
		events, err := s.Events(ctx, id, after, 1000)
		if err != nil {
			return dreamcore.Event{}, err
		}
		for _, e := range events {
			after = e.Seq
			if is(e) {
				return e, nil
			}
			if ended(e) {
				return e, fmt.Errorf("the job ended as %s before that", e.Text)
			}
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return dreamcore.Event{}, ctx.Err()
		case <-changed:
		}
	}
}

func ended(e dreamcore.Event) bool {
	return e.Kind == dreamcore.EventState && dreamcore.JobState(e.Text).Ended()
}

// end waits for the job's end and returns it.
func (h *house) end(id dreamcore.JobID) dreamcore.Job {
	h.t.Helper()
	h.until(id, "the job's end", ended)
	job, err := h.Store.Job(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return job
}

// published waits for the end and demands a version.
func (h *house) published(id dreamcore.JobID) dreamcore.Version {
	h.t.Helper()
	job := h.end(id)
	if job.State != dreamcore.Published {
		h.t.Fatalf("the job for %q ended as %s: %s\n%v", job.Wish, job.State, job.Error, job.Findings)
	}
	game, err := h.Store.Game(h.t.Context(), job.Game)
	if err != nil {
		h.t.Fatal(err)
	}
	v, err := h.Store.Version(h.t.Context(), game.Current)
	if err != nil {
		h.t.Fatal(err)
	}
	if v.Job != id {
		h.t.Fatalf("the current version is of job %s, not of %s", v.Job, id)
	}
	return v
}

// boxes lists the living sandboxes.
func (h *house) boxes() int {
	h.t.Helper()
	all, err := h.Sandboxes.List(h.t.Context(), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return len(all)
}
