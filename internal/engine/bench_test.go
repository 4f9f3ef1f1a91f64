package engine_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// timing collects durations of one thing.
type timing []time.Duration

func (t timing) at(q float64) time.Duration {
	s := slices.Clone(t)
	slices.Sort(s)
	return s[min(int(float64(len(s))*q), len(s)-1)]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// report prints ours and the bare thing that was measured in the same run.
func report(b *testing.B, ours, bare timing, bareName string) {
	b.ReportMetric(0, "ns/op") // the timings below are per thing, without the set-up
	b.ReportMetric(ms(ours.at(0.5)), "ms-p50")
	b.ReportMetric(ms(ours.at(0.99)), "ms-p99")
	b.ReportMetric(ms(bare.at(0.5)), "ms-"+bareName)
	b.ReportMetric(float64(ours.at(0.5))/float64(bare.at(0.5)), "x-"+bareName)
	// On a machine that others load too, the best of many says most.
	b.ReportMetric(ms(ours.at(0)), "ms-best")
	b.ReportMetric(float64(ours.at(0))/float64(bare.at(0)), "x-best")
}

func timed(tb testing.TB, f func() error) time.Duration {
	tb.Helper()
	begun := time.Now()
	if err := f(); err != nil {
		tb.Fatal(err)
	}
	return time.Since(begun)
}

// bare is runsc without an engine, with the same image, network and platform.
type bare struct {
	runsc, root, dir string
}

func newBare(b *testing.B) *bare {
	return &bare{enginetest.Programs(b).Runsc, enginetest.Image(b), b.TempDir()}
}

func (r *bare) run(args ...string) error {
	cmd := exec.Command(r.runsc, append([]string{"--root=" + r.dir + "/state", "--network=none", "--platform=systrap", "--overlay2=root:memory", "--ignore-cgroups"}, args...)...)
	// A file: a pipe would stay open in the box that create leaves behind.
	out, err := os.Create(filepath.Join(r.dir, "out"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name()) // only for the message
		return fmt.Errorf("runsc %v: %w: %s", args, err, said)
	}
	return nil
}

func (r *bare) boot(id string) error {
	bundle := filepath.Join(r.dir, id)
	if err := os.MkdirAll(bundle, 0o700); err != nil {
		return err
	}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process":    map[string]any{"args": []string{"sleep", "1000"}, "env": []string{"PATH=/usr/bin:/bin"}, "cwd": "/", "user": map[string]int{"uid": 0, "gid": 0}},
		"root":       map[string]any{"path": r.root},
		"mounts":     []map[string]string{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":      map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"}}},
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600); err != nil {
		return err
	}
	if err := r.run("create", "-bundle", bundle, id); err != nil {
		return err
	}
	return r.run("start", id)
}

func (r *bare) close(b *testing.B) {
	// Only a mount of runsc's own; the folder is the benchmark's.
	_ = exec.Command("umount", "-l", filepath.Join(r.dir, "state", "null-netns")).Run()
}

var yes = sandbox.Command{Args: []string{"/bin/true"}}

func trueIn(b *testing.B, sb sandbox.Sandbox) func() error {
	ctx := ctxOf(b)
	return func() error {
		res, err := sandbox.Run(ctx, sb, yes, 100)
		if err == nil && res.Code != 0 {
			err = fmt.Errorf("exit %d", res.Code)
		}
		return err
	}
}

// From the request for a box to the end of its first command, beside runsc
// create, start and exec.
func BenchmarkBoot(b *testing.B) {
	e := enginetest.Start(b)
	r := newBare(b)
	defer r.close(b)
	var ours, runsc timing
	for b.Loop() {
		var sb sandbox.Sandbox
		ours = append(ours, timed(b, func() (err error) {
			if sb, err = e.Provider.Create(ctxOf(b), sandbox.Spec{Image: e.Image, Timeout: time.Minute}); err != nil {
				return err
			}
			return trueIn(b, sb)()
		}))
		if err := e.Provider.Kill(ctxOf(b), sb.ID()); err != nil {
			b.Fatal(err)
		}
		id := dreamcore.NewToken(20)
		runsc = append(runsc, timed(b, func() error {
			if err := r.boot(id); err != nil {
				return err
			}
			return r.run("exec", id, "/bin/true")
		}))
		if err := r.run("delete", "-force", id); err != nil {
			b.Fatal(err)
		}
	}
	report(b, ours, runsc, "runsc")
}

// One command in a live box, beside a fork and exec by a shell in the same box
// and beside runsc exec.
func BenchmarkCommand(b *testing.B) {
	e := enginetest.Start(b)
	sb := boot(b, e)
	r := newBare(b)
	defer r.close(b)
	id := dreamcore.NewToken(20)
	if err := r.boot(id); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := r.run("delete", "-force", id); err != nil {
			b.Error(err)
		}
	}()
	do := trueIn(b, sb)
	var ours, inside, runsc timing
	for b.Loop() {
		ours = append(ours, timed(b, do))
		if len(ours)%10 == 1 {
			const n = 50
			out := sh(b, sb, sandbox.User, fmt.Sprintf("s=$EPOCHREALTIME; for i in {1..%d}; do /bin/true; done; e=$EPOCHREALTIME; echo $(( (${e/./} - ${s/./}) ))", n))
			micros, err := strconv.Atoi(out)
			if err != nil {
				b.Fatal(err)
			}
			inside = append(inside, time.Duration(micros)*time.Microsecond/n)
			runsc = append(runsc, timed(b, func() error { return r.run("exec", id, "/bin/true") }))
		}
	}
	report(b, ours, inside, "forkexec")
	b.ReportMetric(ms(runsc.at(0.5)), "ms-runsc-exec")
}

// 1,000 files in one write, beside tar unpacking the same files in the same box.
func BenchmarkBulkWrite(b *testing.B) {
	e := enginetest.Start(b)
	sb := boot(b, e)
	var files []sandbox.File
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	for i := range 1000 {
		f := sandbox.File{Path: fmt.Sprintf("/workspace/project/%d/%d.txt", i%20, i), Data: []byte(strings.Repeat("0123456789abcdef", i%200))}
		files = append(files, f)
		if err := tw.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d/%d.txt", i%20, i), Mode: 0o644, Size: int64(len(f.Data))}); err != nil {
			b.Fatal(err)
		}
		if _, err := tw.Write(f.Data); err != nil {
			b.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		b.Fatal(err)
	}
	if err := sb.WriteFiles(ctxOf(b), []sandbox.File{{Path: "/tmp/a.tar", Data: archive.Bytes()}}); err != nil {
		b.Fatal(err)
	}
	var ours, untar timing
	for b.Loop() {
		ours = append(ours, timed(b, func() error { return sb.WriteFiles(ctxOf(b), files) }))
		out := sh(b, sb, sandbox.User, "rm -rf /workspace/project /workspace/untar; mkdir /workspace/untar; s=$EPOCHREALTIME; tar xf /tmp/a.tar -C /workspace/untar; e=$EPOCHREALTIME; echo $(( (${e/./} - ${s/./}) ))")
		micros, err := strconv.Atoi(out)
		if err != nil {
			b.Fatal(err)
		}
		untar = append(untar, time.Duration(micros)*time.Microsecond)
	}
	report(b, ours, untar, "tar")
	b.ReportMetric(1000/ours.at(0.5).Seconds(), "files/s")
}

// One file of 50 MB in and out.
func BenchmarkBigFile(b *testing.B) {
	e := enginetest.Start(b)
	sb := boot(b, e)
	data := bytes.Repeat([]byte("0123456789abcdef"), 50<<16)
	var in, out timing
	for b.Loop() {
		in = append(in, timed(b, func() error {
			return sb.WriteFiles(ctxOf(b), []sandbox.File{{Path: "/workspace/big", Data: data}})
		}))
		out = append(out, timed(b, func() error {
			got, err := sb.ReadFile(ctxOf(b), "/workspace/big", 100<<20)
			if err == nil && len(got) != len(data) {
				err = fmt.Errorf("%d bytes came back", len(got))
			}
			return err
		}))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(in.at(0.5)), "ms-write")
	b.ReportMetric(ms(out.at(0.5)), "ms-read")
}

// Kill until nothing of the box is left, beside runsc delete -force.
func BenchmarkKill(b *testing.B) {
	e := enginetest.Start(b)
	r := newBare(b)
	defer r.close(b)
	var ours, runsc timing
	for b.Loop() {
		sb := boot(b, e)
		ours = append(ours, timed(b, func() error { return e.Provider.Kill(ctxOf(b), sb.ID()) }))
		id := dreamcore.NewToken(20)
		if err := r.boot(id); err != nil {
			b.Fatal(err)
		}
		runsc = append(runsc, timed(b, func() error { return r.run("delete", "-force", id) }))
	}
	report(b, ours, runsc, "runsc")
}
