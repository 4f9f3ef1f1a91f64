package control

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// insides are where programs show or change what is inside them.
var insides = []string{
	"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap", "/debug/vars", "/metrics", "/healthz", "/admin", "/admin/grants", "/mint", "/grant", "/grants",
	"/open", "/close", "/keys", "/rotate", "/usage", "/v1/open_job", "/openai/v1/admin/api_keys", "/openai/v1/organization/admin_api_keys",
}

// T19 and L07: on a sandbox's channel there is no way to mint, to open, to
// rotate or to look inside, with a good grant or without.
func TestT19NoAdminOnASandboxChannel(t *testing.T) {
	w := newWorld(t)
	for _, path := range insides {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
			req, err := http.NewRequest(method, "http://127.0.0.1:4000"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Api-Key", w.token)
			conn := w.dial()
			if err := req.Write(conn); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%s %s: %d %s %v", method, path, resp.StatusCode, body, err)
			}
			_ = conn.Close()
		}
	}
	w.passes()
	if got := w.keys.Load(); got != canary {
		t.Errorf("the positive control: %v", got)
	}
}

// The proxy's process listens nowhere: what it serves was handed to it.
func TestT19TheProcessListensNowhere(t *testing.T) {
	w := newWorld(t)
	w.passes()
	mine := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", w.h.PID()))
	if err != nil || len(fds) == 0 {
		t.Fatalf("%v %v", fds, err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
			mine[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	if len(mine) == 0 {
		t.Fatal("it has no socket at all: the look is wrong")
	}
	for _, table := range []string{"tcp", "tcp6", "unix"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", w.h.PID(), table))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			listens := table != "unix" && len(f) > 9 && f[3] == "0A" && mine[f[9]] || table == "unix" && len(f) > 6 && f[3] == "00010000" && mine[f[6]]
			if listens {
				t.Errorf("it listens: %s", line)
			}
		}
	}
}
