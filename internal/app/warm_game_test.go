package app

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/agent"
	"dreamcore/internal/config"
)

// gamePatience bounds what takes half a minute on a quiet machine.
const gamePatience = 8 * time.Minute

// logbook is a log to look into.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines are those that hold every text.
func (l *logbook) lines(texts ...string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
next:
	for line := range strings.Lines(l.buf.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		all = append(all, line)
	}
	return all
}

// serving is a whole service in a folder of its own.
func serving(t *testing.T, change func(*Service)) (*Service, *logbook) {
	t.Helper()
	cfg, err := config.Load("", func(c *config.Config) {
		c.Data = filepath.Join(t.TempDir(), "data")
		c.App, c.Games = config.Listener{Listen: free(t)}, config.Listener{Listen: free(t)}
	})
	if err != nil {
		t.Fatal(err)
	}
	log := &logbook{}
	s := New(cfg, slog.New(slog.NewTextHandler(log, nil)))
	if change != nil {
		change(s)
	}
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the service's log:\n%s", strings.Join(log.lines(), ""))
		}
	})
	return s, log
}

// until waits until the log holds a line with every text.
func (l *logbook) until(t *testing.T, texts ...string) {
	t.Helper()
	for deadline := time.Now().Add(gamePatience); len(l.lines(texts...)) == 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log never said %q", texts)
		}
	}
}

// play makes a game and returns its job once that has ended.
func (s *Service) play(t *testing.T, wish string) dreamcore.Job {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), gamePatience)
	defer cancel()
	_, j, err := s.Studio.Make(ctx, "tester", wish, dreamcore.English)
	if err != nil {
		t.Fatal(err)
	}
	changed, stop := s.Store.Watch(j.ID)
	defer stop()
	for {
		if j, err = s.Store.Job(ctx, j.ID); err != nil {
			t.Fatal(err)
		}
		if j.State.Ended() {
			return j
		}
		select {
		case <-changed:
		case <-time.After(time.Second):
		case <-ctx.Done():
			t.Fatal("the job does not end")
		}
	}
}

// A game is made in a box that was restored with the agent started, by the real
// agent through the real key proxy; the turns after the first start it anew.
func TestAWarmBoxMakesAGame(t *testing.T) {
	t.Parallel()
	s, log := serving(t, nil)
	log.until(t, `msg="made a warm state"`)
	j := s.play(t, "a cat flies through the sky")
	if j.State != dreamcore.Published {
		t.Fatalf("the job ended as %s: %s", j.State, j.Error)
	}
	of := "job_id=" + string(j.ID)
	if got := log.lines("the agent was started ahead", of); len(got) != 1 || !strings.Contains(got[0], "turn=design") || !strings.Contains(got[0], "decision=warm") {
		t.Errorf("the decisions for warm turns: %q", got)
	}
	if got := log.lines("the agent is started anew", of); len(got) != 0 {
		t.Errorf("a turn was cold unwanted: %q", got)
	}
	if got := log.lines(`msg="turn ended"`, of); len(got) < 2 {
		t.Errorf("the turns: %q", got)
	}
}

// deaf is an agent whose warm-up is ready and then does not do as it is told.
type deaf struct{ agent.Pi }

func (deaf) Warmup() agent.Warmup {
	return agent.Warmup{Args: []string{"/bin/sh", "-c", "echo ready; read x; echo '{'; echo garbage >&2; exit 3"}, Tag: "agent", Ready: "ready"}
}

// With a warm agent that is of no use the game is made all the same, with one
// that is started anew, and one line says why.
func TestABrokenWarmAgentIsReplaced(t *testing.T) {
	t.Parallel()
	s, log := serving(t, func(s *Service) { s.agent = deaf{} })
	log.until(t, `msg="made a warm state"`)
	j := s.play(t, "a cat flies through the sky")
	if j.State != dreamcore.Published {
		t.Fatalf("the job ended as %s: %s", j.State, j.Error)
	}
	of := "job_id=" + string(j.ID)
	if got := log.lines("the agent is started anew", of); len(got) != 1 || !strings.Contains(got[0], "turn=design") || !strings.Contains(got[0], "garbage") {
		t.Errorf("the decisions: %q", got)
	}
	if got := log.lines("the agent was started ahead", of); len(got) != 0 {
		t.Errorf("a turn was warm: %q", got)
	}
}
