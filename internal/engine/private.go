package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"dreamcore/internal/envd"
)

const (
	// daemonHost is the host of requests to a box's PID 1; nothing resolves it.
	daemonHost  = "sandbox"
	askPatience = 3 * time.Second
)

// tell gives PID 1 what only the host may say.
func (c *blank) tell(ctx context.Context, in envd.Init) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.privately(ctx, http.MethodPost, envd.InitPath, body, http.StatusNoContent, nil)
}

// ask asks PID 1 for a small JSON answer.
func (c *blank) ask(ctx context.Context, path string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	return c.privately(ctx, http.MethodGet, path, nil, http.StatusOK, answer)
}

// state asks PID 1 how the box is.
func (c *blank) state(ctx context.Context) (envd.State, error) {
	var st envd.State
	err := c.ask(ctx, envd.StatePath, &st)
	if err == nil && (st.DiskUsed < 0 || st.DiskBytes < 0) {
		err = errors.New("PID 1 answered nonsense")
	}
	return st, err
}

// privately makes a request of the host's own to PID 1. What it answers is the
// box's word: bounded, and decoded into answer where that is not nil.
func (c *blank) privately(ctx context.Context, method, path string, body []byte, want int, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+daemonHost+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := c.daemon.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != want {
		said, _ := io.ReadAll(io.LimitReader(res.Body, 300)) // only for the message
		return fmt.Errorf("PID 1 refused: %s: %q", clip(res.Status, 100), said)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(res.Body, 4096)).Decode(answer)
}
