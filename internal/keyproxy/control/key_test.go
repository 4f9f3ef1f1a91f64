package control

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
)

// Another key in the file: what begins from now on uses it, what runs goes on
// with the former, and neither comes back in any answer.
func TestRotation(t *testing.T) {
	w := newWorld(t)
	const next = "sk-next-Operator-Key-9876543210"
	began, more := make(chan string, 1), make(chan struct{})
	w.answer.Store(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		say := func(text string) {
			_, _ = fmt.Fprintf(rw, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":%q}}\n\n", text)
			rw.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(rw, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n")
		say("one " + canary[:10])
		began <- r.Header.Get("X-Api-Key")
		<-more
		say(canary[10:] + " two " + next[:9])
		say(next[9:] + " three")
		_, _ = io.WriteString(rw, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	}))
	resp, err := w.begin(path, "fake-model", w.token, true)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	if got := <-began; got != canary {
		t.Errorf("the running call has %q", got)
	}
	if err := os.WriteFile(w.key, []byte(next), 0o600); err != nil {
		t.Fatal(err)
	}
	for want := 1; want >= 0; want-- { // the second time nothing is new
		if n, err := w.h.Rotate(t.Context()); err != nil || n != want {
			t.Fatalf("%d %v", n, err)
		}
	}
	close(more)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for piece := range strings.SplitSeq(string(body), `"text":"`) {
		p, _, _ := strings.Cut(piece, `"`)
		text.WriteString(p)
	}
	for _, secret := range []string{canary, next} {
		if strings.Contains(text.String(), secret) || strings.Contains(string(body), secret) {
			t.Errorf("the stream echoes a key: %s", body)
		}
	}
	for _, word := range []string{"one ", " two ", " three"} {
		if !strings.Contains(text.String(), word) {
			t.Errorf("the stream lost %q: %s", word, text.String())
		}
	}
	w.answer.Store(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.keys.Store(r.Header.Get("X-Api-Key"))
		rw.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(rw, `{"type":"message","content":[{"type":"text","text":"%s %s"}],"usage":{"input_tokens":100,"output_tokens":7}}`, canary, next)
	}))
	code, answer := w.ask(path, "fake-model", w.token)
	if code != 200 || w.keys.Load() != next || strings.Contains(answer, canary) || strings.Contains(answer, next) {
		t.Errorf("with the key %q: %d %s", w.keys.Load(), code, answer)
	}
	// A file that holds no key changes nothing.
	if err := os.WriteFile(w.key, []byte("two keys"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.h.Rotate(t.Context()); dreamcore.CodeOf(err) != dreamcore.Invalid || strings.Contains(err.Error(), "two keys") {
		t.Errorf("%v", err)
	}
	w.passes()
	for _, secret := range []string{canary, next} {
		if strings.Contains(w.log.String(), secret) {
			t.Error("the log holds a key")
		}
	}
}

// A sealed key is opened in the proxy's process only, with the one key that
// opens it.
func TestSealedKey(t *testing.T) {
	opening, err := NewOpeningKey()
	if err != nil {
		t.Fatal(err)
	}
	data, err := Seal(dreamcore.NewSecret(canary), opening)
	if err != nil || strings.Contains(string(data), canary) {
		t.Fatalf("%q %v", data, err)
	}
	other, err := NewOpeningKey()
	if err != nil {
		t.Fatal(err)
	}
	file := func(text string) *os.File {
		t.Helper()
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	for range 2 { // descriptors are read from their beginning each time
		if got, err := readKey(file(string(data)), file(opening.Reveal())); err != nil || got.Reveal() != canary {
			t.Errorf("%v", err)
		}
	}
	for name, c := range map[string][2]string{
		"no opening key":  {string(data), ""},
		"another one":     {string(data), other.Reveal()},
		"an odd one":      {string(data), "AGE-SECRET-KEY-1ODD"},
		"changed":         {string(data[:len(data)-1]) + "x", opening.Reveal()},
		"cut":             {string(data[:len(data)-20]), opening.Reveal()},
		"two keys":        {"a b", opening.Reveal()},
		"nothing":         {"\n", opening.Reveal()},
		"too long a file": {strings.Repeat("k", maxKeyBytes+1), opening.Reveal()},
	} {
		var with *os.File
		if c[1] != "" {
			with = file(c[1])
		}
		if got, err := readKey(file(c[0]), with); dreamcore.CodeOf(err) != dreamcore.Invalid || !got.IsZero() || strings.Contains(err.Error(), "AGE-SECRET") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The whole way.
	dir := t.TempDir()
	sealedFile, openingFile := filepath.Join(dir, "sealed"), filepath.Join(dir, "opening")
	if err := os.WriteFile(sealedFile, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(openingFile, []byte(opening.Reveal()), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *Config) {
		plain := c.Settings
		c.Settings = func() (Settings, []*os.File, error) {
			s, files, err := plain()
			closeAll(files)
			if err != nil {
				return s, nil, err
			}
			f, err := os.Open(sealedFile)
			if err != nil {
				return s, nil, err
			}
			o, err := os.Open(openingFile)
			s.Opening = 2
			return s, []*os.File{f, o}, err
		}
	})
	w.passes()
	if got := w.keys.Load(); got != canary {
		t.Errorf("the upstream got %q", got)
	}
}
