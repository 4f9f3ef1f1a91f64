// Package app is the only place that knows every implementation: it turns
// settings into a running service, and arguments into commands.
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
	"strings"
	"syscall"
	"time"

	"dreamcore"
	"dreamcore/internal/agent"
	blobfs "dreamcore/internal/blob/fs"
	"dreamcore/internal/config"
	"dreamcore/internal/durable"
	"dreamcore/internal/engine"
	"dreamcore/internal/gamehost"
	"dreamcore/internal/image"
	"dreamcore/internal/job"
	"dreamcore/internal/payload"
	"dreamcore/internal/publish"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/store/sqlite"
	"dreamcore/internal/studio"
	"dreamcore/internal/template"
	"dreamcore/internal/verify"
	"dreamcore/internal/web"
)

// verifyTimeout bounds one judgement; a playtest takes some 10 s on two cores.
const verifyTimeout = 5 * time.Minute

// Service is everything that one machine runs: engine, key proxy, jobs, app and
// games. Build it with New, start it with Open, end it with Close.
type Service struct {
	cfg config.Config

	Sandboxes sandbox.Provider
	Images    *image.Store
	Store     *sqlite.Store
	Studio    *studio.Studio
	Proxy     *Proxy

	image     func() (job.Image, error) // what jobs boot
	proxyURL  string                    // the key proxy as a box sees it
	transport http.RoundTripper         // to a remote engine; nil: its own

	agent agent.Adapter // works in the boxes of jobs

	limited bool // the engine enforces the limits of sandboxes
	brief   bool // it is here for one job: nothing is made for later ones
	parts
}

// New returns a Service that has not started.
func New(cfg config.Config, log *slog.Logger) *Service {
	return &Service{cfg: cfg, proxyURL: proxyURL, agent: agent.Pi{}, parts: newParts(log)}
}

// Open starts everything, in the order in which things need each other. On an
// error, what had started is closed again.
func (s *Service) Open(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.lock(); err != nil {
		return err
	}
	// The addresses come first: a port that is taken is the likeliest mistake,
	// and nothing was booted yet.
	appListener, err := listen("app", s.cfg.App.Listen)
	if err != nil {
		return err
	}
	s.onClose("app listener", func(context.Context) error { return ignoreClosed(appListener.Close()) })
	gameListener, err := listen("games", s.cfg.Games.Listen)
	if err != nil {
		return err
	}
	s.onClose("games listener", func(context.Context) error { return ignoreClosed(gameListener.Close()) })

	paths, toolkit, err := s.payload()
	if err != nil {
		return err
	}
	if s.Proxy, err = openProxy(ctx, s.cfg, s.log); err != nil {
		return fmt.Errorf("start the key proxy: %w", err)
	}
	s.onClose("key proxy", s.Proxy.Host.Close)
	s.watchKeys()
	if err := s.openSandboxes(ctx, paths); err != nil {
		return err
	}
	if s.Store, err = sqlite.Open(ctx, filepath.Join(s.cfg.Data, "dreamcore.db")); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	s.onClose("store", func(context.Context) error { return s.Store.Close() })
	blobs, err := blobfs.Open(filepath.Join(s.cfg.Data, "blobs"))
	if err != nil {
		return fmt.Errorf("open the blobs: %w", err)
	}
	s.onClose("blobs", func(context.Context) error { return blobs.Close() })

	if err := s.openJobs(ctx, toolkit, &publish.Publisher{Blobs: blobs, Versions: s.Store, Log: s.log}); err != nil {
		return err
	}
	return s.openServers(appListener, gameListener, blobs)
}

// lock keeps two services out of one data folder.
func (s *Service) lock() error {
	if err := os.MkdirAll(s.cfg.Data, 0o700); err != nil {
		return dreamcore.Errorf(dreamcore.Invalid, "app", "the data folder cannot be made").Because(err).
			WithHint("set DREAMCORE_DATA to a folder that you may write to")
	}
	f, err := os.OpenFile(filepath.Join(s.cfg.Data, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return dreamcore.Errorf(dreamcore.Conflict, "app", "another DreamCore is running on %s", s.cfg.Data).
			WithHint("use that one, stop it, or set DREAMCORE_DATA to another folder")
	}
	s.onClose("lock", func(context.Context) error { return f.Close() })
	return nil
}

func listen(name, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, dreamcore.Errorf(dreamcore.Conflict, "app", "the address %s is taken by another program", addr).
			WithHint("stop that program, or choose another address with --%s HOST:PORT", name)
	}
	if err != nil {
		return nil, dreamcore.Errorf(dreamcore.Invalid, "app", "cannot listen on %s", addr).Because(err).
			WithHint("choose another address with --%s HOST:PORT", name)
	}
	return l, nil
}

func (s *Service) payload() (payload.Paths, []byte, error) {
	cache, err := payload.DefaultCache()
	if err != nil {
		return payload.Paths{}, nil, err
	}
	paths, err := payload.Extract(cache)
	if err != nil {
		return payload.Paths{}, nil, err
	}
	toolkit, err := payload.Read("toolkit")
	return paths, toolkit, err
}

// openImageStore opens this machine's images; lang is the language of its errors.
func openImageStore(lang dreamcore.Lang) (*image.Store, error) {
	dir, err := image.DefaultDir()
	if err != nil {
		return nil, err
	}
	store, err := image.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the images: %w", err)
	}
	store.Lang = lang
	return store, nil
}

func (s *Service) openImages() (err error) {
	if s.Images, err = openImageStore(s.cfg.Lang); err != nil {
		return err
	}
	img, err := s.Images.Current()
	if err != nil {
		return err
	}
	s.log.Info("sandbox image", "digest", img.Digest, "agent", img.Manifest.AgentName, "agent_version", img.Manifest.AgentVersion)
	return nil
}

// openSandboxes opens the engine that the settings choose.
func (s *Service) openSandboxes(ctx context.Context, paths payload.Paths) error {
	if s.cfg.Engine == config.Remote {
		return s.openRemote(ctx)
	}
	if err := s.openImages(); err != nil {
		return err
	}
	s.image = func() (job.Image, error) {
		img, err := s.Images.Current()
		return job.Image{Digest: img.Digest, AgentVersion: img.Manifest.AgentVersion, Warm: s.warmName(img.Digest)}, err
	}
	return s.openEngine(ctx, paths)
}

// openEngine starts the engine behind a socket that only this user can reach,
// and the client that drives it.
func (s *Service) openEngine(ctx context.Context, paths payload.Paths) error {
	key := dreamcore.NewSecret("e2b_" + dreamcore.NewToken(40))
	dir := filepath.Join(s.cfg.Data, "engine")
	eng := engine.New(engine.Config{
		Dir: dir, Runsc: paths.Runsc, Sandboxd: paths.Sandboxd, APIKey: key, Log: s.log, AllowNoLimits: s.cfg.AllowNoLimits, Lang: s.cfg.Lang,
		Images: func(ref string) (engine.Image, error) {
			ref, warm := strings.CutSuffix(ref, warmSuffix)
			img, err := s.Images.Get(ref)
			return engine.Image{Digest: img.Digest, Root: img.Root, Warm: warm}, err
		},
		Warmup: s.warmup(),
		Egress: s.Proxy.Serve,
		Pool:   engine.Pool{Max: s.cfg.Box.Ahead, Next: s.next},
		Limits: engine.Limits{
			MemoryBytes: s.cfg.Box.MemoryMB << 20, CPUs: s.cfg.Box.CPUs, Processes: s.cfg.Box.Processes, DiskBytes: s.cfg.Box.DiskMB << 20,
		},
	})
	if err := eng.Open(ctx); err != nil {
		return fmt.Errorf("start the engine: %w", err)
	}
	s.onClose("engine", func(context.Context) error { return eng.Close() })
	s.limited = eng.Limited() // where not, the engine has logged why
	s.warmNext(eng)
	socket := filepath.Join(dir, "api.sock")
	_ = os.Remove(socket) // of a former life; the lock says that nobody uses it
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen for the engine's client: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		l.Close()
		return fmt.Errorf("guard the engine's socket: %w", err)
	}
	s.serve("engine api", l, eng.Handler(), 0)
	// So that `dreamcore sandbox` of the same user finds it.
	if err := (engineAddress{Socket: socket, APIKey: key.Reveal(), PID: os.Getpid()}).leave(dir); err != nil {
		return err
	}
	s.onClose("engine address", func(context.Context) error { return takeAddress(dir) })
	transport := e2b.UnixTransport(socket)
	s.onClose("engine client", func(context.Context) error { transport.CloseIdleConnections(); return nil })
	s.Sandboxes = e2b.New(e2b.Config{APIURL: "http://engine", SandboxURL: "http://engine", APIKey: key, Transport: transport, Lang: s.cfg.Lang})
	return nil
}

func (s *Service) openJobs(ctx context.Context, toolkit []byte, publisher *publish.Publisher) error {
	lib, err := template.Open()
	if err != nil {
		return fmt.Errorf("open the template library: %w", err)
	}
	name, err := s.installation()
	if err != nil {
		return err
	}
	meta := map[string]string{"installation": name}
	limits := job.DefaultLimits()
	limits.Turn, limits.Job, limits.Repairs = s.cfg.Jobs.Turn(), s.cfg.Jobs.Job(), s.cfg.Jobs.Repairs
	runner := job.New(job.Config{
		Store: s.Store, Publisher: versions{publisher}, Sandboxes: s.Sandboxes, Proxy: s.Proxy,
		Verifier: verify.New(verify.Config{Sandboxes: s.Sandboxes, Toolkit: toolkit, Metadata: meta, Timeout: verifyTimeout, Log: s.log}),
		Library:  library{lib}, Agent: s.agent, API: agent.API(s.cfg.Model.API), Model: s.Proxy.model, ImageModel: s.Proxy.pictures, ProxyURL: s.proxyURL, Features: s.Proxy.features,
		Image:   s.image,
		Toolkit: toolkit, Metadata: meta, Limits: limits, Log: s.log,
	})
	exec := durable.New(durable.Config{Dir: s.cfg.Data, Concurrent: s.cfg.Jobs.Concurrent, Run: runner.Run, Log: s.log})
	if err := exec.Start(ctx); err != nil {
		return err
	}
	s.onClose("jobs", func(context.Context) error { exec.Stop(); return nil })
	s.Studio = studio.New(studio.Config{Store: s.Store, Queue: exec, Canceller: runner, PerCreator: s.cfg.Jobs.PerCreator, Queued: s.cfg.Jobs.Queued, Log: s.log})
	return s.Studio.Requeue(ctx)
}

// installation is a name for this data folder, so that its sandboxes can be
// told from another's on a shared engine.
func (s *Service) installation() (string, error) {
	path := filepath.Join(s.cfg.Data, "installation")
	if data, err := os.ReadFile(path); err == nil && len(data) > 0 {
		return strings.TrimSpace(string(data)), nil
	}
	name := dreamcore.NewToken(12)
	if err := os.WriteFile(path, []byte(name+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("name this installation: %w", err)
	}
	return name, nil
}

func (s *Service) openServers(appListener, gameListener net.Listener, blobs *blobfs.Store) error {
	host, err := gamehost.New(gamehost.Config{Origin: s.cfg.Games.URL, Aliases: aliases(gameListener)}, s.Store, blobs, s.log)
	if err != nil {
		return fmt.Errorf("serve games: %w", err)
	}
	pages, err := web.New(web.Config{
		Origin: s.cfg.App.URL, Aliases: aliases(appListener), StandIn: s.cfg.Model.Name == "",
	}, s.Studio, s.Store, blobs, host, s.log)
	if err != nil {
		return fmt.Errorf("serve the app: %w", err)
	}
	s.serve("games", gameListener, host, time.Minute)
	s.serve("app", appListener, pages, 0)
	s.onClose("event streams", func(context.Context) error { pages.Stop(); return nil })
	return nil
}

// aliases are the names that a listener on this machine also has.
func aliases(l net.Listener) []string {
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil
	}
	names := []string{addr.String()}
	if addr.IP.IsLoopback() || addr.IP.IsUnspecified() {
		names = append(names, fmt.Sprintf("localhost:%d", addr.Port), fmt.Sprintf("127.0.0.1:%d", addr.Port))
	}
	return names
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
