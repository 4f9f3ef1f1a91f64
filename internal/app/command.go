package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"dreamcore"
	"dreamcore/internal/config"
	"dreamcore/internal/keyproxy/control"
	"dreamcore/internal/text"
)

// Terminal is where a command reads its arguments' language from and writes to.
type Terminal struct {
	// In is what a command in a sandbox reads; nil means nothing.
	In       *os.File
	Out, Err io.Writer
	Lang     dreamcore.Lang
	TTY      bool // Out is a terminal: a status line may be redrawn
}

// SystemTerminal is this process's own.
func SystemTerminal() Terminal {
	t := Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Lang: dreamcore.English}
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		v := os.Getenv(name)
		if v == "" {
			continue
		}
		switch {
		case strings.HasPrefix(v, "ja"):
			t.Lang = dreamcore.Japanese
		case strings.HasPrefix(v, "zh"):
			t.Lang = dreamcore.Chinese
		}
		break // the first that is set decides
	}
	if info, err := os.Stdout.Stat(); err == nil {
		t.TTY = info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return t
}

func (t Terminal) say(key string, args ...string) { fmt.Fprintln(t.Out, text.T(t.Lang, key, args...)) }

// command is one verb of the command line.
type command struct {
	name string
	run  func(ctx context.Context, t Terminal, args []string) error
}

func commands() []command {
	return []command{
		{"make", runMake},
		{"serve", runServe},
		{"engine", runEngine},
		{"sandbox", runSandbox},
		{"doctor", runDoctor},
		{"attack", runAttack},
		{"image", runImage},
		{"key", runKey},
		{"audit", runAudit},
		{"version", runVersion},
		{control.Command, runKeyProxy}, // not for people, so no help names it
	}
}

// errUsage asks for exit code 2: the arguments were wrong and what is right was
// printed already.
var errUsage = errors.New("wrong arguments")

// errSaid asks for exit code 1: what is wrong was printed already.
var errSaid = errors.New("failed")

// Run runs one command line and returns its exit code: 0, 1 for a failure, 2
// for arguments that make no sense, or the code of a command that ran in a
// sandbox.
func Run(ctx context.Context, t Terminal, args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(t.Err, text.T(t.Lang, "cli.help"))
		return 2
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		t.say("cli.help")
		return 0
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		err := c.run(ctx, t, args[1:])
		var own *exitError
		switch {
		case errors.As(err, &own):
			if own.err != nil {
				explain(t, own.err)
			}
			return own.code
		case err == nil || errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errUsage):
			return 2
		case errors.Is(err, errSaid):
			return 1
		case ctx.Err() != nil:
			fmt.Fprintln(t.Err, text.T(t.Lang, "cli.interrupted"))
			return exitInterrupted
		}
		explain(t, err)
		return 1
	}
	fmt.Fprintln(t.Err, text.T(t.Lang, "cli.unknown", "command", printable(args[0], 60)))
	fmt.Fprintln(t.Err, text.T(t.Lang, "cli.help"))
	return 2
}

// explain prints what happened and what to do next.
func explain(t Terminal, err error) {
	var e *dreamcore.Error
	if !errors.As(err, &e) {
		fmt.Fprintln(t.Err, text.T(t.Lang, "cli.error", "error", err.Error()))
		return
	}
	msg := e.Msg
	if e.Err != nil {
		msg = becauseOf(msg, printable(e.Err.Error(), 2000))
	}
	fmt.Fprintln(t.Err, text.T(t.Lang, "cli.error", "error", msg))
	if e.Hint != "" {
		fmt.Fprintln(t.Err, text.T(t.Lang, "cli.hint", "hint", e.Hint))
	}
}

// stopBefore is the end of a sentence to which its cause was glued; the dot of a
// path (open .: …) is none.
var stopBefore = regexp.MustCompile(`([\pL\pN)"'` + "`" + `）」])[.。]: `)

// becauseOf joins a sentence and its cause, and what that is made of, to one.
func becauseOf(msg, cause string) string { return stopBefore.ReplaceAllString(msg+": "+cause, "$1: ") }

// settings are the flags that every service command has.
type settings struct {
	config, app, games string
	verbose            bool
}

func (s *settings) register(f *flag.FlagSet) {
	f.StringVar(&s.config, "config", "", "")
	f.StringVar(&s.app, "app", "", "")
	f.StringVar(&s.games, "games", "", "")
	f.BoolVar(&s.verbose, "verbose", false, "")
}

// load reads the settings; an address on the command line wins.
func (s *settings) load(t Terminal) (config.Config, error) {
	return config.Load(s.config, func(c *config.Config) {
		c.Lang = t.Lang
		if s.app != "" {
			c.App = config.Listener{Listen: s.app}
		}
		if s.games != "" {
			c.Games = config.Listener{Listen: s.games}
		}
	})
}

// none refuses arguments where a command takes none.
func none(t Terminal, rest []string) error {
	if len(rest) == 0 {
		return nil
	}
	fmt.Fprintln(t.Err, text.T(t.Lang, "cli.too_many", "argument", printable(rest[0], 60)))
	return errUsage
}

// logTo opens the service's log: the terminal when asked for, else a file in
// the data folder, so that a progress display is not torn apart.
func logTo(t Terminal, cfg config.Config, toTerminal bool) (*slog.Logger, func(), error) {
	if toTerminal {
		return slog.New(slog.NewTextHandler(t.Err, nil)), func() {}, nil
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, nil, dreamcore.Errorf(dreamcore.Invalid, "app", "the data folder cannot be made").Because(err).
			WithHint("set DREAMCORE_DATA to a folder that you may write to")
	}
	path := filepath.Join(cfg.Data, "dreamcore.log")
	// One former log is kept; it must not grow for ever.
	if info, err := os.Stat(path); err == nil && info.Size() > 64<<20 {
		_ = os.Rename(path, path+".1") // at worst the log stays long
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open the log: %w", err)
	}
	return slog.New(slog.NewJSONHandler(f, nil)), func() { f.Close() }, nil
}

func runServe(ctx context.Context, t Terminal, args []string) error {
	var s settings
	rest, err := options(t, "cli.serve_help", args, s.register)
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
	log, closeLog, err := logTo(t, cfg, true)
	if err != nil {
		return err
	}
	defer closeLog()
	svc := New(cfg, log)
	if err := svc.Open(ctx); err != nil {
		return err
	}
	t.say("cli.serving", "url", cfg.App.URL)
	return svc.wait(ctx, t)
}

func runVersion(_ context.Context, t Terminal, _ []string) error {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	fmt.Fprintln(t.Out, "dreamcore", version)
	return nil
}

// printable makes untrusted text safe for a terminal: one line, no control or
// direction characters, at most n letters.
func printable(s string, n int) string {
	var b strings.Builder
	count := 0
	for _, r := range s {
		if count == n {
			b.WriteString("…")
			break
		}
		switch {
		case r == '\n' || r == '\t':
			r = ' '
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0xfffd || r >= 0x200b && r <= 0x200f && r != 0x200d || r >= 0x202a && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff:
			continue
		}
		b.WriteRune(r)
		count++
	}
	return strings.TrimSpace(b.String())
}
