// Package template is the library of games that agents begin from: reading and
// validating it, the catalogue that the agent chooses from, the exact match of
// the agent's choice, and the files that a choice delivers.
package template

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"dreamcore"
	"dreamcore/games"
	"dreamcore/templates"
)

// File is one file of a delivered skeleton.
type File struct {
	Path string // relative to project/, slashes
	Data []byte // shared by all who ask; not to be changed
}

// Template is one game of the library.
type Template struct {
	Manifest
	files []File
}

// Files returns what is delivered to project/, sorted by path: the template's
// own files with the SDK, the kit files and the engine that its page loads.
func (t Template) Files() []File { return slices.Clone(t.files) }

// Reason says how a spec's first line fared.
type Reason string

// The outcomes of Match, each with a text "template.REASON" in the catalogue.
const (
	Matched   Reason = "matched"   // the line names a template
	Malformed Reason = "malformed" // the line is not of the form "template: TAG"
	Unknown   Reason = "unknown"   // the form is right, but there is no such template
)

// Library is a validated set of templates. It never changes.
type Library struct {
	byTag map[dreamcore.TemplateTag]Template
	tags  []dreamcore.TemplateTag
}

// Open reads the library that is built into the program.
func Open() (*Library, error) { return New(templates.Files, games.Files) }

// New reads the library from library (2d/NAME, 3d/NAME) and what is delivered
// with it from shared (sdk/, kit/, vendor/). The error names every fault of
// every template, one a line.
func New(library, shared fs.FS) (*Library, error) {
	l := &Library{byTag: map[dreamcore.TemplateTag]Template{}}
	var faults []error
	for _, dimension := range []string{"2d", "3d"} {
		entries, err := fs.ReadDir(library, dimension)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read templates: %w", err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			t, err := read(library, shared, path.Join(dimension, e.Name()))
			if err != nil {
				faults = append(faults, err)
				continue
			}
			l.byTag[t.Tag] = t
			l.tags = append(l.tags, t.Tag)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if len(l.tags) == 0 {
		return nil, errors.New("read templates: the library is empty")
	}
	slices.Sort(l.tags)
	return l, nil
}

// Tags returns the tags of all templates, sorted.
func (l *Library) Tags() []dreamcore.TemplateTag { return slices.Clone(l.tags) }

// Get returns the template of a tag.
func (l *Library) Get(tag dreamcore.TemplateTag) (Template, bool) {
	t, ok := l.byTag[tag]
	return t, ok
}

// Files returns what choosing tag delivers to project/; nothing when there is
// no such template.
func (l *Library) Files(tag dreamcore.TemplateTag) []File { return l.byTag[tag].Files() }

// Match looks up the first line of a spec, which must be exactly
// "template: TAG" (one newline at its end is allowed). Nothing is guessed: a
// line that is nearly right is Malformed, a tag that is nearly right Unknown.
func (l *Library) Match(firstLine string) (Template, Reason) {
	tag, ok := strings.CutPrefix(strings.TrimSuffix(firstLine, "\n"), "template: ")
	if !ok || !tagForm.MatchString(tag) {
		return Template{}, Malformed
	}
	t, ok := l.byTag[dreamcore.TemplateTag(tag)]
	if !ok {
		return Template{}, Unknown
	}
	return t, Matched
}

// Catalogue lists the templates for the agent, one line each:
//
//   - 2d/sky-flyer | Sky Flyer | summary | controls: move-2d | words: fly, sky, 飛ぶ, 空, 飞
//
// Title and summary are in lang; the words are in all languages, because a wish
// may be in another one than the page.
func (l *Library) Catalogue(lang dreamcore.Lang) string {
	var b strings.Builder
	for _, tag := range l.tags {
		t := l.byTag[tag]
		var words []string
		for _, of := range dreamcore.Langs {
			words = append(words, t.Words[of]...)
		}
		fmt.Fprintf(&b, "- %s | %s | %s | controls: %s | words: %s\n",
			tag, t.Title.In(lang), t.Summary.In(lang), t.Controls, strings.Join(words, ", "))
	}
	return b.String()
}

var tagForm = regexp.MustCompile(`^[23]d/[a-z0-9]+(-[a-z0-9]+)*$`)
