package store

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"dreamcore"
)

// TestJobStates tries random walks: whatever is asked, a job that ended stays
// as it is, its attempt never falls, and it never becomes published this way.
func TestJobStates(t *testing.T) {
	states := []dreamcore.JobState{dreamcore.Queued, dreamcore.Running, dreamcore.Published, dreamcore.FailedJob, dreamcore.Cancelled, "odd"}
	rapid.Check(t, func(t *rapid.T) {
		job := dreamcore.Job{ID: "j", State: dreamcore.Queued}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			before := job
			want := rapid.SampledFrom(states).Draw(t, "state")
			raise := rapid.IntRange(-1, 1).Draw(t, "raise")
			asked := rapid.IntRange(0, 2).Draw(t, "attempt")
			next, same, err := Change(job, asked, time.Unix(1, 0), func(j *dreamcore.Job) error {
				j.State, j.Attempt = want, j.Attempt+raise
				return nil
			})
			if err == nil && !same {
				job = next
			}
			switch {
			case job.State == dreamcore.Published || job.State == "odd":
				t.Fatalf("became %s", job.State)
			case job.Attempt < before.Attempt:
				t.Fatal("the attempt fell")
			case before.State.Ended() && (job.State != before.State || job.Attempt != before.Attempt):
				t.Fatal("an ended job changed")
			case asked != 0 && asked != before.Attempt && err == nil:
				t.Fatal("a stale attempt could write")
			case job.State.Ended() == job.Ended.IsZero():
				t.Fatal("Ended does not agree with the state")
			}
		}
	})
}

func TestCutText(t *testing.T) {
	for _, s := range []string{"", "abc", strings.Repeat("a", 100), strings.Repeat("猫", 40), strings.Repeat("😀", 30), strings.Repeat("\xff", 100)} {
		got := CutText(s, 50)
		if len(got) > 50 {
			t.Errorf("%d bytes", len(got))
		}
		if len(s) <= 50 && got != s {
			t.Errorf("a short text was cut: %q", got)
		}
		if utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("a rune was cut in two: %q", got)
		}
	}
}
