package keyproxy

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/redact"
	"dreamcore/internal/strictjson"
)

// readEvents reads a whole stream.
func readEvents(r io.Reader) (names, data []string, err error) {
	rd := &events{r: r}
	for {
		ev, err := rd.next()
		if errors.Is(err, io.EOF) {
			return names, data, nil
		}
		if err != nil {
			return names, data, err
		}
		names, data = append(names, string(ev.name)), append(data, string(ev.data))
	}
}

func TestEventForms(t *testing.T) {
	for in, want := range map[string]string{
		"data: a\n\ndata: b\n\n":                         "a|b",
		"data: a\r\n\r\ndata: b\r\n\r\n":                 "a|b",
		"event: x\ndata:a\n\n":                           "a",
		"data: a\ndata: b\n\n":                           "a\nb",
		": comment\n\ndata: a\n\n":                       "|a",
		"id: 1\nretry: 5\ndata: a\n\n":                   "a",
		"data: last without a blank line":                "last without a blank line",
		"data: a\n\n\n\ndata: b\n\n":                     "a||b",
		"":                                               "",
		"data: " + strings.Repeat("x", 100_000) + "\n\n": strings.Repeat("x", 100_000),
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in)), "halves": iotest.HalfReader(strings.NewReader(in))} {
			if name == "bytes" && len(in) > 10_000 {
				continue
			}
			_, data, err := readEvents(r)
			if got := strings.Join(data, "|"); err != nil || got != want {
				t.Errorf("%s %.80q: %.80q %v", name, in, got, err)
			}
		}
	}
	if _, _, err := readEvents(strings.NewReader("data: " + strings.Repeat("x", maxEventBytes+100_000))); !errors.Is(err, errEvent) {
		t.Errorf("an endless event: %v", err)
	}
	if _, _, err := readEvents(strings.NewReader(`data: {"a":`)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken last event: %v", err)
	}
}

// FuzzRelay sends any stream, cut anywhere, through reader and cleaner: however
// it is cut the same comes out, and never the key.
func FuzzRelay(f *testing.F) {
	for _, path := range modelPaths {
		f.Add([]byte(strings.Join(events3(path, "hello ", canary[:10], canary[10:], " s"), "")), uint64(1))
		for _, form := range echoes() {
			f.Add([]byte(strings.Join(events3(path, form), "")), uint64(2))
		}
	}
	f.Add([]byte(`data: {"choices":[{"index":0,"delta":{"content":"sk"}},{"index":1,"delta":{"content":"sk-"}}]}`+"\n\n"), uint64(3))
	f.Add([]byte(`data: {"type":"content_block_delta","index":0,"delta":{"text":"s","thinking":"s"}}`+"\n\ndata: \\u0073k\n\n"), uint64(3))
	secrets, err := redact.New(canary)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		for _, op := range operations() {
			if op.Kind != provider.Generate {
				continue
			}
			run := func(r io.Reader) ([]byte, error) {
				c := &call{up: &upstream{}}
				c.up.ring.Store(&ring{set: secrets})
				k := &cleaner{call: c, ch: &charge{meter: op.Meter(&strictjson.Value{})}, texts: map[string]*held{}}
				rd := &events{r: r}
				for {
					ev, err := rd.next()
					if err != nil {
						k.flush()
						return k.buf, err
					}
					k.take(ev)
				}
			}
			want, werr := run(bytes.NewReader(in))
			got, gerr := run(&cuts{in, rand.New(rand.NewPCG(seed, 1))})
			if werr.Error() != gerr.Error() || !bytes.Equal(want, got) {
				t.Fatalf("%s: cut: %q %v\nwhole: %q %v", op.Path, got, gerr, want, werr)
			}
			if bytes.Contains(want, []byte(canary)) {
				t.Fatalf("%s: the key came through: %q", op.Path, want)
			}
		}
	})
}

// cuts reads a text in pieces of any size.
type cuts struct {
	rest []byte
	rnd  *rand.Rand
}

func (c *cuts) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:1+c.rnd.IntN(min(len(c.rest), 50))])
	c.rest = c.rest[n:]
	return n, nil
}
