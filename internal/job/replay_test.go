package job_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/sandbox/sandboxfake"
)

// memory is Steps as DBOS keeps them: by their order, each with its name. The
// host ends around one of them.
type memory struct {
	t    *testing.T
	done []remembered
	at   int // of this life

	endAt  int    // the step, counted from 1, at which the host ends; 0: never
	forget bool   // the step's work is done but not remembered
	end    func() // ends the host
	ended  bool
}

type remembered struct {
	name string
	raw  []byte
}

func (m *memory) Do(ctx context.Context, name string, f func() ([]byte, error)) ([]byte, error) {
	if m.ended {
		return nil, errKilled
	}
	m.at++
	if m.at <= len(m.done) {
		d := m.done[m.at-1]
		if d.name != name {
			m.t.Errorf("step %d is %q after the restart and was %q before: the job does not follow from its steps", m.at, name, d.name)
		}
		return d.raw, nil
	}
	raw, err := f()
	if err != nil {
		return nil, err
	}
	here := m.at == m.endAt
	if !here || !m.forget {
		m.done = append(m.done, remembered{name, raw})
	}
	if here {
		m.ended = true
		m.end()
		return nil, errKilled
	}
	return raw, nil
}

// again is the memory at the next start.
func (m *memory) again() *memory { return &memory{t: m.t, done: m.done} }

func (m *memory) names() []string {
	var names []string
	for _, d := range m.done {
		names = append(names, d.name)
	}
	return names
}

// live runs the job in one life of the host, which ends as the memory says.
func (w *world) live(m *memory, kill bool) error {
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	h := &host{}
	w.runner = w.host(h)
	m.end = func() {
		if kill {
			h.kill()
		}
		stop() // unwinds the goroutines, which a killed host does not need to
	}
	return w.runner.Run(ctx, m, w.jobID)
}

// prepareRefusal lets verification refuse the game once, so that a repair is
// among the steps.
func (w *world) prepareRefusal() {
	w.tool = func(b *sandboxfake.Box, tool string) (sandboxfake.Answer, bool) {
		if tool == "check" && w.repaired == 0 {
			return report(b, tool, []dreamcore.Finding{finding}), true
		}
		return sandboxfake.Answer{}, false
	}
}

var allSteps = []string{"begin-1", "boot", "materials", "design", "deliver", "build", "verify-0", "repair-1", "verify-1", "publish"}

// TestTheHostEndsAtEachStep ends the host at every step of a job: killed, with
// the sandboxes alive or dead after it, or stopped in good order; with the step
// remembered or only its work done. The job goes on and ends exactly once.
func TestTheHostEndsAtEachStep(t *testing.T) {
	var whole []string
	try(t, func(t *testing.T, w *world) {
		w.prepareRefusal()
		m := &memory{t: t}
		if err := w.live(m, false); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(m.names(), allSteps) {
			t.Fatalf("the steps are %q, and the table below has %q", m.names(), allSteps)
		}
		whole = w.events()
	})
	for i, step := range allSteps {
		for _, how := range []string{"killed, boxes live", "killed, boxes die", "stopped"} {
			for _, forget := range []bool{false, true} {
				if forget && how == "killed, boxes die" {
					continue // the same as the step before, remembered
				}
				t.Run(fmt.Sprintf("%s, %s, forgotten %v", step, how, forget), func(t *testing.T) {
					t.Parallel()
					try(t, func(t *testing.T, w *world) {
						w.prepareRefusal()
						m := &memory{t: t, endAt: i + 1, forget: forget}
						if err := w.live(m, how != "stopped"); err == nil {
							t.Fatal("a host that ends must say that the job goes on")
						}
						if got := w.job().State; got.Ended() != (step == "publish") {
							t.Fatalf("the job is %s while the host is down", got)
						}
						if how == "killed, boxes die" {
							for _, b := range w.boxes.Living() {
								b.Die()
							}
						}
						before := w.journal.all()
						m = m.again()
						if err := w.live(m, false); err != nil {
							t.Fatal(err)
						}
						j := w.ended(dreamcore.Published, "")
						if n := w.journal.count("publish"); n < 1 || (n > 1 && !forget) {
							t.Errorf("published %d times", n)
						}
						if how == "killed, boxes live" && !forget {
							// Nothing that had finished runs again.
							for _, line := range []string{"boot agent", "open", "turn design", "turn build", "turn repair"} {
								if n := w.journal.count(line); n != 1 {
									t.Errorf("%q happened %d times; before the restart: %q, all: %q", line, n, before, w.journal.all())
								}
							}
							if n := w.journal.count("boot verifier"); n != 2 {
								t.Errorf("%d judgements, want 2", n)
							}
							if j.Attempt != 1 {
								t.Errorf("attempt %d though the box lived", j.Attempt)
							}
						}
						if how == "killed, boxes live" && !forget {
							if got := w.events(); !slices.Equal(got, whole) {
								t.Errorf("the watchers saw %q, want what they see without a restart: %q", got, whole)
							}
						}
						if j.Attempt > 2 {
							t.Errorf("attempt %d", j.Attempt)
						}
						versions, err := w.store.Versions(t.Context(), j.Game)
						if err != nil {
							t.Fatal(err)
						}
						if len(versions) != 1 {
							t.Errorf("%d versions", len(versions))
						}

						// A third start, as when the end itself was not remembered: a replay from the top.
						third := w.journal.all()
						if err := w.live(m.again(), false); err != nil {
							t.Fatal(err)
						}
						w.ended(dreamcore.Published, "")
						for _, line := range w.journal.all()[len(third):] {
							if !strings.HasPrefix(line, "close ") {
								t.Errorf("a job that had ended did %q", line)
							}
						}
					})
				})
			}
		}
	}
}

// TestAFailureIsReplayed: so does a job that ended without a version.
func TestAFailureIsReplayed(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		w.tool = func(b *sandboxfake.Box, tool string) (sandboxfake.Answer, bool) {
			return report(b, tool, []dreamcore.Finding{finding}), true
		}
		m := &memory{t: t}
		if err := w.live(m, false); err != nil {
			t.Fatal(err)
		}
		j := w.ended(dreamcore.FailedJob, "job.refused")
		events, journal := w.events(), w.journal.all()
		if err := w.live(m.again(), false); err != nil {
			t.Fatal(err)
		}
		again := w.ended(dreamcore.FailedJob, "job.refused")
		if !again.Ended.Equal(j.Ended) || len(again.Findings) != len(j.Findings) {
			t.Error("the end was written anew")
		}
		if got := w.events(); !slices.Equal(got, events) {
			t.Errorf("the watchers are told more after the end: %q", got[len(events):])
		}
		for _, line := range w.journal.all()[len(journal):] {
			if !strings.HasPrefix(line, "close ") {
				t.Errorf("a job that had ended did %q", line)
			}
		}
	})
}

// TestCancelBetweenTwoLives: the host was killed, and the creator cancels before
// the job goes on. It must not go on.
func TestCancelBetweenTwoLives(t *testing.T) {
	for i, step := range allSteps[:len(allSteps)-1] {
		t.Run(step, func(t *testing.T) {
			try(t, func(t *testing.T, w *world) {
				w.prepareRefusal()
				m := &memory{t: t, endAt: i + 1}
				if err := w.live(m, true); err == nil {
					t.Fatal("a host that ends must say that the job goes on")
				}
				w.runner = w.host(&host{})
				if err := w.runner.Cancel(t.Context(), w.jobID); err != nil {
					t.Fatal(err)
				}
				before := w.journal.all()
				if err := w.live(m.again(), false); err != nil {
					t.Fatal(err)
				}
				w.ended(dreamcore.Cancelled, "job.cancelled")
				for _, line := range w.journal.all()[len(before):] {
					if line != "close 1" && line != "kill agent" {
						t.Errorf("a cancelled job went on with %q", line)
					}
				}
			})
		})
	}
}

// TestKilledAgainAndAgain: a host that is killed in each of its lives, and takes
// the sandboxes with it, still ends the job.
func TestKilledAgainAndAgain(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		m := &memory{t: t}
		for life := 1; ; life++ {
			if life > 50 {
				t.Fatal("the job never ends")
			}
			m = m.again()
			m.endAt = len(m.done) + 1
			err := w.live(m, true)
			if err == nil {
				break
			}
			for _, b := range w.boxes.Living() {
				b.Die()
			}
			if w.job().State.Ended() {
				m = m.again()
				if err := w.live(m, false); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		w.ended(dreamcore.FailedJob, "job.lost")
	})
}
