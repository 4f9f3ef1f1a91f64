package sandboxtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

func (s suite) files(t *testing.T) {
	ctx := ctxOf(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	files := []sandbox.File{
		{Path: "/tmp/f/deep/er/bytes", Data: bytes.Repeat(every, 1000)},
		{Path: "/tmp/f/run.sh", Data: []byte("#!/bin/sh\necho ran\n"), Mode: 0o755},
		{Path: "/tmp/f/empty"},
		{Path: "/tmp/f/ネコ \"quoted\" \\ name", Data: []byte("cat")},
		{Path: "/tmp/f-root/only", Data: []byte("root's"), Mode: 0o600, Owner: sandbox.Root},
	}
	if err := s.sb.WriteFiles(ctx, files); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		got, err := s.sb.ReadFile(ctx, f.Path, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, f.Data) {
			t.Errorf("%s: %d bytes came back, %d were written", f.Path, len(got), len(f.Data))
		}
	}
	if got := s.sh(t, "/tmp/f/run.sh; stat -c %U.%a /tmp/f/empty /tmp/f/deep"); got != "ran\nuser.644\nuser.755" {
		t.Errorf("got %q", got)
	}
	if got := s.sh(t, "stat -c %U.%a /tmp/f-root/only; cat /tmp/f-root/only 2>&1 >/dev/null | grep -c denied"); got != "root.600\n1" {
		t.Errorf("a file of root: %q", got)
	}
	if err := s.sb.WriteFiles(ctx, []sandbox.File{{Path: "/tmp/f/run.sh", Data: []byte("short")}}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.sb.ReadFile(ctx, "/tmp/f/run.sh", 100); err != nil || string(got) != "short" {
		t.Errorf("a file written twice holds %q (%v)", got, err)
	}
	shallow, err := s.sb.List(ctx, "/tmp/f", 1)
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.sb.List(ctx, "/tmp/f", 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(shallow) != 4 || len(all) != 6 {
		t.Errorf("the folder has %d entries and %d below it, want 4 and 6", len(shallow), len(all))
	}
	for _, e := range all {
		if e.Path == "/tmp/f/deep/er/bytes" && (e.Dir || e.SizeBytes != 256_000 || e.Modified.IsZero()) {
			t.Errorf("got %+v", e)
		}
	}
}

func (s suite) bulk(t *testing.T) {
	var files []sandbox.File
	for i := range 1000 {
		files = append(files, sandbox.File{Path: fmt.Sprintf("/tmp/bulk/%d/%d.txt", i%10, i), Data: []byte(strings.Repeat("x", i))})
	}
	if err := s.sb.WriteFiles(ctxOf(t), files); err != nil {
		t.Fatal(err)
	}
	if got := s.sh(t, "find /tmp/bulk -type f | wc -l; cat $(find /tmp/bulk -type f) | wc -c"); got != "1000\n499500" {
		t.Errorf("got %q", got)
	}
}

func (s suite) refusedFiles(t *testing.T) {
	ctx := ctxOf(t)
	s.sh(t, "mkdir -p /tmp/ref && head -c 1000 /dev/zero > /tmp/ref/kb && rm -f /tmp/ref/pipe && mkfifo /tmp/ref/pipe")
	_, err := s.sb.ReadFile(ctx, "/tmp/ref/kb", 999)
	code(t, err, dreamcore.Refused)
	if got, err := s.sb.ReadFile(ctx, "/tmp/ref/kb", 1000); err != nil || len(got) != 1000 {
		t.Errorf("a file of exactly the limit: %d bytes, %v", len(got), err)
	}
	_, err = s.sb.ReadFile(ctx, "/tmp/ref/none", 10)
	code(t, err, dreamcore.NotFound)
	_, err = s.sb.ReadFile(ctx, "/tmp/ref/pipe", 10)
	code(t, err, dreamcore.Invalid)
	_, err = s.sb.ReadFile(ctx, "/tmp/ref", 10)
	code(t, err, dreamcore.Invalid)
	_, err = s.sb.List(ctx, "/tmp/ref/none", 1)
	code(t, err, dreamcore.NotFound)
	_, err = s.sb.List(ctx, "/tmp/ref/kb", 1)
	code(t, err, dreamcore.Invalid)
	for _, p := range []string{"/tmp/ref/" + strings.Repeat("n", 5000), "/tmp/ref/nul\x00byte", "/tmp/ref/kb/below-a-file"} {
		code(t, s.sb.WriteFiles(ctx, []sandbox.File{{Path: p}}), dreamcore.Invalid)
	}
	code(t, s.sb.WriteFiles(ctx, []sandbox.File{{Path: "/etc/mine"}}), dreamcore.Refused)
}
