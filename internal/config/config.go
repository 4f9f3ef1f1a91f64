// Package config turns one JSON file into validated settings. Everything has a
// default, so that no file is needed at all.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/egress"
)

// Config is the operator's settings.
type Config struct {
	// Data is the folder for games, jobs and state. It must not be shared by two
	// running services.
	Data string `json:"data"`
	// App is where people come; Games is where games are served. They must be
	// different origins, so that a game can never reach the app.
	App   Listener `json:"app"`
	Games Listener `json:"games"`
	Model Model    `json:"model"`
	Image Image    `json:"image"`
	Proxy Proxy    `json:"proxy"`
	// Providers are further servers of models. PricesFile is a table of what models
	// cost, for those that have no price where they stand.
	Providers  []Provider `json:"providers"`
	PricesFile string     `json:"prices_file"`
	Creators   Creators   `json:"creators"`
	// Packages and Assets are features that are off unless they are set.
	Packages Packages    `json:"packages"`
	Assets   []AssetHost `json:"assets"`
	// Jobs bounds the work.
	Jobs Jobs `json:"jobs"`
	// Engine is where sandboxes run: Embedded, which "" means, or Remote.
	Engine string `json:"engine"`
	E2B    E2B    `json:"e2b"`
	// Box bounds one sandbox.
	Box Box `json:"box"`
	// AllowNoLimits lets sandboxes run where the machine cannot limit them.
	AllowNoLimits bool `json:"allow_no_limits"`
	// Lang is the language of errors, set by an override; English when empty.
	Lang dreamcore.Lang `json:"-"`
}

// Listener is one address and the URL under which people reach it.
type Listener struct {
	Listen string `json:"listen"`
	URL    string `json:"url"` // default: http:// and the listening address
}

// Model is the language model behind the key proxy.
type Model struct {
	// API is the protocol: anthropic-messages, openai-chat, openai-responses or
	// google-gemini.
	API string `json:"api"`
	// Name is the exact model name; "" is the built-in stand-in model.
	Name string `json:"name"`
	// BaseURL is the provider's, without the operation.
	BaseURL string `json:"base_url"`
	// KeyFile holds the operator's key. It never enters a sandbox.
	KeyFile string `json:"key_file"`
	// InputMicros and OutputMicros are the price of a million tokens.
	InputMicros  int64 `json:"input_micros_per_mtoken"`
	OutputMicros int64 `json:"output_micros_per_mtoken"`
	// Free says that it costs nothing, on purpose, as it is on a private range.
	Free bool `json:"free"`
	// Price is what it costs, also by the table of prices.
	Price Price `json:"-"`
	// Private lists the address ranges, such as "10.0.0.0/8", in which a model
	// server of the operator's own lives. Only there plain http is allowed;
	// everywhere else the address must be a public one.
	Private []string `json:"private"`
	// TestMarkers lets a wish make the stand-in model misbehave on purpose, by a
	// marker such as [sabotage: break]. For tests of this project only.
	TestMarkers bool `json:"test_markers"`
}

// Image is the picture provider; "" is the built-in picture maker.
type Image struct {
	Name        string `json:"name"`
	BaseURL     string `json:"base_url"`
	KeyFile     string `json:"key_file"`
	ImageMicros int64  `json:"micros_per_image"`
}

// Jobs bounds jobs.
type Jobs struct {
	Concurrent  int              `json:"concurrent"`
	TurnMinutes int              `json:"turn_minutes"`
	JobMinutes  int              `json:"job_minutes"`
	Repairs     int              `json:"repairs"`
	PerCreator  int              `json:"per_creator"` // unfinished jobs of one creator
	Queued      int              `json:"queued"`      // jobs that wait, of all creators
	Budget      dreamcore.Budget `json:"budget"`
}

// Box bounds one sandbox.
type Box struct {
	MemoryMB  int64   `json:"memory_mb"`
	CPUs      float64 `json:"cpus"`
	Processes int     `json:"processes"`
	DiskMB    int64   `json:"disk_mb"`
	// Ahead is how many sandboxes may wait, booted, for the next jobs; 0: none.
	Ahead int `json:"ahead"`
	// Warm keeps a saved sandbox of the image with the agent started, from which a
	// job's sandbox is made where that is possible.
	Warm bool `json:"warm"`
}

// Default returns the settings of a machine without a file.
func Default() Config {
	return Config{
		App:   Listener{Listen: "127.0.0.1:8080", URL: "http://localhost:8080"},
		Games: Listener{Listen: "127.0.0.1:8081"},
		Model: Model{API: "anthropic-messages"},
		Jobs: Jobs{
			Concurrent: 2, TurnMinutes: 15, JobMinutes: 45, Repairs: 2, PerCreator: 3, Queued: 50,
			Budget: dreamcore.Budget{Requests: 400, InputTokens: 20_000_000, OutputTokens: 1_000_000, Images: 40, Bytes: 1 << 30, CostMicros: 5_000_000},
		},
		Box: Box{MemoryMB: 3072, CPUs: 2, Processes: 400, DiskMB: 1024, Ahead: 2, Warm: true},
	}
}

// DefaultData is $DREAMCORE_DATA, else dreamcore in the user's data folder.
func DefaultData() (string, error) {
	if dir := os.Getenv("DREAMCORE_DATA"); dir != "" {
		return filepath.Abs(dir)
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "dreamcore"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find the home folder: %w", err)
	}
	return filepath.Join(home, ".local", "share", "dreamcore"), nil
}

// Load reads path over the defaults; "" means $DREAMCORE_CONFIG, and without
// that the defaults alone. Unknown fields are refused: a mistyped limit must
// not be a limit that is not there. Each override is applied before the check.
func Load(path string, overrides ...func(*Config)) (Config, error) {
	const op = "config"
	c := Default()
	if path == "" {
		path = os.Getenv("DREAMCORE_CONFIG")
	}
	if path != "" {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return c, dreamcore.Errorf(dreamcore.Invalid, op, "there is no settings file %s", path).
				WithHint("leave --config away to run with the defaults")
		}
		if err != nil {
			return c, fmt.Errorf("read settings: %w", err)
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			return c, dreamcore.Errorf(dreamcore.Invalid, op, "the settings file %s is not right", path).Because(err).
				WithHint("correct the field that is named; README.md lists them all")
		}
	}
	if c.Data == "" {
		dir, err := DefaultData()
		if err != nil {
			return c, err
		}
		c.Data = dir
	}
	for _, f := range overrides {
		f(&c)
	}
	return c, c.complete()
}

// complete fills what follows from other settings and checks everything.
func (c *Config) complete() error {
	const op = "config"
	for name, l := range map[string]*Listener{"app": &c.App, "games": &c.Games} {
		_, port, err := net.SplitHostPort(l.Listen)
		if err != nil {
			return dreamcore.Errorf(dreamcore.Invalid, op, "%s.listen is %q, which is no address", name, l.Listen).
				WithHint("write it as HOST:PORT, for example 127.0.0.1:8080")
		}
		if port == "0" && l.URL == "" {
			return dreamcore.Errorf(dreamcore.Invalid, op, "%s.listen leaves the port open and %s.url is not set", name, name).
				WithHint("name a port: a game's URL must be the same after a restart")
		}
		if l.URL == "" {
			l.URL = "http://" + strings.Replace(l.Listen, "0.0.0.0", "127.0.0.1", 1)
		}
		l.URL = strings.TrimSuffix(l.URL, "/")
		u, err := url.Parse(l.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Path != "" {
			return dreamcore.Errorf(dreamcore.Invalid, op, "%s.url is %q, which is no address of a site", name, l.URL).
				WithHint("write it as http://HOST:PORT or https://HOST")
		}
	}
	if c.App.URL == c.Games.URL {
		return dreamcore.Errorf(dreamcore.Invalid, op, "app.url and games.url are the same").
			WithHint("games are untrusted: give them a port or a host name of their own")
	}
	if _, ok := egress.Model(c.Model.API); !ok {
		return dreamcore.Errorf(dreamcore.Invalid, op, "model.api is %q", c.Model.API).
			WithHint("use one of %s", strings.Join(egress.APIs(), ", "))
	}
	for _, p := range c.Model.Private {
		if _, err := netip.ParsePrefix(p); err != nil {
			return dreamcore.Errorf(dreamcore.Invalid, op, "model.private has %q, which is no address range", p).
				WithHint("write it like 10.0.0.0/8 or 127.0.0.1/32")
		}
	}
	if c.Image.Name != "" && c.Image.BaseURL == "" {
		return dreamcore.Errorf(dreamcore.Invalid, op, "image.name is set and image.base_url is not").
			WithHint("set image.base_url to the provider's address")
	}
	for name, n := range map[string]int{
		"jobs.concurrent": c.Jobs.Concurrent, "jobs.turn_minutes": c.Jobs.TurnMinutes, "jobs.job_minutes": c.Jobs.JobMinutes,
		"jobs.per_creator": c.Jobs.PerCreator, "jobs.queued": c.Jobs.Queued, "box.processes": c.Box.Processes,
		"box.memory_mb": int(c.Box.MemoryMB), "box.disk_mb": int(c.Box.DiskMB),
	} {
		if n <= 0 {
			return dreamcore.Errorf(dreamcore.Invalid, op, "%s is %d", name, n).WithHint("it must be at least 1")
		}
	}
	if c.Box.CPUs <= 0 || c.Jobs.Repairs < 0 || c.Box.Ahead < 0 {
		return dreamcore.Errorf(dreamcore.Invalid, op, "box.cpus must be above 0, box.ahead and jobs.repairs at least 0")
	}
	if err := c.completeProviders(); err != nil {
		return err
	}
	return c.completeEngine()
}

// Turn and Job are the deadlines as durations.
func (j Jobs) Turn() time.Duration { return time.Duration(j.TurnMinutes) * time.Minute }

// Job is the deadline of a whole job.
func (j Jobs) Job() time.Duration { return time.Duration(j.JobMinutes) * time.Minute }
