package engine_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
)

// A box that takes no more requests on its connection does not stay on the list as
// if it did: it goes on over a new one when it calls, and is ended when it does not.
// Either is said once.
func TestGoAway(t *testing.T) {
	var log lockedBuffer
	e, err := enginetest.Open(t.TempDir(), hostilePrograms(t), enginetest.Image(t), func(c *engine.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Shut(); err != nil {
			t.Error(err)
		}
	}()
	c := client{t, e}
	ask := func(id, token, what string) int {
		status, _, _ := c.do("GET", "/files?path="+what+"&username=user", "", "E2b-Sandbox-Id", id, "X-Access-Token", token)
		return status
	}
	id, token := c.create("/v2/sandboxes", `{"templateID":"base","timeout":600}`)
	if status := ask(id, token, "x"); status != http.StatusNoContent {
		t.Fatalf("before: %d", status)
	}
	if status := ask(id, token, "goaway"); status != http.StatusBadGateway {
		t.Errorf("what it breaks off answers %d", status)
	}
	for end := time.Now().Add(patience); ask(id, token, "x") != http.StatusNoContent; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not go on")
		}
	}
	if n := log.count("the connection to a sandbox broke"); n != 1 || log.line("go on over a new one", id) == "" {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	// Whoever does it again and again breaks the rules.
	ask(id, token, "goaway")
	ended := func(id, token string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			if status, _ := c.api("GET", "/sandboxes/"+id, ""); status == http.StatusNotFound {
				break
			}
			if time.Now().After(end) {
				t.Fatal("it stays on the list")
			}
		}
		if log.line("the connection to a sandbox broke", "end it", id) == "" {
			t.Errorf("nothing is said:\n%s", log.String())
		}
	}
	ended(id, token)
	other, token := c.create("/v2/sandboxes", `{"templateID":"base","timeout":600}`)
	ask(other, token, "goaway-for-good")
	ended(other, token)
	if n := log.count("the connection to a sandbox broke"); n != 3 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	nothing(t, e.Dir)
}
