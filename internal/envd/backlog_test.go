package envd

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// all takes everything until the end and returns it.
func (r *reader) all(t interface{ Fatalf(string, ...any) }) []byte {
	var got []byte
	for {
		p, what := r.peek(context.Background(), time.Minute)
		switch what {
		case more:
			got = append(got, p.data...)
			r.take()
		case over:
			return got
		default:
			t.Fatalf("outcome %d", what)
			return nil
		}
	}
}

// With one reader nothing is lost, however small the backlog and whatever the
// order of writing and reading.
func TestBacklogLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBacklog(rapid.IntRange(1, 64).Draw(t, "limit"), time.Minute, new(atomic.Int64))
		pieces := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 100), 0, 50).Draw(t, "pieces")
		r := b.attach()
		go func() {
			for _, p := range pieces {
				b.add(stdout, p)
			}
			b.close()
		}()
		if got, want := r.all(t), bytes.Join(pieces, nil); !bytes.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// Two readers that are there from the start both get everything.
func TestBacklogTwoReaders(t *testing.T) {
	b := newBacklog(100, time.Minute, new(atomic.Int64))
	r1, r2 := b.attach(), b.attach()
	var want []byte
	got := make(chan []byte, 2)
	for _, r := range []*reader{r1, r2} {
		go func() { got <- r.all(t) }()
	}
	for i := range 1000 {
		p := bytes.Repeat([]byte{byte(i)}, i%90+1)
		want = append(want, p...)
		b.add(stderr, p)
	}
	b.close()
	for range 2 {
		if g := <-got; !bytes.Equal(g, want) {
			t.Errorf("a reader got %d bytes of %d", len(g), len(want))
		}
	}
}

// With nobody reading, the writer never waits, memory is bounded, and the
// newest output is kept for the next reader.
func TestBacklogKeepsTheNewest(t *testing.T) {
	b := newBacklog(1000, time.Minute, new(atomic.Int64))
	for i := range 100_000 {
		b.add(stdout, []byte{byte(i), byte(i >> 8), byte(i >> 16), '.'})
	}
	b.close()
	got := b.attach().all(t)
	if len(got) < 400 || len(got) > 1000 || b.dropped != 400_000-int64(len(got)) {
		t.Errorf("%d bytes kept, %d dropped", len(got), b.dropped)
	}
	if last := 99_999; !bytes.HasSuffix(got, []byte{byte(last), byte(last >> 8 & 0xff), byte(last >> 16), '.'}) {
		t.Errorf("the last piece is %v", got[len(got)-4:])
	}
}

// What a reader did not take stays for the next one.
func TestBacklogIsHandedOn(t *testing.T) {
	b := newBacklog(1000, time.Minute, new(atomic.Int64))
	b.add(stdout, []byte("one "))
	b.add(stderr, []byte("two "))
	r := b.attach()
	if p, what := r.peek(context.Background(), time.Minute); what != more || string(p.data) != "one " {
		t.Fatalf("got %q, %d", p.data, what)
	}
	r.take()
	// It looks at the second and goes away before it has sent it.
	if p, what := r.peek(context.Background(), time.Minute); what != more || string(p.data) != "two " {
		t.Fatalf("got %q, %d", p.data, what)
	}
	r.detach()
	b.add(stdout, []byte("three"))
	b.close()
	if got := string(b.attach().all(t)); got != "two three" {
		t.Errorf("got %q", got)
	}
}

// A reader that takes nothing is cut off, and the writer goes on. Time is the
// bubble's: it moves only when the quick reader has taken all that it can.
func TestBacklogCutsTheStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(10, 10*time.Second, new(atomic.Int64))
		stalled, quick := b.attach(), b.attach()
		got := make(chan []byte, 1)
		go func() {
			defer close(got)
			got <- quick.all(t)
		}()
		want := bytes.Repeat([]byte("0123456789"), 20)
		for i := 0; i < len(want); i += 5 {
			b.add(stdout, want[i:i+5])
		}
		b.close()
		if g := <-got; !bytes.Equal(g, want) {
			t.Errorf("the quick reader got %d bytes of %d", len(g), len(want))
		}
		if _, what := stalled.peek(context.Background(), time.Minute); what != tooSlow {
			t.Errorf("the stalled reader's outcome is %d", what)
		}
	})
}

func TestBacklogPeekEnds(t *testing.T) {
	b := newBacklog(10, time.Minute, new(atomic.Int64))
	r := b.attach()
	if _, what := r.peek(context.Background(), time.Millisecond); what != idle {
		t.Errorf("outcome %d, want idle", what)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, what := r.peek(ctx, time.Minute); what != stopped {
		t.Errorf("outcome %d, want stopped", what)
	}
}
