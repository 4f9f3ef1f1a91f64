package engine

import (
	"testing"
	"time"
)

// A box's whole life stays in view, in a bounded number of samples.
func TestHistoryIsBounded(t *testing.T) {
	var h history
	begin := time.Unix(1_000_000, 0)
	const n = 24 * 3600 / 5
	for i := range n {
		h.add(sample{at: begin.Add(time.Duration(i) * sampleEvery), memory: int64(i)})
		if len(h.all) > maxSamples {
			t.Fatalf("%d samples", len(h.all))
		}
	}
	all := h.between(time.Time{}, begin.Add(48*time.Hour))
	if len(all) < maxSamples/2 || !all[0].at.Equal(begin) || all[len(all)-1].memory != n-1 {
		t.Errorf("%d samples from %v to %v", len(all), all[0].at, all[len(all)-1].at)
	}
	for i := 1; i < len(all); i++ {
		if gap := all[i].at.Sub(all[i-1].at); gap <= 0 || gap > 4*h.step {
			t.Fatalf("a gap of %v", gap)
		}
	}
	part := h.between(begin.Add(time.Hour), begin.Add(2*time.Hour))
	if len(part) == 0 || part[0].at.Before(begin.Add(time.Hour)) || part[len(part)-1].at.After(begin.Add(2*time.Hour)) {
		t.Errorf("%d samples of one hour", len(part))
	}
	if got := h.between(begin.Add(-time.Hour), begin.Add(-time.Second)); len(got) != 0 {
		t.Errorf("%d samples of before it began", len(got))
	}
	// Samples that come too soon are seen as the latest, not kept.
	var quick history
	for i := range 50 {
		quick.add(sample{at: begin.Add(time.Duration(i) * 20 * time.Millisecond), memory: int64(i)})
	}
	if got := quick.between(time.Time{}, begin.Add(time.Hour)); len(got) != 2 || got[1].memory != 49 {
		t.Errorf("%d samples of a second", len(got))
	}
}
