package e2b

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"dreamcore"
	"dreamcore/internal/envd"
	"dreamcore/internal/envd/spec/filesystem"
	"dreamcore/internal/envd/spec/filesystem/filesystemconnect"
	"dreamcore/internal/envd/spec/process/processconnect"
	"dreamcore/internal/sandbox"
)

// box is the client of one living sandbox.
type box struct {
	id        dreamcore.SandboxID
	p         *Provider
	base      string
	http      *http.Client
	processes processconnect.ProcessClient
	files     filesystemconnect.FilesystemClient
	started   time.Time // zero while unknown
}

func (s *box) ID() dreamcore.SandboxID { return s.id }

// SetTimeout lets the sandbox live for d from now. What the engine's owner does
// not allow is code Refused, before anything was asked.
func (s *box) SetTimeout(ctx context.Context, d time.Duration) error {
	if most := s.p.cfg.Limits.Life; most > 0 {
		if s.started.IsZero() {
			var got detailBody
			if _, err := s.p.call(ctx, request{method: http.MethodGet, path: pathOf(s.id, ""), out: &got}); err != nil {
				return fmt.Errorf("ask for the age of the sandbox: %w", s.p.lostWhenMissing(err, s.id))
			}
			s.started = got.StartedAt
		}
		if err := s.p.lifeAllowed(time.Since(s.started) + d); err != nil {
			return fmt.Errorf("set the time of the sandbox: %w", err)
		}
	}
	_, err := s.p.call(ctx, request{method: http.MethodPost, path: pathOf(s.id, "timeout"), in: map[string]int64{"timeout": seconds(d)}})
	if err != nil {
		return fmt.Errorf("set the time of the sandbox: %w", s.p.lostWhenMissing(err, s.id))
	}
	s.p.gate.prolong(s.id, time.Now().Add(d))
	return nil
}

// WriteFiles writes all files in one request for each owner that occurs.
func (s *box) WriteFiles(ctx context.Context, files []sandbox.File) error {
	byOwner := map[string][]sandbox.File{}
	for _, f := range files {
		owner := f.Owner
		if owner == "" {
			owner = sandbox.User
		}
		byOwner[owner] = append(byOwner[owner], f)
	}
	// Root's first: folders that it must own are made by it.
	for _, owner := range []string{sandbox.Root, sandbox.User} {
		if err := s.upload(ctx, owner, byOwner[owner]); err != nil {
			return fmt.Errorf("write files: %w", err)
		}
		delete(byOwner, owner)
	}
	for owner := range byOwner {
		return dreamcore.Errorf(dreamcore.Invalid, "sandbox.write", "files belong to %q or %q, not to %q", sandbox.User, sandbox.Root, owner)
	}
	return nil
}

func (s *box) upload(ctx context.Context, owner string, files []sandbox.File) error {
	if len(files) == 0 {
		return nil
	}
	// In memory, where the files are already: a body of known length goes through
	// in large pieces, and each piece wakes the box.
	var body bytes.Buffer
	query := url.Values{"username": {owner}}
	kind := "application/octet-stream"
	if len(files) == 1 {
		query.Set("path", files[0].Path)
	} else {
		var err error
		if kind, err = writeParts(&body, files); err != nil {
			return err
		}
	}
	data := body.Bytes()
	if len(files) == 1 {
		data = files[0].Data
	}
	header := http.Header{"Content-Type": {kind}}
	if len(files) == 1 && files[0].Mode != 0 {
		header.Set(envd.ModeHeader, octal(files[0].Mode))
	}
	res, err := s.ask(ctx, http.MethodPost, query, header, data, maxAnswerBytes)
	if err != nil {
		return err
	}
	if res.header.Get(envd.BulkHeader) == "" {
		return s.setModes(ctx, owner, files)
	}
	return nil
}

// writeParts writes a multipart body and returns its content type.
func writeParts(to *bytes.Buffer, files []sandbox.File) (string, error) {
	size := 0
	for _, f := range files {
		size += len(f.Data) + len(f.Path) + 300
	}
	to.Grow(size)
	mw := multipart.NewWriter(to)
	for _, f := range files {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": "file", "filename": f.Path}))
		h.Set("Content-Type", "application/octet-stream")
		if f.Mode != 0 {
			h.Set(envd.ModeHeader, octal(f.Mode))
		}
		w, err := mw.CreatePart(h)
		if err != nil {
			return "", err
		}
		if _, err := w.Write(f.Data); err != nil {
			return "", err
		}
	}
	return mw.FormDataContentType(), mw.Close()
}

func octal(mode uint32) string { return strconv.FormatUint(uint64(mode), 8) }

// setModes does with commands what a daemon that is not ours does not do
// during the upload.
func (s *box) setModes(ctx context.Context, owner string, files []sandbox.File) error {
	const batch = 200
	byMode := map[uint32][]string{}
	for _, f := range files {
		if f.Mode != 0 && f.Mode != 0o644 {
			byMode[f.Mode] = append(byMode[f.Mode], f.Path)
		}
	}
	for mode, paths := range byMode {
		for len(paths) > 0 {
			n := min(len(paths), batch)
			args := append([]string{"chmod", octal(mode), "--"}, paths[:n]...)
			paths = paths[n:]
			res, err := sandbox.Run(ctx, s, sandbox.Command{Args: args, User: owner, Dir: "/"}, 4<<10)
			if err != nil {
				return err
			}
			if res.Code != 0 {
				return dreamcore.Errorf(dreamcore.Unavailable, "sandbox.write", "the modes of the files could not be set").
					Because(fmt.Errorf("chmod: exit %d: %q", res.Code, clip(string(res.Stderr))))
			}
		}
	}
	return nil
}

// ReadFile reads at most limitBytes of one file; a longer one is code Refused.
func (s *box) ReadFile(ctx context.Context, path string, limitBytes int64) ([]byte, error) {
	q := url.Values{"path": {path}, "username": {sandbox.Root}}
	res, err := s.ask(ctx, http.MethodGet, q, nil, nil, limitBytes)
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	if int64(len(res.data)) > limitBytes {
		return nil, fail(s.p.cfg.Lang, dreamcore.Refused, "sandbox.read", "file_too_large", "path", clip(path), "bytes", strconv.FormatInt(limitBytes, 10))
	}
	return res.data, nil
}

// answer is what came of a request for files.
type answer struct {
	header http.Header
	data   []byte
}

// ask makes a request for files, again when the connection broke: to write the
// same bytes twice is to write them once. It reads one byte more than the limit.
func (s *box) ask(ctx context.Context, method string, query url.Values, header http.Header, body []byte, limitBytes int64) (answer, error) {
	var a answer
	err := s.again(ctx, method+" /files", func() error {
		req, err := http.NewRequestWithContext(ctx, method, s.base+"/files?"+query.Encode(), bytes.NewReader(body))
		if err != nil {
			return err
		}
		maps.Copy(req.Header, header)
		res, err := s.http.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return refusal(res)
		}
		var b bytes.Buffer
		if n := res.ContentLength; n > 0 && n <= limitBytes {
			b.Grow(int(n) + bytes.MinRead)
		}
		_, err = b.ReadFrom(io.LimitReader(res.Body, limitBytes+1))
		a = answer{res.Header, b.Bytes()}
		return err
	})
	return a, err
}

// again does what may be done twice until it comes through, the box is found
// dead, or it failed as often as Retry says.
func (s *box) again(ctx context.Context, name string, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil {
			return nil
		}
		lasting := s.lasting(err)
		err = s.explain(ctx, err)
		if lasting || try >= s.p.cfg.Retry.Tries || ctx.Err() != nil || dreamcore.CodeOf(err) == dreamcore.Lost {
			return err
		}
		d := s.p.cfg.Retry.pause(try - 1)
		s.p.log.Warn("a request to a sandbox failed", "sandbox_id", s.id, "request", name, "decision", "try again", "reason", clip(err.Error()), "try", try, "wait_ms", d.Milliseconds())
		if sleep(ctx, d) != nil {
			return err
		}
	}
}

// lasting reports whether the box or its engine answered, so that the same
// request is answered the same way.
func (s *box) lasting(err error) bool {
	var st *statusError
	if errors.As(err, &st) {
		return st.status < 500 && st.status != http.StatusTooManyRequests || st.status == http.StatusInsufficientStorage || st.status == http.StatusInternalServerError
	}
	if connect.IsWireError(err) {
		return connect.CodeOf(err) != connect.CodeUnavailable
	}
	return hopeless(err)
}

// refusal reads the error out of an answer of a box.
func refusal(res *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	return errors.Join(newStatusError(res.StatusCode, data), err)
}

// List lists a folder, depth levels deep.
func (s *box) List(ctx context.Context, path string, depth int) ([]sandbox.Entry, error) {
	var res *connect.Response[filesystem.ListDirResponse]
	err := s.again(ctx, "ListDir", func() (err error) {
		req := connect.NewRequest(&filesystem.ListDirRequest{Path: path, Depth: uint32(max(depth, 1))})
		actAs(req.Header(), sandbox.Root)
		res, err = s.files.ListDir(ctx, req)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list folder: %w", err)
	}
	all := make([]sandbox.Entry, 0, len(res.Msg.GetEntries()))
	for _, e := range res.Msg.GetEntries() {
		all = append(all, sandbox.Entry{
			Path: e.GetPath(), Dir: e.GetType() == filesystem.FileType_FILE_TYPE_DIRECTORY,
			SizeBytes: e.GetSize(), Mode: e.GetMode(), Modified: e.GetModifiedTime().AsTime(),
		})
	}
	return all, nil
}

// actAs selects the user of the box in whose name a request acts.
func actAs(h http.Header, user string) {
	h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
}
