package doctor

import (
	"context"
	"debug/buildinfo"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/text"
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

// An ordinary user is not told to do what needs root.
func TestAnOrdinaryUserImportsAnImage(t *testing.T) {
	cfg := sound(t)
	cfg.Image = func() (string, error) { return "", errors.New("no image was built") }
	for _, cfg.Lang = range dreamcore.Langs {
		for _, cfg.Ordinary = range []bool{false, true} {
			c := find(Run(t.Context(), cfg), "no image was built")
			if c == nil || !strings.Contains(c.Fix, "image import FILE") || strings.Contains(c.Fix, "image build") == cfg.Ordinary {
				t.Errorf("%s, ordinary %v: %+v", cfg.Lang, cfg.Ordinary, c)
			}
		}
	}
}

// A machine without control groups is described once, not in two ways.
func TestWhatIsNotLimitedIsSaidInOneWay(t *testing.T) {
	cfg := sound(t)
	cfg.Ordinary, cfg.Rootless, cfg.Limited = true, func(context.Context) error { return nil }, func() bool { return false }
	checks := Run(t.Context(), cfg)
	e := exam{cfg: cfg}
	e.add("cgroups", Weak, "missing", "cpu, memory, pids")
	for _, name := range []string{"rootless", "limits", "cgroups"} {
		says := text.T(cfg.Lang, "doctor."+name+"_bad", "missing", "cpu, memory, pids")
		if find(append(checks, e.checks...), says) == nil {
			t.Errorf("%s is not said", name)
		}
		for _, part := range []string{"processors", "memory as a whole", "the number of", "disk"} {
			if !strings.Contains(says, part) {
				t.Errorf("%s says nothing of %q: %s", name, part, says)
			}
		}
	}
}

// The version of a runsc that was built as the main module, as ours is, and of
// one within another.
func TestTheVersionOfGvisorIsThatOfItsModule(t *testing.T) {
	for _, info := range []buildinfo.BuildInfo{
		{Main: debug.Module{Path: "gvisor.dev/gvisor", Version: "v1.2.3"}},
		{Main: debug.Module{Path: "x"}, Deps: []*debug.Module{{Path: "y"}, {Path: "gvisor.dev/gvisor", Version: "v1.2.3"}}},
	} {
		if v := gvisorOf(&info); v != "v1.2.3" {
			t.Errorf("%+v: %q", info, v)
		}
	}
	if v := gvisorOf(&buildinfo.BuildInfo{Main: debug.Module{Path: "x"}}); v != "" {
		t.Error(v)
	}
}

// A service whose sandboxes run elsewhere needs nothing of this machine's own
// engine: that is not looked for, and it is said what is left out.
func TestARemoteEngineNeedsNoGVisor(t *testing.T) {
	cfg := sound(t)
	cfg.Remote, cfg.Cold, cfg.Engine, cfg.AllowNoLimits = "https://api.example.org", "remote", "127.0.0.1:1", false
	cfg.Ordinary, cfg.Rootless = true, func(context.Context) error { t.Error("namespaces were tried"); return errors.New("no") }
	cfg.Runsc = func() (string, error) { t.Error("gVisor was looked for"); return "", errors.New("no") }
	cfg.Image = func() (string, error) { t.Error("an image was looked for"); return "", errors.New("no") }
	booted := 0
	cfg.Boot = func(context.Context) error { booted++; return nil }
	for _, cfg.Lang = range dreamcore.Langs {
		checks := Run(t.Context(), cfg)
		if !Ready(checks) || len(checks) != 5 {
			t.Errorf("%s: %+v", cfg.Lang, checks)
		}
		for _, what := range []string{"gVisor", "dreamcore engine", cfg.Remote} {
			if !strings.Contains(checks[0].Says, what) {
				t.Errorf("%s: it does not say that %s is left out: %q", cfg.Lang, what, checks[0].Says)
			}
		}
	}
	if booted != len(dreamcore.Langs) {
		t.Errorf("it was tried %d times", booted)
	}
	cfg.Lang, cfg.Boot = dreamcore.English, nil
	if c := find(Run(t.Context(), cfg), "Not tried at"); c == nil || c.State != Good {
		t.Error("it does not say that no sandbox was tried")
	}
	cfg.Boot = func(context.Context) error { return errors.New("no such key") }
	if c := find(Run(t.Context(), cfg), "no such key"); c == nil || c.State != Bad {
		t.Error("a remote engine that boots nothing is not told")
	}
}
