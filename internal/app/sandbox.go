package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/sandbox/e2b"
	"dreamcore/internal/text"
)

// Exit codes of `dreamcore sandbox exec` that are not the command's own, as
// container tools have them.
const (
	exitTrouble   = 125 // the engine or the sandbox does not answer, or the arguments are wrong
	exitCannotRun = 126
	exitNoCommand = 127
	exitSignal    = 128 // plus the number of the signal
)

// exitInterrupted is what an interrupted command ends with: 128 and SIGINT.
const exitInterrupted = 130

// exitError asks for an exit code of its own. Without a cause everything was
// said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }
func (e *exitError) Unwrap() error { return e.err }

// hand is what every sandbox command begins with: an engine that answers.
type hand struct {
	t        Terminal
	provider *e2b.Provider
	address  engineAddress // zero when the environment named the engine
	where    string        // the engine's address, for people
}

// reach are the flags that say which engine is meant.
type reach struct{ data, of string }

func (r *reach) register(f *flag.FlagSet) {
	f.StringVar(&r.data, "data", "", "")
	f.StringVar(&r.of, "of", "", "")
}

func runSandbox(ctx context.Context, t Terminal, args []string) error {
	verbs := map[string]func(context.Context, Terminal, []string) error{
		"ls": listSandboxes, "create": createSandbox, "exec": execInSandbox, "cp": copySandbox,
		"logs": logsOfSandbox, "kill": killSandboxes, "env": engineEnvironment,
	}
	if len(args) > 0 {
		if verb, ok := verbs[args[0]]; ok {
			return verb(ctx, t, args[1:])
		}
		if args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
			t.say("sandbox_cmd.help")
			return nil
		}
		fmt.Fprintln(t.Err, text.T(t.Lang, "cli.unknown", "command", "sandbox "+printable(args[0], 60)))
	}
	fmt.Fprintln(t.Err, text.T(t.Lang, "sandbox_cmd.help"))
	return errUsage
}

// usage says that the arguments are wrong and what is right.
func usage(t Terminal) error {
	fmt.Fprintln(t.Err, text.T(t.Lang, "sandbox_cmd.help"))
	return errUsage
}

// find finds the engine: the one that the environment names, else one that left
// its address in the data folder.
func (r reach) find(ctx context.Context, t Terminal) (*hand, error) {
	h := &hand{t: t}
	if api := os.Getenv("E2B_API_URL"); api != "" && r.of == "" {
		key := os.Getenv("E2B_API_KEY")
		if key == "" {
			return nil, text.Error(t.Lang, dreamcore.Invalid, "sandbox", "sandbox_cmd.no_key")
		}
		h.where = api
		h.connect(api, os.Getenv("E2B_SANDBOX_URL"), os.Getenv("E2B_DOMAIN"), key, &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16})
		return h, nil
	}
	if r.data == "" {
		var err error
		if r.data, err = config.DefaultData(); err != nil {
			return nil, err
		}
	}
	folders := map[string]string{"engine": "serving", "serve": "engine"}
	if _, ok := folders[r.of]; r.of != "" && !ok {
		return nil, text.Error(t.Lang, dreamcore.Invalid, "sandbox", "sandbox_cmd.bad_of", "of", printable(r.of, 40))
	}
	var alive []*hand
	var silent []string
	for _, of := range []string{"engine", "serve"} {
		if r.of != "" && r.of != of {
			continue
		}
		a, err := findAddress(filepath.Join(r.data, folders[of]))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, text.Error(t.Lang, dreamcore.Refused, "sandbox", "sandbox_cmd.unreadable", "dir", r.data).Because(err)
		}
		x := &hand{t: t, address: a}
		answers, err := x.dial(ctx)
		if err != nil {
			return nil, err
		}
		if answers {
			alive = append(alive, x)
		} else {
			silent = append(silent, x.where)
		}
	}
	switch {
	case len(alive) == 1:
		return alive[0], nil
	case len(alive) > 1:
		return nil, text.Error(t.Lang, dreamcore.Conflict, "sandbox", "sandbox_cmd.two_engines")
	case len(silent) > 0:
		return nil, text.Error(t.Lang, dreamcore.Unavailable, "sandbox", "sandbox_cmd.silent", "where", strings.Join(silent, ", "))
	}
	return nil, text.Error(t.Lang, dreamcore.NotFound, "sandbox", "sandbox_cmd.no_engine", "dir", r.data)
}

func (h *hand) connect(api, sandboxes, domain, key string, transport http.RoundTripper) {
	h.provider = e2b.New(e2b.Config{
		APIURL: api, SandboxURL: sandboxes, Domain: domain, APIKey: dreamcore.NewSecret(key), Transport: transport, Lang: h.t.Lang,
		// Somebody waits at a terminal.
		Retry: e2b.Retry{Tries: 2, Patience: 10 * time.Second},
	})
}

// dial makes the client for the address that an engine left, and reports
// whether something answers there.
func (h *hand) dial(ctx context.Context) (bool, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	api := h.address.APIURL
	h.where = api
	if h.address.Socket != "" {
		api, h.where, transport = "http://engine", h.address.Socket, e2b.UnixTransport(h.address.Socket)
	}
	if h.address.CertFile != "" {
		pem, err := os.ReadFile(h.address.CertFile)
		if err != nil {
			return false, fmt.Errorf("read the engine's certificate: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool() // a machine without any
		}
		pool.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	h.connect(api, api, "", h.address.APIKey, transport)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/health", nil)
	if err != nil {
		return false, err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return false, nil // it has ended, or was killed
	}
	res.Body.Close()
	return res.StatusCode == http.StatusNoContent, nil
}

// begin parses a command's flags and finds its engine.
func begin(ctx context.Context, t Terminal, args []string, define func(*flag.FlagSet)) (*hand, []string, error) {
	var r reach
	rest, err := options(t, "sandbox_cmd.help", args, func(f *flag.FlagSet) {
		r.register(f)
		define(f)
	})
	if err != nil {
		return nil, nil, err
	}
	h, err := r.find(ctx, t)
	return h, rest, err
}

// open finds a sandbox of the engine.
func (h *hand) open(ctx context.Context, id string) (*e2b.Remote, error) {
	r, err := h.provider.Open(ctx, dreamcore.SandboxID(id))
	return r, h.explain(err, id)
}

// silent is the text for an engine that does not answer: what to do depends on
// who named it.
func (h *hand) silent() string {
	if h.address == (engineAddress{}) {
		return "silent_url"
	}
	return "silent"
}

// explain turns a client's error into what people at a terminal read.
func (h *hand) explain(err error, id string) error {
	var e *dreamcore.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &e):
		return err
	case e.Code == dreamcore.Lost && strings.HasSuffix(e.Msg, text.T(h.t.Lang, "engine.lost", "id", id)):
		return text.Error(h.t.Lang, dreamcore.Lost, "sandbox", "sandbox_cmd.no_sandbox", "id", printable(id, 64))
	case e.Code == dreamcore.Unavailable && e.Msg == text.T(h.t.Lang, "engine.no_answer"):
		return text.Error(h.t.Lang, dreamcore.Unavailable, "sandbox", "sandbox_cmd."+h.silent(), "where", printable(h.where, 200)).Because(e.Err)
	}
	// A sandbox's and a remote engine's words are untrusted.
	c := *e
	c.Msg = printable(c.Msg, 500)
	return &c
}

// sandboxJSON is one sandbox as `ls --json` prints it.
type sandboxJSON struct {
	ID              dreamcore.SandboxID `json:"id"`
	Image           string              `json:"image"`
	State           string              `json:"state"`
	Started         time.Time           `json:"started"`
	Ends            time.Time           `json:"ends"`
	CPUs            int                 `json:"cpus"`
	MemoryBytes     int64               `json:"memory_bytes"`
	MemoryUsedBytes int64               `json:"memory_used_bytes"`
	DiskBytes       int64               `json:"disk_bytes"`
	Metadata        map[string]string   `json:"metadata"`
}

func listSandboxes(ctx context.Context, t Terminal, args []string) error {
	var asJSON bool
	h, rest, err := begin(ctx, t, args, func(f *flag.FlagSet) { f.BoolVar(&asJSON, "json", false, "") })
	if err != nil {
		return err
	}
	if err := none(t, rest); err != nil {
		return err
	}
	all, err := h.provider.Details(ctx)
	if err != nil {
		return h.explain(err, "")
	}
	if asJSON {
		out := make([]sandboxJSON, 0, len(all))
		for _, d := range all {
			out = append(out, sandboxJSON{d.ID, d.Image, d.State, d.Started, d.Ends, d.CPUs, d.MemoryBytes, d.UsedBytes, d.DiskBytes, d.Metadata})
		}
		e := json.NewEncoder(t.Out)
		e.SetIndent("", "  ")
		return e.Encode(out)
	}
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, text.T(t.Lang, "sandbox_cmd.columns"))
	for _, d := range all {
		memory := fmt.Sprintf("%dM", d.MemoryBytes>>20)
		if d.UsedBytes > 0 {
			memory = fmt.Sprintf("%dM/%s", d.UsedBytes>>20, memory)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", printable(string(d.ID), 64), printable(d.Image, 19), printable(d.State, 20),
			d.Started.Local().Format(time.DateTime), d.Ends.Local().Format(time.DateTime), memory, pairsOf(d.Metadata))
	}
	return w.Flush()
}

// ownMetadata is how the keys begin that our client adds for itself.
const ownMetadata = "dreamcore_"

// pairsOf prints metadata, which is whoever made the sandbox's words, in one
// bounded line; without what nobody asked for.
func pairsOf(m map[string]string) string {
	var all []string
	for k, v := range m {
		if strings.HasPrefix(k, ownMetadata) {
			continue
		}
		all = append(all, printable(k, 40)+"="+printable(v, 60))
	}
	slices.Sort(all)
	return printable(strings.Join(all, " "), 160)
}

// pairs is a flag that collects K=V.
type pairs map[string]string

func (p pairs) String() string { return "" }

func (p pairs) Set(s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k == "" {
		return errors.New("K=V")
	}
	p[k] = v
	return nil
}

func createSandbox(ctx context.Context, t Terminal, args []string) error {
	spec := sandbox.Spec{Image: "base", Timeout: time.Hour, Metadata: map[string]string{}, Env: map[string]string{}}
	h, rest, err := begin(ctx, t, args, func(f *flag.FlagSet) {
		f.DurationVar(&spec.Timeout, "timeout", time.Hour, "")
		f.Var(pairs(spec.Metadata), "m", "")
		f.Var(pairs(spec.Env), "e", "")
	})
	if err != nil {
		return err
	}
	switch len(rest) {
	case 0:
	case 1:
		spec.Image = rest[0]
	default:
		return usage(t)
	}
	sb, err := h.provider.Create(ctx, spec)
	if err != nil {
		return h.explain(err, "")
	}
	fmt.Fprintln(t.Out, printable(string(sb.ID()), 64))
	return nil
}

func killSandboxes(ctx context.Context, t Terminal, args []string) error {
	var everything bool
	h, ids, err := begin(ctx, t, args, func(f *flag.FlagSet) { f.BoolVar(&everything, "all", false, "") })
	if err != nil {
		return err
	}
	if everything == (len(ids) > 0) {
		return usage(t)
	}
	if everything {
		all, err := h.provider.Details(ctx)
		if err != nil {
			return h.explain(err, "")
		}
		for _, d := range all {
			ids = append(ids, string(d.ID))
		}
	}
	failed := false
	for _, id := range ids {
		err := h.provider.End(ctx, dreamcore.SandboxID(id))
		if everything && dreamcore.CodeOf(err) == dreamcore.Lost {
			continue // it ended by itself
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			explain(t, h.explain(err, id))
			failed = true
			continue
		}
		fmt.Fprintln(t.Out, printable(id, 64))
	}
	if failed {
		return errSaid
	}
	return nil
}

// followEvery is how often `logs -f` asks for more.
const followEvery = time.Second

func logsOfSandbox(ctx context.Context, t Terminal, args []string) error {
	var follow bool
	lines := 1000
	h, rest, err := begin(ctx, t, args, func(f *flag.FlagSet) {
		f.BoolVar(&follow, "f", false, "")
		f.IntVar(&lines, "n", 1000, "")
	})
	if err != nil {
		return err
	}
	if len(rest) != 1 || lines < 1 || lines > 1000 {
		return usage(t)
	}
	id := dreamcore.SandboxID(rest[0])
	var from time.Time
	seen := 0 // of the lines that have the time from
	for first := true; ; first = false {
		got, err := h.provider.Logs(ctx, id, from, lines)
		if err != nil {
			if follow && !first && dreamcore.CodeOf(err) == dreamcore.Lost {
				return nil // it has ended, and with it its log
			}
			return h.explain(err, rest[0])
		}
		skip := seen
		for _, l := range got {
			at := l.Time.Truncate(time.Millisecond)
			if at.Equal(from) && skip > 0 {
				skip--
				continue
			}
			if !at.Equal(from) {
				from, seen = at, 0
			}
			seen++
			fmt.Fprintf(t.Out, "%s %-5s %s\n", l.Time.Local().Format("2006-01-02 15:04:05.000"), printable(l.Level, 8), printable(l.Message, 4000))
		}
		if !follow {
			return nil
		}
		if first {
			lines = 1000
			if from.IsZero() {
				from = time.UnixMilli(1)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followEvery):
		}
	}
}

func engineEnvironment(ctx context.Context, t Terminal, args []string) error {
	h, rest, err := begin(ctx, t, args, func(*flag.FlagSet) {})
	if err != nil {
		return err
	}
	if err := none(t, rest); err != nil {
		return err
	}
	if h.address.Socket != "" {
		return text.Error(t.Lang, dreamcore.Invalid, "sandbox", "sandbox_cmd.only_socket")
	}
	if h.address.APIURL == "" {
		return text.Error(t.Lang, dreamcore.Invalid, "sandbox", "sandbox_cmd.has_environment")
	}
	printVariables(t, h.address.APIKey, h.address.APIURL, h.address.APIURL, h.address.Domain)
	return nil
}
