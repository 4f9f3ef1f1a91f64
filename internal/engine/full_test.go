package engine_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
)

// smallDisk is a disk of its own, of so many bytes and files.
func smallDisk(t *testing.T, bytes, files int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=%d", bytes, files)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "engine")
}

// On a host whose disk is full a create is refused by name, and nothing of it is
// left, wherever it ran out.
func TestHostDiskFull(t *testing.T) {
	dir := smallDisk(t, 128<<20, 200)
	e, err := enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t))
	if err != nil {
		t.Fatal(err)
	}
	c := client{t, e}
	refused := func(when string) bool {
		t.Helper()
		status, m := c.api("POST", "/v2/sandboxes", `{"templateID":"base"}`)
		if status == http.StatusCreated {
			id, _ := m["sandboxID"].(string)
			if status, _ := c.api("DELETE", "/sandboxes/"+id, ""); status != http.StatusNoContent {
				t.Fatal(status)
			}
		} else if message, _ := m["message"].(string); status != http.StatusInsufficientStorage || m["code"] != float64(507) || !strings.Contains(message, "disk") {
			t.Errorf("%s: %d %v", when, status, m)
		}
		nothing(t, dir)
		return status != http.StatusCreated
	}
	ballast := filepath.Join(filepath.Dir(dir), "ballast")
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ballast, make([]byte, int64(s.Bavail)*s.Bsize-(8<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if !refused("8 MiB are free") {
		t.Error("a box was made on a full disk")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	// Running out of files ends a create in the middle, one step later each time.
	var plugs []string
	for {
		name := filepath.Join(filepath.Dir(dir), fmt.Sprintf("plug%d", len(plugs)))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			break
		}
		plugs = append(plugs, name)
	}
	failures := 0
	for free := 0; ; free++ {
		if !refused(fmt.Sprintf("%d files are free", free)) {
			break
		}
		failures++
		if len(plugs) == 0 {
			t.Fatal("no create succeeds")
		}
		if err := os.Remove(plugs[len(plugs)-1]); err != nil {
			t.Fatal(err)
		}
		plugs = plugs[:len(plugs)-1]
	}
	if failures < 5 {
		t.Errorf("only %d creates failed: this proves little", failures)
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, dir)
}

// Memory that was promised is not promised again, and who is refused is told when
// to come again.
func TestMemoryIsPromisedOnce(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(c *engine.Config) {
		var m syscall.Sysinfo_t
		if err := syscall.Sysinfo(&m); err != nil {
			t.Fatal(err)
		}
		c.Overcommit = 1.5 * float64(c.Limits.MemoryBytes) / float64(m.Totalram)
	})
	c := client{t, e}
	id, _ := c.create("/v2/sandboxes", `{"templateID":"base","timeout":3}`)
	status, h, body := c.do("POST", "/v2/sandboxes", `{"templateID":"base"}`, "X-API-KEY", enginetest.APIKey)
	if status != http.StatusTooManyRequests || !strings.Contains(body, "may use 1 GiB") {
		t.Errorf("got %d %s", status, body)
	}
	if after := h.Get("Retry-After"); after != "1" && after != "2" && after != "3" {
		t.Errorf("it says to come again after %q", after)
	}
	// A client that does as it is told gets one. Ours does.
	sb := boot(t, e)
	if string(sb.ID()) == id {
		t.Error("the same box twice")
	}
}

// Fifty clients at once all get a box of their own.
func TestFiftyAtOnce(t *testing.T) {
	e := enginetest.Start(t, pooled(2))
	c := client{t, e}
	var mu sync.Mutex
	ids := map[string]bool{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			status, m := c.api("POST", "/v2/sandboxes", `{"templateID":"base","timeout":600}`)
			if status != http.StatusCreated {
				t.Errorf("%d %v", status, m)
				return
			}
			id, _ := m["sandboxID"].(string)
			token, _ := m["envdAccessToken"].(string)
			if status, _, _ := c.do("GET", "/envs", "", "E2b-Sandbox-Id", id, "X-Access-Token", token); status != http.StatusOK {
				t.Errorf("box %s answers %d", id, status)
			}
			mu.Lock()
			ids[id] = true
			mu.Unlock()
		}()
	}
	wg.Wait()
	if len(ids) != 50 {
		t.Errorf("%d boxes", len(ids))
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	nothing(t, e.Dir)
}
