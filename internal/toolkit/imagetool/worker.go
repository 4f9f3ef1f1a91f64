package imagetool

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// workCommand is the internal argument by which an order's process is started.
const workCommand = "_work"

// Limits of one order's process.
const (
	workers      = 4 // that ask at the same time
	tries        = 4
	patience     = 6 * time.Minute // for the whole order
	answerWithin = 3 * time.Minute // for one try
	maxPause     = 60 * time.Second
	maxAnswer    = 32 << 20 // bytes
	defaultURL   = "http://127.0.0.1:4000/openai/v1/images/generations"
	defaultGrant = "/run/dreamcore/grant"
	defaultModel = "builtin-pictures"
)

// start runs the order's process in a session of its own, so that it outlives
// the shell that gave the order, and hands it the lock.
func start(env Env, f folder, id string, lock *os.File) error {
	self := env.Self
	if len(self) == 0 {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the program itself: %w", err)
		}
		self = []string{exe, "image"}
	}
	cmd := exec.Command(self[0], append(append([]string(nil), self[1:]...), workCommand, f.dir, id)...)
	cmd.ExtraFiles = []*os.File{lock} // file descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}

// work is the order's process: it fetches the picture and writes the file. What
// happens is told in the order's file, since nobody sees its output.
func work(ctx context.Context, args []string, env Env) int {
	if len(args) != 2 {
		return exitUsage
	}
	lock := os.NewFile(3, "lock")
	defer lock.Close()
	f := folder{args[0]}
	o, err := f.load(args[1])
	if err != nil {
		fmt.Fprintln(env.Stderr, err)
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w := &worker{env: env, folder: f, order: o, client: &http.Client{
		Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true},
		// A redirect would carry the grant to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	w.order.PID = os.Getpid()
	w.run(ctx)
	if w.forgotten() {
		return exitOK
	}
	if err := f.save(w.order); err != nil {
		fmt.Fprintln(env.Stderr, err)
		return exitFailed
	}
	if w.order.State != done {
		return exitFailed
	}
	return exitOK
}

type worker struct {
	env    Env
	folder folder
	order  order
	client *http.Client
}

// trouble is why one try failed.
type trouble struct {
	reason, fix string
	args        map[string]string
	again       bool          // another try may help
	pause       time.Duration // before it, when the other side named one
}

func (w *worker) run(ctx context.Context) {
	release, t := w.slot(ctx)
	if t == nil {
		defer release()
	}
	for try := 1; t == nil; try++ {
		w.note("note_drawing", nil)
		var data []byte
		if data, t = w.fetch(ctx); t == nil {
			if t = w.write(data); t == nil {
				return
			}
		}
		if !t.again || try == tries {
			break
		}
		pause := t.pause
		if pause == 0 {
			pause = time.Second << (try - 1)
		}
		pause = min(pause, maxPause)
		w.note("note_retry", map[string]string{
			"n": strconv.Itoa(try), "seconds": strconv.Itoa(int((pause + time.Second - 1) / time.Second)),
			"reason": t.reason, "status": t.args["status"], "detail": t.args["detail"],
		})
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
			t = nil
		}
	}
	w.order.fail(t.reason, t.fix, t.args)
}

// note tells those who wait what happens just now. It is for show only: an
// error here shows itself at the end, when the outcome is saved.
func (w *worker) note(key string, args map[string]string) {
	w.order.Note, w.order.Args = key, args
	if w.forgotten() {
		return
	}
	if err := w.folder.save(w.order); err != nil {
		fmt.Fprintln(w.env.Stderr, err)
	}
}

// forgotten reports whether another order took the place of this one.
func (w *worker) forgotten() bool {
	_, err := os.Stat(w.folder.file(w.order.ID))
	return errors.Is(err, os.ErrNotExist)
}

// slot waits until fewer than the allowed number of workers ask at once.
func (w *worker) slot(ctx context.Context) (release func(), t *trouble) {
	for {
		for i := range workers {
			lock, err := flock(filepath.Join(w.folder.dir, fmt.Sprintf("slot-%d", i)))
			if err != nil {
				return nil, &trouble{reason: "reason_start", fix: "fix_draw", args: map[string]string{"detail": err.Error()}}
			}
			if lock != nil {
				return func() { lock.Close() }, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, &trouble{reason: "reason_down", fix: "fix_again", args: map[string]string{"detail": "too many orders were before it"}}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// fetch asks for the picture once.
func (w *worker) fetch(ctx context.Context) ([]byte, *trouble) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	req, t := w.request(ctx)
	if t != nil {
		return nil, t
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, &trouble{reason: "reason_down", fix: "fix_draw", again: true, args: map[string]string{"detail": cause(err)}}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, &trouble{reason: "reason_down", fix: "fix_draw", again: true, args: map[string]string{"detail": cause(err)}}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusal(resp, body)
	}
	if len(body) > maxAnswer {
		return nil, broken("it is larger than %d bytes", maxAnswer)
	}
	var answer struct {
		Data []struct {
			B64 string `json:"b64_json"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Data) == 0 {
		return nil, broken("the answer holds no picture")
	}
	data, err := base64.StdEncoding.DecodeString(answer.Data[0].B64)
	if err != nil {
		return nil, broken("it is not base64")
	}
	return data, nil
}

func broken(format string, args ...any) *trouble {
	return &trouble{reason: "reason_broken", fix: "fix_again", args: map[string]string{"detail": fmt.Sprintf(format, args...)}}
}

// request builds the call. The grant is read anew for each try, since the host
// renews it by file.
func (w *worker) request(ctx context.Context) (*http.Request, *trouble) {
	file := or(w.env.getenv("DREAMCORE_GRANT_FILE"), defaultGrant)
	grant, err := os.ReadFile(file)
	if err != nil {
		return nil, &trouble{reason: "reason_grant", fix: "fix_draw", args: map[string]string{"detail": cause(err)}}
	}
	background := "opaque"
	if w.order.Transparent {
		background = "transparent"
	}
	fields := map[string]any{
		"model": or(w.env.getenv("DREAMCORE_IMAGE_MODEL"), defaultModel), "prompt": w.order.Words, "n": 1,
		"size": w.order.size(), "background": background, "response_format": "b64_json",
	}
	if w.order.Style != "" {
		fields["style"] = w.order.Style
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, broken("%v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, or(w.env.getenv("DREAMCORE_IMAGE_URL"), defaultURL), bytes.NewReader(body))
	if err != nil {
		return nil, &trouble{reason: "reason_down", fix: "fix_draw", args: map[string]string{"detail": cause(err)}}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(grant)))
	return req, nil
}

// refusal reads an answer that is not a picture.
func refusal(resp *http.Response, body []byte) *trouble {
	var said struct {
		Error struct {
			Message string `json:"message"`
			Code    any    `json:"code"`
		} `json:"error"`
	}
	detail := ""
	if json.Unmarshal(body, &said) == nil {
		detail = said.Error.Message
		if code, ok := said.Error.Code.(string); ok && code != "" {
			detail = code + ": " + detail
		}
	}
	if detail == "" {
		detail = string(body)
	}
	t := &trouble{reason: "reason_refused", fix: "fix_words", args: map[string]string{
		"status": strconv.Itoa(resp.StatusCode), "detail": strings.TrimRight(plain(detail), ". "),
	}}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		t.reason, t.fix, t.again = "reason_busy", "fix_draw", true
	case resp.StatusCode >= 500:
		t.reason, t.fix, t.again = "reason_down", "fix_draw", true
		t.args["detail"] = t.args["status"] + " " + t.args["detail"]
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		t.pause = time.Duration(seconds) * time.Second
	}
	return t
}

// write puts the picture where it was ordered.
func (w *worker) write(data []byte) *trouble {
	cfg, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return broken("it is not a PNG")
	}
	bad := func(err error) *trouble {
		return &trouble{reason: "reason_write", fix: "fix_path", args: map[string]string{"detail": cause(err)}}
	}
	if err := os.MkdirAll(filepath.Dir(w.order.Path), 0o755); err != nil {
		return bad(err)
	}
	if w.forgotten() {
		return nil
	}
	if err := writeFile(w.order.Path, w.folder.dir, data); err != nil {
		return bad(err)
	}
	w.order.State, w.order.Note, w.order.Args = done, "", nil
	w.order.Bytes, w.order.GotWidth, w.order.GotHeight = len(data), cfg.Width, cfg.Height
	return nil
}

// cause is an error in few words: what happened, without the address and the
// grant's file that package net/http and os put before it.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return plain(err.Error())
		}
		err = inner
	}
}

// plain makes text from outside fit for one line of output.
func plain(s string) string {
	const most = 400
	out := make([]rune, 0, most)
	for _, r := range s {
		if !unicode.IsPrint(r) {
			r = ' '
		}
		if out = append(out, r); len(out) == most {
			out = append(out, '…')
			break
		}
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
