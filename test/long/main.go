// Long runs what takes hours: the soak and each fuzz target for minutes. It can
// be interrupted and goes on with what is not done for this commit; the report
// is docs/reports/long.md.
package main

import (
	"context"
	"encoding/json"
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

type result struct {
	Name    string
	Passed  bool
	Seconds int
	Tail    string // the end of what it printed
}

type state struct {
	Commit  string
	Results map[string]result
}

type task struct {
	name string
	args []string
}

func main() {
	fuzz := flag.Duration("fuzz", 5*time.Minute, "how long each fuzz target runs")
	only := flag.String("only", "", "run only tasks whose name matches this pattern")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *fuzz, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, fuzz time.Duration, only string) error {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	file, err := stateFile()
	if err != nil {
		return err
	}
	commit, err := output(ctx, "git", "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	s := state{Commit: commit, Results: map[string]result{}}
	if data, err := os.ReadFile(file); err == nil {
		var old state
		if json.Unmarshal(data, &old) == nil && old.Commit == commit {
			s = old
		}
	}
	tasks, err := list(ctx, fuzz)
	if err != nil {
		return err
	}
	failed := 0
	for _, t := range tasks {
		if !pattern.MatchString(t.name) {
			continue
		}
		r, done := s.Results[t.name]
		if !done || !r.Passed {
			fmt.Printf("%s: %s …\n", time.Now().Format(time.TimeOnly), t.name)
			r = do(ctx, t)
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted in %s; the same command goes on from here", t.name)
			}
			s.Results[t.name] = r
			if err := save(file, s, tasks); err != nil {
				return err
			}
		}
		verdict := "passed"
		if !r.Passed {
			verdict = "FAILED"
			failed++
			fmt.Println(r.Tail)
		}
		fmt.Printf("%s %s (%d s)\n", verdict, t.name, r.Seconds)
	}
	fmt.Printf("report: %s\n", report)
	if failed > 0 {
		return fmt.Errorf("%d tasks failed", failed)
	}
	return nil
}

// list is the soak and every fuzz target of the project.
func list(ctx context.Context, fuzz time.Duration) ([]task, error) {
	tasks := []task{{"soak", []string{"go", "test", "-tags", "long", "-count=1", "-timeout", "4h", "-run", "TestSoak", "-v", "./test/e2e"}}}
	out, err := output(ctx, "go", "test", "-list", "^Fuzz", "./...")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "Fuzz") {
			names = append(names, line)
			continue
		}
		if f := strings.Fields(line); len(f) > 1 && f[0] == "ok" {
			for _, n := range names {
				tasks = append(tasks, task{
					strings.TrimPrefix(f[1], "dreamcore/") + " " + n,
					[]string{"go", "test", "-run", "^$", "-fuzz", "^" + n + "$", "-fuzztime", fuzz.String(), f[1]},
				})
			}
			names = nil
		}
	}
	return tasks, nil
}

func do(ctx context.Context, t task) result {
	start := time.Now()
	cmd := exec.CommandContext(ctx, t.args[0], t.args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 2 * time.Minute
	out, err := cmd.CombinedOutput()
	tail := string(out)
	if len(tail) > 4000 {
		tail = "…" + tail[len(tail)-4000:]
	}
	return result{t.name, err == nil, int(time.Since(start).Seconds()), tail}
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
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

func save(file string, s state, tasks []task) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Long tests\n\nCommit %s, %s. Written by `make test-long`.\n\n| test | verdict | seconds |\n|---|---|---|\n", s.Commit, time.Now().UTC().Format(time.DateOnly))
	for _, t := range tasks {
		verdict, seconds := "not run", ""
		if r, ok := s.Results[t.name]; ok {
			verdict, seconds = "FAILED", fmt.Sprint(r.Seconds)
			if r.Passed {
				verdict = "passed"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", t.name, verdict, seconds)
	}
	if err := os.MkdirAll(filepath.Dir(report), 0o755); err != nil {
		return err
	}
	return os.WriteFile(report, []byte(b.String()), 0o644)
}
