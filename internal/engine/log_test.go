package engine_test

import (
	"net/http"
	"strings"
	"testing"

	"dreamcore/internal/engine"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// What PID 1 of a box says can be read, in both versions, by whoever has the key.
func TestLogsOfABox(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	sb := boot(t, e)
	res := run(t, sb, sandbox.Command{Args: []string{"perl", "-e", `my @a; while (1) { push @a, "x" x (8<<20) }`}})
	if !res.OutOfMemory {
		t.Fatalf("the box had nothing to say: %+v", res)
	}
	path := "/sandboxes/" + string(sb.ID()) + "/logs"
	_, v1 := c.api("GET", path, "")
	_, v2 := c.api("GET", "/v2"+path+"?level=warn&search=biggest", "")
	for _, x := range []struct {
		what  string
		lines any
		key   string
	}{{"version 1", v1["logs"], "line"}, {"its entries", v1["logEntries"], "message"}, {"version 2", v2["logs"], "message"}} {
		lines, _ := x.lines.([]any)
		said := ""
		for _, l := range lines {
			s, _ := l.(map[string]any)[x.key].(string)
			said += s + "\n"
		}
		if !strings.Contains(said, "ended the biggest process") {
			t.Errorf("%s: %v", x.what, x.lines)
		}
	}
	for bad, want := range map[string]int{
		path + "?limit=5000": http.StatusBadRequest, "/v2" + path + "?cursor=x": http.StatusBadRequest,
		"/v2/sandboxes/nosuchsandbox/logs": http.StatusNotFound, "/sandboxes/nosuchsandbox/logs": http.StatusNotFound,
	} {
		if status, m := c.api("GET", bad, ""); status != want || m["code"] != float64(want) {
			t.Errorf("%s: %d %v", bad, status, m)
		}
	}
	if status, _, _ := c.do("GET", path, ""); status != http.StatusUnauthorized {
		t.Errorf("without the key: %d", status)
	}
}

// What is a matter of E2B's cloud is named, with a numeric code.
func TestCloudMattersAreNamed(t *testing.T) {
	e := enginetest.Start(t, func(c *engine.Config) { c.MaxBoxes = 1 })
	c := client{t, e}
	for _, x := range []struct {
		method, path, names string
		status              int
	}{
		{"POST", "/v3/templates", "template builds", 501},
		{"POST", "/v2/templates/abc/builds/def", "template builds", 501},
		{"GET", "/templates/abc/builds/def/status", "template builds", 501},
		{"GET", "/volumes", "volumes", 501},
		{"POST", "/volumes", "volumes", 501},
		{"GET", "/secrets", "secrets", 501},
		{"GET", "/teams", "teams", 501},
		{"POST", "/api-keys", "keys", 501},
		{"POST", "/sandboxes/abc/nothing", "operation on sandboxes", 501},
		{"GET", "/nowhere", "GET /nowhere", 404},
	} {
		status, m := c.api(x.method, x.path, "")
		message, _ := m["message"].(string)
		if status != x.status || m["code"] != float64(x.status) || !strings.Contains(message, x.names) {
			t.Errorf("%s %s: %d %v", x.method, x.path, status, m)
		}
	}
}
