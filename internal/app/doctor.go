package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"dreamcore/internal/config"
	"dreamcore/internal/doctor"
	"dreamcore/internal/engine"
	"dreamcore/internal/payload"
	"dreamcore/internal/sandbox"
)

func runDoctor(ctx context.Context, t Terminal, args []string) error {
	var s settings
	rest, err := options(t, "cli.doctor_help", args, s.register)
	if err != nil {
		return err
	}
	if err := none(t, rest); err != nil {
		return err
	}
	cfg, err := s.load(t)
	if err != nil {
		return err
	}
	cache, err := payload.DefaultCache()
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if s.verbose {
		log = slog.New(slog.NewTextHandler(t.Err, nil))
	}
	// The ports of a DreamCore that runs are taken, and rightly so.
	listen := []string{cfg.App.Listen, cfg.Games.Listen}
	c, err := newClient(cfg.App.URL, t.Lang)
	if err != nil {
		return err
	}
	running := c.healthy(ctx)
	if running {
		t.say("cli.doctor_runs", "url", cfg.App.URL)
		listen = nil
	}
	trial := New(cfg, log)
	trial.brief = true
	boot := func(ctx context.Context) error { return bootOnce(ctx, trial) }
	remote := ""
	if cfg.Engine == config.Remote {
		remote = cfg.E2B.Where()
		if running {
			boot = nil // the service listens where sandboxes find the key proxy
		}
	}
	checks := doctor.Run(ctx, doctor.Config{
		Remote: remote, Cold: coldReason(cfg, trial.agent), Engine: engineListen, Serving: runningEngine(ctx, t, cfg.Data), Limited: func() bool { return trial.limited },
		Lang: t.Lang, Ordinary: os.Geteuid() != 0, Data: cfg.Data, Cache: cache, Listen: listen, AllowNoLimits: cfg.AllowNoLimits, Rootless: engine.TryRootless,
		Runsc: func() (string, error) {
			p, err := payload.Extract(cache)
			return p.Runsc, err
		},
		Image: func() (string, error) {
			store, err := openImageStore(t.Lang)
			if err != nil {
				return "", err
			}
			img, err := store.Current()
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%.19s  %s %s", img.Digest, img.Manifest.AgentName, img.Manifest.AgentVersion), nil
		},
		Boot: boot,
	})
	checks = append(checks, proxyChecks(cfg, running)...)
	for _, c := range checks {
		mark := map[doctor.State]string{doctor.Good: "✓", doctor.Weak: "!", doctor.Bad: "✗"}[c.State]
		fmt.Fprintf(t.Out, "%s %s: %s\n", mark, c.Name, printable(c.Says, 300))
		if c.Fix != "" {
			fmt.Fprintf(t.Out, "    → %s\n", c.Fix)
		}
	}
	if !doctor.Ready(checks) {
		t.say("cli.doctor_bad")
		return errSaid
	}
	t.say("cli.doctor_good")
	return nil
}

// runningEngine is where a `dreamcore engine` of this data folder answers, ""
// when none does.
func runningEngine(ctx context.Context, t Terminal, data string) string {
	a, err := findAddress(filepath.Join(data, "serving"))
	if err != nil {
		return "" // it left no address
	}
	h := &hand{t: t, address: a}
	if answers, err := h.dial(ctx); err != nil || !answers {
		return ""
	}
	return h.where
}

// bootOnce boots a sandbox, runs a command in it and destroys it. It uses a
// data folder of its own below the service's, so that a service that runs is
// not disturbed.
func bootOnce(ctx context.Context, s *Service) (err error) {
	s.cfg.Data += "/doctor"
	s.cfg.App = config.Listener{Listen: "127.0.0.1:0"}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
		if rerr := os.RemoveAll(s.cfg.Data); err == nil {
			err = rerr
		}
	}()
	if err := s.lock(); err != nil {
		return err
	}
	paths, _, err := s.payload()
	if err != nil {
		return err
	}
	if s.Proxy, err = openProxy(ctx, s.cfg, s.log); err != nil {
		return err
	}
	s.onClose("key proxy", s.Proxy.Host.Close)
	if err := s.openSandboxes(ctx, paths); err != nil {
		return err
	}
	img, err := s.image()
	if err != nil {
		return err
	}
	sb, err := s.Sandboxes.Create(ctx, sandbox.Spec{Image: img.Digest, Timeout: time.Minute})
	if err != nil {
		return err
	}
	res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"node", "--version"}}, 1000)
	if err != nil {
		return err
	}
	if res.Code != 0 {
		return fmt.Errorf("node ended with %d in the sandbox", res.Code)
	}
	return s.Sandboxes.Kill(ctx, sb.ID())
}
