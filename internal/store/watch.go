package store

import (
	"sync"

	"dreamcore"
)

// Watchers wakes those who wait for events of a job, within this process. The
// zero value is ready.
type Watchers struct {
	mu     sync.Mutex
	byJob  map[dreamcore.JobID]map[chan struct{}]bool
	closed bool
}

// Watch implements Events.Watch.
func (w *Watchers) Watch(job dreamcore.JobID) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		close(ch)
		return ch, func() {}
	}
	if w.byJob == nil {
		w.byJob = map[dreamcore.JobID]map[chan struct{}]bool{}
	}
	if w.byJob[job] == nil {
		w.byJob[job] = map[chan struct{}]bool{}
	}
	w.byJob[job][ch] = true
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.byJob[job], ch)
		if len(w.byJob[job]) == 0 {
			delete(w.byJob, job)
		}
	}
}

// Wake signals the watchers of job. It never blocks.
func (w *Watchers) Wake(job dreamcore.JobID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.byJob[job] {
		select {
		case ch <- struct{}{}:
		default: // a signal is waiting already
		}
	}
}

// Close closes every watch.
func (w *Watchers) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	for _, set := range w.byJob {
		for ch := range set {
			close(ch)
		}
	}
	w.byJob = nil
}
