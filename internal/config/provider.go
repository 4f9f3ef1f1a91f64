package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"dreamcore"
	"dreamcore/internal/egress"
	"dreamcore/internal/keyproxy/provider/npm"
)

// Provider is a server of models beside the one in Config.Model, which agents
// may name one of.
type Provider struct {
	Name        string                     `json:"name"` // for messages only
	API         string                     `json:"api"`
	BaseURL     string                     `json:"base_url"`
	KeyFile     string                     `json:"key_file"`
	Private     []string                   `json:"private"`
	Compatible  bool                       `json:"compatible"`   // not OpenAI's own: Ollama, llama.cpp, vLLM
	ExtraFields []string                   `json:"extra_fields"` // that agents may send beyond the list
	SetFields   map[string]json.RawMessage `json:"set_fields"`   // that replace what agents send
	Concurrency int                        `json:"concurrency"`  // calls at once; 0: no limit
	PerMinute   int                        `json:"per_minute"`
	Models      []ProviderModel            `json:"models"`
}

// ProviderModel is a model as agents name it, and as its server does.
type ProviderModel struct {
	Name            string `json:"name"`
	Upstream        string `json:"upstream"` // "" means Name
	MaxOutputTokens int64  `json:"max_output_tokens"`
	Free            bool   `json:"free"` // costs nothing, on purpose
	Price
}

// Price is in micro-units of the operator's currency: of a million tokens, or of
// a picture.
type Price struct {
	Input      int64 `json:"input_micros_per_mtoken"`
	Output     int64 `json:"output_micros_per_mtoken"`
	CacheRead  int64 `json:"cache_read_micros_per_mtoken"`
	CacheWrite int64 `json:"cache_write_micros_per_mtoken"`
	Image      int64 `json:"micros_per_image"`
}

// maxPrice is 1,000 units of currency for a million tokens: more is a mistake of
// the unit.
const maxPrice = 1_000_000_000

// strange says what cannot be right about a price, "" when nothing.
func (p Price) strange() string {
	for name, n := range map[string]int64{
		"input_micros_per_mtoken": p.Input, "output_micros_per_mtoken": p.Output, "cache_read_micros_per_mtoken": p.CacheRead,
		"cache_write_micros_per_mtoken": p.CacheWrite, "micros_per_image": p.Image,
	} {
		if n < 0 || n > maxPrice {
			return fmt.Sprintf("%s is %d", name, n)
		}
	}
	switch {
	case (p.Input == 0) != (p.Output == 0):
		return "only one of input and output has a price"
	case p.CacheRead > p.Input:
		return "reading from the cache costs more than input"
	}
	return ""
}

// Creators bounds all jobs of one creator together; zeros are no limit.
type Creators struct {
	Concurrency int `json:"concurrency"` // model calls at once
	PerMinute   int `json:"per_minute"`
	// Budget is over all jobs of a creator, for good; without it there is none.
	Budget *dreamcore.Budget `json:"budget"`
}

// Packages is the pull-through mirror of npm; without a registry it is off.
type Packages struct {
	RegistryURL string    `json:"registry_url"`
	KeyFile     string    `json:"key_file"`
	Private     []string  `json:"private"`
	Pinned      []npm.Pin `json:"pinned"`
}

// AssetHost is a host, or a folder of one, that files may be fetched from.
type AssetHost struct {
	BaseURL  string   `json:"base_url"`
	Private  []string `json:"private"`
	Types    []string `json:"types"`
	MaxBytes int64    `json:"max_bytes"`
	URLBytes int64    `json:"url_bytes"` // of all addresses of a job; the first host's counts
}

// readPrices reads the table of prices by model.
func readPrices(file string) (map[string]Price, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	defer f.Close()
	const most = 4 << 20
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("read prices: %w", err)
	}
	if len(data) > most {
		return nil, fmt.Errorf("it is longer than %d bytes", most)
	}
	return parsePrices(data)
}

func parsePrices(data []byte) (map[string]Price, error) {
	var table struct {
		Models map[string]Price `json:"models"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&table); err != nil {
		return nil, fmt.Errorf("it is not right: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the table")
	}
	for name, p := range table.Models {
		if name == "" || p == (Price{}) {
			return nil, fmt.Errorf("%q has no price", name)
		}
		if why := p.strange(); why != "" {
			return nil, fmt.Errorf("%q: %s", name, why)
		}
	}
	return table.Models, nil
}

// completeProviders checks what leads out of a sandbox, and fills in the prices.
func (c *Config) completeProviders() error {
	table := map[string]Price{}
	if c.PricesFile != "" {
		var err error
		if table, err = readPrices(c.PricesFile); err != nil {
			return c.wrong(dreamcore.Invalid, "prices_file", "file", c.PricesFile, "why", err.Error())
		}
	}
	// price completes p, from the table where it says nothing.
	price := func(p *Price, free, own bool, names ...string) error {
		for _, n := range names {
			if t, ok := table[n]; ok && *p == (Price{}) {
				*p = t
			}
		}
		if why := p.strange(); why != "" {
			return c.wrong(dreamcore.Invalid, "price_strange", "model", names[0], "why", why)
		}
		if p.Input == 0 && !free && !own {
			return c.wrong(dreamcore.Invalid, "price", "model", names[0])
		}
		return nil
	}
	seen := map[string]bool{}
	for i := range c.Providers {
		p := &c.Providers[i]
		where := "providers." + p.Name
		if _, ok := egress.Model(p.API); !ok {
			return c.wrong(dreamcore.Invalid, "provider_api", "where", where, "api", p.API, "apis", strings.Join(egress.APIs(), ", "))
		}
		if err := c.address(where, p.BaseURL, p.Private); err != nil {
			return err
		}
		if len(p.Models) == 0 || p.Concurrency < 0 || p.PerMinute < 0 || p.Compatible && p.API != "openai-chat" {
			return c.wrong(dreamcore.Invalid, "provider", "where", where)
		}
		for k := range p.Models {
			m := &p.Models[k]
			if m.Name == "" || m.MaxOutputTokens < 0 || seen[p.API+" "+m.Name] {
				return c.wrong(dreamcore.Invalid, "provider_model", "where", where, "model", m.Name)
			}
			seen[p.API+" "+m.Name] = true
			if err := price(&m.Price, m.Free, len(p.Private) > 0, m.Name, m.Upstream); err != nil {
				return err
			}
			m.Free = m.Input == 0
		}
	}
	m := &c.Model
	switch {
	case m.Name == "" && m.API == "google-gemini":
		return c.wrong(dreamcore.Invalid, "stand_in_api", "api", m.API)
	case m.BaseURL != "" && seen[m.API+" "+m.Name]:
		return c.wrong(dreamcore.Invalid, "provider_model", "where", "model", "model", m.Name)
	case m.Name != "" && m.BaseURL == "" && !seen[m.API+" "+m.Name]:
		return dreamcore.Errorf(dreamcore.Invalid, "config", "model.name is set and model.base_url is not").
			WithHint("set model.base_url to the provider's address, or name a model of a provider with the same api")
	case m.Name != "" && m.BaseURL != "":
		p := Price{Input: m.InputMicros, Output: m.OutputMicros}
		if err := price(&p, m.Free, len(m.Private) > 0, m.Name); err != nil {
			return err
		}
		m.Price = p
	}
	if t, ok := table[c.Image.Name]; ok && c.Image.ImageMicros == 0 {
		c.Image.ImageMicros = t.Image
	}
	if c.Packages.RegistryURL != "" {
		if err := c.address("packages", c.Packages.RegistryURL, c.Packages.Private); err != nil {
			return err
		}
		if _, err := npm.NewList(c.Packages.Pinned); err != nil {
			return c.wrong(dreamcore.Invalid, "packages", "why", err.Error())
		}
	} else if len(c.Packages.Pinned) > 0 {
		return c.wrong(dreamcore.Invalid, "packages", "why", "registry_url is not set")
	}
	for i, a := range c.Assets {
		if err := c.address(fmt.Sprintf("assets.%d", i), a.BaseURL, a.Private); err != nil {
			return err
		}
	}
	if c.Creators.Concurrency < 0 || c.Creators.PerMinute < 0 {
		return c.wrong(dreamcore.Invalid, "creators")
	}
	return nil
}

// address checks a server's address: https, or http in a private range that is named.
func (c *Config) address(where, base string, private []string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && len(private) > 0) {
		return c.wrong(dreamcore.Invalid, "provider_url", "where", where, "url", base)
	}
	for _, r := range private {
		if _, err := netip.ParsePrefix(r); err != nil {
			return c.wrong(dreamcore.Invalid, "provider_range", "where", where, "range", r)
		}
	}
	return nil
}
