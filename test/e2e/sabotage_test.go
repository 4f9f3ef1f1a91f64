package e2e

import (
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/text"
)

// The stand-in model misbehaves on purpose; what is published must work, and
// what cannot be repaired must fail with its findings and publish nothing.
func TestAgentsThatMisbehave(t *testing.T) {
	cfg := settings(t)
	cfg.Jobs.TurnMinutes = 1 // for those that hang
	h := open(t, cfg)
	for _, c := range []struct {
		mode      string
		published bool // else it must fail
		either    bool
		repairs   int // at least
		findings  string
	}{
		{mode: "break", published: true, repairs: 1},
		{mode: "deaf", published: true, repairs: 1},
		{mode: "ruin", findings: "syntax"},
		{mode: "vanish", either: true},
		{mode: "crash", either: true},
		{mode: "fill", either: true},
		{mode: "hang", either: true},
	} {
		job := h.wish("a dog that collects bones [sabotage: " + c.mode + "]")
		t.Run(c.mode, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("%s", tail(h.log.String(), 6000))
				}
			})
			got := h.end(job.ID)
			game, err := h.Store.Game(t.Context(), got.Game)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case got.State == dreamcore.Published && (c.published || c.either):
				v, err := h.Store.Version(t.Context(), game.Current)
				if err != nil {
					t.Fatal(err)
				}
				if v.Evidence.Verdict() != dreamcore.Pass || v.Evidence.Repairs < c.repairs {
					t.Errorf("published with %s after %d repairs", v.Evidence.Verdict(), v.Evidence.Repairs)
				}
			case got.State == dreamcore.FailedJob && !c.published:
				if game.Current != "" {
					t.Errorf("a failed job published %s", game.Current)
				}
				if got.Error == "" || got.Error == text.T(got.Lang, "job.fault") {
					t.Errorf("it does not say why: %q", got.Error)
				}
				found := ""
				for _, f := range got.Findings {
					found += f.String() + "\n"
				}
				if !strings.Contains(strings.ToLower(found), c.findings) {
					t.Errorf("the findings are %q", found)
				}
			default:
				t.Errorf("ended as %s: %s %v", got.State, got.Error, got.Findings)
			}
			t.Logf("%s: %s %s", c.mode, got.State, got.Error)
		})
	}
	if n := h.boxes(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

func TestAFailedChangeLeavesTheFormerVersionCurrent(t *testing.T) {
	h := open(t, settings(t))
	first := h.wish("a rabbit in a forest")
	v1 := h.published(first.ID)
	change := func(wish string) dreamcore.Job {
		t.Helper()
		job, err := h.Studio.Change(t.Context(), creator, first.Game, wish, dreamcore.English)
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	if got := h.end(change("make it faster [sabotage: ruin]").ID); got.State != dreamcore.FailedJob || len(got.Findings) == 0 {
		t.Fatalf("ended as %s with %v", got.State, got.Findings)
	}
	game, err := h.Store.Game(t.Context(), first.Game)
	if err != nil || game.Current != v1.ID {
		t.Fatalf("the current version is %s, %v", game.Current, err)
	}
	v2 := h.published(change("make it faster and blue").ID)
	if v2.Number != 2 || v2.ID == v1.ID {
		t.Errorf("version %d %s", v2.Number, v2.ID)
	}
	if err := h.Studio.Restore(t.Context(), creator, first.Game, v1.ID); err != nil {
		t.Fatal(err)
	}
	if game, err = h.Store.Game(t.Context(), first.Game); err != nil || game.Current != v1.ID {
		t.Errorf("after going back the current version is %s, %v", game.Current, err)
	}
}
