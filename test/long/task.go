package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// task is one command that takes long.
type task struct {
	name   string
	args   []string
	env    []string
	source string // hash of the source that it is about: done for one, not for another
	fuzz   bool
	share  time.Duration // of processor time, for a fuzzer
}

// near are the packages whose fuzz targets are run first: what they decode comes
// out of a sandbox.
var near = []string{"internal/engine", "internal/engine/gvisor", "internal/sandbox/e2b", "internal/keyproxy", "internal/envd", "internal/tree", "internal/agent"}

// tasks is the soaks and every fuzz target of the module, each for its share of
// the processor time.
func tasks(ctx context.Context, fuzz time.Duration) ([]task, error) {
	soak := func(name, test, pkg string) task {
		return task{name: name, args: []string{"go", "test", "-tags", "long", "-count=1", "-timeout", "5h", "-run", "^" + test + "$", "-v", pkg}}
	}
	all := []task{
		soak("soak: 1,000 sandboxes made, used and killed", "TestSoak", "./test/soak"),
		soak("soak: the engine killed with -9 at 20 random moments", "TestKilledServer", "./test/soak"),
		soak("soak: the same, with boxes taken back", "TestKilledServerKeeps", "./test/soak"),
		soak("soak: 100 sandboxes alive at once", "TestHundredAlive", "./test/soak"),
		soak("soak: 20 games, the host killed twice", "TestSoak", "./test/e2e"),
	}
	out, err := output(ctx, "go", "test", "-list", "^Fuzz", "./...")
	if err != nil {
		return nil, err
	}
	var targets []task
	var names []string
	for _, line := range strings.Split(out, "\n") {
		if strings.HasPrefix(line, "Fuzz") {
			names = append(names, line)
			continue
		}
		if f := strings.Fields(line); len(f) > 1 && f[0] == "ok" {
			for _, n := range names {
				// One worker on one processor: its share is processor time.
				targets = append(targets, task{name: "fuzz: " + strings.TrimPrefix(f[1], "dreamcore/") + " " + n, fuzz: true, args: []string{f[1], n}, env: []string{"GOMAXPROCS=1"}})
			}
			names = nil
		}
	}
	slices.SortStableFunc(targets, func(a, b task) int { return rank(a) - rank(b) })
	share := (fuzz / time.Duration(max(len(targets), 1))).Round(time.Second)
	for _, t := range targets {
		// Making an input small is given little: by default it is a minute each.
		t.share = share
		t.args = []string{"go", "test", "-run", "^$", "-fuzz", "^" + t.args[1] + "$", "-fuzztime", share.String(), "-fuzzminimizetime", "2s", "-parallel", "1", t.args[0]}
		all = append(all, t)
	}
	sources := map[string]string{}
	for i, t := range all {
		pkg := t.args[len(t.args)-1]
		if sources[pkg] == "" {
			of := []string{pkg}
			if !t.fuzz {
				of = append(of, "./cmd/sandboxd") // in every sandbox that a soak boots
			}
			if sources[pkg], err = source(ctx, of...); err != nil {
				return nil, err
			}
		}
		all[i].source = sources[pkg]
	}
	return all, nil
}

func rank(t task) int {
	if i := slices.Index(near, strings.TrimPrefix(t.args[0], "dreamcore/")); i >= 0 {
		return i
	}
	return len(near)
}

// source is a hash of everything in the module that the tests of packages are
// made of.
func source(ctx context.Context, packages ...string) (string, error) {
	format := `{{if and .Module .Module.Main}}{{.Dir}}{{end}}`
	list, err := output(ctx, "go", append([]string{"list", "-deps", "-test", "-tags", "long", "-f", format}, packages...)...)
	if err != nil {
		return "", err
	}
	dirs := slices.Compact(slices.Sorted(strings.Lines(list)))
	sum := sha256.New()
	for _, dir := range dirs {
		dir = strings.TrimSpace(dir)
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() {
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s %d\n", e.Name(), len(data))
			sum.Write(data)
		}
		err = filepath.WalkDir(filepath.Join(dir, "testdata", "fuzz"), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				fmt.Fprintln(sum, d.Name()) // named by what is in it
			}
			return nil // most packages have none
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}
