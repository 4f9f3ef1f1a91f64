package doctor

import (
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/text"
)

// Whether jobs begin with the agent started ahead is said, and why not.
func TestWarmStartIsSaid(t *testing.T) {
	for cold, want := range map[string]struct {
		key   string
		state State
	}{
		"":         {"doctor.warm_ok", Good},
		"agent":    {"doctor.warm_agent_ok", Good},
		"off":      {"doctor.warm_off_ok", Good},
		"remote":   {"doctor.warm_remote_ok", Good},
		"rootless": {"doctor.warm_rootless_bad", Weak},
	} {
		for _, lang := range dreamcore.Langs {
			cfg := sound(t)
			cfg.Cold, cfg.Lang = cold, lang
			c := find(Run(t.Context(), cfg), text.T(lang, want.key))
			if c == nil || c.State != want.state || (c.Fix != "") != (want.state != Good) || strings.HasPrefix(c.Name, "doctor.") || strings.HasPrefix(c.Says, "doctor.") {
				t.Errorf("%s, %q: %+v", lang, cold, c)
			}
		}
	}
}
