package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/egress"
	"dreamcore/internal/grant"
	"dreamcore/internal/keyproxy"
	"dreamcore/internal/offline"
	"dreamcore/internal/offline/picture"
)

// proxyURL is the key proxy as a box sees it: sandboxd listens there and relays
// to the engine's egress socket.
const proxyURL = "http://127.0.0.1:4000"

// Proxy is the key proxy with its control side: it opens, renews and closes the
// grants of jobs.
type Proxy struct {
	*keyproxy.Proxy
	minter   *grant.Minter
	features []dreamcore.Feature
	models   []string
	model    string // the model that agents use
	pictures string // the model that draws
	budget   dreamcore.Budget
	closers  []func() error

	grantLife time.Duration
	seen      *addresses // of remote boxes; nil where a socket names the box
}

func openProxy(cfg config.Config, log *slog.Logger) (*Proxy, error) {
	minter, err := grant.NewMinter()
	if err != nil {
		return nil, err
	}
	p := &Proxy{minter: minter, budget: cfg.Jobs.Budget, grantLife: grant.MaxLife - 2*grant.Skew}
	upstreams := map[dreamcore.Feature][]keyproxy.Upstream{}
	if err := p.addModel(cfg.Model, upstreams, log); err != nil {
		return nil, errors.Join(err, p.closeUpstreams())
	}
	if err := p.addImages(cfg.Image, upstreams, log); err != nil {
		return nil, errors.Join(err, p.closeUpstreams())
	}
	for f, list := range upstreams {
		p.features = append(p.features, f)
		for _, u := range list {
			for _, m := range u.Models {
				p.models = append(p.models, m.Name)
			}
		}
	}
	slices.Sort(p.features)
	p.Proxy, err = keyproxy.New(keyproxy.Config{
		Verifier: minter.Verifier(), Upstreams: upstreams, Dir: filepath.Join(cfg.Data, "keyproxy"), Log: log,
	})
	if err != nil {
		return nil, errors.Join(err, p.closeUpstreams())
	}
	return p, nil
}

// addModel sets up the operator's model, or the stand-in where there is none.
func (p *Proxy) addModel(m config.Model, to map[dreamcore.Feature][]keyproxy.Upstream, log *slog.Logger) error {
	declared, ok := egress.Model(m.API)
	if !ok {
		return dreamcore.Errorf(dreamcore.Internal, "app.proxy", "no feature speaks %q", m.API)
	}
	feature := declared.Feature
	if m.Name != "" {
		key, err := keyOf(m.KeyFile)
		if err != nil {
			return err
		}
		var private []netip.Prefix
		for _, r := range m.Private {
			prefix, err := netip.ParsePrefix(r)
			if err != nil {
				return fmt.Errorf("model.private: %w", err)
			}
			private = append(private, prefix)
		}
		p.model = m.Name
		to[feature] = []keyproxy.Upstream{{BaseURL: m.BaseURL, Key: key, Private: private, Models: []keyproxy.ModelPrice{
			{Name: m.Name, InputMicros: m.InputMicros, OutputMicros: m.OutputMicros, Free: m.InputMicros == 0 && m.OutputMicros == 0},
		}}}
		log.Info("language model", "decision", "operator's", "model", m.Name, "api", m.API)
		return nil
	}
	// A key like an operator's, so that what is promised of keys is tried here
	// too; a key file may plant a known one.
	key, err := keyOf(m.KeyFile)
	if err != nil {
		return err
	}
	if key.IsZero() {
		key = dreamcore.NewSecret("sk-builtin-" + dreamcore.NewToken(40))
	}
	model, err := offline.New(offline.Config{Key: key, Log: log, AllowMarkers: m.TestMarkers})
	if err != nil {
		return err
	}
	dial, closeServer := keyproxy.InProcess(model)
	p.closers = append(p.closers, closeServer)
	p.model = offline.ModelName
	base := "http://stand-in.invalid"
	if feature != dreamcore.AnthropicMessages {
		base += "/v1"
	}
	to[feature] = []keyproxy.Upstream{{BaseURL: base, Key: key, Dial: dial, Models: []keyproxy.ModelPrice{{Name: offline.ModelName, Free: true}}}}
	log.Info("language model", "decision", "built-in stand-in", "reason", "no_model_configured", "model", offline.ModelName, "api", m.API)
	return nil
}

// addImages sets up the operator's picture provider, or the built-in maker.
func (p *Proxy) addImages(m config.Image, to map[dreamcore.Feature][]keyproxy.Upstream, log *slog.Logger) error {
	if m.Name != "" {
		key, err := keyOf(m.KeyFile)
		if err != nil {
			return err
		}
		p.pictures = m.Name
		to[dreamcore.ImageGeneration] = []keyproxy.Upstream{{BaseURL: m.BaseURL, Key: key, Models: []keyproxy.ModelPrice{
			{Name: m.Name, ImageMicros: m.ImageMicros, Free: m.ImageMicros == 0},
		}}}
		log.Info("pictures", "decision", "operator's", "model", m.Name)
		return nil
	}
	key := dreamcore.NewSecret("sk-builtin-" + dreamcore.NewToken(40))
	p.pictures = picture.ModelName
	dial, closeServer := keyproxy.InProcess(picture.Handler(key, log))
	p.closers = append(p.closers, closeServer)
	to[dreamcore.ImageGeneration] = []keyproxy.Upstream{{
		BaseURL: "http://pictures.invalid/v1", Key: key, Dial: dial, PictureMaker: true,
		Models: []keyproxy.ModelPrice{{Name: picture.ModelName, Free: true}},
	}}
	log.Info("pictures", "decision", "built-in", "reason", "no_picture_provider_configured")
	return nil
}

// keyOf reads a key file; "" is for servers that want no key.
func keyOf(path string) (dreamcore.Secret, error) {
	if path == "" {
		return dreamcore.Secret{}, nil
	}
	return config.Key(path)
}

// serve takes one connection of a box; the engine says which.
func (p *Proxy) serve(ctx context.Context, id dreamcore.SandboxID, conn net.Conn) {
	p.ServeConn(ctx, string(id), conn)
}

// Open implements job.Proxy.
func (p *Proxy) Open(ctx context.Context, job dreamcore.Job, box dreamcore.SandboxID) (string, error) {
	err := p.OpenJob(ctx, keyproxy.JobTerms{
		Job: job.ID, Attempt: job.Attempt, Channel: string(box),
		Features: p.features, Models: p.models, Budget: p.budget,
	})
	if err != nil {
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
	if p.seen != nil {
		p.seen.forget(id)
	}
	usage, err := p.CloseJob(ctx, id, attempt)
	if dreamcore.CodeOf(err) == dreamcore.NotFound {
		return dreamcore.Usage{}, nil // it ended before it was let in
	}
	return usage, err
}

// stop ends the proxy itself.
func (p *Proxy) stop(ctx context.Context) error {
	return errors.Join(p.Proxy.Close(ctx), p.closeUpstreams())
}

func (p *Proxy) closeUpstreams() error {
	var errs []error
	for _, f := range p.closers {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
