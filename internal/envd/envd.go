// Package envd is the in-sandbox half of the protocol: it runs processes and
// moves files for a client outside. It speaks E2B's wire protocol (Connect RPC
// for processes and folders, plain HTTP for the bytes of files), so that one
// client drives E2B's own daemon and ours.
//
// It authenticates nobody: whoever can reach its handler may do everything.
// sandboxd serves it on a connection that only the host has, and the engine's
// router checks tokens on the host. The "user" of a request selects as whom a
// command runs and a file is touched; it is not a credential.
package envd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"dreamcore/internal/envd/spec/filesystem/filesystemconnect"
	"dreamcore/internal/envd/spec/process/processconnect"
)

// Version is the version of E2B's daemon whose behaviour this package has.
const Version = "0.6.4"

// Port is the port under which E2B's clients address the daemon.
const Port = 49983

// Limits of one request and one process. They bound what a client or a process
// can make the daemon hold in memory.
const (
	maxMessageBytes = 16 << 20 // one RPC message in either direction
	maxBacklogBytes = 1 << 20  // output of one process that nobody has taken yet
	// All of that together; above it a process keeps no more than the least.
	maxBacklogsBytes = 32 << 20
	minBacklogBytes  = 64 << 10
	maxEntries       = 200_000 // entries in one answer of ListDir
)

// Config says how the daemon finds its users, how much it lets its clients have
// running and where it logs.
type Config struct {
	// Passwd and Group are files in the format of /etc/passwd and /etc/group;
	// "" means those two.
	Passwd, Group string
	// DefaultUser is who acts when a request names nobody; "" means "user".
	DefaultUser string
	// MaxProcesses bounds the processes that clients have running at once, and
	// MaxWatchers what they watch; 0 means 1024 and 64.
	MaxProcesses, MaxWatchers int
	Log                       *slog.Logger // nil: nowhere
}

// Server serves the protocol. Its processes live until they end or are
// signalled, whatever becomes of the request that started them.
type Server struct {
	cfg  Config
	log  *slog.Logger
	reap *reaper
	pace pace

	passwd, group table

	mu    sync.Mutex
	env   map[string]string // given to every process
	procs map[int]*running  // by process id, running and a few ended ones
	ended []*running        // ended ones that nobody has collected, oldest first
	// Processes that run, and that are being forked.
	living, starting int
	started          int
	kept             atomic.Int64 // bytes in all backlogs
	watchers         int          // of both kinds
	polled           map[string]*polled
	cpu              cpuUse
	host             hostWatch
}

// New builds a Server and starts to reap children: every child of this
// operating-system process belongs to the Server from now on, so nothing else
// in it may start processes and wait for them.
func New(cfg Config) *Server {
	s := newServer(cfg)
	s.reap = newReaper()
	return s
}

// newServer builds a Server that can do all but start processes.
func newServer(cfg Config) *Server {
	if cfg.Passwd == "" {
		cfg.Passwd = "/etc/passwd"
	}
	if cfg.Group == "" {
		cfg.Group = "/etc/group"
	}
	if cfg.DefaultUser == "" {
		cfg.DefaultUser = "user"
	}
	if cfg.MaxProcesses <= 0 {
		cfg.MaxProcesses = 1024
	}
	if cfg.MaxWatchers <= 0 {
		cfg.MaxWatchers = 64
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg:    cfg,
		log:    cfg.Log,
		pace:   usualPace,
		passwd: table{file: cfg.Passwd}, group: table{file: cfg.Group},
		env:   map[string]string{},
		procs: map[int]*running{}, polled: map[string]*polled{},
	}
	if spent, cpus, err := cpuTime(); err == nil {
		s.cpu.since(time.Now(), spent, cpus) // the first question is answered from here on
	}
	return s
}

// SetEnv replaces the variables that every process gets, below those that its
// own request names.
func (s *Server) SetEnv(env map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env = make(map[string]string, len(env))
	for k, v := range env {
		s.env[k] = v
	}
}

// Handler returns the whole protocol as one handler.
func (s *Server) Handler() http.Handler {
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(maxMessageBytes),
		// Between here and the host is a fast wire: packing costs more than it brings.
		connect.WithCompressMinBytes(math.MaxInt),
		connect.WithRecover(func(_ context.Context, spec connect.Spec, _ http.Header, p any) error {
			s.log.Error("a handler panicked", "procedure", spec.Procedure, "panic", fmt.Sprint(p))
			return connect.NewError(connect.CodeInternal, fmt.Errorf("the daemon failed"))
		}),
	}
	mux := http.NewServeMux()
	mux.Handle(processconnect.NewProcessHandler(&processService{Server: s}, opts...))
	mux.Handle(filesystemconnect.NewFilesystemHandler(&filesystemService{Server: s}, opts...))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /envs", s.serveEnvs)
	mux.HandleFunc("GET "+MetricsPath, s.serveMetrics)
	mux.HandleFunc("GET /files", s.serveRead)
	mux.HandleFunc("POST /files", s.serveWrite)
	mux.HandleFunc("POST /files/compose", s.serveCompose)
	return mux
}

func (s *Server) serveEnvs(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writeJSON(w, http.StatusOK, s.env)
}

// failure is the body of every refusal over plain HTTP.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func writeFailure(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, failure{Code: status, Message: strings.ToValidUTF8(message, "�")})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The status is out: a client that went away is all that can fail here.
	_ = json.NewEncoder(w).Encode(v)
}
