package envd

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"dreamcore/internal/envd/spec/filesystem"
)

func (f *fixture) stat(t *testing.T, p string) *filesystem.EntryInfo {
	t.Helper()
	r := connect.NewRequest(&filesystem.StatRequest{Path: p})
	r.Header().Set("Authorization", as("user"))
	res, err := f.files.Stat(ctxOf(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetEntry()
}

func (f *fixture) put(t *testing.T, p, data string, header ...string) (int, []written) {
	t.Helper()
	status, body := f.post(t, "/files?username=user&path="+url.QueryEscape(p), "application/octet-stream", strings.NewReader(data), header...)
	var all []written
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			t.Fatal(err)
		}
	}
	return status, all
}

func TestMetadata(t *testing.T) {
	f := daemon(t)
	dir := f.home(t)
	p := dir + "/file"
	want := map[string]string{"author": "somebody", "purpose": "a test, really"}
	status, all := f.put(t, p, "x", "X-Metadata-Author", "somebody", "x-metadata-PURPOSE", "a test, really")
	if status != http.StatusOK || !cmp.Equal(all[0].Metadata, want) {
		t.Errorf("%d %v", status, all)
	}
	if got := f.stat(t, p).GetMetadata(); !cmp.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	// An upload replaces all of it, and keeps it through a move and in a list.
	if status, _ := f.put(t, p, "y", "X-Metadata-Stage", "two"); status != http.StatusOK {
		t.Error(status)
	}
	mv, err := f.files.Move(ctxOf(t), connect.NewRequest(&filesystem.MoveRequest{Source: p, Destination: p + "2"}))
	if err != nil || !cmp.Equal(mv.Msg.GetEntry().GetMetadata(), map[string]string{"stage": "two"}) {
		t.Errorf("got %v, %v", mv, err)
	}
	list, err := f.files.ListDir(ctxOf(t), connect.NewRequest(&filesystem.ListDirRequest{Path: dir}))
	if err != nil || len(list.Msg.GetEntries()) != 1 || list.Msg.GetEntries()[0].GetMetadata()["stage"] != "two" {
		t.Errorf("got %v, %v", list, err)
	}
	if status, all := f.put(t, p+"2", "z"); status != http.StatusOK || all[0].Metadata != nil || f.stat(t, p+"2").GetMetadata() != nil {
		t.Errorf("%d, metadata is left: %v", status, f.stat(t, p+"2"))
	}
	// What others set counts too, and what the protocol cannot carry does not.
	if err := unix.Setxattr(p+"2", "user.e2b.by-hand", []byte("yes"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(p+"2", "user.e2b.odd", []byte("\xff\x00"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(p+"2", "user.else", []byte("no"), 0); err != nil {
		t.Fatal(err)
	}
	if got := f.stat(t, p+"2").GetMetadata(); !cmp.Equal(got, map[string]string{"by-hand": "yes"}) {
		t.Errorf("got %v", got)
	}
	for name, header := range map[string][]string{
		"a long key":   {"X-Metadata-" + strings.Repeat("k", maxMetadataKey+1), "v"},
		"no key":       {"X-Metadata-", "v"},
		"not ASCII":    {"X-Metadata-A", "caf\xc3\xa9"},
		"too much":     {"X-Metadata-A", strings.Repeat("v", maxMetadataBytes)},
		"too much too": {"X-Metadata-A", strings.Repeat("v", 2100), "X-Metadata-B", strings.Repeat("v", 2100)},
	} {
		if status, _ := f.put(t, p+"3", "x", header...); status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, status)
		}
	}
	if _, err := os.Stat(p + "3"); err == nil {
		t.Error("a refused upload left a file")
	}
	// The most that is allowed.
	if status, _ := f.put(t, p+"4", "x", "X-Metadata-"+strings.Repeat("k", maxMetadataKey), strings.Repeat("v", 1000)); status != http.StatusOK {
		t.Error(status)
	}
}

// One name that is not UTF-8 does not hide a folder, and neither does a device.
func TestOddNames(t *testing.T) {
	f := daemon(t)
	dir := f.home(t)
	for _, name := range []string{"\xff\xfe", "new\nline", strings.Repeat("x", 255), "日本"} {
		if err := os.WriteFile(dir+"/"+name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("\xff", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(dir+"/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := f.files.ListDir(ctxOf(t), connect.NewRequest(&filesystem.ListDirRequest{Path: dir}))
	if err != nil || len(list.Msg.GetEntries()) != 6 {
		t.Errorf("%d entries, %v", len(list.Msg.GetEntries()), err)
	}
	w, err := f.watching(t, ctxOf(t), &filesystem.WatchDirRequest{Path: dir, IncludeEntry: true})
	must(t, err, os.WriteFile(dir+"/\xfe", nil, 0o644))
	w.until("create \ufffd")
}
