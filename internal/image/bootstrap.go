package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// setupScript prepares an empty root: the merged /usr of today's Debian, and
// the packages that are left out, for dpkg.
const setupScript = `set -eu
for d in bin sbin lib lib64; do mkdir -p "$1/usr/$d"; ln -s "usr/$d" "$1/$d"; done
cat "$(dirname "$0")/omitted" >> "$1/var/lib/dpkg/status"
`

// unwanted is what packages bring and no sandbox needs. Copyright files stay.
var unwanted = []string{
	"path-exclude=/usr/share/man/*", "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*",
	"path-include=/usr/share/doc/*/copyright", "path-exclude=/usr/share/info/*", "path-exclude=/usr/share/lintian/*",
	"path-exclude=/usr/share/linda/*", "path-exclude=/usr/share/bash-completion/*", "path-exclude=/usr/share/doc-base/*",
	"path-exclude=/usr/share/icons/*", "path-exclude=/usr/share/applications/*",
	"path-exclude=/usr/lib/chromium/libVkLayer_khronos_validation.so*", "path-exclude=/usr/lib/chromium/libVkICD_mock_icd.so*",
	"force-unsafe-io", // the store flushes once, at the end
}

// bootstrap fills root, which is missing or empty, with exactly the packages
// ps: out of a repository made of the cache's files, so that mirrors, proxies
// and certificates have no part in it and nothing else can come in. unpackOnly
// leaves the packages unconfigured (enough to run npm).
func bootstrap(ctx context.Context, cache packageCache, work, root, suite string, ps []Package, omit []string, unpackOnly bool, progress func(done, total int64)) error {
	repo := filepath.Join(work, "repo")
	if err := writeRepository(ctx, cache, repo, suite, ps); err != nil {
		return fmt.Errorf("make the repository: %w", err)
	}
	hook := filepath.Join(work, "setup")
	for name, data := range map[string]string{hook: setupScript, filepath.Join(work, "omitted"): omitted(omit)} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			return err
		}
	}
	variant := "essential"
	if unpackOnly {
		variant = "extract"
	}
	args := []string{
		"mmdebstrap", "--mode=root", "--format=directory", "--variant=" + variant, "--architectures=amd64",
		"--aptopt=APT::Sandbox::User \"root\"", "--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Dpkg::Use-Pty \"false\"",
		"--setup-hook=sh '" + hook + "' \"$1\"",
	}
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = p.Name
	}
	args = append(args, "--include="+strings.Join(names, ","))
	for _, o := range unwanted {
		args = append(args, "--dpkgopt="+o)
	}
	args = append(args, suite, root, "deb [trusted=yes] copy://"+repo+" "+suite+" main")
	var done int64
	c := command{
		args: args, dir: work, isolated: true, offline: true,
		// Nothing of the host's environment reaches the packages' scripts.
		env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
			"TMPDIR=" + work, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch.Unix())},
		line: func(l string) {
			if strings.HasPrefix(l, "Setting up ") {
				done++
				progress(min(done, int64(len(ps))), int64(len(ps)))
			}
		},
	}
	if _, err := c.run(ctx); err != nil {
		return fmt.Errorf("install packages: %w", err)
	}
	return os.RemoveAll(repo)
}

// writeRepository makes a Debian repository of the cache's files, by hard link.
func writeRepository(ctx context.Context, cache packageCache, repo, suite string, ps []Package) error {
	lists := filepath.Join(repo, "dists", suite, "main", "binary-amd64")
	for _, dir := range []string{lists, filepath.Join(repo, "pool")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	var index bytes.Buffer
	for _, p := range ps {
		file := fmt.Sprintf("pool/%s.deb", p.Name)
		if err := os.Link(cache.path(p), filepath.Join(repo, file)); err != nil {
			return err
		}
		control, err := command{args: []string{"dpkg-deb", "-f", filepath.Join(repo, file)}, env: hostEnv()}.run(ctx)
		if err != nil {
			return fmt.Errorf("read %s: %w", p.Name, err)
		}
		fmt.Fprintf(&index, "%s\nFilename: %s\nSize: %d\nSHA256: %s\n\n", bytes.TrimSpace(control), file, p.SizeBytes, strings.TrimPrefix(p.Digest, "sha256:"))
	}
	if err := os.WriteFile(filepath.Join(lists, "Packages"), index.Bytes(), 0o644); err != nil {
		return err
	}
	release := fmt.Sprintf("Origin: dreamcore\nLabel: dreamcore\nSuite: %s\nCodename: %s\nArchitectures: amd64\nComponents: main\n"+
		"Date: Tue, 01 Jan 1980 00:00:00 UTC\nSHA256:\n %x %d main/binary-amd64/Packages\n",
		suite, suite, sha256.Sum256(index.Bytes()), index.Len())
	return os.WriteFile(filepath.Join(repo, "dists", suite, "Release"), []byte(release), 0o644)
}
