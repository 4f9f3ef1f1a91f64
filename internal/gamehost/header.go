package gamehost

import (
	"net/http"
	"path"
	"strings"
)

// tokens are what a game's document may do. Not among them: leaving its frame,
// opening windows, downloading, dialogs, forms.
func tokens(ownOrigin bool) []string {
	t := []string{"allow-scripts", "allow-pointer-lock", "allow-orientation-lock"}
	if ownOrigin {
		t = append(t, "allow-same-origin")
	}
	return t
}

// Policy is the Content-Security-Policy of every file of a game. ownOrigin is
// true where the game has a host of its own; else sandbox makes its origin opaque.
func Policy(ownOrigin bool) string {
	return strings.Join([]string{
		"sandbox " + strings.Join(tokens(ownOrigin), " "),
		"default-src 'self' 'unsafe-inline' data: blob:",
		"connect-src 'self' data: blob:",
		"frame-src 'none'",
		"object-src 'none'",
		"form-action 'none'",
		"base-uri 'none'",
		"report-uri /" + reportPath,
	}, "; ")
}

// denied are the browser's powers that no game needs. What a game does use
// (gamepad, fullscreen, autoplay after a gesture) is not here, nor are names
// that browsers do not know: they fill the console of every game with warnings.
var denied = []string{
	"accelerometer", "browsing-topics", "camera", "clipboard-read",
	"display-capture", "encrypted-media", "geolocation", "gyroscope", "hid", "idle-detection", "local-fonts",
	"magnetometer", "microphone", "midi", "otp-credentials", "payment", "publickey-credentials-create",
	"publickey-credentials-get", "screen-wake-lock", "serial", "storage-access", "usb",
	"window-management", "xr-spatial-tracking",
}

var permissions = strings.Join(denied, "=(), ") + "=()"

// SetHeaders sets what every file of a game is served with; the playtest uses
// it too, so that a game is judged under the headers it will live under.
func SetHeaders(h http.Header, ownOrigin bool) {
	plainHeaders(h)
	h.Set("Content-Security-Policy", Policy(ownOrigin))
	// An opaque origin is a stranger to its own files: modules, fetch and canvas
	// need this. There is nothing on this host that is not public.
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Permissions-Policy", permissions)
	if ownOrigin {
		h.Set("Origin-Agent-Cluster", "?1") // a process apart from its sister games
	}
}

// plainHeaders are on every answer of this host.
func plainHeaders(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("X-Dns-Prefetch-Control", "off")
}

// mediaTypes is our own table: the machine's differs from machine to machine.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".json": "application/json; charset=utf-8", ".map": "application/json; charset=utf-8",
	".gltf": "model/gltf+json", ".glb": "model/gltf-binary", ".wasm": "application/wasm",
	".txt": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8", ".csv": "text/csv; charset=utf-8",
	".xml": "application/xml; charset=utf-8", ".tmx": "application/xml; charset=utf-8", ".tsx": "application/xml; charset=utf-8",
	".glsl": "text/plain; charset=utf-8", ".vert": "text/plain; charset=utf-8", ".frag": "text/plain; charset=utf-8",
	".atlas": "text/plain; charset=utf-8", ".fnt": "text/plain; charset=utf-8", ".vtt": "text/vtt; charset=utf-8",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".avif": "image/avif", ".svg": "image/svg+xml", ".ico": "image/x-icon", ".bmp": "image/bmp",
	".mp3": "audio/mpeg", ".ogg": "audio/ogg", ".oga": "audio/ogg", ".opus": "audio/ogg", ".wav": "audio/wav",
	".m4a": "audio/mp4", ".aac": "audio/aac", ".flac": "audio/flac",
	".mp4": "video/mp4", ".webm": "video/webm",
	".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf", ".otf": "font/otf",
	".webmanifest": "application/manifest+json",
}

// MediaType is the Content-Type of a game's file, by its name alone.
func MediaType(name string) string {
	if t, ok := mediaTypes[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	return "application/octet-stream"
}
