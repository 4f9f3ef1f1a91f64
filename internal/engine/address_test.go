package engine

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/envd"
)

// A request that names a box and a port that is none is told so by the port's name,
// whatever is wrong with it, and by either way of naming it.
func TestPortsThatAreNone(t *testing.T) {
	e := New(Config{APIKey: dreamcore.NewSecret("key")})
	const id = "abcdefghjkmnpqrstuvw"
	ask := func(change func(r *http.Request)) (int, string) {
		r := httptest.NewRequest("GET", "/", nil)
		change(r)
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, port := range []string{"70000", "65536", "0", "00", "-1", "+80", "080", "8080x", "0x50", "8e3", "80 ", "८०", "", strings.Repeat("9", 5000)} {
		said := port
		if len(said) > 40 {
			said = said[:40] + "..."
		}
		for way, change := range map[string]func(*http.Request){
			"host":        func(r *http.Request) { r.Host = port + "-" + id + ".sandbox.test:49982" },
			"bare host":   func(r *http.Request) { r.Host = port + "-" + id },
			"header":      func(r *http.Request) { r.Header.Set("E2b-Sandbox-Id", id); r.Header.Set("E2b-Sandbox-Port", port) },
			"unlike ours": func(r *http.Request) { r.Host = port + "-other.sandbox.test" },
		} {
			if way == "header" && port == "" || way == "unlike ours" && (port == "" || strings.Trim(port, "0123456789") != "") {
				continue // no port is named; a name of somebody else's
			}
			if status, body := ask(change); status != http.StatusBadRequest || !strings.Contains(body, `"code":400`) || !strings.Contains(body, `\"`+said+`\" is no port`) {
				t.Errorf("%s, port %.50q: %d %s", way, port, status, body)
			}
		}
	}
}

// What is a box's address, and what the engine's own.
func TestHostAddress(t *testing.T) {
	const id = "abcdefghjkmnpqrstuvw"
	for host, want := range map[string]address{
		"8080-" + id + ".sandbox.test":     {id: id, port: 8080},
		"8080-" + id + ".sandbox.test:443": {id: id, port: 8080},
		"8080-" + id:                       {id: id, port: 8080},
		"8080-" + id + ":49982":            {id: id, port: 8080},
		"1-guess.sandbox.test":             {id: "guess", port: 1},
		"49983-" + id + ".x":               {id: id, port: envd.Port},
		"8080-build":                       {},
		"my-engine.example.org":            {},
		"sandbox-1.example.org":            {},
		id + ".sandbox.test":               {},
		"127.0.0.1:49982":                  {},
		"localhost":                        {},
		"[::1]:49982":                      {},
		"8080-.sandbox.test":               {},
		"":                                 {},
	} {
		if got, ok := hostAddress(host); got != want || ok != (want != address{}) {
			t.Errorf("%s: %+v, %v", host, got, ok)
		}
	}
}

// FuzzHostAddress: a port is one, or is said to be none.
func FuzzHostAddress(f *testing.F) {
	for _, s := range []string{"8080-abcdefghjkmnpqrstuvw.x", "70000-abc.x", "a-b.c", "-", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		to, ok := hostAddress(host)
		if ok && (to.id == "" || (to.port >= 1 && to.port <= 65535) == (to.badPort != "") || len(to.badPort) > 400) {
			t.Errorf("%q is %+v", host, to)
		}
	})
}
