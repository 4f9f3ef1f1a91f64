//go:build long

package e2e

import (
	"strings"
	"testing"

	"dreamcore"
)

// TestSoak makes 20 games in a row on one data folder; twice the host is killed
// with -9 in the middle of a job. At the end nothing is left.
func TestSoak(t *testing.T) {
	cfg := settings(t)
	ideas := []string{
		"a cat flies through the sky", "a racing game on the moon", "迷路里找宝藏的小狗", "3D penguin sliding down an ice mountain",
		"忍者が屋根を走るゲーム", "an octopus that collects pearls under the sea", "一只兔子在森林里躲避狐狸", "a robot shoots aliens in space",
		"パンダがりんごを集める", "a 3D island with a hidden treasure",
	}
	killedAt := map[int]string{6: "job.turn_build", 13: "job.verifying"}
	states := map[dreamcore.JobState]int{}
	for i := range 20 {
		wish := ideas[i%len(ideas)]
		var id dreamcore.JobID
		killed := killedAt[i] != ""
		if killed {
			id = killAt(t, cfg, wish, killedAt[i])
		}
		h := open(t, cfg)
		if !killed {
			id = h.wish(wish).ID
		}
		job := h.end(id)
		states[job.State]++
		if job.State != dreamcore.Published {
			t.Errorf("job %d (%s, killed %v) ended as %s: %s %v", i, wish, killed, job.State, job.Error, job.Findings)
		}
		if n := h.boxes(); n != 0 {
			t.Errorf("after job %d %d sandboxes are left", i, n)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if left := leftovers(t, cfg.Data); len(left) > 0 {
			t.Fatalf("after job %d this is left:\n%s", i, strings.Join(left, "\n"))
		}
		t.Logf("job %d: %s after %d attempts: %s", i, job.State, job.Attempt, wish)
	}
	t.Logf("%v", states)
}
