package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"dreamcore/internal/keyproxy"
)

// errGone is what a call gets whose proxy ended before it answered.
var errGone = errors.New("the key proxy has ended")

// life is one proxy process and what is asked of it.
type life struct {
	*process
	gone chan struct{} // closed when nothing more comes from it

	mu    sync.Mutex
	why   error // what ended it, when we know better than its exit code
	over  bool
	next  int64
	calls map[int64]chan reply
	conns map[int64]chan struct{}
}

func newLife(p *process) *life {
	l := &life{process: p, gone: make(chan struct{}), calls: map[int64]chan reply{}, conns: map[int64]chan struct{}{}}
	go l.listen()
	return l
}

// listen takes in what the proxy says, until it ends. A proxy that says what
// makes no sense is ended: it may not be itself any more.
func (l *life) listen() {
	err := l.hear()
	l.mu.Lock()
	if l.over = true; l.why == nil && errors.Is(err, errForm) {
		l.why = err
	}
	l.mu.Unlock()
	if errors.Is(err, io.EOF) {
		// It has closed its end, so it is about to be gone.
		select {
		case <-l.ended:
		case <-time.After(closeTimeout):
		}
	}
	l.kill()
	<-l.ended
	_ = l.wire.close() // nothing more is said
	close(l.gone)
}

func (l *life) hear() error {
	for {
		data, files, err := l.wire.read()
		if err != nil {
			return err
		}
		if len(files) > 0 {
			closeAll(files)
			return fmt.Errorf("%w: it hands over descriptors", errForm)
		}
		r, err := decodeReply(data)
		if err != nil {
			return err
		}
		if err := l.take(r); err != nil {
			return err
		}
	}
}

// take passes a reply to who waits for it.
func (l *life) take(r reply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if max(r.ID, r.Done) > l.next {
		return fmt.Errorf("%w: an answer to what was never asked", errForm)
	}
	if c := l.conns[r.Done]; c != nil {
		delete(l.conns, r.Done)
		close(c)
	}
	if c := l.calls[r.ID]; c != nil {
		delete(l.calls, r.ID)
		c <- r // there is room for one
	}
	return nil // nobody may wait any more
}

// number makes the id of a request, and registers who waits for its end.
func (l *life) number(c chan reply, conn chan struct{}) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0, errGone
	}
	l.next++
	if c != nil {
		l.calls[l.next] = c
	} else {
		l.conns[l.next] = conn
	}
	return l.next, nil
}

func (l *life) forget(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, id)
	delete(l.conns, id)
}

// call asks and waits for the answer. errGone means that it may not have been
// heard; another error is the proxy's.
func (l *life) call(ctx context.Context, r request, files ...*os.File) (reply, error) {
	c := make(chan reply, 1)
	id, err := l.number(c, nil)
	if err != nil {
		return reply{}, err
	}
	defer l.forget(id)
	r.ID = id
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if err := l.write(r, fds...); err != nil {
		return reply{}, err
	}
	select {
	case got := <-c:
		if got.Fault != nil {
			return got, got.Fault.error()
		}
		return got, nil
	case <-l.gone:
		return reply{}, errGone
	case <-ctx.Done():
		return reply{}, fmt.Errorf("ask the key proxy: %w", context.Cause(ctx))
	}
}

// hand gives the proxy a connection; the channel is closed when it has ended.
func (l *life) hand(r request, h *handle) (done chan struct{}, err error) {
	done = make(chan struct{})
	if r.ID, err = l.number(nil, done); err != nil {
		return nil, err
	}
	if err := h.use(func(fd int) error { return l.write(r, fd) }); err != nil {
		l.forget(r.ID)
		return nil, err
	}
	return done, nil
}

// write sends a message. A proxy that does not take it hangs, and is ended.
func (l *life) write(r request, fds ...int) error {
	err := l.wire.write(r, fds...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		l.end(errors.New("it takes no messages"))
	case errors.Is(err, errTooLong):
		return err
	}
	return errGone
}

// end kills the proxy because of why.
func (l *life) end(why error) {
	l.mu.Lock()
	if l.why == nil {
		l.why = why
	}
	l.mu.Unlock()
	l.kill()
}

// leave lets the proxy end by itself: it sees that we say nothing more, ends
// its jobs and closes its files. After ctx it is killed.
func (l *life) leave(ctx context.Context) error {
	if err := l.wire.conn.CloseWrite(); err != nil {
		l.kill() // it ends anyway
	}
	select {
	case <-l.gone:
		return l.how
	case <-ctx.Done():
		l.end(context.Cause(ctx))
		<-l.gone
		return fmt.Errorf("end the key proxy: %w", context.Cause(ctx))
	}
}

// cause says how a life ended; l.gone is closed.
func (l *life) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why != nil {
		return l.why
	}
	if l.how == nil {
		return errors.New("it ended by itself")
	}
	return l.how
}

// alive asks the proxy now and then whether it lives, until it does not. tell is
// given what it says; it may be nil.
func (l *life) alive(every, patience time.Duration, tell func(keyproxy.Health)) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-l.gone:
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		got, err := l.call(ctx, request{Op: opHealth})
		switch {
		case err != nil && ctx.Err() != nil:
			l.end(errors.New("it does not answer"))
		case err == nil && got.Health != nil && tell != nil:
			tell(*got.Health)
		}
		cancel()
	}
}
