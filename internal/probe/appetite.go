package probe

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// What these take they give back. Reached means that nothing stopped them
// before Most; Control that they got something at all.

func files(a Attempt) Outcome {
	var o Outcome
	var all []*os.File
	defer func() {
		for _, f := range all {
			f.Close()
		}
	}()
	for o.Got < a.Most {
		f, err := os.Open("/dev/null")
		if err != nil {
			o.Says = err.Error()
			o.Control = o.Got > 0
			return o
		}
		all = append(all, f)
		o.Got++
	}
	o.Control, o.Reached = true, true
	return o
}

func fork(ctx context.Context, a Attempt) Outcome {
	ctx, cancel := context.WithCancel(ctx)
	var o Outcome
	var all []*exec.Cmd
	defer func() {
		cancel()
		for _, c := range all {
			_ = c.Wait() // killed: an error is right
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return Outcome{Says: err.Error()}
	}
	for o.Got < a.Most {
		c := exec.CommandContext(ctx, self, "probe", "wait")
		if err := c.Start(); err != nil {
			o.Says = err.Error()
			o.Control = o.Got > 0
			return o
		}
		all = append(all, c)
		o.Got++
	}
	o.Control, o.Reached = true, true
	return o
}

func disk(a Attempt) Outcome {
	var o Outcome
	f, err := os.Create(a.Target)
	if err != nil {
		return Outcome{Says: err.Error()}
	}
	defer func() {
		f.Close()
		_ = os.Remove(a.Target) // the sandbox ends soon
	}()
	piece := make([]byte, 1<<20)
	for i := range piece {
		piece[i] = byte(i)
	}
	for o.Got < a.Most {
		n, err := f.Write(piece)
		o.Got += int64(n)
		if err != nil {
			o.Says = err.Error()
			o.Control = o.Got > 0
			return o
		}
	}
	o.Control, o.Reached = true, true
	return o
}

// memory is ended by whoever watches: then there is no outcome at all.
func memory(a Attempt) Outcome {
	o := Outcome{Control: true}
	var all [][]byte
	for o.Got < a.Most {
		b, err := syscall.Mmap(-1, 0, 8<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			o.Says = err.Error()
			return o
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		all = append(all, b)
		o.Got += int64(len(b))
	}
	o.Reached = len(all) > 0
	return o
}

// count counts the processes of a user, but for itself.
func count(a Attempt) Outcome {
	var o Outcome
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range paths {
		o.Control = true
		if p == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		status, err := os.ReadFile(p + "/status")
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" && f[1] == a.Target {
				o.Got++
				o.Says += p + " "
			}
		}
	}
	o.Reached = o.Got > 0
	return o
}
