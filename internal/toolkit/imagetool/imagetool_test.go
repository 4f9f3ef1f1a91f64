package imagetool

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestOrdersArriveAndAreIdempotent(t *testing.T) {
	b := newBox(t)
	b.want(exitOK, "No pictures", "wait")
	b.want(exitOK, "ordered", b.orderArgs("a flying cat", "cat.png")...)
	b.want(exitOK, "ordered", b.orderArgs("青い犬", "dog.png")...)
	b.want(exitOK, "ordered", b.orderArgs("一只企鹅", "deep/penguin.png")...)
	out := b.want(exitOK, "All 3 pictures are there", "wait")
	if strings.Count(out, "done ") != 3 {
		t.Errorf("each picture is announced once:\n%s", out)
	}
	for _, name := range []string{"cat.png", "dog.png", "deep/penguin.png"} {
		checkPicture(t, b.path(name), 96, 64)
	}
	b.want(exitOK, "same order", b.orderArgs("a  flying cat", "cat.png")...)
	if n := b.requests(); n != 3 {
		t.Errorf("%d requests for 3 pictures", n)
	}
	b.want(exitOK, "a flying cat", "list")
	// Another size is another order; a file that is gone is fetched again.
	b.want(exitOK, "ordered", "order", "a flying cat", "--out", b.path("cat.png"), "--size", "32x32")
	b.want(exitOK, "All", "wait")
	checkPicture(t, b.path("cat.png"), 32, 32)
	if err := os.Remove(b.path("dog.png")); err != nil {
		t.Fatal(err)
	}
	b.want(exitOK, "ordered again", b.orderArgs("青い犬", "dog.png")...)
	b.want(exitOK, "All 3", "wait")
	checkPicture(t, b.path("dog.png"), 96, 64)
}

func TestSameOrderManyTimesAtOnce(t *testing.T) {
	b := newBox(t)
	open := make(chan struct{})
	b.before = func(http.ResponseWriter, string, int) bool { <-open; return false }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if code, out := b.run(b.orderArgs("a cat", "cat.png")...); code != exitOK {
				t.Errorf("exit %d: %s", code, out)
			}
		})
	}
	wg.Wait()
	close(open)
	b.want(exitOK, "All 1", "wait")
	if n := b.requests(); n != 1 {
		t.Errorf("%d requests for one order", n)
	}
}

func TestRefusedOrderSaysWhyAndOthersArrive(t *testing.T) {
	b := newBox(t)
	b.before = func(w http.ResponseWriter, prompt string, _ int) bool {
		if !strings.Contains(prompt, "dog") {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"error":{"message":"Pictures are used up\nin this job.","type":"permission_error","code":"budget_exhausted"}}`)
		return true
	}
	b.want(exitOK, "ordered", b.orderArgs("a dog", "dog.png")...)
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	out := b.want(exitFailed, "1 of 2 pictures are there, 1 failed", "wait")
	if want := "refused (403): budget_exhausted: Pictures are used up in this job."; !strings.Contains(out, want) {
		t.Errorf("the refusal does not say %q:\n%s", want, out)
	}
	checkPicture(t, b.path("cat.png"), 96, 64)
	if _, err := os.Stat(b.path("dog.png")); err == nil {
		t.Error("a refused order wrote a file")
	}
	b.want(exitOK, "FAILED", "list")
	b.want(exitFailed, "失敗", "wait", "--lang", "ja")
	b.want(exitFailed, "失败", "wait", "--lang=zh")
	// The same order after a failure is a new try.
	b.before = nil
	b.want(exitOK, "ordered again", b.orderArgs("a dog", "dog.png")...)
	b.want(exitOK, "All 2", "wait")
}

func TestTooManyRequestsIsRetriedAfterItsTime(t *testing.T) {
	b := newBox(t)
	b.before = func(w http.ResponseWriter, _ string, nth int) bool {
		if nth > 1 {
			return false
		}
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":{"message":"Slow down.","code":"rate_limited"}}`)
		return true
	}
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	out := b.want(exitOK, "All 1", "wait")
	if !strings.Contains(out, "too many requests at once (429): rate_limited: Slow down") || !strings.Contains(out, "trying again in 2 s") {
		t.Errorf("the wait does not tell about the pause:\n%s", out)
	}
	if len(b.when) != 2 {
		t.Fatalf("%d requests", len(b.when))
	}
	// Not a measure of speed: the second must not come before the time it was given.
	if gap := b.when[1].Sub(b.when[0]); gap < 2*time.Second {
		t.Errorf("it asked again after %v, before the 2 s were over", gap)
	}
}

func TestKilledProcessIsReported(t *testing.T) {
	b := newBox(t)
	asked := make(chan struct{}, 1)
	release := make(chan struct{})
	b.before = func(_ http.ResponseWriter, prompt string, nth int) bool {
		if nth == 1 {
			asked <- struct{}{}
			<-release
		}
		return false
	}
	defer close(release)
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("the order's process does not ask")
	}
	orders, err := folder{b.state}.all()
	if err != nil || len(orders) != 1 || orders[0].PID == 0 {
		t.Fatalf("orders %v, %v", orders, err)
	}
	b.want(exitOK, "same order", b.orderArgs("a cat", "cat.png")...)
	if err := syscall.Kill(orders[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.want(exitFailed, "stopped before it had finished. Give the same order again", "wait", "--timeout", "60")
	b.want(exitOK, "ordered again", b.orderArgs("a cat", "cat.png")...)
	b.want(exitOK, "All 1", "wait")
	checkPicture(t, b.path("cat.png"), 96, 64)
}

func TestWaitEndsAtItsDeadline(t *testing.T) {
	b := newBox(t)
	release := make(chan struct{})
	b.before = func(http.ResponseWriter, string, int) bool { <-release; return false }
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	b.want(exitFailed, "1 pictures are still on their way after 1 s", "wait", "--timeout", "1")
	close(release)
	b.want(exitOK, "All 1", "wait")
}

func TestAnswersThatAreNoPicture(t *testing.T) {
	for name, answer := range map[string]string{
		"not json":   "<html>",
		"empty":      `{"data":[]}`,
		"not base64": `{"data":[{"b64_json":"***"}]}`,
		"not a png":  `{"data":[{"b64_json":"R0lGODlhAQABAAAAACw="}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.before = func(w http.ResponseWriter, _ string, _ int) bool { fmt.Fprint(w, answer); return true }
			b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
			b.want(exitFailed, "what arrived is not a picture", "wait")
			if _, err := os.Stat(b.path("cat.png")); err == nil {
				t.Error("something was written")
			}
		})
	}
}

func TestRedirectDoesNotTakeTheGrantAway(t *testing.T) {
	b := newBox(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	b.before = func(w http.ResponseWriter, _ string, _ int) bool {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
		return true
	}
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	b.want(exitFailed, "refused (307)", "wait")
}

func TestNoServiceAndNoGrant(t *testing.T) {
	b := newBox(t)
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	t.Setenv("DREAMCORE_IMAGE_URL", dead.URL)
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	out := b.want(exitFailed, "does not answer: connection refused", "wait")
	if !strings.Contains(out, "try 1 failed") {
		t.Errorf("it tries more than once:\n%s", out)
	}
	t.Setenv("DREAMCORE_GRANT_FILE", filepath.Join(b.project, "none"))
	b.want(exitOK, "ordered", b.orderArgs("a dog", "dog.png")...)
	b.want(exitFailed, "grant of this job could not be read", "wait")
}

func TestTheGrantIsNowhereButInTheRequest(t *testing.T) {
	b := newBox(t)
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	out := b.want(exitOK, "All 1", "wait")
	if strings.Contains(out, grant) {
		t.Error("the grant was printed")
	}
	err := filepath.WalkDir(b.state, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(grant)) {
			t.Errorf("%s holds the grant", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneStyleForAGame(t *testing.T) {
	b := newBox(t)
	b.want(exitOK, "ordered", b.orderArgs("a dog", "dog.png")...)
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png", "--style", "pixel art")...)
	b.want(exitOK, "ordered", b.orderArgs("a fox", "fox.png")...)
	b.want(exitOK, "ordered", b.orderArgs("a pig", "pig.png", "--like", b.path("cat.png"))...)
	b.want(exitOK, "All 4", "wait")
	b.want(exitOK, "same order", b.orderArgs("a dog", "dog.png")...) // it had no style and keeps having none
	b.want(exitUsage, "no such picture", b.orderArgs("a cow", "cow.png", "--like", b.path("none.png"))...)
	orders, err := folder{b.state}.all()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range orders {
		got[o.Words] = o.Style
	}
	for words, style := range map[string]string{"a dog": "", "a cat": "pixel art", "a fox": "pixel art", "a pig": "pixel art"} {
		if got[words] != style {
			t.Errorf("%s has the style %q, want %q", words, got[words], style)
		}
	}
}

func TestUsage(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		says string
		args []string
	}{
		{"Usage", nil},
		{"Usage", []string{"paint"}},
		{"Say in words", []string{"order", "--out", "x.png"}},
		{"Say in words", []string{"order", "  ", "--out", "x.png"}},
		{"must name a .png", []string{"order", "a cat"}},
		{"must name a .png", []string{"order", "a cat", "--out", "x.jpg"}},
		{"--size 5x5", []string{"order", "a cat", "--out", "x.png", "--size", "5x5"}},
		{"--size huge", []string{"order", "a cat", "--out", "x.png", "--size", "huge"}},
		{"--size 256", []string{"order", "a cat", "--out", "x.png", "--size", "256"}},
		{"--size 9999x10", []string{"order", "a cat", "--out", "x.png", "--size", "9999x10"}},
		{"--colour is not an option", []string{"order", "a cat", "--colour", "red"}},
		{"at most 1000", []string{"order", strings.Repeat("x", 1001), "--out", "x.png"}},
		{"no order nope", []string{"wait", "nope"}},
		{"no order ../../etc/passwd", []string{"wait", "../../etc/passwd"}},
	} {
		b.want(exitUsage, c.says, c.args...)
	}
	if n := b.requests(); n != 0 {
		t.Errorf("%d requests were made", n)
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	b := newBox(t)
	if err := os.WriteFile(filepath.Join(b.project, "assets"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	b.want(exitFailed, "could not be written: not a directory. Choose another --out", "wait")
}

// The state folder may lie on another file system than the project.
func TestStateOnAnotherFileSystem(t *testing.T) {
	b := newBox(t)
	shm, err := os.MkdirTemp("/dev/shm", "imagetool-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(shm); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("DREAMCORE_STATE", shm)
	b.state = shm
	b.want(exitOK, "ordered", b.orderArgs("a cat", "cat.png")...)
	b.want(exitOK, "All 1", "wait")
	checkPicture(t, b.path("cat.png"), 96, 64)
	files, err := os.ReadDir(filepath.Dir(b.path("cat.png")))
	if err != nil || len(files) != 1 {
		t.Errorf("beside the picture lies more: %v, %v", files, err)
	}
}

// A later order for the same file takes the place of an earlier one.
func TestLaterOrderForTheSameFileWins(t *testing.T) {
	b := newBox(t)
	release := make(chan struct{})
	asked := make(chan struct{}, 2)
	b.before = func(_ http.ResponseWriter, prompt string, _ int) bool {
		if prompt == "a cat" {
			asked <- struct{}{}
			<-release
		}
		return false
	}
	b.want(exitOK, "ordered", b.orderArgs("a cat", "hero.png")...)
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("the order's process does not ask")
	}
	b.want(exitOK, "ordered", b.orderArgs("a dog", "hero.png")...)
	b.want(exitOK, "All 1", "wait")
	before, err := os.ReadFile(b.path("hero.png"))
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	b.settle()
	after, err := os.ReadFile(b.path("hero.png"))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the earlier order wrote over the later one: %v", err)
	}
	b.want(exitOK, "All 1", "wait")
}

// The toolkit goes into every sandbox: it must not carry the pictures.
func TestStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	if strings.Contains(string(out), "dreamcore/internal/offline") {
		t.Error("imagetool depends on internal/offline")
	}
}
