package engine

import (
	"strings"
	"testing"
)

func TestFace(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, good := range []networkBody{
		{}, {MaskRequestHost: text("")}, {MaskRequestHost: text("localhost:${PORT}")}, {MaskRequestHost: text("[::1]:${PORT}")}, {HTTPSPorts: []int{1, 443, 65535}},
	} {
		if _, err := good.face(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []networkBody{
		{MaskRequestHost: text("a b")}, {MaskRequestHost: text("a\r\nX: y")}, {MaskRequestHost: text("a/b")}, {MaskRequestHost: text("${HOST}")},
		{MaskRequestHost: text(strings.Repeat("x", 300))}, {HTTPSPorts: []int{0}}, {HTTPSPorts: []int{65536}}, {HTTPSPorts: []int{-1}}, {HTTPSPorts: []int{49983}}, {HTTPSPorts: make([]int, 1000)},
	} {
		if f, err := bad.face(); err == nil {
			t.Errorf("%+v: %+v", bad, f)
		}
	}
	f := face{Mask: "x.${PORT}.test:${PORT}", HTTPS: []int{443}}
	if got := f.host(80, "asked"); got != "x.80.test:80" {
		t.Errorf("the host is %q", got)
	}
	if got := (face{}).host(80, "asked"); got != "asked" {
		t.Errorf("without a mask the host is %q", got)
	}
	if f.scheme(443) != "https" || f.scheme(80) != "http" {
		t.Error("the schemes are wrong")
	}
}
