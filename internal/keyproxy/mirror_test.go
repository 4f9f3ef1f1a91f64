package keyproxy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/keyproxy/provider/npm"
)

// pack makes a package's tarball.
func pack(t testing.TB, name, version string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for file, text := range map[string]string{
		"package/package.json": fmt.Sprintf(`{"name":%q,"version":%q,"main":"index.js","scripts":{"postinstall":"touch was-run"}}`, name, version),
		"package/index.js":     fmt.Sprintf("module.exports = %q\n", name+"@"+version),
	} {
		if err := w.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func integrity(data []byte) string {
	sum := sha512.Sum512(data)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// registry is a fake npm registry.
type registry struct {
	t     *testing.T
	f     *fake
	files map[string][]byte // path to tarball
	docs  map[string]string // name to metadata
}

func newRegistry(t *testing.T) *registry {
	r := &registry{t: t, f: newFake(t), files: map[string][]byte{}, docs: map[string]string{}}
	versions := map[string][]string{"left": {"1.0.0", "1.2.0", "2.0.0", "1.3.0-beta.1"}, "@scope/right": {"0.3.1", "0.4.0"}, "secret": {"1.0.0"}}
	for name, list := range versions {
		var items []string
		for _, v := range list {
			data := pack(t, name, v)
			path := "/reg/" + name + "/-/" + filepath.Base(name) + "-" + v + ".tgz"
			r.files[path] = data
			deps := `{}`
			if name == "left" && v == "1.2.0" {
				deps = `{"@scope/right":"^0.3.0"}`
			}
			items = append(items, fmt.Sprintf(`%q:{"name":%q,"version":%q,"dependencies":%s,"hasInstallScript":true,"_npmUser":{"name":"x"},"dist":{"tarball":"http://%s%s","integrity":%q,"shasum":"x"}}`,
				v, name, v, deps, r.f.addr, path, integrity(data)))
		}
		r.docs[name] = fmt.Sprintf(`{"name":%q,"dist-tags":{"latest":%q},"modified":"2026-01-01T00:00:00.000Z","versions":{%s}}`, name, list[len(list)-1], strings.Join(items, ","))
	}
	r.f.set(r.serve)
	return r
}

func (r *registry) serve(w http.ResponseWriter, req *http.Request) {
	if data, ok := r.files[req.URL.Path]; ok {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(data)
		return
	}
	if doc, ok := r.docs[strings.TrimPrefix(req.URL.Path, "/reg/")]; ok {
		w.Header().Set("Content-Type", "application/vnd.npm.install-v1+json")
		io.WriteString(w, doc)
		return
	}
	w.WriteHeader(404)
	io.WriteString(w, `{"error":"Not found"}`)
}

func (r *registry) option(pins ...npm.Pin) option {
	if pins == nil {
		pins = []npm.Pin{{Name: "left", Version: "^1.0.0"}, {Name: "@scope/right", Version: "0.3.1", Integrity: integrity(r.files["/reg/@scope/right/-/right-0.3.1.tgz"])}}
	}
	return func(cfg *Config, terms *JobTerms) {
		cfg.Upstreams[dreamcore.PackageMirror] = []Upstream{{
			BaseURL: "http://" + r.f.addr + "/reg", Key: dreamcore.NewSecret(canary), Private: loopback, Packages: pins, BoxURL: "http://box",
		}}
		terms.Features = append([]dreamcore.Feature{dreamcore.PackageMirror}, terms.Features...)
	}
}

// mirrorWorld is a world whose token opens the mirror.
func mirrorWorld(t *testing.T, o ...option) *world {
	w := newWorld(t, o...)
	w.token = w.mintFor(w.terms.Features)
	return w
}

func (w *world) get(path string) reply {
	w.t.Helper()
	return w.send("GET", path, "", nil)
}

func TestE20MirrorServesThePinnedList(t *testing.T) {
	r := newRegistry(t)
	w := mirrorWorld(t, r.option())
	got := w.get("/npm/left")
	var doc struct {
		Tags     map[string]string `json:"dist-tags"`
		Versions map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(got.body), &doc); err != nil || got.status != 200 {
		t.Fatalf("%d %v %s", got.status, err, got.body)
	}
	if len(doc.Versions) != 2 || doc.Versions["1.0.0"] == nil || doc.Versions["1.2.0"] == nil || doc.Tags["latest"] != "1.2.0" {
		t.Errorf("%s", got.body)
	}
	if strings.Contains(got.body, r.f.addr) || strings.Contains(got.body, "hasInstallScript") || strings.Contains(got.body, "_npmUser") || !strings.Contains(got.body, "http://box/npm/left/-/left-1.2.0.tgz") {
		t.Errorf("%s", got.body)
	}
	if req, _ := r.f.lastRequest(); req.Header.Get("Authorization") != "Bearer "+canary {
		t.Errorf("the registry saw %v", req.Header)
	}
	for _, path := range []string{"/npm/@scope/right", "/npm/@scope%2fright", "/npm/@scope%2Fright"} {
		if got := w.get(path); got.status != 200 || !strings.Contains(got.body, `"0.3.1"`) || strings.Contains(got.body, `"0.4.0"`) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for path, file := range map[string]string{"/npm/left/-/left-1.2.0.tgz": "/reg/left/-/left-1.2.0.tgz", "/npm/@scope/right/-/right-0.3.1.tgz": "/reg/@scope/right/-/right-0.3.1.tgz"} {
		calls := r.f.calls.Load()
		for range 2 {
			if got := w.get(path); got.status != 200 || got.body != string(r.files[file]) {
				t.Errorf("%s: %d, %d bytes", path, got.status, len(got.body))
			}
		}
		if n := r.f.calls.Load() - calls; n != 1 {
			t.Errorf("%s: the registry was asked %d times", path, n)
		}
	}
	if u := w.usage(); u.Requests == 0 || u.Bytes == 0 {
		t.Errorf("usage %+v", u)
	}
	// A kept file that was changed on disk is fetched anew.
	kept, _ := filepath.Glob(filepath.Join(w.dir, "mirror", "*.tgz"))
	if len(kept) != 2 {
		t.Fatalf("kept %v", kept)
	}
	for _, k := range kept {
		if err := os.WriteFile(k, []byte("evil"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.get("/npm/left/-/left-1.2.0.tgz"); got.body != string(r.files["/reg/left/-/left-1.2.0.tgz"]) {
		t.Errorf("%d %.100q", got.status, got.body)
	}
}

func TestE20MirrorRefusesTheRest(t *testing.T) {
	r := newRegistry(t)
	w := mirrorWorld(t, r.option())
	for _, path := range []string{"/npm/left", "/npm/@scope%2fright", "/npm/left/-/left-1.0.0.tgz"} {
		for _, method := range []string{"PUT", "POST", "DELETE", "PATCH"} {
			w.refused(w.send(method, path, "{}", nil), 405, BadMethod)
		}
	}
	for _, target := range []string{
		"PUT /npm/-/user/org.couchdb.user:eve", "POST /npm/-/v1/login", "GET /npm/-/v1/search", "GET /npm/-/v1/search?text=left", "GET /npm/-/package/left/dist-tags",
		"PUT /npm/-/package/left/dist-tags/latest", "POST /npm/-/npm/v1/security/advisories/bulk", "POST /npm/-/npm/v1/security/audits/quick", "GET /npm/-/whoami",
		"GET /npm/-/all", "GET /npm/-/ping", "GET /npm/-/npm/v1/tokens", "GET /npm/", "GET /npm/left/1.0.0", "GET /npm/left/latest", "GET /npm/left/-rev/1", "DELETE /npm/left/-rev/1",
		"GET /npm/evil.example/x/left-1.0.0.tgz", "GET /npm/left/-/left-1.0.0.tar", "GET /npm/Left", "GET /npm/@scope", "GET /npm/@/right",
	} {
		method, path, _ := strings.Cut(target, " ")
		if got := w.send(method, path, "{}", nil); got.status != 404 && got.status != 405 {
			t.Errorf("%s: %d %s", target, got.status, got.body)
		}
	}
	for _, path := range []string{
		"/npm/..%2fsecret", "/npm/@scope%2f..%2fsecret", "/npm/@scope%2f%2e%2e", "/npm/@scope%252fright", "/npm/%40scope/right", "/npm/left%2f-%2fleft-1.0.0.tgz", "/npm/left/../secret",
		"/npm/@scope/../secret", "/npm/@scope%2f../secret", "/npm//left", "/npm/left;x", "/npm/left%00", "/npm/@scope%5cright", "/npm/https://evil.example/left", "/npm/@scope%c0%afright",
	} {
		w.refused(w.rawGet(path), 400, BadTarget)
	}
	for _, name := range []string{"secret", "lef", "left2", "right", "@scope/left", "@scope%2fother", "@other/right", "left.", "secret/-/secret-1.0.0.tgz", "@scope/wrong/-/wrong-1.0.0.tgz"} {
		got := w.get("/npm/" + name)
		w.refused(got, 403, PackageRefused)
	}
	if n := r.f.dials.Load(); n != 0 {
		t.Errorf("%d dials to the registry", n)
	}
	// Versions that are not pinned are not there, of a package that is.
	for _, path := range []string{"/npm/left/-/left-2.0.0.tgz", "/npm/left/-/left-1.3.0-beta.1.tgz", "/npm/left/-/right-0.3.1.tgz", "/npm/@scope/right/-/right-0.4.0.tgz"} {
		if got := w.get(path); got.status != 404 || !strings.Contains(got.body, string(NoVersion)) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := w.get("/npm/left"); got.status != 200 {
		t.Errorf("the positive control: %d %s", got.status, got.body)
	}
	if got := w.get("/npm/left?write=true"); got.status != 400 {
		t.Errorf("a query: %d %s", got.status, got.body)
	}
	w.token = w.mint(nil)
	if got := w.get("/npm/left"); got.status != 403 || !strings.Contains(got.body, string(FeatureOff)) {
		t.Errorf("T12: %d %s", got.status, got.body)
	}
}

func (w *world) rawGet(path string) reply {
	w.t.Helper()
	out := w.raw("GET "+path+" HTTP/1.1\r\nHost: "+w.addr+"\r\nAuthorization: Bearer "+w.token+"\r\nConnection: close\r\n\r\n", 1)
	var status int
	_, _ = fmt.Sscanf(out, "HTTP/1.1 %d", &status)
	return reply{status: status, body: out}
}

// A registry that lies: another digest than the pinned one, bytes that are not
// what the digest says, a tarball elsewhere, metadata of another package.
func TestE20MirrorChecksIntegrity(t *testing.T) {
	r := newRegistry(t)
	w := mirrorWorld(t, r.option(npm.Pin{Name: "left", Version: "1.0.0", Integrity: integrity([]byte("another"))}, npm.Pin{Name: "secret", Version: "^1.0.0"}, npm.Pin{Name: "@scope/right", Version: "~0.3.0"}))
	if got := w.get("/npm/left/-/left-1.0.0.tgz"); got.status != 404 || w.p.Alerts() != 1 {
		t.Errorf("the pinned digest: %d %s", got.status, got.body)
	}
	r.files["/reg/secret/-/secret-1.0.0.tgz"] = append(pack(t, "secret", "1.0.0"), 0)
	if got := w.get("/npm/secret/-/secret-1.0.0.tgz"); got.status != 502 || !strings.Contains(got.body, string(BadIntegrity)) || strings.Contains(got.body, "\x1f\x8b") {
		t.Errorf("other bytes: %d %s", got.status, got.body)
	}
	if kept, _ := filepath.Glob(filepath.Join(w.dir, "mirror", "*")); len(kept) != 0 {
		t.Errorf("kept %v", kept)
	}
	r.docs["@scope/right"] = strings.ReplaceAll(r.docs["@scope/right"], "http://"+r.f.addr, "http://evil.example")
	if got := w.get("/npm/@scope/right/-/right-0.3.1.tgz"); got.status != 404 {
		t.Errorf("a tarball elsewhere: %d %s", got.status, got.body)
	}
	w = mirrorWorld(t, r.option(npm.Pin{Name: "left", Version: "^1.0.0"}))
	for name, doc := range map[string]string{"another package": r.docs["secret"], "no JSON": "<html>", "empty": ""} {
		r.docs["left"] = doc
		if got := w.get("/npm/left"); got.status != 502 {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	r.f.set(func(rw http.ResponseWriter, _ *http.Request) {
		http.Redirect(rw, &http.Request{}, "http://evil.example/", http.StatusFound)
	})
	if got := w.get("/npm/left"); got.status != 502 || !strings.Contains(got.body, string(UpstreamMoved)) {
		t.Errorf("a redirect: %d %s", got.status, got.body)
	}
}

func TestPinsThatMakeNoSense(t *testing.T) {
	good := integrity(nil)
	for _, p := range []npm.Pin{
		{}, {Name: "left"}, {Name: "left", Version: "1.0.0"}, {Name: "left", Version: "1.0.0", Integrity: "sha1-x"}, {Name: "left", Version: "^1.0.0", Integrity: good},
		{Name: "left", Version: "*"}, {Name: "left", Version: "latest"}, {Name: "left", Version: "1.x"}, {Name: "../left", Version: "^1.0.0"}, {Name: "Left", Version: "^1.0.0"}, {Name: "left", Version: "^1.0.0-beta"},
	} {
		if _, err := npm.NewList([]npm.Pin{p}); err == nil {
			t.Errorf("%+v is taken", p)
		}
	}
	for _, p := range []npm.Pin{{Name: "left", Version: "1.0.0", Integrity: good}, {Name: "@a/b.c", Version: "^0.0.3"}, {Name: "left", Version: ">=1.2.0 <2.0.0"}, {Name: "left", Version: "~1.2.3"}} {
		if _, err := npm.NewList([]npm.Pin{p}); err != nil {
			t.Error(err)
		}
	}
}

// The machine's own npm installs a package and what it depends on, through the
// mirror; no script of theirs runs.
func TestE20RealNpmInstallsThroughTheMirror(t *testing.T) {
	program, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal("npm is missing on this machine; run `make testdeps`")
	}
	r := newRegistry(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := mirrorWorld(t, r.option(), func(cfg *Config, _ *JobTerms) {
		cfg.Hosts = []string{l.Addr().String()}
		cfg.Upstreams[dreamcore.PackageMirror][0].BoxURL = "http://" + l.Addr().String()
	})
	serving, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); _ = w.p.Serve(serving, sandbox, l) }()
	defer func() { stop(); <-served }()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"name":"game","version":"1.0.0","private":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	address := "//" + l.Addr().String() + "/npm/"
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = dir
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "npm_config_userconfig=" + dir + "/none", "npm_config_globalconfig=" + dir + "/none2", "npm_config_cache=" + dir + "/cache",
			"npm_config_registry=http:" + address, "npm_config_" + address + ":_authToken=" + w.token,
			"npm_config_ignore_scripts=true", "npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false", "npm_config_fetch_retries=0",
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("install", "left@^1.0.0"); err != nil {
		t.Fatalf("npm: %v\n%s\n%s", err, out, w.log.String())
	}
	for _, name := range []string{"left", "@scope/right"} {
		data, err := os.ReadFile(filepath.Join(dir, "node_modules", name, "index.js"))
		if err != nil || !strings.Contains(string(data), name+"@") {
			t.Errorf("%s: %q %v", name, data, err)
		}
	}
	if ran, _ := filepath.Glob(filepath.Join(dir, "node_modules", "*", "was-run")); len(ran) > 0 {
		t.Errorf("a script of a package ran: %v", ran)
	}
	for _, args := range [][]string{{"install", "secret"}, {"install", "left@2.0.0"}, {"publish"}, {"dist-tag", "ls", "left"}, {"search", "left"}} {
		if out, err := run(args...); err == nil && !strings.Contains(out, "No matches") {
			t.Errorf("npm %v worked: %s", args, out)
		}
	}
}

// FuzzMetadata: whatever a registry says, what a box sees names pinned versions at
// the mirror's own address.
func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"name":"left","versions":{"1.2.0":{"dist":{"tarball":"http://r.example/reg/left/-/left-1.2.0.tgz","integrity":"` + integrity(nil) + `"}}}}`))
	f.Add([]byte(`{"name":"left","versions":{"1.2.0":{"dist":{"tarball":"http://r.example/../x","integrity":"sha512-"}},"9.9.9":1}}`))
	f.Add([]byte(`{"name":"left","versions":[1]}`))
	list, err := npm.NewList([]npm.Pin{{Name: "left", Version: "^1.0.0"}})
	if err != nil {
		f.Fatal(err)
	}
	base, _ := url.Parse("http://r.example/reg")
	f.Fuzz(func(t *testing.T, data []byte) {
		out, files, _, err := list.Filter("left", data, base, "http://box/npm/")
		if err != nil {
			return
		}
		var doc struct {
			Versions map[string]struct {
				Dist struct{ Tarball, Integrity string }
			}
		}
		if err := json.Unmarshal(out, &doc); err != nil {
			t.Fatal(err)
		}
		for v, d := range doc.Versions {
			if !strings.HasPrefix(v, "1.") || !strings.HasPrefix(d.Dist.Tarball, "http://box/npm/left/-/left-1.") || npm.Digest(d.Dist.Integrity) == "" {
				t.Fatalf("%s: %+v", v, d)
			}
		}
		for _, file := range files {
			if !strings.HasPrefix(file.Path, "/") || strings.Contains(file.Path, "..") || len(file.Digest) != 64 {
				t.Fatalf("%+v", file)
			}
		}
	})
}
