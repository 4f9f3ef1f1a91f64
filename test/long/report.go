package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// note is a line that a test logged, or the last count of a fuzzer.
var (
	note  = regexp.MustCompile(`^\s+\w+_test\.go:\d+: (.*)$`)
	execs = regexp.MustCompile(`execs: (\d+) .*\(total: (\d+)\)`)
)

// notes takes out of a task's output what belongs into the report.
func notes(out string) []string {
	var all []string
	last := ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if m := note.FindStringSubmatch(line); m != nil && len(all) < 40 {
			all = append(all, m[1])
		}
		if m := execs.FindStringSubmatch(line); m != nil {
			last = m[1] + " inputs, " + m[2] + " kept"
		}
	}
	if last != "" {
		all = append(all, last)
	}
	return all
}

// write writes the report about every task, whether or not it was run today.
func write(tasks []task, results map[string]result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Long tests\n\nWritten by `make test-long` on %s. A row is about the commit that stands in it; \"changed since\" means that the source which it is about is another by now, and the same command runs it again.\n", time.Now().UTC().Format(time.DateOnly))
	cpu, ran, fuzzers := 0, 0, 0
	for _, t := range tasks {
		if r, ok := results[t.name]; t.fuzz {
			fuzzers++
			if ok {
				cpu, ran = cpu+r.CPUSeconds, ran+1
			}
		}
	}
	fmt.Fprintf(&b, "\nFuzzing: %d of %d targets ran, %.1f minutes of processor time in all.\n", ran, fuzzers, float64(cpu)/60)
	b.WriteString("\n| test | verdict | seconds | of processor time | commit | |\n|---|---|---|---|---|---|\n")
	var said strings.Builder
	for _, t := range tasks {
		r, ok := results[t.name]
		if !ok {
			fmt.Fprintf(&b, "| %s | not run | | | | |\n", t.name)
			continue
		}
		verdict, about := r.verdict(), ""
		if r.Source != t.source {
			verdict += ", changed since"
		}
		if t.fuzz {
			about = strings.Join(r.Notes, "; ")
		} else if len(r.Notes) > 0 {
			fmt.Fprintf(&said, "\n## %s\n\n", t.name)
			for _, n := range r.Notes {
				fmt.Fprintf(&said, "- %s\n", n)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s | %s |\n", t.name, verdict, r.Seconds, r.CPUSeconds, r.Commit, strings.ReplaceAll(about, "|", "/"))
	}
	b.WriteString(said.String())
	if err := os.MkdirAll(filepath.Dir(report), 0o755); err != nil {
		return err
	}
	return os.WriteFile(report, []byte(b.String()), 0o644)
}
