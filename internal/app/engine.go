package app

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/engine"
	"dreamcore/internal/payload"
	"dreamcore/internal/text"
)

// engineListen is where `dreamcore engine` serves when nothing else is said.
const engineListen = "127.0.0.1:49982"

// engineOrder is what the command line of `dreamcore engine` asks for.
type engineOrder struct {
	listen, url, domain string
	remote              bool // other machines may reach it
	certFile, keyFile   string
	data                string // the folder of all that DreamCore keeps
	memory, disk        size
	cpus                float64
	processes           int
	sandboxes           int // alive at once; 0: as many as fit
	profile             string
	logFormat           string
	quiet, keep         bool
	allowNoLimits       bool
	apiKey              dreamcore.Secret // of the environment; zero: the kept one
	lang                dreamcore.Lang
	images              func(ref string) (engine.Image, error)
	paths               payload.Paths
	certificates        *tls.Config
	folder              string
	ahead               int // boxes that wait, booted
	idle                time.Duration
	overcommit          float64
}

// standalone is an engine that serves others: one address for both planes.
type standalone struct {
	parts
	order  engineOrder
	key    dreamcore.Secret
	public string // the URL that others use
	engine *engine.Engine
}

func runEngine(ctx context.Context, t Terminal, args []string) error {
	o := engineOrder{lang: t.Lang, memory: size(engine.DefaultLimits.MemoryBytes), disk: size(engine.DefaultLimits.DiskBytes)}
	rest, err := options(t, "engine_cmd.help", args, func(f *flag.FlagSet) {
		f.StringVar(&o.listen, "listen", engineListen, "")
		f.BoolVar(&o.remote, "allow-remote", false, "")
		f.StringVar(&o.url, "url", "", "")
		f.StringVar(&o.domain, "domain", "", "")
		f.StringVar(&o.certFile, "tls-cert", "", "")
		f.StringVar(&o.keyFile, "tls-key", "", "")
		f.StringVar(&o.data, "data", "", "")
		f.Var(&o.memory, "memory", "")
		f.Var(&o.disk, "disk", "")
		f.Float64Var(&o.cpus, "cpus", engine.DefaultLimits.CPUs, "")
		f.IntVar(&o.processes, "processes", engine.DefaultLimits.Processes, "")
		f.IntVar(&o.sandboxes, "max-sandboxes", 0, "")
		f.IntVar(&o.ahead, "ahead", config.Default().Box.Ahead, "")
		f.DurationVar(&o.idle, "idle-timeout", 0, "")
		f.Float64Var(&o.overcommit, "overcommit", engine.DefaultOvercommit, "")
		f.StringVar(&o.profile, "profile", string(engine.E2B), "")
		f.StringVar(&o.logFormat, "log", "text", "")
		f.BoolVar(&o.quiet, "quiet", false, "")
		f.BoolVar(&o.keep, "keep", false, "")
		f.BoolVar(&o.allowNoLimits, "allow-no-limits", false, "")
	})
	if err != nil {
		return err
	}
	if err := none(t, rest); err != nil {
		return err
	}
	if o.data == "" {
		if o.data, err = config.DefaultData(); err != nil {
			return err
		}
	}
	o.apiKey = dreamcore.NewSecret(os.Getenv("E2B_API_KEY"))
	if err := o.check(); err != nil {
		return err
	}
	log, err := o.log(t)
	if err != nil {
		return err
	}
	s := &standalone{parts: newParts(log), order: o}
	if err := s.open(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	s.tell(t)
	return s.wait(ctx, t)
}

// log is where the engine's decisions go: standard error, one line each.
func (o engineOrder) log(t Terminal) (*slog.Logger, error) {
	level := &slog.HandlerOptions{Level: slog.LevelInfo}
	if o.quiet {
		level.Level = slog.LevelWarn
	}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(t.Err, level)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(t.Err, level)), nil
	}
	return nil, o.fail(dreamcore.Invalid, "log_format", "format", printable(o.logFormat, 40))
}

func (o engineOrder) fail(code dreamcore.Code, key string, args ...string) *dreamcore.Error {
	return text.Error(o.lang, code, "engine", "engine_cmd."+key, args...)
}

// keyForm is what E2B's clients accept as a key, at a length that nobody guesses.
var keyForm = regexp.MustCompile(`^e2b_[0-9a-f]{16,200}$`)

// check refuses what cannot work or must be said out loud, before anything starts.
func (o *engineOrder) check() error {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return o.fail(dreamcore.Invalid, "bad_listen", "addr", printable(o.listen, 80))
	}
	if !loopback(host) && !o.remote {
		return o.fail(dreamcore.Refused, "remote", "addr", o.listen)
	}
	if (o.certFile == "") != (o.keyFile == "") {
		return o.fail(dreamcore.Invalid, "half_tls")
	}
	if o.certFile != "" {
		cert, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		if err != nil {
			return o.fail(dreamcore.Invalid, "bad_tls").Because(err)
		}
		o.certificates = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	if !o.apiKey.IsZero() && !keyForm.MatchString(o.apiKey.Reveal()) {
		return o.fail(dreamcore.Invalid, "bad_key")
	}
	if p := engine.Profile(o.profile); p != engine.E2B && p != engine.Job {
		return o.fail(dreamcore.Invalid, "bad_profile", "profile", printable(o.profile, 40))
	}
	if o.idle < 0 || !(o.overcommit >= 0) {
		return o.fail(dreamcore.Invalid, "bad_reserve")
	}
	if o.sandboxes < 0 || o.ahead < 0 {
		return o.fail(dreamcore.Invalid, "bad_sandboxes")
	}
	return nil
}

// loopback reports whether only this machine can reach a listener on host.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// open starts everything; on an error the caller closes what had started.
func (s *standalone) open(ctx context.Context) error {
	o := &s.order
	// The address first: a port that is taken is the likeliest mistake.
	l, err := net.Listen("tcp", o.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return o.fail(dreamcore.Conflict, "port_taken", "addr", o.listen)
	}
	if err != nil {
		return o.fail(dreamcore.Invalid, "cannot_listen", "addr", o.listen).Because(err)
	}
	s.onClose("listener", func(context.Context) error { return ignoreClosed(l.Close()) })
	o.folder = filepath.Join(o.data, "serving")
	if err := os.MkdirAll(o.folder, 0o700); err != nil {
		return o.fail(dreamcore.Invalid, "no_folder", "dir", o.folder).Because(err)
	}
	if s.key, err = o.settleKey(); err != nil {
		return err
	}
	if o.images, err = servedImages(o.lang); err != nil {
		return err
	}
	cache, err := payload.DefaultCache()
	if err != nil {
		return err
	}
	if o.paths, err = payload.Extract(cache); err != nil {
		return err
	}
	s.engine = engine.New(engine.Config{
		Dir: filepath.Join(o.folder, "engine"), Runsc: o.paths.Runsc, Sandboxd: o.paths.Sandboxd,
		Images: o.images, APIKey: s.key, Log: s.log, Lang: o.lang, AllowNoLimits: o.allowNoLimits,
		Limits:  engine.Limits{MemoryBytes: int64(o.memory), CPUs: o.cpus, Processes: o.processes, DiskBytes: int64(o.disk)},
		Profile: engine.Profile(o.profile), MaxBoxes: o.sandboxes, Overcommit: o.overcommit, IdleTimeout: o.idle, Domain: o.domain, Keep: o.keep,
		Pool: engine.Pool{Max: o.ahead, Next: func() (engine.Image, error) { return o.images("base") }},
	})
	if err := s.engine.Open(ctx); err != nil {
		return err
	}
	s.onClose("engine", func(context.Context) error { return s.engine.Close() })
	s.serveTLS("engine", l, s.engine.Handler(), 0, o.certificates)

	port := l.Addr().(*net.TCPAddr).Port
	s.public = o.address(port, true)
	a := engineAddress{APIURL: o.address(port, false), CertFile: o.certFile, Domain: o.domain, APIKey: s.key.Reveal(), PID: os.Getpid()}
	if err := a.leave(o.folder); err != nil {
		return err
	}
	s.onClose("address", func(context.Context) error { return takeAddress(o.folder) })
	return nil
}

// address is the URL under which the engine is reached: by others, or from here.
func (o engineOrder) address(port int, others bool) string {
	if others && o.url != "" {
		return strings.TrimRight(o.url, "/")
	}
	scheme := "http"
	if o.certificates != nil {
		scheme = "https"
	}
	host, _, _ := net.SplitHostPort(o.listen) // was checked
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if name, err := os.Hostname(); err == nil && others {
			host = name
		}
	}
	return fmt.Sprintf("%s://%s", scheme, net.JoinHostPort(host, fmt.Sprint(port)))
}

// settleKey returns the environment's key, or the one that is kept in the
// engine's folder, which is made where there is none.
func (o engineOrder) settleKey() (dreamcore.Secret, error) {
	if !o.apiKey.IsZero() {
		return o.apiKey, nil
	}
	name := filepath.Join(o.folder, "api_key")
	data, err := os.ReadFile(name)
	if err == nil {
		key := strings.TrimSpace(string(data))
		if !keyForm.MatchString(key) {
			return dreamcore.Secret{}, o.fail(dreamcore.Invalid, "bad_kept_key", "file", name)
		}
		info, err := os.Stat(name)
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			return dreamcore.Secret{}, o.fail(dreamcore.Refused, "open_key", "file", name)
		}
		return dreamcore.NewSecret(key), err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return dreamcore.Secret{}, fmt.Errorf("read the engine's key: %w", err)
	}
	raw := make([]byte, 20)
	if _, err := rand.Read(raw); err != nil {
		return dreamcore.Secret{}, fmt.Errorf("make the engine's key: %w", err)
	}
	key := "e2b_" + hex.EncodeToString(raw)
	if err := os.WriteFile(name, []byte(key+"\n"), 0o600); err != nil {
		return dreamcore.Secret{}, fmt.Errorf("keep the engine's key: %w", err)
	}
	return dreamcore.NewSecret(key), nil
}

// servedImages finds what clients call a template: "base", whatever its tag, is
// this machine's current image, digests are themselves. It fails when there is
// no image at all.
func servedImages(lang dreamcore.Lang) (func(ref string) (engine.Image, error), error) {
	store, err := openImageStore(lang)
	if err != nil {
		return nil, err
	}
	if _, err := store.Current(); err != nil {
		return nil, err
	}
	return func(ref string) (engine.Image, error) {
		if name, _, _ := strings.Cut(ref, ":"); name == "base" {
			ref = "current"
		}
		img, err := store.Get(ref)
		return engine.Image{Digest: img.Digest, Root: img.Root}, err
	}, nil
}

// tell prints what E2B's SDK needs, ready to paste, on standard output; for
// people there is a word on standard error.
func (s *standalone) tell(t Terminal) {
	serving := "engine_cmd.serving"
	if s.order.keep {
		serving = "engine_cmd.serving_keep"
	}
	fmt.Fprintln(t.Err, text.T(t.Lang, serving, "url", s.public))
	if !s.engine.Limited() { // the engine has logged why
		fmt.Fprintln(t.Err, text.T(t.Lang, "engine_cmd.no_limits"))
	}
	if s.order.remote && s.order.certificates == nil {
		fmt.Fprintln(t.Err, text.T(t.Lang, "engine_cmd.no_tls"))
		s.log.Warn("the API key goes over the network in the clear", "decision", "go on", "reason", "allow_remote")
	}
	printVariables(t, s.key.Reveal(), s.public, s.public, s.order.domain)
}

// printVariables prints the environment of E2B's SDK as lines for a shell. With
// a domain each sandbox has host names of its own, and no common URL.
func printVariables(t Terminal, key, api, sandboxes, domain string) {
	fmt.Fprintf(t.Out, "export E2B_API_KEY=%s\nexport E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\n", shellQuote(key), shellQuote(api), shellQuote(sandboxes))
	if domain != "" {
		fmt.Fprintf(t.Out, "export E2B_DOMAIN=%s\n", shellQuote(domain))
	}
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)

// shellQuote quotes s for a POSIX shell where it needs that.
func shellQuote(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
