package envd

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
)

func TestWantsGzip(t *testing.T) {
	for _, c := range []struct {
		accept string
		zip    bool
		ok     bool
	}{
		{"", false, true},
		{"identity", false, true},
		{"gzip", true, true},
		{"GZIP", true, true},
		{"gzip;q=0", false, true},
		{"gzip, identity;q=0.5", true, true},
		{"gzip;q=0.5, identity", false, true},
		// What Node, browsers and curl say by themselves.
		{"gzip, deflate", false, true},
		{"br, gzip, deflate", false, true},
		{"*", false, true},
		{"identity;q=0", false, false},
		{"identity;q=0, gzip", true, true},
		{"identity;q=0, *", true, true},
		{"*;q=0", false, false},
		{"*;q=0, gzip", true, true},
		{"br;q=1, *;q=0", false, false},
		{"gzip;q=nonsense", true, true},
		{";;;,,q=0,\x00", false, true},
	} {
		zip, err := wantsGzip(http.Header{"Accept-Encoding": {c.accept}})
		if zip != c.zip || (err == nil) != c.ok {
			t.Errorf("%q: %v, %v", c.accept, zip, err)
		}
	}
}

// fetch gets a file as it is sent: Go's own client would unpack it.
func (f *fixture) fetch(t *testing.T, p string, header ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctxOf(t), http.MethodGet, f.url+"/files?"+url.Values{"path": {p}, "username": {"user"}}.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, data
}

func TestDownload(t *testing.T) {
	f := daemon(t)
	p := f.home(t) + "/file"
	text := strings.Repeat("0123456789", 100_000)
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	res, data := f.fetch(t, p, "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil || string(plain) != text || res.Header.Get("Content-Encoding") != "gzip" || len(data) > len(text)/10 {
		t.Errorf("%v: %d bytes became %d, %v", res.Header, len(data), len(plain), err)
	}
	if res, data = f.fetch(t, p, "Accept-Encoding", "gzip, deflate"); string(data) != text || res.Header.Get("Content-Encoding") != "" || res.ContentLength != int64(len(text)) {
		t.Errorf("%v, %d bytes", res.Header, len(data))
	}
	if res, data = f.fetch(t, p, "Accept-Encoding", "gzip", "Range", "bytes=5-9"); res.StatusCode != http.StatusPartialContent || string(data) != "56789" || res.Header.Get("Content-Encoding") != "" {
		t.Errorf("%v %q", res.Header, data)
	}
	for _, c := range []struct{ ask, want string }{{"bytes=-3", "789"}, {"bytes=999997-", "789"}, {"bytes=999999-2000000", "9"}} {
		if res, data = f.fetch(t, p, "Range", c.ask); res.StatusCode != http.StatusPartialContent || string(data) != c.want {
			t.Errorf("%s: %d %q", c.ask, res.StatusCode, data)
		}
	}
	if res, _ = f.fetch(t, p, "Range", "bytes=2000000-"); res.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("beyond the end: %d", res.StatusCode)
	}
	if res, data = f.fetch(t, p, "Accept-Encoding", "identity;q=0"); res.StatusCode != http.StatusNotAcceptable {
		t.Errorf("%d %s", res.StatusCode, data)
	}
	res, _ = f.fetch(t, p)
	if res, data = f.fetch(t, p, "If-Modified-Since", res.Header.Get("Last-Modified"), "Accept-Encoding", "gzip"); res.StatusCode != http.StatusNotModified {
		t.Errorf("%d, %d bytes", res.StatusCode, len(data))
	}
	if err := os.WriteFile(p, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if res, _ = f.fetch(t, p); res.Header.Get("Content-Length") != "0" || res.StatusCode != http.StatusOK {
		t.Errorf("an empty file: %d %v", res.StatusCode, res.Header)
	}
}

func TestCompose(t *testing.T) {
	f := daemon(t)
	dir := f.home(t)
	for name, data := range map[string]string{"a": "one ", "b": "two ", "c": "three", "kept": "kept"} {
		if status, _ := f.put(t, dir+"/"+name, data); status != http.StatusOK {
			t.Fatal(status)
		}
	}
	compose := func(body any) (int, string) {
		t.Helper()
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		return f.post(t, "/files/compose", "application/json", bytes.NewReader(data))
	}
	if status, body := compose(composeBody{Sources: []string{dir + "/a", dir + "/b", dir + "/c", dir + "/a"}, Destination: dir + "/new/all", Username: "user"}); status != http.StatusOK || !strings.Contains(body, dir+"/new/all") {
		t.Errorf("%d %s", status, body)
	}
	if data, err := os.ReadFile(dir + "/new/all"); err != nil || string(data) != "one two threeone " {
		t.Errorf("%q, %v", data, err)
	}
	for _, c := range []struct {
		name string
		body any
		want int
	}{
		{"garbage", "x", http.StatusBadRequest},
		{"nothing", composeBody{}, http.StatusBadRequest},
		{"no sources", composeBody{Destination: "/tmp/x"}, http.StatusBadRequest},
		{"too many", composeBody{Destination: "/tmp/x", Sources: make([]string, maxComposeFiles+1)}, http.StatusBadRequest},
		{"into itself", composeBody{Destination: dir + "/kept", Sources: []string{dir + "/kept"}}, http.StatusBadRequest},
		{"a missing source", composeBody{Destination: dir + "/kept", Sources: []string{dir + "/new/all", dir + "/none"}}, http.StatusNotFound},
		{"a folder", composeBody{Destination: dir + "/kept", Sources: []string{dir + "/new"}}, http.StatusBadRequest},
		{"not the user's", composeBody{Destination: dir + "/kept", Sources: []string{"/etc/shadow"}}, http.StatusForbidden},
		{"to where it may not", composeBody{Destination: "/etc/envd-test", Sources: []string{dir + "/new/all"}}, http.StatusForbidden},
		{"nobody", composeBody{Destination: dir + "/x", Sources: []string{dir + "/kept"}, Username: "nobody-there"}, http.StatusUnauthorized},
		{"NUL", composeBody{Destination: dir + "/x\x00", Sources: []string{dir + "/kept"}}, http.StatusBadRequest},
	} {
		if status, body := compose(c.body); status != c.want {
			t.Errorf("%s: %d %s", c.name, status, body)
		}
	}
	// What failed left all as it was.
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
	for p, want := range map[string]string{"/kept": "kept", "/new/all": "one two threeone "} {
		if data, err := os.ReadFile(dir + p); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", p, data, err)
		}
	}
}
