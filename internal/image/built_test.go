package image

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// current returns the image that this machine's jobs use.
func current(t *testing.T) Image {
	t.Helper()
	dir, err := DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Current()
	if err != nil {
		t.Fatalf("no sandbox image is built: run `make image` (%v)", err)
	}
	return img
}

// inside runs a command in the image as its user: read-only, without network,
// with a /tmp of its own.
func inside(t *testing.T, img Image, args ...string) string {
	t.Helper()
	script := `set -eu
root=$1; mnt=$2; shift 2
mount --rbind "$root" "$mnt"
mount -o remount,ro,bind "$mnt"
mount -t proc proc "$mnt/proc"
mount --rbind /dev "$mnt/dev"
mount -t tmpfs -o mode=1777 tmpfs "$mnt/tmp"
mount -t tmpfs -o uid=1000,gid=1000 tmpfs "$mnt/workspace"
exec chroot --userspec=1000:1000 "$mnt" "$@"`
	out, err := command{
		args: append([]string{"sh", "-c", script, "sh", img.Root, t.TempDir()}, args...), isolated: true, offline: true,
		env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/workspace", "LANG=C.UTF-8", "PI_OFFLINE=1", "XDG_CACHE_HOME=/tmp"},
	}.run(t.Context())
	if err != nil {
		t.Errorf("%q: %v", args, err)
	}
	return string(out)
}

func TestBuiltImageRunsItsTools(t *testing.T) {
	img := current(t)
	m := img.Manifest
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"node", "--version"}, "v" + m.NodeVersion},
		{[]string{"pi", "--version"}, m.AgentVersion},
		{[]string{"chromium-headless-shell", "--no-sandbox", "--version"}, m.BrowserVersion},
		{[]string{"python3", "-c", "import json, ssl, sqlite3, hashlib; print('python', 6 * 7)"}, "python 42"},
		{[]string{"bash", "-c", "cd && git init -q . && echo x > a && git add a && git -c user.name=u -c user.email=u@u commit -qm m && git log --format=%s && git diff --stat HEAD"}, "m"},
		{[]string{"curl", "--version"}, "curl "},
		{[]string{"bash", "-c", "ls --version | head -1; tar --version | head -1; ps --version; find /etc -maxdepth 0"}, "procps"},
		// There, but without its set-id bit: only an engine that serves others gives
		// it that, in the box.
		{[]string{"bash", "-c", "LC_ALL=C sudo -n true 2>&1 || echo refused"}, "setuid bit set\nrefused"},
		{[]string{"bash", "-c", "getent hosts sandbox"}, "127.0.0.1"},
		{[]string{"id"}, "uid=1000(user) gid=1000(user) groups=1000(user)"},
		{[]string{"bash", "-c", "cd ~user && pwd && stat -c '%u:%g %a' /home/user"}, "/home/user\n1000:1000 755"},
	} {
		if out := inside(t, img, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("%q printed %q, want %q", c.args, out, c.want)
		}
	}
}

// The browser draws Latin, Japanese, Chinese and colour emoji: each glyph has
// ink and differs from the box of a character that no font has.
func TestBuiltImageDrawsEveryScript(t *testing.T) {
	page := `data:text/html,<meta charset=utf-8><body><script>
const draw = s => { const c = document.createElement('canvas'); c.width = c.height = 48; const x = c.getContext('2d');
  x.font = '32px sans-serif'; x.fillText(s, 4, 38); return x.getImageData(0, 0, 48, 48).data };
const ink = d => d.some(v => v), same = (a, b) => a.every((v, i) => v === b[i]);
const none = draw('\u{10FFFD}'), ok = s => ink(draw(s)) && !same(draw(s), none);
const colour = d => { for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200 && Math.abs(d[i] - d[i + 2]) > 60) return true; return false };
document.body.textContent = ['A', '\u00e9', '\u30cd', '\u732b', '\u8ff7', '\u7a7a'].map(ok).join() + ' emoji ' + colour(draw('\u{1F431}'));
</script>`
	out := inside(t, current(t), "chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--user-data-dir=/tmp/profile", "--dump-dom", page)
	if !strings.Contains(out, "true,true,true,true,true,true emoji true") {
		t.Errorf("the page says %q", out)
	}
}

func TestBuiltImageTree(t *testing.T) {
	img := current(t)
	root, err := os.OpenRoot(img.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var size int64
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s has a set-id bit: %v", p, info.Mode())
		}
		st := info.Sys().(*syscall.Stat_t)
		inHome := p == "workspace" || strings.HasPrefix(p+"/", "home/user/")
		if want := map[bool]uint32{true: 1000, false: 0}[inHome]; st.Uid != want {
			t.Errorf("%s belongs to %d", p, st.Uid)
		}
		if info.Mode().Perm()&0o002 != 0 && info.Mode().Type() != fs.ModeSymlink && info.Mode()&fs.ModeSticky == 0 {
			t.Errorf("%s can be written by everybody: %v", p, info.Mode())
		}
		if base := path.Base(p); base == ".npmrc" || base == ".npm" || base == "npm" || base == "apt-get" || base == ".git-credentials" {
			t.Errorf("%s is left of the build", p)
		}
		if ext := path.Ext(p); ext == ".crt" || ext == ".pem" || ext == ".key" {
			t.Errorf("%s: the image needs no certificates and keys", p)
		}
		size += info.Size()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if size > 800<<20 {
		t.Errorf("the image has grown to %d MiB", size>>20)
	}
	for _, gone := range []string{"etc/resolv.conf", "etc/hostname", "etc/machine-id", "etc/apt", "etc/ssl/certs", "etc/npmrc", "var/lib/apt", "build", "usr/bin/apt", "usr/sbin/mmdebstrap"} {
		if _, err := root.Lstat(gone); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", gone, err)
		}
	}
	if entries, err := fs.ReadDir(root.FS(), "run"); err != nil || len(entries) != 1 || entries[0].Name() != path.Base(mountPoint) {
		t.Errorf("run holds more than the mount point: %v %v", entries, err)
	}
	for _, dir := range []string{"workspace", "tmp", mountPoint, "dev", "root", "var/log", "var/cache"} {
		if entries, err := fs.ReadDir(root.FS(), dir); err != nil || len(entries) != 0 {
			t.Errorf("%s is not an empty folder: %v %v", dir, entries, err)
		}
	}
	for _, notice := range []string{"pi.txt", "pi-components.txt"} {
		if _, err := root.Stat(path.Dir(contentsPath) + "/" + notice); err != nil {
			t.Error(err)
		}
	}
	if _, err := root.Stat("usr/share/doc/bash/copyright"); err != nil {
		t.Error(err)
	}
}

// What the host's package managers are told (mirrors, proxies, certificates,
// tokens, name servers) is nowhere in the image's settings and state.
func TestBuiltImageKnowsNothingOfTheHost(t *testing.T) {
	img := current(t)
	secrets := hostSecrets(t)
	if len(secrets) == 0 {
		t.Fatal("the host tells nothing that could be looked for")
	}
	searched := 0
	for _, dir := range []string{"etc", "root", "home", "var", "run", "tmp", "opt", "srv", "usr/local", "usr/etc", "usr/lib/ssl", "usr/share/doc/dreamcore"} {
		err := filepath.WalkDir(filepath.Join(img.Root, dir), func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			rel, err := filepath.Rel(img.Root, p)
			if err != nil {
				return err
			}
			// These are packages' own contents, the same on every machine.
			if strings.HasPrefix(rel, "usr/local/lib/") || strings.HasPrefix(rel, "var/lib/dpkg/info/") {
				return nil
			}
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			searched++
			for name, s := range secrets {
				if bytes.Contains(data, []byte(s)) {
					t.Errorf("%s holds %s of the host", rel, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if searched < 100 {
		t.Errorf("only %d files were searched", searched)
	}
	lock, err := os.ReadFile(filepath.Join(filepath.Dir(img.Root), "lock.json"))
	if err == nil && bytes.Contains(lock, []byte("://")) {
		t.Error("the lock names an address")
	}
}

// hostSecrets returns what must not be found, by what it is.
func hostSecrets(t *testing.T) map[string]string {
	t.Helper()
	m := map[string]string{}
	targets, err := debianTargets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range targets {
		if _, rest, ok := strings.Cut(x.uri, "://"); ok {
			host, _, _ := strings.Cut(rest, "/")
			m["a mirror"] = host
		}
	}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		u := strings.ToUpper(k)
		if len(v) >= 8 && (strings.HasSuffix(u, "_PROXY") || slices.ContainsFunc([]string{"TOKEN", "SECRET", "PASSWORD", "API_KEY", "NPM_CONFIG", "CA_CERTS", "CA_BUNDLE"}, func(w string) bool { return strings.Contains(u, w) })) {
			m["the variable "+k] = v
		}
	}
	for name, file := range map[string]string{"npm's user settings": filepath.Join(os.Getenv("HOME"), ".npmrc"), "npm's site settings": "/etc/npmrc", "the name servers": "/etc/resolv.conf"} {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the host has none
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); len(line) >= 12 && !strings.HasPrefix(line, "#") {
				m[name+" "+line] = line
			}
		}
	}
	return m
}

func TestBuiltImageIsWhole(t *testing.T) {
	dir, err := DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Verify(t.Context(), current(t).Digest, nil)
	if err != nil {
		t.Fatal(err)
	}
	if names := img.Manifest.Debian; len(names) < 100 || len(img.Manifest.NPM) != 2 {
		t.Errorf("%d Debian and %d npm packages", len(names), len(img.Manifest.NPM))
	}
	if _, err := json.Marshal(img); err != nil {
		t.Error(err)
	}
}
