package image

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// stage is a throw-away root in which Debian's npm fetches packages. The host's
// npm settings, certificates and name servers are copied into it, and it is
// gone before the image is finished: nothing of them can stay.
type stage struct {
	dir   string // of the root
	cache packageCache
}

// stageScript runs in a mount namespace of its own: device files and /proc are
// the host's only while npm runs. npm itself runs without privileges.
const stageScript = `set -eu
root=$1; shift
mkdir -p "$root/proc" "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot --userspec=1000:1000 "$root" "$@"
`

// stageHome is npm's home in the stage.
const stageHome = "/build"

// npmSettings are files of the host whose contents npm needs.
type npmSettings struct {
	env   []string
	files []string // copied to the same place in the stage
	user  string   // the npmrc of the user and of the machine, "" without
	site  string
}

var npmrcPath = regexp.MustCompile(`(?m)^\s*(?:cafile|certfile|keyfile|[^\s=]*:certfile|[^\s=]*:keyfile)\s*=\s*"?(/[^"\s]+)`)

// readNPMSettings collects what the host says about reaching the npm registry.
// environ is the host's environment.
func readNPMSettings(environ []string, home string) npmSettings {
	var s npmSettings
	exists := func(p string) bool { info, err := os.Stat(p); return err == nil && info.Mode().IsRegular() }
	add := func(p string) {
		if exists(p) {
			s.files = append(s.files, p)
		}
	}
	userRC := filepath.Join(home, ".npmrc")
	siteRCs := []string{"/usr/local/etc/npmrc", "/usr/etc/npmrc", "/etc/npmrc"}
	for _, kv := range environ {
		k, v, _ := strings.Cut(kv, "=")
		switch lower := strings.ToLower(k); {
		case v == "":
		case lower == "http_proxy", lower == "https_proxy", lower == "no_proxy", lower == "all_proxy", lower == "proxy":
			s.env = append(s.env, kv)
		case k == "NODE_EXTRA_CA_CERTS", k == "SSL_CERT_FILE":
			s.env = append(s.env, kv)
			add(v)
		case lower == "npm_config_userconfig":
			userRC = v
		case lower == "npm_config_globalconfig":
			siteRCs = []string{v}
		case lower == "npm_config_cafile":
			s.env = append(s.env, kv)
			add(v)
		case lower == "npm_config_registry", lower == "npm_config_proxy", lower == "npm_config_https_proxy",
			lower == "npm_config_noproxy", lower == "npm_config_strict_ssl", lower == "npm_config_ca":
			s.env = append(s.env, kv)
		}
	}
	if exists(userRC) {
		s.user = userRC
	}
	for _, p := range siteRCs {
		if s.site == "" && exists(p) {
			s.site = p
		}
	}
	for _, p := range []string{s.user, s.site} {
		data, err := os.ReadFile(p)
		if err != nil {
			continue // "" or unreadable for us: npm goes without
		}
		for _, m := range npmrcPath.FindAllSubmatch(data, -1) {
			add(string(m[1]))
		}
	}
	for _, p := range []string{"/etc/resolv.conf", "/etc/hosts"} {
		add(p)
	}
	if bundle := "/etc/ssl/certs/ca-certificates.crt"; exists(bundle) {
		add(bundle)
	} else {
		s.env = append(s.env, "NODE_OPTIONS=--use-bundled-ca")
	}
	return s
}

// prepare puts the settings where npm in the stage finds them. It writes
// through os.Root: a link that a package brought must not lead to the host's
// own files.
func (st stage) prepare(s npmSettings) error {
	root, err := os.OpenRoot(st.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	put := func(from, to string, mode os.FileMode) error {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := root.MkdirAll(path.Dir(to), 0o755); err != nil {
			return err
		}
		if err := root.RemoveAll(to); err != nil { // a package may have put a link there
			return err
		}
		return root.WriteFile(to, data, mode)
	}
	home := stageHome[1:]
	if err := root.MkdirAll(home+"/out", 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{s.user: ".npmrc-user", s.site: ".npmrc-site"} {
		if from == "" {
			continue
		}
		if err := put(from, home+"/"+to, 0o600); err != nil {
			return err
		}
	}
	for _, f := range s.files {
		if err := put(f, strings.TrimPrefix(path.Clean(f), "/"), 0o644); err != nil {
			return err
		}
	}
	if err := root.WriteFile("etc/nsswitch.conf", []byte("hosts: files dns\n"), 0o644); err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), home, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, root.Lchown(p, 1000, 1000))
	})
}

// fetch packs the package that spec ("name@range") names into the cache and
// returns what npm chose.
func (st stage) fetch(ctx context.Context, s npmSettings, name, spec string) (Package, error) {
	env := append([]string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + stageHome, "LC_ALL=C.UTF-8",
		"npm_config_userconfig=" + stageHome + "/.npmrc-user", "npm_config_globalconfig=" + stageHome + "/.npmrc-site",
		"npm_config_cache=" + stageHome + "/.npm", "npm_config_update_notifier=false",
	}, s.env...)
	args := []string{"sh", "-c", stageScript, "stage", st.dir, "/usr/bin/node", "/usr/share/nodejs/npm/bin/npm-cli.js",
		"pack", "--json", "--ignore-scripts", "--pack-destination", stageHome + "/out", name + "@" + spec}
	out, err := command{args: args, env: env, isolated: true}.run(ctx)
	if err != nil {
		return Package{}, fmt.Errorf("fetch %s: %w", name, err)
	}
	var packed []struct {
		Name, Version, Filename string
	}
	if err := json.Unmarshal(out, &packed); err != nil || len(packed) != 1 {
		return Package{}, fmt.Errorf("fetch %s: npm answered %.200q", name, out)
	}
	p := Package{Name: name, Version: packed[0].Version}
	if packed[0].Name != name || !npmVersion.MatchString(p.Version) {
		return Package{}, fmt.Errorf("fetch %s: npm chose %.80q %.80q", name, packed[0].Name, p.Version)
	}
	// What npm says of file name and digest is not believed: one file is there,
	// and it is hashed.
	files, err := filepath.Glob(filepath.Join(st.dir, stageHome, "out", "*.tgz"))
	if err != nil || len(files) != 1 {
		return Package{}, fmt.Errorf("fetch %s: npm left %d files", name, len(files))
	}
	info, err := os.Lstat(files[0])
	if err != nil || !info.Mode().IsRegular() {
		return Package{}, fmt.Errorf("fetch %s: npm left no file: %w", name, err)
	}
	p.SizeBytes = info.Size()
	if p.Digest, err = sha512File(files[0]); err != nil {
		return Package{}, err
	}
	return p, os.Rename(files[0], st.cache.path(p))
}

// npmLimits bound what an npm package may unpack to.
var npmLimits = limits{bytes: 2 << 30, entries: 100_000}

// unpackNPM puts the wanted files of an npm package into the tree.
func unpackNPM(ctx context.Context, root *os.Root, archiveFile string, n NPMPackage) error {
	f, err := os.Open(archiveFile)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", n.Name, err)
	}
	if err := root.MkdirAll(n.To, 0o755); err != nil {
		return err
	}
	to, err := root.OpenRoot(n.To)
	if err != nil {
		return err
	}
	defer to.Close()
	u := newUnpacker(to, npmLimits, true)
	found := map[string]bool{}
	err = each(ctx, z, func(h *tar.Header, p string, r io.Reader) error {
		// npm drops the first part of every path, whatever it is called.
		_, p, ok := strings.Cut(p, "/")
		if !ok || h.Typeflag != tar.TypeReg || !n.keeps(p) {
			return nil
		}
		for _, f := range n.Files {
			if p == f || strings.HasPrefix(p, f+"/") {
				found[f] = true
			}
		}
		if err := u.mkdirs(p); err != nil {
			return err
		}
		// Ours, readable by all, executable where it was for its owner.
		mode := int64(0o644)
		if h.Mode&0o100 != 0 {
			mode = 0o755
		}
		return u.add(&tar.Header{Typeflag: tar.TypeReg, Mode: mode, Size: h.Size, ModTime: epoch}, p, r)
	})
	if err = errors.Join(err, u.seal()); err != nil {
		return fmt.Errorf("unpack %s: %w", n.Name, err)
	}
	for _, f := range n.Files {
		if !found[f] {
			return fmt.Errorf("unpack %s: it has no %s", n.Name, f)
		}
	}
	for link, target := range n.Links {
		if err := root.Symlink(target, link); err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	return nil
}
