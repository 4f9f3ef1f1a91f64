package engine_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// Many who write and many who read at once: whoever closes a batch of files closes
// nobody else's.
func TestUploadsCloseTheirOwnFilesOnly(t *testing.T) {
	e := enginetest.Start(t)
	sb := boot(t, e)
	want := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	if err := sb.WriteFiles(ctxOf(t), []sandbox.File{{Path: "/workspace/read", Data: want}}); err != nil {
		t.Fatal(err)
	}
	ctx := ctxOf(t)
	var wg, writers sync.WaitGroup
	done := make(chan struct{})
	for w := range 3 {
		wg.Add(1)
		writers.Add(1)
		go func() {
			defer wg.Done()
			defer writers.Done()
			for round := range 40 {
				var files []sandbox.File
				for i := range 200 {
					files = append(files, sandbox.File{Path: fmt.Sprintf("/workspace/%d/%d", w, i), Data: fmt.Appendf(nil, "%d %d", round, i)})
				}
				if err := sb.WriteFiles(ctx, files); err != nil {
					t.Errorf("writer %d, round %d: %v", w, round, err)
				}
			}
		}()
	}
	go func() { writers.Wait(); close(done) }()
	for r := range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-done:
					return
				default:
				}
				// At the SDK's own way in, which tries once.
				got, err := sb.ReadFile(ctx, "/workspace/read", 1<<20)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("reader %d: %d bytes, %v", r, len(got), err)
					return
				}
			}
		}()
	}
	wg.Wait()
}
