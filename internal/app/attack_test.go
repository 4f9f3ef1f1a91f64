package app

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"dreamcore/internal/attack"
	"dreamcore/internal/config"
	"dreamcore/internal/engine"
)

// What `dreamcore attack` does, with a newcomer's settings: everything holds,
// and nothing is left.
func TestAttackHoldsAndLeavesNothing(t *testing.T) {
	tools := filepath.Join(t.TempDir(), "toolkit")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", tools, "dreamcore/cmd/toolkit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the toolkit: %v\n%s", err, out)
	}
	toolkit, err := os.ReadFile(tools)
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	t.Setenv("DREAMCORE_CONFIG", "")
	cfg, err := config.Load("", func(c *config.Config) {
		c.Data, c.Box.Ahead = data, 0
		c.Box.MemoryMB, c.Box.DiskMB, c.Box.Processes = 1024, 256, 256 // other tests run beside it
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	var log lockedLog
	rows, err := attackConfig(ctx, cfg, toolkit, slog.New(slog.NewJSONHandler(&log, nil)), &log, func(r attack.Row) {
		t.Logf("%-5s %-9s %2d %.400q", r.Line, r.Verdict, r.Tries, r.Detail)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !attack.Holds(rows) {
		t.Error("it does not hold")
	}
	if _, err := os.Stat(filepath.Join(data, "attack")); err == nil {
		t.Error("the range's folder is left")
	}

	// Given up on its way, it leaves nothing either.
	ctx, cancel = context.WithCancel(t.Context())
	if _, err := attackConfig(ctx, cfg, toolkit, slog.New(slog.DiscardHandler), &lockedLog{}, func(attack.Row) { cancel() }); err == nil {
		t.Error("a range that was given up says that it was not")
	}
	if left, err := engine.Left(data); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(data, "attack")); err == nil {
		t.Error("the range's folder is left")
	}
}
