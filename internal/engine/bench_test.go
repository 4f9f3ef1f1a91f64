package engine_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

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
// create, start and exec of the same box, of one without limits and most mounts,
// and beside what isolates less.
func BenchmarkBoot(b *testing.B) {
	e := enginetest.Start(b)
	runsc, least, runc, bwrap, process := newEqual(b, e), newBare(b), newRunc(b), newBwrap(b), plain("/bin/true")
	defer runsc.close()
	defer least.close()
	var ours, floor, leastFloor, byRunc, byBwrap, alone timing
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
		floor = append(floor, timed(b, runsc.first(id)))
		if err := runsc.remove(id); err != nil {
			b.Fatal(err)
		}
		leastFloor = append(leastFloor, timed(b, least.first(id)))
		if err := least.remove(id); err != nil {
			b.Fatal(err)
		}
		if runc != nil {
			byRunc = append(byRunc, timed(b, runc.first(id)))
			if err := runc.remove(id); err != nil {
				b.Fatal(err)
			}
		}
		if bwrap != nil {
			byBwrap = append(byBwrap, timed(b, bwrap))
		}
		alone = append(alone, timed(b, process))
	}
	report(b, ours, floor, "runsc")
	for _, also := range []struct {
		name string
		took timing
	}{{"also runsc, no limits, least mounts", leastFloor}, {"also runc create, start, exec", byRunc}, {"also bwrap", byBwrap}, {"also a plain process", alone}} {
		if len(also.took) > 0 {
			note(row{"boot to first command", also.name, ours, also.took})
		}
	}
}

// inside measures a script in a box by the box's own clock.
func inside(b *testing.B, sb sandbox.Sandbox, before, script string) time.Duration {
	b.Helper()
	out := sh(b, sb, sandbox.User, before+"\ns=$EPOCHREALTIME; "+script+"; e=$EPOCHREALTIME; echo $(( (${e/./} - ${s/./}) ))")
	micros, err := strconv.Atoi(out)
	if err != nil {
		b.Fatal(out)
	}
	return time.Duration(micros) * time.Microsecond
}

// One command in a live box, beside a fork and exec by a shell in the same box
// and beside runsc exec.
func BenchmarkCommand(b *testing.B) {
	e := enginetest.Start(b)
	sb := boot(b, e)
	runsc := newBare(b)
	defer runsc.close()
	id := dreamcore.NewToken(20)
	if err := runsc.boot(id); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := runsc.remove(id); err != nil {
			b.Error(err)
		}
	}()
	do := trueIn(b, sb)
	var ours, forked, execed timing
	for b.Loop() {
		const n = 10
		var all time.Duration
		for range n {
			all += timed(b, do)
		}
		ours = append(ours, all/n)
		forked = append(forked, inside(b, sb, "", fmt.Sprintf("for i in {1..%d}; do /bin/true; done", n))/n)
		execed = append(execed, timed(b, func() error { return runsc.run("exec", id, "/bin/true") }))
	}
	report(b, ours, forked, "forkexec")
	note(row{"a command", "also runsc exec", ours, execed})
}

// thousand are 1,000 small files and the same as an archive.
func thousand(b *testing.B) ([]sandbox.File, []byte) {
	b.Helper()
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
	return files, archive.Bytes()
}

// copyOut takes a folder out by that tar.
func copyOut(b *testing.B, sb sandbox.Sandbox, tar []string, dir string) error {
	b.Helper()
	n := volume(0)
	exit, err := sandbox.Copy(ctxOf(b), sb, sandbox.Command{Args: append(tar[:len(tar):len(tar)], "-C", dir, ".")}, &n, 200<<20)
	if err == nil && (exit.Code != 0 || n < 1<<20) {
		err = fmt.Errorf("exit %d, %d bytes came out", exit.Code, n)
	}
	return err
}

// How collecting has tar write, and as tar does by itself.
var (
	wideTar  = []string{"tar", "--blocking-factor=256", "-c", "-f", "-"}
	usualTar = []string{"tar", "-c", "-f", "-"}
)

type volume int64

func (c *volume) Write(p []byte) (int, error) { *c += volume(len(p)); return len(p), nil }

// 1,000 files in one write and out again, beside tar doing the same with the
// same files in the same box.
func BenchmarkBulk(b *testing.B) {
	e := enginetest.Start(b)
	sb := boot(b, e)
	files, archive := thousand(b)
	if err := sb.WriteFiles(ctxOf(b), []sandbox.File{{Path: "/tmp/a.tar", Data: archive}}); err != nil {
		b.Fatal(err)
	}
	const project = "/workspace/project"
	var in, untar, out, pack, usualOut, usualPack timing
	for b.Loop() {
		in = append(in, timed(b, func() error { return sb.WriteFiles(ctxOf(b), files) }))
		// Through a pipe: tar does not read files that it writes to nowhere.
		packed := func(tar []string) time.Duration {
			return inside(b, sb, "", strings.Join(tar, " ")+" -C "+project+" . | cat >/dev/null")
		}
		out = append(out, timed(b, func() error { return copyOut(b, sb, wideTar, project) }))
		pack = append(pack, packed(wideTar))
		usualOut = append(usualOut, timed(b, func() error { return copyOut(b, sb, usualTar, project) }))
		usualPack = append(usualPack, packed(usualTar))
		untar = append(untar, inside(b, sb, "rm -rf /workspace/project /workspace/untar; mkdir /workspace/untar", "tar xf /tmp/a.tar -C /workspace/untar"))
	}
	report(b, in, untar, "tar")
	note(row{"1,000 files out", "the same tar in the same box", out, pack})
	note(row{"1,000 files out", "also tar as it is by itself", out, usualPack})
	note(row{"1,000 files out, by tar as it is", "the same tar in the same box", usualOut, usualPack})
	b.ReportMetric(1000/in.at(0.5).Seconds(), "files/s")
}

// One file of 50 MB in and out, beside tar with the same file in the same box.
func BenchmarkBigFile(b *testing.B) {
	e := enginetest.Start(b)
	sb := boot(b, e)
	data := bytes.Repeat([]byte("0123456789abcdef"), 50<<16)
	var in, untar, out, pack timing
	for b.Loop() {
		in = append(in, timed(b, func() error {
			return sb.WriteFiles(ctxOf(b), []sandbox.File{{Path: "/workspace/big/file", Data: data}})
		}))
		out = append(out, timed(b, func() error {
			got, err := sb.ReadFile(ctxOf(b), "/workspace/big/file", 100<<20)
			if err == nil && len(got) != len(data) {
				err = fmt.Errorf("%d bytes came back", len(got))
			}
			return err
		}))
		pack = append(pack, inside(b, sb, "", "tar -c -f - -C /workspace/big . | cat >/dev/null"))
		untar = append(untar, inside(b, sb, "tar -c -f /tmp/b.tar -C /workspace/big .; rm -rf /workspace/big; mkdir /workspace/big", "tar xf /tmp/b.tar -C /workspace/big"))
	}
	report(b, in, untar, "tar")
	note(row{"50 MB out", "tar in the same box", out, pack})
}

// Kill until nothing of the box is left, beside runsc delete -force.
func BenchmarkKill(b *testing.B) {
	e := enginetest.Start(b)
	runsc := newBare(b)
	defer runsc.close()
	var ours, floor timing
	for b.Loop() {
		sb := boot(b, e)
		ours = append(ours, timed(b, func() error { return e.Provider.Kill(ctxOf(b), sb.ID()) }))
		id := dreamcore.NewToken(20)
		if err := runsc.boot(id); err != nil {
			b.Fatal(err)
		}
		floor = append(floor, timed(b, func() error { return runsc.remove(id) }))
	}
	report(b, ours, floor, "runsc")
}

// Many boxes asked for at once, each until its first command has ended, beside
// as many bare runsc at once.
func BenchmarkManyAtOnce(b *testing.B) {
	for _, n := range []int{10, 50} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { manyAtOnce(b, n) })
	}
}

func manyAtOnce(b *testing.B, n int) {
	const rounds = 3 // however many are asked for: each takes seconds
	e := enginetest.Start(b)
	runsc := newBare(b)
	defer runsc.close()
	var ours, floor timing
	for b.Loop() {
		if len(ours) == rounds {
			continue
		}
		boxes := make([]sandbox.Sandbox, n)
		ours = append(ours, timed(b, func() error {
			return all(n, func(ctx context.Context, i int) (err error) {
				if boxes[i], err = e.Provider.Create(ctx, sandbox.Spec{Image: e.Image, Timeout: 10 * time.Minute}); err != nil {
					return err
				}
				_, err = sandbox.Run(ctx, boxes[i], yes, 10)
				return err
			})
		}))
		if err := all(n, func(ctx context.Context, i int) error { return e.Provider.Kill(ctx, boxes[i].ID()) }); err != nil {
			b.Fatal(err)
		}
		ids := make([]string, n)
		for i := range ids {
			ids[i] = dreamcore.NewToken(20)
		}
		floor = append(floor, timed(b, func() error {
			return all(n, func(_ context.Context, i int) error { return runsc.first(ids[i])() })
		}))
		if err := all(n, func(_ context.Context, i int) error { return runsc.remove(ids[i]) }); err != nil {
			b.Fatal(err)
		}
	}
	report(b, ours, floor, "runsc")
}

// all does n things at once and returns the first error.
func all(n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	errs := make(chan error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() { defer wg.Done(); errs <- do(ctx, i) }()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
