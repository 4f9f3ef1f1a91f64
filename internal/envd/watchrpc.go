package envd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/envd/spec/filesystem"
)

// pollPatience is how long a watcher that is polled may be forgotten before a
// new one may take its place.
const pollPatience = 10 * time.Minute

// polled is a watcher whose client asks for events when it likes.
type polled struct {
	*watcher
	asked time.Time // guarded by Server.mu
}

// WatchDir sends what happens in a folder until the client ends it, the folder
// is gone, or events were lost, which it says.
func (s *filesystemService) WatchDir(ctx context.Context, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	m := req.Msg
	u, p, err := s.begin(req.Header(), m.GetPath())
	if err != nil {
		return rpcError(err)
	}
	if err := s.admitWatcher(); err != nil {
		return rpcError(err)
	}
	defer s.releaseWatcher()
	w, err := s.watch(u, p, m.GetRecursive(), m.GetIncludeEntry(), m.GetAllowNetworkMounts())
	if err != nil {
		return rpcError(err)
	}
	defer w.close()
	if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
		return err
	}
	every := keepalive(req.Header())
	ping := time.NewTimer(every)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return rpcError(ctx.Err())
		case <-ping.C:
			if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}}); err != nil {
				return err
			}
			ping.Reset(every)
		case <-w.changed:
			for {
				events, over, err := w.take()
				for _, e := range events {
					if err := stream.Send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
						return err
					}
				}
				if err != nil {
					return rpcError(err)
				}
				if over {
					return nil
				}
				if len(events) == 0 {
					break
				}
			}
			ping.Reset(every)
		}
	}
}

func (s *filesystemService) CreateWatcher(_ context.Context, req *connect.Request[filesystem.CreateWatcherRequest]) (*connect.Response[filesystem.CreateWatcherResponse], error) {
	m := req.Msg
	u, p, err := s.begin(req.Header(), m.GetPath())
	if err != nil {
		return nil, rpcError(err)
	}
	if err := s.admitWatcher(); err != nil {
		return nil, rpcError(err)
	}
	w, err := s.watch(u, p, m.GetRecursive(), m.GetIncludeEntry(), m.GetAllowNetworkMounts())
	if err != nil {
		s.releaseWatcher()
		return nil, rpcError(err)
	}
	id := dreamcore.NewToken(20)
	s.mu.Lock()
	s.polled[id] = &polled{w, time.Now()}
	s.mu.Unlock()
	return connect.NewResponse(&filesystem.CreateWatcherResponse{WatcherId: id}), nil
}

var errNoWatcher = connect.NewError(connect.CodeNotFound, errors.New("there is no such watcher"))

func (s *filesystemService) GetWatcherEvents(_ context.Context, req *connect.Request[filesystem.GetWatcherEventsRequest]) (*connect.Response[filesystem.GetWatcherEventsResponse], error) {
	s.mu.Lock()
	w, ok := s.polled[req.Msg.GetWatcherId()]
	if ok {
		w.asked = time.Now()
	}
	s.mu.Unlock()
	if !ok {
		return nil, errNoWatcher
	}
	events, over, err := w.take()
	if err == nil && over {
		err = fmt.Errorf("%w: %w", errWatchedGone, fs.ErrNotExist)
	}
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.GetWatcherEventsResponse{Events: events}), nil
}

func (s *filesystemService) RemoveWatcher(_ context.Context, req *connect.Request[filesystem.RemoveWatcherRequest]) (*connect.Response[filesystem.RemoveWatcherResponse], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dropPolled(req.Msg.GetWatcherId()) {
		return nil, errNoWatcher
	}
	return connect.NewResponse(&filesystem.RemoveWatcherResponse{}), nil
}

// dropPolled forgets a watcher that is polled, if it is there. s.mu is held.
func (s *Server) dropPolled(id string) bool {
	w, ok := s.polled[id]
	if ok {
		delete(s.polled, id)
		s.watchers--
		w.close()
	}
	return ok
}

// admitWatcher makes room for one watcher more: it takes the place of one that
// its client has forgotten, if there is any.
func (s *Server) admitWatcher() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, w := range s.polled {
		if s.watchers >= s.cfg.MaxWatchers && time.Since(w.asked) > pollPatience && s.dropPolled(id) {
			s.log.Warn("dropped a watcher that nobody asks", "reason", "a new one needs its place")
		}
	}
	if s.watchers >= s.cfg.MaxWatchers {
		return fmt.Errorf("%w: %d watchers", errTooMany, s.watchers)
	}
	s.watchers++
	return nil
}

func (s *Server) releaseWatcher() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers--
}
