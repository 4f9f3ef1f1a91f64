package gamehost

import (
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/blob"
)

// oneGame answers for one game with one file, without a disk: a fuzzer asks
// often. The same host over the real store stands in gamehost_test.go.
type oneGame struct{}

const fuzzGame, fuzzBody = dreamcore.GameID("abcdefghjkmnpqrs"), "<title>the only page</title>"

var fuzzVersion = dreamcore.VersionID(strings.Repeat("0a", 32))

func (oneGame) Game(_ context.Context, id dreamcore.GameID) (dreamcore.Game, error) {
	if id != fuzzGame {
		return dreamcore.Game{}, dreamcore.Errorf(dreamcore.NotFound, "fuzz", "no game")
	}
	return dreamcore.Game{ID: id, Current: fuzzVersion}, nil
}

func (oneGame) Version(_ context.Context, id dreamcore.VersionID) (dreamcore.Version, error) {
	if id != fuzzVersion {
		return dreamcore.Version{}, dreamcore.Errorf(dreamcore.NotFound, "fuzz", "no version")
	}
	return dreamcore.Version{ID: id, Game: fuzzGame, Files: []dreamcore.VersionFile{{Path: "index.html", Hash: "h"}}}, nil
}

func (oneGame) Open(context.Context, dreamcore.BlobHash) (blob.File, error) {
	return memory{strings.NewReader(fuzzBody)}, nil
}

type memory struct{ *strings.Reader }

func (m memory) SizeBytes() int64 { return m.Size() }
func (memory) Close() error       { return nil }

func FuzzPaths(f *testing.F) {
	for _, path := range []string{
		"/g/" + string(fuzzGame) + "/", "/g/" + string(fuzzGame) + "/v/" + string(fuzzVersion) + "/", "/g/" + string(fuzzGame),
		"/g/" + string(fuzzGame) + "/../../etc/passwd", "//g//", "/g/" + string(fuzzGame) + "/v/x/", "/.report", "/%2e%2e/",
	} {
		f.Add(path, "games.test", "")
	}
	f.Add("/", string(fuzzGame)+".games.test", "script")
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	var hosts []*Host
	for _, wildcard := range []bool{false, true} {
		h, err := New(Config{Origin: "http://games.test", Wildcard: wildcard}, oneGame{}, oneGame{}, log)
		if err != nil {
			f.Fatal(err)
		}
		hosts = append(hosts, h)
	}
	f.Fuzz(func(t *testing.T, path, host, worker string) {
		for i, h := range hosts {
			r := httptest.NewRequest("GET", "http://games.test/", nil)
			r.URL, r.Host = &url.URL{Path: path}, host
			r.Header.Set("Service-Worker", worker)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			switch w.Code {
			case 302, 403, 404, 421:
				if strings.Contains(w.Body.String(), fuzzBody) {
					t.Fatalf("%d with the game's page", w.Code)
				}
			case 200:
				base := ""
				if i == 0 {
					base = "/g/" + string(fuzzGame)
				}
				rest := strings.TrimPrefix(strings.TrimPrefix(path, base), "/")
				rest = strings.TrimPrefix(rest, "v/"+string(fuzzVersion)+"/")
				if !strings.HasPrefix(path, base) || (rest != "" && rest != "index.html") {
					t.Fatalf("%q of %q gives the page", path, host)
				}
			default:
				t.Fatalf("%q of %q: %d", path, host, w.Code)
			}
			if to := w.Header().Get("Location"); to != "" {
				u, err := url.Parse(to)
				if err != nil || (u.Host != "" && !strings.HasSuffix(u.Host, "games.test")) || strings.HasPrefix(to, "//") {
					t.Fatalf("%q leads to %q", path, to)
				}
			}
			if len(w.Header()["Set-Cookie"]) != 0 || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Fatalf("%v", w.Header())
			}
		}
	})
}
