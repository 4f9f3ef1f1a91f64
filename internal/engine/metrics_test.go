package engine_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

type metric struct {
	Timestamp                                        time.Time
	TimestampUnix                                    int64
	CPUCount                                         int
	CPUUsedPct                                       float64
	MemUsed, MemTotal, MemCache, DiskUsed, DiskTotal int64
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t)
	c := client{t, e}
	sb := boot(t, e)
	get := func(query string) []metric {
		t.Helper()
		status, _, body := c.do("GET", "/sandboxes/"+string(sb.ID())+"/metrics"+query, "", "X-API-KEY", enginetest.APIKey)
		var all []metric
		if err := json.Unmarshal([]byte(body), &all); status != http.StatusOK || err != nil {
			t.Fatalf("%s: %d %s (%v)", query, status, body, err)
		}
		return all
	}
	before := get("")
	if len(before) != 1 || before[0].MemTotal != 1<<30 || before[0].DiskTotal != 256<<20 || before[0].MemUsed < 1<<20 || before[0].CPUCount != 2 ||
		before[0].TimestampUnix != before[0].Timestamp.Unix() || time.Since(before[0].Timestamp) > time.Minute {
		t.Errorf("at first: %+v", before)
	}
	sh(t, sb, sandbox.User, "head -c 50000000 /dev/zero >/workspace/big; head -c 30000000 /dev/zero >~/big; timeout 2 sh -c 'while :; do :; done'")
	after := get("")
	last := after[len(after)-1]
	if last.CPUUsedPct <= 0 || last.CPUUsedPct > 100 {
		t.Errorf("a busy box used %v %%", last.CPUUsedPct)
	}
	if last.DiskUsed-before[0].DiskUsed < 80_000_000 || last.MemUsed-before[0].MemUsed < 40_000_000 {
		t.Errorf("50 MB more in memory, 30 MB in the root: %+v, before %+v", last, before[0])
	}
	// The samples come by themselves too.
	for deadline := time.Now().Add(patience); len(get("")) < 3; time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			t.Fatal("no sample was taken")
		}
	}
	for i, all := 1, get(""); i < len(all); i++ {
		if !all[i].Timestamp.After(all[i-1].Timestamp) {
			t.Errorf("sample %d is not later than the one before", i)
		}
	}
	now := time.Now().Unix()
	if got := get(fmt.Sprintf("?start=%d&end=%d", now-3600, now-1800)); len(got) != 0 {
		t.Errorf("before it began: %+v", got)
	}
	if got := get(fmt.Sprintf("?start=%d&end=%d", now-60, now+60)); len(got) < 2 {
		t.Errorf("of the last minute: %+v", got)
	}
	for _, bad := range []string{"?start=x", "?end=-1", "?start=99999999999999999999", fmt.Sprintf("?start=%d&end=%d", now, now-1)} {
		if status, m := c.api("GET", "/sandboxes/"+string(sb.ID())+"/metrics"+bad, ""); status != http.StatusBadRequest || m["code"] != float64(400) {
			t.Errorf("%s: %d %v", bad, status, m)
		}
	}

	other := boot(t, e)
	status, m := c.api("GET", "/sandboxes/metrics?sandbox_ids="+string(sb.ID())+","+string(other.ID())+",nobody", "")
	boxes, _ := m["sandboxes"].(map[string]any)
	if status != http.StatusOK || len(boxes) != 2 || boxes[string(sb.ID())] == nil || boxes[string(other.ID())] == nil {
		t.Errorf("of two: %d %v", status, m)
	}
	for _, bad := range []string{"", "?sandbox_ids=", "?sandbox_ids=" + strings.Repeat("a,", 200)} {
		if status, _ := c.api("GET", "/sandboxes/metrics"+bad, ""); status != http.StatusBadRequest {
			t.Errorf("%q: %d", bad, status)
		}
	}
	if status, _ := c.api("GET", "/sandboxes/nobody/metrics", ""); status != http.StatusNotFound {
		t.Errorf("of nobody: %d", status)
	}
}

// A box that nobody uses ends; one in which something runs, or that somebody asks,
// does not.
func TestIdleBoxEnds(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(c *engine.Config) { c.IdleTimeout = 2 * time.Second })
	c := client{t, e}
	idle, busy := boot(t, e), boot(t, e)
	// It runs on without anybody who listens to it.
	sh(t, busy, sandbox.User, "setsid sleep 1000 >/dev/null 2>&1 </dev/null & disown")
	dead := func(sb sandbox.Sandbox) bool {
		status, _ := c.api("GET", "/sandboxes/"+string(sb.ID()), "")
		return status == http.StatusNotFound
	}
	await := func(sb sandbox.Sandbox) {
		t.Helper()
		for deadline := time.Now().Add(patience); !dead(sb); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("an idle box lives on")
			}
		}
		if _, _, body := c.do("GET", "/health", "", "E2b-Sandbox-Id", string(sb.ID())); !strings.Contains(body, `"reason":"idle"`) {
			t.Errorf("it ended as %s", body)
		}
	}
	await(idle)
	if dead(busy) {
		t.Fatal("a box in which a program runs was ended")
	}
	// A stream that is open is use.
	p, err := busy.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", "pkill sleep; echo killed; read x"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if o := <-p.Events(); string(o.Data) != "killed\n" {
		t.Fatalf("got %q", o.Data)
	}
	if err := p.Signal(ctxOf(t), "SIGKILL"); err != nil {
		t.Fatal(err)
	}
	await(busy)
	nothing(t, e.Dir)
}
