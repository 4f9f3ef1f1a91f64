package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pack makes an npm package file of the entries.
func pack(t *testing.T, entries ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		data := h.PAXRecords["DREAMCORE.data"]
		h.PAXRecords, h.Size = nil, int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{w.Close(), z.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "package.tgz")
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestUnpackNPMTakesWhatIsWantedOnly(t *testing.T) {
	dir := plant(t, small)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.MkdirAll("usr/local/bin", 0o755); err != nil {
		t.Fatal(err)
	}
	cli := file("package/dist/bundle/cli.js", "run")
	cli.Mode, cli.Uid = 0o777, 1000
	n := NPMPackage{
		Name: "tool", Files: []string{"dist/bundle", "package.json"}, To: "usr/local/lib/node_modules/tool",
		Links: map[string]string{"usr/local/bin/tool": "../lib/node_modules/tool/dist/bundle/cli.js"},
	}
	archive := pack(t, file("package/package.json", "{}"), cli, file("package/dist/bundle/a/b.js", "b"),
		file("package/dist/bundled.js", "no"), file("package/README.md", "no"),
		link(tar.TypeSymlink, "package/dist/bundle/evil", "/etc/passwd"))
	if err := unpackNPM(t.Context(), root, archive, n); err != nil {
		t.Fatal(err)
	}
	l, err := list(t.Context(), dir+"/usr/local", nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range l.lines {
		f := strings.Fields(line)
		got = append(got, strings.Join([]string{f[0], f[1], f[2], strings.Trim(f[len(f)-1], `"`)}, " "))
	}
	want := []string{
		"d 0755 0 .", "d 0755 0 bin", "l 0777 0 bin/tool", "d 0755 0 lib", "d 0755 0 lib/node_modules", "d 0755 0 lib/node_modules/tool",
		"d 0755 0 lib/node_modules/tool/dist", "d 0755 0 lib/node_modules/tool/dist/bundle", "d 0755 0 lib/node_modules/tool/dist/bundle/a",
		"f 0644 0 lib/node_modules/tool/dist/bundle/a/b.js", "f 0755 0 lib/node_modules/tool/dist/bundle/cli.js", "f 0644 0 lib/node_modules/tool/package.json",
	}
	if !slices.Equal(got, want) {
		t.Errorf("unpacked\n%s", strings.Join(got, "\n"))
	}
}

func TestUnpackNPMRefuses(t *testing.T) {
	setuid := file("package/bin/node", "x")
	setuid.Mode = 0o4755
	for name, archive := range map[string]string{
		"a missing file": pack(t, file("package/README.md", "x")),
		"an escape":      pack(t, file("package/bin/node", "x"), file("package/bin/../../../../x", "x")),
		"a double":       pack(t, file("package/bin/node", "x"), file("other/bin/node", "y")),
	} {
		root, err := os.OpenRoot(plant(t, small))
		if err != nil {
			t.Fatal(err)
		}
		if err := unpackNPM(t.Context(), root, archive, NPMPackage{Name: "x", Files: []string{"bin/node"}, To: "opt"}); err == nil {
			t.Errorf("%s was accepted", name)
		}
		root.Close()
	}
	root, err := os.OpenRoot(plant(t, small))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unpackNPM(t.Context(), root, pack(t, setuid), NPMPackage{Name: "x", Files: []string{"bin"}, To: "opt"}); err != nil {
		t.Fatal(err)
	}
	if info, err := root.Stat("opt/bin/node"); err != nil || info.Mode() != 0o755 {
		t.Errorf("mode %v, %v: a package decides executable or not, nothing else", info.Mode(), err)
	}
}

func TestReadNPMSettings(t *testing.T) {
	home := t.TempDir()
	ca, key, other := filepath.Join(home, "ca.pem"), filepath.Join(home, "key.pem"), filepath.Join(home, "other.pem")
	rc := filepath.Join(home, ".npmrc")
	for name, data := range map[string]string{
		ca: "ca", key: "key", other: "other", filepath.Join(home, "site"): "fund=false\n",
		rc: "; a comment\ncafile=" + ca + "\n//registry.test/:keyfile = \"" + key + "\"\nprefix=/usr\n",
	} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := readNPMSettings([]string{
		"https_proxy=http://proxy.test:1", "HOME=" + home, "SECRET_TOKEN=x", "NODE_EXTRA_CA_CERTS=" + other, "SSL_CERT_FILE=/none/x.pem",
		"npm_config_globalconfig=" + filepath.Join(home, "site"), "npm_config_prefix=/usr", "NPM_CONFIG_REGISTRY=http://registry.test/", "no_proxy=",
	}, home)
	if s.user != rc || s.site != filepath.Join(home, "site") {
		t.Errorf("configuration %q, %q", s.user, s.site)
	}
	for _, f := range []string{ca, key, other} {
		if !slices.Contains(s.files, f) {
			t.Errorf("%s is not taken along: %q", f, s.files)
		}
	}
	env := strings.Join(s.env, " ")
	for _, want := range []string{"https_proxy=http://proxy.test:1", "NODE_EXTRA_CA_CERTS=" + other, "NPM_CONFIG_REGISTRY=http://registry.test/"} {
		if !strings.Contains(env, want) {
			t.Errorf("%s is not passed on: %s", want, env)
		}
	}
	for _, not := range []string{"SECRET", "HOME=", "prefix", "no_proxy"} {
		if strings.Contains(env, not) {
			t.Errorf("%s is passed on: %s", not, env)
		}
	}
}

func TestStagePreparationStaysInTheStage(t *testing.T) {
	outside := t.TempDir()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte("ca"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := plant(t, small)
	st := stage{dir: dir}
	if err := st.prepare(npmSettings{files: []string{ca}, user: ca}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(dir + ca); err != nil || string(data) != "ca" {
		t.Errorf("the file is not there: %v", err)
	}
	if info, err := os.Stat(dir + stageHome + "/.npmrc-user"); err != nil || info.Mode() != 0o600 {
		t.Errorf("the user's settings: %v %v", info, err)
	}
	// A package that put a link in the way gets an error, not the host's files.
	first := strings.Split(ca, "/")[1]
	dir = plant(t, append(slices.DeleteFunc(slices.Clone(small), func(n node) bool { return strings.HasPrefix(n.path, "tmp") }), node{path: first, link: outside}))
	if err := (stage{dir: dir}).prepare(npmSettings{files: []string{ca}}); err == nil {
		t.Error("the stage was left through a link")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("written outside: %v %v", entries, err)
	}
}
