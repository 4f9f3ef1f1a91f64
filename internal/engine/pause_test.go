package engine_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// tally is a process that counts in memory and writes down how far it is.
const tally = `i=0; echo started; while :; do i=$((i+1)); echo $i > /workspace/count.new; mv /workspace/count.new /workspace/count; sleep 0.02; done`

func startTally(t *testing.T, sb sandbox.Sandbox) sandbox.Process {
	t.Helper()
	p, err := sb.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", tally}})
	if err != nil {
		t.Fatal(err)
	}
	if o := <-p.Events(); string(o.Data) != "started\n" {
		t.Fatalf("got %q", o.Data)
	}
	return p
}

func count(t *testing.T, sb sandbox.Sandbox) int {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		data, err := sb.ReadFile(ctxOf(t), "/workspace/count", 100)
		if err == nil {
			n, err := strconv.Atoi(strings.TrimSpace(string(data)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// counts waits until what startTally started goes on counting.
func counts(t *testing.T, sb sandbox.Sandbox) {
	t.Helper()
	first := count(t, sb)
	for deadline := time.Now().Add(patience); count(t, sb) == first; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not count any more, from %d on", first)
		}
	}
}

// must makes a request of the control plane that has to have that answer.
func (c client) must(want int, method, path, body string) map[string]any {
	c.tb.Helper()
	status, m := c.api(method, path, body)
	if status != want {
		c.tb.Fatalf("%s %s: %d %v", method, path, status, m)
	}
	return m
}

// state is what a list says of the box; "" when it is not on it.
func (c client) state(id dreamcore.SandboxID) string {
	c.tb.Helper()
	_, m := c.api("GET", "/sandboxes/"+string(id), "")
	s, _ := m["state"].(string)
	return s
}

// What ran before a pause runs after it: processes with their memory, files,
// variables; streams break; nothing of it is on the machine meanwhile.
func TestPause(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	sb := boot(t, e, func(s *sandbox.Spec) { s.Env = map[string]string{"COLOUR": "green"} })
	id := string(sb.ID())
	p := startTally(t, sb)
	if err := sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/workspace/kept", Data: []byte("kept")}, {Path: "/var/kept", Data: []byte("too"), Owner: sandbox.Root}}); err != nil {
		t.Fatal(err)
	}
	before := count(t, sb)
	c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", `{}`)
	if exit, err := p.Wait(ctxOf(t)); err == nil || !strings.Contains(err.Error(), "was paused") {
		t.Errorf("the stream of a paused box ended with %+v, %v", exit, err)
	}
	nothing(t, e.Dir)
	if s := c.state(sb.ID()); s != "paused" {
		t.Errorf("state %q", s)
	}
	c.must(http.StatusConflict, "POST", "/sandboxes/"+id+"/pause", `{}`)
	if status, _, text := c.do("GET", "/health", "", "E2b-Sandbox-Id", id); status != http.StatusBadGateway || !strings.Contains(text, "paused") {
		t.Errorf("a paused box answers %d %s", status, text)
	}
	m := c.must(http.StatusCreated, "POST", "/v2/sandboxes/"+id+"/connect", `{"timeout":300}`)
	if m["sandboxID"] != id {
		t.Errorf("resumed as %v", m["sandboxID"])
	}
	if after := count(t, sb); after < before {
		t.Errorf("it counted to %d before and to %d after the pause", before, after)
	}
	counts(t, sb)
	if got := sh(t, sb, sandbox.User, "echo $COLOUR; cat /workspace/kept /var/kept; hostname"); got != "green\nkepttoosandbox" {
		t.Errorf("got %q", got)
	}
	now, err := strconv.ParseInt(sh(t, sb, sandbox.User, "date +%s"), 10, 64)
	if err != nil || time.Since(time.Unix(now, 0)).Abs() > patience {
		t.Errorf("it is %v in the box (%v)", time.Unix(now, 0), err)
	}
	c.must(http.StatusOK, "POST", "/sandboxes/"+id+"/connect", `{"timeout":300}`)
	c.must(http.StatusConflict, "POST", "/sandboxes/"+id+"/resume", `{"timeout":300}`)
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	nothing(t, e.Dir)
}

// The same box, paused and resumed many times, never counts backwards and leaves
// nothing behind.
func TestPauseManyTimes(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	sb := boot(t, e)
	id := string(sb.ID())
	startTally(t, sb)
	last := 0
	for i := range 20 {
		c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", ``)
		begun := time.Now()
		c.must(http.StatusCreated, "POST", "/sandboxes/"+id+"/resume", `{"timeout":300}`)
		t.Log("resume", time.Since(begun))
		n := count(t, sb)
		if n < last {
			t.Fatalf("round %d: from %d to %d", i, last, n)
		}
		last = n
	}
	if got := sh(t, sb, sandbox.Root, "pgrep -fc 'count.new'"); got == "0" {
		t.Error("the tally is gone")
	}
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	nothing(t, e.Dir)
}
