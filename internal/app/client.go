package app

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/web"
)

// client speaks the app's JSON interface, with this process's service and with
// one that runs already alike.
type client struct {
	base string
	http *http.Client
	lang dreamcore.Lang
}

func newClient(base string, lang dreamcore.Lang) (*client, error) {
	jar, err := cookiejar.New(nil) // who made the game may change and cancel it
	if err != nil {
		return nil, err
	}
	return &client{base: strings.TrimSuffix(base, "/"), lang: lang, http: &http.Client{Jar: jar}}, nil
}

// healthy reports whether a DreamCore answers at base.
func (c *client) healthy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var who struct {
		Name string `json:"name"`
	}
	// Anything may answer at that address; only a DreamCore says its name.
	return c.call(ctx, http.MethodGet, "/api/health", nil, &who) == nil && who.Name == "dreamcore"
}

// apiError is how the app says that something is not right.
type apiError struct {
	Error struct {
		Code    dreamcore.Code `json:"code"`
		Message string         `json:"message"`
		Hint    string         `json:"hint"`
	} `json:"error"`
}

func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Language", string(c.lang))
	resp, err := c.http.Do(req)
	if err != nil {
		return dreamcore.Errorf(dreamcore.Unavailable, "app.client", "no DreamCore answers at %s", c.base).Because(err).
			WithHint("start one with: dreamcore serve")
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		var e apiError
		if json.Unmarshal(data, &e) != nil || e.Error.Message == "" {
			return dreamcore.Errorf(dreamcore.Internal, "app.client", "%s answered %s", c.base+path, resp.Status)
		}
		return &dreamcore.Error{Code: e.Error.Code, Op: "app.client", Msg: e.Error.Message, Hint: e.Error.Hint}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return dreamcore.Errorf(dreamcore.Unavailable, "app.client", "what answers at %s is no DreamCore", c.base).Because(err).
			WithHint("start one with: dreamcore serve")
	}
	return nil
}

func (c *client) make(ctx context.Context, wish string) (m web.WorkJSON, err error) {
	err = c.call(ctx, http.MethodPost, "/api/games", web.WishJSON{Wish: wish, Lang: string(c.lang)}, &m)
	return m, err
}

func (c *client) cancel(ctx context.Context, id dreamcore.JobID) error {
	return c.call(ctx, http.MethodPost, "/api/jobs/"+string(id)+"/cancel", struct{}{}, nil)
}

// follow hands each event of a job to f until the job has ended. A connection
// that breaks is opened again where it was.
func (c *client) follow(ctx context.Context, id dreamcore.JobID, f func(web.EventJSON)) error {
	last, failures := int64(0), 0
	for {
		n, ended, err := c.stream(ctx, id, last, f)
		if ended {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if n > last {
			last, failures = n, 0
		}
		if failures++; failures > 10 {
			return dreamcore.Errorf(dreamcore.Unavailable, "app.client", "the progress of the job cannot be followed").Because(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// stream reads one event stream and returns the last event's number.
func (c *client) stream(ctx context.Context, id dreamcore.JobID, after int64, f func(web.EventJSON)) (last int64, ended bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/api/jobs/"+string(id)+"/events", nil)
	if err != nil {
		return after, false, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if after > 0 {
		req.Header.Set("Last-Event-ID", fmt.Sprintf("%s-%d", id, after))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return after, false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return after, false, errors.New(resp.Status)
	}
	last = after
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		if in.Text() == "event: end" { // the job's last word, after all of its events
			return last, true, nil
		}
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		var e web.EventJSON
		if json.Unmarshal([]byte(data), &e) != nil || e.Seq <= last {
			continue // a line of another kind of event, such as the place in the queue
		}
		last = e.Seq
		f(e)
	}
	return last, false, in.Err()
}
