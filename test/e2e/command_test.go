package e2e

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"dreamcore"
)

// command is this test binary as the program itself.
func command(t *testing.T, data string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "E2E_COMMAND=1", "LANG=C", "LC_ALL=C", "DREAMCORE_CONFIG=", "DREAMCORE_DATA="+data)
	return cmd
}

func TestMakeOnceLeavesAGameAndNothingElse(t *testing.T) {
	cfg := settings(t)
	cmd := command(t, cfg.Data, "make", "--once", "--app", cfg.App.Listen, "--games", cfg.Games.Listen, "忍者が屋根を走るゲーム")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("\nPlay: http://"+cfg.App.Listen+"/play/")) || !bytes.Contains(out, []byte("Fetched http://"+cfg.Games.Listen)) {
		t.Fatalf("%v\n%s", err, out)
	}
	if left := leftovers(t, cfg.Data); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	// Its URL works after a restart.
	h := open(t, cfg)
	games, _, err := h.Store.Gallery(t.Context(), 10, "")
	if err != nil || len(games) != 1 {
		t.Fatalf("%d games, %v", len(games), err)
	}
}

func TestInterruptedMakeLeavesNothing(t *testing.T) {
	cfg := settings(t)
	cmd := command(t, cfg.Data, "make", "--app", cfg.App.Listen, "--games", cfg.Games.Listen, "a cat flies through the sky")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // has ended already when all went well
	lines := bufio.NewScanner(out)
	interrupted := false
	for lines.Scan() {
		if !interrupted && strings.Contains(lines.Text(), "Building the game") {
			interrupted = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("it ended with %v", err)
	}
	if left := leftovers(t, cfg.Data); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	h := open(t, cfg)
	jobs, err := h.Store.JobsIn(t.Context(), dreamcore.Queued, dreamcore.Running, dreamcore.Cancelled)
	if err != nil || len(jobs) != 1 || jobs[0].State != dreamcore.Cancelled {
		t.Errorf("the job is %+v, %v", jobs, err)
	}
}
