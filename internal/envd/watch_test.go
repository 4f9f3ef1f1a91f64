package envd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"dreamcore/internal/envd/spec/filesystem"
)

// eyes is a client that watches a folder by a stream.
type eyes struct {
	t      *testing.T
	stream *connect.ServerStreamForClient[filesystem.WatchDirResponse]
	seen   []string // "type name"
	last   *filesystem.FilesystemEvent
	pings  int
}

func (f *fixture) watching(t *testing.T, ctx context.Context, req *filesystem.WatchDirRequest, header ...string) (*eyes, error) {
	t.Helper()
	r := connect.NewRequest(req)
	r.Header().Set("Authorization", as("user"))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header().Set(header[i], header[i+1])
	}
	stream, err := f.files.WatchDir(ctx, r)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { stream.Close() })
	if !stream.Receive() {
		return nil, stream.Err()
	}
	if stream.Msg().GetStart() == nil {
		t.Fatalf("the first message is %v", stream.Msg())
	}
	return &eyes{t: t, stream: stream}, nil
}

func spoken(e *filesystem.FilesystemEvent) string {
	return strings.ToLower(strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_")) + " " + e.GetName()
}

// until reads events until want came, which it returns.
func (e *eyes) until(want string) *filesystem.FilesystemEvent {
	e.t.Helper()
	for e.stream.Receive() {
		if x := e.stream.Msg().GetFilesystem(); x != nil {
			e.seen, e.last = append(e.seen, spoken(x)), x
			if spoken(x) == want {
				return x
			}
		}
		if e.stream.Msg().GetKeepalive() != nil {
			e.pings++
		}
	}
	e.t.Fatalf("the stream ended before %q, with %v, after %q", want, e.stream.Err(), e.seen)
	return nil
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWatchDir(t *testing.T) {
	f, dir := daemon(t), daemon(t).home(t)
	must(t, os.Mkdir(dir+"/below", 0o755))
	w, err := f.watching(t, ctxOf(t), &filesystem.WatchDirRequest{Path: filepath.Base(dir), IncludeEntry: true})
	must(t, err)
	must(t, os.WriteFile(dir+"/a", []byte("12345"), 0o640))
	if e := w.until("create a"); e.GetEntry().GetPath() != dir+"/a" {
		t.Errorf("got %v", e)
	}
	if e := w.until("write a"); e.GetEntry().GetSize() != 5 || e.GetEntry().GetPermissions() != "-rw-r-----" {
		t.Errorf("got %v", e)
	}
	must(t, os.Chmod(dir+"/a", 0o600))
	w.until("chmod a")
	must(t, os.Rename(dir+"/a", dir+"/b"))
	if e := w.until("rename a"); e.Entry != nil {
		t.Errorf("what has gone is described: %v", e)
	}
	w.until("create b")
	must(t, os.Remove(dir+"/b"))
	w.until("remove b")
	// Not recursive: what happens below is nobody's business.
	must(t, os.WriteFile(dir+"/below/x", []byte("x"), 0o600), os.Mkdir(dir+"/mark", 0o755))
	w.until("create mark")
	for _, s := range w.seen {
		if strings.Contains(s, "below/") {
			t.Errorf("saw %q", s)
		}
	}
	// The end of the folder is the last event, and the stream ends without error.
	must(t, os.RemoveAll(dir))
	w.until("remove .")
	if w.stream.Receive() || w.stream.Err() != nil {
		t.Errorf("after its end: %v, %v", w.stream.Msg(), w.stream.Err())
	}
}

func TestWatchDirRecursive(t *testing.T) {
	f, dir, outside := daemon(t), daemon(t).home(t), daemon(t).home(t)
	must(t, os.MkdirAll(dir+"/old/deep", 0o755), os.MkdirAll(outside+"/came/inner", 0o755), os.WriteFile(outside+"/came/inner/f", []byte("f"), 0o644))
	w, err := f.watching(t, ctxOf(t), &filesystem.WatchDirRequest{Path: dir, Recursive: true})
	must(t, err)
	must(t, os.WriteFile(dir+"/old/deep/x", []byte("x"), 0o644))
	w.until("write old/deep/x")
	// However quickly a tree grows, each file of it is reported once as created
	// and as written.
	for i := range 30 {
		p := fmt.Sprintf("new%d/a/b", i)
		must(t, os.MkdirAll(filepath.Join(dir, p), 0o755), os.WriteFile(filepath.Join(dir, p, "f"), []byte("f"), 0o644))
		w.until("write " + p + "/f")
		if n := count(w.seen, "create "+p+"/f"); n != 1 {
			t.Errorf("%s was created %d times: %q", p, n, w.seen)
		}
	}
	// Moved inside: the new names count from then on, the old are silent.
	must(t, os.Rename(dir+"/old", dir+"/moved"), os.WriteFile(dir+"/moved/deep/y", []byte("y"), 0o644))
	w.until("write moved/deep/y")
	if i, j := slices.Index(w.seen, "rename old"), slices.Index(w.seen, "create moved"); i < 0 || j < i {
		t.Errorf("a move inside: %q", w.seen[max(0, len(w.seen)-10):])
	}
	// Moved out: silent. Moved in: reported with what is in it.
	must(t, os.Rename(dir+"/moved", outside+"/gone"), os.WriteFile(outside+"/gone/deep/z", []byte("z"), 0o644))
	must(t, os.Rename(outside+"/came", dir+"/came"))
	w.until("write came/inner/f")
	must(t, os.WriteFile(dir+"/came/inner/g", []byte("g"), 0o644))
	w.until("write came/inner/g")
	for _, s := range w.seen {
		if strings.HasSuffix(s, "deep/z") {
			t.Errorf("what was moved out is still reported: %q", s)
		}
	}
	must(t, os.RemoveAll(dir+"/came"))
	w.until("remove came")
}

func count(all []string, want string) (n int) {
	for _, s := range all {
		if s == want {
			n++
		}
	}
	return n
}

func TestWatchRefusals(t *testing.T) {
	f, dir := daemon(t), daemon(t).home(t)
	must(t, os.WriteFile(dir+"/file", nil, 0o644), os.Mkdir(dir+"/closed", 0o700), os.Symlink(dir, dir+"/link"))
	for _, c := range []struct {
		path string
		want connect.Code
	}{
		{dir + "/none", connect.CodeNotFound},
		{dir + "/file", connect.CodeInvalidArgument},
		{dir + "/file/below", connect.CodeInvalidArgument},
		{dir + "/closed", connect.CodePermissionDenied},
		{dir + "/a\x00b", connect.CodeInvalidArgument},
		{"/" + strings.Repeat("x", 5000), connect.CodeInvalidArgument},
	} {
		_, err := f.watching(t, ctxOf(t), &filesystem.WatchDirRequest{Path: c.path})
		if connect.CodeOf(err) != c.want {
			t.Errorf("WatchDir %.60q: %v, want %v", c.path, err, c.want)
		}
		_, err = f.files.CreateWatcher(ctxOf(t), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: c.path}))
		if connect.CodeOf(err) != c.want {
			t.Errorf("CreateWatcher %.60q: %v, want %v", c.path, err, c.want)
		}
	}
	// A link to a folder is that folder.
	w, err := f.watching(t, ctxOf(t), &filesystem.WatchDirRequest{Path: dir + "/link", Recursive: true})
	must(t, err, os.WriteFile(dir+"/n", nil, 0o644))
	w.until("create n")
	for _, id := range []string{"", "x", strings.Repeat("y", 5000)} {
		_, err := f.files.GetWatcherEvents(ctxOf(t), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
		_, err2 := f.files.RemoveWatcher(ctxOf(t), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
		if connect.CodeOf(err) != connect.CodeNotFound || connect.CodeOf(err2) != connect.CodeNotFound {
			t.Errorf("watcher %.10q: %v, %v", id, err, err2)
		}
	}
}

// poll asks a watcher until an event or an error comes.
func (f *fixture) poll(t *testing.T, id string) ([]string, error) {
	t.Helper()
	for ctx := ctxOf(t); ; time.Sleep(2 * time.Millisecond) {
		res, err := f.files.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			return nil, err
		}
		var all []string
		for _, e := range res.Msg.GetEvents() {
			all = append(all, spoken(e))
		}
		if len(all) > 0 {
			return all, nil
		}
	}
}

// A client that polls too seldom is told once that events were lost, after
// those that were kept; then they count again.
func TestPolledWatcher(t *testing.T) {
	f, dir := daemon(t), daemon(t).home(t)
	res, err := f.files.CreateWatcher(ctxOf(t), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: dir}))
	must(t, err)
	id := res.Msg.GetWatcherId()
	must(t, os.WriteFile(dir+"/a", nil, 0o644))
	if got, err := f.poll(t, id); err != nil || got[0] != "create a" {
		t.Errorf("got %q, %v", got, err)
	}
	f.mu.Lock()
	w := f.Server.polled[id].watcher
	f.mu.Unlock()
	// Slowly enough for the kernel's own queue, which has an end too.
	for i := 0; ; i++ {
		must(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644))
		if i%1000 == 0 {
			time.Sleep(20 * time.Millisecond)
		}
		w.mu.Lock()
		lost, size := w.err, w.size
		w.mu.Unlock()
		if size > maxWatchBytes {
			t.Fatalf("%d bytes are kept", size)
		}
		if lost != nil {
			break
		}
		if i > 100_000 {
			t.Fatal("the queue has no end")
		}
	}
	kept, err := f.poll(t, id)
	if err != nil || len(kept) < 1000 {
		t.Errorf("%d were kept, %v", len(kept), err)
	}
	if _, err := f.poll(t, id); connect.CodeOf(err) != connect.CodeDataLoss {
		t.Errorf("losing events was not told: %v", err)
	}
	must(t, os.WriteFile(dir+"/after", nil, 0o644))
	for seen := false; !seen; {
		got, err := f.poll(t, id)
		must(t, err)
		seen = slices.Contains(got, "create after")
	}
	must(t, os.RemoveAll(dir))
	for err = nil; err == nil || connect.CodeOf(err) == connect.CodeDataLoss; {
		_, err = f.poll(t, id)
	}
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the folder is gone: %v", err)
	}
	if _, err := f.files.RemoveWatcher(ctxOf(t), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id})); err != nil {
		t.Error(err)
	}
}

// A stream whose client takes nothing ends with the truth.
func TestWatchDirOverflow(t *testing.T) {
	f, dir := daemon(t), daemon(t).home(t)
	w, err := f.watching(t, ctxOf(t), &filesystem.WatchDirRequest{Path: dir})
	must(t, err)
	// Two files in turn: the kernel merges what happens again to the same one.
	names := []string{dir + "/" + strings.Repeat("a", 200), dir + "/" + strings.Repeat("b", 200)}
	must(t, os.WriteFile(names[0], nil, 0o644), os.WriteFile(names[1], nil, 0o644))
	for i := range 100_000 {
		must(t, os.Chmod(names[i%2], 0o644))
	}
	n := 0
	for w.stream.Receive() {
		n++
	}
	if connect.CodeOf(w.stream.Err()) != connect.CodeDataLoss || n == 0 {
		t.Errorf("%d events, then %v", n, w.stream.Err())
	}
}

// Watchers are counted, whoever asks for them, and their places are given back:
// by a client that removes one, that ends its stream, that goes away, and that
// forgets what it polls.
func TestWatcherLimit(t *testing.T) {
	f, dir := daemon(t), daemon(t).home(t)
	ctx, cancel := context.WithCancel(ctxOf(t))
	create := func() (string, error) {
		res, err := f.files.CreateWatcher(ctxOf(t), connect.NewRequest(&filesystem.CreateWatcherRequest{Path: dir}))
		if err != nil {
			return "", err
		}
		return res.Msg.GetWatcherId(), nil
	}
	f.settled(t, 0)
	var ids []string
	for i := range f.cfg.MaxWatchers {
		if i%2 == 0 {
			id, err := create()
			must(t, err)
			ids = append(ids, id)
			continue
		}
		_, err := f.watching(t, ctx, &filesystem.WatchDirRequest{Path: dir})
		must(t, err)
	}
	if _, err := create(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	if _, err := f.watching(t, ctx, &filesystem.WatchDirRequest{Path: dir}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	f.mu.Lock()
	f.Server.polled[ids[0]].asked = time.Now().Add(-2 * pollPatience)
	f.mu.Unlock()
	id, err := create()
	if err != nil {
		t.Errorf("in the place of a forgotten one: %v", err)
	}
	if _, err := f.files.GetWatcherEvents(ctxOf(t), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: ids[0]})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the forgotten one: %v", err)
	}
	cancel()
	for _, id := range append(ids[1:], id) {
		_, err := f.files.RemoveWatcher(ctxOf(t), connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: id}))
		must(t, err)
	}
	f.settled(t, 0)
}

// settled waits until so many watchers are left, and no file of one.
func (f *fixture) settled(t *testing.T, want int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		f.mu.Lock()
		n := f.watchers
		f.mu.Unlock()
		open := 0
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		for _, d := range fds {
			if to, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil && strings.Contains(to, "inotify") {
				open++
			}
		}
		if n == want && open == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d watchers and %d of their files are left, want %d", n, open, want)
		}
	}
}

func TestWatchDirKeepalive(t *testing.T) {
	f, dir := daemon(t), daemon(t).home(t)
	w, err := f.watching(t, ctxOf(t), &filesystem.WatchDirRequest{Path: dir}, keepaliveHeader, "1")
	must(t, err)
	if !w.stream.Receive() || w.stream.Msg().GetKeepalive() == nil {
		t.Errorf("got %v, %v", w.stream.Msg(), w.stream.Err())
	}
	// The deadline of the request ends it.
	w, err = f.watching(t, context.Background(), &filesystem.WatchDirRequest{Path: dir}, "Connect-Timeout-Ms", "300")
	must(t, err)
	if w.stream.Receive() || connect.CodeOf(w.stream.Err()) != connect.CodeDeadlineExceeded {
		t.Errorf("got %v, %v", w.stream.Msg(), w.stream.Err())
	}
}
