package engine_test

import (
	"os"
	"testing"
	"time"

	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
	}
	if dir := os.Getenv(ordinaryDir); dir != "" {
		ordinary(dir)
	}
	code := m.Run()
	printTable()
	enginetest.CleanUp()
	os.Exit(code)
}

func TestConformance(t *testing.T) {
	e := enginetest.Start(t)
	sandboxtest.Run(t, e.Provider, sandbox.Spec{Image: e.Image, Timeout: 5 * time.Minute, Env: map[string]string{"GIVEN": "to every command"}})
}
