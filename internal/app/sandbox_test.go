package app

import "testing"

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
