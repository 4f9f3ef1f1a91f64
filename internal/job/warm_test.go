package job_test

import (
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/sandbox/sandboxfake"
)

// With a warm image the agent's box is made of it, and the verifier's is not.
// Only the first turn looks for an agent that waits, be it a new game's or a
// change's; here none waits, and one line says so.
func TestOnlyTheFirstTurnLooksForAWarmAgent(t *testing.T) {
	try(t, func(t *testing.T, w *world) {
		w.warm = "sha256:1+warm"
		images := map[string]string{}
		agent := w.agent
		w.agent = func(b *sandboxfake.Box, turn dreamcore.Turn) sandboxfake.Answer {
			images["agent"] = b.Spec.Image
			return agent(b, turn)
		}
		w.tool = func(b *sandboxfake.Box, _ string) (sandboxfake.Answer, bool) {
			images["verifier"] = b.Spec.Image
			return sandboxfake.Answer{}, false
		}
		w.run()
		j := w.ended(dreamcore.Published, "")
		if images["agent"] != "sha256:1+warm" || images["verifier"] != "sha256:1" {
			t.Errorf("boxes were made of %v", images)
		}
		if v, err := w.store.Version(t.Context(), j.Version); err != nil || v.Evidence.ImageDigest != "sha256:1" {
			t.Errorf("the evidence names image %q, %v", v.Evidence.ImageDigest, err)
		}
		const cold = "the agent is started anew"
		if got := w.log.String(); strings.Count(got, cold) != 1 || !strings.Contains(got, "turn=design agent=scripted decision=cold") {
			t.Errorf("the log says it %d times", strings.Count(got, cold))
		}
		w.jobID = w.submit(nil, j.Version)
		w.run()
		w.ended(dreamcore.Published, "")
		if got := w.log.String(); strings.Count(got, cold) != 2 || !strings.Contains(got, "turn=edit agent=scripted decision=cold") {
			t.Errorf("with the change the log says it %d times", strings.Count(got, cold))
		}
	})
}
