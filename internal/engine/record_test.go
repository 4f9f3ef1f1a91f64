package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
	"dreamcore/internal/sandbox"
)

const childKeeps = "DREAMCORE_TEST_CHILD_KEEPS"

// kept is a box of the engine that is killed.
type kept struct {
	ID, Token string
	PID       int // of a process in it
}

// keepers keeps boxes, and lets a box say something to its way out.
func keepers(c *engine.Config) {
	c.Keep = true
	c.Egress = func(_ context.Context, id dreamcore.SandboxID, conn net.Conn) {
		defer conn.Close()
		fmt.Fprintf(conn, "way out of %s\n", id)
	}
}

// counter prints numbers for as long as it lives.
const counter = `i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done`

// keepChild is an engine whose boxes outlive it: it boots three, starts a
// process in each, says so, and waits to be killed.
func keepChild(e *enginetest.Engine) error {
	ctx := context.Background()
	for range 3 {
		sb, err := e.Provider.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: 10 * time.Minute, Egress: true, Env: map[string]string{"GIVEN": "still"}, Metadata: map[string]string{"who": "child"}})
		if err != nil {
			return err
		}
		if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "/workspace/a", Data: []byte("kept")}}); err != nil {
			return err
		}
		p, err := sb.Start(ctx, sandbox.Command{Args: []string{"bash", "-c", counter}})
		if err != nil {
			return err
		}
		for seen := ""; !strings.Contains(seen, "3\n"); {
			o := <-p.Events()
			seen += string(o.Data)
		}
		req, err := http.NewRequest("GET", e.URL+"/sandboxes/"+string(sb.ID()), nil)
		if err != nil {
			return err
		}
		req.Header.Set("X-Api-Key", enginetest.APIKey)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		var info struct{ EnvdAccessToken string }
		err = json.NewDecoder(res.Body).Decode(&info)
		res.Body.Close()
		if err != nil {
			return err
		}
		data, err := json.Marshal(kept{string(sb.ID()), info.EnvdAccessToken, p.PID()})
		if err != nil {
			return err
		}
		fmt.Println("kept", string(data))
	}
	select {}
}

// killedKeeper runs keepChild in dir and kills it with signal 9.
func killedKeeper(t *testing.T, dir string) []kept {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs, root := enginetest.Programs(t), enginetest.Image(t)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir, childKeeps+"=1", "DREAMCORE_TEST_CHILD_ROOT="+root,
		"DREAMCORE_TEST_CHILD_RUNSC="+programs.Runsc, "DREAMCORE_TEST_CHILD_SANDBOXD="+programs.Sandboxd)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all []kept
	for lines := bufio.NewScanner(out); len(all) < 3 && lines.Scan(); {
		text, ok := strings.CutPrefix(lines.Text(), "kept ")
		var k kept
		if !ok || json.Unmarshal([]byte(text), &k) != nil || k.Token == "" {
			t.Fatal(lines.Text())
		}
		all = append(all, k)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed, as it was told
	if len(all) != 3 {
		t.Fatalf("the child kept %d boxes", len(all))
	}
	return all
}

// reader takes the output of a process in a box, as a client that only has the
// box's id, token and the process's number.
func reader(t *testing.T, e *enginetest.Engine, k kept) *connect.ServerStreamForClient[process.ConnectResponse] {
	t.Helper()
	req := connect.NewRequest(&process.ConnectRequest{Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: uint32(k.PID)}}})
	req.Header().Set("X-Access-Token", k.Token)
	req.Header().Set("E2b-Sandbox-Id", k.ID)
	stream, err := processconnect.NewProcessClient(http.DefaultClient, e.URL).Connect(ctxOf(t), req)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// numbers reads n numbers of counter and checks that none is missing.
func numbers(t *testing.T, s *connect.ServerStreamForClient[process.ConnectResponse], n int) (last int) {
	t.Helper()
	var text string
	for strings.Count(text, "\n") < n && s.Receive() {
		text += string(s.Msg().GetEvent().GetData().GetStdout())
	}
	for i, f := range strings.Fields(text) {
		v, err := strconv.Atoi(f)
		if err != nil || i > 0 && v != last+1 {
			t.Fatalf("got %q (%v)", text, err)
		}
		last = v
	}
	if last == 0 {
		t.Fatalf("no output: %v", s.Err())
	}
	return last
}

// An engine that was killed gets its boxes back: clients go on with the same ids
// and tokens, and what runs in the boxes never noticed.
func TestTakeBackAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	boxes := killedKeeper(t, dir)
	e, err := enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), keepers)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := e.Provider.List(ctxOf(t), map[string]string{"who": "child"})
	if err != nil || len(infos) != len(boxes) {
		t.Fatalf("%d boxes came back (%v)", len(infos), err)
	}
	for _, i := range infos {
		if left := time.Until(i.Ends); left > 10*time.Minute || left < 5*time.Minute {
			t.Errorf("%s has %v left", i.ID, left)
		}
	}
	c := client{t, e}
	for _, k := range boxes {
		if _, m := c.api("GET", "/sandboxes/"+k.ID, ""); m["envdAccessToken"] != k.Token {
			t.Errorf("the token changed: %v", m)
		}
		if status, _, _ := c.do("GET", "/envs", "", "E2b-Sandbox-Id", k.ID, "X-Access-Token", k.Token+"x"); status != http.StatusUnauthorized {
			t.Errorf("a wrong token: %d", status)
		}
		// What was printed while there was no engine was kept.
		s := reader(t, e, k)
		numbers(t, s, 20)
		s.Close()
		sb, err := e.Provider.Connect(ctxOf(t), dreamcore.SandboxID(k.ID))
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, sb, sandbox.User, "cat /workspace/a; echo $GIVEN"); got != "keptstill" {
			t.Errorf("got %q", got)
		}
		if got := sh(t, sb, sandbox.User, "exec 3<>/dev/tcp/127.0.0.1/4000; cat <&3"); got != "way out of "+k.ID {
			t.Errorf("its way out says %q", got)
		}
	}
	if err := e.Provider.Kill(ctxOf(t), dreamcore.SandboxID(boxes[0].ID)); err != nil {
		t.Fatal(err)
	}

	// The same over an engine that is closed in order, twice.
	for range 2 {
		if err := e.Shut(); err != nil {
			t.Fatal(err)
		}
		if e, err = enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), keepers); err != nil {
			t.Fatal(err)
		}
		c = client{t, e}
		for _, k := range boxes[1:] {
			s := reader(t, e, k)
			numbers(t, s, 5)
			s.Close()
		}
		if _, err := e.Provider.Connect(ctxOf(t), dreamcore.SandboxID(boxes[0].ID)); dreamcore.CodeOf(err) != dreamcore.Lost {
			t.Errorf("a box that was killed: %v", err)
		}
	}
	// A time to live that a client set holds for the next engine too.
	if status, _ := c.api("POST", "/sandboxes/"+boxes[1].ID+"/timeout", `{"timeout":3000}`); status != http.StatusNoContent {
		t.Errorf("timeout: %d", status)
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	if e, err = enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), keepers); err != nil {
		t.Fatal(err)
	}
	if infos, err = e.Provider.List(ctxOf(t), nil); err != nil || len(infos) != 2 {
		t.Fatalf("%d boxes (%v)", len(infos), err)
	}
	for _, i := range infos {
		if long := time.Until(i.Ends) > 11*time.Minute; long != (string(i.ID) == boxes[1].ID) {
			t.Errorf("%s ends in %v", i.ID, time.Until(i.Ends))
		}
		if err := e.Provider.Kill(ctxOf(t), i.ID); err != nil {
			t.Fatal(err)
		}
	}
	nothing(t, dir)
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, dir)
}

// What cannot be taken back is removed, and what was recorded wrongly is not
// believed.
func TestTakeBackRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	boxes := killedKeeper(t, dir)
	change := func(k kept, f func(m map[string]any)) {
		t.Helper()
		path := filepath.Join(dir, "box", k.ID, "record.json")
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode().Perm() != 0o600 {
			t.Errorf("the record has mode %v", fi.Mode())
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		f(m)
		if data, err = json.Marshal(m); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A process that has nothing to do with us, and which must survive.
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	change(boxes[0], func(m map[string]any) { m["ends"] = time.Now().Add(-time.Second) })
	change(boxes[1], func(m map[string]any) { m["protocol"] = 999 })
	change(boxes[2], func(m map[string]any) {
		machine, _ := m["machine"].(map[string]any)
		machine["pid"] = bystander.Process.Pid
	})
	// So says runsc's own file too, as it does when the number is another's by now.
	if err := os.WriteFile(filepath.Join(dir, "box", boxes[2].ID, "pid"), []byte(strconv.Itoa(bystander.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), keepers)
	if err != nil {
		t.Fatal(err)
	}
	nothing(t, dir)
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process that is not ours was ended: %v", err)
	}
	c := client{t, e}
	for i, want := range []string{`"reason":"timeout"`, `"reason":"engine_ended"`, `"reason":"engine_ended"`} {
		if status, _, body := c.do("GET", "/health", "", "E2b-Sandbox-Id", boxes[i].ID); status != http.StatusBadGateway || !strings.Contains(body, want) {
			t.Errorf("box %d: %d %s", i, status, body)
		}
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, dir)

	// An engine without Keep, or without the image, takes nothing back.
	killedKeeper(t, dir)
	e, err = enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t), keepers, func(c *engine.Config) {
		c.Images = func(string) (engine.Image, error) {
			return engine.Image{}, dreamcore.Errorf(dreamcore.NotFound, "image", "gone")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	nothing(t, dir)
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, dir)
}

// A client whose engine is away for a moment does not hear that its box is dead.
func TestKeptBoxIsNotCalledDead(t *testing.T) {
	e := enginetest.Start(t, keepers)
	sb := boot(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctxOf(t), "GET", e.URL+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("E2b-Sandbox-Id", string(sb.ID()))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("got %d %s", res.StatusCode, body)
	}
	again, err := enginetest.Open(e.Dir, enginetest.Programs(t), enginetest.Image(t)) // which removes it
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, e.Dir)
}
