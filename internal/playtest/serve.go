package playtest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"sort"
	"strings"
	"sync"
	"time"
)

// policy is the Content-Security-Policy that published games are served with:
// a game that needs more than this does not work where it will live.
const policy = "default-src 'self' 'unsafe-inline' data: blob:; connect-src 'self' data: blob:; form-action 'none'; base-uri 'none'"

// emptyPage is what a tab shows between two games.
const emptyPage = ".playtest-empty"

// site serves one game's folder on loopback, as the public game host does.
type site struct {
	url    string
	server *http.Server
	root   *os.Root
	done   chan struct{}

	mu      sync.Mutex
	missing map[string]bool // paths that were asked for and are not there
}

// openSite starts to serve dir on a free loopback port. Close ends it.
func openSite(dir string) (*site, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open game folder: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("listen on loopback: %w", err)
	}
	s := &site{
		url:     "http://" + listener.Addr().String() + "/",
		root:    root,
		done:    make(chan struct{}),
		missing: map[string]bool{},
	}
	s.server = &http.Server{Addr: listener.Addr().String(), Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		// Serve returns when Close closes the listener; there is nothing to add.
		_ = s.server.Serve(listener)
	}()
	return s, nil
}

// Close stops serving and waits for it.
func (s *site) Close() error {
	err := s.server.Close()
	<-s.done
	s.root.Close()
	return err
}

// ServeHTTP answers GET of a file of the game.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=()")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if r.Header.Get("Service-Worker") == "script" {
		http.Error(w, "service workers are refused", http.StatusForbidden)
		return
	}
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	if name == emptyPage {
		h.Set("Content-Type", "text/html; charset=utf-8")
		return
	}
	if name == "" {
		name = "index.html"
	}
	if strings.HasSuffix(r.URL.Path, "/") && name != "index.html" {
		name = path.Join(name, "index.html")
	}
	f, err := s.root.Open(name)
	if err != nil {
		s.miss(w, name)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		s.miss(w, name)
		return
	}
	if t := mediaTypes[strings.ToLower(path.Ext(name))]; t != "" {
		h.Set("Content-Type", t)
	} else {
		h.Set("Content-Type", "application/octet-stream")
	}
	http.ServeContent(w, r, name, info.ModTime(), f)
}

// miss answers 404 and remembers it; a browser asks for favicon.ico by itself.
func (s *site) miss(w http.ResponseWriter, name string) {
	if name != "favicon.ico" {
		s.mu.Lock()
		if len(s.missing) < 20 {
			s.missing[name] = true
		}
		s.mu.Unlock()
	}
	http.Error(w, "no such file", http.StatusNotFound)
}

// Missing returns what was asked for in vain, sorted.
func (s *site) Missing() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for n := range s.missing {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// mediaTypes is fixed, so that no machine's own table changes a verdict.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".avif": "image/avif", ".svg": "image/svg+xml", ".ico": "image/x-icon",
	".mp3": "audio/mpeg", ".ogg": "audio/ogg", ".wav": "audio/wav", ".m4a": "audio/mp4",
	".mp4": "video/mp4", ".webm": "video/webm", ".wasm": "application/wasm",
	".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf", ".otf": "font/otf",
	".glb": "model/gltf-binary", ".gltf": "model/gltf+json", ".xml": "application/xml", ".csv": "text/csv",
}
