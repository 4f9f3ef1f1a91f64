package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/studio"
	"dreamcore/internal/text"
	"dreamcore/internal/web"
)

// runMake makes one game: through a service that runs already, or by serving
// itself until Ctrl-C.
func runMake(ctx context.Context, t Terminal, args []string) error {
	var s settings
	var once bool
	var server string
	rest, err := options(t, "cli.make_help", args, func(f *flag.FlagSet) {
		s.register(f)
		f.BoolVar(&once, "once", false, "")
		f.StringVar(&server, "server", "", "")
	})
	if err != nil {
		return err
	}
	wish, err := studio.CheckWish(t.Lang, strings.Join(rest, " "))
	if err != nil {
		return err
	}
	cfg, err := s.load(t)
	if err != nil {
		return err
	}
	base := server
	if base == "" {
		base = cfg.App.URL
	}
	c, err := newClient(base, t.Lang)
	if err != nil {
		return err
	}
	if server != "" || c.healthy(ctx) {
		t.say("cli.make_through", "url", base)
		return c.makeAndTell(ctx, t, wish, once)
	}
	log, closeLog, err := logTo(t, cfg, s.verbose)
	if err != nil {
		return err
	}
	defer closeLog()
	svc := New(cfg, log)
	svc.brief = true
	if err := svc.Open(ctx); err != nil {
		return err
	}
	if err := c.makeAndTell(ctx, t, wish, once); err != nil || once {
		return errors.Join(err, svc.Close())
	}
	t.say("cli.serving_until", "url", cfg.App.URL)
	return svc.wait(ctx, t)
}

// makeAndTell makes the game and prints how it goes and where it is. When ctx
// ends first, the job is cancelled, so that nothing goes on that nobody waits for.
func (c *client) makeAndTell(ctx context.Context, t Terminal, wish string, once bool) error {
	// Even when Ctrl-C comes at this moment the job's id must be known, so that it
	// can be cancelled.
	wctx, cancelWish := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancelWish()
	m, err := c.make(wctx, wish)
	if err != nil {
		return err
	}
	p := &progress{t: t, began: time.Now()}
	if err := c.follow(ctx, m.Job.ID, p.show); err != nil {
		p.clear()
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if cerr := c.cancel(cctx, m.Job.ID); cerr != nil {
			return errors.Join(err, cerr)
		}
		// The end of the job is the end of its sandboxes.
		if ferr := c.follow(cctx, m.Job.ID, p.show); ferr != nil {
			return errors.Join(err, ferr)
		}
		return err
	}
	p.clear()
	var job web.JobJSON
	if err := c.call(ctx, http.MethodGet, "/api/jobs/"+string(m.Job.ID), nil, &job); err != nil {
		return err
	}
	if job.State != dreamcore.Published {
		t.say("cli.make_failed", "reason", printable(job.Error, 500))
		return errSaid
	}
	return c.tellGame(ctx, t, m.Game.ID, once, time.Since(p.began))
}

func (c *client) tellGame(ctx context.Context, t Terminal, id dreamcore.GameID, once bool, took time.Duration) error {
	var g web.GameJSON
	if err := c.call(ctx, http.MethodGet, "/api/games/"+string(id), nil, &g); err != nil {
		return err
	}
	var ev dreamcore.Evidence
	for _, v := range g.Versions {
		if v.ID == g.Current {
			ev = v.Evidence
		}
	}
	t.say("cli.made", "title", printable(g.Title, 80), "seconds", fmt.Sprint(int(took.Seconds())))
	t.say("cli.evidence", "template", string(ev.Template), "motion", string(ev.Play.Motion), "repairs", fmt.Sprint(ev.Repairs))
	fmt.Fprintf(t.Out, "\nPlay: %s\n", g.PlayURL)
	t.say("cli.game_itself", "url", g.GameURL)
	if !once {
		return nil
	}
	for _, url := range []string{g.PlayURL, g.GameURL} {
		n, err := c.fetch(ctx, url)
		if err != nil {
			return err
		}
		t.say("cli.fetched", "url", url, "bytes", fmt.Sprint(n))
	}
	return nil
}

// fetch gets a page and returns its size.
func (c *client) fetch(ctx context.Context, url string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("fetch %s: %w", url, err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return n, fmt.Errorf("fetch %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK || n == 0 {
		return n, dreamcore.Errorf(dreamcore.Internal, "app.make", "%s answered %s with %d bytes", url, resp.Status, n)
	}
	return n, nil
}

// progress shows a job's events in plain words: a line for each step, and on a
// terminal one line below that says what the agent does right now.
type progress struct {
	t      Terminal
	began  time.Time
	status bool // a status line stands on the screen
}

func (p *progress) show(e web.EventJSON) {
	switch e.Kind {
	case dreamcore.EventStep:
		p.line(text.Map(p.t.Lang, e.Key, e.Args))
	case dreamcore.EventFind:
		p.line("  " + printable(e.Text, 200))
	case dreamcore.EventState:
		if e.Key != "" {
			p.line(text.Map(p.t.Lang, e.Key, e.Args))
		}
	case dreamcore.EventSay, dreamcore.EventTool:
		if !p.t.TTY {
			return
		}
		what := e.Text
		if e.Kind == dreamcore.EventTool {
			what = e.Args["name"] + " " + e.Text
		}
		fmt.Fprintf(p.t.Out, "\r\x1b[K  … %s", printable(what, 70))
		p.status = true
	}
}

func (p *progress) line(s string) {
	p.clear()
	fmt.Fprintf(p.t.Out, "[%3ds] %s\n", int(time.Since(p.began).Seconds()), s)
}

func (p *progress) clear() {
	if p.status {
		fmt.Fprint(p.t.Out, "\r\x1b[K")
		p.status = false
	}
}
