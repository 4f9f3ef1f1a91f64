package imagetool

import (
	"bytes"
	"encoding/json"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/offline/picture"
)

// TestMain lets the test program play the toolkit: an order's process is this
// program, started again.
func TestMain(m *testing.M) {
	if os.Getenv("IMAGETOOL_AS_TOOL") == "1" {
		os.Exit(Main(os.Args[1:], Env{Stdout: os.Stdout, Stderr: os.Stderr}))
	}
	os.Exit(m.Run())
}

const grant = "v4.public.grant-of-this-job"

// box is a sandbox as the tool sees it: a state folder, a grant, a project and
// a proxy in front of the real picture maker.
type box struct {
	t       *testing.T
	project string
	state   string
	mu      sync.Mutex
	asked   []string // prompts, in the order in which they came
	when    []time.Time
	// before may answer a request itself and return true.
	before func(w http.ResponseWriter, prompt string, nth int) bool
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, project: t.TempDir(), state: filepath.Join(t.TempDir(), "image")}
	key := dreamcore.NewSecret("the-operators-key")
	maker := picture.Handler(key, slog.New(slog.NewTextHandler(io.Discard, nil)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openai/v1/images/generations" || r.Header.Get("Authorization") != "Bearer "+grant {
			http.Error(w, `{"error":{"message":"The grant is not valid.","code":"grant_invalid"}}`, http.StatusForbidden)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var o struct{ Prompt string }
		if err := json.Unmarshal(body, &o); err != nil {
			t.Errorf("the tool sent %q: %v", body, err)
		}
		b.mu.Lock()
		b.asked = append(b.asked, o.Prompt)
		b.when = append(b.when, time.Now())
		nth := len(b.asked)
		b.mu.Unlock()
		if b.before != nil && b.before(w, o.Prompt, nth) {
			return
		}
		r2 := r.Clone(r.Context())
		r2.URL.Path = "/v1/images/generations"
		r2.Header.Set("Authorization", "Bearer "+key.Reveal())
		r2.Body = io.NopCloser(bytes.NewReader(body))
		maker.ServeHTTP(w, r2)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		b.settle()
	})
	grantFile := filepath.Join(t.TempDir(), "grant")
	if err := os.WriteFile(grantFile, []byte(grant+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("IMAGETOOL_AS_TOOL", "1")
	t.Setenv("DREAMCORE_STATE", b.state)
	t.Setenv("DREAMCORE_GRANT_FILE", grantFile)
	t.Setenv("DREAMCORE_IMAGE_URL", server.URL+"/openai/v1/images/generations")
	t.Setenv("DREAMCORE_LANG", "en")
	return b
}

// settle waits until no order's process is left, so that none outlives its test.
func (b *box) settle() {
	locks, err := filepath.Glob(filepath.Join(b.state, "*.lock"))
	if err != nil {
		b.t.Error(err)
	}
	for _, path := range locks {
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			lock, err := flock(path)
			if err != nil {
				b.t.Error(err)
				break
			}
			if lock != nil {
				lock.Close()
				break
			}
			if time.Now().After(end) {
				b.t.Errorf("the process that holds %s does not end", path)
				break
			}
		}
	}
}

func (b *box) requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

// run runs the tool in this process and returns its exit code and output.
func (b *box) run(args ...string) (int, string) {
	b.t.Helper()
	var out bytes.Buffer
	code := Main(args, Env{Stdout: &out, Stderr: &out, Self: []string{os.Args[0]}})
	return code, out.String()
}

func (b *box) want(code int, says string, args ...string) string {
	b.t.Helper()
	got, out := b.run(args...)
	if got != code || !strings.Contains(out, says) {
		b.t.Fatalf("image %q: exit %d, want %d; it must say %q and says:\n%s", args, got, code, says, out)
	}
	return out
}

func (b *box) path(name string) string { return filepath.Join(b.project, "assets", name) }

func (b *box) orderArgs(words, name string, more ...string) []string {
	return append([]string{"order", words, "--out", b.path(name), "--size", "96x64", "--transparent"}, more...)
}

func checkPicture(t *testing.T, path string, w, h int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if m.Bounds().Dx() != w || m.Bounds().Dy() != h {
		t.Errorf("%s is %v, want %d by %d", path, m.Bounds(), w, h)
	}
}
