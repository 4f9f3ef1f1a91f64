// Summary reads the output of `go test -json`, prints one line a package and
// everything of what failed, and closes with the counts. It exits with 1 when
// anything failed, was skipped, or when no test ran at all.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func main() {
	passed, failed, skipped := 0, 0, 0
	output := map[string][]string{} // of a test or package that has not ended well yet
	running := map[string]bool{}    // what has started and not ended: cut off, unless it ends
	var bad []string
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil || e.Action == "" {
			fmt.Println(in.Text()) // what the build itself says
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "start", "run":
			running[key] = true
		case "output", "build-output":
			output[key] = append(output[key], e.Output)
		case "pass", "fail", "skip":
			delete(running, key)
			if e.Test == "" {
				if e.Action != "skip" { // a package without tests
					fmt.Printf("%-5s %7.1fs %s\n", e.Action, e.Elapsed, e.Package)
				}
				if e.Action == "fail" {
					bad = append(bad, key)
				}
				continue
			}
			switch e.Action {
			case "pass":
				passed++
				delete(output, key)
			case "fail":
				failed++
				bad = append(bad, key)
			case "skip":
				skipped++
				bad = append(bad, key)
			}
		case "build-fail":
			failed++
			bad = append(bad, key)
		}
	}
	for key := range running {
		failed++
		output[key] = append(output[key], "It started and never ended.\n")
		bad = append(bad, key)
	}
	sort.Strings(bad)
	for _, key := range bad {
		fmt.Printf("\n--- %s\n%s", key, strings.Join(output[key], ""))
	}
	if err := in.Err(); err != nil {
		fmt.Println("reading the tests' output:", err)
		failed++
	}
	fmt.Printf("\n%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if failed > 0 || skipped > 0 || passed == 0 || len(bad) > 0 {
		os.Exit(1)
	}
}
