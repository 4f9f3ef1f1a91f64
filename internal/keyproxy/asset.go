package keyproxy

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"dreamcore"
	"dreamcore/internal/budget"
)

// Assets bounds what comes from one asset host. A zero means the default.
type Assets struct {
	Types    []string // of assetTypes; empty means all of them
	MaxBytes int64    // of one file, 8 MiB
	// URLBytes is how much a job may write into paths, in all: each path is a word
	// to the host. 4,096.
	URLBytes int64
}

const (
	defaultAssetBytes = 8 << 20
	defaultURLBytes   = 4096
)

// assetTypes are the types of files that a game is made of, each with how such a
// file begins. Nothing that a browser runs, or that can name another address, is
// among them.
var assetTypes = map[string]func([]byte) bool{
	"image/png":         starts("\x89PNG\r\n\x1a\n"),
	"image/jpeg":        starts("\xff\xd8\xff"),
	"image/gif":         starts("GIF8"),
	"image/webp":        riff("WEBP"),
	"audio/ogg":         starts("OggS"),
	"audio/wav":         riff("WAVE"),
	"audio/mpeg":        func(b []byte) bool { return starts("ID3")(b) || len(b) > 1 && b[0] == 0xff && b[1]&0xe0 == 0xe0 },
	"font/woff2":        starts("wOF2"),
	"model/gltf-binary": starts("glTF"),
}

func starts(magic string) func([]byte) bool {
	return func(b []byte) bool { return bytes.HasPrefix(b, []byte(magic)) }
}

func riff(kind string) func([]byte) bool {
	return func(b []byte) bool { return len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == kind }
}

// check completes a.
func (a *Assets) check() string {
	if a.MaxBytes < 0 || a.URLBytes < 0 {
		return "a limit of its assets is negative"
	}
	if a.MaxBytes == 0 {
		a.MaxBytes = defaultAssetBytes
	}
	if a.URLBytes == 0 {
		a.URLBytes = defaultURLBytes
	}
	for _, t := range a.Types {
		if assetTypes[t] == nil {
			return "it has no assets of the type " + strconv.Quote(t)
		}
	}
	return ""
}

// kind says what a file is by its first bytes; "" when it is nothing that a allows.
func (a *Assets) kind(data []byte) string {
	for t, is := range assetTypes {
		if (len(a.Types) == 0 || slices.Contains(a.Types, t)) && is(data) {
			return t
		}
	}
	return ""
}

func urlAccount(id dreamcore.JobID) string { return "urls:" + string(id) }

// asset fetches one file from a host on the list.
func (c *call) asset() *stop {
	host, path := c.parts["host"], "/"+c.parts["path"]
	c.rec.Model = clip(host, 80)
	ups := c.p.upstreams[c.op.Feature]
	i := slices.IndexFunc(ups, func(u *upstream) bool { return u.base.Host == host && strings.HasPrefix(path, u.base.Path+"/") })
	if i < 0 {
		return nof(HostRefused, "%s", clip(host, 80))
	}
	c.up = ups[i]
	if s := c.throttled(); s != nil {
		return s
	}
	if s := c.spell(path); s != nil {
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
	u := *c.up.base
	u.Path = path
	resp, s := c.get(ctx, &u, "*/*")
	if s != nil {
		return s
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is not wanted
	if s := c.plain(resp); s != nil {
		return s
	}
	limit := min(c.up.Assets.MaxBytes, res.Amount.Bytes)
	if resp.ContentLength > limit {
		return nof(UpstreamBroken, "it is longer than %d bytes", limit)
	}
	data, s := c.bounded(ctx, resp, watch, limit)
	if s != nil {
		return s
	}
	kind := c.up.Assets.kind(data)
	if kind == "" {
		return nof(BadAsset, "it says %s", clip(resp.Header.Get("Content-Type"), 40))
	}
	if out := c.up.secrets().Bytes(data); !bytes.Equal(out, data) {
		return nof(UpstreamBroken, "it echoes a secret")
	}
	h := c.w.Header()
	h.Set("Content-Type", kind)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	c.began, c.rec.Status, c.rec.Detail = true, http.StatusOK, clip(path, 200)
	for piece := range slices.Chunk(data, 256<<10) {
		if s := c.send(piece); s != nil {
			return s
		}
	}
	return nil
}

// spell takes the bytes of a path from what the job may write into paths. They
// are spent before the host hears them, and stay spent over restarts.
func (c *call) spell(path string) *stop {
	account := urlAccount(c.rec.Job)
	words := dreamcore.Usage{Bytes: int64(len(path))}
	err := c.p.ledger.Grant(account, dreamcore.Budget{Bytes: c.p.upstreams[c.op.Feature][0].Assets.URLBytes})
	var r budget.Reservation
	if err == nil {
		r, err = c.p.ledger.Reserve(words, account)
	}
	if err == nil {
		err = c.p.ledger.Settle(r, words)
	}
	var spent *budget.Exhausted
	switch {
	case errors.As(err, &spent):
		return nof(BudgetSpent, "bytes of addresses")
	case err != nil:
		c.p.log.Error("the ledger cannot be written", "job_id", c.rec.Job, "reason", LedgerDown, "error", err)
		return no(LedgerDown)
	}
	return nil
}
