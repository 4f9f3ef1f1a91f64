package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// timing collects durations of one thing.
type timing []time.Duration

func (t timing) at(q float64) time.Duration {
	s := slices.Clone(t)
	slices.Sort(s)
	return s[min(int(float64(len(s))*q), len(s)-1)]
}

// over is how many times as long as floor it took: the middle of the rounds
// where both were measured side by side, else the ratio of the middles. A
// machine that is busy with other work is so for both in a round.
func (t timing) over(floor timing) float64 {
	if len(t) != len(floor) {
		return float64(t.at(0.5)) / float64(floor.at(0.5))
	}
	ratios := make([]float64, len(t))
	for i := range t {
		ratios[i] = float64(t[i]) / float64(floor[i])
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func timed(tb testing.TB, f func() error) time.Duration {
	tb.Helper()
	begun := time.Now()
	if err := f(); err != nil {
		tb.Fatal(err)
	}
	return time.Since(begun)
}

// row is one line of the table that a run of the benchmarks ends with.
type row struct {
	what, floorName string
	ours, floor     timing
}

var table []row

// goals are the most that a row may take, in times of its floor.
var goals = map[string]float64{
	"boot to first command":               1.0,
	"from the pool, with a first command": 1.5,
	"a command":                           1.5,
	"1,000 files in":                      1 / 0.8,
	"1,000 files out":                     1 / 0.8,
	"1,000 files out, by tar as it is":    1 / 0.8,
	"50 MB in":                            1 / 0.8,
	"processor time a second of 20 boxes with a sleeping process": 2,
	"50 MB out": 1 / 0.8,
}

// titles are a benchmark's row in words: what it measures and what beside.
var titles = map[string][2]string{
	"BenchmarkBoot":          {"boot to first command", "runsc create, start, exec, same box"},
	"BenchmarkPool":          {"from the pool, with a first command", "a command in a live box"},
	"BenchmarkWarmAgent":     {"create to the agent's first request", "booted, the agent started there"},
	"BenchmarkCommand":       {"a command", "fork and exec in the same box"},
	"BenchmarkBulk":          {"1,000 files in", "tar in the same box"},
	"BenchmarkBigFile":       {"50 MB in", "tar in the same box"},
	"BenchmarkKill":          {"kill, until nothing is left", "runsc delete -force"},
	"BenchmarkManyAtOnce/10": {"10 boots to first command at once", "10 bare runsc at once"},
	"BenchmarkManyAtOnce/50": {"50 boots to first command at once", "50 bare runsc at once"},
	"BenchmarkIdle":          {"processor time a second of 20 boxes with a sleeping process", "20 boxes with none"},
}

// report prints ours and the floor that was measured in the same run.
func report(b *testing.B, ours, floor timing, floorName string) {
	b.ReportMetric(0, "ns/op") // the timings below are per thing, without the set-up
	b.ReportMetric(ms(ours.at(0.5)), "ms-p50")
	b.ReportMetric(ms(ours.at(0.99)), "ms-p99")
	b.ReportMetric(ms(floor.at(0.5)), "ms-"+floorName)
	b.ReportMetric(ours.over(floor), "x-"+floorName)
	// On a machine that others load too, the best of many says most.
	b.ReportMetric(ms(ours.at(0)), "ms-best")
	b.ReportMetric(float64(ours.at(0))/float64(floor.at(0)), "x-best")
	title, ok := titles[b.Name()]
	if !ok {
		title = [2]string{b.Name(), floorName}
	}
	note(row{title[0], title[1], ours, floor})
}

// note puts a row into the table, in the place of one that a shorter run put.
func note(r row) {
	for i, old := range table {
		if old.what == r.what && old.floorName == r.floorName {
			table[i] = r
			return
		}
	}
	table = append(table, r)
}

// printTable prints what all benchmarks of this run have measured.
func printTable() {
	if len(table) == 0 {
		return
	}
	fmt.Printf("\n%-38s %8s %8s   %-36s %8s %8s   %6s  %s\n", "milliseconds", "p50", "p99", "beside", "p50", "p99", "times", "goal")
	for _, r := range table {
		ours, floor, times, verdict := "", "", "", ""
		if len(r.ours) > 0 {
			ours = fmt.Sprintf("%8.1f %8.1f", ms(r.ours.at(0.5)), ms(r.ours.at(0.99)))
		}
		if len(r.floor) > 0 {
			floor = fmt.Sprintf("%8.1f %8.1f", ms(r.floor.at(0.5)), ms(r.floor.at(0.99)))
		}
		if len(r.ours) > 0 && len(r.floor) > 0 {
			x := r.ours.over(r.floor)
			times = fmt.Sprintf("%.2f", x)
			if most, ok := goals[r.what]; ok && !strings.HasPrefix(r.floorName, "also ") {
				verdict = fmt.Sprintf("at most %.2f: met", most)
				if x > most {
					verdict = fmt.Sprintf("at most %.2f: MISSED", most)
				}
			}
		}
		fmt.Printf("%-38s %17s   %-36s %17s   %6s  %s\n", r.what, ours, r.floorName, floor, times, verdict)
	}
}
