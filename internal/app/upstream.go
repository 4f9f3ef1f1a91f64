package app

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strconv"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/egress"
	"dreamcore/internal/keyproxy"
	"dreamcore/internal/keyproxy/control"
)

// ranges reads address ranges that the settings' check has let pass.
func ranges(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, r := range list {
		p, err := netip.ParsePrefix(r)
		if err != nil {
			return nil, fmt.Errorf("address range: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}

// priced is a model with what it costs.
func priced(name, upstream string, p config.Price, free bool, most int64) keyproxy.ModelPrice {
	return keyproxy.ModelPrice{
		Name: name, Upstream: upstream, InputMicros: p.Input, OutputMicros: p.Output, CacheReadMicros: p.CacheRead, CacheWriteMicros: p.CacheWrite,
		ImageMicros: p.Image, Free: free, MaxOutputTokens: most,
	}
}

// addProviders sets up the further servers of models.
func addProviders(cfg config.Config, set upstreams, log *slog.Logger) error {
	for _, p := range cfg.Providers {
		declared, ok := egress.Model(p.API)
		if !ok {
			return dreamcore.Errorf(dreamcore.Internal, "app.proxy", "no feature speaks %q", p.API)
		}
		private, err := ranges(p.Private)
		if err != nil {
			return err
		}
		u := keyproxy.Upstream{
			BaseURL: p.BaseURL, Private: private, Compatible: p.Compatible, ExtraFields: p.ExtraFields, Set: p.SetFields,
			Limit: keyproxy.Limit{Concurrency: p.Concurrency, PerMinute: p.PerMinute},
		}
		for _, m := range p.Models {
			u.Models = append(u.Models, priced(m.Name, m.Upstream, m.Price, m.Free, m.MaxOutputTokens))
		}
		set[declared.Feature] = append(set[declared.Feature], source{keyFile: p.KeyFile, Source: control.Source{Upstream: u}})
		log.Info("language models", "decision", "operator's", "provider", p.Name, "api", p.API, "models", len(u.Models))
	}
	return nil
}

// addFiles sets up the package mirror and the asset hosts, where they are on.
func addFiles(cfg config.Config, set upstreams, log *slog.Logger) error {
	if p := cfg.Packages; p.RegistryURL != "" {
		private, err := ranges(p.Private)
		if err != nil {
			return err
		}
		set[dreamcore.PackageMirror] = []source{{keyFile: p.KeyFile, Source: control.Source{Upstream: keyproxy.Upstream{
			BaseURL: p.RegistryURL, Private: private, Packages: p.Pinned, BoxURL: boxURL(cfg),
		}}}}
		log.Info("package mirror", "decision", "on", "pinned", len(p.Pinned))
	}
	for _, a := range cfg.Assets {
		private, err := ranges(a.Private)
		if err != nil {
			return err
		}
		set[dreamcore.AssetFetch] = append(set[dreamcore.AssetFetch], source{Source: control.Source{Upstream: keyproxy.Upstream{
			BaseURL: a.BaseURL, Private: private, Assets: keyproxy.Assets{Types: a.Types, MaxBytes: a.MaxBytes, URLBytes: a.URLBytes},
		}}})
		log.Info("asset host", "decision", "on", "base_url", a.BaseURL)
	}
	return nil
}

// boxURL is the key proxy as a box sees it.
func boxURL(cfg config.Config) string {
	if cfg.Engine == config.Remote {
		return "https://" + net.JoinHostPort(remoteProxyName, strconv.Itoa(int(cfg.E2B.Proxy().Port())))
	}
	return proxyURL
}

// creatorTerms adds to a job's terms what holds for its creator.
func creatorTerms(t *keyproxy.JobTerms, creator dreamcore.CreatorID, c config.Creators) {
	t.CreatorLimit = keyproxy.Limit{Concurrency: c.Concurrency, PerMinute: c.PerMinute}
	if c.Budget == nil && t.CreatorLimit == (keyproxy.Limit{}) {
		return
	}
	const most = math.MaxInt64 / 4 // sums of it and what a call holds do not overflow
	t.Creator = creator
	t.CreatorBudget = dreamcore.Budget{Requests: most, InputTokens: most, OutputTokens: most, Images: most, Bytes: most, CostMicros: most}
	if c.Budget != nil {
		t.CreatorBudget = *c.Budget
	}
}
