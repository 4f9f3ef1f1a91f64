package keyproxy

import (
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"dreamcore"
)

// assetWorld is a job that may fetch from one host, which w.up plays.
func assetWorld(t *testing.T, a Assets) (w *world, host string, picture string) {
	png, err := base64.StdEncoding.DecodeString(testPicture)
	if err != nil {
		t.Fatal(err)
	}
	files := newFake(t)
	files.set(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, ".png"):
			rw.Header().Set("Content-Type", "image/png")
			_, _ = rw.Write(png)
		case strings.HasSuffix(r.URL.Path, ".html"):
			rw.Header().Set("Content-Type", "image/png")
			io.WriteString(rw, "<script>alert(1)</script>")
		case strings.HasSuffix(r.URL.Path, ".svg"):
			rw.Header().Set("Content-Type", "image/svg+xml")
			io.WriteString(rw, "<svg xmlns='http://www.w3.org/2000/svg'/>")
		case strings.HasSuffix(r.URL.Path, ".glb"):
			rw.Header().Set("Content-Type", "application/octet-stream")
			io.WriteString(rw, "glTF\x02\x00\x00\x00")
		case strings.HasSuffix(r.URL.Path, ".big"):
			_, _ = rw.Write(append(png, make([]byte, 5000)...))
		case strings.HasSuffix(r.URL.Path, ".gz"):
			rw.Header().Set("Content-Encoding", "gzip")
			_, _ = rw.Write(png)
		case strings.HasSuffix(r.URL.Path, ".moved"):
			http.Redirect(rw, r, "http://evil.example/", http.StatusFound)
		default:
			rw.WriteHeader(404)
		}
	})
	resolver := &counting{}
	_, port, _ := strings.Cut(files.addr, ":")
	host = "assets.example"
	w = newWorld(t, func(cfg *Config, terms *JobTerms) {
		cfg.Resolver = resolver
		cfg.Upstreams[dreamcore.AssetFetch] = []Upstream{{BaseURL: "http://" + host + "/kit", Private: loopback, Assets: a}}
		terms.Features = append([]dreamcore.Feature{dreamcore.AssetFetch}, terms.Features...)
	})
	w.token = w.mintFor(w.terms.Features)
	w.up = files
	w.p.upstreams[dreamcore.AssetFetch][0].guard.Port = portOf(t, port)
	t.Cleanup(func() {
		if names, _ := resolver.asked(); len(names) > 1 || len(names) == 1 && names[0] != host {
			t.Errorf("D05: asked for %q", names)
		}
	})
	return w, host, string(png)
}

func TestE23AssetFetch(t *testing.T) {
	w, host, picture := assetWorld(t, Assets{MaxBytes: 4000})
	for path, reason := range map[string]Reason{
		"/asset/evil.example/kit/a.png": HostRefused, "/asset/" + host + "/other/a.png": HostRefused, "/asset/" + host + ".evil.example/kit/a.png": HostRefused,
		"/asset/sub." + host + "/kit/a.png": HostRefused, "/asset/" + host + "./kit/a.png": HostRefused, "/asset/127.0.0.1/kit/a.png": HostRefused, "/asset/" + host + "/kitten/a.png": HostRefused,
	} {
		w.refused(w.get(path), 403, reason)
	}
	for _, path := range []string{"/asset/" + host + "/kit/a.png?leak=1", "/asset/" + host + "/kit/a.png?"} {
		if got := w.rawGet(path); got.status == 200 || path[len(path)-1] != '?' && !strings.Contains(got.body, string(BadQuery)) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for _, path := range []string{"/asset/" + host + "/kit/../a.png", "/asset/" + host + "/kit/%2e%2e/a.png", "/asset/" + host + "/kit//a.png", "/asset/" + host + "/kit/a%20b.png", "/asset/" + host + "@evil.example%2f/kit/a.png"} {
		w.refused(w.rawGet(path), 400, BadTarget)
	}
	for _, path := range []string{"/asset/" + strings.ToUpper(host) + "/kit/a.png", "/asset/" + host + ":80/kit/a.png", "/asset/" + host, "/asset/" + host + "/kit/" + strings.Repeat("a", 300) + ".png"} {
		if got := w.get(path); got.status != 404 && got.status != 400 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for _, method := range []string{"PUT", "POST", "DELETE"} {
		w.refused(w.send(method, "/asset/"+host+"/kit/a.png", "{}", nil), 405, BadMethod)
	}
	w.dials(0)
	got := w.get("/asset/" + host + "/kit/a.png")
	if got.status != 200 || got.body != picture || got.header.Get("Content-Type") != "image/png" || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Fatalf("the positive control: %d %v", got.status, got.header)
	}
	if got := w.get("/asset/" + host + "/kit/a.glb"); got.status != 200 || got.header.Get("Content-Type") != "model/gltf-binary" {
		t.Errorf("%d %v", got.status, got.header)
	}
	for path, reason := range map[string]Reason{"a.html": BadAsset, "a.svg": BadAsset, "a.big": UpstreamBroken, "a.gz": UpstreamBroken, "a.moved": UpstreamMoved, "a.none": NotThere} {
		if got := w.get("/asset/" + host + "/kit/" + path); got.status < 400 || !strings.Contains(got.body, string(reason)) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	w.token = w.mint(nil)
	if got := w.get("/asset/" + host + "/kit/a.png"); got.status != 403 || !strings.Contains(got.body, string(FeatureOff)) {
		t.Errorf("T12: %d %s", got.status, got.body)
	}
}

// What a job may write into paths is bounded over all of them, and types may be
// narrowed.
func TestE23BudgetOfAddresses(t *testing.T) {
	w, host, _ := assetWorld(t, Assets{URLBytes: 100, Types: []string{"image/png"}})
	word := "/asset/" + host + "/kit/" + strings.Repeat("a", 40) + ".png" // 49 bytes go out
	for range 2 {
		if got := w.get(word); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	calls := w.up.calls.Load()
	if got := w.get(word); got.status != 403 || !strings.Contains(got.body, string(BudgetSpent)) || !strings.Contains(got.body, "addresses") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if w.up.calls.Load() != calls {
		t.Error("the host heard it")
	}
	w, host, _ = assetWorld(t, Assets{Types: []string{"audio/ogg"}})
	if got := w.get("/asset/" + host + "/kit/a.png"); got.status != 502 || !strings.Contains(got.body, string(BadAsset)) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, a := range []Assets{{Types: []string{"text/html"}}, {MaxBytes: -1}} {
		if _, err := New(Config{Verifier: newVerifier(t), Dir: t.TempDir(), Upstreams: map[dreamcore.Feature][]Upstream{dreamcore.AssetFetch: {{BaseURL: "https://example.com", Assets: a}}}}); dreamcore.CodeOf(err) != dreamcore.Invalid {
			t.Errorf("%+v: %v", a, err)
		}
	}
}
