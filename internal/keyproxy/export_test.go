package keyproxy

import (
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/budget"
	"dreamcore/internal/grant"
)

type budgetOf = dreamcore.Budget

func openLedger(path string) (*budget.Ledger, int, error) { return budget.Open(path) }

func (w *world) dial() net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
	return conn
}

func newVerifier(t *testing.T) *grant.Verifier {
	t.Helper()
	m, err := grant.NewMinter()
	if err != nil {
		t.Fatal(err)
	}
	return m.Verifier()
}

func (w *world) mintFor(features []dreamcore.Feature) string {
	return w.mint(func(c *grant.Claims) { c.Features = features })
}

func (f *fake) lastRequest() (*http.Request, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.body
}

func portOf(t *testing.T, s string) uint16 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(n)
}
