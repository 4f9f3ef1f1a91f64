// Package gamehost owns how published games are served: on an origin of their
// own that shares nothing with the app, with headers under which a game can do
// no harm whatever is in it. A game is untrusted content on the open web; safety
// comes from the origin and the headers, never from having looked at scripts.
//
//	/g/GAME/             the current version
//	/g/GAME/v/VERSION/   one version for ever; its files may be cached for ever
//
// All games share one host, so each document is given an opaque origin by CSP
// sandbox. With Config.Wildcard each game has a host of its own (GAME.HOST) and
// the paths are / and /v/VERSION/.
package gamehost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/blob"
)

// Games is what the host needs to know of games.
type Games interface {
	Game(ctx context.Context, id dreamcore.GameID) (dreamcore.Game, error)
	Version(ctx context.Context, id dreamcore.VersionID) (dreamcore.Version, error)
}

// Blobs is where the files are.
type Blobs interface {
	Open(ctx context.Context, hash dreamcore.BlobHash) (blob.File, error)
}

// Config says where games are served.
type Config struct {
	// Origin is what stands before the path in a game's URL: "http://localhost:8081".
	Origin string
	// Aliases are further Host headers to answer to, such as "127.0.0.1:8081".
	Aliases []string
	// Wildcard gives each game its own host below that of Origin. Its name must
	// resolve: *.localhost does in browsers, elsewhere the operator's DNS says so.
	Wildcard bool
}

// Host is the handler.
type Host struct {
	config   Config
	origin   *url.URL
	hosts    map[string]bool
	games    Games
	blobs    Blobs
	log      *slog.Logger
	versions *versionCache
	reports  *limiter
	shelf    *shelf
}

// New checks the configuration; it does no I/O. Log receives what is refused.
func New(config Config, games Games, blobs Blobs, log *slog.Logger) (*Host, error) {
	u, err := url.Parse(config.Origin)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || (u.Path != "" && u.Path != "/") {
		return nil, dreamcore.Errorf(dreamcore.Invalid, "gamehost", "%q is no origin for games", config.Origin).
			WithHint("it looks like http://localhost:8081")
	}
	h := &Host{
		config: config, origin: u, hosts: map[string]bool{}, games: games, blobs: blobs, log: log,
		versions: newVersionCache(256), reports: newLimiter(20, time.Second),
		shelf: newShelf(blobs),
	}
	for _, host := range append([]string{u.Host}, config.Aliases...) {
		h.hosts[strings.ToLower(host)] = true
	}
	return h, nil
}

// URL is where a game's current version is, for ever the same.
func (h *Host) URL(game dreamcore.GameID) string {
	if h.config.Wildcard {
		return h.origin.Scheme + "://" + string(game) + "." + h.origin.Host + "/"
	}
	return h.origin.Scheme + "://" + h.origin.Host + "/g/" + string(game) + "/"
}

// VersionURL is where one version is, for ever the same.
func (h *Host) VersionURL(game dreamcore.GameID, version dreamcore.VersionID) string {
	return h.URL(game) + "v/" + string(version) + "/"
}

// FrameSource is what an app page's frame-src must allow so that games can be
// shown in it.
func (h *Host) FrameSource() string {
	if h.config.Wildcard {
		return h.origin.Scheme + "://*." + h.origin.Host
	}
	return h.origin.Scheme + "://" + h.origin.Host
}

// FrameSandbox is the sandbox attribute with which an app page frames a game.
func (h *Host) FrameSandbox() string { return strings.Join(tokens(h.config.Wildcard), " ") }

// ServeHTTP implements http.Handler.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, path, ok := h.route(w, r)
	if !ok {
		return
	}
	// Service workers outlive a page and would own every game of a shared origin.
	if strings.EqualFold(r.Header.Get("Service-Worker"), "script") {
		h.refuse(r, "service_worker")
		h.page(w, r, http.StatusForbidden, "gamehost.service_worker")
		return
	}
	if path == reportPath && r.Method == http.MethodPost {
		h.report(w, r, id)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		h.page(w, r, http.StatusMethodNotAllowed, "gamehost.method")
		return
	}
	h.serve(w, r, id, path)
}

// route finds the game and the path within it, or answers the request itself.
func (h *Host) route(w http.ResponseWriter, r *http.Request) (id dreamcore.GameID, path string, ok bool) {
	host := strings.ToLower(r.Host)
	shared := h.hosts[host]
	if h.config.Wildcard && !shared {
		for known := range h.hosts {
			if label, found := strings.CutSuffix(host, "."+known); found && validGame(label) {
				return dreamcore.GameID(label), strings.TrimPrefix(r.URL.Path, "/"), true
			}
		}
	}
	if !shared {
		h.refuse(r, "wrong_host")
		h.page(w, r, http.StatusMisdirectedRequest, "gamehost.wrong_host")
		return "", "", false
	}
	if r.URL.Path == "/"+reportPath && r.Method == http.MethodPost {
		h.report(w, r, "")
		return "", "", false
	}
	rest, found := strings.CutPrefix(r.URL.Path, "/g/")
	label, path, slash := strings.Cut(rest, "/")
	if !found || !validGame(label) {
		h.page(w, r, http.StatusNotFound, "gamehost.not_found")
		return "", "", false
	}
	id = dreamcore.GameID(label)
	switch {
	case h.config.Wildcard:
		// A link from before the operator had a wildcard name.
		h.redirect(w, r, h.URL(id)+(&url.URL{Path: path}).EscapedPath())
		return "", "", false
	case !slash:
		h.redirect(w, r, "/g/"+label+"/") // without the slash a game's relative paths would miss
		return "", "", false
	}
	return id, path, true
}

func (h *Host) redirect(w http.ResponseWriter, r *http.Request, to string) {
	plainHeaders(w.Header())
	http.Redirect(w, r, to, http.StatusFound)
}

// serve answers with a file of the game.
func (h *Host) serve(w http.ResponseWriter, r *http.Request, id dreamcore.GameID, path string) {
	game, err := h.games.Game(r.Context(), id)
	switch {
	case dreamcore.CodeOf(err) == dreamcore.NotFound:
		h.page(w, r, http.StatusNotFound, "gamehost.not_found")
		return
	case err != nil:
		h.fail(w, r, id, err)
		return
	case !game.Removed.IsZero():
		w.Header().Set("Clear-Site-Data", `"cache", "storage"`)
		h.page(w, r, http.StatusGone, "gamehost.gone")
		return
	}
	version, pinned := game.Current, false
	if rest, found := strings.CutPrefix(path, "v/"); found {
		if v, file, slash := strings.Cut(rest, "/"); blob.Valid(dreamcore.BlobHash(v)) {
			if !slash {
				h.redirect(w, r, h.VersionURL(id, dreamcore.VersionID(v)))
				return
			}
			version, path, pinned = dreamcore.VersionID(v), file, true
		}
	}
	if version == "" {
		h.page(w, r, http.StatusNotFound, "gamehost.not_yet")
		return
	}
	files, err := h.files(r.Context(), id, version)
	switch {
	case dreamcore.CodeOf(err) == dreamcore.NotFound:
		h.page(w, r, http.StatusNotFound, "gamehost.not_found")
		return
	case err != nil:
		h.fail(w, r, id, err)
		return
	}
	if path == "" || strings.HasSuffix(path, "/") {
		path += "index.html"
	}
	file, found := files[path]
	if !found {
		h.page(w, r, http.StatusNotFound, "gamehost.no_file")
		return
	}
	h.file(w, r, id, file, pinned)
}

func (h *Host) file(w http.ResponseWriter, r *http.Request, id dreamcore.GameID, file dreamcore.VersionFile, pinned bool) {
	kind := MediaType(file.Path)
	if wantsGzip(r, file, kind) {
		data, err := h.shelf.get(r.Context(), file.Hash)
		if err != nil {
			h.fail(w, r, id, err)
			return
		}
		h.fileHeaders(w.Header(), kind, string(file.Hash)+"-gzip", pinned)
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", strconv.Itoa(len(data))) // ServeContent leaves it out for what is encoded
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		return
	}
	f, err := h.blobs.Open(r.Context(), file.Hash)
	if err != nil {
		h.fail(w, r, id, err)
		return
	}
	defer func() {
		if err := f.Close(); err != nil {
			h.log.Warn("blob does not close", "game", string(id), "reason", err.Error())
		}
	}()
	h.fileHeaders(w.Header(), kind, string(file.Hash), pinned)
	http.ServeContent(w, r, "", time.Time{}, onlySeeker{f})
}

// fileHeaders are on every file of a game.
func (h *Host) fileHeaders(header http.Header, kind, tag string, pinned bool) {
	SetHeaders(header, h.config.Wildcard)
	header.Set("Content-Type", kind)
	header.Set("ETag", `"`+tag+`"`)
	if compressible(kind) {
		header.Set("Vary", "Accept-Encoding")
	}
	if pinned && !strings.HasPrefix(kind, "text/html") {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		// A page is asked for again each time, so that a new version and a
		// takedown are seen at once; the ETag keeps that cheap.
		header.Set("Cache-Control", "no-cache")
	}
}

// onlySeeker hides from ServeContent everything of a file but its bytes.
type onlySeeker struct{ io.ReadSeeker }

// files returns a version's files by path. A version never changes, so it is
// read once.
func (h *Host) files(ctx context.Context, game dreamcore.GameID, id dreamcore.VersionID) (map[string]dreamcore.VersionFile, error) {
	if v, ok := h.versions.get(id); ok {
		if v.game != game {
			return nil, dreamcore.Errorf(dreamcore.NotFound, "gamehost", "game %s has no version %s", game, id)
		}
		return v.files, nil
	}
	v, err := h.games.Version(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("find version: %w", err)
	}
	c := cachedVersion{game: v.Game, files: make(map[string]dreamcore.VersionFile, len(v.Files))}
	for _, f := range v.Files {
		c.files[f.Path] = f
	}
	h.versions.put(id, c)
	return h.files(ctx, game, id)
}

// fail answers for a fault of ours and writes it down.
func (h *Host) fail(w http.ResponseWriter, r *http.Request, id dreamcore.GameID, err error) {
	if errors.Is(err, context.Canceled) {
		// The reader is gone, and nothing is wrong; but silence would be a 200.
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.log.Error("game cannot be served", "game", string(id), "reason", err.Error())
	h.page(w, r, http.StatusInternalServerError, "gamehost.broken")
}

func (h *Host) refuse(r *http.Request, reason string) {
	h.log.Info("request refused", "decision", "refused", "reason", reason, "host", clip(r.Host), "path", clip(r.URL.Path))
}

// clip makes untrusted text one short escaped line.
func clip(s string) string {
	if len(s) > 120 {
		s = s[:120]
	}
	return fmt.Sprintf("%+q", s)
}

// validGame reports whether a label has the form of a game's id.
func validGame(s string) bool {
	if len(s) != 16 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
