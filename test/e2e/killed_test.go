package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/app"
	"dreamcore/internal/config"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/keyproxy/control"
)

// TestMain lets the test binary be the host that is killed, the program itself,
// or the key proxy of either.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == control.Command {
		os.Exit(app.Run(context.Background(), app.Terminal{Out: io.Discard, Err: os.Stderr}, os.Args[1:]))
	}
	if os.Getenv("E2E_COMMAND") != "" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		code := app.Run(ctx, app.SystemTerminal(), os.Args[1:])
		stop()
		os.Exit(code)
	}
	if file := os.Getenv("E2E_HOST_CONFIG"); file != "" {
		doomed(file)
	}
	os.Exit(m.Run())
}

// doomed runs a service with one wish and prints the job's id and then each
// step, until it is killed.
func doomed(file string) {
	must := func(err error) {
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	data, err := os.ReadFile(file)
	must(err)
	var cfg config.Config
	must(json.Unmarshal(data, &cfg))
	ctx := context.Background()
	svc := app.New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	must(svc.Open(ctx))
	_, job, err := svc.Studio.Make(ctx, creator, os.Getenv("E2E_WISH"), dreamcore.English)
	must(err)
	fmt.Println("job", job.ID)
	_, err = waitEvent(ctx, svc.Store, job.ID, func(e dreamcore.Event) bool {
		if e.Kind == dreamcore.EventStep {
			fmt.Println("step", e.Key)
		}
		return ended(e)
	})
	must(err)
	fmt.Println("ended")
	select {}
}

// killAt runs a host until its job reaches the step, kills it with -9, and
// returns the job.
func killAt(t *testing.T, cfg config.Config, wish, step string) dreamcore.JobID {
	t.Helper()
	data, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := exec.Command(exe)
	host.Env = append(os.Environ(), "E2E_HOST_CONFIG="+file, "E2E_WISH="+wish)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = host.Process.Kill()
		_ = host.Wait() // killed: an error is right
	}()
	var id dreamcore.JobID
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch {
		case word == "error":
			t.Fatalf("the host: %s", rest)
		case word == "job":
			id = dreamcore.JobID(rest)
		case word == "step" && rest == step:
			return id
		case word == "ended":
			t.Fatalf("the job ended before %s", step)
		}
	}
	t.Fatalf("the host ended before %s", step)
	return ""
}

// leftovers lists what still belongs to a data folder: processes, and whatever
// there is of its boxes.
func leftovers(t *testing.T, data string) []string {
	t.Helper()
	left, err := enginetest.Left(filepath.Join(data, "engine"))
	if err != nil {
		t.Fatal(err)
	}
	pids, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pids {
		if line, err := os.ReadFile(p); err == nil && bytes.Contains(line, []byte(data)) {
			left = append(left, p+": "+strings.ReplaceAll(string(line[:min(len(line), 200)]), "\x00", " "))
		}
	}
	sockets, err := filepath.Glob(filepath.Join(data, "engine", "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	return append(left, sockets...)
}

func TestS03AKilledHostGoesOnOrFailsCleanly(t *testing.T) {
	for _, step := range []string{"job.booting", "job.turn_build", "job.verifying"} {
		t.Run(step, func(t *testing.T) {
			cfg := settings(t)
			id := killAt(t, cfg, "a cat flies through the sky", step)
			h := open(t, cfg)
			job := h.end(id)
			if job.State != dreamcore.Published {
				t.Errorf("after the kill the job ended as %s: %s %v", job.State, job.Error, job.Findings)
			}
			if job.Attempt > 2 {
				t.Errorf("it ran %d times", job.Attempt)
			}
			if n := h.boxes(); n != 0 {
				t.Errorf("%d sandboxes are left", n)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if left := leftovers(t, cfg.Data); len(left) > 0 {
				t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}
