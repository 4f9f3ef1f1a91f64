// Package web owns the app: the pages on which people wish for games, watch
// them being made, play, change and share them, and the JSON interface under
// /api/ that `dreamcore make` speaks. It decides nothing about jobs: a Service
// does the work, a Store tells what there is.
//
// Every page works without a script; scripts add live progress, the click to
// play and comfort. All text that comes from people or from games is data for
// an escaping template.
package web

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"dreamcore"
)

// Service is what a creator can do. Its errors are shown to people when they
// are *dreamcore.Error, in lang where one is given; NotFound also stands for
// what is another creator's.
type Service interface {
	Make(ctx context.Context, creator dreamcore.CreatorID, wish string, lang dreamcore.Lang) (dreamcore.Game, dreamcore.Job, error)
	Change(ctx context.Context, creator dreamcore.CreatorID, game dreamcore.GameID, wish string, lang dreamcore.Lang) (dreamcore.Job, error)
	Cancel(ctx context.Context, creator dreamcore.CreatorID, job dreamcore.JobID) error
	Restore(ctx context.Context, creator dreamcore.CreatorID, game dreamcore.GameID, version dreamcore.VersionID) error
}

// Store is what the pages read; see internal/store for what the methods mean.
type Store interface {
	Game(ctx context.Context, id dreamcore.GameID) (dreamcore.Game, error)
	GamesBy(ctx context.Context, creator dreamcore.CreatorID, limit int) ([]dreamcore.Game, error)
	Gallery(ctx context.Context, limit int, cursor string) ([]dreamcore.Game, string, error)
	Messages(ctx context.Context, game dreamcore.GameID) ([]dreamcore.Message, error)
	Job(ctx context.Context, id dreamcore.JobID) (dreamcore.Job, error)
	JobsOf(ctx context.Context, game dreamcore.GameID, limit int) ([]dreamcore.Job, error)
	Ahead(ctx context.Context, id dreamcore.JobID) (int, error)
	Events(ctx context.Context, job dreamcore.JobID, after int64, limit int) ([]dreamcore.Event, error)
	Watch(job dreamcore.JobID) (<-chan struct{}, func())
	Version(ctx context.Context, id dreamcore.VersionID) (dreamcore.Version, error)
	Versions(ctx context.Context, game dreamcore.GameID) ([]dreamcore.Version, error)
}

// Blobs is where pictures are.
type Blobs interface {
	Get(ctx context.Context, hash dreamcore.BlobHash, limitBytes int64) ([]byte, error)
}

// Games says where games are served; gamehost.Host does.
type Games interface {
	URL(game dreamcore.GameID) string
	VersionURL(game dreamcore.GameID, version dreamcore.VersionID) string
	FrameSource() string
	FrameSandbox() string
}

// Config says how the app is reached and how much it takes.
type Config struct {
	// Origin is the app's own: "http://localhost:8080".
	Origin string
	// Aliases are further Host headers to answer to, such as "127.0.0.1:8080".
	Aliases []string
	// StandIn says that no language model is configured and the built-in
	// stand-in answers; the pages tell people so.
	StandIn bool
	// Currency is put behind amounts of money, such as "USD".
	Currency string
	// PostsPerMinute bounds what one address may send; 0 means 30.
	PostsPerMinute int
	// StreamsPerAddress and Streams bound open event streams, of one address and
	// of all; 0 means 24 and 2000.
	StreamsPerAddress, Streams int
	// BodyTime is how long a body may take to arrive; 0 means 30 s.
	BodyTime time.Duration
	// ClientAddress tells one visitor's address from another's; nil means the
	// connection's. An operator behind a proxy reads a header that only the proxy
	// can set.
	ClientAddress func(*http.Request) string
}

// App is the handler.
type App struct {
	config  Config
	origin  *url.URL
	hosts   map[string]bool
	service Service
	store   Store
	blobs   Blobs
	games   Games
	log     *slog.Logger
	handler http.Handler
	posts   *rates
	streams *places

	stop    sync.Once
	stopped chan struct{}
}

// New checks the configuration; it does no I/O.
func New(config Config, service Service, store Store, blobs Blobs, games Games, log *slog.Logger) (*App, error) {
	u, err := url.Parse(config.Origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || (u.Path != "" && u.Path != "/") {
		return nil, dreamcore.Errorf(dreamcore.Invalid, "web", "%q is no origin for the app", config.Origin).
			WithHint("it looks like http://localhost:8080")
	}
	if config.PostsPerMinute == 0 {
		config.PostsPerMinute = 30
	}
	if config.StreamsPerAddress == 0 {
		config.StreamsPerAddress = 24
	}
	if config.Streams == 0 {
		config.Streams = 2000
	}
	if config.BodyTime == 0 {
		config.BodyTime = 30 * time.Second
	}
	if config.ClientAddress == nil {
		config.ClientAddress = connectionAddress
	}
	a := &App{
		config: config, origin: u, hosts: map[string]bool{}, service: service, store: store, blobs: blobs, games: games,
		log: log, posts: newRates(config.PostsPerMinute, time.Minute), stopped: make(chan struct{}),
		streams: newPlaces(config.Streams, config.StreamsPerAddress),
	}
	for _, host := range append([]string{u.Host}, config.Aliases...) {
		a.hosts[strings.ToLower(host)] = true
	}
	a.handler = a.guard(a.routes())
	return a, nil
}

// Stop ends all event streams, so that a server can shut down. Browsers connect
// again by themselves and go on where they were.
func (a *App) Stop() { a.stop.Do(func() { close(a.stopped) }) }

// ServeHTTP implements http.Handler.
func (a *App) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// GameURL is the page on which a creator works on a game.
func (a *App) GameURL(id dreamcore.GameID) string { return a.base() + "/game/" + string(id) }

// PlayURL is the link to share.
func (a *App) PlayURL(id dreamcore.GameID) string { return a.base() + "/play/" + string(id) }

func (a *App) base() string { return a.origin.Scheme + "://" + a.origin.Host }

// route is one line of the table from which the mux and its tests are made.
type route struct {
	pattern string
	handle  func(*App, http.ResponseWriter, *http.Request)
	owner   bool // only the game's creator may; for others it does not exist
}

// routeTable is every address of the app.
func routeTable() []route {
	return []route{
		{"GET /{$}", (*App).home, false},
		{"POST /games", (*App).makeGame, false},
		{"GET /game/{game}", (*App).workshop, true},
		{"POST /game/{game}/change", (*App).changeGame, true},
		{"POST /game/{game}/restore", (*App).restoreVersion, true},
		{"GET /game/{game}/version/{number}", (*App).evidence, true},
		{"GET /game/{game}/version/{number}/picture/{name}", (*App).evidencePicture, true},
		{"POST /job/{job}/cancel", (*App).cancelJob, true},
		{"GET /play/{game}", (*App).play, false},
		{"GET /embed/{game}", (*App).embed, false},
		{"GET /picture/{game}/{version}/{which}", (*App).publicPicture, false},
		{"GET /static/{file}", (*App).static, false},
		{"GET /api/health", (*App).apiHealth, false},
		{"POST /api/games", (*App).apiMake, false},
		{"GET /api/games/{game}", (*App).apiGame, true},
		{"POST /api/games/{game}/changes", (*App).apiChange, true},
		{"POST /api/games/{game}/restore", (*App).apiRestore, true},
		{"GET /api/jobs/{job}", (*App).apiJob, true},
		{"GET /api/jobs/{job}/events", (*App).apiEvents, true},
		{"POST /api/jobs/{job}/cancel", (*App).apiCancel, true},
	}
}

func (a *App) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range routeTable() {
		mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) { r.handle(a, w, req) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, r, dreamcore.Errorf(dreamcore.NotFound, "web", "no such page"))
	})
	return mux
}
