package engine_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
	"dreamcore/internal/sandbox"
)

// fork makes n copies and returns their ids and tokens.
func (c client) fork(id string, n int) (all []kept) {
	c.tb.Helper()
	status, _, text := c.do("POST", "/sandboxes/"+id+"/fork", fmt.Sprintf(`{"count":%d,"timeout":300}`, n), "X-API-KEY", enginetest.APIKey)
	var got []struct {
		Sandbox *struct{ SandboxID, EnvdAccessToken string }
		Error   *struct{ Message string }
	}
	if err := json.Unmarshal([]byte(text), &got); status != http.StatusCreated || err != nil || len(got) != n {
		c.tb.Fatalf("fork: %d %s (%v)", status, text, err)
	}
	for _, g := range got {
		if g.Sandbox == nil {
			c.tb.Fatalf("a fork failed: %s", text)
		}
		all = append(all, kept{ID: g.Sandbox.SandboxID, Token: g.Sandbox.EnvdAccessToken})
	}
	return all
}

func (c client) connected(id string) sandbox.Sandbox {
	c.tb.Helper()
	sb, err := c.e.Provider.Connect(ctxOf(c.tb), dreamcore.SandboxID(id))
	if err != nil {
		c.tb.Fatal(err)
	}
	return sb
}

func (c client) token(id string) string {
	c.tb.Helper()
	t, _ := c.must(http.StatusOK, "GET", "/sandboxes/"+id, "")["envdAccessToken"].(string)
	return t
}

// Copies of a box go on by themselves from where it was, with an open terminal
// and a process that counts; the box goes on too. None can be opened with what
// opens another.
func TestFork(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	sb := boot(t, e, func(s *sandbox.Spec) {
		s.Env, s.Metadata = map[string]string{"COLOUR": "green"}, map[string]string{"a": "b"}
	})
	parent := kept{ID: string(sb.ID()), Token: c.token(string(sb.ID()))}
	startTally(t, sb)
	start := connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-i"}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: 80, Rows: 24}},
	})
	start.Header().Set("X-Access-Token", parent.Token)
	start.Header().Set("E2b-Sandbox-Id", parent.ID)
	rpc := processconnect.NewProcessClient(http.DefaultClient, e.URL)
	terminal, err := rpc.Start(ctxOf(t), start)
	if err != nil || !terminal.Receive() {
		t.Fatal(err, terminal.Err())
	}
	parent.PID = int(terminal.Msg().GetEvent().GetStart().GetPid())
	before := count(t, sb)
	forks := c.fork(parent.ID, 3)
	for terminal.Receive() {
	}
	if terminal.Err() == nil {
		t.Error("the stream of a box that was forked ended as if the terminal had")
	}
	all := append(slices.Clone(forks), parent)
	for i, k := range all {
		k.PID = parent.PID
		box := c.connected(k.ID)
		if n := count(t, box); n < before {
			t.Errorf("%d counts from %d, after %d", i, n, before)
		}
		counts(t, box)
		said := fmt.Sprintf("I-am-%d", i)
		if got := talk(t, e, k, "echo I-am-$(("+fmt.Sprint(i)+"+0)) $COLOUR; tty\n", said+" green"); !strings.Contains(got, "/dev/pts/") {
			t.Errorf("the terminal says %q", got)
		}
		if got := sh(t, box, sandbox.User, "echo -n mine > /workspace/"+said+"; ls /workspace"); strings.Contains(got, "I-am-") && strings.Count(got, "I-am-") != 1 {
			t.Errorf("files of several: %q", got)
		}
		for j, other := range all {
			status, _, _ := c.do("GET", "/envs", "", "E2b-Sandbox-Id", k.ID, "X-Access-Token", other.Token)
			if want := map[bool]int{true: http.StatusOK, false: http.StatusUnauthorized}[i == j]; status != want {
				t.Errorf("box %d with the token of %d: %d", i, j, status)
			}
		}
		if m := c.must(http.StatusOK, "GET", "/sandboxes/"+k.ID, ""); m["metadata"].(map[string]any)["a"] != "b" {
			t.Errorf("metadata %v", m["metadata"])
		}
	}
	for _, k := range all {
		c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+k.ID, "")
	}
	nothing(t, e.Dir)
}

// talk writes to the terminal that k names and reads until it says want and a
// little more.
func talk(t *testing.T, e *enginetest.Engine, k kept, line, want string) string {
	t.Helper()
	stream := reader(t, e, k)
	defer stream.Close()
	in := connect.NewRequest(&process.SendInputRequest{
		Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: uint32(k.PID)}},
		Input:   &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(line)}},
	})
	in.Header().Set("X-Access-Token", k.Token)
	in.Header().Set("E2b-Sandbox-Id", k.ID)
	if _, err := processconnect.NewProcessClient(http.DefaultClient, e.URL).SendInput(ctxOf(t), in); err != nil {
		t.Fatal(err)
	}
	var text string
	for stream.Receive() {
		text += string(stream.Msg().GetEvent().GetData().GetPty())
		if i := strings.LastIndex(text, want); i >= 0 && strings.Count(text[i:], "\n") >= 2 {
			return text
		}
	}
	t.Fatalf("the terminal said %q (%v)", text, stream.Err())
	return ""
}

// warmPython and warmNode make random numbers once before the copy and, when a
// file appears, again.
const (
	warmPython = `import os, random, secrets, time, uuid
random.random(); os.urandom(1); secrets.token_hex(1)
print("warm", flush=True)
while not os.path.exists("/tmp/go"): time.sleep(0.01)
print("kernel", os.urandom(8).hex(), secrets.token_hex(8), uuid.uuid4(), flush=True)
print("own", random.random(), flush=True)
`
	warmNode = `const crypto = require('crypto'), fs = require('fs');
Math.random(); crypto.randomBytes(1);
console.log('warm');
const t = setInterval(() => { if (!fs.existsSync('/tmp/go')) return; clearInterval(t);
const f = fs.openSync('/dev/urandom'), b = Buffer.alloc(8); fs.readSync(f, b, 0, 8);
console.log('kernel', b.toString('hex'));
console.log('own', Math.random(), crypto.randomBytes(8).toString('hex'), crypto.randomUUID()); }, 10);
`
)

// Whatever asks the kernel for randomness gets its own in every copy. What a
// program keeps in its own memory is copied with it: nobody can reseed that from
// outside, which this test writes down rather than hides.
func TestForksHaveTheirOwnRandomness(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	for name, cmd := range map[string][]string{"python": {"python3", "-c", warmPython}, "node": {"node", "-e", warmNode}} {
		sb := boot(t, e)
		p, err := sb.Start(ctxOf(t), sandbox.Command{Args: cmd})
		if err != nil {
			t.Fatal(err)
		}
		if o := <-p.Events(); string(o.Data) != "warm\n" {
			t.Fatalf("%s: got %q", name, o.Data)
		}
		kernel, own, ids := map[string]bool{}, map[string]bool{}, map[string]bool{}
		forks := c.fork(string(sb.ID()), 2)
		for _, k := range forks {
			k.PID = p.PID()
			box := c.connected(k.ID)
			ids[sh(t, box, sandbox.User, "head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid")] = true
			s := reader(t, e, k)
			sh(t, box, sandbox.User, "touch /tmp/go")
			var text string
			for s.Receive() {
				text += string(s.Msg().GetEvent().GetData().GetStdout())
			}
			for line := range strings.Lines(text) {
				if rest, ok := strings.CutPrefix(line, "kernel "); ok {
					kernel[rest] = true
				}
				if rest, ok := strings.CutPrefix(line, "own "); ok {
					own[rest] = true
				}
			}
			c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+k.ID, "")
		}
		if len(kernel) != 2 || len(ids) != 2 {
			t.Errorf("%s: copies share the kernel's randomness: %v %v", name, kernel, ids)
		}
		t.Logf("%s: what it keeps itself comes %d times out of 2", name, len(own))
		c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+string(sb.ID()), "")
	}
	nothing(t, e.Dir)
}

// impostor is a program of the box's root that watches the folder of PID 1 while
// the box wakes up, and calls the host with whatever it finds there.
const impostor = `import glob, socket, sys
print("up", flush=True)
seen = set()
while True:
    try: seen.add(open("/run/dreamcore/boot").read().strip())
    except OSError: pass
    for secret in list(seen) + ["guess"]:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect("/run/dreamcore/control.sock")
            s.sendall(secret.encode() + b"\n")
            if s.recv(1): print("in", flush=True)
        except OSError: pass
        finally: s.close()
    if seen: print("seen", flush=True)
`

// In a box whose users may become root, root sees what the host lays down for
// PID 1 when the box is restored, and it is of no use to it.
func TestRootInACopyCannotBePID1(t *testing.T) {
	e := enginetest.Start(t, asE2B)
	c := client{t, e}
	sb := boot(t, e)
	id := string(sb.ID())
	if err := sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/home/user/impostor.py", Data: []byte(impostor)}}); err != nil {
		t.Fatal(err)
	}
	p, err := sb.Start(ctxOf(t), sandbox.Command{Args: []string{"bash", "-c", "exec sudo -n timeout 600 python3 /home/user/impostor.py > /home/user/said 2>&1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Signal(ctxOf(t), "SIGKILL")
	said := func() string { return sh(t, sb, sandbox.User, "cat /home/user/said") }
	for deadline := time.Now().Add(patience); !strings.Contains(said(), "up"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it says %q", said())
		}
	}
	for range 4 {
		c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", ``)
		c.must(http.StatusCreated, "POST", "/v2/sandboxes/"+id+"/connect", ``)
		if got := said(); strings.Contains(got, "in") {
			t.Fatalf("root was taken for PID 1: %q", clipped(got))
		}
	}
	if !strings.Contains(said(), "seen") {
		t.Log("root never saw the boot file: it is gone too quickly")
	}
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
}

func clipped(s string) string { return s[max(len(s)-300, 0):] }
