package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// envelope is one message of a stream.
func envelope(flags byte, message any) []byte {
	data, err := json.Marshal(message)
	if err != nil {
		panic(err) // of a literal
	}
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(data))), data...)
}

func bash(script string) map[string]any {
	return map[string]any{"process": map[string]any{"cmd": "bash", "args": []string{"-c", script}}}
}

// open makes a call that streams its answer.
func (c client) open(ctx context.Context, id, token, call string, body []byte) *http.Response {
	c.tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.e.URL+call, bytes.NewReader(body))
	if err != nil {
		c.tb.Fatal(err)
	}
	for k, v := range map[string]string{"E2b-Sandbox-Id": id, "X-Access-Token": token, "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"} {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(func() { res.Body.Close() })
	return res
}

// event reads one message of a stream.
func event(tb testing.TB, r io.Reader) (flags byte, text string) {
	tb.Helper()
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		tb.Fatal(err)
	}
	data := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(r, data); err != nil {
		tb.Fatal(err)
	}
	return head[0], string(data)
}

// Messages that are too long, cut off or nonsense are refused, whatever they
// claim, and the box goes on.
func TestBadMessages(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	id, token := c.create("/v2/sandboxes", `{"templateID":"base"}`)
	whole := envelope(0, bash("echo here"))
	for name, body := range map[string][]byte{
		"a length without end":   {0, 0xff, 0xff, 0xff, 0xff},
		"longer than it says":    append(bytes.Clone(whole), "more"...),
		"shorter than it says":   whole[:len(whole)-3],
		"half a header":          whole[:3],
		"nothing":                nil,
		"packed and not":         append([]byte{1}, whole[1:]...),
		"unknown flags":          append([]byte{0x80}, whole[1:]...),
		"not JSON":               append([]byte{0, 0, 0, 0, 3}, "\xff\xfe\x00"...),
		"deep JSON":              append(binary.BigEndian.AppendUint32([]byte{0}, 200_000), strings.Repeat(`{"process":`, 200_000/11+1)[:200_000]...),
		"17 MB":                  append(binary.BigEndian.AppendUint32([]byte{0}, 17<<20-5), make([]byte, 17<<20-5)...),
		"longer than one may be": make([]byte, 20<<20),
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		res := c.open(ctx, id, token, "/process.Process/Start", body)
		answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		cancel()
		if err != nil || bytes.Contains(answer, []byte("here")) && name != "longer than it says" || !bytes.Contains(answer, []byte("code")) {
			t.Errorf("%s: %s %q %v", name, res.Status, answer, err)
		}
	}
	sb, err := e.Provider.Connect(ctxOf(t), dreamcore.SandboxID(id))
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, sb, sandbox.User, "echo on"); got != "on" {
		t.Errorf("the box says %q", got)
	}
}

// Who guesses at the ids of others, by parts of them or otherwise, finds nobody.
func TestGuessedIDs(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	mine, token := c.create("/v2/sandboxes", `{"templateID":"base"}`)
	theirs, _ := c.create("/v2/sandboxes", `{"templateID":"base"}`)
	for _, guess := range []string{theirs[:1], theirs[:len(theirs)-1], theirs + "a", strings.ToUpper(theirs), theirs + "/", theirs + "%00", "*", ".", "..", mine + "/../" + theirs} {
		if status, m := c.api("GET", "/sandboxes/"+guess, ""); status == http.StatusOK {
			t.Errorf("%q is %v", guess, m)
		}
		if status, _ := c.api("DELETE", "/sandboxes/"+guess, ""); status == http.StatusNoContent {
			t.Errorf("%q was killed", guess)
		}
	}
	for _, guess := range []string{theirs[:len(theirs)-1], theirs + "a", theirs + "," + mine, mine + "," + theirs, strings.ToUpper(theirs)} {
		status, _, body := c.do("GET", "/files?path=/etc/passwd&username=user", "", "E2b-Sandbox-Id", guess, "X-Access-Token", token)
		if status != http.StatusBadGateway {
			t.Errorf("%q: %d %s", guess, status, body)
		}
	}
	// The right id with the token of one's own box.
	if status, _, _ := c.do("GET", "/files?path=/etc/passwd&username=user", "", "E2b-Sandbox-Id", theirs, "X-Access-Token", token); status != http.StatusUnauthorized {
		t.Errorf("another's token: %d", status)
	}
	if status, _, _ := c.do("GET", "/files?path=/etc/passwd&username=user", "", "Host", "49983-"+theirs+".x.test", "X-Access-Token", token); status != http.StatusUnauthorized {
		t.Errorf("another's token by name: %d", status)
	}
}

// One process has two clients: both get its output, one goes in the middle of
// it, and the other gets it to the end.
func TestTwoClientsOfOneProcess(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	id, token := c.create("/v2/sandboxes", `{"templateID":"base"}`)
	first := c.open(ctxOf(t), id, token, "/process.Process/Start", envelope(0, bash("while [ ! -e /tmp/go ]; do sleep 0.05; done; echo one; while [ ! -e /tmp/on ]; do sleep 0.05; done; echo two")))
	_, text := event(t, first.Body)
	var start struct {
		Event struct {
			Start struct{ PID int }
		}
	}
	if err := json.Unmarshal([]byte(text), &start); err != nil || start.Event.Start.PID == 0 {
		t.Fatal(text, err)
	}
	second := c.open(ctxOf(t), id, token, "/process.Process/Connect", envelope(0, map[string]any{"process": map[string]any{"pid": start.Event.Start.PID}}))
	if _, text := event(t, second.Body); !strings.Contains(text, "start") {
		t.Fatalf("the second client begins with %s", text)
	}
	sb, err := e.Provider.Connect(ctxOf(t), dreamcore.SandboxID(id))
	if err != nil {
		t.Fatal(err)
	}
	sh(t, sb, sandbox.User, "touch /tmp/go")
	const one, two = "b25lCg==", "dHdvCg=="
	for i, r := range []io.Reader{first.Body, second.Body} {
		if _, text := event(t, r); !strings.Contains(text, one) {
			t.Fatalf("client %d gets %s", i, text)
		}
	}
	first.Body.Close()
	sh(t, sb, sandbox.User, "touch /tmp/on")
	rest, err := io.ReadAll(second.Body)
	if err != nil || !bytes.Contains(rest, []byte(two)) || !bytes.Contains(rest, []byte("exited")) {
		t.Errorf("the second client gets %q, %v", rest, err)
	}
}

// Output without end that a client asks for and does not read stays in the box:
// the host's memory does not grow, and the box goes on.
func TestNobodyReads(t *testing.T) {
	e := enginetest.Start(t)
	c := client{t, e}
	id, token := c.create("/v2/sandboxes", `{"templateID":"base"}`)
	sb, err := e.Provider.Connect(ctxOf(t), dreamcore.SandboxID(id))
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	for range 4 {
		res := c.open(ctxOf(t), id, token, "/process.Process/Start", envelope(0, bash("while :; do echo a line of output that nobody reads; done")))
		if _, text := event(t, res.Body); !strings.Contains(text, "start") {
			t.Fatal(text)
		}
	}
	most := before
	for range 20 {
		time.Sleep(100 * time.Millisecond) // more than 10,000 lines a second come
		most = max(most, heap())
	}
	if most > before+32<<20 {
		t.Errorf("the host's memory grew from %d to %d MiB", before>>20, most>>20)
	}
	if got := sh(t, sb, sandbox.User, "echo on"); got != "on" {
		t.Errorf("the box says %q", got)
	}
}

// A full disk in the box is a refusal that says so, and what was there stays.
func TestFullDisk(t *testing.T) {
	e := enginetest.Start(t)
	sb := boot(t, e)
	if err := sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/workspace/small", Data: []byte("kept")}}); err != nil {
		t.Fatal(err)
	}
	var err error
	for i := 0; err == nil && i < 10; i++ {
		err = sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/workspace/large" + string(rune('0'+i)), Data: make([]byte, 60<<20)}})
	}
	if dreamcore.CodeOf(err) != dreamcore.Refused || !strings.Contains(err.Error(), "space") {
		t.Errorf("a full disk: %v", err)
	}
	data, err := sb.ReadFile(ctxOf(t), "/workspace/small", 100)
	if err != nil || string(data) != "kept" {
		t.Errorf("%q, %v", data, err)
	}
	sh(t, sb, sandbox.User, "rm /workspace/large*")
	if err := sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/workspace/again", Data: make([]byte, 60<<20)}}); err != nil {
		t.Errorf("after making room: %v", err)
	}
}
