package app

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"dreamcore/internal/image"
	"dreamcore/internal/text"
)

func runImage(ctx context.Context, t Terminal, args []string) error {
	usage := func() error {
		fmt.Fprintln(t.Err, text.T(t.Lang, "cli.image_help"))
		return errUsage
	}
	if len(args) == 0 {
		return usage()
	}
	var update, again bool
	var lockFile, e2bDir string
	if args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		t.say("cli.image_help")
		return nil
	}
	rest, err := options(t, "cli.image_help", args[1:], func(f *flag.FlagSet) {
		if args[0] == "build" {
			f.BoolVar(&update, "update", false, "")
			f.BoolVar(&again, "again", false, "")
			f.StringVar(&lockFile, "lock", "", "")
		}
		if args[0] == "export" {
			f.StringVar(&e2bDir, "e2b", "", "")
		}
	})
	if err != nil {
		return err
	}
	store, err := openImageStore(t.Lang)
	if err != nil {
		return err
	}
	one := func() (string, bool) {
		if len(rest) != 1 {
			return "", false
		}
		return rest[0], true
	}
	bar := newStages(t)
	defer bar.end()
	done := func(img image.Image, err error) error {
		bar.end()
		if err == nil {
			describe(t, img)
		}
		return err
	}
	switch args[0] {
	case "build":
		if len(rest) > 0 {
			return usage()
		}
		res, err := store.Build(ctx, image.BuildOptions{
			Update: update, Again: again, LockFile: lockFile, Progress: bar.show, Log: slog.New(slog.NewTextHandler(t.Err, nil)),
		})
		bar.end()
		if err != nil {
			return err
		}
		for _, c := range res.Changes {
			t.say("cli.image_relocked", "change", c.String())
		}
		return done(store.Use(ctx, res.Image.Digest))
	case "list":
		return listImages(t, store)
	case "use":
		ref, ok := one()
		if !ok {
			return usage()
		}
		return done(store.Use(ctx, ref))
	case "verify":
		ref := ""
		if len(rest) == 0 {
			img, err := store.Current()
			if err != nil {
				return err
			}
			ref = img.Digest
		} else if len(rest) == 1 {
			ref = rest[0]
		} else {
			return usage()
		}
		return done(store.Verify(ctx, ref, bar.show))
	case "export":
		if e2bDir != "" && len(rest) == 0 {
			tmpl, err := store.ExportTemplate(ctx, e2bDir, image.TemplateOptions{Progress: bar.show})
			bar.end()
			if err != nil {
				return err
			}
			t.say("cli.image_template", "name", tmpl.Name, "dir", tmpl.Dir, "size", fmt.Sprintf("%d MB", tmpl.SizeBytes>>20), "command", tmpl.Publish)
			return nil
		}
		file, ok := one()
		if !ok {
			return usage()
		}
		img, err := store.Current()
		if err != nil {
			return err
		}
		return done(store.ExportFile(ctx, img.Digest, file, bar.show))
	case "import":
		file, ok := one()
		if !ok {
			return usage()
		}
		return done(store.ImportFile(ctx, file, bar.show))
	case "remove":
		ref, ok := one()
		if !ok {
			return usage()
		}
		digest, err := store.Remove(ctx, ref)
		if err == nil {
			t.say("cli.image_removed", "digest", digest)
		}
		return err
	}
	return usage()
}

func describe(t Terminal, img image.Image) {
	t.say("cli.image_line", "digest", img.Digest, "agent", img.Manifest.AgentName+" "+img.Manifest.AgentVersion,
		"size", fmt.Sprintf("%d MB", img.Manifest.SizeBytes>>20), "created", img.Manifest.Created.Local().Format(time.DateTime))
}

func listImages(t Terminal, store *image.Store) error {
	all, err := store.List()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		key := "cli.image_none"
		if os.Geteuid() != 0 {
			key = "cli.image_none_user"
		}
		t.say(key)
		return nil
	}
	current, _ := store.Current() // none is current: then nothing is marked
	for _, img := range all {
		mark := "  "
		if img.Digest == current.Digest {
			mark = "* "
		}
		fmt.Fprint(t.Out, mark)
		describe(t, img)
	}
	return nil
}

// stages shows the progress of an image command: one line a stage, with the
// amount redrawn on a terminal.
type stages struct {
	t     Terminal
	stage image.Stage
	began time.Time
	open  bool
}

func newStages(t Terminal) *stages { return &stages{t: t} }

func (s *stages) show(p image.Progress) {
	if p.Stage != s.stage {
		s.end()
		s.stage, s.began, s.open = p.Stage, time.Now(), true
		if !s.t.TTY {
			fmt.Fprintln(s.t.Out, p.Text(s.t.Lang))
		}
	}
	if s.t.TTY {
		amount := ""
		if p.Total > 0 {
			amount = fmt.Sprintf(" %d/%d", p.Done, p.Total)
		}
		fmt.Fprintf(s.t.Out, "\r\x1b[K%s%s (%ds)", p.Text(s.t.Lang), amount, int(time.Since(s.began).Seconds()))
	}
}

func (s *stages) end() {
	if s.open && s.t.TTY {
		fmt.Fprintln(s.t.Out)
	}
	s.open = false
}
