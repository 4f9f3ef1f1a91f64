package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dreamcore"
	"dreamcore/internal/probe"
	"dreamcore/internal/redact"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/tree"
	"dreamcore/internal/workspace"
)

// places are where a sandbox writes; the rest of its files is the image, which
// is the same for all and older than any secret.
var places = []string{"/etc", "/home", "/root", "/run", "/tmp", "/var", "/workspace", "/opt", "/srv", "/mnt", "/usr/local", "/dev/shm", "/proc"}

// secrets looks for what must not be in the sandbox: S05 and S06.
func (f *field) secrets(ctx context.Context) error {
	// A process that shows what every process of the user was given.
	p, err := f.a.Start(ctx, sandbox.Command{Args: []string{"sleep", "600"}, Env: map[string]string{"PLANTED": "planted-" + f.secretB[:12]}})
	if err != nil {
		return fmt.Errorf("plant an environment: %w", err)
	}
	go func() {
		for range p.Events() { // until its sandbox ends
		}
	}()
	needles := map[string]string{"the provider's key": f.Upstream.Key, "the service's environment": f.Planted, "the other job's file": f.secretB, "the other job's grant": f.tokens[1]}
	var attempts []probe.Attempt
	for name, secret := range needles {
		for _, p := range places {
			attempts = append(attempts, probe.Attempt{ID: name + " in " + p, Kind: probe.Search, Target: p, Data: probe.Mask([]byte(secret))})
		}
	}
	got, err := f.probe(ctx, f.a, sandbox.Root, attempts)
	if err != nil {
		return err
	}
	ts := tries(attempts, got)
	// What processes show is shown to their own user: root has no power over them.
	var shown []probe.Attempt
	for name, secret := range needles {
		shown = append(shown, probe.Attempt{ID: name + " in the user's /proc", Kind: probe.Search, Target: "/proc", Data: probe.Mask([]byte(secret))})
	}
	if got, err = f.probe(ctx, f.a, sandbox.User, shown); err != nil {
		return err
	}
	ts = append(ts, tries(shown, got)...)
	// The twins: what is there is found, in a file and in a process.
	own := []probe.Attempt{
		{ID: "file", Kind: probe.Search, Target: "/home", Data: probe.Mask([]byte(f.tokens[0]))},
		{ID: "environment", Kind: probe.Search, Target: "/proc", Data: probe.Mask([]byte("planted-" + f.secretB[:12]))},
	}
	found, err := f.probe(ctx, f.a, sandbox.User, own)
	if err != nil {
		return err
	}
	for _, o := range own {
		ts = append(ts, try{"the search finds what is there: " + o.ID, found[o.ID].Reached, false, found[o.ID].Says})
	}
	f.judge("S05", "nothing_inside", ts...)

	env, err := f.probe(ctx, f.a, sandbox.User, []probe.Attempt{{ID: "env", Kind: probe.Environ}})
	if err != nil {
		return err
	}
	all := string(env["env"].Answer)
	ts = []try{{"the service's environment", strings.Contains(all, "PATH=") && f.Planted != "", strings.Contains(all, f.PlantedName) || strings.Contains(all, f.Planted), all}}
	odd := []string{"-rf", "--", "a\nb", "$(touch /tmp/made)", "; touch /tmp/made #", "`touch /tmp/made`", "", "'", "\x01"}
	res, err := sandbox.Run(ctx, f.a, sandbox.Command{Args: append([]string{workspace.Tools + "/toolkit", "probe", "args"}, odd...)}, 1<<16)
	if err != nil {
		return fmt.Errorf("run with odd arguments: %w", err)
	}
	var back []string
	_ = json.Unmarshal(res.Stdout, &back) // what is no list differs
	_, made := f.a.ReadFile(ctx, "/tmp/made", 10)
	ts = append(ts, try{"odd arguments", res.Code == 0, !slices.Equal(back, odd) || dreamcore.CodeOf(made) != dreamcore.NotFound, fmt.Sprintf("%q", back)})
	if _, err := sandbox.Run(ctx, f.a, sandbox.Command{Args: []string{"sh", "-c", "$(touch /tmp/made)"}}, 100); err != nil {
		return fmt.Errorf("run a shell: %w", err)
	}
	_, made = f.a.ReadFile(ctx, "/tmp/made", 10)
	ts = append(ts, try{"a shell would do it", made == nil, false, fmt.Sprint(made)})
	f.judge("S06", "argv", ts...)
	return nil
}

// trees puts hostile folders where the game is collected from.
func (f *field) trees(ctx context.Context) error {
	stage := func(user, script string) error {
		res, err := sandbox.Run(ctx, f.a, sandbox.Command{Args: []string{"sh", "-c", "rm -rf " + workspace.Project + "/* && mkdir -p " + workspace.Project + " && cd " + workspace.Project + " && echo ok > index.html && chown -R user . 2>/dev/null; " + script}, User: user, Dir: "/"}, 4096)
		if err != nil {
			return fmt.Errorf("stage a folder: %w", err)
		}
		if res.Code != 0 {
			return fmt.Errorf("stage a folder: %q ended with %d: %s", script, res.Code, res.Stderr)
		}
		return nil
	}
	twin := func() (bool, string) {
		if err := stage(sandbox.Root, "true"); err != nil {
			return false, err.Error()
		}
		t, err := f.Collect(ctx, f.a)
		return err == nil && len(t.Files) == 1, fmt.Sprint(err)
	}
	limits := tree.DefaultLimits()
	for _, l := range []struct {
		line    string
		scripts []string
		want    []tree.Reason
	}{
		{"C02", []string{"ln -s /etc/passwd a", "ln -s index.html a", "ln -s nowhere a", "ln -s a a", "ln -s /etc d"}, []tree.Reason{tree.Link}},
		{"C03", []string{"ln index.html b"}, []tree.Reason{tree.Link}},
		{"C04", []string{"mkfifo p", "perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local=>\"s\",Listen=>1) or die'; test -S s", "mknod n c 1 3 || mkfifo n"}, []tree.Reason{tree.Special, tree.Broken}},
		{"C05", []string{"truncate -s 1T big"}, []tree.Reason{tree.FileTooLarge, tree.TreeTooLarge, tree.Sparse}},
		{"C06", []string{
			fmt.Sprintf("i=0; while [ $i -le %d ]; do echo > f$i; i=$((i+1)); done", limits.Files), fmt.Sprintf("head -c %d /dev/zero > big", limits.FileBytes+1),
			"mkdir -p " + strings.Repeat("d/", limits.Depth+2) + " && echo > " + strings.Repeat("d/", limits.Depth+2) + "f", "echo > " + strings.Repeat("n", limits.PathBytes+20),
		}, []tree.Reason{tree.TooManyFiles, tree.FileTooLarge, tree.TooDeep, tree.PathTooLong, tree.TreeTooLarge}},
		// The reader in the sandbox lies: root has put another tar there.
		{"C01", []string{
			liar("../escaped"), liar("/etc/escaped"), liar("a/../../b"),
		}, []tree.Reason{tree.Escape, tree.BadName}},
	} {
		good, says := twin()
		var ts []try
		for _, s := range l.scripts {
			t := try{name: s, control: good, says: says}
			if err := stage(sandbox.Root, s); err != nil {
				t.control, t.says = false, err.Error()
			} else {
				got, err := f.Collect(ctx, f.a)
				var refused *tree.Refusal
				if !errors.As(err, &refused) || !slices.Contains(l.want, refused.Reason) {
					t.reached, t.says = true, fmt.Sprintf("collected: %v, %v", got != nil, err)
				}
			}
			ts = append(ts, t)
		}
		f.judge(l.line, "tree", ts...)
	}
	if err := stage(sandbox.Root, "rm -f /usr/sbin/tar"); err != nil {
		return err
	}
	return f.mutator(ctx, twin)
}

// liar makes a tar that prints an archive with one file of a name.
func liar(name string) string {
	return `python3 -c "
import tarfile,io
t=tarfile.open('/tmp/evil.tar','w'); i=tarfile.TarInfo('` + name + `'); i.size=1; t.addfile(i, io.BytesIO(b'x')); t.close()
" && printf '#!/bin/sh\nexec cat /tmp/evil.tar\n' > /usr/sbin/tar && chmod 755 /usr/sbin/tar`
}

// mutator is C10: what swaps files under the reader is dead before it reads.
func (f *field) mutator(ctx context.Context, twin func() (bool, string)) error {
	good, says := twin()
	p, err := f.a.Start(ctx, sandbox.Command{Args: []string{"sh", "-c", `cd ` + workspace.Project + ` && trap "" TERM HUP INT
		(setsid sh -c 'trap "" TERM; while :; do mkdir -p d; echo x > d/f; rm -rf d; ln -s /etc d; rm -f d; done' >/dev/null 2>&1 &)
		echo up; while :; do mv index.html i; mv i index.html; done`}})
	if err != nil {
		return fmt.Errorf("start a mutator: %w", err)
	}
	select {
	case <-p.Events(): // it is up
	case <-ctx.Done():
		return ctx.Err()
	}
	go func() {
		for range p.Events() { // until it is killed
		}
	}()
	busy := probe.Attempt{ID: "processes", Kind: probe.Count, Target: "1000"}
	before, err := f.probe(ctx, f.a, sandbox.Root, []probe.Attempt{busy})
	if err != nil {
		return err
	}
	_, cerr := f.Collect(ctx, f.a)
	var refused *tree.Refusal
	if cerr != nil && !errors.As(cerr, &refused) {
		return fmt.Errorf("collect: %w", cerr)
	}
	after, err := f.probe(ctx, f.a, sandbox.Root, []probe.Attempt{busy})
	if err != nil {
		return err
	}
	f.judge("C10", "quiesce", try{"swapped while it is read", good && before[busy.ID].Got > 1 && after[busy.ID].Control, after[busy.ID].Got > 0, says + after[busy.ID].Says})
	return nil
}

// appetite is S01: one sandbox takes all that it can get.
func (f *field) appetite(ctx context.Context) error {
	most := map[probe.Kind]probe.Attempt{
		probe.Files: {ID: "files", Kind: probe.Files, Most: 1 << 20},
		probe.Fork:  {ID: "processes", Kind: probe.Fork, Most: int64(f.Processes) + 64},
		probe.Disk:  {ID: "disk", Kind: probe.Disk, Target: "/workspace/big", Most: f.DiskBytes + 64<<20},
	}
	fine := func() try {
		res, err := sandbox.Run(ctx, f.b, sandbox.Command{Args: []string{"echo", "fine"}}, 100)
		return try{"the neighbour goes on", true, err != nil || string(res.Stdout) != "fine\n", fmt.Sprint(err)}
	}
	var ts []try
	for _, k := range []probe.Kind{probe.Files, probe.Fork, probe.Disk} {
		a := []probe.Attempt{most[k]}
		got, err := f.probe(ctx, f.a, sandbox.User, a)
		if dreamcore.CodeOf(err) == dreamcore.Lost {
			ts = append(ts, try{name: a[0].ID + ": only this sandbox ended", control: true}, fine())
			err = f.again(ctx)
		} else {
			ts = append(append(ts, tries(a, got)...), fine())
		}
		if err != nil {
			return err
		}
	}
	if f.Limited {
		res, err := f.probe(ctx, f.a, sandbox.User, []probe.Attempt{{ID: "memory", Kind: probe.Memory, Most: f.MemoryBytes + 256<<20}})
		// It is ended before it can say anything, or the whole sandbox is.
		if err != nil && dreamcore.CodeOf(err) != dreamcore.Lost {
			return err
		}
		ts = append(ts, try{"memory", true, res["memory"].Reached, "it got more than the limit"}, fine())
		if err != nil {
			if err := f.again(ctx); err != nil {
				return err
			}
		}
	} else {
		ts = append(ts, try{name: "memory", says: "this machine enforces no limits (allow_no_limits)"})
	}
	f.judge("S01", "limits", ts...)
	return nil
}

// again boots the attacker's sandbox anew where its appetite was its end.
func (f *field) again(ctx context.Context) (err error) {
	if _, err := f.Proxy.Close(ctx, f.jobs[0].ID, f.jobs[0].Attempt); err != nil {
		return fmt.Errorf("close the job: %w", err)
	}
	f.a, err = f.boot(ctx, 0)
	return err
}

// end is S02: the attacker's sandbox is killed, with what does not want to go.
func (f *field) end(ctx context.Context) error {
	const stubborn = `trap "" TERM HUP INT; (setsid sh -c 'trap "" TERM; exec sleep 8001' &); mkfifo /tmp/fifo; echo up; while :; do sleep 1; done`
	p, err := f.a.Start(ctx, sandbox.Command{Args: []string{"sh", "-c", stubborn}})
	switch {
	case err == nil:
		select {
		case <-p.Events():
		case <-ctx.Done():
			return ctx.Err()
		}
		go func() {
			for range p.Events() { // until its sandbox ends
			}
		}()
	case dreamcore.CodeOf(err) != dreamcore.Lost: // the memory's end was its own
		return fmt.Errorf("start what does not want to go: %w", err)
	}
	id := string(f.a.ID())
	mine := func() (n int, found string, err error) {
		if f.Left == nil {
			all, err := f.Sandboxes.List(ctx, map[string]string{"role": "attack", "job": "a"})
			return len(all), "in the engine's list", err
		}
		left, err := f.Left()
		for _, l := range left {
			if strings.Contains(l, id) {
				n++
				found += l[:min(len(l), 100)] + "; "
			}
		}
		return n, found, err
	}
	before, _, err := mine()
	if err != nil {
		return fmt.Errorf("look for what a sandbox has: %w", err)
	}
	if err := f.Sandboxes.Kill(ctx, f.a.ID()); err != nil {
		return fmt.Errorf("kill the sandbox: %w", err)
	}
	f.a = nil
	after, found, err := mine()
	if err != nil {
		return fmt.Errorf("look for what is left: %w", err)
	}
	f.judge("S02", "whole_end", try{"what does not want to go", before > 0, after > 0, found})
	return nil
}

// written searches all that the service wrote: L02, and L01 and L03 in the audit.
func (f *field) written(context.Context) error {
	if f.Written == nil {
		return nil
	}
	files, err := f.Written()
	if err != nil {
		return fmt.Errorf("read what was written: %w", err)
	}
	set, err := redact.New(f.Upstream.Key)
	if err != nil {
		return err
	}
	var ts []try
	records, size := 0, 0
	for name, data := range files {
		size += len(data)
		ts = append(ts, try{name, len(data) > 0, !set.Clean(string(data)), "it holds the provider's key"},
			try{name, true, bytes.Contains(data, []byte(f.tokens[0])) || bytes.Contains(data, []byte(f.tokens[1])), "it holds a grant"})
		if strings.Contains(name, "audit") {
			records += bytes.Count(data, []byte("\n"))
		}
	}
	f.judge("L02", "redaction", append(ts, try{"there is something to search", size > 1000 && f.Upstream.keyed, false, fmt.Sprint(size)})...)
	f.judge("L03", "audit", try{"one record each", f.requests > 0, records < f.requests, fmt.Sprintf("%d records of %d requests", records, f.requests)})
	return nil
}
