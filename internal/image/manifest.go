package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// contentsPath is where an image says what it holds. It lies inside the tree,
// so the digest vouches for it.
const contentsPath = "usr/share/doc/dreamcore/image.json"

// contentsLimit bounds how much of a foreign image.json is read.
const contentsLimit = 4 << 20

// Contents is what an image says about itself.
type Contents struct {
	Suite          string    `json:"suite"`
	Architecture   string    `json:"architecture"`
	AgentName      string    `json:"agentName"`
	AgentVersion   string    `json:"agentVersion"`
	NodeVersion    string    `json:"nodeVersion"`
	BrowserVersion string    `json:"browserVersion"`
	Debian         []Package `json:"debian"`
	NPM            []Package `json:"npm"`
}

// Manifest describes an image in the store.
type Manifest struct {
	Contents
	Digest    string `json:"digest"`    // "sha256:HEX" of the canonical listing of the tree
	SizeBytes int64  `json:"sizeBytes"` // of the files in it
	// Created and Inputs are not covered by the digest. Inputs is the digest of
	// what the image was built from here; "" for one that was imported.
	Created time.Time `json:"created"`
	Inputs  string    `json:"inputs,omitempty"`
}

// stamp is manifest.json: what the tree itself does not say.
type stamp struct {
	Format    int       `json:"format"`
	Digest    string    `json:"digest"`
	SizeBytes int64     `json:"sizeBytes"`
	Created   time.Time `json:"created"`
	Inputs    string    `json:"inputs,omitempty"`
}

const stampFormat = 1

func decodeStrict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func encodeIndented(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}

// readContents reads image.json out of the tree under dir.
func readContents(dir string) (Contents, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Contents{}, fmt.Errorf("open tree: %w", err)
	}
	defer root.Close()
	info, err := root.Lstat(contentsPath)
	if err != nil {
		return Contents{}, fmt.Errorf("read contents: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > contentsLimit {
		return Contents{}, fmt.Errorf("read contents: %s is no small file", contentsPath)
	}
	data, err := root.ReadFile(contentsPath)
	if err != nil {
		return Contents{}, fmt.Errorf("read contents: %w", err)
	}
	var c Contents
	if err := decodeStrict(data, &c); err != nil {
		return Contents{}, fmt.Errorf("read contents: %w", err)
	}
	return c, nil
}

// contents derives what the image says about itself from what goes into it.
func contents(def Definition, l Lock) Contents {
	c := Contents{
		Suite: l.Suite, Architecture: l.Architecture, AgentName: def.AgentName,
		Debian: l.Image, NPM: l.NPM,
	}
	c.BrowserVersion = upstreamVersion(byName(l.Image)[def.Browser].Version)
	for _, p := range l.NPM {
		if p.Name == def.Agent {
			c.AgentVersion = p.Version
		} else if len(p.Name) > 5 && p.Name[:5] == "node-" {
			c.NodeVersion = p.Version
		}
	}
	return c
}
