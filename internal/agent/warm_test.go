package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"dreamcore/internal/sandbox"
)

// talker is a process that has said all that it will say.
type talker struct{ events chan sandbox.Output }

func says(out ...sandbox.Output) talker {
	t := talker{make(chan sandbox.Output, len(out))}
	for _, o := range out {
		t.events <- o
	}
	close(t.events)
	return t
}

func (t talker) PID() int                                   { return 8 }
func (t talker) Events() <-chan sandbox.Output              { return t.events }
func (t talker) Signal(context.Context, string) error       { return nil }
func (t talker) Wait(context.Context) (sandbox.Exit, error) { return sandbox.Exit{}, nil }
func (t talker) Send(context.Context, []byte) error         { return nil }

// Whatever a process says, in whatever pieces: its orders are accepted when a
// whole line says so with their token and nothing comes after it.
func FuzzAccepted(f *testing.F) {
	f.Add([]byte("ready\n{\"accepted\":\"t\"}\n"), 3)
	f.Add([]byte("{\"accepted\":\"t\"}\nmore"), 100)
	f.Add([]byte("{\"accepted\":\"other\"}\n{\"accepted\":\"t\"}\n"), 1)
	f.Add([]byte("{\"accepted\":\"t\"}"), 2)
	f.Add([]byte("\n\n\x00{\"ACCEPTED\":\"t\"}\n"), 7)
	f.Add([]byte("{\"accepted\":\"t\",\"accepted\":\"u\"}\n"), 9)
	f.Fuzz(func(t *testing.T, said []byte, size int) {
		size = min(max(size, 1), 1<<16)
		var out []sandbox.Output
		for at := 0; at < len(said); at += size {
			out = append(out, sandbox.Output{Data: said[at:min(at+size, len(said))]})
		}
		err := accepted(t.Context(), says(out...), "t")
		if err != nil {
			return
		}
		found := false
		for line := range bytes.Lines(said) {
			var answer struct{ Accepted string }
			if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &answer) == nil && answer.Accepted == "t" {
				found = true
			}
		}
		if !found {
			t.Errorf("%q was taken for an answer", said)
		}
	})
}

func TestAccepted(t *testing.T) {
	yes := `{"accepted":"t"}` + "\n"
	for said, want := range map[string]string{
		yes: "", "ready\nnoise" + "\n" + yes: "",
		"": "it has ended", "{}\n": "it has ended", `{"accepted":"t"}`: "it has ended", `{"accepted":"u"}` + "\n": "it has ended",
		yes + "{": "did not wait", strings.Repeat("x", maxChatterBytes) + "\n" + yes: "talks of something else",
	} {
		err := accepted(t.Context(), says(sandbox.Output{Stderr: true, Data: []byte(yes)}, sandbox.Output{Data: []byte(said)}), "t")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v", said, err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := accepted(gone, talker{make(chan sandbox.Output)}, "t"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
}
