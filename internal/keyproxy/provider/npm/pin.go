// Package npm is what the key proxy knows about npm's registry protocol: which
// versions of which packages a pinned list allows, and what of a registry's
// metadata may reach a box. It moves no bytes.
package npm

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Pin allows one package in one version, or in a range of them.
type Pin struct {
	Name string `json:"name"`
	// Version is exact ("1.2.3"), or a range: "^1.2.3", "~1.2.3", or
	// comparisons that all hold (">=1.2.0 <2.0.0").
	Version string `json:"version"`
	// Integrity is the digest of an exact version's tarball ("sha512-..."). A
	// range takes what the registry says.
	Integrity string `json:"integrity,omitempty"`
}

var packageName = regexp.MustCompile(`^(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*$`)

// version is major, minor, patch, and what follows a hyphen.
type version struct {
	n   [3]int64
	pre string
}

var versionForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})(-[0-9A-Za-z.-]{1,64})?(\+[0-9A-Za-z.-]{1,64})?$`)

func parseVersion(s string) (version, bool) {
	m := versionForm.FindStringSubmatch(s)
	if m == nil {
		return version{}, false
	}
	v := version{pre: m[4]}
	for i := range v.n {
		v.n[i], _ = strconv.ParseInt(m[i+1], 10, 64) // the form bounds it
	}
	return v, true
}

func (v version) compare(o version) int {
	for i := range v.n {
		if c := cmp.Compare(v.n[i], o.n[i]); c != 0 {
			return c
		}
	}
	switch {
	case v.pre == o.pre:
		return 0
	case v.pre == "":
		return 1
	case o.pre == "":
		return -1
	}
	return cmp.Compare(v.pre, o.pre)
}

// bound is one comparison.
type bound struct {
	op string
	v  version
}

func (b bound) holds(v version) bool {
	c := v.compare(b.v)
	switch b.op {
	case ">=":
		return c >= 0
	case ">":
		return c > 0
	case "<=":
		return c <= 0
	}
	return c < 0
}

// pin is a checked Pin.
type pin struct {
	exact     string // "" for a range
	integrity string
	bounds    []bound
}

func (p pin) allows(text string, v version) bool {
	if p.exact != "" {
		return p.exact == text
	}
	if v.pre != "" {
		return false // a version before the version is only ever meant by its name
	}
	for _, b := range p.bounds {
		if !b.holds(v) {
			return false
		}
	}
	return true
}

func newPin(p Pin) (pin, error) {
	if !packageName.MatchString(p.Name) || len(p.Name) > 214 {
		return pin{}, fmt.Errorf("%q is no package name", p.Name)
	}
	if _, ok := parseVersion(p.Version); ok {
		if Digest(p.Integrity) == "" {
			return pin{}, fmt.Errorf("%s %s needs its integrity, as sha512- and base64", p.Name, p.Version)
		}
		return pin{exact: p.Version, integrity: p.Integrity}, nil
	}
	if p.Integrity != "" {
		return pin{}, fmt.Errorf("%s has a range and an integrity, which is of one version only", p.Name)
	}
	var out pin
	for _, word := range strings.Fields(p.Version) {
		op := word[:len(word)-len(strings.TrimLeft(word, "<>=^~"))]
		v, ok := parseVersion(word[len(op):])
		if !ok || v.pre != "" {
			return pin{}, fmt.Errorf("%s: %q is no version and no range", p.Name, p.Version)
		}
		next := v
		switch op {
		case "^":
			i := 0
			for i < 2 && v.n[i] == 0 {
				i++
			}
			next.n[i]++
			for k := i + 1; k < 3; k++ {
				next.n[k] = 0
			}
		case "~":
			next.n[1]++
			next.n[2] = 0
		case ">=", ">", "<", "<=":
			out.bounds = append(out.bounds, bound{op, v})
			continue
		default:
			return pin{}, fmt.Errorf("%s: %q is no version and no range", p.Name, p.Version)
		}
		out.bounds = append(out.bounds, bound{">=", v}, bound{"<", next})
	}
	if len(out.bounds) == 0 {
		return pin{}, fmt.Errorf("%s has no version", p.Name)
	}
	return out, nil
}

// Digest is the SHA-512 that an integrity names, 64 bytes; "" when it names none.
func Digest(integrity string) string {
	b64, ok := strings.CutPrefix(integrity, "sha512-")
	raw, err := base64.StdEncoding.DecodeString(b64)
	if !ok || err != nil || len(raw) != 64 {
		return ""
	}
	return string(raw)
}

// List is a pinned list.
type List struct{ pins map[string][]pin }

// NewList checks pins.
func NewList(pins []Pin) (*List, error) {
	l := &List{pins: map[string][]pin{}}
	for _, p := range pins {
		checked, err := newPin(p)
		if err != nil {
			return nil, err
		}
		l.pins[p.Name] = append(l.pins[p.Name], checked)
	}
	return l, nil
}

// Has reports whether any version of a package is allowed.
func (l *List) Has(name string) bool { return len(l.pins[name]) > 0 }
