package keyproxy

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"dreamcore/internal/keyproxy/provider/npm"
)

// Bounds of the package mirror.
const (
	maxMetadataBytes = 32 << 20
	maxTarballBytes  = 64 << 20
	maxMirrorBytes   = 1 << 30 // of tarballs kept on disk
	metadataLife     = 10 * time.Minute
)

// mirror is a pull-through copy of the pinned packages of one registry. A tarball
// is kept on disk under the digest that it was checked against.
type mirror struct {
	pins *npm.List
	dir  string
	self string // the mirror's address as a box sees it, with a slash at the end

	mu   sync.Mutex
	docs map[string]*packageDoc
	busy map[string]chan struct{} // a place each for what is being fetched
}

// packageDoc is what boxes may see of one package.
type packageDoc struct {
	fetched time.Time
	body    []byte
	files   map[string]npm.File
}

func newMirror(u Upstream, dir string) (*mirror, error) {
	pins, err := npm.NewList(u.Packages)
	if err != nil {
		return nil, err
	}
	m := &mirror{pins: pins, dir: filepath.Join(dir, "mirror"), self: u.BoxURL + "/npm/", docs: map[string]*packageDoc{}, busy: map[string]chan struct{}{}}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the mirror's folder: %w", err)
	}
	return m, nil
}

// alone waits until nobody else fetches what name says. The names are those of
// pinned packages, so there are never many.
func (m *mirror) alone(ctx context.Context, name string) (leave func(), err error) {
	m.mu.Lock()
	place := m.busy[name]
	if place == nil {
		place = make(chan struct{}, 1)
		m.busy[name] = place
	}
	m.mu.Unlock()
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mirror answers from the pinned list; nothing else of the registry is there.
func (c *call) mirror() *stop {
	name := c.parts["package"]
	c.rec.Model = clip(name, 80)
	i := slices.IndexFunc(c.p.upstreams[c.op.Feature], func(u *upstream) bool { return u.mirror.pins.Has(name) })
	if i < 0 {
		return nof(PackageRefused, "%s", clip(name, 80))
	}
	c.up = c.p.upstreams[c.op.Feature][i]
	if s := c.throttled(); s != nil {
		return s
	}
	res, s := c.reserve()
	if s != nil {
		return s
	}
	ch := &charge{}
	defer func() { c.settle(res, ch) }()
	ctx, watch, done := c.watch(false)
	defer done()
	doc, s := c.metadata(ctx, watch, name)
	if s != nil {
		return s
	}
	file, tarball := c.parts["file"]
	if !tarball {
		if int64(len(doc.body)) > res.Amount.Bytes {
			return nof(BudgetSpent, "bytes")
		}
		c.w.Header().Set("Content-Type", "application/json")
		c.began, c.rec.Status = true, http.StatusOK
		return c.send(doc.body)
	}
	f, ok := doc.files[file]
	if !ok {
		return nof(NoVersion, "%s", clip(file, 80))
	}
	return c.tarball(ctx, watch, f, res.Amount.Bytes)
}

// metadata returns a package's, not older than metadataLife. When the registry
// fails, what is there serves on.
func (c *call) metadata(ctx context.Context, watch func(time.Duration), name string) (*packageDoc, *stop) {
	m := c.up.mirror
	leave, err := m.alone(ctx, name)
	if err != nil {
		return nil, c.ended(ctx, err)
	}
	defer leave()
	m.mu.Lock()
	doc := m.docs[name]
	m.mu.Unlock()
	if doc != nil && c.p.now().Sub(doc.fetched) < metadataLife {
		return doc, nil
	}
	fresh, s := c.pull(ctx, watch, name)
	if s != nil {
		if doc != nil && ctx.Err() == nil {
			c.p.log.Warn("the registry fails; older metadata serves on", "job_id", c.rec.Job, "package", name, "reason", s.reason, "detail", s.detail)
			return doc, nil
		}
		return nil, s
	}
	m.mu.Lock()
	m.docs[name] = fresh
	m.mu.Unlock()
	return fresh, nil
}

func (c *call) pull(ctx context.Context, watch func(time.Duration), name string) (*packageDoc, *stop) {
	u := *c.up.base
	u.Path += "/" + name
	u.RawPath = c.up.base.Path + "/" + strings.Replace(name, "/", "%2f", 1)
	resp, s := c.get(ctx, &u, "application/vnd.npm.install-v1+json")
	if s != nil {
		return nil, s
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is not wanted
	if s := c.plain(resp, "application/json", "application/vnd.npm.install-v1+json"); s != nil {
		return nil, s
	}
	data, s := c.bounded(ctx, resp, watch, maxMetadataBytes)
	if s != nil {
		return nil, s
	}
	body, files, dropped, err := c.up.mirror.pins.Filter(name, data, c.up.base, c.up.mirror.self)
	if err != nil {
		return nil, nof(UpstreamBroken, "%s", clip(err.Error(), 120))
	}
	for _, v := range dropped {
		c.p.alerts.Add(1)
		c.p.log.Warn("a pinned version is left out: its tarball is on another host or its digest is another", "package", name, "version", clip(v, 80))
	}
	if body = c.up.secrets().Bytes(body); len(files) == 0 {
		c.p.log.Warn("the registry has no pinned version of a package", "package", name)
	}
	return &packageDoc{c.p.now(), body, files}, nil
}

// tarball sends a file whose digest was checked before its first byte goes out.
func (c *call) tarball(ctx context.Context, watch func(time.Duration), f npm.File, limit int64) *stop {
	m := c.up.mirror
	leave, err := m.alone(ctx, f.Name)
	if err != nil {
		return c.ended(ctx, err)
	}
	path := filepath.Join(m.dir, hex.EncodeToString([]byte(f.Digest))+".tgz")
	data, err := checked(path, f.Digest)
	if err != nil {
		var s *stop
		if data, s = c.download(ctx, watch, f); s != nil {
			leave()
			return s
		}
		if err := m.keep(path, data); err != nil {
			c.p.log.Error("the mirror cannot keep a package", "error", err) // it is sent all the same
		}
	}
	leave()
	if int64(len(data)) > limit {
		return nof(BudgetSpent, "bytes")
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	c.began, c.rec.Status = true, http.StatusOK
	for piece := range slices.Chunk(data, 256<<10) {
		if s := c.send(piece); s != nil {
			return s
		}
	}
	return nil
}

// checked reads a kept tarball and compares its digest once more.
func checked(path, digest string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if sum := sha512.Sum512(data); string(sum[:]) != digest {
		return nil, fmt.Errorf("%s is not what it was", path)
	}
	now := time.Now()
	return data, os.Chtimes(path, now, now) // the ones used last stay
}

func (c *call) download(ctx context.Context, watch func(time.Duration), f npm.File) ([]byte, *stop) {
	u := *c.up.base
	u.Path, u.RawPath = f.Path, ""
	resp, s := c.get(ctx, &u, "application/octet-stream")
	if s != nil {
		return nil, s
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is not wanted
	if s := c.plain(resp); s != nil {
		return nil, s
	}
	data, s := c.bounded(ctx, resp, watch, maxTarballBytes)
	if s != nil {
		return nil, s
	}
	if sum := sha512.Sum512(data); string(sum[:]) != f.Digest {
		c.p.alerts.Add(1)
		c.p.log.Error("a package is not what its integrity says", "job_id", c.rec.Job, "file", f.Name)
		return nil, nof(BadIntegrity, "%s", clip(f.Name, 80))
	}
	return data, nil
}

// keep writes a tarball and makes room for it.
func (m *mirror) keep(path string, data []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("keep a package: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("keep a package: %w", err)
	}
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return fmt.Errorf("list the mirror: %w", err)
	}
	var infos []os.FileInfo
	var sum int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			infos, sum = append(infos, info), sum+info.Size()
		}
	}
	slices.SortFunc(infos, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range infos {
		if sum <= maxMirrorBytes {
			break
		}
		if err := os.Remove(filepath.Join(m.dir, info.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("make room in the mirror: %w", err)
		}
		sum -= info.Size()
	}
	return nil
}

// get asks an upstream for something that is no model call. What it sends beside
// the path is ours alone.
func (c *call) get(ctx context.Context, u *url.URL, accept string) (*http.Response, *stop) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nof(Panicked, "the upstream's address")
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "dreamcore")
	for k, v := range c.op.Protocol.Authorize(c.up.ring.Load().key.Reveal(), nil) {
		req.Header.Set(k, v)
	}
	c.rec.Dialled = true
	resp, err := c.up.client.RoundTrip(req)
	if err != nil {
		s := c.ended(ctx, err)
		if s.reason == GuardDenied {
			c.rec.Dialled = false
		}
		c.p.log.Warn("upstream", "job_id", c.rec.Job, "reason", s.reason, "error", clip(c.up.secrets().Text(err.Error()), 300))
		return nil, s
	}
	status := resp.StatusCode
	if status == http.StatusOK {
		return resp, nil
	}
	_ = resp.Body.Close() // its text is not wanted
	switch {
	case status >= 300 && status < 400:
		return nil, no(UpstreamMoved)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nil, no(UpstreamKey)
	case status == http.StatusNotFound || status == http.StatusGone:
		return nil, no(NotThere)
	case status == http.StatusTooManyRequests:
		return nil, &stop{reason: TooFast, detail: "of the upstream", wait: min(3600, retryAfter(resp.Header, time.Now()))}
	}
	return nil, nof(UpstreamBroken, "status %d", status)
}

// plain refuses an answer that is compressed, or of a type that is not wanted.
func (c *call) plain(resp *http.Response, kinds ...string) *stop {
	if len(kinds) == 0 {
		if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
			return nof(UpstreamBroken, "it is compressed although identity was asked for")
		}
		return nil
	}
	var s *stop
	for _, k := range kinds {
		if s = c.acceptable(resp, k); s == nil {
			return nil
		}
	}
	return s
}

// bounded reads an answer whole.
func (c *call) bounded(ctx context.Context, resp *http.Response, watch func(time.Duration), limit int64) ([]byte, *stop) {
	data, err := io.ReadAll(&watched{io.LimitReader(resp.Body, limit+1), watch, c.p.timeouts.Silence})
	if err != nil {
		if s := c.ended(ctx, err); s.reason != UpstreamDown {
			return nil, s
		}
		return nil, nof(UpstreamBroken, "it broke off")
	}
	if int64(len(data)) > limit {
		return nil, nof(UpstreamBroken, "it is longer than %d bytes", limit)
	}
	return data, nil
}
