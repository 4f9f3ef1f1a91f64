package durable

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/job"
)

const deadline = 2 * time.Minute

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func open(t *testing.T, dir string, n int, run func(context.Context, job.Steps, dreamcore.JobID) error) *Executor {
	t.Helper()
	e := New(Config{Dir: dir, Concurrent: n, Run: run, Log: quiet()})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return e
}

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(deadline):
		t.Fatalf("%s did not happen", what)
	}
}

// note appends a line to a file: what really ran, whatever process ran it.
func note(dir, line string) {
	f, err := os.OpenFile(filepath.Join(dir, "ran"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		panic(err)
	}
}

func ran(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "ran"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", " ")
}

// TestMain lets the test binary be the host that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("DURABLE_TEST_DIR"); dir != "" {
		doomed(dir)
	}
	os.Exit(m.Run())
}

func doomed(dir string) {
	e := New(Config{Dir: dir, Concurrent: 1, Log: quiet(), Run: func(ctx context.Context, s job.Steps, _ dreamcore.JobID) error {
		if _, err := s.Do(ctx, "one", func() ([]byte, error) { note(dir, "one"); return []byte("1"), nil }); err != nil {
			return err
		}
		_, err := s.Do(ctx, "two", func() ([]byte, error) {
			note(dir, "two-begun")
			os.Stdout.WriteString("in two\n")
			select {} // until the process is killed
		})
		return err
	}})
	if err := e.Start(context.Background()); err != nil {
		panic(err)
	}
	if err := e.Enqueue(context.Background(), "job1"); err != nil {
		panic(err)
	}
	select {}
}

func TestKilledHostGoesOnWithoutRunningFinishedStepsAgain(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := exec.Command(exe)
	host.Env = append(os.Environ(), "DURABLE_TEST_DIR="+dir)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait() // it was killed: an error is right

	queued, done := make(chan struct{}), make(chan struct{})
	e := open(t, dir, 1, func(ctx context.Context, s job.Steps, id dreamcore.JobID) error {
		<-queued // else it may have ended before it is queued again, which is another case
		one, err := s.Do(ctx, "one", func() ([]byte, error) { note(dir, "one"); return nil, errors.New("ran again") })
		if err != nil || string(one) != "1" {
			t.Errorf("step one: %q, %v", one, err)
		}
		_, err = s.Do(ctx, "two", func() ([]byte, error) { note(dir, "two"); return nil, nil })
		close(done)
		return err
	})
	if err := e.Enqueue(t.Context(), "job1"); err != nil { // as a restarted host does; the same job is one
		t.Fatal(err)
	}
	close(queued)
	wait(t, "the job's end", done)
	if got := ran(t, dir); got != "one two-begun two" {
		t.Errorf("ran %s", got)
	}
}

func TestStoppedJobGoesOnAtTheNextStart(t *testing.T) {
	dir := t.TempDir()
	begun := make(chan struct{})
	e := open(t, dir, 1, func(ctx context.Context, s job.Steps, _ dreamcore.JobID) error {
		_, err := s.Do(ctx, "one", func() ([]byte, error) {
			close(begun)
			<-ctx.Done()
			note(dir, "destroyed")
			return nil, ctx.Err()
		})
		return err
	})
	if err := e.Enqueue(t.Context(), "job1"); err != nil {
		t.Fatal(err)
	}
	wait(t, "the first run", begun)
	e.Stop() // returns only once the job has cleaned up
	if got := ran(t, dir); got != "destroyed" {
		t.Fatalf("ran %s", got)
	}
	done := make(chan struct{})
	open(t, dir, 1, func(ctx context.Context, s job.Steps, _ dreamcore.JobID) error {
		_, err := s.Do(ctx, "one", func() ([]byte, error) { note(dir, "again"); return nil, nil })
		close(done)
		return err
	})
	wait(t, "the second run", done)
	if got := ran(t, dir); got != "destroyed again" {
		t.Errorf("ran %s", got)
	}
}

func TestSoManyAtOnce(t *testing.T) {
	var mu sync.Mutex
	running, most, ended := 0, 0, make(chan struct{}, 8)
	e := open(t, t.TempDir(), 2, func(context.Context, job.Steps, dreamcore.JobID) error {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		time.Sleep(50 * time.Millisecond) // long enough to meet another
		mu.Lock()
		running--
		mu.Unlock()
		ended <- struct{}{}
		return nil
	})
	for _, id := range []dreamcore.JobID{"a", "b", "c", "d", "e", "f"} {
		if err := e.Enqueue(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		wait(t, "an end", ended)
	}
	if most > 2 {
		t.Errorf("%d jobs at once", most)
	}
}

func TestAnEndedJobIsNotQueuedAgain(t *testing.T) {
	ended := make(chan struct{}, 2)
	e := open(t, t.TempDir(), 1, func(_ context.Context, _ job.Steps, id dreamcore.JobID) error {
		defer func() { ended <- struct{}{} }()
		if id == "bad" {
			return errors.New("as if the store were gone")
		}
		return nil
	})
	for _, id := range []dreamcore.JobID{"good", "bad"} {
		if err := e.Enqueue(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		wait(t, "the end", ended)
		// The end is written a moment after the function returned.
		for range 1000 {
			if err := e.Enqueue(t.Context(), id); dreamcore.CodeOf(err) == dreamcore.Conflict {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := e.Enqueue(t.Context(), id); dreamcore.CodeOf(err) != dreamcore.Conflict {
			t.Errorf("%s: %v", id, err)
		}
	}
}
