package app

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"dreamcore"
	"dreamcore/internal/attack"
	"dreamcore/internal/config"
	"dreamcore/internal/engine"
	"dreamcore/internal/grant"
	"dreamcore/internal/payload"
	"dreamcore/internal/text"
	"dreamcore/internal/workspace"
)

// runAttack attacks sandboxes of the operator's own configuration.
func runAttack(ctx context.Context, t Terminal, args []string) error {
	var s settings
	var asJSON bool
	rest, err := options(t, "attack.usage", args, func(f *flag.FlagSet) {
		f.StringVar(&s.config, "config", "", "")
		f.BoolVar(&s.verbose, "verbose", false, "")
		f.BoolVar(&asJSON, "json", false, "")
	})
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
	toolkit, err := payload.Read("toolkit")
	if err != nil {
		return err
	}
	fmt.Fprintln(t.Err, text.T(t.Lang, "attack.begins"))
	done := func(r attack.Row) {
		if !asJSON || s.verbose {
			fmt.Fprintf(t.Err, "  %-5s %s\n", r.Line, text.T(t.Lang, verdictKey(r.Verdict)))
		}
	}
	var log lockedLog
	to := slog.New(slog.NewJSONHandler(&log, nil))
	if s.verbose {
		to = slog.New(slog.NewTextHandler(t.Err, nil))
	}
	rows, err := attackConfig(ctx, cfg, toolkit, to, &log, done)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(t.Out)
		enc.SetIndent("", " ")
		if err := enc.Encode(map[string]any{"holds": attack.Holds(rows), "lines": rows}); err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
	} else {
		printAttack(t, rows)
	}
	if !attack.Holds(rows) {
		return errSaid
	}
	return nil
}

// lockedLog keeps what is logged, to be searched for secrets.
type lockedLog struct {
	mu  sync.Mutex
	all []byte
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, p...)
	return len(p), nil
}

func (l *lockedLog) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]byte(nil), l.all...)
}

func verdictKey(v attack.Verdict) string {
	switch v {
	case attack.Held:
		return "attack.held"
	case attack.Broken:
		return "attack.broken"
	case attack.Untried:
		return "attack.untried"
	}
	return "attack.skipped"
}

// printAttack prints the table and the verdict.
func printAttack(t Terminal, rows []attack.Row) {
	t.say("attack.head")
	count, tries := map[attack.Verdict]int{}, 0
	for _, r := range rows {
		count[r.Verdict]++
		tries += r.Tries
		verdict := text.T(t.Lang, verdictKey(r.Verdict))
		// A letter of Chinese or Japanese takes two places on a terminal.
		width := utf8.RuneCountInString(verdict)
		if width < len(verdict) {
			width *= 2
		}
		fmt.Fprintf(t.Out, "%-5s  %s%s  %s — %s\n", r.Line, verdict, strings.Repeat(" ", max(0, 10-width)), text.T(t.Lang, r.Attempt), text.T(t.Lang, r.Stopped))
		if r.Detail != "" && r.Verdict != attack.Held {
			fmt.Fprintf(t.Out, "       → %s\n", printable(r.Detail, 400))
		}
	}
	fmt.Fprintln(t.Out)
	if attack.Holds(rows) {
		t.say("attack.all_held", "held", strconv.Itoa(count[attack.Held]), "tries", strconv.Itoa(tries))
		return
	}
	t.say("attack.not_held", "broken", strconv.Itoa(count[attack.Broken]), "untried", strconv.Itoa(count[attack.Untried]))
}

const plantedName = "DREAMCORE_ATTACK_PLANTED"

// rangeModel is the model's name where the operator has none.
const rangeModel = "attack-range-model"

// attackConfig opens the parts of a service that a sandbox touches, as cfg says
// but for the provider, in a folder of its own, and attacks them.
func attackConfig(ctx context.Context, cfg config.Config, toolkit []byte, log *slog.Logger, logged *lockedLog, done func(attack.Row)) (rows []attack.Row, err error) {
	cfg.Data = filepath.Join(cfg.Data, "attack")
	cfg.App = config.Listener{Listen: "127.0.0.1:0"}
	up, err := attack.OpenUpstream("sk-attack/+" + dreamcore.NewToken(40))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, up.Close()) }()
	if err := standIn(&cfg, up); err != nil {
		return nil, err
	}
	planted := "planted-" + dreamcore.NewToken(32)
	if err := os.Setenv(plantedName, planted); err != nil {
		return nil, fmt.Errorf("plant in the environment: %w", err)
	}
	defer os.Unsetenv(plantedName)

	s := New(cfg, log)
	defer func() {
		err = errors.Join(err, s.Close(), os.RemoveAll(cfg.Data))
	}()
	if err := s.lock(); err != nil {
		return nil, err
	}
	paths, _, err := s.payload()
	if err != nil {
		return nil, err
	}
	if s.Proxy, err = openProxy(ctx, s.cfg, s.log); err != nil {
		return nil, fmt.Errorf("start the key proxy: %w", err)
	}
	s.onClose("key proxy", s.Proxy.Host.Close)
	if err := s.openSandboxes(ctx, paths); err != nil {
		return nil, err
	}
	img, err := s.image()
	if err != nil {
		return nil, err
	}
	proxy, err := url.Parse(s.proxyURL)
	if err != nil {
		return nil, fmt.Errorf("read the key proxy's address: %w", err)
	}
	local := cfg.Engine != config.Remote
	a := attack.Config{
		Sandboxes: s.Sandboxes, Image: img.Digest, Toolkit: toolkit, Proxy: rangeProxy{s.Proxy}, Upstream: up,
		Env: workspace.Env(cfg.Lang, workspace.Offer{Features: s.Proxy.features, ProxyURL: s.proxyURL, ImageModel: s.Proxy.pictures}),
		API: cfg.Model.API, Model: cfg.Model.Name, Features: s.Proxy.features, ProxyAddress: proxy.Host,
		Planted: planted, PlantedName: plantedName,
		MemoryBytes: cfg.Box.MemoryMB << 20, DiskBytes: cfg.Box.DiskMB << 20, Processes: cfg.Box.Processes, Limited: s.limited,
		Local: local, Written: func() (map[string][]byte, error) { return written(cfg.Data, logged) }, Done: done, Log: log,
	}
	if local {
		a.Left = func() ([]string, error) { return engine.Left(filepath.Join(cfg.Data, "engine")) }
	}
	return attack.Run(ctx, a)
}

// standIn puts the range's own provider in the place of the operator's, under
// the same model and prices.
func standIn(cfg *config.Config, up *attack.Upstream) error {
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return fmt.Errorf("make the range's folder: %w", err)
	}
	m := &cfg.Model
	if m.Name == "" {
		m.Name = rangeModel
	}
	m.BaseURL, m.Private = up.URL, []string{"127.0.0.0/8"}
	switch m.API {
	case "anthropic-messages":
	case "openai-chat", "openai-responses":
		m.BaseURL += "/v1"
	default: // one that the range does not speak; the proxy is the same
		m.API = "anthropic-messages"
	}
	m.KeyFile = filepath.Join(cfg.Data, "range-key")
	if err := os.WriteFile(m.KeyFile, []byte(up.Key), 0o600); err != nil {
		return fmt.Errorf("write the range's key: %w", err)
	}
	// Pictures cost money where the operator has a provider for them.
	cfg.Image = config.Image{}
	return nil
}

// written reads what the service has written below its folder, but for the key
// itself and the engine's own folder, in which the sandboxes are.
func written(data string, logged *lockedLog) (map[string][]byte, error) {
	all := map[string][]byte{"log": logged.bytes()}
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went away meanwhile
		case err != nil:
			return err
		case d.IsDir() && path == filepath.Join(data, "engine"):
			return filepath.SkipDir
		case !d.Type().IsRegular() || d.Name() == "range-key" || d.Name() == "lock":
			return nil
		}
		content, err := os.ReadFile(path)
		if len(content) > 0 {
			name, _ := filepath.Rel(data, path)
			all[name] = content
		}
		return err
	})
	return all, err
}

// rangeProxy lets the range mint grants that no job would get.
type rangeProxy struct{ *Proxy }

func (p rangeProxy) Mint(c grant.Claims) (string, error) { return p.minter.Mint(c) }
