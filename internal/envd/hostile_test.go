package envd

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore/internal/envd/spec/filesystem"
	"dreamcore/internal/envd/spec/filesystem/filesystemconnect"
	"dreamcore/internal/envd/spec/process"
	"dreamcore/internal/envd/spec/process/processconnect"
)

// frame is one message of a stream, with a length that may be a lie.
func frame(flags byte, length uint32, payload string) string {
	var b bytes.Buffer
	b.WriteByte(flags)
	_ = binary.Write(&b, binary.BigEndian, length) // a Buffer takes everything
	b.WriteString(payload)
	return b.String()
}

func framed(payload string) string { return frame(0, uint32(len(payload)), payload) }

// Every procedure, with frames that are garbage, cut off or lie about their
// length: an error that is the client's, and the daemon goes on.
func TestHostileFrames(t *testing.T) {
	f := daemon(t)
	var zeros bytes.Buffer
	z := gzip.NewWriter(&zeros)
	if _, err := z.Write(make([]byte, 64<<20)); err != nil {
		t.Fatal(err)
	}
	must(t, z.Close())
	bomb := zeros.String()
	bodies := map[string]string{
		"nothing":              "",
		"half a header":        "\x00\x00\x00",
		"no payload":           frame(0, 5, ""),
		"half a payload":       frame(0, 100, "half"),
		"four gigabytes":       frame(0, 1<<32-1, "x"),
		"too long":             frame(0, maxMessageBytes+1, "x"),
		"every flag":           frame(0xff, 4, "\xff\xff\xff\xff"),
		"an end from a client": frame(2, 2, "{}"),
		"packed, not said how": frame(1, 4, "abcd"),
		"a bomb":               frame(1, uint32(len(bomb)), bomb),
		"garbage":              framed("\xff\xfe\xfd{{{"),
		"two, one garbage":     framed("{}") + framed("\x00\xff"),
		"deep":                 framed(strings.Repeat(`{"process":`, 20_000)),
		"HTTP":                 "GET / HTTP/1.1\r\n\r\n",
	}
	streams := []string{
		processconnect.ProcessStartProcedure, processconnect.ProcessConnectProcedure, processconnect.ProcessStreamInputProcedure,
		filesystemconnect.FilesystemWatchDirProcedure,
	}
	calls := []string{
		processconnect.ProcessListProcedure, processconnect.ProcessUpdateProcedure, processconnect.ProcessSendInputProcedure,
		processconnect.ProcessSendSignalProcedure, processconnect.ProcessCloseStdinProcedure, filesystemconnect.FilesystemStatProcedure,
		filesystemconnect.FilesystemMakeDirProcedure, filesystemconnect.FilesystemMoveProcedure, filesystemconnect.FilesystemListDirProcedure,
		filesystemconnect.FilesystemCreateWatcherProcedure, filesystemconnect.FilesystemGetWatcherEventsProcedure, filesystemconnect.FilesystemRemoveWatcherProcedure,
	}
	try := func(path, kind, name, body string, header ...string) {
		t.Helper()
		status, said := f.post(t, path, kind, strings.NewReader(body), header...)
		for _, ours := range []string{`"internal"`, `"unknown"`, "the daemon failed", "panic"} {
			// The library calls what breaks its own framing internal too.
			if strings.Contains(said, ours) && !strings.Contains(said, `"internal","message":"protocol error: `) {
				t.Errorf("%s (%s), %s: %d %.300q", path, kind, name, status, said)
			}
		}
		if status >= 500 && status != http.StatusNotImplemented {
			t.Errorf("%s (%s), %s: %d %.300q", path, kind, name, status, said)
		}
	}
	for name, body := range bodies {
		for _, codec := range []string{"proto", "json"} {
			for _, path := range streams {
				try(path, "application/connect+"+codec, name, body, "Connect-Content-Encoding", "gzip")
				try(path, "application/connect+"+codec, name, body)
				try(path, "application/grpc+"+codec, name, body)
			}
			for _, path := range calls {
				if path == processconnect.ProcessListProcedure && name != "a bomb" && name != "garbage" {
					continue // it takes anything that is nothing
				}
				try(path, "application/"+codec, name, body)
			}
		}
	}
	for _, path := range calls {
		try(path, "application/json", "a bomb", bomb, "Content-Encoding", "gzip")
	}
	for _, path := range append(streams, calls...) {
		try(path, "text/plain", "another type", "x")
		try(path, "", "no type", "x")
	}
	if res, err := f.run(t, ctxOf(t), "user", script("echo fine", false)); err != nil || res.out != "fine\n" {
		t.Errorf("afterwards: %q, %v", res.out, err)
	}
	// Nothing at all is a valid message: it asks to watch the user's home.
	f.mu.Lock()
	for id := range f.polled {
		f.dropPolled(id)
	}
	f.mu.Unlock()
	f.settled(t, 0)
}

// Both ways of writing messages, and the other protocols that the library has.
func TestCodecs(t *testing.T) {
	f := daemon(t)
	for name, opt := range map[string]connect.ClientOption{
		"JSON": connect.WithProtoJSON(), "gRPC-Web": connect.WithGRPCWeb(), "packed": connect.WithSendGzip(),
	} {
		c := processconnect.NewProcessClient(http.DefaultClient, f.url, opt)
		stream, err := c.Start(ctxOf(t), connect.NewRequest(script("echo out; exit 3", false)))
		must(t, err)
		var out string
		code := int32(0)
		for stream.Receive() {
			e := stream.Msg().GetEvent()
			out += string(e.GetData().GetStdout())
			if e.GetEnd() != nil {
				code = e.GetEnd().GetExitCode()
			}
		}
		if out != "out\n" || code != 3 {
			t.Errorf("%s: %q, %d, %v", name, out, code, stream.Err())
		}
	}
}

// Paths that no path is, to everything that takes one.
func TestHostilePaths(t *testing.T) {
	f := daemon(t)
	for _, c := range []struct {
		path string
		want connect.Code
	}{
		{"/tmp/a\x00b", connect.CodeInvalidArgument},
		{"/" + strings.Repeat("x", 5000), connect.CodeInvalidArgument},
		{strings.Repeat("x/", 2500), connect.CodeInvalidArgument},
		{"../../../../../../../../etc/shadow/../shadow/x", connect.CodeInvalidArgument}, // a file is no folder
		{"../../../../../../../../root/x", connect.CodePermissionDenied},
		{"~/../../../../../../root/x", connect.CodePermissionDenied},
		{"/proc/1/root/root/x", connect.CodePermissionDenied},
	} {
		errs := map[string]error{}
		_, errs["Stat"] = f.files.Stat(ctxOf(t), connect.NewRequest(&filesystem.StatRequest{Path: c.path}))
		_, errs["MakeDir"] = f.files.MakeDir(ctxOf(t), connect.NewRequest(&filesystem.MakeDirRequest{Path: c.path}))
		_, errs["Move"] = f.files.Move(ctxOf(t), connect.NewRequest(&filesystem.MoveRequest{Source: c.path, Destination: "/tmp/x"}))
		_, errs["ListDir"] = f.files.ListDir(ctxOf(t), connect.NewRequest(&filesystem.ListDirRequest{Path: c.path}))
		_, errs["CreateWatcher"] = f.files.CreateWatcher(ctxOf(t), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: c.path}))
		_, errs["Start"] = f.run(t, ctxOf(t), "user", &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &c.path}})
		for name, err := range errs {
			code := connect.CodeOf(err)
			// A folder to work in is looked for by the daemon itself.
			if code != c.want && !(name == "Start" && code == connect.CodeInvalidArgument) {
				t.Errorf("%s %.40q: %v, want %v", name, c.path, err, c.want)
			}
		}
	}
	// Text that is not UTF-8 is not text: JSON and protobuf refuse it.
	for kind, body := range map[string]string{"application/json": "{\"path\":\"/tmp/\xff\"}", "application/proto": "\x0a\x06/tmp/\xff"} {
		if status, said := f.post(t, filesystemconnect.FilesystemStatProcedure, kind, strings.NewReader(body)); status != http.StatusBadRequest && status != http.StatusNotFound {
			t.Errorf("%s: %d %s", kind, status, said)
		}
	}
	// In a query it is bytes, as in the file system.
	dir := f.home(t)
	must(t, os.WriteFile(dir+"/\xff", []byte("odd"), 0o644))
	if status, got := f.get(t, "user", dir+"/\xff"); status != http.StatusOK || got != "odd" {
		t.Errorf("%d %q", status, got)
	}
}

// A client that disappears in the middle of anything leaves nothing behind but
// the processes that it started.
func TestClientsDisappear(t *testing.T) {
	f := daemon(t)
	srv := httptest.NewServer(f.Handler())
	defer srv.Close()
	dir := f.home(t)
	must(t, os.WriteFile(dir+"/big", make([]byte, 32<<20), 0o644))
	pid, stream := f.started(t, ctxOf(t), script("echo up; cat > /dev/null", true))
	defer stream.Close()
	defer f.kill(t, pid)
	f.settled(t, 0)
	// All but sockets: the test's own clients keep some.
	files := func() (n int) {
		all, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, d := range all {
			if to, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil && !strings.HasPrefix(to, "socket:") {
				n++
			}
		}
		return n
	}
	before := files()
	long := "Content-Length: 1000000\r\n\r\n"
	requests := []string{
		"",
		"POST /files?path=/tmp HT",
		"POST /files?path=" + dir + "/cut HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n" + long + "half",
		"POST /files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n" + long + "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + dir + "/cut2\"\r\n\r\nhalf",
		"GET /files?path=" + dir + "/big HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /files?path=" + dir + "/big HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n",
	}
	rpc := func(procedure, codec, body string) {
		requests = append(requests, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/%s\r\nContent-Length: %d\r\n\r\n%s", procedure, codec, len(body), body))
	}
	rpc(filesystemconnect.FilesystemWatchDirProcedure, "connect+json", framed(`{"path":"`+dir+`","recursive":true}`))
	rpc(processconnect.ProcessStartProcedure, "connect+json", framed(`{"process":{"cmd":"sh","args":["-c","yes"]}}`))
	rpc(processconnect.ProcessStartProcedure, "connect+json", framed(`{"process":{"cmd":"sh","args":["-c","yes"]},"pty":{"size":{"cols":80,"rows":24}}}`))
	rpc(processconnect.ProcessConnectProcedure, "connect+json", framed(fmt.Sprintf(`{"process":{"pid":%d}}`, pid)))
	requests = append(requests, "POST "+processconnect.ProcessStreamInputProcedure+" HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+json\r\n"+long+
		framed(fmt.Sprintf(`{"start":{"process":{"pid":%d}}}`, pid)))
	for _, req := range requests {
		for _, wait := range []bool{false, true} {
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			must(t, err)
			if _, err := io.WriteString(conn, req); err != nil {
				t.Fatal(err)
			}
			if wait && strings.Contains(req, "\r\n\r\n") && !strings.Contains(req, long) {
				// The answer has begun, and may be stuck: nobody reads on.
				if _, err := bufio.NewReaderSize(conn, 16).ReadByte(); err != nil {
					t.Errorf("%.60q: %v", req, err)
				}
			}
			conn.Close()
		}
	}
	// The processes that were started print without end; they are ours to end. The
	// last of the requests may not have been looked at yet.
	yes := map[uint32]bool{}
	for end := time.Now().Add(time.Minute); len(yes) < 4 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		list, err := f.procs.List(ctxOf(t), connect.NewRequest(&process.ListRequest{}))
		must(t, err)
		for _, p := range list.Msg.GetProcesses() {
			if args := p.GetConfig().GetArgs(); len(args) == 2 && args[1] == "yes" && !yes[p.GetPid()] {
				yes[p.GetPid()] = true
				f.unread(t, p.GetPid())
				f.kill(t, p.GetPid())
			}
		}
	}
	if len(yes) != 4 {
		t.Errorf("%d of 4 processes outlived their clients", len(yes))
	}
	f.settled(t, 0)
	for end := time.Now().Add(time.Minute); files() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d files are open, %d were before", files(), before)
		}
	}
}
