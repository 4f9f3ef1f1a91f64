package engine_test

import (
	"encoding/json"
	"hash/crc32"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

func (c client) list(path string) (all []map[string]any, next string) {
	c.tb.Helper()
	status, header, text := c.do("GET", path, "", "X-API-KEY", enginetest.APIKey)
	if err := json.Unmarshal([]byte(text), &all); status != http.StatusOK || err != nil {
		c.tb.Fatalf("%s: %d %s", path, status, text)
	}
	return all, header.Get("X-Next-Token")
}

// A snapshot is a template: boxes of it go on from there, whatever became of the
// box that it was taken of, and in the next engine too.
func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	e, err := enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { e.Shut() }() // again at the end; here for when the test fails
	c := client{t, e}
	sb := boot(t, e, func(s *sandbox.Spec) { s.Env = map[string]string{"A": "1", "B": "1"} })
	source := string(sb.ID())
	startTally(t, sb)
	before := count(t, sb)
	first := c.must(http.StatusCreated, "POST", "/sandboxes/"+source+"/snapshots", `{}`)["snapshotID"].(string)
	named := c.must(http.StatusCreated, "POST", "/sandboxes/"+source+"/snapshots", `{"name":"our-base"}`)["snapshotID"].(string)
	if count(t, sb) < before {
		t.Error("the source counts backwards")
	}
	c.must(http.StatusBadRequest, "POST", "/sandboxes/"+source+"/snapshots", `{"name":"../x y"}`)
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+source, "")
	if all, next := c.list("/snapshots?limit=1"); len(all) != 1 || all[0]["snapshotID"] != named || next == "" {
		t.Errorf("first page: %v %q", all, next)
	} else if all, next = c.list("/snapshots?limit=1&nextToken=" + next); len(all) != 1 || all[0]["snapshotID"] != first || next != "" {
		t.Errorf("second page: %v %q", all, next)
	}
	for query, want := range map[string]int{"?sandboxID=" + source: 2, "?sandboxID=x": 0, "?name=our-base": 1, "?name=our-base:default": 1, "?name=x": 0} {
		if all, _ := c.list("/snapshots" + query); len(all) != want {
			t.Errorf("%s: %d", query, len(all))
		}
	}
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	if e, err = enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t)); err != nil {
		t.Fatal(err)
	}
	c = client{t, e}
	for _, ref := range []string{first, named, "our-base"} {
		id, token := c.create("/v2/sandboxes", `{"templateID":"`+ref+`","timeout":300,"envVars":{"B":"2"},"metadata":{"k":"v"}}`)
		box := c.connected(id)
		if n := count(t, box); n < before {
			t.Errorf("%s counts from %d", ref, n)
		}
		if got := sh(t, box, sandbox.User, "echo $A $B"); got != "1 2" {
			t.Errorf("variables %q", got)
		}
		if m := c.must(http.StatusOK, "GET", "/sandboxes/"+id, ""); m["envdAccessToken"] != token || token == "" || id == source || !slices.Contains([]any{first, named}, m["templateID"]) {
			t.Errorf("%v", m)
		}
		c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	}
	// The name goes to the newest.
	id, _ := c.create("/sandboxes", `{"templateID":"our-base","timeout":300}`)
	c.must(http.StatusCreated, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"our-base"}`)
	if all, _ := c.list("/snapshots?name=our-base"); len(all) != 1 {
		t.Errorf("%d of one name", len(all))
	}
	c.must(http.StatusNoContent, "DELETE", "/templates/"+first, "")
	c.must(http.StatusNotFound, "DELETE", "/templates/"+first, "")
	c.must(http.StatusNoContent, "DELETE", "/templates/our-base:default", "")
	c.must(http.StatusNotFound, "POST", "/sandboxes", `{"templateID":"our-base"}`)
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	nothing(t, dir)
	empty(t, dir)
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
}

// empty checks that no snapshot is left.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "snapshot"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left over: snapshot %s", e.Name())
	}
}

// Rounds of pausing and resuming leave no descriptor of the engine's, and no
// file of anybody's.
func TestPauseLeaksNothing(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	sb := boot(t, e)
	id := string(sb.ID())
	descriptors := func() int {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	round := func() {
		c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", ``)
		c.must(http.StatusCreated, "POST", "/v2/sandboxes/"+id+"/connect", ``)
		for _, k := range c.fork(id, 1) {
			c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+k.ID, "")
		}
	}
	round()
	before := descriptors()
	for range 5 {
		round()
	}
	// What ends in the background has a moment.
	for deadline := time.Now().Add(patience); descriptors() > before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors before, %d after", before, descriptors())
		}
	}
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	nothing(t, e.Dir)
	empty(t, e.Dir)
}

// A state that is damaged is said to be, nothing is left of the attempt, and it
// can be thrown away.
func TestDamagedSnapshot(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	damage := map[string]func(path string) error{
		"checkpoint/checkpoint.img": func(p string) error { return os.Truncate(p, 1000) },
		"checkpoint/pages.img":      flip,
		"checkpoint/config.json":    os.Remove,
		"checkpoint/key":            func(p string) error { return os.WriteFile(p, []byte("another"), 0o600) },
		"checkpoint/files.json":     func(p string) error { return os.WriteFile(p, []byte("{"), 0o600) },
		"checkpoint/sandboxd": func(p string) error {
			if err := os.Remove(p); err != nil { // it is a link to the engine's own
				return err
			}
			return os.WriteFile(p, []byte("#!/bin/sh\n"), 0o500)
		},
	}
	for name, f := range damage {
		id := string(boot(t, e).ID())
		c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", ``)
		if err := f(filepath.Join(e.Dir, "snapshot", id, name)); err != nil {
			t.Fatal(err)
		}
		m := c.must(http.StatusInternalServerError, "POST", "/v2/sandboxes/"+id+"/connect", ``)
		if s, _ := m["message"].(string); !strings.Contains(s, "damaged") {
			t.Errorf("%s: %v", name, m)
		}
		nothing(t, e.Dir)
		if s := c.state(dreamcore.SandboxID(id)); s != "paused" {
			t.Errorf("%s: state %q", name, s)
		}
		c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	}
	// What gVisor itself must find out: sums are right, the content is not.
	id := string(boot(t, e).ID())
	c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", ``)
	dir := filepath.Join(e.Dir, "snapshot", id, "checkpoint")
	if err := os.Truncate(filepath.Join(dir, "checkpoint.img"), 3000); err != nil {
		t.Fatal(err)
	}
	resum(t, dir)
	c.must(http.StatusInternalServerError, "POST", "/v2/sandboxes/"+id+"/connect", ``)
	nothing(t, e.Dir)
	c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
	empty(t, e.Dir)
}

// resum makes the sums of a checkpoint right again, whatever is in it.
func resum(t *testing.T, dir string) {
	t.Helper()
	list := filepath.Join(dir, "files.json")
	data, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]map[string]int64{}
	if err := json.Unmarshal(data, &sums); err != nil {
		t.Fatal(err)
	}
	for name := range sums {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sums[name] = map[string]int64{"bytes": int64(len(content)), "crc": int64(crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli)))}
	}
	if data, err = json.Marshal(sums); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// flip changes one bit in the middle of a file.
func flip(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 4
	return os.WriteFile(path, data, 0o600)
}

// What may be stored is bounded, by number, by size, and by the disk itself; a
// box that cannot be saved goes on.
func TestStorageIsBounded(t *testing.T) {
	for name, limit := range map[string]engine.Storage{
		"number": {Count: 1, Bytes: 1 << 40, Life: time.Hour},
		"bytes":  {Count: 9, Bytes: 1 << 20, Life: time.Hour},
	} {
		e := enginetest.Start(t, func(c *engine.Config) { c.Storage = limit })
		c := client{t, e}
		sb := boot(t, e)
		id := string(sb.ID())
		p := startTally(t, sb)
		if name == "number" {
			c.must(http.StatusCreated, "POST", "/sandboxes/"+id+"/snapshots", `{}`)
			p = startTally(t, sb)
		}
		m := c.must(http.StatusInsufficientStorage, "POST", "/sandboxes/"+id+"/pause", ``)
		if s, _ := m["message"].(string); !strings.Contains(s, "used up") || !strings.Contains(s, "goes on running") {
			t.Errorf("%s: %v", name, m)
		}
		c.must(http.StatusInsufficientStorage, "POST", "/sandboxes/"+id+"/fork", ``)
		count(t, sb)
		// Not even a stream of it broke.
		if err := p.Signal(ctxOf(t), "SIGKILL"); err != nil {
			t.Error(err)
		}
		if exit, err := p.Wait(ctxOf(t)); err != nil || exit.Signal == "" {
			t.Errorf("%s: the stream of a box that was not saved: %+v, %v", name, exit, err)
		}
		c.must(http.StatusNoContent, "DELETE", "/sandboxes/"+id, "")
		nothing(t, e.Dir)
	}
}

// A disk that is or becomes full while a box is saved costs nothing but the
// streams: the box goes on, and nothing is left on the disk.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	disk := filepath.Join(dir, "snapshot")
	if err := os.MkdirAll(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	// Enough that it looks as if there were room, and not enough.
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=160m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
		nothing(t, dir)
	})
	e, err := enginetest.Open(dir, enginetest.Programs(t), enginetest.Image(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Shut(); err != nil {
			t.Error(err)
		}
	})
	c := client{t, e}
	sb := boot(t, e)
	id := string(sb.ID())
	startTally(t, sb)
	said := func(m map[string]any) {
		t.Helper()
		if s, _ := m["message"].(string); !strings.Contains(s, "too full") || !strings.Contains(s, "goes on running") {
			t.Errorf("%v", m)
		}
		empty(t, dir)
		counts(t, sb)
	}
	// It fits still.
	c.must(http.StatusNoContent, "POST", "/sandboxes/"+id+"/pause", ``)
	c.must(http.StatusCreated, "POST", "/v2/sandboxes/"+id+"/connect", ``)
	// The disk fills up while the box is written: somebody else takes the space
	// that there was when it began.
	sh(t, sb, sandbox.User, "head -c 60000000 /dev/urandom > /workspace/big")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		other, err := os.CreateTemp(disk, "other")
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { other.Close(); os.Remove(other.Name()) }()
		for size := int64(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
			if found, _ := filepath.Glob(filepath.Join(disk, ".new-*", "checkpoint")); len(found) > 0 {
				for syscall.Fallocate(int(other.Fd()), 0, size, 1<<20) == nil {
					size += 1 << 20
				}
			}
		}
	}()
	status, m := c.api("POST", "/sandboxes/"+id+"/pause", ``)
	close(stop)
	wg.Wait()
	if status != http.StatusInsufficientStorage {
		t.Fatalf("pause: %d %v", status, m)
	}
	said(m)
	// Seen before anything is stopped.
	if err := os.WriteFile(filepath.Join(disk, "other"), make([]byte, 120<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	status, m = c.api("POST", "/sandboxes/"+id+"/snapshots", `{}`)
	if err := os.Remove(filepath.Join(disk, "other")); err != nil {
		t.Fatal(err)
	}
	if status != http.StatusInsufficientStorage {
		t.Fatalf("snapshot: %d %v", status, m)
	}
	said(m)
}
