package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

//go:embed page/*.html
var pageFiles embed.FS

//go:embed static/*
var staticFiles embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{"dict": dict}).ParseFS(pageFiles, "page/*.html"))

// dict hands several values to a template; it takes pairs of name and value.
func dict(pairs ...any) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("%v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// assets are the static files with what their address is made of.
var assets = loadAssets()

type asset struct {
	data []byte
	kind string
	tag  string
}

func loadAssets() map[string]asset {
	kinds := map[string]string{
		"app.css": "text/css; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	}
	all := map[string]asset{}
	for name, kind := range kinds {
		data, err := fs.ReadFile(staticFiles, "static/"+name)
		if err != nil {
			panic(err) // embedded: a mistake of the build
		}
		sum := sha256.Sum256(data)
		all[name] = asset{data, kind, hex.EncodeToString(sum[:8])}
	}
	return all
}

func (a *App) static(w http.ResponseWriter, r *http.Request) {
	f, ok := assets[r.PathValue("file")]
	if !ok {
		a.problem(w, r, dreamcore.Errorf(dreamcore.NotFound, "web", "no such file"))
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("ETag", `"`+f.tag+`"`)
	if r.URL.Query().Get("v") == f.tag {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		w.Header().Set("Cache-Control", "no-cache")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}

// Page is what every page's template has at hand.
type Page struct {
	Lang    dreamcore.Lang
	Title   string
	Path    string // of this page, for the language links
	StandIn bool
	Bare    bool // no header and footer: the game has the whole window
}

// T is a text of the catalogue in the page's language.
func (p Page) T(key string, args ...string) string { return text.T(p.Lang, key, args...) }

// Asset is the address of a static file, which changes with its content.
func (p Page) Asset(name string) string { return "/static/" + name + "?v=" + assets[name].tag }

// LangLink is one entry of the language menu.
type LangLink struct {
	Lang    dreamcore.Lang
	Name    string
	Href    string
	Current bool
}

// Langs is the language menu.
func (p Page) Langs() []LangLink {
	names := map[dreamcore.Lang]string{dreamcore.English: "English", dreamcore.Japanese: "日本語", dreamcore.Chinese: "中文"}
	var out []LangLink
	for _, l := range dreamcore.Langs {
		out = append(out, LangLink{l, names[l], p.Path + "?" + url.Values{"lang": {string(l)}}.Encode(), l == p.Lang})
	}
	return out
}

func (a *App) page(r *http.Request, title string) Page {
	path := r.URL.EscapedPath()
	if r.Method != http.MethodGet {
		path = "/" // the page that answers a form has no address of its own
	}
	return Page{Lang: langOf(r), Title: title, Path: path, StandIn: a.config.StandIn}
}

// render writes a page. It is built in memory first, so that a mistake in a
// template never shows half a page.
func (a *App) render(w http.ResponseWriter, r *http.Request, status int, name string, view any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, view); err != nil {
		a.log.Error("page cannot be built", "page", name, "reason", err.Error())
		http.Error(w, text.T(langOf(r), "web.fault"), http.StatusInternalServerError)
		return
	}
	a.rememberLang(w, r)
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", string(langOf(r)))
	h.Set("Vary", "Accept-Language, Cookie")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	if _, err := w.Write(b.Bytes()); err != nil && r.Context().Err() == nil {
		a.log.Info("page not delivered", "page", name, "reason", err.Error())
	}
}

type noticeView struct {
	Page
	Body string
}

// money writes micro-units as an amount.
func (a *App) money(micros int64) string {
	s := fmt.Sprintf("%d.%04d", micros/1_000_000, micros%1_000_000/100)
	if a.config.Currency != "" {
		s += " " + a.config.Currency
	}
	return s
}
