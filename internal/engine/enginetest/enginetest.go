// Package enginetest gives tests a real engine with the real image: real
// gVisor, real sandboxd, and the client that the product uses.
package enginetest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"dreamcore"
	"dreamcore/internal/engine"
	"dreamcore/internal/image"
	"dreamcore/internal/sandbox/e2b"
)

// APIKey is the key of every test engine.
const APIKey = "e2b_00000000000000000000000000000000"

// Config is an engine's configuration, which tests begin with Programs.
type Config = engine.Config

// Engine is an engine that runs, with a client of it.
type Engine struct {
	*engine.Engine
	Provider *e2b.Provider
	URL      string // base of both planes over TCP on the loopback
	Dir      string // the engine's folder
	Image    string // digest of the image
	Root     string // folder of the image
}

// Start opens an engine and closes it when the test ends; change may alter its
// configuration.
func Start(tb testing.TB, change ...func(*engine.Config)) *Engine {
	tb.Helper()
	e, err := Open(tb.TempDir(), Programs(tb), Image(tb), change...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Shut(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// Open opens an engine in dir without a test around it, for a child process.
func Open(dir string, p engine.Config, root string, change ...func(*engine.Config)) (*Engine, error) {
	digest := "sha256:" + strings.Repeat("0", 64)
	cfg := p
	cfg.Dir = dir
	cfg.APIKey = dreamcore.NewSecret(APIKey)
	cfg.Limits = engine.Limits{MemoryBytes: 1 << 30, CPUs: 2, Processes: 256, DiskBytes: 256 << 20}
	cfg.Images = func(ref string) (engine.Image, error) {
		if ref != digest && ref != "base" {
			return engine.Image{}, dreamcore.Errorf(dreamcore.NotFound, "image", "there is no image %q", ref)
		}
		return engine.Image{Digest: digest, Root: root, Warm: true}, nil
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, f := range change {
		f(&cfg)
	}
	e := engine.New(cfg)
	if err := e.Open(context.Background()); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	served.Store(e, serve(l, e.Handler()))
	url := "http://" + l.Addr().String()
	return &Engine{
		Engine: e, URL: url, Dir: dir, Image: digest, Root: root,
		Provider: e2b.New(e2b.Config{APIURL: url, SandboxURL: url, APIKey: dreamcore.NewSecret(APIKey), Transport: &http.Transport{MaxIdleConnsPerHost: 64}}),
	}, nil
}

var served sync.Map // *engine.Engine to the function that ends its server

func serve(l net.Listener, h http.Handler) func() {
	s := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Close
	}()
	return func() { s.Close(); <-done }
}

// Shut closes the engine and its server.
func (e *Engine) Shut() error {
	err := e.Engine.Close()
	if stop, ok := served.LoadAndDelete(e.Engine); ok {
		stop.(func())()
	}
	return err
}

// Image returns the root of the image that this machine has, or fails.
// DREAMCORE_TEST_ROOT names another folder, for work on the engine alone.
func Image(tb testing.TB) string {
	tb.Helper()
	if root := os.Getenv("DREAMCORE_TEST_ROOT"); root != "" {
		return root
	}
	dir, err := image.DefaultDir()
	if err != nil {
		tb.Fatal(err)
	}
	store, err := image.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	img, err := store.Current()
	if err != nil {
		tb.Fatalf("no sandbox image on this machine; run `make setup` (%v)", err)
	}
	return img.Root
}

// Programs returns a configuration that names runsc as `make setup` built it
// and a sandboxd that is built from the present source.
func Programs(tb testing.TB) engine.Config {
	tb.Helper()
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "../../..")
	runsc := filepath.Join(root, "internal/payload/bin/runsc")
	if _, err := os.Stat(runsc); err != nil {
		tb.Fatalf("runsc is not built; run `make setup` (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		tb.Fatalf("the source is not where it was compiled: %v", err)
	}
	built.Do(func() {
		dir, err := os.MkdirTemp("", "dreamcore-sandboxd-")
		if err != nil {
			buildErr = err
			return
		}
		sandboxd = filepath.Join(dir, "sandboxd")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", sandboxd, "./cmd/sandboxd")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			buildErr = fmt.Errorf("build sandboxd: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		tb.Fatal(buildErr)
	}
	return engine.Config{Runsc: runsc, Sandboxd: sandboxd}
}

var (
	built    sync.Once
	buildErr error
	sandboxd string
)

// CleanUp removes what Programs built; for TestMain.
func CleanUp() {
	if sandboxd != "" {
		_ = os.RemoveAll(filepath.Dir(sandboxd)) // a leftover in the temporary folder harms nobody
	}
}
