package envd

import (
	"bytes"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"dreamcore/internal/envd/spec/filesystem"
	"dreamcore/internal/envd/spec/process"
)

// FuzzHeaders: whatever stands in the headers that the daemon reads, what it
// makes of them is within its bounds.
func FuzzHeaders(f *testing.F) {
	f.Add("Basic dXNlcjo=", "90", "gzip;q=0.5, identity;q=0", "Author", "somebody")
	f.Add("basic Og==", "-1", "*;q=0", "", "\xff")
	f.Add("Bearer x", "99999999999999999999", ";;,q=;q=2", strings.Repeat("k", 300), strings.Repeat("v", 5000))
	passwd := filepath.Join(f.TempDir(), "passwd")
	if err := os.WriteFile(passwd, []byte("user:x:54321:54321::/home/user:/bin/sh\n"), 0o644); err != nil {
		f.Fatal(err)
	}
	s := newServer(Config{Passwd: passwd, Group: passwd})
	f.Fuzz(func(t *testing.T, auth, ping, accept, key, value string) {
		h := http.Header{"Authorization": {auth}, keepaliveHeader: {ping}, "Accept-Encoding": {accept}, metadataHeader + key: {value}}
		if u, err := s.userOf(h); err == nil && u.name != "user" {
			t.Errorf("%q became %+v", auth, u)
		}
		if d := keepalive(h); d <= 0 || d > 24*60*60*1e9 {
			t.Errorf("%q became %s", ping, d)
		}
		if zip, err := wantsGzip(h); zip && err != nil || zip && !strings.Contains(strings.ToLower(accept), "gzip") && !strings.Contains(accept, "*") {
			t.Errorf("%q became %v, %v", accept, zip, err)
		}
		m, err := metadataOf(h)
		if err != nil {
			return
		}
		for k, v := range m {
			if k == "" || len(k) > maxMetadataKey || k != strings.ToLower(k) || !printable(k) || !printable(v) || len(k)+len(v) > maxMetadataBytes {
				t.Errorf("kept %q: %q", k, v)
			}
		}
	})
}

// FuzzUpload: a multipart body writes the one file that the query names, and
// never more than came in.
func FuzzUpload(f *testing.F) {
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\ndata\r\n--b--\r\n"))
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"file\"\r\nX-Dreamcore-Mode: 600\r\n\r\nx\r\n--b"))
	f.Add("", []byte("----\r\n"))
	f.Add("b", []byte("--b\r\nContent-Transfer-Encoding: quoted-printable\r\nContent-Disposition: form-data; name=file; filename*=utf-8''%00\r\n\r\n=00\r\n--b--"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, boundary string, body []byte) {
		p := filepath.Join(dir, "file")
		up := upload{user: user{uid: uint32(os.Geteuid()), home: dir}, asked: p, made: map[string]bool{}, seen: map[string]bool{}}
		err := up.parts(multipart.NewReader(bytes.NewReader(body), boundary))
		if ferr := up.finish(); err == nil {
			err = ferr
		}
		fi, serr := os.Stat(p)
		if err == nil && (serr != nil || len(up.all) != 1 || fi.Size() > int64(len(body))) {
			t.Errorf("%v, %d files", serr, len(up.all))
		}
		left, derr := os.ReadDir(dir)
		if derr != nil || len(left) > 1 {
			t.Errorf("it wrote %v, %v", left, derr)
		}
		_ = os.Remove(p) // it need not be there
	})
}

// FuzzWatch: whatever the kernel of a box puts into a watcher's queue, events
// are text and the daemon goes on.
func FuzzWatch(f *testing.F) {
	event := func(number int32, mask, cookie uint32, name string) []byte {
		b := make([]byte, 16, 16+len(name))
		for i, v := range []uint32{uint32(number), mask, cookie, uint32(len(name))} {
			b[4*i], b[4*i+1], b[4*i+2], b[4*i+3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		}
		return append(b, name...)
	}
	f.Add(event(1, 0x100, 0, "a\x00\x00\x00"), true)
	f.Add(append(event(1, 0x40000040, 7, "d\x00"), event(1, 0x40000080, 7, "e\x00")...), true)
	f.Add(append(event(2, 0x8000, 0, ""), event(-1, 0x4000, 0, "")...), false)
	f.Add(event(1, 0x40000100, 0, "../../..")[:20], true)
	f.Add(event(1, 0x400, 0, ""), true)
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, recursive bool) {
		s := newServer(Config{})
		w := &watcher{
			namer: s.namer, root: root, real: root, recursive: recursive, fd: -1,
			folders: map[int]string{1: "", 2: "below", 3: "below/deep"}, fresh: map[string]bool{"a": true}, changed: make(chan struct{}, 1),
		}
		// With no queue of the kernel's, watching more fails as for a folder that is gone.
		_ = w.batch(data)
		events, _, _ := w.take()
		for _, e := range events {
			if !utf8.ValidString(e.GetName()) || e.GetType() == filesystem.EventType_EVENT_TYPE_UNSPECIFIED {
				t.Errorf("event %v", e)
			}
		}
		for _, at := range w.folders {
			if path.IsAbs(at) {
				t.Errorf("it watches %q", at)
			}
		}
	})
}

// FuzzConfig: what a client says about a process becomes an environment and a
// file that the kernel can take, or an error.
func FuzzConfig(f *testing.F) {
	add := func(c *process.StartRequest) {
		data, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	dir := "~/x"
	add(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "sh", Args: []string{"-c", "true"}, Envs: map[string]string{"PATH": "/bin::relative", "A=B": "x", "": "y", "N": "a\x00"}, Cwd: &dir}})
	add(&process.StartRequest{Process: &process.ProcessConfig{Cmd: "../../bin/true"}, Pty: &process.PTY{Size: &process.PTY_Size{Cols: 1 << 31, Rows: 1}}})
	f.Add([]byte("\x0a\x03\x0a\x01\xff"))
	s := newServer(Config{})
	s.SetEnv(map[string]string{"GIVEN": "1"})
	u := user{name: "user", home: "/home/user"}
	f.Fuzz(func(t *testing.T, data []byte) {
		var req process.StartRequest
		if proto.Unmarshal(data, &req) != nil {
			return
		}
		dir, err := u.resolve(req.GetProcess().GetCwd())
		if err != nil {
			return
		}
		env, search := s.environ(u, map[string]string{"TERM": "x"}, req.GetProcess().GetEnvs())
		seen := map[string]bool{}
		for _, e := range env {
			k, _, ok := strings.Cut(e, "=")
			if !ok || k == "" || seen[k] || strings.ContainsRune(e, 0) {
				t.Errorf("variable %q", e)
			}
			seen[k] = true
		}
		for _, want := range []string{"HOME", "USER", "GIVEN", "TERM"} {
			if _, own := req.GetProcess().GetEnvs()[want]; !own && !seen[want] {
				t.Errorf("%s is missing in %q", want, env)
			}
		}
		if file, err := lookPath(req.GetProcess().GetCmd(), dir, search); err == nil && (!path.IsAbs(file) || strings.ContainsRune(file, 0)) {
			t.Errorf("%q became %q", req.GetProcess().GetCmd(), file)
		}
	})
}

// FuzzCompose: what is checked before a file is touched.
func FuzzCompose(f *testing.F) {
	f.Add([]byte(`{"source_paths":["a","~/b","/c"],"destination":"d","username":"x"}`))
	f.Add([]byte(`{"source_paths":["../x/../d"],"destination":"./d"}`))
	f.Add([]byte(`{"source_paths":[null],"destination":"\u0000"}`))
	u := user{home: "/home/user"}
	f.Fuzz(func(t *testing.T, data []byte) {
		var in composeBody
		if json.Unmarshal(data, &in) != nil {
			return
		}
		to, from, err := u.composePaths(in)
		if err != nil {
			return
		}
		for _, p := range append(from, to) {
			if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
				t.Errorf("%s: %q", data, p)
			}
		}
		for _, p := range from {
			if p == to {
				t.Errorf("%s: %q into itself", data, p)
			}
		}
	})
}
