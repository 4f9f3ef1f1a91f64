package job_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/sandboxfake"
)

// operations are what a job without a template and with one repair asks of the
// world, in the words of gate.pass, up to its last moment before publishing.
var operations = []string{
	"create agent", "open", "write agent", "start mkdir agent", "start agent agent", "read agent",
	"start sh agent", "create verifier", "write verifier", "start toolkit verifier", "read verifier", "keep", "list", "close", "kill", "publish",
}

func (w *world) failFirst(op string, times int, err error) {
	w.fail = func(o string) error {
		if o == op && times > 0 {
			times--
			return err
		}
		return nil
	}
}

func TestASandboxThatIsLost(t *testing.T) {
	for _, at := range []dreamcore.Turn{dreamcore.Design, dreamcore.Build, dreamcore.Repair} {
		for _, times := range []int{1, 2} {
			t.Run(fmt.Sprint(at, times), func(t *testing.T) {
				try(t, func(t *testing.T, w *world) {
					lost := 0
					w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
						if turn == at && lost < times {
							lost++
							b.Die()
						}
						return w.goodAgent(b, turn)
					}
					refused := false
					w.tool = func(b *sandboxfake.Box, tool string) (sandboxfake.Answer, bool) {
						if at == dreamcore.Repair && tool == "check" && (!refused || lost < times) {
							refused = true
							return report(b, tool, []dreamcore.Finding{finding}), true
						}
						return sandboxfake.Answer{}, false
					}
					w.run()
					var j dreamcore.Job
					if times == 1 {
						j = w.ended(dreamcore.Published, "")
					} else {
						j = w.ended(dreamcore.FailedJob, "job.lost")
					}
					if j.Attempt != 2 || w.journal.count("boot agent") != 2 {
						t.Errorf("attempt %d with %d boots, want two of each", j.Attempt, w.journal.count("boot agent"))
					}
					afresh := 0
					for _, e := range w.events() {
						if e == "job.afresh" {
							afresh++
						}
					}
					if afresh != 1 {
						t.Errorf("the watchers were told %d times that it starts afresh", afresh)
					}
					// Each attempt's grant is closed as its own.
					if w.journal.count("close 1") != 1 || w.journal.count("close 2") != 1 {
						t.Errorf("journal: %q", w.journal.all())
					}
				})
			})
		}
	}
}

func TestCancelBeforeItBegins(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		if err := w.runner.Cancel(t.Context(), w.jobID); err != nil {
			t.Fatal(err)
		}
		w.run() // its turn in the queue comes
		w.ended(dreamcore.Cancelled, "job.cancelled")
		if got := w.journal.all(); len(got) != 0 {
			t.Errorf("something was done for it: %q", got)
		}
		if err := w.runner.Cancel(t.Context(), w.jobID); err != nil {
			t.Errorf("cancel it again: %v", err)
		}
		w.ended(dreamcore.Cancelled, "job.cancelled")
	})
}

func TestCancelAnEndedJobChangesNothing(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		w.run()
		if err := w.runner.Cancel(t.Context(), w.jobID); err != nil {
			t.Error(err)
		}
		w.ended(dreamcore.Published, "")
		if err := w.runner.Cancel(t.Context(), "no-such-job"); dreamcore.CodeOf(err) != dreamcore.NotFound {
			t.Errorf("cancel a job that is not: %v", err)
		}
	})
}

// TestCancelWhereverItStands cancels at the first moment of each operation,
// which then goes on as if nothing were: the job must stop of itself.
func TestCancelWhereverItStands(t *testing.T) {
	for _, op := range append([]string{"store update running"}, operations...) {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			try(t, func(t *testing.T, w *world) {
				done := false
				w.fail = func(o string) error {
					if o == op && !done {
						done = true
						if err := w.runner.Cancel(t.Context(), w.jobID); err != nil {
							t.Error(err)
						}
					}
					return nil
				}
				w.run()
				if !done {
					t.Fatal("nothing asks for this operation: the test tries nothing")
				}
				w.ended(dreamcore.Cancelled, "job.cancelled")
			})
		})
	}
}

func TestCancelWhatHangs(t *testing.T) {
	for _, hangs := range []string{"design", "build", "check", "playtest"} {
		t.Run(hangs, func(t *testing.T) {
			try(t, func(t *testing.T, w *world) {
				hang := func(what string) bool {
					if what == hangs {
						time.AfterFunc(time.Second, func() {
							if err := w.runner.Cancel(t.Context(), w.jobID); err != nil {
								t.Error(err)
							}
						})
						return true
					}
					return false
				}
				w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
					a := w.goodAgent(b, turn)
					a.Hang = hang(string(turn))
					return a
				}
				w.tool = func(_ *sandboxfake.Box, tool string) (sandboxfake.Answer, bool) {
					return sandboxfake.Answer{Hang: true}, hang(tool)
				}
				w.run()
				w.ended(dreamcore.Cancelled, "job.cancelled")
			})
		})
	}
}

func TestDeadline(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		w.limits.Turn, w.limits.Job = 2*time.Hour, 45*time.Minute
		w.runner = w.host(&host{})
		w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
			a := w.goodAgent(b, turn)
			a.Hang = turn == dreamcore.Build
			return a
		}
		w.run()
		j := w.ended(dreamcore.FailedJob, "job.deadline")
		if j.Usage.Requests != 7 {
			t.Errorf("what it used is not on record: %+v", j.Usage)
		}
		// The grant lives for a quarter of an hour and was kept fresh meanwhile.
		if n := w.journal.count("renew"); n < 8 {
			t.Errorf("the grant was renewed %d times in 45 minutes, want every 5", n)
		}
		if got := w.boxes.Booted()[0].Text("/home/user/.dreamcore/grant"); got != "the next grant" {
			t.Errorf("the box holds %q", got)
		}
	})
}

// TestAFaultOfOurs breaks each operation once, with an error and with a panic.
// Whatever then happens, the job ends, once, and leaves no sandbox.
func TestAFaultOfOurs(t *testing.T) {
	survives := map[string]bool{"list": true, "close": true, "kill": true, "read verifier": true,
		"start sh agent": true, // the first try to end the agent's processes; the second decides
	}
	for _, op := range append([]string{"store update running", "store job"}, operations...) {
		for _, panics := range []bool{false, true} {
			if panics && (op == "list" || op == "close" || op == "kill") {
				continue // not inside a step
			}
			t.Run(fmt.Sprint(op, ", panics ", panics), func(t *testing.T) {
				t.Parallel()
				try(t, func(t *testing.T, w *world) {
					broken := false
					w.fail = func(o string) error {
						if o != op || broken {
							return nil
						}
						broken = true
						if panics {
							panic("a bug at " + op)
						}
						return errors.New("broken " + op)
					}
					w.run()
					if !broken {
						t.Fatal("nothing asks for this operation: the test tries nothing")
					}
					switch {
					case op == "list":
						// Its own time to live ends the box that was not found.
						for _, b := range w.boxes.Living() {
							b.Die()
						}
						w.ended(dreamcore.Published, "")
					case survives[op] && !panics:
						w.ended(dreamcore.Published, "")
					default:
						w.ended(dreamcore.FailedJob, "job.fault")
					}
				})
			})
		}
	}
}

func TestEventsThatAreLostStopNothing(t *testing.T) {
	for name, err := range map[string]error{
		"full disk": errors.New("disk full"),
		"too many":  dreamcore.Errorf(dreamcore.Refused, "store.event", "too many"),
	} {
		t.Run(name, func(t *testing.T) {
			try(t, func(t *testing.T, w *world) {
				w.fail = func(op string) error {
					if op == "store event" {
						return err
					}
					return nil
				}
				w.run()
				if j := w.job(); j.State != dreamcore.Published {
					t.Errorf("the job is %s", j.State)
				}
				want := 1
				if name == "full disk" {
					want = 0
				}
				if got := strings.Count(w.log.String(), "too many events"); got != want {
					t.Errorf("the refusal is in the log %d times, want %d", got, want)
				}
			})
		})
	}
}

func TestMachinesThatAreNotReady(t *testing.T) {
	for _, code := range []dreamcore.Code{dreamcore.Missing, dreamcore.Unavailable} {
		try(t, func(t *testing.T, w *world) {
			w.failFirst("create agent", 1, dreamcore.Errorf(code, "engine", "no runsc"))
			w.run()
			w.ended(dreamcore.FailedJob, "job.not_ready")
		})
	}
}

// TestTheEndIsTriedAgain: a job that is never ended blocks its game for ever.
func TestTheEndIsTriedAgain(t *testing.T) {
	for op, times := range map[string]int{"store update failed": 4, "store update cancelled": 4} {
		t.Run(op, func(t *testing.T) {
			try(t, func(t *testing.T, w *world) {
				left := times
				w.fail = func(o string) error {
					if o == op && left > 0 {
						left--
						return errors.New("the disk is full")
					}
					return nil
				}
				w.agent = func(*sandboxfake.Box, dreamcore.Turn) sandboxfake.Answer {
					if op == "store update cancelled" {
						if err := w.runner.Cancel(t.Context(), w.jobID); err != nil {
							t.Error(err)
						}
					}
					return sandboxfake.Answer{Exit: sandbox.Exit{Code: 3}}
				}
				w.run()
				if left != 0 {
					t.Errorf("%d failures are left: it was not tried", left)
				}
				if op == "store update failed" {
					w.ended(dreamcore.FailedJob, "job.agent_failed")
				} else {
					w.ended(dreamcore.Cancelled, "job.cancelled")
				}
			})
		})
	}
}

// TestABadMomentOfTheStoreAtTheBegin: the store answers nothing for a second,
// and the job ends all the same.
func TestABadMomentOfTheStoreAtTheBegin(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		until := time.Now().Add(time.Second)
		w.fail = func(op string) error {
			if strings.HasPrefix(op, "store ") && time.Now().Before(until) {
				return errors.New("database is locked")
			}
			return nil
		}
		w.run()
		w.ended(dreamcore.FailedJob, "job.fault")
	})
}

func TestAbandon(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		if err := w.runner.Abandon(t.Context(), w.jobID); err != nil {
			t.Fatal(err)
		}
		w.ended(dreamcore.FailedJob, "job.fault")
		if err := w.runner.Abandon(t.Context(), "no-such-job"); dreamcore.CodeOf(err) != dreamcore.NotFound {
			t.Errorf("abandon a job that is not: %v", err)
		}
	})
}

// TestAPublishThatAnswersWithAnError: the version is there, only the answer was
// lost (a cancel at that very moment does it). The watchers learn what is true.
func TestAPublishThatAnswersWithAnError(t *testing.T) {
	for name, cancel := range map[string]bool{"cancelled": true, "broken": false} {
		t.Run(name, func(t *testing.T) {
			try(t, func(t *testing.T, w *world) {
				w.fail = func(op string) error {
					if op != "published" {
						return nil
					}
					if cancel {
						if err := w.runner.Cancel(t.Context(), w.jobID); err != nil {
							t.Error(err)
						}
						return context.Canceled
					}
					return errors.New("the answer was lost")
				}
				w.run()
				w.ended(dreamcore.Published, "")
			})
		})
	}
}

// TestPicturesThatAreNone: what a hostile game puts where a picture belongs
// must not look like a fault of ours.
func TestPicturesThatAreNone(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		w.tool = func(b *sandboxfake.Box, tool string) (sandboxfake.Answer, bool) {
			a := report(b, tool, nil)
			b.Put("/workspace/out/poster.png", "<script>alert(1)</script>")
			return a, true
		}
		w.run()
		j := w.ended(dreamcore.Published, "")
		v, err := w.store.Version(t.Context(), j.Version)
		if err != nil {
			t.Fatal(err)
		}
		if v.Evidence.Play.Poster != "" || v.Evidence.PictureHashes["poster.png"] != "" {
			t.Errorf("a script is kept as the poster: %+v", v.Evidence.PictureHashes)
		}
		if v.Evidence.Play.Idle != "idle.png" || len(v.Evidence.PictureHashes) != 3 {
			t.Errorf("the pictures that are good are gone: %+v", v.Evidence.PictureHashes)
		}
	})
}
