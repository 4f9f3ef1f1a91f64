package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// builderVersion changes whenever this package makes another tree out of the
// same packages, so that an image of an older builder is not taken for current.
const builderVersion = 5

// Definition says what an image is made of; definition.json of the image folder.
type Definition struct {
	// Suite is the Debian release, by code name.
	Suite string `json:"suite"`
	// Packages go in with what they depend on. Essential packages always do.
	Packages []string `json:"packages"`
	// Omit are dependencies that are left out because nothing that runs in a
	// sandbox uses them; the package database says that they were.
	Omit []string `json:"omit"`
	// Stage is what runs npm in a throw-away root; StageOmit as Omit.
	Stage     []string `json:"stage"`
	StageOmit []string `json:"stageOmit"`
	// NPM are the npm packages: Node.js and the agent.
	NPM []NPMPackage `json:"npm"`
	// Agent is the npm package that is the agent CLI, AgentName its name for people.
	Agent     string `json:"agent"`
	AgentName string `json:"agentName"`
	// Browser is the Debian package that is the browser.
	Browser string `json:"browser"`

	notices map[string][]byte // licence texts that packages do not carry
	raw     []byte
}

// NPMPackage is an npm package and what of it goes into the image.
type NPMPackage struct {
	Name string `json:"name"`
	// Range is npm's notation for the versions that an update may choose.
	Range string `json:"range"`
	// Files are the paths in the package that are kept: a file, or a folder
	// with all it holds.
	Files []string `json:"files"`
	// To is where the files go, relative to the root.
	To string `json:"to"`
	// Links are symbolic links to make: path to target.
	Links map[string]string `json:"links"`
}

var npmRange = regexp.MustCompile(`^[0-9A-Za-z.^~+-]{1,60}$`)

// readDefinition reads definition.json and notices/ of dir.
func readDefinition(dir fs.FS) (Definition, error) {
	raw, err := fs.ReadFile(dir, "definition.json")
	if err != nil {
		return Definition{}, fmt.Errorf("read definition: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	def := Definition{raw: raw, notices: map[string][]byte{}}
	if err := dec.Decode(&def); err != nil {
		return Definition{}, fmt.Errorf("read definition: %w", err)
	}
	if err := def.validate(); err != nil {
		return Definition{}, fmt.Errorf("read definition: %w", err)
	}
	names, err := fs.Glob(dir, "notices/*")
	if err != nil {
		return Definition{}, fmt.Errorf("read notices: %w", err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			return Definition{}, fmt.Errorf("read notices: %w", err)
		}
		def.notices[path.Base(name)] = data
	}
	return def, nil
}

func (d Definition) validate() error {
	if !suiteName.MatchString(d.Suite) {
		return fmt.Errorf("the suite %.40q is no code name", d.Suite)
	}
	for _, name := range slices.Concat(d.Packages, d.Omit, d.Stage, d.StageOmit) {
		if !debianName.MatchString(name) {
			return fmt.Errorf("%.60q is no Debian package name", name)
		}
	}
	if len(d.Packages) == 0 || len(d.Stage) == 0 {
		return errors.New("packages or stage is empty")
	}
	if !slices.Contains(d.Packages, d.Browser) {
		return fmt.Errorf("the browser %.60q is not among the packages", d.Browser)
	}
	agent := false
	for _, n := range d.NPM {
		if !npmName.MatchString(n.Name) || !npmRange.MatchString(n.Range) {
			return fmt.Errorf("%.60q %.60q is no npm package and range", n.Name, n.Range)
		}
		for _, p := range append(slices.Clone(n.Files), n.To) {
			if !fs.ValidPath(p) {
				return fmt.Errorf("%s: %.60q is no relative path", n.Name, p)
			}
		}
		for link, target := range n.Links {
			if !fs.ValidPath(link) || climbs(link, target) {
				return fmt.Errorf("%s: the link %.60q is not inside the image", n.Name, link)
			}
		}
		agent = agent || n.Name == d.Agent
	}
	if !agent {
		return fmt.Errorf("the agent %.60q is not among the npm packages", d.Agent)
	}
	return nil
}

// wants is the digest of what decides the set of packages. A lock made for
// other wants is out of date.
func (d Definition) wants() string {
	h := sha256.New()
	for _, part := range [][]string{{d.Suite}, d.Packages, d.Omit, d.Stage, d.StageOmit} {
		fmt.Fprintf(h, "%q\n", part)
	}
	for _, n := range d.NPM {
		fmt.Fprintf(h, "%q\n", []string{n.Name, n.Range})
	}
	return hex.EncodeToString(h.Sum(nil))
}

// inputs is the digest of everything that decides the tree: builder,
// definition, notices and lock. Two images of the same inputs are the same.
func (d Definition) inputs(l Lock) string {
	h := sha256.New()
	fmt.Fprintf(h, "builder %d\n%d %s\n", builderVersion, len(d.raw), d.raw)
	names := make([]string, 0, len(d.notices))
	for name := range d.notices {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(h, "%q %d %s\n", name, len(d.notices[name]), d.notices[name])
	}
	h.Write(l.Encode())
	return hex.EncodeToString(h.Sum(nil))
}

// keeps reports whether the file p of the package is wanted.
func (n NPMPackage) keeps(p string) bool {
	for _, f := range n.Files {
		if p == f || strings.HasPrefix(p, f+"/") {
			return true
		}
	}
	return false
}

// allows reports whether a locked version is surely in the range. Ranges other
// than "1.2.3", "1.2" and "1" are npm's to judge: then it chooses anew.
func (n NPMPackage) allows(version string) bool {
	return version == n.Range || strings.HasPrefix(version, n.Range+".")
}
