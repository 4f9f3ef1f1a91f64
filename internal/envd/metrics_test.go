package envd

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"
)

func TestMetrics(t *testing.T) {
	f := daemon(t)
	get := func() (m Metrics) {
		res, err := http.Get(f.url + MetricsPath)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(&m); err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res.Status, err)
		}
		return m
	}
	m := get()
	if m.CPUs < 1 || m.MemoryBytes <= 0 || m.UsedBytes <= 0 || m.UsedBytes > m.MemoryBytes || m.DiskBytes <= 0 || m.DiskUsed > m.DiskBytes || m.MemoryMiB != m.MemoryBytes>>20 {
		t.Errorf("got %+v", m)
	}
}

func TestCPUUse(t *testing.T) {
	var c cpuUse
	at := time.Unix(1000, 0)
	for _, x := range []struct {
		after, spent time.Duration
		want         float64
	}{
		{0, 10 * time.Second, 0}, // nothing to compare with
		{time.Second, 11 * time.Second, 50},
		{1100 * time.Millisecond, 90 * time.Second, 50}, // too soon
		{2 * time.Second, 11 * time.Second, 0},
		{3 * time.Second, 99 * time.Second, 100},
		{4 * time.Second, 5 * time.Second, 0}, // back in time: another machine, after a restore
	} {
		if got := c.since(at.Add(x.after), x.spent, 2); got != x.want {
			t.Errorf("after %s: %v, want %v", x.after, got, x.want)
		}
	}
}

func TestParseStat(t *testing.T) {
	spent, cpus, err := parseStat([]byte("cpu  1 2 3 400 500 6 7 8 900 1000\ncpu0 1 1 1 1\ncpu1 1\nintr 5\n"))
	if err != nil || cpus != 2 || spent != 270*time.Millisecond {
		t.Errorf("%s, %d, %v", spent, cpus, err)
	}
	for _, bad := range []string{"", "cpu\n", "cpu x\ncpu0 1\n", "cpu -1\ncpu0\n", "cpu 99999999999999999999\ncpu0\n", "cpu 9999999999999999\ncpu0\n", "cpu0 1\n"} {
		if _, _, err := parseStat([]byte(bad)); err == nil && bad != "cpu\n" {
			t.Errorf("%q was taken", bad)
		}
	}
}
