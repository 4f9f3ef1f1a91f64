// Long runs what takes hours: the soaks and every fuzz target of the module. It
// can be interrupted and goes on with what is not done for the present source;
// the report is docs/reports/long.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const report = "docs/reports/long.md"

// result is how a task went.
type result struct {
	Source     string // hash of the source that it was about
	Passed     bool
	Seconds    int
	CPUSeconds int // of it and all processes that it waited for
	Commit     string
	When       time.Time
	Notes      []string // lines of its own that belong into the report
	Tail       string   // the end of what it printed
}

func main() {
	fuzz := flag.Duration("fuzz", time.Hour, "processor time for all fuzz targets together")
	only := flag.String("only", "", "run only tasks whose name matches this pattern")
	list := flag.Bool("list", false, "list the tasks and whether they are done")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *fuzz, *only, *list); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, fuzz time.Duration, only string, list bool) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	file, err := stateFile()
	if err != nil {
		return err
	}
	commit, err := output(ctx, "git", "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return err
	}
	results := load(file)
	tasks, err := tasks(ctx, fuzz)
	if err != nil {
		return err
	}
	failed := 0
	for _, t := range tasks {
		if !pattern.MatchString(t.name) {
			continue
		}
		r, known := results[t.name]
		done := known && r.Passed && r.Source == t.source
		if list {
			fmt.Printf("%-60s done: %v\n", t.name, done)
			continue
		}
		if !done {
			fmt.Printf("%s: %s …\n", time.Now().Format(time.TimeOnly), t.name)
			r = do(ctx, t)
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted in %s; the same command goes on from here", t.name)
			}
			r.Commit, r.Source = commit, t.source
			if results, err = save(file, t.name, r); err != nil {
				return err
			}
			if err := write(tasks, results); err != nil {
				return err
			}
		}
		if !r.Passed {
			failed++
			fmt.Println(r.Tail)
		}
		fmt.Printf("%s %s (%d s, %d s of processor time)\n", r.verdict(), t.name, r.Seconds, r.CPUSeconds)
	}
	if list {
		return nil
	}
	if err := write(tasks, results); err != nil {
		return err
	}
	fmt.Printf("report: %s\n", report)
	if failed > 0 {
		return fmt.Errorf("%d tasks failed", failed)
	}
	return nil
}

func (r result) verdict() string {
	if r.Passed {
		return "passed"
	}
	return "FAILED"
}

// do runs a task, a fuzzer until it has had its share of processor time: on a
// busy machine that takes longer than the share.
func do(ctx context.Context, t task) result {
	all := once(ctx, t)
	for all.Passed && ctx.Err() == nil && all.CPUSeconds < int(t.share.Seconds()) {
		r := once(ctx, t)
		all.Passed, all.Tail = r.Passed, r.Tail
		all.Seconds += r.Seconds
		all.CPUSeconds += max(r.CPUSeconds, 1) // or it would never end
		all.Notes = append(all.Notes, r.Notes...)
	}
	return all
}

func once(ctx context.Context, t task) result {
	begun := time.Now()
	cmd := exec.CommandContext(ctx, t.args[0], t.args[1:]...)
	cmd.Env = append(os.Environ(), t.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	out, err := cmd.CombinedOutput()
	r := result{Passed: err == nil, Seconds: int(time.Since(begun).Seconds()), When: begun.UTC()}
	if s := cmd.ProcessState; s != nil {
		r.CPUSeconds = int((s.UserTime() + s.SystemTime()).Seconds())
	}
	r.Notes = notes(string(out))
	if r.Tail = string(out); len(r.Tail) > 4000 {
		r.Tail = "…" + r.Tail[len(r.Tail)-4000:]
	}
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		r.Tail += "\n" + err.Error()
	}
	return r
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

func stateFile() (string, error) {
	dir := os.Getenv("DREAMCORE_CACHE")
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(base, "dreamcore")
	}
	return filepath.Join(dir, "long.json"), os.MkdirAll(dir, 0o755)
}

func load(file string) map[string]result {
	results := map[string]result{}
	if data, err := os.ReadFile(file); err == nil {
		if json.Unmarshal(data, &results) != nil {
			fmt.Printf("%s makes no sense, so everything is done anew\n", file)
			return map[string]result{}
		}
	}
	return results
}

// save adds a result to those in the file, where another run may have put some
// meanwhile, and returns all.
func save(file, name string, r result) (map[string]result, error) {
	results := load(file)
	results[name] = r
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return nil, err
	}
	return results, os.WriteFile(file, data, 0o600)
}
