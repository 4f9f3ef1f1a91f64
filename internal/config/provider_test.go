package config

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"dreamcore"
)

const prices = `{"models": {"gpt-x": {"input_micros_per_mtoken": 1000000, "output_micros_per_mtoken": 8000000, "cache_read_micros_per_mtoken": 100000}, "painter": {"micros_per_image": 40000}}}`

func priceFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return strconv.Quote(file)
}

func TestSeveralProviders(t *testing.T) {
	c, err := load(t, `{
		"prices_file": `+priceFile(t, prices)+`,
		"model": {"api": "openai-chat", "name": "coder"},
		"image": {"name": "painter", "base_url": "https://api.example.com/v1"},
		"creators": {"concurrency": 4, "per_minute": 100, "budget": {"costMicros": 9000000}},
		"providers": [
			{"name": "ollama", "api": "openai-chat", "base_url": "http://127.0.0.1:11434/v1", "private": ["127.0.0.1/32"], "compatible": true, "concurrency": 2,
			 "set_fields": {"reasoning_effort": "none"}, "models": [{"name": "coder", "upstream": "qwen3-coder:30b"}]},
			{"name": "openai", "api": "openai-responses", "base_url": "https://api.example.com/v1", "models": [{"name": "big", "upstream": "gpt-x"}, {"name": "gpt-y", "free": true}]},
			{"name": "google", "api": "google-gemini", "base_url": "https://api.example.com/v1beta", "models": [{"name": "g", "input_micros_per_mtoken": 5, "output_micros_per_mtoken": 6}]}
		],
		"packages": {"registry_url": "https://registry.example.com", "pinned": [{"name": "@scope/kit", "version": "^1.0.0"}]},
		"assets": [{"base_url": "https://assets.example.com/kit", "types": ["image/png"]}]
	}`)
	if err != nil {
		t.Fatal(err)
	}
	if m := c.Providers[0].Models[0]; !m.Free || m.Upstream != "qwen3-coder:30b" {
		t.Errorf("a model on a private range: %+v", m)
	}
	if m := c.Providers[1].Models[0]; m.Free || m.Output != 8_000_000 || m.CacheRead != 100_000 {
		t.Errorf("a price from the table: %+v", m)
	}
	if c.Image.ImageMicros != 40_000 {
		t.Errorf("a picture's price from the table: %+v", c.Image)
	}
	if string(c.Providers[0].SetFields["reasoning_effort"]) != `"none"` || c.Creators.Budget.CostMicros != 9_000_000 || len(c.Packages.Pinned) != 1 || len(c.Assets) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestB09PricesThatCannotBe(t *testing.T) {
	provider := func(model string) string {
		return `{"providers": [{"name": "p", "api": "openai-chat", "base_url": "https://api.example.com/v1", "models": [` + model + `]}]}`
	}
	for text, says := range map[string]string{
		provider(`{"name": "m"}`): "no price",
		provider(`{"name": "m", "input_micros_per_mtoken": -1, "output_micros_per_mtoken": 1}`):                                       "input_micros_per_mtoken is -1",
		provider(`{"name": "m", "input_micros_per_mtoken": 3000000000000, "output_micros_per_mtoken": 1}`):                            "cannot be right",
		provider(`{"name": "m", "output_micros_per_mtoken": 1}`):                                                                      "only one",
		provider(`{"name": "m", "input_micros_per_mtoken": 1, "output_micros_per_mtoken": 1, "cache_read_micros_per_mtoken": 2}`):     "cache",
		provider(`{"name": "m", "free": true}, {"name": "m", "free": true}`):                                                          "second time",
		`{"model": {"name": "m", "base_url": "https://api.example.com"}}`:                                                             "no price",
		`{"model": {"api": "google-gemini"}}`:                                                                                         "stand-in",
		`{"providers": [{"name": "p", "api": "telepathy"}]}`:                                                                          "telepathy",
		`{"providers": [{"name": "p", "api": "openai-chat", "base_url": "http://10.0.0.1", "models": [{"name": "m"}]}]}`:              "not https",
		`{"providers": [{"name": "p", "api": "openai-chat", "base_url": "https://x.example", "models": []}]}`:                         "no models",
		`{"providers": [{"name": "p", "api": "openai-chat", "base_url": "https://x.example", "private": ["x"], "models": [{}]}]}`:     "no address range",
		`{"providers": [{"name": "p", "api": "google-gemini", "base_url": "https://x.example", "compatible": true, "models": [{}]}]}`: "compatible",
		`{"packages": {"pinned": [{"name": "a", "version": "^1.0.0"}]}}`:                                                              "registry_url",
		`{"packages": {"registry_url": "https://r.example", "pinned": [{"name": "a", "version": "1.0.0"}]}}`:                          "integrity",
		`{"assets": [{"base_url": "ftp://a.example"}]}`:                                                                               "not https",
		`{"creators": {"concurrency": -1}}`:                                                                                           "creators",
		`{"prices_file": "/does/not/exist"}`:                                                                                          "price table",
	} {
		if _, err := load(t, text); dreamcore.CodeOf(err) != dreamcore.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to name %q", text, err, says)
		}
	}
	for table, says := range map[string]string{
		`{"models": {"m": {}}}`: "no price", `{"models": {"m": {"input": 1}}}`: "unknown field", prices + prices: "follows", `[]`: "not right",
		`{"models": {"m": {"micros_per_image": 1e18}}}`: "not right", `{"models": {"m": {"micros_per_image": 1000000000000}}}`: "micros_per_image",
	} {
		if _, err := load(t, `{"prices_file": `+priceFile(t, table)+`}`); dreamcore.CodeOf(err) != dreamcore.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to name %q", table, err, says)
		}
	}
}

// FuzzPrices: what is taken can be paid.
func FuzzPrices(f *testing.F) {
	f.Add([]byte(prices))
	f.Add([]byte(`{"models":{"":{"micros_per_image":-1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := parsePrices(data)
		for name, p := range table {
			if err == nil && (name == "" || p.strange() != "" || p == (Price{})) {
				t.Fatalf("%q: %+v", name, p)
			}
		}
	})
}
