// Package imagetool is the toolkit's image command: the agent orders pictures
// in words and goes on working while they are made.
//
//	image order "a flying cat, side view" --out project/assets/cat.png --size 256x256 --transparent
//	image wait
//	image list
//
// Each order has a process of its own, which asks the key proxy for the picture
// and writes the file; the state of all orders is a folder, so every command
// sees them and the same order given twice is one order. One style holds for
// the whole game, so that its pictures match: the first that is given.
package imagetool

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"dreamcore"
	"dreamcore/internal/text"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // a picture failed, or is not there in time
	exitUsage  = 2 // the command makes no sense, or cannot work here at all
)

// Bounds of an order.
const (
	minSide  = 16
	maxSide  = 2048
	maxWords = 1000 // characters
)

// Env is what the command has to do with the world.
type Env struct {
	Stdout, Stderr io.Writer
	// Getenv looks up the environment; nil is os.Getenv.
	Getenv func(string) string
	// Self is the command line by which an order's own process is started: a
	// program that calls Main with the arguments that follow. Empty is this
	// program with the argument "image".
	Self []string
}

func (e Env) getenv(name string) string {
	if e.Getenv != nil {
		return e.Getenv(name)
	}
	return os.Getenv(name)
}

// Main runs the command and returns its exit code: 0 when all is well, 1 when a
// picture failed or did not come in time, 2 when nothing could be done.
func Main(args []string, env Env) int {
	lang, args := language(args, env)
	c := &command{env: env, lang: lang}
	if len(args) == 0 {
		return c.usage()
	}
	if args[0] == workCommand {
		return work(context.Background(), args[1:], env)
	}
	dir, err := openFolder(env)
	if err != nil {
		return c.refuse("no_state", "dir", dir.dir, "reason", err.Error())
	}
	c.folder = dir
	switch args[0] {
	case "order":
		return c.order(args[1:])
	case "wait":
		return c.wait(args[1:])
	case "list":
		return c.list(args[1:])
	}
	return c.usage()
}

// language takes --lang out of the arguments, wherever it stands.
func language(args []string, env Env) (dreamcore.Lang, []string) {
	tag := env.getenv("DREAMCORE_LANG")
	var rest []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--lang" && i+1 < len(args):
			i++
			tag = args[i]
		case strings.HasPrefix(a, "--lang="):
			tag = strings.TrimPrefix(a, "--lang=")
		default:
			rest = append(rest, a)
		}
	}
	lang, ok := dreamcore.ParseLang(tag)
	if !ok {
		lang = dreamcore.English
	}
	return lang, rest
}

type command struct {
	env    Env
	lang   dreamcore.Lang
	folder folder
}

func (c *command) text(key string, args ...string) string {
	return text.T(c.lang, "image_tool."+key, args...)
}

func (c *command) say(key string, args ...string) {
	fmt.Fprintln(c.env.Stdout, c.text(key, args...))
}

func (c *command) usage() int {
	fmt.Fprintln(c.env.Stderr, c.text("usage"))
	return exitUsage
}

func (c *command) refuse(key string, args ...string) int {
	fmt.Fprintln(c.env.Stderr, c.text(key, args...))
	return exitUsage
}

// parse reads flags that stand before, between or after the other arguments.
func (c *command) parse(fs *flag.FlagSet, args []string) (words []string, code int, ok bool) {
	fs.SetOutput(io.Discard)
	for len(args) > 0 {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				fmt.Fprintln(c.env.Stdout, c.text("usage"))
				return nil, exitOK, false
			}
			c.refuse("bad_flag", "flag", culprit(err))
			return nil, c.usage(), false
		}
		args = fs.Args()
		if len(args) > 0 {
			words, args = append(words, args[0]), args[1:]
		}
	}
	return words, 0, true
}

// culprit finds the flag that a message of package flag is about.
func culprit(err error) string {
	s := err.Error()
	if i := strings.LastIndex(s, " -"); i >= 0 {
		s = s[i+1:]
	}
	name, _, _ := strings.Cut(s, " ")
	return "--" + strings.Trim(strings.TrimLeft(name, "-"), ":")
}

var sizePattern = regexp.MustCompile(`^([1-9][0-9]{0,4})x([1-9][0-9]{0,4})$`)

func (c *command) order(args []string) int {
	fs := flag.NewFlagSet("order", flag.ContinueOnError)
	out := fs.String("out", "", "")
	size := fs.String("size", "256x256", "")
	transparent := fs.Bool("transparent", false, "")
	style := fs.String("style", "", "")
	like := fs.String("like", "", "")
	said, code, ok := c.parse(fs, args)
	if !ok {
		return code
	}
	o := order{Words: strings.TrimSpace(strings.Join(said, " ")), Out: *out, Transparent: *transparent, Style: strings.TrimSpace(*style), Created: time.Now()}
	if o.Words == "" || !utf8.ValidString(o.Words) {
		return c.refuse("no_words")
	}
	if n := utf8.RuneCountInString(o.Words); n > maxWords {
		return c.refuse("long_words", "n", strconv.Itoa(n), "max", strconv.Itoa(maxWords))
	}
	m := sizePattern.FindStringSubmatch(*size)
	if m != nil {
		o.Width, _ = strconv.Atoi(m[1]) // the pattern has checked the digits
		o.Height, _ = strconv.Atoi(m[2])
	}
	if min(o.Width, o.Height) < minSide || max(o.Width, o.Height) > maxSide {
		return c.refuse("bad_size", "size", *size, "min", strconv.Itoa(minSide), "max", strconv.Itoa(maxSide))
	}
	path, err := filepath.Abs(*out)
	if err != nil || !strings.EqualFold(filepath.Ext(*out), ".png") {
		return c.refuse("bad_out", "file", *out)
	}
	o.Path = path
	if code := c.match(&o, *like); code != exitOK {
		return code
	}
	o.identify()
	return c.place(o)
}

// sameButStyle reports whether a is the order b but for the style.
func sameButStyle(a, b order) bool {
	a.Style = b.Style
	a.identify()
	return a.ID == b.ID
}

// match settles the style: the one given, else that of the picture that it is
// to be like, else the game's.
func (c *command) match(o *order, like string) int {
	orders, err := c.folder.all()
	if err != nil {
		return c.refuse("no_state", "dir", c.folder.dir, "reason", err.Error())
	}
	if like != "" {
		path, err := filepath.Abs(like)
		if err != nil {
			return c.refuse("no_like", "file", like)
		}
		known := false
		for _, p := range orders {
			if p.Path == path {
				known = true
				if o.Style == "" {
					o.Style = p.Style
				}
			}
		}
		if _, err := os.Stat(path); err != nil && !known {
			return c.refuse("no_like", "file", like)
		}
	}
	again := false
	for _, p := range orders {
		if sameButStyle(*o, p) && (o.Style == "" || o.Style == p.Style) {
			o.Style, again = p.Style, true
			break
		}
	}
	for _, p := range orders {
		if again || o.Style != "" {
			break
		}
		o.Style = p.Style
	}
	if !again && len(orders) >= maxOrders {
		return c.refuse("too_many", "n", strconv.Itoa(len(orders)), "max", strconv.Itoa(maxOrders))
	}
	return exitOK
}

// place starts the order's process, unless the same order is under way or done.
func (c *command) place(o order) int {
	lock, err := c.folder.lock(o.ID)
	if err != nil {
		return c.refuse("no_state", "dir", c.folder.dir, "reason", err.Error())
	}
	said := []string{"id", o.ID, "file", o.Out, "size", o.size()}
	if lock == nil {
		c.say("same_running", said...)
		return exitOK
	}
	defer lock.Close()
	key := "ordered"
	if old, err := c.folder.load(o.ID); err == nil {
		o.Created = old.Created
		if _, err := os.Stat(o.Path); err == nil && old.State == done {
			c.say("same_done", said...)
			return exitOK
		}
		key = "again"
	}
	o.State, o.Note = running, "note_queued"
	err = c.folder.replace(o)
	if err == nil {
		err = c.folder.save(o)
	}
	if err != nil {
		return c.refuse("no_state", "dir", c.folder.dir, "reason", err.Error())
	}
	if err := start(c.env, c.folder, o.ID, lock); err != nil {
		o.fail("reason_start", "fix_draw", map[string]string{"detail": err.Error()})
		if err := c.folder.save(o); err != nil {
			return c.refuse("no_state", "dir", c.folder.dir, "reason", err.Error())
		}
		c.report(o)
		return exitFailed
	}
	c.say(key, said...)
	return exitOK
}

// report prints one line on how an order stands.
func (c *command) report(o order) {
	switch o.State {
	case done:
		c.say("done", "id", o.ID, "file", o.Out, "width", strconv.Itoa(o.GotWidth), "height", strconv.Itoa(o.GotHeight), "bytes", strconv.Itoa(o.Bytes))
	case failed:
		c.say("failed", "id", o.ID, "file", o.Out,
			"reason", text.Map(c.lang, "image_tool."+o.Reason, o.Args), "fix", c.text(o.Fix))
	default:
		c.say("running", "id", o.ID, "file", o.Out, "note", c.note(o))
	}
}

// note says what an order that is under way does just now.
func (c *command) note(o order) string {
	args := map[string]string{}
	for k, v := range o.Args {
		args[k] = v
	}
	if r := args["reason"]; r != "" {
		args["reason"] = text.Map(c.lang, "image_tool."+r, o.Args)
	}
	return text.Map(c.lang, "image_tool."+o.Note, args)
}

func (c *command) list(args []string) int {
	if _, code, ok := c.parse(flag.NewFlagSet("list", flag.ContinueOnError), args); !ok {
		return code
	}
	orders, code := c.choose(nil)
	if code != exitOK {
		return code
	}
	if len(orders) == 0 {
		c.say("none")
	}
	for _, o := range orders {
		c.say("list_line", "id", o.ID, "state", c.text("state_"+string(o.State)), "size", o.size(), "file", o.Out, "words", o.Words)
	}
	return exitOK
}

// choose returns the named orders as they stand, or all.
func (c *command) choose(ids []string) ([]order, int) {
	if len(ids) == 0 {
		all, err := c.folder.all()
		if err != nil {
			return nil, c.refuse("no_state", "dir", c.folder.dir, "reason", err.Error())
		}
		for _, o := range all {
			ids = append(ids, o.ID)
		}
	}
	var orders []order
	for _, id := range ids {
		o, err := c.folder.look(id)
		if errors.Is(err, os.ErrNotExist) {
			return nil, c.refuse("unknown_id", "id", id)
		}
		if err != nil {
			return nil, c.refuse("no_state", "dir", c.folder.dir, "reason", err.Error())
		}
		orders = append(orders, o)
	}
	return orders, exitOK
}
