package envd

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// reaper starts processes and collects every child that ends: those it started
// and, as PID 1, the orphans that the kernel hands over. os/exec cannot be used
// beside it, because whoever waits for any child takes the status away from
// whoever waits for that one.
type reaper struct {
	mu    sync.Mutex // held from before the fork until the child is in wait
	wait  map[int]chan syscall.WaitStatus
	again chan struct{} // a child may exist now
	born  chan struct{} // the same, for whoever watches them
}

func newReaper() *reaper {
	r := &reaper{wait: map[int]chan syscall.WaitStatus{}, again: make(chan struct{}, 1), born: make(chan struct{}, 1)}
	go r.run()
	return r
}

// start forks and executes. The channel gets the status once.
func (r *reaper) start(file string, argv []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(file, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	ch := make(chan syscall.WaitStatus, 1)
	r.wait[pid] = ch
	for _, tell := range []chan struct{}{r.again, r.born} {
		select {
		case tell <- struct{}{}:
		default:
		}
	}
	return pid, ch, nil
}

// whileChild calls f while pid is surely a child that nobody has collected.
func (r *reaper) whileChild(pid int, f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.wait[pid]; !ok {
		return os.ErrProcessDone
	}
	return f()
}

func (r *reaper) run() {
	for {
		// Block until something is there to collect, without taking it: the
		// status may be of a child that start has not noted yet.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			<-r.again
			continue
		}
		r.collect()
	}
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ch, ok := r.wait[pid]; ok {
			delete(r.wait, pid)
			ch <- ws
		}
	}
}
