package engine

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// A stream that breaks between two messages because its box is paused says so, and
// however the bytes come; any other ends as it ended.
func TestEnding(t *testing.T) {
	broke := errors.New("broke")
	message := func(flags byte, body string) []byte {
		return append([]byte{flags, 0, 0, 0, byte(len(body))}, body...)
	}
	one, empty, last := message(0, "one"), message(0, ""), message(flagEnd, "{}")
	for _, x := range []struct {
		name   string
		raw    []byte
		err    error
		paused bool
		adds   bool
	}{
		{"paused", one, broke, true, true},
		{"paused before anything", nil, broke, true, true},
		{"paused after nothing", empty, broke, true, true},
		{"paused in a head", one[:3], broke, true, false},
		{"paused in a message", one[:6], broke, true, false},
		{"killed", one, broke, false, false},
		{"over", last, broke, true, false},
		{"ended", one, io.EOF, true, false},
	} {
		for _, slow := range []bool{false, true} {
			var r io.Reader = io.MultiReader(bytes.NewReader(x.raw), iotest.ErrReader(x.err))
			if slow {
				r = iotest.OneByteReader(r)
			}
			s := &ending{ReadCloser: io.NopCloser(r), paused: func() bool { return x.paused }}
			got, err := io.ReadAll(s)
			want, wantErr := x.raw, x.err
			if x.adds {
				want, wantErr = append(bytes.Clone(x.raw), pausedEnd()...), nil
			}
			if errors.Is(wantErr, io.EOF) {
				wantErr = nil
			}
			if !bytes.Equal(got, want) || !errors.Is(err, wantErr) {
				t.Errorf("%s, byte by byte %v: %q, %v", x.name, slow, got, err)
			}
		}
	}
}

// FuzzEnding: what passes is never changed, and never more than one message added.
func FuzzEnding(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 'x'}, true)
	f.Add([]byte{2, 0, 0, 0, 0}, true)
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff}, false)
	f.Fuzz(func(t *testing.T, raw []byte, slow bool) {
		var r io.Reader = io.MultiReader(bytes.NewReader(raw), iotest.ErrReader(errors.New("broke")))
		if slow {
			r = iotest.OneByteReader(r)
		}
		got, _ := io.ReadAll(&ending{ReadCloser: io.NopCloser(r), paused: func() bool { return true }})
		if !bytes.Equal(got, raw) && !bytes.Equal(got, append(bytes.Clone(raw), pausedEnd()...)) {
			t.Errorf("%q became %q", raw, got)
		}
	})
}
