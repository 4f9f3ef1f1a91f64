package peer

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"dreamcore/internal/app"
	"dreamcore/test/node"
)

// asCommand in the environment makes this test's program the command line.
const asCommand = "DREAMCORE_TEST_COMMAND"

func command() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return app.Run(ctx, app.SystemTerminal(), os.Args[1:])
}

// Somebody runs `dreamcore engine`, pastes what it prints, and uses the SDK as
// its documentation says: templates have E2B's names, and no option is needed.
func TestSDKWithTheCommand(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "engine", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--quiet")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Env = append(cmd.Env, "E2B_API_KEY=")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill() // its sandboxes end by themselves
			_ = cmd.Wait()
		}
	})
	env, err := printed(out, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"} {
		if env[name] == "" {
			t.Fatalf("%s is not among what it prints: %v", name, env)
		}
	}
	drive(t, nil, way{
		sdk: node.SDKs[0], domain: domain + ":" + env["E2B_API_URL"][strings.LastIndex(env["E2B_API_URL"], ":")+1:],
		env:   []string{"E2B_API_KEY=" + env["E2B_API_KEY"], "E2B_API_URL=" + env["E2B_API_URL"], "E2B_SANDBOX_URL=" + env["E2B_SANDBOX_URL"]},
		parts: []string{"commands", "control", "ports", "served"},
		cases: []string{"sandbox/create", "sandbox/connect", "commands/env", "ports/http/by_python", "ports/http/by", "served"},
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		ended = true
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it does not end")
	}
}

// printed reads the n variables that the command prints for a shell.
func printed(out interface{ Read([]byte) (int, error) }, n int) (map[string]string, error) {
	env := map[string]string{}
	lines := bufio.NewScanner(out)
	for len(env) < n && lines.Scan() {
		assignment, ok := strings.CutPrefix(lines.Text(), "export ")
		name, value, ok2 := strings.Cut(assignment, "=")
		if !ok || !ok2 {
			return nil, fmt.Errorf("it prints %q", lines.Text())
		}
		env[name] = strings.Trim(value, "'")
	}
	if len(env) < n {
		return nil, fmt.Errorf("it ended after %v: %v", env, lines.Err())
	}
	return env, nil
}
