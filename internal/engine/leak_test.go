package engine_test

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// An engine that has closed runs nothing any more, whatever had gone on in it: boxes
// that waited, lived, died, were ended by their time, and clients that listened.
func TestCloseLeavesNoGoroutine(t *testing.T) {
	programs, root := enginetest.Programs(t), enginetest.Image(t)
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := goleak.IgnoreCurrent()
	e, err := enginetest.Open(t.TempDir(), programs, root, pooled(2), func(c *engine.Config) { c.IdleTimeout = time.Hour })
	if err != nil {
		t.Fatal(err)
	}
	c := client{t, e}
	for range 3 {
		sb := boot(t, e)
		sh(t, sb, sandbox.User, "true")
		if err := e.Provider.Kill(ctxOf(t), sb.ID()); err != nil {
			t.Fatal(err)
		}
	}
	short, _ := c.create("/v2/sandboxes", `{"templateID":"base","timeout":1}`)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if status, _ := c.api("GET", "/sandboxes/"+short, ""); status == http.StatusNotFound {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("its time was over long ago")
		}
	}
	// Somebody still listens when the engine closes.
	p, err := boot(t, e).Start(ctxOf(t), sandbox.Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	awaitWaiting(t, e, 2)
	if err := e.Shut(); err != nil {
		t.Fatal(err)
	}
	for range p.Events() {
	}
	e.Provider.Close()
	// What ends by itself once its connection has broken has a moment.
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		err := goleak.Find(before)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	nothing(t, e.Dir)
}
