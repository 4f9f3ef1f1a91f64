package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/workspace"
)

// reach tries to get out of the box in every way that its argument lists, and
// prints one line for each: the target and "open" or "closed".
const reach = `
import socket, sys
def try_tcp(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    s = socket.socket(family, socket.SOCK_STREAM); s.settimeout(3)
    try: s.connect((host, port)); return True
    except OSError: return False
    finally: s.close()
def try_udp(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(2)
    try:
        s.sendto(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01", (host, port))
        s.recv(512); return True
    except OSError: return False
    finally: s.close()
def try_dns(name):
    try: socket.getaddrinfo(name, 443); return True
    except OSError: return False
def try_unix(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM); s.settimeout(2)
    try: s.connect(path); return True
    except OSError: return False
    finally: s.close()
for arg in sys.argv[1:]:
    kind, rest = arg.split("=", 1)
    if kind == "dns": ok = try_dns(rest)
    elif kind == "unix": ok = try_unix(rest)
    else:
        host, port = rest.rsplit("@", 1)
        ok = (try_tcp if kind == "tcp" else try_udp)(host, int(port))
    print(arg, "open" if ok else "closed", flush=True)
`

func run(t *testing.T, sb sandbox.Sandbox, user string, args ...string) sandbox.Result {
	t.Helper()
	res, err := sandbox.Run(t.Context(), sb, sandbox.Command{Args: args, User: user, Dir: "/"}, 1<<20)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return res
}

// inBuildTurn makes a job whose agent sleeps in its build turn, and returns the
// agent's sandbox.
func inBuildTurn(t *testing.T, h *house) (dreamcore.Job, sandbox.Sandbox) {
	t.Helper()
	job := h.wish("a game where a cat flies through the sky [sabotage: sleep]")
	h.until(job.ID, "a sleeping agent", func(e dreamcore.Event) bool {
		return e.Kind == dreamcore.EventTool && e.Turn == dreamcore.Build && strings.Contains(e.Text, "sleep")
	})
	boxes, err := h.Sandboxes.List(t.Context(), map[string]string{"job": string(job.ID), "role": "agent"})
	if err != nil || len(boxes) != 1 {
		t.Fatalf("the job has %d sandboxes, %v", len(boxes), err)
	}
	sb, err := h.Sandboxes.Connect(t.Context(), boxes[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return job, sb
}

func TestInsideASandboxDuringAJob(t *testing.T) {
	const canary = "sk-operator-canary-7Q2xkP0vJm5rTz8w"
	cfg := settings(t)
	cfg.Model.KeyFile = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(cfg.Model.KeyFile, []byte(canary), 0o600); err != nil {
		t.Fatal(err)
	}
	h := open(t, cfg)
	job, sb := inBuildTurn(t, h)

	t.Run("no key of the operator is anywhere", func(t *testing.T) {
		look := func() string {
			// Files, then every process's environment and arguments, as root.
			res := run(t, sb, sandbox.Root, "sh", "-c",
				"grep -rlaF -e \"$0\" / --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev 2>/dev/null; for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || grep -laF -e \"$0\" $p/environ $p/cmdline 2>/dev/null; done; true",
				canary)
			return strings.Join(strings.Fields(string(res.Stdout)), " ")
		}
		// The search itself must be able to find: a planted file. Its own grep
		// processes carry the words as well, so files count here.
		if err := sb.WriteFiles(t.Context(), []sandbox.File{{Path: "/home/user/planted", Data: []byte("x" + canary + "y")}}); err != nil {
			t.Fatal(err)
		}
		if got := look(); !strings.Contains(got, "/home/user/planted") {
			t.Fatalf("the search does not find a planted key: %q", got)
		}
		run(t, sb, sandbox.User, "rm", "/home/user/planted")
		for _, f := range strings.Fields(look()) {
			if !strings.HasPrefix(f, "/proc/") { // those are the search itself
				t.Errorf("the operator's key is in %s", f)
			}
		}
		// Without the words on any command line: the agent's processes.
		res := run(t, sb, sandbox.User, "python3", "-c", `
import os
for p in os.listdir("/proc"):
    if p.isdigit() and int(p) != os.getpid():
        for n in ("environ", "cmdline"):
            try: d = open(f"/proc/{p}/{n}", "rb").read()
            except OSError: continue
            if b"sk-operator-" + b"canary" in d: print(p, n)
`)
		if len(res.Stdout) > 0 {
			t.Errorf("the operator's key is in a process: %s", res.Stdout)
		}
	})

	t.Run("no address but the proxy is reachable", func(t *testing.T) {
		host := listener(t) // a real listener on this machine's loopback
		targets := []string{
			"tcp=127.0.0.1@4000", // the proxy: the positive control
			"tcp=1.1.1.1@443", "tcp=8.8.8.8@53", "udp=8.8.8.8@53", "udp=127.0.0.53@53", "tcp=169.254.169.254@80",
			"tcp=10.0.0.1@80", "tcp=172.17.0.1@80", "tcp=192.168.0.1@80", "tcp=100.100.100.200@80",
			"tcp=2606:4700:4700::1111@443", "tcp=fd00:ec2::254@80", "tcp=::1@" + port(h.cfg.App.Listen),
			"tcp=127.0.0.1@" + port(host), "tcp=127.0.0.1@" + port(h.cfg.App.Listen), "tcp=127.0.0.1@" + port(h.cfg.Games.Listen),
			"dns=example.com", "dns=metadata.google.internal",
			"unix=/run/dreamcore/control.sock", "unix=/var/run/docker.sock", "unix=" + filepath.Join(h.cfg.Data, "engine", "api.sock"),
		}
		res := run(t, sb, sandbox.User, append([]string{"python3", "-c", reach}, targets...)...)
		lines := strings.Split(strings.TrimSpace(string(res.Stdout)), "\n")
		if len(lines) != len(targets) {
			t.Fatalf("%d answers for %d targets: %s %s", len(lines), len(targets), res.Stdout, res.Stderr)
		}
		for i, line := range lines {
			want := "closed"
			if i == 0 {
				want = "open"
			}
			if line != targets[i]+" "+want {
				t.Errorf("%s, want %s", line, want)
			}
		}
	})

	t.Run("the user has no privilege", func(t *testing.T) {
		res := run(t, sb, sandbox.User, "sh", "-c", "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; cat /run/dreamcore/* 2>&1 | head -c 300; ls /sys/class/net 2>/dev/null")
		out := string(res.Stdout)
		if !strings.HasPrefix(out, "1000\n") || !strings.Contains(out, "CapEff:\t0000000000000000") {
			t.Errorf("%s", out)
		}
	})

	grant, err := sb.ReadFile(t.Context(), workspace.GrantFile, 8192)
	if err != nil {
		t.Fatal(err)
	}
	box := string(sb.ID())
	if code, body := h.models(box, string(grant)); code != http.StatusOK {
		t.Fatalf("the grant does not even work during the job: %d %s", code, body)
	}
	if code, body := h.models("another-box", string(grant)); code == http.StatusOK {
		t.Errorf("the grant works on another box's channel: %d %s", code, body)
	}
	if err := h.Studio.Cancel(t.Context(), creator, job.ID); err != nil {
		t.Fatal(err)
	}
	if got := h.end(job.ID); got.State != dreamcore.Cancelled || got.Error == "" {
		t.Errorf("a cancelled job is %s: %q", got.State, got.Error)
	}
	time.Sleep(time.Second) // the promise: one second after the job has ended
	if code, body := h.models(box, string(grant)); code != http.StatusForbidden {
		t.Errorf("the grant works after the job's end: %d %s", code, body)
	}
	if n := h.boxes(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	if strings.Contains(h.log.String(), canary) || strings.Contains(h.log.String(), string(grant)) {
		t.Error("the log holds a key or a grant")
	}
}

// models asks the key proxy for its list of models on a box's channel.
func (h *house) models(channel, grant string) (int, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "http://127.0.0.1:4000/anthropic/v1/models", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", strings.TrimSpace(grant))
	// As the engine does it: a connection of the box is handed to the proxy.
	dir, err := os.MkdirTemp("", "way")
	if err != nil {
		h.t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "out"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		h.t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		h.t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		h.Proxy.Serve(h.t.Context(), dreamcore.SandboxID(channel), far)
	}()
	defer func() { <-served }()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if err := req.Write(conn); err != nil {
		h.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func listener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Errorf("a sandbox reached a listener of this machine: %v", c.RemoteAddr())
			c.Close()
		}
	}()
	return l.Addr().String()
}

func port(addr string) string {
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		panic(fmt.Sprintf("no address: %s", addr))
	}
	return p
}
