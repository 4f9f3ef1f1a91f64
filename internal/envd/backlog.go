package envd

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// source says where a piece of output came from.
type source int

const (
	stdout source = iota
	stderr
	terminal
)

// piece is output as it came.
type piece struct {
	from source
	data []byte
}

// backlog holds what a process has printed until its readers have taken it.
//
// While somebody reads, nothing is lost: a process that prints faster than its
// slowest reader takes waits, as it would on a pipe. While nobody reads, the
// process never waits: the newest limit bytes are kept for whoever comes next
// and older ones are dropped.
type backlog struct {
	limit int
	stall time.Duration // a reader that takes nothing for so long while the process waits is cut off
	total *atomic.Int64 // bytes that all backlogs hold together

	mu      sync.Mutex
	pieces  []piece
	first   int64 // number of pieces[0]
	size    int
	dropped int64 // bytes that nobody will see
	readers map[*reader]bool
	closed  bool
	// No reader comes after those that are there.
	forgotten bool
	changed   chan struct{} // closed and replaced whenever anything above changes
}

// reader is one client's place in a backlog.
type reader struct {
	b    *backlog
	next int64
	cut  bool
}

func newBacklog(limit int, stall time.Duration, total *atomic.Int64) *backlog {
	return &backlog{limit: limit, stall: stall, total: total, readers: map[*reader]bool{}, changed: make(chan struct{})}
}

// signal wakes everybody who waits. b.mu is held.
func (b *backlog) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// add appends output; it keeps data. It waits while readers are behind.
func (b *backlog) add(from source, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.readers) == 0 && len(data) > unreadBytes {
		// What nobody reads is dropped in pieces: not too much at once.
		b.append(from, bytes.Clone(data[:unreadBytes]))
		data = data[unreadBytes:]
	}
	b.append(from, data)
}

// append is add, of one piece. b.mu is held.
func (b *backlog) append(from source, data []byte) {
	for b.size+cost(data) > b.limit && b.size > 0 || len(b.readers) == 0 && b.crowded(cost(data)) {
		if len(b.readers) == 0 {
			b.dropFirst(true)
			continue
		}
		before, ch := b.slowest(), b.changed
		b.mu.Unlock()
		t := time.NewTimer(b.stall)
		select {
		case <-ch:
			t.Stop()
			b.mu.Lock()
		case <-t.C:
			b.mu.Lock()
			if len(b.readers) > 0 && b.slowest() == before {
				b.cutSlowest()
			}
		}
	}
	if n := len(b.pieces); n > 0 && len(b.readers) == 0 && b.pieces[n-1].from == from && len(b.pieces[n-1].data)+len(data) <= min(mergedBytes, b.limit/16) {
		// Nobody has looked at it: a line of a few bytes is not worth a piece.
		b.pieces[n-1].data = append(b.pieces[n-1].data, data...)
		b.grow(len(data))
	} else {
		b.pieces = append(b.pieces, piece{from, data})
		b.grow(cost(data))
	}
	b.signal()
}

const (
	pieceBytes  = 64       // what a piece takes beside its data
	mergedBytes = 4 << 10  // pieces that nobody waits for are merged up to this size
	unreadBytes = 32 << 10 // longer ones are cut
)

func cost(data []byte) int { return len(data) + pieceBytes }

func (b *backlog) grow(n int) {
	b.size += n
	b.total.Add(int64(n))
}

// crowded reports whether all backlogs together hold so much that this one must
// keep less than its limit. b.mu is held.
func (b *backlog) crowded(more int) bool {
	return b.size > minBacklogBytes && b.total.Load()+int64(more) > maxBacklogsBytes
}

// forget gives back what is left once nobody reads it, as no new reader comes.
func (b *backlog) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgotten = true
	b.trim()
}

// slowest returns the lowest place of any reader. b.mu is held.
func (b *backlog) slowest() int64 {
	low := b.first + int64(len(b.pieces))
	for r := range b.readers {
		low = min(low, r.next)
	}
	return low
}

func (b *backlog) cutSlowest() {
	low := b.slowest()
	for r := range b.readers {
		if r.next == low {
			r.cut = true
			delete(b.readers, r)
		}
	}
	b.trim()
	b.signal()
}

// trim frees what every reader has taken. b.mu is held.
func (b *backlog) trim() {
	if len(b.readers) == 0 {
		for b.forgotten && len(b.pieces) > 0 {
			b.dropFirst(true)
		}
		return // kept for the next one
	}
	for low := b.slowest(); b.first < low; {
		b.dropFirst(false)
	}
}

func (b *backlog) dropFirst(lost bool) {
	data := b.pieces[0].data
	b.grow(-cost(data))
	if lost {
		b.dropped += int64(len(data))
	}
	b.pieces[0] = piece{}
	b.pieces = b.pieces[1:]
	b.first++
}

// close marks the end; readers get what is left first.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}

// attach adds a reader. The only one starts with what nobody has taken; one
// more starts with what comes now.
func (b *backlog) attach() *reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &reader{b: b, next: b.first}
	if len(b.readers) > 0 {
		r.next = b.first + int64(len(b.pieces))
	}
	b.readers[r] = true
	return r
}

// detach removes r; what it has not taken stays for the next.
func (r *reader) detach() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	delete(r.b.readers, r)
	r.b.trim()
	r.b.signal()
}

// outcome of a reader's peek.
type outcome int

const (
	more    outcome = iota // a piece is there
	over                   // the output has ended
	stopped                // the context ended
	tooSlow                // the reader was cut off
	idle                   // nothing came for the given time
)

// peek waits for the next piece, at most wait. It stays until take.
func (r *reader) peek(ctx context.Context, wait time.Duration) (piece, outcome) {
	t := time.NewTimer(wait)
	defer t.Stop()
	for {
		r.b.mu.Lock()
		i := r.next - r.b.first
		switch {
		case r.cut:
			r.b.mu.Unlock()
			return piece{}, tooSlow
		case i < int64(len(r.b.pieces)):
			p := r.b.pieces[i]
			r.b.mu.Unlock()
			return p, more
		case r.b.closed:
			r.b.mu.Unlock()
			return piece{}, over
		}
		ch := r.b.changed
		r.b.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return piece{}, stopped
		case <-t.C:
			return piece{}, idle
		}
	}
}

// take moves r past the piece that peek returned and frees what every reader
// has taken.
func (r *reader) take() {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.cut {
		return
	}
	r.next++
	b.trim()
	b.signal()
}
