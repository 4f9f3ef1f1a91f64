package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/envd"
	"dreamcore/internal/envd/spec/filesystem"
	"dreamcore/internal/envd/spec/filesystem/filesystemconnect"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
)

// stranger is a client of a box's daemon that has nothing but its id and token,
// and speaks the protocol as it is.
type stranger struct {
	t     *testing.T
	c     client
	id    string
	token string
	procs processconnect.ProcessClient
	files filesystemconnect.FilesystemClient
}

func newStranger(t *testing.T, e *enginetest.Engine) *stranger {
	s := &stranger{t: t, c: client{t, e}}
	s.id, s.token = s.c.create("/v2/sandboxes", `{"templateID":"base","timeout":600}`)
	head := connect.WithInterceptors(header{"X-Access-Token": s.token, "E2b-Sandbox-Id": s.id, "E2b-Sandbox-Port": fmt.Sprint(envd.Port)})
	s.procs = processconnect.NewProcessClient(http.DefaultClient, e.URL, head)
	s.files = filesystemconnect.NewFilesystemClient(http.DefaultClient, e.URL, head)
	return s
}

// header is set on every call.
type header map[string]string

func (h header) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		for k, v := range h {
			r.Header().Set(k, v)
		}
		return next(ctx, r)
	}
}

func (h header) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, s connect.Spec) connect.StreamingClientConn {
		c := next(ctx, s)
		for k, v := range h {
			c.RequestHeader().Set(k, v)
		}
		return c
	}
}

func (h header) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// http makes a plain request of the daemon.
func (s *stranger) http(method, path, body string, header ...string) (int, string) {
	s.t.Helper()
	status, _, text := s.c.do(method, path, body, append(header, "X-Access-Token", s.token, "E2b-Sandbox-Id", s.id, "E2b-Sandbox-Port", fmt.Sprint(envd.Port))...)
	return status, text
}

// sh runs a script to its end.
func (s *stranger) sh(script string) (string, *process.ProcessEvent_EndEvent) {
	s.t.Helper()
	off := false
	stream, err := s.procs.Start(ctxOf(s.t), connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", script}}, Stdin: &off}))
	if err != nil {
		s.t.Fatal(err)
	}
	defer stream.Close()
	var out string
	var end *process.ProcessEvent_EndEvent
	for stream.Receive() {
		e := stream.Msg().GetEvent()
		out += string(e.GetData().GetStdout()) + string(e.GetData().GetStderr())
		if e.GetEnd() != nil {
			end = e.GetEnd()
		}
	}
	if stream.Err() != nil {
		s.t.Fatalf("%q: %v", script, stream.Err())
	}
	return out, end
}

// The whole of the daemon in a real box, each part that depends on what gVisor
// can do: terminals, watching, attributes, limits, a full disk.
func TestDaemon(t *testing.T) {
	s := newStranger(t, enginetest.Start(t))
	t.Run("signals", s.signals)
	t.Run("terminal", s.terminal)
	for _, dir := range []string{"/workspace/watched", "/tmp/watched", "/home/user/watched"} {
		t.Run("watch "+dir, func(t *testing.T) { s.watch(t, dir) })
		t.Run("metadata "+dir, func(t *testing.T) { s.metadata(t, dir+"/m") })
	}
	t.Run("metrics", s.metrics)
	t.Run("streams", s.streams)
	t.Run("full disk", s.fullDisk)
}

// A command begins with signals as programs expect them: none is ignored. PID 1's
// own ways are not inherited.
func (s *stranger) signals(t *testing.T) {
	out, _ := s.sh(`yes | head -n 1; echo ${PIPESTATUS[0]}; trap -p`)
	if out != "y\n141\n" {
		t.Errorf("got %q", out)
	}
}

func (s *stranger) terminal(t *testing.T) {
	stream, err := s.procs.Start(ctxOf(t), connect.NewRequest(&process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-i", "-l"}, Envs: map[string]string{"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: 100, Rows: 31}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var pid uint32
	var text string
	var end *process.ProcessEvent_EndEvent
	until := func(want string) {
		t.Helper()
		for !strings.Contains(text, want) && end == nil {
			if !stream.Receive() {
				t.Fatalf("it ended before %q: %q, %v", want, text, stream.Err())
			}
			e := stream.Msg().GetEvent()
			if e.GetStart() != nil {
				pid = e.GetStart().GetPid()
			}
			text += string(e.GetData().GetPty())
			end = e.GetEnd()
		}
	}
	send := func(in string) {
		t.Helper()
		if _, err := s.procs.SendInput(ctxOf(t), connect.NewRequest(&process.SendInputRequest{
			Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}},
			Input:   &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(in)}},
		})); err != nil {
			t.Fatal(err)
		}
	}
	until("$")
	send("stty size; echo user=$(whoami) term=$TERM; stat -c owner=%U $(tty); echo hello > /dev/tty; trap 'echo now $(stty size)' WINCH; echo rea''dy\n")
	until("ready")
	for _, want := range []string{"31 100", "user=user term=xterm-256color", "owner=user", "hello"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %q", want, text)
		}
	}
	if _, err := s.procs.Update(ctxOf(t), connect.NewRequest(&process.UpdateRequest{
		Process: &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Cols: 132, Rows: 43}},
	})); err != nil {
		t.Fatal(err)
	}
	send("\n")
	until("now 43 132")
	send("sh -c 'echo wai''ting; exec sleep 9007'\n")
	until("waiting")
	send("\x03")
	send("echo status-$?\n")
	until("status-130")
	send("exit 7\n")
	until("never comes")
	if !end.GetExited() || end.GetExitCode() != 7 {
		t.Errorf("end %v", end)
	}
}

func (s *stranger) watch(t *testing.T, dir string) {
	if _, err := s.files.MakeDir(ctxOf(t), connect.NewRequest(&filesystem.MakeDirRequest{Path: dir + "/old"})); err != nil {
		t.Fatal(err)
	}
	stream, err := s.files.WatchDir(ctxOf(t), connect.NewRequest(&filesystem.WatchDirRequest{Path: dir, Recursive: true, IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatal(stream.Msg(), stream.Err())
	}
	polled, err := s.files.CreateWatcher(ctxOf(t), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: dir}))
	if err != nil {
		t.Fatal(err)
	}
	// By the protocol and by a program inside.
	if status, text := s.http("POST", "/files?username=user&path="+url.QueryEscape(dir+"/a"), "12345", "Content-Type", "application/octet-stream"); status != http.StatusOK {
		t.Fatal(status, text)
	}
	if out, _ := s.sh("cd " + dir + " && chmod 600 a && mv a b && rm b && mkdir -p new/deep && echo x > new/deep/f && mv old moved && echo y > moved/g && echo z > last"); out != "" {
		t.Fatal(out)
	}
	var seen []string
	for !slices.Contains(seen, "WRITE last") {
		if !stream.Receive() {
			t.Fatalf("after %q: %v", seen, stream.Err())
		}
		if e := stream.Msg().GetFilesystem(); e != nil {
			seen = append(seen, strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")+" "+e.GetName())
			if e.GetName() == "new/deep/f" && e.GetType() == filesystem.EventType_EVENT_TYPE_CREATE && e.GetEntry().GetOwner() != "user" {
				t.Errorf("described as %v", e.GetEntry())
			}
		}
	}
	at := -1
	for _, want := range []string{"CREATE a", "WRITE a", "CHMOD a", "RENAME a", "CREATE b", "REMOVE b", "CREATE new", "CREATE new/deep", "CREATE new/deep/f", "WRITE new/deep/f", "RENAME old", "CREATE moved", "WRITE moved/g", "WRITE last"} {
		i := slices.Index(seen, want)
		if i < 0 || i < at {
			t.Errorf("%q is missing or out of order in %q", want, seen)
		}
		at = max(at, i)
	}
	res, err := s.files.GetWatcherEvents(ctxOf(t), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: polled.Msg.GetWatcherId()}))
	if err != nil || len(res.Msg.GetEvents()) < 8 {
		t.Errorf("polled: %v, %v", res, err)
	}
	if _, err := s.files.RemoveWatcher(ctxOf(t), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: polled.Msg.GetWatcherId()})); err != nil {
		t.Error(err)
	}
	if _, err := s.files.WatchDir(ctxOf(t), connect.NewRequest(&filesystem.WatchDirRequest{Path: dir + "/none"})); err == nil {
		// A stream says its error when it is read.
		none, err := s.files.WatchDir(ctxOf(t), connect.NewRequest(&filesystem.WatchDirRequest{Path: dir + "/none"}))
		if err == nil {
			none.Receive()
			err = none.Err()
		}
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("a folder that is not there: %v", err)
		}
	}
}

func (s *stranger) metadata(t *testing.T, p string) {
	for _, c := range []struct {
		header []string
		want   map[string]string
	}{
		{[]string{"X-Metadata-Author", "somebody", "X-Metadata-Stage", "1"}, map[string]string{"author": "somebody", "stage": "1"}},
		{[]string{"X-Metadata-Stage", "2"}, map[string]string{"stage": "2"}},
		{nil, nil},
	} {
		if status, text := s.http("POST", "/files?username=user&path="+url.QueryEscape(p), "x", append(c.header, "Content-Type", "application/octet-stream")...); status != http.StatusOK {
			t.Fatal(status, text)
		}
		st, err := s.files.Stat(ctxOf(t), connect.NewRequest(&filesystem.StatRequest{Path: p}))
		if err != nil || fmt.Sprint(st.Msg.GetEntry().GetMetadata()) != fmt.Sprint(c.want) {
			t.Errorf("got %v, %v, want %v", st, err, c.want)
		}
	}
}

func (s *stranger) metrics(t *testing.T) {
	var m envd.Metrics
	status, text := s.http("GET", envd.MetricsPath, "")
	if err := json.Unmarshal([]byte(text), &m); err != nil || status != http.StatusOK {
		t.Fatal(status, text, err)
	}
	if m.CPUs != 2 || m.MemoryBytes != 1<<30 || m.UsedBytes <= 0 || m.DiskBytes != 256<<20 {
		t.Errorf("got %s", text)
	}
	if out, _ := s.sh("e=$((SECONDS+2)); while [ $SECONDS -lt $e ]; do :; done; head -c 64M /dev/zero > /workspace/zeros"); out != "" {
		t.Error(out)
	}
	busy := envd.Metrics{}
	_, text = s.http("GET", envd.MetricsPath, "")
	if err := json.Unmarshal([]byte(text), &busy); err != nil {
		t.Fatal(err)
	}
	if busy.CPUPercent <= 0 || busy.CPUPercent > 100 || busy.DiskUsed < m.DiskUsed+64<<20 {
		t.Errorf("got %s", text)
	}
	if _, err := s.files.Remove(ctxOf(t), connect.NewRequest(&filesystem.RemoveRequest{Path: "/workspace/zeros"})); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"/init", "/dreamcore/init", "/dreamcore/dial?port=22", "/dreamcore/anything"} {
		if status, _ := s.http("POST", path, "{}"); status != http.StatusNotFound {
			t.Errorf("%s is reached: %d", path, status)
		}
	}
}

// Two clients of one process, input by a stream through the router, a client
// that goes away.
func (s *stranger) streams(t *testing.T) {
	ctx, cancel := context.WithCancel(ctxOf(t))
	first, err := s.procs.Start(ctx, connect.NewRequest(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", "while read line; do echo got $line; done; exit 5"}}}))
	if err != nil {
		t.Fatal(err)
	}
	if !first.Receive() {
		t.Fatal(first.Err())
	}
	sel := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: first.Msg().GetEvent().GetStart().GetPid()}}
	second, err := s.procs.Connect(ctxOf(t), connect.NewRequest(&process.ConnectRequest{Process: sel}))
	if err != nil || !second.Receive() {
		t.Fatal(err, second.Err())
	}
	in := s.procs.StreamInput(ctxOf(t))
	for _, e := range []*process.StreamInputRequest{
		{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: sel}}},
		{Event: &process.StreamInputRequest_Keepalive{Keepalive: &process.StreamInputRequest_KeepAlive{}}},
		{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("one\ntwo\n")}}}}},
	} {
		if err := in.Send(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := in.CloseAndReceive(); err != nil {
		t.Fatal(err)
	}
	var text string
	for !strings.Contains(text, "got two\n") && first.Receive() {
		text += string(first.Msg().GetEvent().GetData().GetStdout())
	}
	cancel() // the one that started it
	if _, err := s.procs.CloseStdin(ctxOf(t), connect.NewRequest(&process.CloseStdinRequest{Process: sel})); err != nil {
		t.Fatal(err)
	}
	var other string
	var end *process.ProcessEvent_EndEvent
	for second.Receive() {
		other += string(second.Msg().GetEvent().GetData().GetStdout())
		if e := second.Msg().GetEvent().GetEnd(); e != nil {
			end = e
		}
	}
	if text != "got one\ngot two\n" || other != text || end.GetExitCode() != 5 {
		t.Errorf("%q, %q, %v, %v", text, other, end, second.Err())
	}
}

// A full disk is told as such, by everything that writes, and is no reason for
// anything else to fail.
func (s *stranger) fullDisk(t *testing.T) {
	if out, _ := s.sh("head -c 300M /dev/zero 2>&1 > /workspace/all; stat -c %s /workspace/all"); !strings.Contains(out, "No space left") {
		t.Errorf("the disk has no end: %q", out)
	}
	for _, kind := range []string{"application/octet-stream", "multipart/form-data; boundary=b"} {
		body := strings.Repeat("x", 100<<10)
		if strings.HasPrefix(kind, "multipart") {
			body = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/workspace/more\"\r\n\r\n" + body + "\r\n--b--\r\n"
		}
		if status, text := s.http("POST", "/files?username=user&path=/workspace/more", body, "Content-Type", kind); status != http.StatusInsufficientStorage || !strings.Contains(text, `"code":507`) {
			t.Errorf("%s: %d %s", kind, status, text)
		}
	}
	if out, end := s.sh("echo fine"); out != "fine\n" || end.GetExitCode() != 0 {
		t.Errorf("%q, %v", out, end)
	}
	if _, err := s.files.Remove(ctxOf(t), connect.NewRequest(&filesystem.RemoveRequest{Path: "/workspace/all"})); err != nil {
		t.Fatal(err)
	}
	if status, text := s.http("POST", "/files?username=user&path=/workspace/more", "x", "Content-Type", "application/octet-stream"); status != http.StatusOK {
		t.Errorf("after making room: %d %s", status, text)
	}
}
