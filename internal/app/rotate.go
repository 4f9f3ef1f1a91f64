package app

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// watchEvery is how often the key files are looked at.
const watchEvery = 2 * time.Second

// watchKeys takes the operator's keys anew whenever one of their files is
// another or has changed, and at SIGHUP where there is no terminal, until Close.
func (s *Service) watchKeys() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	hup := make(chan os.Signal, 1)
	if tty, err := os.Open("/dev/tty"); err == nil {
		tty.Close() // there a hang-up is the end of the terminal, and of us
	} else {
		signal.Notify(hup, syscall.SIGHUP)
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		was := s.Proxy.keyStamps()
		for {
			reason := "file_changed"
			select {
			case <-ctx.Done():
				return
			case <-hup:
				reason = "signal"
			case <-tick.C:
			}
			now := s.Proxy.keyStamps()
			if reason != "signal" && slices.Equal(now, was) {
				continue
			}
			was = now
			changed, err := s.Proxy.Rotate(ctx)
			if err != nil {
				s.log.Error("the keys cannot be taken anew", "decision", "keep the former", "reason", reason, "err", err)
				continue
			}
			s.log.Info("keys taken anew", "decision", "rotate", "reason", reason, "changed", changed)
		}
	}()
	s.onClose("key watch", func(context.Context) error {
		signal.Stop(hup)
		cancel()
		<-done
		return nil
	})
}

// keyStamp tells whether a file is the one it was.
type keyStamp struct {
	path       string
	inode      uint64
	size, time int64
}

// keyStamps are those of all key files; a file that is not there has only its path.
func (p *Proxy) keyStamps() []keyStamp {
	var out []keyStamp
	for _, path := range p.keyFiles {
		stamp := keyStamp{path: path}
		if info, err := os.Stat(path); err == nil {
			stamp.size, stamp.time = info.Size(), info.ModTime().UnixNano()
			if st, ok := info.Sys().(*syscall.Stat_t); ok {
				stamp.inode = st.Ino
			}
		}
		out = append(out, stamp)
	}
	return out
}
