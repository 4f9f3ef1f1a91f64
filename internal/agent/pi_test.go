package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// The lines in testdata are shortened from what pi 1.6.0 printed in its JSON mode.
func parse(t *testing.T, name string) ([]Event, error) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	p := Pi{}.NewParser()
	var events []Event
	var lines lineBuffer
	// Odd pieces: the stream does not come in lines.
	for len(data) > 0 {
		n := min(37, len(data))
		lines.write(data[:n], func(line []byte) { events = append(events, p.Line(line)...) })
		data = data[n:]
	}
	return events, p.Err()
}

func TestPiBuildTurn(t *testing.T) {
	events, err := parse(t, "pi-build.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want := []Event{
		{Say, "", "Step 1 of build."},
		{Tool, "write", "/workspace/project/index.html"},
		{Tool, "bash", "check /workspace/project"},
		{Say, "", "Done."},
	}
	if d := cmp.Diff(want, events); d != "" {
		t.Error(d)
	}
}

func TestPiFailureIsSeenThoughItExitsWithZero(t *testing.T) {
	_, err := parse(t, "pi-refused.jsonl")
	if dreamcore.CodeOf(err) != dreamcore.Unavailable || !strings.Contains(err.Error(), "budget_exhausted") {
		t.Errorf("got %v", err)
	}
}

func TestPiCutOffIsAFailure(t *testing.T) {
	p := Pi{}.NewParser()
	p.Line([]byte(`{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"stop"}}`))
	if p.Err() == nil {
		t.Error("a turn that never settled counts as done")
	}
}

func TestPiConfigurationNamesTheProxyAndReadsTheGrantFromItsFile(t *testing.T) {
	for api, base := range map[API]string{Anthropic: "http://p/anthropic", Chat: "http://p/openai/v1", Responses: "http://p/openai/v1"} {
		files, err := Pi{}.Files(Session{API: api, Model: "m", ProxyURL: "http://p", GrantFile: "/g"})
		if err != nil {
			t.Fatal(err)
		}
		got := string(files[0].Data)
		if !strings.Contains(got, `"`+base+`"`) || !strings.Contains(got, `"!cat /g"`) || files[0].Owner != sandbox.User {
			t.Errorf("%s: %s", api, got)
		}
	}
	if _, err := (Pi{}).Files(Session{API: "telepathy"}); dreamcore.CodeOf(err) != dreamcore.Invalid {
		t.Errorf("got %v", err)
	}
}

func TestPromptStaysOneArgument(t *testing.T) {
	prompt := "[dreamcore turn: build]\n--help\n$(id)\n'\""
	cmd := Pi{}.Command(Session{ID: "j", Model: "m"}, prompt)
	if cmd.Args[len(cmd.Args)-1] != prompt || cmd.User != sandbox.User || cmd.Stdin {
		t.Errorf("%+v", cmd)
	}
}

func TestOverlongLineIsSkipped(t *testing.T) {
	var l lineBuffer
	var got []string
	line := func(b []byte) { got = append(got, string(b)) }
	l.write([]byte("a\n"), line)
	for range 5 {
		l.write(make([]byte, 4<<20), line)
	}
	l.write([]byte("rest\nb\n"), line)
	if d := cmp.Diff([]string{"a", "b"}, got); d != "" {
		t.Error(d)
	}
}

func FuzzPiLine(f *testing.F) {
	f.Add([]byte(`{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"x"}]}}`))
	f.Add([]byte(`{"type":"tool_execution_start","toolName":"bash","args":{"command":"ls"}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, e := range (&piParser{}).Line(line) {
			if len(e.Text) > 2010 || len(e.Name) > 50 {
				t.Errorf("an event of %d bytes", len(e.Text))
			}
		}
	})
}
