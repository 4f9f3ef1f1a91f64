package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
)

func sound(t *testing.T) Config {
	t.Helper()
	script := filepath.Join(t.TempDir(), "runsc")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho runsc version 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Config{
		Lang: dreamcore.English, Data: filepath.Join(t.TempDir(), "not", "yet"), Cache: t.TempDir(), AllowNoLimits: true,
		Runsc: func() (string, error) { return script, nil },
		Image: func() (string, error) { return "sha256:abc", nil },
		Boot:  func(context.Context) error { return nil },
	}
}

func find(checks []Check, says string) *Check {
	for i := range checks {
		if strings.Contains(checks[i].Says, says) {
			return &checks[i]
		}
	}
	return nil
}

func TestASoundMachineHasNothingToMend(t *testing.T) {
	for _, c := range Run(t.Context(), sound(t)) {
		if c.State == Bad && c.Name != "User" { // the test may run without root
			t.Errorf("%s: %s", c.Name, c.Says)
		}
		if (c.Fix != "") != (c.State != Good) || c.Name == "" || strings.Contains(c.Says, "{") || strings.HasPrefix(c.Says, "doctor.") {
			t.Errorf("%+v", c)
		}
	}
}

func TestEachLackIsNamedWithItsCure(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := sound(t)
	cfg.Listen = []string{l.Addr().String()}
	cfg.Runsc = func() (string, error) { return "/does/not/exist", nil }
	cfg.Image = func() (string, error) {
		return "", dreamcore.Errorf(dreamcore.NotFound, "x", "no image was built").WithHint("build one")
	}
	cfg.Boot = func(context.Context) error { t.Error("booted without an image"); return nil }
	for _, lang := range dreamcore.Langs {
		cfg.Lang = lang
		checks := Run(t.Context(), cfg)
		if Ready(checks) {
			t.Errorf("%s: ready", lang)
		}
		for _, says := range []string{l.Addr().String(), "/does/not/exist", "no image was built (build one)"} {
			if c := find(checks, says); c == nil || c.State != Bad || c.Fix == "" {
				t.Errorf("%s: nothing about %s in %+v", lang, says, checks)
			}
		}
	}
}

func TestABoxThatDoesNotBoot(t *testing.T) {
	cfg := sound(t)
	cfg.Boot = func(context.Context) error { return errors.New("no such luck") }
	if c := find(Run(t.Context(), cfg), "no such luck"); c == nil || c.State != Bad {
		t.Error("it is not told")
	}
}
