package envd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"dreamcore/internal/envd/spec/filesystem"
	"dreamcore/internal/envd/spec/filesystem/filesystemconnect"
)

// filesystemService is the file half of the protocol.
type filesystemService struct {
	filesystemconnect.UnimplementedFilesystemHandler
	*Server
}

// begin finds who acts and on which path.
func (s *Server) begin(h http.Header, p string) (user, string, error) {
	u, err := s.userOf(h)
	if err != nil {
		return user{}, "", err
	}
	abs, err := u.resolve(p)
	return u, abs, err
}

func (s *filesystemService) Stat(_ context.Context, req *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	u, p, err := s.begin(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, rpcError(err)
	}
	var e *filesystem.EntryInfo
	err = u.do(func() (err error) { e, err = s.namer().entry(p); return })
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.StatResponse{Entry: e}), nil
}

func (s *filesystemService) MakeDir(_ context.Context, req *connect.Request[filesystem.MakeDirRequest]) (*connect.Response[filesystem.MakeDirResponse], error) {
	u, p, err := s.begin(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, rpcError(err)
	}
	var e *filesystem.EntryInfo
	err = u.do(func() (err error) {
		if fi, err := os.Stat(p); err == nil {
			if fi.IsDir() {
				return fmt.Errorf("the folder exists: %w", fs.ErrExist)
			}
			return fmt.Errorf("a file is in the way: %w", unix.ENOTDIR)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.MkdirAll(p, 0o755); err != nil {
			return err
		}
		e, err = s.namer().entry(p)
		return err
	})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.MakeDirResponse{Entry: e}), nil
}

func (s *filesystemService) Move(_ context.Context, req *connect.Request[filesystem.MoveRequest]) (*connect.Response[filesystem.MoveResponse], error) {
	u, from, err := s.begin(req.Header(), req.Msg.GetSource())
	if err != nil {
		return nil, rpcError(err)
	}
	to, err := u.resolve(req.Msg.GetDestination())
	if err != nil {
		return nil, rpcError(err)
	}
	var e *filesystem.EntryInfo
	err = u.do(func() (err error) {
		if _, err := os.Lstat(from); err != nil {
			return err
		}
		if err := os.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		if err := move(from, to); err != nil {
			return err
		}
		e, err = s.namer().entry(to)
		return err
	})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.MoveResponse{Entry: e}), nil
}

func (s *filesystemService) Remove(_ context.Context, req *connect.Request[filesystem.RemoveRequest]) (*connect.Response[filesystem.RemoveResponse], error) {
	u, p, err := s.begin(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, rpcError(err)
	}
	if err := u.do(func() error { return os.RemoveAll(p) }); err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(&filesystem.RemoveResponse{}), nil
}

func (s *filesystemService) ListDir(_ context.Context, req *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	u, p, err := s.begin(req.Header(), req.Msg.GetPath())
	if err != nil {
		return nil, rpcError(err)
	}
	depth := max(int(req.Msg.GetDepth()), 1)
	res := &filesystem.ListDirResponse{}
	err = u.do(func() error {
		fi, err := os.Stat(p)
		if err != nil {
			return err
		}
		if !fi.IsDir() {
			return fmt.Errorf("the path is not a folder: %w", unix.ENOTDIR)
		}
		// The folder itself may be a link; below it links are entries, not ways.
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			return err
		}
		return s.list(s.namer(), real, p, depth, &res.Entries)
	})
	if err != nil {
		return nil, rpcError(err)
	}
	return connect.NewResponse(res), nil
}

func (s *filesystemService) list(n *namer, real, shown string, depth int, to *[]*filesystem.EntryInfo) error {
	found, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	for _, d := range found {
		fi, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went away meanwhile
		}
		if err != nil {
			return err
		}
		if len(*to) >= maxEntries {
			return fmt.Errorf("%w: the folder holds more than %d entries", errTooMany, maxEntries)
		}
		*to = append(*to, n.describe(path.Join(shown, d.Name()), path.Join(real, d.Name()), fi))
		if depth > 1 && d.IsDir() {
			err := s.list(n, path.Join(real, d.Name()), path.Join(shown, d.Name()), depth-1, to)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
				return err
			}
		}
	}
	return nil
}

// namer turns ids into names for one request.
type namer struct{ users, groups map[uint32]string }

func (s *Server) namer() *namer {
	// A file that cannot be read leaves ids as numbers, which is what they are.
	_, users, _ := s.passwd.read()
	_, groups, _ := s.group.read()
	return &namer{users, groups}
}

func (n *namer) entry(p string) (*filesystem.EntryInfo, error) {
	fi, err := os.Lstat(p)
	if err != nil {
		return nil, err
	}
	return n.describe(p, p, fi), nil
}

func (n *namer) describe(shown, real string, fi fs.FileInfo) *filesystem.EntryInfo {
	e := &filesystem.EntryInfo{
		Name:         carried(path.Base(shown)),
		Path:         carried(shown),
		Size:         fi.Size(),
		Mode:         uint32(fi.Mode().Perm()),
		Permissions:  fi.Mode().String(),
		ModifiedTime: timestamppb.New(fi.ModTime()),
	}
	switch {
	case fi.Mode().IsRegular():
		e.Type = filesystem.FileType_FILE_TYPE_FILE
		e.Metadata = getMetadata(real)
	case fi.IsDir():
		e.Type = filesystem.FileType_FILE_TYPE_DIRECTORY
		e.Metadata = getMetadata(real)
	case fi.Mode()&fs.ModeSymlink != 0:
		e.Type = filesystem.FileType_FILE_TYPE_SYMLINK
		if to, err := os.Readlink(real); err == nil {
			to = carried(to)
			e.SymlinkTarget = &to
		}
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = carried(named(n.users, st.Uid)), carried(named(n.groups, st.Gid))
	}
	return e
}

// carried makes a string of bytes what the protocol can carry: it knows UTF-8
// only, and one odd name must not hide a whole folder.
func carried(s string) string { return strings.ToValidUTF8(s, "�") }

func named(m map[uint32]string, id uint32) string {
	if s, ok := m[id]; ok {
		return s
	}
	return strconv.FormatUint(uint64(id), 10)
}
