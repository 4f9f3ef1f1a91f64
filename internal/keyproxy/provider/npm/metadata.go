package npm

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/strictjson"
)

// MaxVersions bounds the versions of one package that are looked at.
const MaxVersions = 20_000

// File is a tarball of a pinned version.
type File struct {
	Name   string // the last part of its path, in a box's eyes
	Path   string // at the registry
	Digest string // SHA-512 of its bytes
}

// kept are the members of a version that a client needs to install it. Scripts are
// not among them.
var kept = []string{
	"dependencies", "optionalDependencies", "peerDependencies", "peerDependenciesMeta", "bundleDependencies", "bundledDependencies",
	"bin", "engines", "os", "cpu", "libc", "deprecated",
}

var tarballPath = regexp.MustCompile(`^(/[A-Za-z0-9@_~+-][A-Za-z0-9@._~+-]*)+$`)

// Filter makes, of a registry's metadata of a package, what a box may see: the
// pinned versions only, their tarballs at self. A version whose tarball is on
// another host than base, or whose digest is not the pinned one, is left out and
// named in dropped.
func (l *List) Filter(name string, data []byte, base *url.URL, self string) (out []byte, files map[string]File, dropped []string, err error) {
	v, err := strictjson.Parse(data)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("metadata of %s: %w", name, err)
	}
	if v.Get("name").Text() != name {
		return nil, nil, nil, fmt.Errorf("metadata of %s is of another package", name)
	}
	all := v.Get("versions")
	if all.Len() > MaxVersions {
		return nil, nil, nil, fmt.Errorf("metadata of %s has %d versions", name, all.Len())
	}
	files = map[string]File{}
	var versions strictjson.Value
	var latest version
	latestText := ""
	for i := range all.Len() {
		if all.Kind != strictjson.Object {
			break
		}
		text, entry := all.Name(i), all.At(i)
		parsed, ok := parseVersion(text)
		if !ok {
			continue
		}
		integrity, allowed := l.allows(name, text, parsed)
		if !allowed {
			continue
		}
		said := entry.Get("dist").Get("integrity").Text()
		if integrity == "" {
			integrity = said
		}
		at, ok := below(entry.Get("dist").Get("tarball").Text(), base)
		if !ok || Digest(integrity) == "" || said != "" && Digest(said) != Digest(integrity) {
			dropped = append(dropped, text)
			continue
		}
		f := File{Name: path.Base(name) + "-" + text + ".tgz", Path: at, Digest: Digest(integrity)}
		files[f.Name] = f
		item := strictjson.Obj("name", strictjson.Str(name))
		item.Set("version", strictjson.Str(text))
		for _, k := range kept {
			if m := entry.Get(k); m != nil {
				item.Set(k, *m)
			}
		}
		dist := strictjson.Obj("tarball", strictjson.Str(self+name+"/-/"+f.Name))
		dist.Set("integrity", strictjson.Str(integrity))
		item.Set("dist", dist)
		versions.Set(text, item)
		if latestText == "" || parsed.compare(latest) > 0 && (parsed.pre == "" || latest.pre != "") {
			latest, latestText = parsed, text
		}
	}
	doc := strictjson.Obj("name", strictjson.Str(name))
	var tags strictjson.Value
	tags.Kind, versions.Kind = strictjson.Object, strictjson.Object
	if latestText != "" {
		tags.Set("latest", strictjson.Str(latestText))
	}
	doc.Set("dist-tags", tags)
	doc.Set("versions", versions)
	return doc.Append(nil), files, dropped, nil
}

func (l *List) allows(name, text string, v version) (integrity string, ok bool) {
	for _, p := range l.pins[name] {
		if p.allows(text, v) {
			return p.integrity, true
		}
	}
	return "", false
}

// below returns the path of a tarball's URL when it is on base's host.
func below(tarball string, base *url.URL) (string, bool) {
	u, err := url.Parse(tarball)
	if err != nil || u.Scheme != base.Scheme || u.Host != base.Host || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" {
		return "", false
	}
	return u.Path, tarballPath.MatchString(u.Path) && !strings.Contains(u.Path, "/.")
}

// Operations are what the mirror answers, by the names in the declarations.
func Operations() map[string]*provider.Operation {
	return map[string]*provider.Operation{
		"npm.metadata": {Kind: provider.Package, Protocol: Protocol{}},
		"npm.tarball":  {Kind: provider.Package, Protocol: Protocol{}},
	}
}

// Protocol implements provider.Protocol.
type Protocol struct{}

// Name is "npm".
func (Protocol) Name() string { return "npm" }

// Authorize carries the key of a private registry.
func (Protocol) Authorize(key string, _ []string) map[string]string {
	if key == "" {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + key}
}

// ErrorType is not a thing of this protocol.
func (Protocol) ErrorType(int) string { return "error" }

// ErrorBody has the shape that npm prints.
func (Protocol) ErrorBody(_ int, reason, message string) []byte {
	v := strictjson.Obj("error", strictjson.Str(message))
	v.Set("reason", strictjson.Str(reason))
	return v.Append(nil)
}

// Models are not a thing of this protocol.
func (Protocol) Models([]string) []byte { return []byte("[]") }
