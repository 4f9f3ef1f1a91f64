package app

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"dreamcore/internal/config"
	"dreamcore/internal/doctor"
	"dreamcore/internal/keyproxy"
	"dreamcore/internal/text"
)

// healthFile is where a service leaves how its key proxy does, for the doctor.
func healthFile(data string) string { return filepath.Join(data, "keyproxy-health.json") }

// leaveHealth writes the file whenever something has changed.
func leaveHealth(path string, log *slog.Logger) func(keyproxy.Health) {
	var last []byte
	return func(h keyproxy.Health) {
		data, err := json.Marshal(h)
		if err == nil && string(data) == string(last) {
			return
		}
		if err == nil {
			err = keepFile(path, data)
		}
		if err != nil {
			log.Warn("the key proxy's health cannot be left for the doctor", "err", err)
			return
		}
		last = data
	}
}

// proxyChecks says whom the key proxy runs as and, while a service runs, what it
// has met at the upstreams.
func proxyChecks(cfg config.Config, running bool) (checks []doctor.Check) {
	t := func(key string, args ...string) string { return text.T(cfg.Lang, "doctor.proxy_"+key, args...) }
	user, err := proxyUser(cfg, slog.New(slog.DiscardHandler))
	switch {
	case err != nil:
		checks = append(checks, doctor.Check{Name: t("user"), State: doctor.Bad, Says: doctor.Say(err)})
	case user == nil:
		checks = append(checks, doctor.Check{Name: t("user"), State: doctor.Weak, Says: t("shared"), Fix: t("shared_fix")})
	default:
		checks = append(checks, doctor.Check{Name: t("user"), State: doctor.Good, Says: t("own", "uid", strconv.Itoa(user.UID))})
	}
	if !running {
		return checks
	}
	data, err := os.ReadFile(healthFile(cfg.Data))
	var h keyproxy.Health
	if err != nil || json.Unmarshal(data, &h) != nil {
		return checks // it has not run for ten seconds, or is of a remote machine
	}
	for _, u := range h.Upstreams {
		c := doctor.Check{Name: t("upstream"), State: doctor.Good, Says: t(u.State, "host", u.Host, "feature", string(u.Feature),
			"good", strconv.FormatInt(u.Good, 10), "failed", strconv.FormatInt(u.Failed, 10), "reason", string(u.LastReason), "status", strconv.Itoa(u.LastStatus),
			"when", u.LastFailed.Local().Format("15:04:05"))}
		if u.State == keyproxy.Failing {
			c.State = doctor.Weak
		}
		checks = append(checks, c)
	}
	return checks
}
