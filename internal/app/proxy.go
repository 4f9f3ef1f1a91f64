package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/egress"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy"
	"dreamcore/internal/keyproxy/control"
	"dreamcore/internal/offline"
	"dreamcore/internal/offline/picture"
	"dreamcore/internal/text"
)

// proxyURL is the key proxy as a box sees it: sandboxd listens there and relays
// to the engine's egress socket.
const proxyURL = "http://127.0.0.1:4000"

// Proxy is the host's half of the key proxy: it opens, renews and closes the
// grants of jobs, and keeps the process alive in which the other half runs.
type Proxy struct {
	*control.Host
	minter   *grant.Minter
	features []dreamcore.Feature
	models   []string
	model    string // the model that agents use
	pictures string // the model that draws
	budget   dreamcore.Budget
	creators config.Creators

	grantLife time.Duration
	keyFiles  []string
}

// The stand-ins that the proxy's process runs where the operator has set nothing.
const (
	builtInModel    = "model"
	builtInPictures = "pictures"
)

// openProxy starts the key proxy's process.
func openProxy(ctx context.Context, cfg config.Config, log *slog.Logger) (*Proxy, error) {
	minter, err := grant.NewMinter()
	if err != nil {
		return nil, err
	}
	p := &Proxy{minter: minter, budget: cfg.Jobs.Budget, creators: cfg.Creators, grantLife: grant.MaxLife - 2*grant.Skew}
	set := upstreams{}
	if err := p.addModel(cfg.Model, set, log); err != nil {
		return nil, err
	}
	p.addImages(cfg.Image, set, log)
	if err := errors.Join(addProviders(cfg, set, log), addFiles(cfg, set, log)); err != nil {
		return nil, err
	}
	for f, list := range set {
		p.features = append(p.features, f)
		for _, u := range list {
			if u.keyFile != "" {
				p.keyFiles = append(p.keyFiles, u.keyFile)
			}
			for _, m := range u.Upstream.Models {
				p.models = append(p.models, m.Name)
			}
		}
	}
	slices.Sort(p.features)
	settings := control.Settings{Verifier: minter.Verifier().String()}
	if cfg.Engine == config.Remote {
		p.grantLife, settings.RemoteName = remoteGrantLife, remoteProxyName
	}
	user, err := proxyUser(cfg, log)
	if err != nil {
		return nil, err
	}
	p.Host, err = control.Start(ctx, control.Config{
		Dir: filepath.Join(cfg.Data, "keyproxy"), User: user, Log: log,
		Health:   leaveHealth(healthFile(cfg.Data), log),
		Seal:     sealTo(sealsFile(cfg.Data), log),
		Settings: func() (control.Settings, []*os.File, error) { return set.settings(settings, cfg) },
	})
	var denied *control.StartError
	if errors.As(err, &denied) {
		return nil, text.Error(cfg.Lang, dreamcore.Missing, "keyproxy", "keyproxy.cannot_start", "uid", strconv.Itoa(denied.User.UID)).Because(denied.Err)
	}
	return p, err
}

// upstreams are the enabled features' sources, with the files of their keys.
type upstreams map[dreamcore.Feature][]source

type source struct {
	control.Source
	keyFile string // "" for servers that want no key
}

// settings opens the key files for the proxy's process. What is in them is not
// read here.
func (u upstreams) settings(s control.Settings, cfg config.Config) (_ control.Settings, files []*os.File, err error) {
	s.Sources = map[dreamcore.Feature][]control.Source{}
	opening := cfg.OpeningKey()
	if _, err := os.Lstat(opening); err == nil || cfg.Proxy.OpeningKeyFile != "" {
		file, err := config.OpenKey(opening, cfg.Lang)
		if err != nil {
			return s, files, err
		}
		files = append(files, file)
		s.Opening = len(files)
	}
	for f, list := range u {
		for _, src := range list {
			if src.keyFile != "" {
				file, err := config.OpenKey(src.keyFile, cfg.Lang)
				if err != nil {
					return s, files, err
				}
				files = append(files, file)
				src.KeyFile = len(files)
			}
			s.Sources[f] = append(s.Sources[f], src.Source)
		}
	}
	return s, files, nil
}

// addModel sets up the operator's model, or the stand-in where there is none.
func (p *Proxy) addModel(m config.Model, set upstreams, log *slog.Logger) error {
	declared, ok := egress.Model(m.API)
	if !ok {
		return dreamcore.Errorf(dreamcore.Internal, "app.proxy", "no feature speaks %q", m.API)
	}
	feature := declared.Feature
	if m.Name != "" && m.BaseURL == "" {
		p.model = m.Name // of a provider
		return nil
	}
	if m.Name != "" {
		private, err := ranges(m.Private)
		if err != nil {
			return fmt.Errorf("model.private: %w", err)
		}
		p.model = m.Name
		set[feature] = []source{{keyFile: m.KeyFile, Source: control.Source{Upstream: keyproxy.Upstream{
			BaseURL: m.BaseURL, Private: private, Models: []keyproxy.ModelPrice{priced(m.Name, "", m.Price, m.Price.Input == 0, 0)},
		}}}}
		log.Info("language model", "decision", "operator's", "model", m.Name, "api", m.API)
		return nil
	}
	p.model = offline.ModelName
	base := "http://stand-in.invalid"
	if feature != dreamcore.AnthropicMessages {
		base += "/v1"
	}
	// A key file may plant a known key, so that what is promised of keys is tried
	// here too.
	set[feature] = []source{{keyFile: m.KeyFile, Source: control.Source{
		BuiltIn: builtInModel, Markers: m.TestMarkers,
		Upstream: keyproxy.Upstream{BaseURL: base, Models: []keyproxy.ModelPrice{{Name: offline.ModelName, Free: true}}},
	}}}
	log.Info("language model", "decision", "built-in stand-in", "reason", "no_model_configured", "model", offline.ModelName, "api", m.API)
	return nil
}

// addImages sets up the operator's picture provider, or the built-in maker.
func (p *Proxy) addImages(m config.Image, set upstreams, log *slog.Logger) {
	if m.Name != "" {
		p.pictures = m.Name
		set[dreamcore.ImageGeneration] = []source{{keyFile: m.KeyFile, Source: control.Source{Upstream: keyproxy.Upstream{BaseURL: m.BaseURL, Models: []keyproxy.ModelPrice{
			{Name: m.Name, ImageMicros: m.ImageMicros, Free: m.ImageMicros == 0},
		}}}}}
		log.Info("pictures", "decision", "operator's", "model", m.Name)
		return
	}
	p.pictures = picture.ModelName
	set[dreamcore.ImageGeneration] = []source{{Source: control.Source{
		BuiltIn: builtInPictures,
		Upstream: keyproxy.Upstream{
			BaseURL: "http://pictures.invalid/v1", PictureMaker: true, Models: []keyproxy.ModelPrice{{Name: picture.ModelName, Free: true}},
		},
	}}}
	log.Info("pictures", "decision", "built-in", "reason", "no_picture_provider_configured")
}

// runKeyProxy is the key proxy's process; nobody types its command.
func runKeyProxy(ctx context.Context, t Terminal, args []string) error {
	if err := none(t, args); err != nil {
		return err
	}
	err := control.Main(ctx, func(name string, key dreamcore.Secret, markers bool, log *slog.Logger) (http.Handler, error) {
		switch name {
		case builtInModel:
			return offline.New(offline.Config{Key: key, Log: log, AllowMarkers: markers})
		case builtInPictures:
			return picture.Handler(key, log), nil
		}
		return nil, fmt.Errorf("there is no built-in %q", name)
	})
	if control.ByHand(err) {
		fmt.Fprintln(t.Err, text.T(t.Lang, "keyproxy.by_hand"))
		return errUsage
	}
	return err
}

// Serve takes one connection of a box; the engine says which.
func (p *Proxy) Serve(ctx context.Context, id dreamcore.SandboxID, conn net.Conn) {
	p.ServeConn(ctx, string(id), conn)
}

// Open implements job.Proxy.
func (p *Proxy) Open(ctx context.Context, job dreamcore.Job, box dreamcore.SandboxID) (string, error) {
	terms := keyproxy.JobTerms{
		Job: job.ID, Attempt: job.Attempt, Channel: string(box),
		Features: p.features, Models: p.models, Budget: p.budget,
	}
	creatorTerms(&terms, job.Creator, p.creators)
	if err := p.OpenJob(ctx, terms); err != nil {
		return "", err
	}
	return p.Renew(ctx, job, box)
}

// Renew implements job.Proxy.
func (p *Proxy) Renew(_ context.Context, job dreamcore.Job, box dreamcore.SandboxID) (string, error) {
	now := time.Now()
	token, err := p.minter.Mint(grant.Claims{
		Job: job.ID, Attempt: job.Attempt, Channel: string(box), Audience: keyproxy.Audience, Features: p.features,
		NotBefore: now.Add(-grant.Skew), Expires: now.Add(p.grantLife),
	})
	if err != nil {
		return "", fmt.Errorf("mint grant: %w", err)
	}
	return token, nil
}

// Close implements job.Proxy: the job's grant dies.
func (p *Proxy) Close(ctx context.Context, id dreamcore.JobID, attempt int) (dreamcore.Usage, error) {
	usage, err := p.CloseJob(ctx, id, attempt)
	if dreamcore.CodeOf(err) == dreamcore.NotFound {
		return dreamcore.Usage{}, nil // it ended before it was let in
	}
	return usage, err
}
