package e2e

import "testing"

// BenchmarkJob makes a game and tells where the time goes: the host's own share
// is the job's time less the agent's and the verifier's.
func BenchmarkJob(b *testing.B) {
	h := open(b, settings(b))
	var job, agent, verify, host int64
	for b.Loop() {
		t := h.published(h.wish("a cat flies through the sky").ID).Evidence.Timing
		job, agent, verify, host = job+t.JobMS, agent+t.AgentMS, verify+t.VerifyMS, host+t.HostMS
	}
	n := float64(b.N)
	b.ReportMetric(float64(job)/n, "job-ms/op")
	b.ReportMetric(float64(agent)/n, "agent-ms/op")
	b.ReportMetric(float64(verify)/n, "verify-ms/op")
	b.ReportMetric(float64(host)/n, "host-ms/op")
	b.ReportMetric(float64(host)/float64(job), "host/job")
}
