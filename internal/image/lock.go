package image

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// lockFormat is the form of lock files that this program reads and writes.
const lockFormat = 1

// Lock names every package that goes into an image, with its digest. It holds
// no address: where packages come from is the machine's own affair.
type Lock struct {
	Format       int    `json:"format"`
	Definition   string `json:"definition"` // hex SHA-256 of what was asked for
	Suite        string `json:"suite"`
	Architecture string `json:"architecture"`
	// Image is what the image holds, Stage what runs npm in a throw-away root
	// while it is built, NPM the npm packages.
	Image []Package `json:"image"`
	Stage []Package `json:"stage"`
	NPM   []Package `json:"npm"`
}

// Package is one locked package. Digest is "sha256:HEX" for Debian packages and
// npm's "sha512-BASE64" for npm packages, of the archive file.
type Package struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	SizeBytes int64  `json:"sizeBytes"`
	Digest    string `json:"digest"`
}

// Change is one difference between two locks. From is empty for a package that
// came, To for one that went; equal when only the digest differs.
type Change struct {
	Set  string // "image", "stage" or "npm"
	Name string
	From string
	To   string
}

// String is the form in logs: "image: bash 5.2-1 -> 5.2-2".
func (c Change) String() string {
	return fmt.Sprintf("%s: %s %s -> %s", c.Set, c.Name, cmp.Or(c.From, "(none)"), cmp.Or(c.To, "(none)"))
}

// Changes returns what differs between l and to, sorted by set and name.
func (l Lock) Changes(to Lock) []Change {
	var all []Change
	for _, s := range []struct {
		name     string
		old, new []Package
	}{{"image", l.Image, to.Image}, {"npm", l.NPM, to.NPM}, {"stage", l.Stage, to.Stage}} {
		old := byName(s.old)
		var cs []Change
		for _, p := range s.new {
			was, ok := old[p.Name]
			if !ok || was != p {
				cs = append(cs, Change{s.name, p.Name, was.Version, p.Version})
			}
			delete(old, p.Name)
		}
		for _, p := range old {
			cs = append(cs, Change{s.name, p.Name, p.Version, ""})
		}
		slices.SortFunc(cs, func(a, b Change) int { return cmp.Compare(a.Name, b.Name) })
		all = append(all, cs...)
	}
	return all
}

func byName(ps []Package) map[string]Package {
	m := make(map[string]Package, len(ps))
	for _, p := range ps {
		m[p.Name] = p
	}
	return m
}

func sortPackages(ps []Package) {
	slices.SortFunc(ps, func(a, b Package) int { return cmp.Compare(a.Name, b.Name) })
}

// Encode returns the lock as JSON, one package a line, so that a difference
// between two locks reads well.
func (l Lock) Encode() []byte {
	var b bytes.Buffer
	quote := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("image: encode lock: %v", err)) // strings and numbers always encode
		}
		return string(data)
	}
	fmt.Fprintf(&b, "{\n  \"format\": %d,\n  \"definition\": %s,\n  \"suite\": %s,\n  \"architecture\": %s",
		l.Format, quote(l.Definition), quote(l.Suite), quote(l.Architecture))
	for _, s := range []struct {
		name string
		ps   []Package
	}{{"image", l.Image}, {"stage", l.Stage}, {"npm", l.NPM}} {
		fmt.Fprintf(&b, ",\n  %q: [", s.name)
		for i, p := range s.ps {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n    " + quote(p))
		}
		b.WriteString("\n  ]")
	}
	b.WriteString("\n}\n")
	return b.Bytes()
}

var (
	debianName    = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,100}$`)
	debianVersion = regexp.MustCompile(`^[0-9][A-Za-z0-9.+:~-]{0,100}$`)
	debianDigest  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	npmName       = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]{0,100}/)?[a-z0-9][a-z0-9._-]{0,100}$`)
	npmVersion    = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.+-]{0,60}$`)
	npmDigest     = regexp.MustCompile(`^sha512-[A-Za-z0-9+/]{86}==$`)
	suiteName     = regexp.MustCompile(`^[a-z]{1,40}$`)
)

// DecodeLock reads a lock file strictly: what it names ends up in command lines
// and file names, so every field is held to its grammar.
func DecodeLock(data []byte) (Lock, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var l Lock
	if err := d.Decode(&l); err != nil {
		return Lock{}, fmt.Errorf("decode lock: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Lock{}, errors.New("decode lock: something follows its end")
	}
	if l.Format != lockFormat {
		return Lock{}, fmt.Errorf("decode lock: format %d, this program knows %d", l.Format, lockFormat)
	}
	if !suiteName.MatchString(l.Suite) || l.Architecture != "amd64" {
		return Lock{}, fmt.Errorf("decode lock: suite %.40q or architecture %.40q unknown", l.Suite, l.Architecture)
	}
	for _, s := range []struct {
		ps                    []Package
		name, version, digest *regexp.Regexp
	}{
		{l.Image, debianName, debianVersion, debianDigest},
		{l.Stage, debianName, debianVersion, debianDigest},
		{l.NPM, npmName, npmVersion, npmDigest},
	} {
		if len(s.ps) == 0 {
			return Lock{}, errors.New("decode lock: a set of packages is empty")
		}
		seen := map[string]bool{}
		for _, p := range s.ps {
			switch {
			case !s.name.MatchString(p.Name), !s.version.MatchString(p.Version), !s.digest.MatchString(p.Digest):
				return Lock{}, fmt.Errorf("decode lock: the package %.60q %.60q has a malformed name, version or digest", p.Name, p.Version)
			case p.SizeBytes <= 0 || p.SizeBytes > 1<<31:
				return Lock{}, fmt.Errorf("decode lock: the package %s has the size %d", p.Name, p.SizeBytes)
			case seen[p.Name]:
				return Lock{}, fmt.Errorf("decode lock: the package %s comes twice", p.Name)
			}
			seen[p.Name] = true
		}
	}
	return l, nil
}

// upstreamVersion drops the epoch and the Debian revision: "1:2.39.5-0+deb12u3"
// is git 2.39.5.
func upstreamVersion(v string) string {
	if _, rest, ok := strings.Cut(v, ":"); ok {
		v = rest
	}
	if i := strings.LastIndexByte(v, '-'); i > 0 {
		v = v[:i]
	}
	return v
}
