package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dreamcore"
	"dreamcore/internal/text"
)

// options parses args, wherever the flags stand among them, and returns the
// other arguments; help is the key of the text that explains the command.
// Everything behind "--" is an argument, whatever it looks like.
func options(t Terminal, help string, args []string, define func(*flag.FlagSet)) ([]string, error) {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the flag package speaks English only
	define(f)
	var rest []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, rest = args[:i], args[i+1:]
	}
	var before []string
	for {
		err := f.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			t.say(help)
			return nil, err
		}
		if err != nil {
			fmt.Fprintln(t.Err, wrongFlag(t.Lang, err))
			fmt.Fprintln(t.Err, text.T(t.Lang, help))
			return nil, errUsage
		}
		if args = f.Args(); len(args) == 0 {
			return append(before, rest...), nil
		}
		before, args = append(before, args[0]), args[1:]
	}
}

// The flag package's errors, whose only form is English text.
var (
	unknownFlag = regexp.MustCompile(`^flag provided but not defined: (-.*)$`)
	lonelyFlag  = regexp.MustCompile(`^flag needs an argument: (-.*)$`)
	wrongValue  = regexp.MustCompile(`(?s)^invalid (?:boolean )?value (".*") for (?:flag )?(-[^ :]*): `)
	wrongSyntax = regexp.MustCompile(`(?s)^bad flag syntax: (.*)$`)
)

// wrongFlag says what is wrong with a flag, in the language of whoever typed it.
func wrongFlag(lang dreamcore.Lang, err error) string {
	said := err.Error()
	for form, key := range map[*regexp.Regexp]string{unknownFlag: "flag_unknown", wrongSyntax: "flag_unknown", lonelyFlag: "flag_lonely"} {
		if m := form.FindStringSubmatch(said); m != nil {
			return text.T(lang, "cli."+key, "flag", typed(m[1]))
		}
	}
	if m := wrongValue.FindStringSubmatch(said); m != nil {
		return text.T(lang, "cli.flag_value", "value", printable(m[1], 100), "flag", typed(m[2]))
	}
	return text.T(lang, "cli.flag_wrong", "error", printable(said, 200))
}

// typed is a flag as the help texts have it: two dashes, but before a single letter.
func typed(flag string) string {
	if name := strings.TrimLeft(flag, "-"); len(name) > 1 {
		flag = "--" + name
	}
	return printable(flag, 100)
}

// size is a number of bytes on the command line: 512M, 3G, 1.5G; a bare number
// means MiB.
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s)>>20, 10) + "M" }

func (s *size) Set(v string) error {
	unit := 1 << 20
	number := strings.ToUpper(strings.TrimSpace(v))
	number = strings.TrimSuffix(strings.TrimSuffix(number, "B"), "I")
	for suffix, n := range map[string]int{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = rest, n
			break
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n > 0) || n*float64(unit) > 1<<50 { // NaN is not over 0 either
		return errors.New("512M, 3G")
	}
	*s = size(n * float64(unit))
	return nil
}
