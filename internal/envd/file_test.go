package envd

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"dreamcore/internal/envd/spec/filesystem"
)

// upload posts a multipart body; paths and contents come in pairs.
func (f *fixture) upload(t *testing.T, user, query string, pairs ...string) (int, string) {
	t.Helper()
	var b bytes.Buffer
	mw := multipart.NewWriter(&b)
	for i := 0; i+1 < len(pairs); i += 2 {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": pairs[i]}))
		w, err := mw.CreatePart(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := mw.Close(); err != nil {
		t.Fatal(err)
	}
	return f.post(t, "/files?username="+user+query, mw.FormDataContentType(), &b)
}

func (f *fixture) post(t *testing.T, path, kind string, body io.Reader, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctxOf(t), http.MethodPost, f.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

func (f *fixture) get(t *testing.T, user, path string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctxOf(t), http.MethodGet, f.url+"/files?"+url.Values{"path": {path}, "username": {user}}.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// home is a fresh folder of the user's.
func (f *fixture) home(t *testing.T) string {
	t.Helper()
	u, err := f.user("user")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(u.home, "t-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestUpload(t *testing.T) {
	f := daemon(t)
	dir := f.home(t)
	big := strings.Repeat("0123456789abcdef", 200_000) // more than one batch's small file
	status, body := f.upload(t, "user", "", dir+"/a/b/c", "deep", "~/"+filepath.Base(dir)+"/tilde", "t", filepath.Base(dir)+"/relative", "r",
		dir+"/big", big, dir+"/after", "small again", dir+"/empty", "")
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	var files []written
	if err := json.Unmarshal([]byte(body), &files); err != nil || len(files) != 6 || !cmp.Equal(files[0], written{Name: "c", Type: "file", Path: dir + "/a/b/c"}) {
		t.Errorf("got %+v, %v", files, err)
	}
	for p, want := range map[string]string{"a/b/c": "deep", "tilde": "t", "relative": "r", "big": big, "after": "small again", "empty": ""} {
		got, err := os.ReadFile(filepath.Join(dir, p))
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes of %d, %v", p, len(got), len(want), err)
		}
		fi, err := os.Stat(filepath.Join(dir, p))
		if err != nil || fi.Mode().Perm() != 0o644 || fi.Sys().(*syscall.Stat_t).Uid != 12345 {
			t.Errorf("%s: %v, %v", p, fi, err)
		}
		if status, got := f.get(t, "user", filepath.Join(dir, p)); status != http.StatusOK || got != want {
			t.Errorf("reading %s: %d, %d bytes", p, status, len(got))
		}
	}
	// One file by the query's path, in both forms, compressed too.
	if status, body := f.upload(t, "user", "&path="+url.QueryEscape(dir+"/named"), "ignored", "n"); status != http.StatusOK {
		t.Error(status, body)
	}
	var z bytes.Buffer
	zw := gzip.NewWriter(&z)
	if _, err := zw.Write([]byte("zipped")); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	if status, body := f.post(t, "/files?username=user&path="+url.QueryEscape(dir+"/octets"), "application/octet-stream", &z, "Content-Encoding", "gzip", ModeHeader, "750"); status != http.StatusOK {
		t.Error(status, body)
	}
	if fi, err := os.Stat(dir + "/octets"); err != nil || fi.Mode().Perm() != 0o750 || fi.Size() != 6 {
		t.Errorf("got %v, %v", fi, err)
	}
	if status, got := f.get(t, "user", dir+"/big", "Range", "bytes=16-19"); status != http.StatusPartialContent || got != "0123" {
		t.Errorf("a range: %d %q", status, got)
	}
}

// The file service acts as the user of the request, which the reference daemon
// does not, and refuses what makes no sense.
func TestFileRefusals(t *testing.T) {
	f := daemon(t)
	dir := f.home(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Mkfifo(dir+"/pipe", 0o666), os.Chmod(dir+"/pipe", 0o666)); err != nil {
		t.Fatal(err)
	}
	if status, got := f.get(t, "root", secret); status != http.StatusOK || got != "root's" {
		t.Errorf("root reads %d %q", status, got)
	}
	for _, c := range []struct {
		user, path string
		want       int
	}{
		{"user", secret, http.StatusForbidden},
		{"user", dir + "/link", http.StatusForbidden},
		{"user", dir + "/none", http.StatusNotFound},
		{"user", dir, http.StatusBadRequest},
		{"user", dir + "/pipe", http.StatusBadRequest},
		{"user", dir + "/a\x00b", http.StatusBadRequest},
		{"user", dir + "/" + strings.Repeat("x", 5000), http.StatusBadRequest},
		{"nobody-there", dir, http.StatusUnauthorized},
	} {
		if status, body := f.get(t, c.user, c.path); status != c.want {
			t.Errorf("GET %.60q as %s: %d %.100s, want %d", c.path, c.user, status, body, c.want)
		}
	}
	for _, c := range []struct {
		path string
		want int
	}{
		{secret, http.StatusForbidden},
		{dir + "/link", http.StatusForbidden},
		{dir, http.StatusBadRequest},
		{dir + "/pipe", http.StatusBadRequest},
		{"/etc/envd-test", http.StatusForbidden},
	} {
		if status, body := f.upload(t, "user", "", c.path, "x"); status != c.want {
			t.Errorf("POST %.60q: %d %.100s, want %d", c.path, status, body, c.want)
		}
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "root's" {
		t.Errorf("the secret is %q, %v", got, err)
	}
	for _, c := range []struct {
		name, kind, body string
		want             int
	}{
		{"no content type", "", "", http.StatusBadRequest},
		{"another one", "text/plain", "x", http.StatusBadRequest},
		{"no boundary", "multipart/form-data", "x", http.StatusBadRequest},
		{"cut off", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/x\"\r\n\r\nhalf", http.StatusBadRequest},
		{"no name", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--\r\n", http.StatusBadRequest},
		{"no file", "multipart/form-data; boundary=b", "--b--\r\n", http.StatusBadRequest},
	} {
		if status, body := f.post(t, "/files?username=user", c.kind, strings.NewReader(c.body)); status != c.want {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
	}
	if status, _ := f.post(t, "/files?username=user&path="+dir+"/m", "application/octet-stream", strings.NewReader("x"), ModeHeader, "4755"); status != http.StatusBadRequest {
		t.Errorf("a setuid mode: %d", status)
	}
}

func TestFilesystem(t *testing.T) {
	f := daemon(t)
	ctx, dir := ctxOf(t), f.home(t)
	mkdir := func(p string) error {
		_, err := f.files.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: p}))
		return err
	}
	if err := mkdir(dir + "/a/b"); err != nil {
		t.Fatal(err)
	}
	if err := mkdir(dir + "/a/b"); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("making it twice: %v", err)
	}
	if err := mkdir("/etc/envd-test"); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("as the user in /etc: %v", err)
	}
	if status, body := f.upload(t, "user", "", dir+"/a/file", "12345"); status != http.StatusOK {
		t.Fatal(body)
	}
	if err := os.Symlink("file", dir+"/a/link"); err != nil {
		t.Fatal(err)
	}
	st, err := f.files.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: dir + "/a/file"}))
	if err != nil {
		t.Fatal(err)
	}
	if e := st.Msg.GetEntry(); e.GetType() != filesystem.FileType_FILE_TYPE_FILE || e.GetSize() != 5 || e.GetOwner() != "user" || e.GetGroup() != "user" ||
		e.GetMode() != 0o644 || e.GetPermissions() != "-rw-r--r--" || e.GetName() != "file" {
		t.Errorf("got %v", e)
	}
	mv, err := f.files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: dir + "/a/file", Destination: dir + "/new/parent/moved"}))
	if err != nil || mv.Msg.GetEntry().GetPath() != dir+"/new/parent/moved" {
		t.Errorf("got %v, %v", mv, err)
	}
	list, err := f.files.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: dir, Depth: 3}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list.Msg.GetEntries() {
		got = append(got, fmt.Sprintf("%s:%d", strings.TrimPrefix(e.GetPath(), dir), e.GetType()))
	}
	if want := "/a:2 /a/b:2 /a/link:3 /new:2 /new/parent:2 /new/parent/moved:1"; strings.Join(got, " ") != want {
		t.Errorf("got %q", got)
	}
	for range 2 { // removing what is not there succeeds
		if _, err := f.files.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: dir + "/new"})); err != nil {
			t.Error(err)
		}
	}
	if _, err := f.files.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: dir + "/new"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("what was removed: %v", err)
	}
	if _, err := f.files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: dir + "/none", Destination: dir + "/x"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("moving what is not there: %v", err)
	}
}
