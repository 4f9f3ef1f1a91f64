package app

import (
	"dreamcore/internal/agent"
	"dreamcore/internal/config"
	"dreamcore/internal/engine"
)

// warmSuffix after an image's digest asks the engine for a box of it that begins
// with the agent loaded. A verifier's box does not: it has no agent.
const warmSuffix = "+warm"

// coldReason says why jobs begin with a cold agent, as the doctor's texts are
// named; "" when they need not.
func coldReason(cfg config.Config, a agent.Adapter) string {
	_, can := a.(agent.Warmer)
	switch {
	case !can:
		return "agent"
	case cfg.Engine == config.Remote:
		return "remote"
	case !cfg.Box.Warm:
		return "off"
	case !engine.CanSave():
		return "rootless"
	}
	return ""
}

// warmName is the name under which the engine makes boxes with the agent loaded;
// "" when it makes none.
func (s *Service) warmName(digest string) string {
	if coldReason(s.cfg, s.agent) != "" {
		return ""
	}
	return digest + warmSuffix
}

// warmup is what the engine does ahead for jobs; nil: nothing.
func (s *Service) warmup() *engine.Warmup {
	if reason := coldReason(s.cfg, s.agent); reason != "" {
		s.log.Info("the agent is not started ahead", "decision", "cold", "reason", reason)
		return nil
	}
	w := s.agent.(agent.Warmer).Warmup()
	return &engine.Warmup{Args: w.Args, Env: w.Env, Tag: w.Tag, Ready: w.Ready, Found: s.brief}
}

// next is the image of which the next job's box is likely to be.
func (s *Service) next() (engine.Image, error) {
	img, err := s.Images.Current()
	return engine.Image{Digest: img.Digest, Root: img.Root, Warm: coldReason(s.cfg, s.agent) == ""}, err
}

// warmNext begins to start the agent ahead; nobody waits for it.
func (s *Service) warmNext(e *engine.Engine) {
	image, err := s.next()
	if err != nil {
		s.log.Warn("the agent is not started ahead yet", "decision", "wait for the first job", "err", err)
		return
	}
	e.WarmSoon(image)
}
