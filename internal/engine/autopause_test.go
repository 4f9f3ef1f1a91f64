package engine_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// A box whose time is over is paused when it wants that, and traffic that could
// open it wakes it up; other traffic does not.
func TestAutoPause(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	c.must(http.StatusBadRequest, "POST", "/sandboxes", `{"templateID":"base","autoResume":{"enabled":true}}`)
	c.must(http.StatusBadRequest, "POST", "/sandboxes", `{"templateID":"base","autoPause":true,"autoPauseMemory":false}`)
	id, token := c.create("/v2/sandboxes", `{"templateID":"base","timeout":2,"autoPause":true,"autoResume":{"enabled":true}}`)
	sb := c.connected(id)
	startTally(t, sb)
	sleeps := func() {
		t.Helper()
		for deadline := time.Now().Add(patience); c.state(sb.ID()) != "paused"; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("state %q", c.state(sb.ID()))
			}
		}
	}
	c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":1}`)
	sleeps()
	for query, want := range map[string]int{"": 1, "?state=paused": 1, "?state=running": 0, "?state=running,paused": 1} {
		if all, _ := c.list("/v2/sandboxes" + query); len(all) != want || want == 1 && all[0]["state"] != "paused" {
			t.Errorf("list %q: %v", query, all)
		}
	}
	for _, header := range [][]string{{}, {"X-Access-Token", token + "x"}} {
		if status, _, _ := c.do("GET", "/envs", "", append(header, "E2b-Sandbox-Id", id)...); status != http.StatusBadGateway {
			t.Errorf("without the token: %d", status)
		}
	}
	if c.state(sb.ID()) != "paused" {
		t.Fatal("anybody can wake it")
	}
	// Many at once wake one.
	var wg sync.WaitGroup
	for range 5 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if status, _, text := c.do("GET", "/envs", "", "X-Access-Token", token, "E2b-Sandbox-Id", id); status != http.StatusOK {
				t.Errorf("waking: %d %s", status, text)
			}
		}()
	}
	wg.Wait()
	count(t, sb)
	if m := c.must(http.StatusOK, "GET", "/sandboxes/"+id, ""); fmt.Sprint(m["lifecycle"]) != "map[autoResume:true onTimeout:pause]" {
		t.Errorf("lifecycle %v", m["lifecycle"])
	}
	sleeps() // again, after the time that it was ordered for
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	c.must(http.StatusNotFound, "POST", "/sandboxes/"+id+"/connect", ``)
	nothing(t, e.Dir)
	empty(t, e.Dir)
}

// A paused box that nobody wants is removed in the end.
func TestPausedBoxExpires(t *testing.T) {
	e := enginetest.Start(t, func(c *engine.Config) { c.Storage = engine.Storage{Count: 9, Bytes: 1 << 40, Life: time.Second} })
	c := client{t, e}
	id := string(boot(t, e).ID())
	c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", ``)
	for deadline := time.Now().Add(patience); c.state(dreamcore.SandboxID(id)) != ""; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is still there")
		}
	}
	if _, _, text := c.do("GET", "/health", "", "E2b-Sandbox-Id", id); !strings.Contains(text, `"timeout"`) {
		t.Errorf("how it ended: %s", text)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if entries, err := os.ReadDir(filepath.Join(e.Dir, "snapshot")); err == nil && len(entries) == 0 {
			return
		}
	}
	empty(t, e.Dir)
}

// A kill ends a box that is being saved, whenever it comes.
func TestKillWhilePausing(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	for i := range 8 {
		id := string(boot(t, e).ID())
		done := make(chan int, 1)
		go func() {
			status, _, _ := c.do("POST", "/sandboxes/"+id+"/pause", ``, "X-API-KEY", enginetest.APIKey)
			done <- status
		}()
		time.Sleep(time.Duration(i*15) * time.Millisecond)
		c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
		status := <-done
		if s := c.state(dreamcore.SandboxID(id)); s != "" {
			t.Errorf("after the kill it is %q (pause said %d)", s, status)
		}
	}
	nothing(t, e.Dir)
	empty(t, e.Dir)
}

const childPauses = "DREAMCORE_TEST_CHILD_PAUSES"

// pauseChild is an engine that pauses and resumes a box for as long as it lives.
func pauseChild(e *enginetest.Engine) error {
	ctx := context.Background()
	sb, err := e.Provider.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: 10 * time.Minute})
	if err != nil {
		return err
	}
	if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "/workspace/a", Data: []byte("kept")}}); err != nil {
		return err
	}
	fmt.Println("booted", sb.ID())
	for {
		for _, path := range []string{"pause", "resume"} {
			req, err := http.NewRequest("POST", e.URL+"/sandboxes/"+string(sb.ID())+"/"+path, strings.NewReader(`{}`))
			if err != nil {
				return err
			}
			req.Header.Set("X-Api-Key", enginetest.APIKey)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			res.Body.Close()
			if res.StatusCode/100 != 2 {
				return fmt.Errorf("%s: %s", path, res.Status)
			}
			fmt.Println("did", path)
		}
	}
}

// An engine that is killed while it pauses or resumes leaves either a paused box
// that goes on or none at all, and nothing else.
func TestKilledWhilePausing(t *testing.T) {
	dir := t.TempDir()
	programs, root := enginetest.Programs(t), enginetest.Image(t)
	survived := 0
	for round := range 6 {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^$")
		cmd.Env = append(os.Environ(), childDir+"="+dir, childPauses+"=1", "DREAMCORE_TEST_CHILD_ROOT="+root,
			"DREAMCORE_TEST_CHILD_RUNSC="+programs.Runsc, "DREAMCORE_TEST_CHILD_SANDBOXD="+programs.Sandboxd)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		var id string
		for did := 0; did < 1+round%3/2 && lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "booted "); ok {
				id = rest
			} else if strings.HasPrefix(lines.Text(), "did ") {
				did++
			} else {
				t.Fatal(lines.Text())
			}
		}
		if round%2 == 1 {
			time.Sleep(time.Duration(rand.IntN(250)) * time.Millisecond)
		} // else as soon as it is paused, or on its way back
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, as it was told
		e, err := enginetest.Open(dir, programs, root)
		if err != nil {
			t.Fatal(err)
		}
		nothing(t, dir)
		c := client{t, e}
		if c.state(dreamcore.SandboxID(id)) == "paused" {
			survived++
			c.must(http.StatusCreated, "POST", "/v2/sandboxes/"+id+"/connect", ``)
			if got := sh(t, c.connected(id), sandbox.User, "cat /workspace/a"); got != "kept" {
				t.Errorf("got %q", got)
			}
			c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
		}
		nothing(t, dir)
		empty(t, dir)
		if err := e.Shut(); err != nil {
			t.Fatal(err)
		}
	}
	if survived == 0 {
		t.Error("not one box survived: either this is broken or the moments are badly chosen")
	}
}
