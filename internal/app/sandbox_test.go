package app

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/sandbox"
	"dreamcore/internal/text"
)

func TestReadPlace(t *testing.T) {
	for s, want := range map[string]place{
		"abcd1234:/workspace": {"abcd1234", "/workspace"}, "abcd1234:": {"abcd1234", ""}, "./abcd1234:/x": {"", "./abcd1234:/x"},
		"/a:b": {"", "/a:b"}, "C:x": {"", "C:x"}, "plain": {"", "plain"},
	} {
		if got := readPlace(s); got != want {
			t.Errorf("%q is %+v", s, got)
		}
	}
}

// What tar in the sandbox says is understood where it matters, and never lost.
func TestHowTarEnded(t *testing.T) {
	for _, lang := range dreamcore.Langs {
		full, _, _ := strings.Cut(text.T(lang, "sandbox_cmd.disk_full"), "{")
		failed, _, _ := strings.Cut(text.T(lang, "sandbox_cmd.tar_failed"), "{")
		for _, c := range []struct {
			code         int
			said         string
			fails        bool
			says, lacked string // lacked: "" when all was copied
		}{
			{0, "", false, "", ""},
			{0, "tar: x: time stamp 2030-01-01 is 9 s in the future", false, "in the future", ""},
			{0, "tar: ./s: socket ignored", false, "socket ignored", "yes"},
			{1, "tar: x: file changed as we read it", false, "file changed", "yes"},
			{2, "tar: big: Wrote only 4096 of 10240 bytes\ntar: Exiting with failure status", true, full, ""},
			{2, "tar: a: Cannot mkdir: No space left on device", true, full, ""},
			{2, "tar: nothing: Cannot stat: No such file or directory", true, failed, ""},
			{137, "", true, failed, ""},
			{-1, "", true, failed, ""},
		} {
			var out bytes.Buffer
			k := &copying{h: &hand{t: Terminal{Err: &out, Lang: lang}}}
			err := k.tarEnded(sandbox.Exit{Code: c.code}, nil, c.said)
			if err != nil {
				out.WriteString(err.Error())
			}
			if (err != nil) != c.fails || !strings.Contains(out.String(), c.says) || k.lacks != (c.lacked != "") || c.says == "" && out.Len() > 0 {
				t.Errorf("%s %d %q: %v, lacks %v, %q", lang, c.code, c.said, err, k.lacks, out.String())
			}
		}
	}
	lost := errors.New("lost")
	if err := (&copying{h: &hand{}}).tarEnded(sandbox.Exit{}, lost, ""); !errors.Is(err, lost) {
		t.Error(err)
	}
}
