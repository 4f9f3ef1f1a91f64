package imagetool

import (
	"flag"
	"strconv"
	"time"
)

// Times of waiting.
const (
	pollEvery     = 150 * time.Millisecond
	progressEvery = 10 * time.Second
)

// wait blocks until the orders have ended, telling what happens.
func (c *command) wait(args []string) int {
	fs := flag.NewFlagSet("wait", flag.ContinueOnError)
	timeout := fs.Int("timeout", 300, "")
	ids, code, ok := c.parse(fs, args)
	if !ok {
		return code
	}
	begin := time.Now()
	deadline := begin.Add(time.Duration(*timeout) * time.Second)
	told := map[string]string{}
	var nextProgress time.Time
	for {
		orders, code := c.choose(ids)
		if code != exitOK {
			return code
		}
		if len(orders) == 0 {
			c.say("none")
			return exitOK
		}
		now := time.Now()
		tick := now.After(nextProgress)
		counts := map[state]int{}
		for _, o := range orders {
			counts[o.State]++
			// A line for each change, and now and then one for those under way.
			line := string(o.State) + o.Note + o.Args["n"]
			if told[o.ID] != line || tick && o.State == running {
				told[o.ID] = line
				c.report(o)
			}
		}
		if tick {
			nextProgress = now.Add(progressEvery)
		}
		n := strconv.Itoa(len(orders))
		switch {
		case counts[running] == 0 && counts[failed] == 0:
			c.say("all_done", "n", n)
			return exitOK
		case counts[running] == 0:
			c.say("some_failed", "n", n, "done", strconv.Itoa(counts[done]), "failed", strconv.Itoa(counts[failed]))
			return exitFailed
		case now.After(deadline):
			c.say("still_running", "n", strconv.Itoa(counts[running]), "seconds", strconv.Itoa(*timeout))
			return exitFailed
		}
		time.Sleep(pollEvery)
	}
}
