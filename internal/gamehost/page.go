package gamehost

import (
	"html/template"
	"net/http"

	"dreamcore"
	"dreamcore/internal/text"
)

// noticePage is what people see instead of a game. It runs no script.
var noticePage = template.Must(template.New("notice").Parse(`<!doctype html>
<html lang="{{.Lang}}"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{{.Title}}</title>
<style>
html{height:100%}
body{min-height:100%;margin:0;display:grid;place-items:center;text-align:center;padding:2rem;box-sizing:border-box;
font:1.1rem/1.6 system-ui,"Hiragino Sans","Noto Sans CJK JP","Microsoft YaHei",sans-serif;color:#f4f1ff;
background:radial-gradient(60rem 40rem at 50% -10%,#6b4fd8 0,transparent 70%),#1b1440}
svg{width:7rem;height:7rem}h1{font-size:1.5rem;margin:.5rem 0}p{margin:0;opacity:.85;max-width:26rem}
</style>
<main><svg viewBox="0 0 64 64" aria-hidden="true"><path d="M41 8a24 24 0 1 0 15 33A20 20 0 0 1 41 8z" fill="#ffd76a"/><circle cx="47" cy="17" r="2" fill="#fff"/><circle cx="55" cy="27" r="1.5" fill="#fff"/></svg>
<h1>{{.Title}}</h1><p>{{.Body}}</p></main></html>
`))

// page answers with a friendly notice in the reader's language. Status and key
// belong together; the key's text has a second one, its _body.
func (h *Host) page(w http.ResponseWriter, r *http.Request, status int, key string) {
	lang := dreamcore.AcceptLang(r.Header.Get("Accept-Language"))
	header := w.Header()
	plainHeaders(header)
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'")
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Language", string(lang))
	header.Set("Cache-Control", "no-store")
	header.Set("Vary", "Accept-Language")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	err := noticePage.Execute(w, map[string]string{
		"Lang": string(lang), "Title": text.T(lang, key), "Body": text.T(lang, key+"_body"),
	})
	if err != nil && r.Context().Err() == nil {
		h.log.Warn("notice cannot be written", "reason", err.Error())
	}
}
