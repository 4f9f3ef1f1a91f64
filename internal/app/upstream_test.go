package app

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy"
)

// What an operator writes becomes what the proxy is built from, also through the
// JSON in which the proxy's process gets it.
func TestSettingsBecomeUpstreams(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(file, []byte(`{
		"model": {"api": "openai-chat", "name": "coder"},
		"creators": {"concurrency": 3},
		"providers": [
			{"name": "ollama", "api": "openai-chat", "base_url": "http://127.0.0.1:11434/v1", "private": ["127.0.0.1/32"], "compatible": true, "set_fields": {"reasoning_effort": "none"},
			 "concurrency": 2, "models": [{"name": "coder", "upstream": "qwen3-coder:30b"}]},
			{"name": "hosted", "api": "openai-chat", "base_url": "https://api.example.com/v1", "models": [{"name": "big", "input_micros_per_mtoken": 5, "output_micros_per_mtoken": 6}]},
			{"name": "google", "api": "google-gemini", "base_url": "https://api.example.com/v1beta", "models": [{"name": "g", "free": true}]}
		],
		"packages": {"registry_url": "https://registry.example.com", "pinned": [{"name": "@scope/kit", "version": "^1.0.0"}]},
		"assets": [{"base_url": "https://assets.example.com/kit"}, {"base_url": "https://more.example.com"}]
	}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file, func(c *config.Config) { c.Data = t.TempDir() })
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	p, set := &Proxy{}, upstreams{}
	if err := p.addModel(cfg.Model, set, log); err != nil {
		t.Fatal(err)
	}
	if err := addProviders(cfg, set, log); err != nil {
		t.Fatal(err)
	}
	if err := addFiles(cfg, set, log); err != nil {
		t.Fatal(err)
	}
	if p.model != "coder" {
		t.Errorf("agents use %q", p.model)
	}
	built := map[dreamcore.Feature][]keyproxy.Upstream{}
	count := map[dreamcore.Feature]int{}
	for f, list := range set {
		for _, s := range list {
			data, err := json.Marshal(s.Upstream)
			if err != nil {
				t.Fatal(err)
			}
			var u keyproxy.Upstream
			if err := json.Unmarshal(data, &u); err != nil {
				t.Fatal(err)
			}
			built[f] = append(built[f], u)
		}
		count[f] = len(list)
	}
	if count[dreamcore.OpenAIChat] != 2 || count[dreamcore.GoogleGemini] != 1 || count[dreamcore.PackageMirror] != 1 || count[dreamcore.AssetFetch] != 2 || len(count) != 4 {
		t.Errorf("%v", count)
	}
	u := built[dreamcore.OpenAIChat][0]
	if !u.Compatible || u.Limit.Concurrency != 2 || string(u.Set["reasoning_effort"]) != `"none"` || !u.Models[0].Free || u.Models[0].Upstream != "qwen3-coder:30b" {
		t.Errorf("%+v", u)
	}
	if m := built[dreamcore.PackageMirror][0]; m.BoxURL != proxyURL || len(m.Packages) != 1 || m.Packages[0].Version != "^1.0.0" {
		t.Errorf("%+v", m)
	}
	minter, err := grant.NewMinter()
	if err != nil {
		t.Fatal(err)
	}
	kp, err := keyproxy.New(keyproxy.Config{Verifier: minter.Verifier(), Upstreams: built, Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := kp.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var terms keyproxy.JobTerms
	if creatorTerms(&terms, "c1", cfg.Creators); terms.Creator != "c1" || terms.CreatorLimit.Concurrency != 3 || terms.CreatorBudget.Requests == 0 {
		t.Errorf("%+v", terms)
	}
	terms = keyproxy.JobTerms{}
	if creatorTerms(&terms, "c1", config.Creators{}); terms.Creator != "" {
		t.Errorf("without a limit: %+v", terms)
	}
}
