package envd

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzResolve: whatever a client sends as a path, what is opened is absolute,
// clean and without NUL.
func FuzzResolve(f *testing.F) {
	for _, s := range []string{"", "~", "~/x", "a/../../b", "/..//x/.", "~user", "a\x00b", "\xff\xfe", strings.Repeat("../", 100)} {
		f.Add(s)
	}
	u := user{name: "user", home: "/home/user"}
	f.Fuzz(func(t *testing.T, p string) {
		got, err := u.resolve(p)
		if err != nil {
			if !strings.ContainsRune(p, 0) {
				t.Errorf("%q: %v", p, err)
			}
			return
		}
		if !path.IsAbs(got) || path.Clean(got) != got || strings.ContainsRune(got, 0) {
			t.Errorf("%q became %q", p, got)
		}
	})
}

// FuzzAccounts: hostile account files (root of a box may write them) never
// break the daemon, and never turn a name into root that is not uid 0 there.
func FuzzAccounts(f *testing.F) {
	f.Add([]byte("root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n"), []byte("g:x:1:user,other\n"))
	f.Add([]byte("user:x:-1:99999999999::relative:\n:::::::\n"), []byte("::x:\nuser"))
	f.Fuzz(func(t *testing.T, passwd, group []byte) {
		dir := t.TempDir()
		cfg := Config{Passwd: filepath.Join(dir, "p"), Group: filepath.Join(dir, "g")}
		if os.WriteFile(cfg.Passwd, passwd, 0o600) != nil || os.WriteFile(cfg.Group, group, 0o600) != nil {
			t.Fatal("cannot write the account files")
		}
		s := newServer(cfg)
		u, err := s.user("user")
		if err != nil {
			return
		}
		if !path.IsAbs(u.home) || u.name != "user" {
			t.Errorf("got %+v", u)
		}
		if u.uid == 0 && !bytes.Contains(passwd, []byte("0")) {
			t.Errorf("uid 0 out of nowhere: %q", passwd)
		}
	})
}

// FuzzUploadHeader: the headers of a part are the client's.
func FuzzUploadHeader(f *testing.F) {
	f.Add(`form-data; name="file"; filename="/a/b"`, "644", "")
	f.Add(`form-data; name="file"; filename*=utf-8''%E3%83%8D`, "", "/asked")
	f.Add(`form-data; name=file; filename="`, "4777", "")
	f.Fuzz(func(t *testing.T, disposition, mode, asked string) {
		up := upload{user: user{home: "/home/user"}, asked: asked, made: map[string]bool{}, seen: map[string]bool{}}
		part := &multipart.Part{Header: map[string][]string{"Content-Disposition": {disposition}, ModeHeader: {mode}}}
		name, m, err := up.header(part)
		if err != nil {
			return
		}
		if name == "" {
			t.Errorf("no name out of %q", disposition)
		}
		if perm, err := parseMode(m); err == nil && perm&^0o777 != 0 {
			t.Errorf("mode %q became %o", m, perm)
		}
	})
}

// FuzzRequest: the whole handler, with whatever somebody sends to it.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/process.Process/List", "application/json", []byte(`{}`))
	f.Add("POST", "/process.Process/Connect", "application/connect+json", []byte("\x00\x00\x00\x00\x02{}"))
	f.Add("POST", "/process.Process/SendSignal", "application/proto", []byte{0x0a, 0x02, 0x08, 0x01, 0x10, 0x09})
	f.Add("POST", "/filesystem.Filesystem/Stat", "application/json", []byte(`{"path":"/nonexistent\u0000"}`))
	f.Add("POST", "/filesystem.Filesystem/ListDir", "application/json", []byte(`{"path":"/nonexistent","depth":4294967295}`))
	f.Add("GET", "/files?path=%2Fnonexistent&username=x", "", []byte(nil))
	f.Add("POST", "/filesystem.Filesystem/WatchDir", "application/connect+json", []byte("\x00\x00\x00\x00\x0f{\"path\":\"/tmp\"}"))
	f.Add("POST", "/filesystem.Filesystem/CreateWatcher", "application/json", []byte(`{"path":"/tmp","recursive":true,"includeEntry":true}`))
	f.Add("POST", "/filesystem.Filesystem/GetWatcherEvents", "application/proto", []byte("\x0a\x01x"))
	f.Add("POST", "/process.Process/StreamInput", "application/connect+json", []byte("\x00\x00\x00\x00\x10{\"keepalive\":{}}"))
	f.Add("POST", "/process.Process/Update", "application/json", []byte(`{"process":{"tag":"x"},"pty":{"size":{"cols":80}}}`))
	f.Add("POST", "/files/compose", "application/json", []byte(`{"source_paths":["/nonexistent"],"destination":"/nonexistent/x"}`))
	f.Add("GET", "/metrics", "", []byte(nil))
	dir := f.TempDir()
	passwd := filepath.Join(dir, "passwd")
	// A user without any right on this machine: whatever gets through harms nobody.
	if err := os.WriteFile(passwd, []byte("user:x:54321:54321::/nonexistent:/bin/false\n"), 0o644); err != nil {
		f.Fatal(err)
	}
	h := newServer(Config{Passwd: passwd, Group: passwd, DefaultUser: "user", MaxWatchers: 8}).Handler()
	f.Fuzz(func(t *testing.T, method, target, kind string, body []byte) {
		// Starting programs is what the service is for; it is not for a fuzzer.
		if !strings.HasPrefix(target, "/") || strings.Contains(target, "Start") {
			return
		}
		// Watching a folder has no end of its own.
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://sandbox"+target, bytes.NewReader(body))
		if err != nil || req.URL.Path == "/process.Process/Start" {
			return
		}
		req.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented && !strings.Contains(w.Body.String(), "unimplemented") {
			t.Errorf("%s %s: %d %s", method, target, w.Code, w.Body)
		}
	})
}
